"""Windows of a tap's closed rows, as tables for the totals and the rules.

The loop queues blocks. A thread converts them to tables, once for all takers. A window ends when
newer numbers are requested, after a minute, or when it is full. While the thread is busy, rows
gather in the next window: under load windows grow to twice the size, but none is skipped. The loop
waits only if two windows are full.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence, Set
from typing import Final, NamedTuple, Protocol

from dissector.blocks import TableBlock
from dissector.limits import MAX_WINDOW_BYTES
from dissector.tap.packet_batches import PacketBatch
from dissector.tap.priority import step_back
from dissector.tap.service import Tap
from dissector.tap.window_tables import Columns, Rows, TableCollector

WINDOW_NS: Final = 60_000_000_000  # longest time between two runs of the rules
_NS: Final = 1e9
_NICE: Final = 4
_WINDOWS: Final = 4  # a window has this part of the bytes that are judged at once
_PATIENCE_SECONDS: Final = 0.4  # longest wait of a request for newer numbers


class Window(NamedTuple):
    """The rows that closed in a range of time.

    run: of the tap.
    closed: its blocks, None after their conversion.
    size: bytes.
    last_ns: time of the last packet so far.
    repeated: connections that another one repeats (twins).
    open_rows: rows of objects open at its end, None if rules do not run.
    is_end: the run ends with it.
    ticket: number of the last request for it.
    """

    run: str
    closed: TableCollector | None
    size: int
    last_ns: int
    repeated: Set[int] = frozenset()
    open_rows: Sequence[TableBlock] | None = None
    is_end: bool = False
    ticket: int = 0


class Taker(Protocol):
    """Receives windows, in the thread. columns: the columns that it reads, by table."""

    @property
    def columns(self) -> Columns:
        """The columns that it reads, by table."""

    def take(self, window: Window, rows: Rows) -> None:
        """Handle a window; rows: its closed rows as tables."""

    def fail(self, window: Window, error: Exception) -> None:
        """Handle a window whose conversion failed."""


class Judges(Taker, Protocol):
    """Receives windows and judges them at intervals."""

    def is_free(self, now: float) -> bool:
        """Whether a judgement can start."""

    def expect(self) -> None:
        """Announce a window with open rows."""


class Windows:
    """A listener that gathers rows into windows and passes these to takers.

    Args:
        may_wait: the loop may be blocked, so that rules run in every interval.
        judges: the taker that needs open rows.
        window_bytes: size of rows after which it runs.
    """

    def __init__(
        self,
        tap: Tap,
        may_wait: bool,
        takers: Sequence[Taker],
        judges: Judges | None = None,
        window_bytes: int = MAX_WINDOW_BYTES,
        window_ns: int = WINDOW_NS,
    ) -> None:
        self._tap = tap
        self._may_wait = may_wait
        self._takers = [*takers, *([judges] if judges is not None else [])]
        self._judges = judges
        self._limit = window_bytes
        self._enough = max(1, window_bytes // _WINDOWS)
        self._lasts_ns = window_ns
        self._columns: dict[str, list[str]] = {}
        for taker in self._takers:
            for table, names in taker.columns.items():
                known = self._columns.setdefault(table, [])
                known += [name for name in names if name not in known]
        self._closed = TableCollector(self._columns)
        self._unjudged = 0
        self._first_ns = self._last_ns = 0
        self._began = time.monotonic()
        self._run: str | None = None
        self._waiting: queue.Queue[Window | None] = queue.Queue(1)
        self._changed = threading.Condition()
        self._asked = self._given = self._done = 0
        self._is_over = False
        self._thread = threading.Thread(target=self._take_all, name="tap-windows", daemon=True)
        self._thread.start()

    def packets(self, packet_batch: PacketBatch) -> None:
        """Record the time of the last packet."""
        if not self._first_ns:
            self._first_ns = int(packet_batch.packets.ts_ns[0])
            self._began = time.monotonic()
        self._last_ns = max(self._last_ns, int(packet_batch.packets.ts_ns[packet_batch.rows - 1]))

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Keep the blocks that a taker reads."""
        for block in blocks:
            if block.table != "capture_files":
                self._closed.add(block)
        self._run = self._tap.tap_run

    def tick(self, now: float) -> None:
        """End a window that was requested, that is full, or whose run ended."""
        if self._run is not None and self._run != self._tap.tap_run:
            self._end(tuple, is_end=True)
        elif self._is_due(now):
            self._end(self._tap.open_rows)
        elif self._closed.size >= 2 * self._enough or (
            not self._waiting.unfinished_tasks
            and (self._asked > self._given or self._closed.size >= self._enough)
        ):
            self._end(None)

    def _is_due(self, now: float) -> bool:
        """Whether the rules must run."""
        judges = self._judges
        if judges is None or not self._first_ns or self._run is None:
            return False
        is_over = (
            self._unjudged + self._closed.size >= self._limit
            or self._last_ns - self._first_ns >= self._lasts_ns
            or now - self._began >= self._lasts_ns / _NS
        )
        return is_over and (self._may_wait or judges.is_free(now))

    def ask(self) -> int:
        """Request the end of the current window; returns the ticket that `refresh` waits for."""
        with self._changed:
            self._asked += 1
            return self._asked

    def refresh(self) -> None:
        """Wait until all rows so far are counted, or for a timeout. Not for the loop's thread."""
        ticket = self.ask()
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._done >= ticket, _PATIENCE_SECONDS)

    def flush(self) -> None:
        """Count all rows so far. For the loop's thread."""
        self._end(None)
        self._waiting.join()

    def close(self) -> None:
        """Pass on the last window, in which everything is closed."""
        self._end(tuple, is_end=True)
        self._waiting.put(None)
        self._thread.join()

    def _end(
        self, open_rows: Callable[[], Sequence[TableBlock]] | None, is_end: bool = False
    ) -> None:
        """Queue the current window for the thread."""
        run, self._given = self._run, self._asked
        opened = None
        if open_rows is not None and self._judges is not None and run is not None:
            # Before the blocks are moved, because `open_rows` may close further rows.
            opened = open_rows()
            self._judges.expect()
            self._unjudged = self._first_ns = 0
        else:
            self._unjudged += self._closed.size
        if run is None or (opened is None and self._closed.is_empty and not is_end):
            self._waiting.join()
            self._finish(self._given)
            return
        repeated = frozenset(self._tap.dissection.repeated())
        self._waiting.put(
            Window(run, self._closed, self._closed.size, self._last_ns, repeated, opened, is_end,
                   self._given)
        )  # fmt: skip
        self._closed = TableCollector(self._columns)
        if is_end:
            self._run = self._tap.tap_run

    def _finish(self, ticket: int) -> None:
        with self._changed:
            self._done = max(self._done, ticket)
            self._changed.notify_all()

    # -- in the thread

    def _take_all(self) -> None:
        step_back(_NICE)
        while (window := self._waiting.get()) is not None:
            try:
                rows = {} if window.closed is None else window.closed.tables(window.run)
                window = window._replace(closed=None)
            except Exception as error:  # memory is short: packets continue
                for taker in self._takers:
                    taker.fail(window, error)
            else:
                for taker in self._takers:
                    self._give(taker, window, rows)
            ticket = window.ticket
            del window
            self._waiting.task_done()
            self._finish(ticket)
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _give(self, taker: Taker, window: Window, rows: Rows) -> None:
        try:
            taker.take(window, rows)
        except Exception as error:  # a query failed, or memory is short: packets continue
            taker.fail(window, error)
