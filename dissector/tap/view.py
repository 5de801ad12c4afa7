"""The view of a tap: the busiest topics, refreshed in place on a terminal, else printed."""

import sys
import textwrap
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
from dissector.tap.view_columns import COLUMNS, TOPIC, Column, TopicLine

SHOWN: Final = 15  # topics
EVERY_SECONDS: Final = 1.0
PLAIN_EVERY_SECONDS: Final = 10.0  # if the output is no terminal

_ERRORS: Final = 3  # most error codes that are listed
_LEAST_NAME: Final = 16  # least characters of a topic, even on a narrow terminal


class Shown(NamedTuple):
    """The user's choice of columns, in display order. order: the column to sort by."""

    columns: Sequence[Column] = tuple(COLUMNS.values())
    order: str = "rate"


class TapView:
    """A listener that shows the sums of `health`.

    Args:
        escape: makes text from the wire safe to print. stream: on a terminal the table is refreshed
            in place, else it is printed periodically. incidents: findings.
    """

    def __init__(
        self,
        health: Health,
        escape: Callable[[str], str],
        stream: TextIO | None = None,
        incidents: IncidentLog | None = None,
        shown: Shown | None = None,
    ) -> None:
        self._health = health
        self._escape = escape
        self._incidents = incidents
        self._shown = Shown() if shown is None else shown
        self._stream = sys.stdout if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._every = EVERY_SECONDS if self._is_terminal else PLAIN_EVERY_SECONDS
        self._console = Console(file=self._stream)
        self._live: Live | None = None
        self._next = 0.0
        self._has_legend = False
        self._topics = 0
        self._before: dict[str, int] = {}
        self._began = self._before_at = time.monotonic()

    def packets(self, packet_batch: PacketBatch) -> None:
        """Ignore packets."""

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Ignore rows: `Sums` adds them up by the window."""

    def tick(self, now: float) -> None:
        """Refresh the view if the interval has passed."""
        if now < self._next:
            return
        self._next = now + self._every
        self._health.ask()
        self._show(self.lines(now))

    def say(self, line: str) -> bool:
        """Print a line above the table; False if the output is no terminal with a table."""
        if self._live is None or not self._live.is_started:
            return False
        self._console.print(Text(line))
        return True

    def close(self) -> None:
        """Show the last numbers and leave the terminal as it was."""
        self._health.flush()
        self._show(self.lines(time.monotonic()))
        if self._live is not None:
            self._live.stop()

    def lines(self, now: float) -> list[TopicLine]:
        """The first topics in the user's order, then by sends."""
        sums = self._health.sums
        with sums.lock:
            outcomes: dict[str, dict[str, int]] = {}
            for (topic, outcome), count in sums.counts["sends"].values.items():
                outcomes.setdefault(topic, {})[outcome] = count
            again = _by_topic(sums.counts["redelivered_frames"].values)
            latencies = {topic: times_of(sums, "send_latency", topic, "ok") for topic in outcomes}
            felt = {topic: times_of(sums, "application", topic) for topic in outcomes}
            balances = sums.balances.now(self._health.now_ns() // 1000)
        permits, empty = _by_topic(balances["available"]), _by_topic(balances["empty"])
        sends = {topic: sum(counts.values()) for topic, counts in outcomes.items()}
        passed = max(now - self._before_at, 1e-3)
        lines = []
        for topic in sends.keys() | permits.keys():
            counts = outcomes.get(topic, {})
            lines.append(
                TopicLine(
                    topic,
                    (sends.get(topic, 0) - self._before.get(topic, 0)) / passed,
                    sends.get(topic, 0),
                    counts.get("error", 0),
                    max(0, sends.get(topic, 0) - answered(counts)),
                    latencies.get(topic, {}),
                    felt.get(topic, {}),
                    permits.get(topic),
                    empty.get(topic),
                    again.get(topic, 0),
                )
            )
        self._before, self._before_at, self._topics = sends, now, len(lines)
        return self.in_order(lines)[:SHOWN]

    def in_order(self, lines: Sequence[TopicLine]) -> list[TopicLine]:
        """Lines in the user's order, then by activity."""
        if self._shown.order == TOPIC:
            return sorted(lines, key=lambda line: line.topic)
        size = COLUMNS[self._shown.order].size

        def rank(line: TopicLine) -> tuple[float, float, int, str]:
            value = size(line)
            return 1.0 if value is None else -value, -line.rate, -line.sends, line.topic

        return sorted(lines, key=rank)

    # -- drawing

    def _show(self, lines: Sequence[TopicLine]) -> None:
        if self._is_terminal:
            self._draw(lines)
        else:
            self._print(lines)

    def _summary(self) -> list[str]:
        """The lines above the table: run time, losses and problems over all topics."""
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
        return [
            f"up {uptime}: {many(health.packets_seen, 'packet')}, "
            f"{losses.kernel_dropped:,} dropped by kernel, {losses.queue_dropped:,} not landed, "
            f"{health.gap_bytes:,} bytes missing; {state}, "
            f"{'flowing' if health.flows else 'silent'}",
            f"{many(count, 'refusal')}{why}; "
            f"{empty:,} of {many(known, 'consumer')} without permits",
            *([] if self._incidents is None else [_incidents(self._incidents)]),
        ]

    def _legend(self, columns: Sequence[Column]) -> str:
        """The line that explains the columns and the sort order."""
        descriptions = "; ".join(f"{each.head}: {each.meaning}" for each in columns)
        order = self._shown.order
        head = order if order == TOPIC else COLUMNS[order].head
        return f"{descriptions}. Sorted by {head} (--sort)."

    def _more(self, lines: Sequence[TopicLine]) -> list[str]:
        left = self._topics - len(lines)
        return [f"… and {many(left, 'more topic')}"] if left > 0 else []

    def _draw(self, lines: Sequence[TopicLine]) -> None:
        folder = common_folder([line.topic for line in lines])
        columns = [*self._shown.columns]
        # A terminal that is too narrow gets fewer columns.
        while len(columns) > 1 and self._room(columns, lines) < _LEAST_NAME:
            columns.pop()
        table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
        for column in columns:
            table.add_column(column.head, justify="right", no_wrap=True)
        table.add_column(TOPIC, no_wrap=True)
        names = [self._escape(line.topic.removeprefix(folder)) for line in lines]
        names = shortened(names, max(_LEAST_NAME, self._room(columns, lines)))
        for line, name in zip(lines, names, strict=True):
            table.add_row(*(column.cell(line) for column in columns), Text(name))
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        head = [*self._summary(), *([f"topics in {folder}"] if folder else [])]
        texts = [Text(self._escape(text)) for text in head]
        foot = [*self._more(lines), *textwrap.wrap(self._legend(columns), self._console.width)]
        self._live.update(
            Group(*texts, table, *(Text(text, style="dim") for text in foot)), refresh=True
        )

    def _room(self, columns: Sequence[Column], lines: Sequence[TopicLine]) -> int:
        """The width that columns, with a gap after each, leave for topic names."""
        return self._console.width - sum(_width(column, lines) + 1 for column in columns)

    def _print(self, lines: Sequence[TopicLine]) -> None:
        """Print the table to a pipe or file, with full names; the first time with its legend."""
        columns = self._shown.columns
        if not self._has_legend:
            self._has_legend = True
            print(self._legend(columns), file=self._stream)
        for text in self._summary():
            print(self._escape(text), file=self._stream)
        widths = [_width(column, lines) for column in columns]
        rows = [[column.head for column in columns] + [TOPIC]]
        rows += [[each.cell(line) for each in columns] + [self._escape(line.topic)]
                 for line in lines]  # fmt: skip
        for *cells, name in rows if lines else ():
            numbers = (f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
            print(f"  {'  '.join(numbers)}  {name}", file=self._stream)
        for text in self._more(lines):
            print(text, file=self._stream)
        self._stream.flush()


def _width(column: Column, lines: Sequence[TopicLine]) -> int:
    return max(len(column.head), *(len(column.cell(line)) for line in lines), 0)


def _incidents(log: IncidentLog) -> str:
    counts = [f"{count:,} {severity}" for severity, count in sorted(log.by_severity.items())]
    worst = log.worst
    return f"findings: {', '.join(counts) or 'none so far'}" + (
        "" if worst is None else f"; the worst: {worst.number} {worst.title}"
    )


def _largest(entry: tuple[str, int]) -> tuple[int, str]:
    return -entry[1], entry[0]


def times_of(sums: Sums, name: str, *key: str) -> Row:
    """Durations in ms, in the form of the report."""
    times = sums.durations[name]
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
