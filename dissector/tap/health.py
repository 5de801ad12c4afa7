"""The state of a tap: whether packets arrive, whether the data is complete, and the lag."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from dissector.blocks import TableBlock
from dissector.limits import MAX_SERIES
from dissector.tap.packet_batches import PacketBatch
from dissector.tap.sums import Sums

SILENT_SECONDS: Final = 60.0  # without a packet until the tap counts as silent
RECENT_SECONDS: Final = 300.0  # for so long after a loss the data is incomplete

_NS: Final = 1_000_000_000


class Losses(NamedTuple):
    """The losses so far.

    interfaces_down: names.
    landing_problem: None if there is none. waiting: a sentence on rotations that are on disk but
        not in the lake's store, and why; None if there are none, or no problem.
    """

    kernel_dropped: int
    queue_dropped: int
    interfaces_down: Sequence[str]
    landing_problem: str | None
    waiting: str | None = None


class Health:
    """A listener that records packet counts, and the times of the last packet and of losses.

    sums: totals over rows.
    refresh, flush: wait until `sums` has all rows so far; for another thread, and for the loop.
    ask: the same without waiting. packets, captured_bytes, wire_bytes: so far.
    lag_ns: of the last batch, from its last packet's time to its arrival in the loop.
    last_ns: latest capture time.
    started_seconds: start, since 1970, by the clock.
    """

    def __init__(self, is_live: bool, max_series: int = MAX_SERIES) -> None:
        self.is_live = is_live
        self.sums = Sums(max_series)
        self.refresh: Callable[[], None] = _nothing
        self.ask: Callable[[], object] = _nothing
        self.flush: Callable[[], None] = _nothing
        self.packets_seen = 0
        self.captured_bytes = 0
        self.wire_bytes = 0
        self.lag_ns = 0
        self.last_ns = 0
        self.losses = Losses(0, 0, (), None)
        self.gaps = self.gap_bytes = 0
        self.started_seconds = time.time()
        self._last_packet = self._began = time.monotonic()
        self._last_loss: float | None = None

    def packets(self, packet_batch: PacketBatch) -> None:
        """Count packets and measure the lag."""
        rows = packet_batch.rows
        self.packets_seen += rows
        self.captured_bytes += int(packet_batch.packets.captured_bytes[:rows].sum())
        self.wire_bytes += int(packet_batch.packets.wire_bytes[:rows].sum())
        self.last_ns = max(self.last_ns, int(packet_batch.packets.ts_ns[rows - 1]))
        self._last_packet = time.monotonic()
        if self.is_live:
            self.lag_ns = max(0, time.time_ns() - int(packet_batch.packets.ts_ns[0]))

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Ignore rows: `Sums` adds them up by the window."""

    def tick(self, now: float) -> None:
        """Do nothing."""

    def lost(self, losses: Losses, gaps: int, gap_bytes: int) -> None:
        """Set the losses; the loop calls this at intervals."""
        before = (self.losses, self.gaps)
        if (losses, gaps) != before and (
            losses.kernel_dropped > self.losses.kernel_dropped
            or losses.queue_dropped > self.losses.queue_dropped
            or gaps > self.gaps
        ):
            self._last_loss = time.monotonic()
        # The row of a connection that just closed may not be counted yet.
        self.losses = losses
        self.gaps, self.gap_bytes = max(gaps, self.gaps), max(gap_bytes, self.gap_bytes)

    @property
    def retransmitted(self) -> int:
        """Retransmitted packets of closed connections."""
        return self.sums.plain("retransmitted")

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last packet."""
        return time.monotonic() - self._last_packet

    @property
    def flows(self) -> bool:
        """Whether packets arrived within SILENT_SECONDS."""
        return self.packets_seen > 0 and self.silent_seconds < SILENT_SECONDS

    @property
    def is_complete(self) -> bool:
        """Whether nothing was lost recently: in the kernel, before the lake, or on the wire."""
        is_recent = (
            self._last_loss is not None and time.monotonic() - self._last_loss < RECENT_SECONDS
        )
        return not is_recent and self.losses.landing_problem is None

    def now_ns(self) -> int:
        """The current capture time: the clock's for live packets; the last packet's for a replay,
        whose time does not advance between packets."""
        return time.time_ns() if self.is_live else self.last_ns

    def report(self) -> dict[str, Any]:
        """The JSON of /healthz."""
        reasons = []
        if not self.packets_seen:
            reasons.append("no packet came yet")
        elif not self.flows:
            reasons.append(f"no packet for {self.silent_seconds:.0f} s")
        if self.losses.interfaces_down:
            reasons.append(f"interface down: {', '.join(self.losses.interfaces_down)}")
        if not self.is_complete:
            reasons.append("packets or stream bytes were lost lately")
        reasons += [
            each
            for each in (self.losses.landing_problem, self.losses.waiting, self.sums.problem)
            if each is not None
        ]
        return {
            "status": "degraded" if reasons else "ok",
            "flows": self.flows,
            "complete": self.is_complete,
            "reasons": reasons,
            "packets": self.packets_seen,
            "dropped_by_kernel": self.losses.kernel_dropped,
            "dropped_by_queue": self.losses.queue_dropped,
            "gaps": self.gaps,
            "silent_seconds": round(self.silent_seconds, 3),
            "lag_seconds": round(self.lag_ns / _NS, 6),
        }


def _nothing() -> None:
    """Do nothing: there are no sums."""
