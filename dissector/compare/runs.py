"""One run of a comparison: its measurements per cell of time."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dissector.compare.blocks import CellSeries
from dissector.compare.testing import Values

CELLS: Final = 4096  # number of time cells of a run; a cell is never divided between blocks
MetricKey = tuple[str, str | None]  # a measure or metric, and a topic; None: all of them


class Metric(NamedTuple):
    """A metric.

    name: on the command line.
    title: for people.
    unit: ms, share or per_s.

    of: the counted thing, singular and plural.
    is_more_worse: whether an increase is bad.
    least: a change below this share of the value before counts as unchanged.
    """

    name: str
    title: str
    unit: str
    of: tuple[str, str]
    is_more_worse: bool = True
    least: float = 0.0

    @property
    def is_of_time(self) -> bool:
        """Whether it is measured per second instead of per event."""
        return "second" in self.of[0]


LATENCIES: Final = {
    "send_latency": ("from a SEND to its receipt", ("receipt", "receipts")),
    "logical_latency": ("from a message's first SEND to its receipt", ("message", "messages")),
    "transmit": ("from a SEND's first byte to its last", ("send", "sends")),
    "publish_to_delivery": ("from a SEND to its delivery", ("delivery", "deliveries")),
    "ack_latency": ("from a delivery to its ack", ("ack", "acks")),
    "request_latency": ("from a request to its answer", ("answer", "answers")),
}
# Statistics of latencies, and the share of values below each percentile.
STATISTICS: Final[dict[str, float | None]] = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "mean": None}
# Senders with a fixed rate vary by about one in a thousand, the accuracy of their clock.
_PACE: Final = 0.01
RATIOS: Final = {
    metric.name: metric
    for metric in (
        Metric("sends_refused", "sends that were refused", "share", ("send", "sends")),
        Metric("sends_unanswered", "sends without an answer", "share", ("send", "sends")),
        Metric("sends_resent", "sends that repeat another", "share", ("send", "sends")),
        Metric("redeliveries", "repeated deliveries", "share", ("delivery", "deliveries")),
        Metric("checksum_failures", "wrong checksums", "share", ("checksum", "checksums")),
        Metric(
            "permits_exhausted", "time of consumers without permits", "share",
            ("second of consumers", "seconds of consumers"),
        ),
        Metric(
            "connections_failed", "connections that were not established", "share",
            ("connection", "connections"),
        ),
        Metric("requests_refused", "requests that were refused", "share", ("answer", "answers")),
        Metric(
            "messages_sent", "messages sent", "per_s", ("second", "seconds"),
            is_more_worse=False, least=_PACE,
        ),
        Metric(
            "messages_delivered", "messages delivered", "per_s", ("second", "seconds"),
            is_more_worse=False, least=_PACE,
        ),
    )
}  # fmt: skip


class Run(NamedTuple):
    """One side of a comparison.

    name: the user's name for it.
    coverage: `total` of the report's section.
    values: durations in ns, by measure and topic.
    series: sums per cell, by metric and topic; in seconds for metrics of time.
    numbers: metrics with only a value (of a report), by metric and topic; durations in ns.
    topics: number of events by topic.
    digests: digests of the input files.
    """

    name: str
    coverage: Mapping[str, Any]
    values: Mapping[MetricKey, Values]
    series: Mapping[MetricKey, CellSeries]
    numbers: Mapping[MetricKey, float]
    topics: Mapping[str, int]
    digests: frozenset[str]
    is_report: bool = False


def metric_of(name: str) -> Metric:
    """The metric with a name: one of RATIOS, or a measure with a statistic."""
    if name in RATIOS:
        return RATIOS[name]
    measure, _, statistic = name.rpartition(".")
    title, of = LATENCIES[measure.split(".")[0]]
    command = measure.partition(".")[2]
    return Metric(name, f"{title}{', ' + command if command else ''}, {statistic}", "ms", of)
