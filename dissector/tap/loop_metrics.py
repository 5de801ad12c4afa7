"""Copies the loop's own numbers into the metrics, a few times a second."""

from collections.abc import Sequence
from typing import Final

from dissector.blocks import TableBlock
from dissector.tap.finding_incidents import IncidentLog
from dissector.tap.health import Health, Losses
from dissector.tap.memory import resident_bytes
from dissector.tap.metrics import TapNumbers
from dissector.tap.packet_batches import PacketBatch
from dissector.tap.recorder import Recorder
from dissector.tap.rotations import Rotations
from dissector.tap.service import Tap

_EVERY_SECONDS: Final = 0.25


class LoopMetrics:
    """A listener that copies the loop's numbers into the metrics."""

    def __init__(
        self,
        health: Health,
        numbers: TapNumbers,
        rotations: Rotations | None = None,
        recorder: Recorder | None = None,
        incidents: IncidentLog | None = None,
    ) -> None:
        self._health = health
        self._numbers = numbers
        self._rotations = rotations
        self._recorder = recorder
        self._incidents = incidents
        self._next = 0.0
        self.tap: Tap | None = None
        numbers.wants_lake = rotations is not None

    def packets(self, packet_batch: PacketBatch) -> None:
        """Ignore packets."""

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Ignore rows."""

    def tick(self, now: float) -> None:
        """Copy the numbers if the interval has passed."""
        if now >= self._next and self.tap is not None:
            self._next = now + _EVERY_SECONDS
            self.look(self.tap)

    def look(self, tap: Tap) -> None:
        """Copy all numbers."""
        numbers, rotations = self._numbers, self._rotations
        problem, lost, waiting = None, 0, None
        if rotations is not None:
            problem, lost = rotations.problem, rotations.lost_packets
            waiting = rotations.delivery.sentence()
            numbers.waiting = rotations.delivery.waiting
            numbers.rotations = (rotations.landed, rotations.lost)
            numbers.queued_bytes = rotations.queued_bytes
        if self._recorder is not None:
            numbers.records = self._recorder.outcomes()
        if self._incidents is not None:
            numbers.findings = self._incidents.numbers()
        down = tap.source.down()
        losses = Losses(tap.kernel_dropped, lost, down, problem, waiting)
        sums = self._health.sums
        gaps, gap_bytes = tap.dissection.open_gaps()
        gaps, gap_bytes = gaps + sums.plain("gaps"), gap_bytes + sums.plain("gap_bytes")
        self._health.lost(losses, gaps, gap_bytes)
        numbers.interfaces = {name: name not in down for name in tap.source.interfaces}
        numbers.connections_seen = tap.connections_before + tap.dissection.connections_seen
        used, ignored = tap.packet_counts()
        numbers.packets_tcp, numbers.ignored = used, ignored
        numbers.memory_bytes = resident_bytes()
        numbers.memory_restarts = tap.memory_restarts
