"""The columns of a tap's view: for a topic each has a text and a sort value."""

from collections.abc import Callable
from typing import Final, NamedTuple

from dissector.report.formatting import percentile_ms
from dissector.report.numbers import Row

TOPIC: Final = "topic"  # the last column, always


class TopicLine(NamedTuple):
    """The numbers of one topic.

    rate: recent sends per second.
    refused: refused sends.
    unanswered: sends without any answer.
    latency, application: durations of confirmed sends in the form of the report
        (`numbers.durations`); empty if there are none.
    permits: available to its consumers, empty: consumers without permits now; None if no balance is
        known.
    redelivered: redeliveries.
    """

    topic: str
    rate: float
    sends: int
    refused: int
    unanswered: int
    latency: Row
    application: Row
    permits: int | None
    empty: int | None
    redelivered: int


class Column(NamedTuple):
    """A column: its heading, its legend, its cell text and its sort value."""

    head: str
    meaning: str
    cell: Callable[[TopicLine], str]
    size: Callable[[TopicLine], float | None]


def _counted(head: str, meaning: str, size: Callable[[TopicLine], int | None]) -> Column:
    def cell(line: TopicLine) -> str:
        count = size(line)
        return "-" if count is None else f"{count:,}"

    return Column(head, meaning, cell, size)


# By option name, in display order.
COLUMNS: Final = {
    "rate": Column(
        "sends/s", "lately", lambda line: f"{line.rate:,.1f}", lambda line: line.rate
    ),
    "p50": Column(
        "p50 ms", "half of the receipts came within it",
        lambda line: percentile_ms(line.latency, "p50"), lambda line: line.latency.get("p50"),
    ),
    "p99": Column(
        "p99 ms", "99 % of them did",
        lambda line: percentile_ms(line.latency, "p99"), lambda line: line.latency.get("p99"),
    ),
    "felt": Column(
        "felt ms", "99 % of sends took the application that long, from publishing to the receipt",
        lambda line: percentile_ms(line.application, "p99"),
        lambda line: line.application.get("p99"),
    ),
    "sends": _counted("sends", "so far", lambda line: line.sends),
    "refused": _counted("refused", "of them by the broker", lambda line: line.refused),
    "permits": _counted("permits", "left to consumers", lambda line: line.permits),
    "empty": _counted("empty", "consumers without permits", lambda line: line.empty),
    "again": _counted("again", "messages delivered repeatedly", lambda line: line.redelivered),
    "open": _counted("open", "sends without an answer", lambda line: line.unanswered),
}  # fmt: skip
