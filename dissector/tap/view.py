"""The terminal's view of a tap: the busiest topics, refreshed in place; plain lines elsewhere."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dissector.blocks import TableBlock
from dissector.tap.health import Health
from dissector.tap.pieces import Piece
from dissector.tap.series import BOUNDS_NS, Histograms

SHOWN: Final = 15  # topics
EVERY_SECONDS: Final = 1.0
PLAIN_EVERY_SECONDS: Final = 10.0  # where lines are kept

_NS_PER_MS: Final = 1e6


class TopicLine(NamedTuple):
    """One topic. rate: sends a second lately; p50_ms, p99_ms: upper bounds, None without answers;
    permits: available to its consumers, None where no balance is known."""

    topic: str
    rate: float
    sends: int
    not_ok: int
    p50_ms: float | None
    p99_ms: float | None
    permits: int | None
    redelivered: int


class View:
    """A listener that shows what `health` sums up.

    Args:
        escape: makes text from the wire safe to print. stream: a terminal gets a table that
            changes in place, anything else a line per topic now and then.
    """

    def __init__(
        self, health: Health, escape: Callable[[str], str], stream: TextIO | None = None
    ) -> None:
        self._health = health
        self._escape = escape
        self._stream = sys.stdout if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._every = EVERY_SECONDS if self._is_terminal else PLAIN_EVERY_SECONDS
        self._console = Console(file=self._stream)
        self._live: Live | None = None
        self._next = 0.0
        self._before: dict[str, int] = {}
        self._before_at = time.monotonic()

    def packets(self, piece: Piece) -> None:
        """Nothing is asked of packets."""

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Rows are summed up elsewhere."""

    def tick(self, now: float) -> None:
        """Show again, if it is time."""
        if now < self._next:
            return
        self._next = now + self._every
        lines = self.lines(now)
        if self._is_terminal:
            self._draw(lines)
        else:
            self._print(lines)

    def close(self) -> None:
        """Show the last numbers and leave the terminal as it was."""
        lines = self.lines(time.monotonic())
        if self._is_terminal:
            self._draw(lines)
            if self._live is not None:
                self._live.stop()
        else:
            self._print(lines)

    def lines(self, now: float) -> list[TopicLine]:
        """The busiest topics, by sends since the last look, then by sends."""
        with self._health.lock:
            sums = self._health.sums
            sends: dict[str, int] = {}
            not_ok: dict[str, int] = {}
            for (topic, outcome), count in sums.sends.values.items():
                sends[topic] = sends.get(topic, 0) + count
                not_ok[topic] = not_ok.get(topic, 0) + (count if outcome != "ok" else 0)
            again = _by_topic(sums.redelivered_frames.values)
            permits = _by_topic(sums.balances.now(self._health.now_ns() // 1000)["available"])
            quantiles = {topic: _quantiles(sums.send_latency, topic) for topic in sends}
        passed = max(now - self._before_at, 1e-3)
        found = [
            TopicLine(
                topic,
                (sends.get(topic, 0) - self._before.get(topic, 0)) / passed,
                sends.get(topic, 0),
                not_ok.get(topic, 0),
                *quantiles.get(topic, (None, None)),
                permits.get(topic),
                again.get(topic, 0),
            )
            for topic in sends.keys() | permits.keys()
        ]
        self._before, self._before_at = sends, now
        found.sort(key=lambda line: (-line.rate, -line.sends, line.topic))
        return found[:SHOWN]

    # -- drawing

    def _summary(self) -> str:
        health = self._health
        losses = health.losses
        state = "complete" if health.is_complete else "INCOMPLETE"
        return (
            f"{health.packets_seen:,} packets, {losses.kernel_dropped:,} dropped by kernel, "
            f"{losses.queue_dropped:,} not landed, {health.gap_bytes:,} bytes missing; {state}, "
            f"{'flowing' if health.flows else 'silent'}"
        )

    def _draw(self, lines: Sequence[TopicLine]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
        for name in ("sends/s", "sends", "not ok", "p50 ms", "p99 ms", "permits", "again"):
            table.add_column(name, justify="right", no_wrap=True, min_width=len(name))
        table.add_column("topic", overflow="ellipsis", no_wrap=True, ratio=1)
        for line in lines:
            cells = _cells(line)
            table.add_row(*cells[:-1], Text(self._escape(cells[-1])))
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._live.update(Group(Text(self._summary()), table), refresh=True)

    def _print(self, lines: Sequence[TopicLine]) -> None:
        """Lines that a pipe or a file keeps."""
        print(self._summary(), file=self._stream)
        for line in lines:
            rate, sends, not_ok, p50, p99, permits, again, topic = _cells(line)
            print(
                f"  {rate} sends/s, {sends} sends, {not_ok} not ok, p50 {p50} ms, p99 {p99} ms, "
                f"permits {permits}, again {again}: {self._escape(topic)}",
                file=self._stream,
            )
        self._stream.flush()


def _cells(line: TopicLine) -> tuple[str, ...]:
    return (
        f"{line.rate:,.1f}",
        f"{line.sends:,}",
        f"{line.not_ok:,}",
        "-" if line.p50_ms is None else f"{line.p50_ms:,.1f}",
        "-" if line.p99_ms is None else f"{line.p99_ms:,.1f}",
        "-" if line.permits is None else f"{line.permits:,}",
        f"{line.redelivered:,}",
        line.topic,
    )


def _by_topic(values: dict[tuple[str, ...], int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (topic, *_), count in values.items():
        found[topic] = found.get(topic, 0) + count
    return found


def _quantiles(latency: Histograms, topic: str) -> tuple[float | None, float | None]:
    """Median and p99 of answered sends: the upper bound of the octave that they lie in."""
    counts = latency.counts.get((topic, "ok"))
    if counts is None:
        return None, None
    rising = counts.cumsum()
    found = []
    for hundredths in (50, 99):
        rank = max(1, -(-int(rising[-1]) * hundredths // 100))
        place = min(int(rising.searchsorted(rank)), len(BOUNDS_NS) - 1)
        found.append((BOUNDS_NS[place] + 1) / _NS_PER_MS)
    return found[0], found[1]
