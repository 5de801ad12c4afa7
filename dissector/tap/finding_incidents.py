"""Findings of windows as incidents: each is said and counted once, however many windows see it."""

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
    """incidents, last_ns: as `IncidentLog` has them; windows: by outcome."""

    incidents: Mapping[Key, int]
    last_ns: Mapping[Key, int]
    windows: Mapping[str, int]


_Incident = tuple[str, str, tuple[tuple[str, str], ...]]


class IncidentLog:
    """A listener that counts incidents, and hands over each new one.

    incidents: by rule and severity.
    by_severity: how many there are.
    last_ns: when the last one was seen last, by the same labels.
    worst: the worst one so far, the latest of equals.

    Args:
        say: takes a sentence. show: takes a new incident.
        rotations: of the lake, in which notes note each incident for `dissector findings`.
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
        self._until: OrderedDict[_Incident, int] = OrderedDict()
        self._skipped = self._failed = 0
        self._next = 0.0

    def packets(self, packet_batch: PacketBatch) -> None:
        """Nothing is asked of packets."""

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Rows are judged by the window."""

    def tick(self, now: float) -> None:
        """Raise what was found meanwhile."""
        if now >= self._next:
            self._next = now + _EVERY_SECONDS
            self._raise()

    def close(self) -> None:
        """Raise what the last window holds. All rows are in the lake, and what was noted goes."""
        self._judging.close()
        self._raise()
        if self._notes is not None and self._rotations is not None:
            self._notes.close(not self._rotations.lost)

    def _raise(self) -> None:
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
        until = self._until.pop(incident, None)
        new = 0
        for first_ns, last_ns in one.spans:
            new += until is None or first_ns - until > one.apart_ns
            until = max(last_ns, until or 0)
        self._until[incident] = until or 0
        if len(self._until) > MAX_INCIDENT_SUBJECTS:
            self._until.popitem(last=False)
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
        """What metrics show, as it is now."""
        windows = self._judging
        return FindingNumbers(
            dict(self.incidents.values), dict(self.last_ns),
            {"judged": windows.judged, "skipped": windows.skipped, "failed": windows.failed},
        )  # fmt: skip
