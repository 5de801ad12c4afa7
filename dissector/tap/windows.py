"""The rules of findings over what a tap saw lately, in a thread of its own.

A window is a minute, or less of it where that is more rows than memory may hold. The rules see it
and the one before, as if the capture had begun and ended with them: rows that closed in them, and
those of what is open (`Dissection.open_rows`). What goes over from one window into the next is seen
whole in one of the two looks at it, unless it lasts longer than a window.

The loop hands over blocks and goes on; it never waits for a live input. While one window is judged
another one may wait. One more that comes is passed over: packets come first. So is one that comes
too soon: where much traffic makes windows short, rules take a share of one processor, no more.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from dissector.blocks import Coded, Column, TableBlock
from dissector.findings.finding import Finding, found_by, worst_first
from dissector.findings.querying import RuleQuery, incidents, rule_queries
from dissector.lake.writer import block_bytes
from dissector.queries.catalogue import View, used_views, words
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.queries.tables import NAMED_TWICE, table_views
from dissector.schemas import TABLES
from dissector.schemas.arrow import in_memory_schema
from dissector.schemas.rows import arrow_batch
from dissector.schemas.small_tables import NUMBER, TEXT, no_rows, small_table
from dissector.tap.pieces import Piece
from dissector.tap.priority import step_back
from dissector.tap.service import Tap

WINDOW_NS: Final = 60_000_000_000
WINDOW_BYTES: Final = 32 << 20  # of the blocks of one window
_NS: Final = 1e9
_MEMORY: Final = "128MB"
_NICE: Final = 15  # what it finds may come a minute later
_SHARE: Final = 0.1  # of one processor that rules take at most, over a window and the pause after

Rows = dict[str, pa.Table]


class Window(NamedTuple):
    """What closed in it, and what was open at its end. run: of the tap; follows: it continues the
    window that was handed over before it; last_ns: time of the last packet so far."""

    run: str
    follows: bool
    closed: Sequence[TableBlock]
    open_rows: Sequence[TableBlock]
    last_ns: int


class Reading(NamedTuple):
    """What rules read: their queries, the views between, and the columns of each table."""

    queries: Mapping[str, RuleQuery]
    views: Sequence[View]
    columns: Mapping[str, tuple[str, ...]]


@cache
def reading() -> Reading:
    """Of the rules that windows decide."""
    queries = {name: each for name, each in rule_queries().items() if not each.rule.words[""].whole}
    texts = [
        text for each in queries.values() for text in (each.text, *each.needs, *each.needs.values())
    ]
    views = used_views("\n".join(texts))
    texts += [view.query for view in views]
    names = {"protocol"}.union(*map(words, [*texts, *(query for _, query in table_views())]))
    read = {
        table: tuple(column.name for column in TABLES[table].columns if column.name in names)
        for table in TABLES
        if table in names
    }
    return Reading(queries, views, read)


class Windows:
    """A listener that has windows judged, and gives what was found to who asks (`take`).

    judged, skipped, failed: windows so far; problem: why the last one that failed did.

    Args:
        may_wait: the loop may be held up, so that no window is passed over.
    """

    def __init__(
        self,
        tap: Tap,
        may_wait: bool,
        window_bytes: int = WINDOW_BYTES,
        window_ns: int = WINDOW_NS,
    ) -> None:
        self.judged = self.skipped = self.failed = 0
        self.problem: str | None = None
        self._tap = tap
        self._may_wait = may_wait
        self._limit = window_bytes
        self._lasts_ns = window_ns
        self._columns = {table: {*names} for table, names in reading().columns.items()}
        self._blocks: list[TableBlock] = []
        self._bytes = 0
        self._first_ns = self._last_ns = 0
        self._began = time.monotonic()
        self._run: str | None = None
        self._waiting: queue.Queue[Window | None] = queue.Queue(1)
        self._due = 0.0  # on the monotonic clock: the next window may be judged from then on
        self._found: queue.SimpleQueue[list[Finding]] = queue.SimpleQueue()
        self._run_before: str | None = None
        self._thread = threading.Thread(target=self._judge_all, name="tap-rules", daemon=True)
        self._thread.start()

    def packets(self, piece: Piece) -> None:
        """Note the time."""
        if not self._first_ns:
            self._first_ns = int(piece.packets.ts_ns[0])
            self._began = time.monotonic()
        self._last_ns = max(self._last_ns, int(piece.packets.ts_ns[piece.rows - 1]))

    def rows(self, blocks: Sequence[TableBlock]) -> None:
        """Keep what rules read of them."""
        for block in blocks:
            wanted = self._columns.get(block.table)
            if wanted and block.rows and block.table != "capture_files":
                columns = {
                    name: _own(cells) for name, cells in block.columns.items() if name in wanted
                }
                self._blocks.append(TableBlock(block.table, block.rows, columns))
                self._bytes += block_bytes(self._blocks[-1])
        self._run = self._tap.tap_run

    def tick(self, now: float) -> None:
        """End a window that is over or full, or whose run ended: then nothing is open."""
        if self._run != self._tap.tap_run:
            self._end(tuple)
        elif self._first_ns and (
            self._bytes >= self._limit
            or self._last_ns - self._first_ns >= self._lasts_ns
            or now - self._began >= self._lasts_ns / _NS
        ):
            self._end(self._tap.open_rows)

    def drain(self) -> list[Finding]:
        """What was found since the last call."""
        found: list[Finding] = []
        while not self._found.empty():
            found += self._found.get()
        return found

    def close(self) -> None:
        """Have the last window judged, in which everything is closed; nothing is in a hurry now."""
        self._may_wait = True
        self._end(tuple)
        self._waiting.put(None)
        self._thread.join()

    def _end(self, open_rows: Callable[[], Sequence[TableBlock]]) -> None:
        """Hand the running window over, or pass it over where one waits already."""
        run = self._run
        if run is None or not self._blocks:
            return
        if self._may_wait or not (self._waiting.full() or time.monotonic() < self._due):
            # Before the blocks are taken: it may be that further rows close.
            rows = open_rows()
            follows, self._run_before = run == self._run_before, run
            self._waiting.put(Window(run, follows, self._blocks, rows, self._last_ns))
        else:
            self._run_before = None
            self.skipped += 1
        self._blocks, self._bytes, self._first_ns = [], 0, 0

    # -- in the thread

    def _judge_all(self) -> None:
        step_back(_NICE)
        before: Rows = {}
        while (window := self._waiting.get()) is not None:
            began, used = time.monotonic(), time.thread_time()
            try:
                closed = _tables(window.closed, window.run)
                before = before if window.follows else {}
                self._found.put(judge(window, _joined(before, closed)))
                self.judged += 1
                self.problem = None
            except Exception as error:  # a rule, or want of memory: packets go on
                self.failed += 1
                self.problem = f"{type(error).__name__}: {error}"
                closed = {}
            before = closed
            self._due = began + (time.thread_time() - used) / _SHARE


def judge(window: Window, rows: Rows) -> list[Finding]:
    """What the rules find in rows that closed, and those that stood open at a window's end."""
    run = window.run
    end = small_table([(window.last_ns, run)], last_ts_ns=NUMBER, capture=TEXT)
    tables = _joined(rows, {**_tables(window.open_rows, run), "capture_files": end})
    read = reading()
    with DuckdbEngine(threads=1, memory=_MEMORY) as db:
        db.expect(sum(each.num_rows for each in tables.values()))
        db.register("wanted", small_table([(run,)], capture=TEXT))
        db.register("units", small_table([(run, run)], capture=TEXT, unit=TEXT))
        db.register("steps", small_table([(run, 1)], capture=TEXT, step_ns=NUMBER))
        for table, columns in read.columns.items():
            schema = in_memory_schema(table)
            empty = no_rows(pa.schema([schema.field(name) for name in columns]))
            db.register(f"lake_{table}", tables.get(table, empty))
        for name, query in table_views(has_others=False):
            if name in read.columns or name in NAMED_TWICE or name == "moved":
                db.view(name, query)
        db.prelude(read.views)
        found = incidents(db, {name: each.text for name, each in read.queries.items()})
    return worst_first(
        one for name, rows_of in found.items()
        for one in found_by(read.queries[name].rule, _decided(read.queries[name], rows_of))[0]
    )  # fmt: skip


def _decided(query: RuleQuery, found: pa.Table) -> Iterator[dict[str, Any]]:
    """The incidents that a window decides."""
    words = query.rule.words
    for row in found.to_pylist():
        kind = words.get(row.get("variant") or "")
        if kind is None or not kind.whole:
            yield row


def _own(cells: Column) -> Column:
    """A column by itself: most are views of a matrix, all of which would be kept with it."""
    if isinstance(cells, Coded):
        return Coded(cells.codes.copy(), cells.names) if cells.codes.base is not None else cells
    return cells.copy() if isinstance(cells, np.ndarray) and cells.base is not None else cells


def _tables(blocks: Iterable[TableBlock], run: str) -> Rows:
    """Blocks as tables of the columns that rules read."""
    read = reading().columns
    parts: dict[str, list[pa.RecordBatch]] = {}
    for block in blocks:
        if block.rows and block.table in read:
            # The columns that no rule reads go at once: they are most of a batch.
            columns = [name for name in read[block.table] if name != "capture"]
            parts.setdefault(block.table, []).append(arrow_batch(block).select(columns))
    found = {}
    for table, batches in parts.items():
        rows = pa.Table.from_batches(batches)
        codes = pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), [run])
        found[table] = rows.append_column("capture", codes)
    return found


def _joined(one: Rows, other: Rows) -> Rows:
    """The rows of both."""
    return {
        name: pa.concat_tables([each[name] for each in (one, other) if name in each])
        for name in {*one, *other}
    }
