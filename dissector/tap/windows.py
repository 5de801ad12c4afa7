"""Windows of what a tap sees: rows that closed, as tables, for those who count and those who judge.

The loop hands blocks over and goes on. A thread makes tables of them, once for all who take them.
A window ends when somebody asks for newer numbers, when a minute is over, or when it is full. While
the thread is busy, rows gather in the next one: under load windows get larger, up to twice as
large, and none is passed over. The loop waits only where two are full already.
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
from dissector.tap.window_tables import Columns, Gathering, Rows

WINDOW_NS: Final = 60_000_000_000  # when rules are asked again, at the latest
_NS: Final = 1e9
_NICE: Final = 4
_WINDOWS: Final = 4  # so many small ones hold the bytes that are judged at once
_PATIENCE_SECONDS: Final = 0.4  # of who asks for newer numbers; who asks next has them


class Window(NamedTuple):
    """What closed in it.

    run: of the tap.
    closed: None when it was given as tables.
    size: bytes.
    last_ns: time of the last packet so far.
    repeated: connections whose facts are another one's.
    open_rows: what was open at its end, None where rules are not asked.
    is_end: the run is over.
    ticket: of the last one who asked for it.
    """

    run: str
    closed: Gathering | None
    size: int
    last_ns: int
    repeated: Set[int] = frozenset()
    open_rows: Sequence[TableBlock] | None = None
    is_end: bool = False
    ticket: int = 0


class Taker(Protocol):
    """Takes windows, in the thread. columns: that it reads, by table."""

    @property
    def columns(self) -> Columns:
        """By table."""

    def take(self, window: Window, rows: Rows) -> None:
        """The rows that closed in a window, as tables."""

    def fail(self, window: Window, error: Exception) -> None:
        """There are no tables of a window."""


class Judges(Taker, Protocol):
    """Takes windows and is asked about them now and then."""

    def is_free(self, now: float) -> bool:
        """Whether it can be asked."""

    def expect(self) -> None:
        """A window with what is open is on its way."""


class Windows:
    """A listener that gives windows to takers.

    Args:
        may_wait: the loop may be held up, so that rules are asked whenever their time is over.
        judges: of the takers, the one that is asked about what is open.
        window_bytes: of rows after which it is asked.
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
        self._closed = Gathering(self._columns)
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
        """Note the time."""
        if not self._first_ns:
            self._first_ns = int(packet_batch.packets.ts_ns[0])
            self._began = time.monotonic()
        self._last_ns = max(self._last_ns, int(packet_batch.packets.ts_ns[packet_batch.rows - 1]))

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Keep what somebody reads of them."""
        for block in blocks:
            if block.table != "capture_files":
                self._closed.add(block)
        self._run = self._tap.tap_run

    def tick(self, now: float) -> None:
        """End a window that somebody waits for, that is full, or whose run ended."""
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
        """Whether rules are to be asked."""
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
        """Let the running window end soon; gives what `refresh` waits for."""
        with self._changed:
            self._asked += 1
            return self._asked

    def refresh(self) -> None:
        """Wait until all rows so far are counted, or too long. From any thread but the loop's."""
        ticket = self.ask()
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._done >= ticket, _PATIENCE_SECONDS)

    def flush(self) -> None:
        """Have all rows so far counted. By the loop."""
        self._end(None)
        self._waiting.join()

    def close(self) -> None:
        """Give the last window, in which everything is closed."""
        self._end(tuple, is_end=True)
        self._waiting.put(None)
        self._thread.join()

    def _end(
        self, open_rows: Callable[[], Sequence[TableBlock]] | None, is_end: bool = False
    ) -> None:
        """Hand the running window over."""
        run, self._given = self._run, self._asked
        opened = None
        if open_rows is not None and self._judges is not None and run is not None:
            # Before the blocks are taken: it may be that further rows close.
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
        self._closed = Gathering(self._columns)
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
            except Exception as error:  # want of memory: packets go on
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
        except Exception as error:  # a query, or want of memory: packets go on
            taker.fail(window, error)
