"""Merges findings of windows into incidents: each is reported and counted once."""

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from dissector.blocks import TableBlock
from dissector.findings.finding import Finding
from dissector.findings.loading import SEVERITIES
from dissector.findings.running_findings import Notes
from dissector.limits import MAX_INCIDENT_SUBJECTS, MAX_SERIES
from dissector.tap.judging import Judging
from dissector.tap.metric_series import Counts, Key
from dissector.tap.packet_batches import PacketBatch
from dissector.tap.rotations import Rotations

LABELS: Final = ("id", "code", "severity")
_EVERY_SECONDS: Final = 0.25


class FindingNumbers(NamedTuple):
    """incidents, last_ns: as in `IncidentLog`; windows: judged, skipped and failed ones."""

    incidents: Mapping[Key, int]
    last_ns: Mapping[Key, int]
    windows: Mapping[str, int]


_Incident = tuple[str, str, tuple[tuple[str, str], ...]]


class IncidentLog:
    """A listener that counts incidents and reports each new one.

    incidents: count by LABELS.
    by_severity: count by severity.
    last_ns: end of the latest incident, by LABELS.
    worst: the finding of the worst severity so far, the latest of equals.

    Args:
        say: prints a sentence. show: prints a new incident.
        rotations: of the lake into which `notes` writes each incident for `dissector findings`.
    """

    def __init__(
        self,
        judging: Judging,
        say: Callable[[str], None],
        show: Callable[[Finding], None],
        max_series: int = MAX_SERIES,
        rotations: Rotations | None = None,
        notes: Notes | None = None,
    ) -> None:
        self._judging = judging
        self._rotations = rotations
        self._notes = notes
        self._capture: str | None = None
        self.incidents = Counts(LABELS, max_series)
        self.by_severity: Counter[str] = Counter()
        self.last_ns: dict[Key, int] = {}
        self.worst: Finding | None = None
        self._worst_rank = len(SEVERITIES)
        self._say = say
        self._show = show
        self._ended_ns: OrderedDict[_Incident, int] = OrderedDict()
        self._skipped = self._failed = 0
        self._next = 0.0

    def packets(self, packet_batch: PacketBatch) -> None:
        """Ignore packets."""

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Ignore rows: `Judging` reads them by the window."""

    def tick(self, now: float) -> None:
        """Report new findings every _EVERY_SECONDS."""
        if now >= self._next:
            self._next = now + _EVERY_SECONDS
            self._report_new()

    def close(self) -> None:
        """Report the last findings; end the notes, deleting their file if no row is lost."""
        self._judging.close()
        self._report_new()
        if self._notes is not None and self._rotations is not None:
            self._notes.close(not self._rotations.lost)

    def _report_new(self) -> None:
        rotations = self._rotations
        if self._notes is not None and rotations is not None:
            capture = rotations.capture
            if capture is not None and capture != self._capture:
                self._capture = capture
                self._notes.begin(capture, not rotations.lost)
        for one in self._judging.drain():
            self._handle(one)
        failed, skipped = self._judging.failed, self._judging.skipped
        if failed > self._failed:
            self._failed = failed
            self._say(f"findings of a window are missing: {self._judging.problem}")
        if skipped and not self._skipped:
            self._say("more rows than rules keep up with: findings of some windows are missing")
        self._skipped = skipped

    def _handle(self, one: Finding) -> None:
        subject = tuple((name, str(value)) for name, value in sorted(one.subject.items()))
        incident = (one.code, one.severity, subject)
        until = self._ended_ns.pop(incident, None)
        new = 0
        for first_ns, last_ns in one.spans:
            new += until is None or first_ns - until > one.apart_ns
            until = max(last_ns, until or 0)
        self._ended_ns[incident] = until or 0
        if len(self._ended_ns) > MAX_INCIDENT_SUBJECTS:
            self._ended_ns.popitem(last=False)
        labels = self.incidents.key((one.number, one.code, one.severity))
        self.last_ns[labels] = max(one.last_ns, self.last_ns.get(labels, 0))
        if not new:
            return
        self.incidents.add(labels, new)
        self.by_severity[one.severity] += new
        if self._notes is not None:
            self._notes.add(one)
        rank = SEVERITIES.index(one.severity)
        if rank <= self._worst_rank:
            self._worst_rank, self.worst = rank, one
        self._show(one)

    def numbers(self) -> FindingNumbers:
        """A snapshot for the metrics."""
        windows = self._judging
        return FindingNumbers(
            dict(self.incidents.values), dict(self.last_ns),
            {"judged": windows.judged, "skipped": windows.skipped, "failed": windows.failed},
        )  # fmt: skip
