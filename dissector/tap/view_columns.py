"""The columns of a tap's view: what each shows of a topic, in words and as a number."""

from collections.abc import Callable
from typing import Final, NamedTuple

from dissector.report.formatting import percentile_ms
from dissector.report.numbers import Row

TOPIC: Final = "topic"  # the last column, always


class TopicLine(NamedTuple):
    """One topic.

    rate: sends a second lately.
    refused: sends.
    unanswered: sends without an answer of any kind.
    latency, application: as the report has them (`numbers.durations`), of sends that were
        confirmed; empty where there were none.
    permits: available to its consumers, empty: consumers without any now, None where no balance is
        known.
    redelivered: deliveries.
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
    """A column: its heading, what it means, its cell, and the number that lines are sorted by."""

    head: str
    meaning: str
    cell: Callable[[TopicLine], str]
    size: Callable[[TopicLine], float | None]


def _counted(head: str, meaning: str, size: Callable[[TopicLine], int | None]) -> Column:
    def cell(line: TopicLine) -> str:
        count = size(line)
        return "-" if count is None else f"{count:,}"

    return Column(head, meaning, cell, size)


# By the names that options have for them, in the order in which they are shown.
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
