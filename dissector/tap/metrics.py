"""Prometheus metric families from a tap's running sums.

Names follow the conventions of the exposition format: seconds and bytes, `_total` for counters. The
bounds of histograms are the octaves of the lake's latency buckets, so live metrics and reports have
the same counts.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from dissector.installed import own_version
from dissector.tap.finding_incidents import LABELS, FindingNumbers
from dissector.tap.health import Health
from dissector.tap.metric_series import BOUNDS_NS, Counts, Histograms, Key, label_text

_NS: Final = 1e9
_US: Final = 1e6
_SUBSCRIPTION: Final = ("topic", "subscription")

# Name without prefix and `_total`, name of the sums, labels, help text.
COUNTERS: Final = (
    ("frames", "frames", "Frames of the protocol, by direction and command."),
    ("frame_bytes", "frame_bytes", "Bytes of frames, by direction."),
    ("damaged_frames", "damaged", "Frames that are not whole or cannot be read, by status."),
    ("checksums", "checksums", "Frames with a checksum, by verdict."),
    ("checksum_mismatches", "mismatches", "Frames whose checksum is wrong, by topic."),
    ("sends", "sends", "Sends that were answered or given up, by topic and outcome."),
    ("sent_messages", "send_messages", "Messages of those sends, by topic."),
    ("sent_bytes", "send_bytes", "Bytes of the frames of those sends, by topic."),
    ("sends_resent", "resent", "Sends that repeat an earlier one, by topic."),
    ("requests", "requests", "Requests other than sends, by command and outcome."),
    ("errors", "errors", "Answers that refuse something, by request and error code."),
    ("deliveries", "deliveries", "Deliveries whose fate is known, by subscription."),
    ("redeliveries", "redeliveries", "Those that repeat an earlier one, by cause."),
    (
        "redelivered_frames",
        "redelivered_frames",
        "MESSAGE frames that the broker counts as repeated, at once.",
    ),
    ("acks", "acks", "Ids acknowledged or asked for again, by subscription and action."),
    ("connections_closed", "connections", "Connections that are over, by protocol and end."),
    ("notices", "notices", "Notices about traffic and capture, by code; per rotation."),
)
HISTOGRAMS: Final = (
    (
        "send_latency_seconds",
        "send_latency",
        "From the end of a SEND to the end of its answer, by topic and outcome.",
    ),
    (
        "application_seconds",
        "application",
        "From the publish time of a send to the last receipt that confirms it, by topic.",
    ),
    (
        "publish_to_delivery_seconds",
        "publish_to_delivery",
        "From the end of a SEND to the end of the MESSAGE that delivers it, by subscription.",
    ),
)
PREFIX: Final = "dissector_"


class TapNumbers:
    """Numbers of the loop that do not stem from rows; replaced a few times a second.

    cluster: a label of all metrics, None for none.
    ignored: packets by reason.
    interfaces: whether each is up, by name.
    rotations: landed, lost. waiting: rotations on disk that are not in the lake's store yet.
    records: recordings by outcome.
    findings: None if no rules run.
    """

    def __init__(self, cluster: str | None = None) -> None:
        self.cluster = None if cluster is None else label_text(cluster)
        self.ignored: Mapping[str, int] = {}
        self.packets_tcp = 0
        self.interfaces: Mapping[str, bool] = {}
        self.rotations: tuple[int, int] = (0, 0)
        self.queued_bytes = 0
        self.waiting = 0
        self.connections_seen = 0
        self.records: Mapping[str, int] = {"kept": 0, "limited": 0, "failed": 0}
        self.findings: FindingNumbers | None = None
        self.memory_bytes = 0
        self.memory_restarts = 0
        self.wants_lake = False


class TapCollector(Collector):
    """Collects all metric families of a tap at each scrape."""

    def __init__(self, health: Health, numbers: TapNumbers) -> None:
        self._health = health
        self._numbers = numbers

    def collect(self) -> Iterator[Metric]:
        """The current families; sums are copied under the lock and rendered outside of it."""
        cluster = self._numbers.cluster
        for family in self._families():
            if cluster is not None:
                family.samples = [
                    sample._replace(labels={**sample.labels, "cluster": cluster})
                    for sample in family.samples
                ]
            yield family

    # -- inside

    def _families(self) -> Iterator[Metric]:
        health = self._health
        health.refresh()
        with health.sums.lock:
            families = [*self._facts(), *self._permits()]
        yield from families
        yield from self._tap()
        yield from self._losses()
        yield from self._findings()

    # -- facts

    def _facts(self) -> Iterator[Metric]:
        sums = self._health.sums
        for name, attribute, text in COUNTERS:
            yield _counter(name, text, sums.counts[attribute])
        for name, attribute, text in HISTOGRAMS:
            yield _histogram(name, text, sums.durations[attribute])
        left_out = CounterMetricFamily(
            f"{PREFIX}label_sets_left_out",
            "Times that a label set beyond --max-series was counted as `other`, by metric.",
            labels=("metric",),
        )
        for name, counts in sums.all_counts():
            left_out.add_metric((name,), counts.left_out)
        yield left_out

    def _permits(self) -> Iterator[Metric]:
        balances = self._health.sums.balances
        yield _counter("permits_granted", "Permits granted by FLOW.", balances.granted)
        yield _counter("permits_used", "Permits used by deliveries.", balances.delivered)
        yield _counter(
            "permit_stalls",
            "Times that a consumer had no permits for a second or longer, ended by a grant; "
            "confirmed: messages had waited.",
            balances.stalls,
        )
        now = balances.now(self._health.now_ns() // 1000)
        for name, kind, text in (
            ("permits_available", "available", "Permits that consumers have left."),
            ("consumers", "consumers", "Consumers whose balance of permits is known."),
            ("consumers_stalled", "stalled", "Consumers without permits for a second or longer."),
        ):
            yield _gauge(name, text, now[kind])
        exhausted = CounterMetricFamily(
            f"{PREFIX}permits_exhausted_seconds",
            "Time that consumers had no permits, added up.",
            labels=_SUBSCRIPTION,
        )
        for key, microseconds in now["exhausted_us"].items():
            exhausted.add_metric(key, microseconds / _US)
        yield exhausted

    # -- the tap itself

    def _tap(self) -> Iterator[Metric]:
        health, numbers = self._health, self._numbers
        info = GaugeMetricFamily(f"{PREFIX}tap_info", "The program.", labels=("version",))
        info.add_metric((own_version(),), 1)
        yield info
        for name, text, value in (
            ("tap_packets_received", "Packets taken in.", health.packets_seen),
            ("tap_captured_bytes", "Bytes of packets taken in.", health.captured_bytes),
            ("tap_wire_bytes", "Their bytes on the wire.", health.wire_bytes),
            ("tap_packets_tcp", "Packets that belong to a TCP connection.", numbers.packets_tcp),
            ("connections", "Connections that began.", numbers.connections_seen),
            ("tap_memory_restarts", "Times that state was given up.", numbers.memory_restarts),
        ):
            yield CounterMetricFamily(f"{PREFIX}{name}", text, value=value)
        for name, text, amount in (
            (
                "tap_lag_seconds",
                "How long after a packet its rows were there.",
                health.lag_ns / _NS,
            ),
            ("tap_silent_seconds", "How long no packet came.", health.silent_seconds),
            ("tap_flowing", "1 while packets come.", float(health.flows)),
            ("tap_complete", "1 while nothing was lost lately.", float(health.is_complete)),
            ("tap_started_timestamp_seconds", "When the tap began.", health.started_seconds),
            ("tap_memory_bytes", "Resident memory.", numbers.memory_bytes),
            ("tap_queued_bytes", "Rows that wait for the lake.", numbers.queued_bytes),
            (
                "tap_waiting_rotations",
                "Rotations on disk that the store of the lake does not have yet.",
                numbers.waiting,
            ),
        ):
            yield GaugeMetricFamily(f"{PREFIX}{name}", text, value=amount)
        up = GaugeMetricFamily(f"{PREFIX}tap_interface_up", "1 while it is.", labels=("interface",))
        for interface, is_up in numbers.interfaces.items():
            up.add_metric((interface,), float(is_up))
        yield up

    def _losses(self) -> Iterator[Metric]:
        health, numbers = self._health, self._numbers
        dropped = CounterMetricFamily(
            f"{PREFIX}tap_packets_dropped",
            "Packets lost by the tap: the ring was full (kernel), their rotation did not get "
            "into the lake (queue).",
            labels=("by",),
        )
        dropped.add_metric(("kernel",), health.losses.kernel_dropped)
        dropped.add_metric(("queue",), health.losses.queue_dropped)
        yield dropped
        ignored = CounterMetricFamily(
            f"{PREFIX}tap_packets_ignored", "Packets that are not used.", labels=("reason",)
        )
        for reason, count in sorted(numbers.ignored.items()):
            ignored.add_metric((reason,), count)
        yield ignored
        for name, text, value in (
            ("gaps", "Holes in streams: bytes that were never captured.", health.gaps),
            ("gap_bytes", "Bytes of those holes.", health.gap_bytes),
            ("retransmitted_packets", "Of connections that are over.", health.retransmitted),
        ):
            yield CounterMetricFamily(f"{PREFIX}{name}", text, value=value)
        rotations = CounterMetricFamily(
            f"{PREFIX}tap_rotations", "Rotations by what became of them.", labels=("outcome",)
        )
        for outcome, count in zip(("landed", "lost"), numbers.rotations, strict=True):
            rotations.add_metric((outcome,), count)
        yield rotations
        losses = health.losses
        problems = (losses.landing_problem, losses.waiting)
        landing = float(numbers.wants_lake and problems == (None, None))
        yield GaugeMetricFamily(
            f"{PREFIX}tap_landing", "1 while rotations get into a lake.", value=landing
        )
        records = CounterMetricFamily(
            f"{PREFIX}tap_records", "Recordings by what became of them.", labels=("outcome",)
        )
        for outcome, count in numbers.records.items():
            records.add_metric((outcome,), count)
        yield records

    def _findings(self) -> Iterator[Metric]:
        findings = self._numbers.findings
        if findings is None:
            return
        total = CounterMetricFamily(
            f"{PREFIX}findings",
            "Incidents that the rules of findings found, by rule (id, code) and severity.",
            labels=LABELS,
        )
        last = GaugeMetricFamily(
            f"{PREFIX}finding_last_seen_timestamp_seconds",
            "When an incident of a rule was seen last, by the time of its packets.",
            labels=LABELS,
        )
        for key, count in findings.incidents.items():
            total.add_metric(key, count)
            last.add_metric(key, findings.last_ns[key] / _NS)
        windows = CounterMetricFamily(
            f"{PREFIX}tap_windows",
            "Windows by whether the rules of findings saw them.",
            labels=("outcome",),
        )
        for outcome, count in findings.windows.items():
            windows.add_metric((outcome,), count)
        yield from (total, last, windows)


def _counter(name: str, text: str, counts: Counts) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}{name}", text, labels=counts.labels)
    for key, count in counts.values.items():
        family.add_metric(key, count)
    return family


def _gauge(name: str, text: str, values: Mapping[Key, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{PREFIX}{name}", text, labels=_SUBSCRIPTION)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, histograms: Histograms) -> HistogramMetricFamily:
    family = HistogramMetricFamily(f"{PREFIX}{name}", text, labels=histograms.labels)
    for key in histograms.buckets:
        bounds = [str(bound / _NS) for bound in BOUNDS_NS]
        buckets = list(zip([*bounds, "+Inf"], histograms.octaves(key), strict=True))
        family.add_metric(key, buckets, histograms.sums.values.get(key, 0) / _NS)
    return family
