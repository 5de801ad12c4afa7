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
from dissector.report.formatting import duration_text, listed, many
from dissector.report.numbers import Row, answered, durations
from dissector.tap.finding_incidents import IncidentLog
from dissector.tap.health import Health
from dissector.tap.metric_series import Counts
from dissector.tap.packet_batches import PacketBatch
from dissector.tap.shortening import common_folder, shortened
from dissector.tap.sums import Sums

SHOWN: Final = 15  # topics
EVERY_SECONDS: Final = 1.0
PLAIN_EVERY_SECONDS: Final = 10.0  # where lines are kept

_HEADS: Final = (
    "sends/s", "p50 ms", "p99 ms", "sends", "refused", "permits", "empty", "again", "open",
)  # fmt: skip
_ERRORS: Final = 3  # codes of refusals that are named
_LEAST_NAME: Final = 16  # characters of a topic, on however narrow a terminal


class TopicLine(NamedTuple):
    """One topic.

    rate: sends a second lately.
    refused: sends.
    unanswered: sends without an answer of any kind.
    p50_ms, p99_ms: as the report has them, None where no send was confirmed.
    permits: available to its consumers, empty: consumers without any now, None where no balance is
        known.
    redelivered: deliveries.
    """

    topic: str
    rate: float
    sends: int
    refused: int
    unanswered: int
    p50_ms: float | None
    p99_ms: float | None
    permits: int | None
    empty: int | None
    redelivered: int


class TapView:
    """A listener that shows what `health` sums up.

    Args:
        escape: makes text from the wire safe to print. stream: a terminal gets a table that
            changes in place, anything else a line per topic now and then. incidents: findings.
    """

    def __init__(
        self,
        health: Health,
        escape: Callable[[str], str],
        stream: TextIO | None = None,
        incidents: IncidentLog | None = None,
    ) -> None:
        self._health = health
        self._escape = escape
        self._incidents = incidents
        self._stream = sys.stdout if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._every = EVERY_SECONDS if self._is_terminal else PLAIN_EVERY_SECONDS
        self._console = Console(file=self._stream)
        self._live: Live | None = None
        self._next = 0.0
        self._before: dict[str, int] = {}
        self._began = self._before_at = time.monotonic()

    def packets(self, packet_batch: PacketBatch) -> None:
        """Nothing is asked of packets."""

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Rows are added up by the window."""

    def tick(self, now: float) -> None:
        """Show again, if it is time."""
        if now < self._next:
            return
        self._next = now + self._every
        self._health.ask()
        lines = self.lines(now)
        if self._is_terminal:
            self._draw(lines)
        else:
            self._print(lines)

    def close(self) -> None:
        """Show the last numbers and leave the terminal as it was."""
        self._health.flush()
        lines = self.lines(time.monotonic())
        if self._is_terminal:
            self._draw(lines)
            if self._live is not None:
                self._live.stop()
        else:
            self._print(lines)

    def lines(self, now: float) -> list[TopicLine]:
        """The busiest topics, by sends since the last look, then by sends."""
        sums = self._health.sums
        with sums.lock:
            outcomes: dict[str, dict[str, int]] = {}
            for (topic, outcome), count in sums.counts["sends"].values.items():
                outcomes.setdefault(topic, {})[outcome] = count
            again = _by_topic(sums.counts["redelivered_frames"].values)
            latencies = {topic: _latency(sums, topic) for topic in outcomes}
            balances = sums.balances.now(self._health.now_ns() // 1000)
        permits, empty = _by_topic(balances["available"]), _by_topic(balances["empty"])
        sends = {topic: sum(counts.values()) for topic, counts in outcomes.items()}
        passed = max(now - self._before_at, 1e-3)
        lines = []
        for topic in sends.keys() | permits.keys():
            counts = outcomes.get(topic, {})
            latency = latencies.get(topic, {})
            lines.append(
                TopicLine(
                    topic,
                    (sends.get(topic, 0) - self._before.get(topic, 0)) / passed,
                    sends.get(topic, 0),
                    counts.get("error", 0),
                    max(0, sends.get(topic, 0) - answered(counts)),
                    latency.get("p50"),
                    latency.get("p99"),
                    permits.get(topic),
                    empty.get(topic),
                    again.get(topic, 0),
                )
            )
        self._before, self._before_at = sends, now
        lines.sort(key=lambda line: (-line.rate, -line.sends, line.topic))
        return lines[:SHOWN]

    # -- drawing

    def _summary(self) -> list[str]:
        """How long we watch, what was lost, and what goes wrong, whichever topic it is of."""
        health = self._health
        losses = health.losses
        state = "complete" if health.is_complete else "INCOMPLETE"
        uptime = duration_text(1000 * max(1, round(time.monotonic() - self._began)))
        with health.sums.lock:
            errors = _by_code(health.sums.counts["errors"])
            balances = health.sums.balances.now(health.now_ns() // 1000)
        count = sum(errors.values())
        named = [f"{number:,} {code}" for code, number in sorted(errors.items(), key=_largest)]
        why = f" ({listed(named, _ERRORS)})" if named else ""
        empty, known = (sum(balances[name].values()) for name in ("empty", "consumers"))
        log = self._incidents
        worst = f"; the worst: {log.worst}" if log is not None and log.worst else ""
        return [
            f"up {uptime}: {many(health.packets_seen, 'packet')}, "
            f"{losses.kernel_dropped:,} dropped by kernel, {losses.queue_dropped:,} not landed, "
            f"{health.gap_bytes:,} bytes missing; {state}, "
            f"{'flowing' if health.flows else 'silent'}",
            f"{many(count, 'refusal')}{why}; "
            f"{empty:,} of {many(known, 'consumer')} without permits",
            *([f"{many(log.total, 'incident')} found{worst}"] if log is not None else []),
        ]

    def _draw(self, lines: Sequence[TopicLine]) -> None:
        folder = common_folder([line.topic for line in lines])
        columns = list(zip(_HEADS, *map(_cells, lines), strict=True))
        # A gap of one behind each; where a terminal is too narrow for names, less is told.
        while len(columns) > 1 and self._room(columns) < _LEAST_NAME:
            columns.pop()
        table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
        for name, *_ in columns:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("topic", no_wrap=True)
        names = [self._escape(line.topic.removeprefix(folder)) for line in lines]
        names = shortened(names, max(_LEAST_NAME, self._room(columns)))
        for number, name in enumerate(names, 1):
            table.add_row(*(column[number] for column in columns), Text(name))
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        head = [*self._summary(), *([f"topics in {folder}"] if folder else [])]
        texts = [Text(self._escape(text)) for text in head]
        self._live.update(Group(*texts, table), refresh=True)

    def _room(self, columns: Sequence[Sequence[str]]) -> int:
        """How many characters some columns leave for the name of a topic."""
        return self._console.width - sum(max(map(len, column)) + 1 for column in columns)

    def _print(self, lines: Sequence[TopicLine]) -> None:
        """Lines that a pipe or a file keeps, names whole."""
        for text in self._summary():
            print(self._escape(text), file=self._stream)
        for line in lines:
            rate, p50, p99, sends, refused, permits, empty, again, silent = _cells(line)
            print(
                f"  {rate} sends/s, {sends} sends, {refused} refused, {silent} unanswered, "
                f"p50 {p50} ms, p99 {p99} ms, permits {permits}, {empty} without permits, "
                f"again {again}: {self._escape(line.topic)}",
                file=self._stream,
            )
        self._stream.flush()


def _cells(line: TopicLine) -> tuple[str, ...]:
    """In the order of _HEADS."""
    return (
        f"{line.rate:,.1f}",
        "-" if line.p50_ms is None else f"{line.p50_ms:,.2f}",
        "-" if line.p99_ms is None else f"{line.p99_ms:,.2f}",
        f"{line.sends:,}",
        f"{line.refused:,}",
        "-" if line.permits is None else f"{line.permits:,}",
        "-" if line.empty is None else f"{line.empty:,}",
        f"{line.redelivered:,}",
        f"{line.unanswered:,}",
    )


def _largest(entry: tuple[str, int]) -> tuple[int, str]:
    return -entry[1], entry[0]


def _latency(sums: Sums, topic: str) -> Row:
    """Percentiles in ms as the report has them, of sends that were confirmed."""
    times, key = sums.durations["send_latency"], (topic, "ok")
    return durations(
        times.buckets.get(key, {}), times.sums.values.get(key, 0), times.least.get(key),
        times.greatest.get(key),
    )  # fmt: skip


def _by_code(errors: Counts) -> dict[str, int]:
    counts: dict[str, int] = {}
    place = errors.labels.index("error_code")
    for key, count in errors.values.items():
        counts[key[place]] = counts.get(key[place], 0) + count
    return counts


def _by_topic(values: dict[tuple[str, ...], int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for (topic, *_), count in values.items():
        counts[topic] = counts.get(topic, 0) + count
    return counts
