"""The rules of findings over what a tap saw lately, in a thread of its own.

They see the rows of ten minutes, or fewer where these are more than memory may hold, as if the
capture had begun and ended with them: rows that closed, and those of what is open
(`Dissection.open_rows`). So what a recording of that length shows is found in it and live alike.

Rules take a share of one processor, no more; windows that come meanwhile are judged together. Only
where they are more than memory may hold, the oldest ones are passed over: packets come first.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dissector.findings.finding import Finding, findings_of_rows, worst_first
from dissector.findings.querying import RuleQuery, incidents, rule_queries
from dissector.limits import MAX_WINDOW_BYTES
from dissector.queries.catalogue import SharedView, used_views
from dissector.queries.duckdb_engine import TINY_ROWS, DuckdbEngine
from dissector.queries.needed_rows import tables_in
from dissector.tap import window_tables
from dissector.tap.priority import step_back
from dissector.tap.window_tables import Columns, Rows
from dissector.tap.windows import Window

HISTORY_NS: Final = 600_000_000_000  # what a rule takes together at most: unload_churn
_MEMORY: Final = "128MB"
_NICE: Final = 15  # what it finds may come a minute later
_SHARE: Final = 0.1  # of one processor that rules take at most, over a window and the pause after


class Reading(NamedTuple):
    """What rules read: their queries, the views between, and the columns of each table."""

    queries: Mapping[str, RuleQuery]
    views: tuple[SharedView, ...]
    columns: Columns


@cache
def reading() -> Reading:
    """Of the rules that windows decide."""
    queries = {name: each for name, each in rule_queries().items() if not each.rule.words[""].whole}
    texts = [each.text for each in queries.values()]
    for each in queries.values():
        for need in tables_in(each.needs):
            texts.append(f"SELECT 1 FROM {need.table} WHERE {need.condition}")
    views = used_views("\n".join(texts))
    return Reading(queries, views, window_tables.columns_of(texts, views))


class _Look(NamedTuple):
    """What rules are asked about."""

    window: Window
    rows: list[Rows]


class Judging:
    """Takes windows, and gives what was found to who asks (`drain`).

    judged, skipped, failed: windows so far.
    problem: why the last look that failed did.

    Args:
        may_wait: a replay's, whose windows are all judged, however long it takes.
        limit: bytes of rows that were judged already and are judged again; as many may wait.
    """

    def __init__(self, may_wait: bool, limit: int = MAX_WINDOW_BYTES) -> None:
        self.judged = self.skipped = self.failed = 0
        self.problem: str | None = None
        self._may_wait = may_wait
        self._limit = limit
        self._history: deque[tuple[Window, Rows]] = deque()
        self._fresh = 0  # windows at the end of the history that were not judged
        self._waiting: queue.Queue[_Look | None] = queue.Queue(1)
        self._is_busy = threading.Event()
        self._due = 0.0  # on the monotonic clock: rules may be asked again from then on
        self._findings: queue.SimpleQueue[list[Finding]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._judge_all, name="tap-rules", daemon=True)
        self._thread.start()

    @property
    def columns(self) -> Columns:
        """By table."""
        return reading().columns

    def is_free(self, now: float) -> bool:
        """Whether rules can be asked."""
        return not self._is_busy.is_set() and now >= self._due

    def expect(self) -> None:
        """A window with what is open is on its way."""
        self._is_busy.set()

    def take(self, window: Window, rows: Rows) -> None:
        """Rows go to the others, and rules are asked if it is time."""
        if self._history and self._history[-1][0].run != window.run:
            self._history.clear()
            self._fresh = 0
        read = reading().columns
        mine = {table: rows[table].select(names) for table, names in read.items() if table in rows}
        self._history.append((window._replace(open_rows=None), mine))
        self._fresh += 1
        self._forget()
        if window.open_rows is not None:
            self._fresh = 0
            self._waiting.put(_Look(window, [rows for _, rows in self._history]))

    def fail(self, window: Window, error: Exception) -> None:
        """Rows of a window are missing: what is around them is not judged together."""
        self._history.clear()
        self._fresh = 0
        self._note(error)
        if window.open_rows is not None:
            self._is_busy.clear()

    def _forget(self) -> None:
        """Let go of what is old, or more than may be held."""
        sizes = [window.size for window, _ in self._history]
        judged = len(sizes) - self._fresh
        old, new = sum(sizes[:judged]), sum(sizes[judged:])
        oldest_ns = self._history[-1][0].last_ns - HISTORY_NS
        while judged and (
            old > min(self._limit, 2 * self._limit - new) or self._history[0][0].last_ns < oldest_ns
        ):
            old -= self._history.popleft()[0].size
            judged -= 1
        # What comes before a hole tells nothing of what comes behind it: the oldest goes first.
        while not self._may_wait and self._fresh > 1 and new > 2 * self._limit:
            new -= self._history.popleft()[0].size
            self._fresh -= 1
            self.skipped += 1

    def _note(self, error: Exception) -> None:
        self.failed += 1
        self.problem = f"{type(error).__name__}: {error}"

    def drain(self) -> list[Finding]:
        """Findings since the last call."""
        findings: list[Finding] = []
        while not self._findings.empty():
            findings += self._findings.get()
        return findings

    def close(self) -> None:
        """Wait for the last look."""
        self._waiting.put(None)
        self._thread.join()

    # -- in the thread

    def _judge_all(self) -> None:
        step_back(_NICE)
        while (look := self._waiting.get()) is not None:
            began, used = time.monotonic(), time.thread_time()
            try:
                self._findings.put(judge(look.window, window_tables.joined(look.rows)))
                self.judged += 1
                self.problem = None
            except Exception as error:  # a rule, or want of memory: packets go on
                self._note(error)
            del look
            self._due = began + (time.thread_time() - used) / _SHARE
            self._is_busy.clear()


def judge(window: Window, rows: Rows) -> list[Finding]:
    """What the rules find in rows that closed, and those that stood open at a window's end."""
    run, read = window.run, reading()
    tables = window_tables.joined(
        [rows, window_tables.as_tables(window.open_rows or (), run, read.columns)]
    )
    with DuckdbEngine(threads=1, memory=_MEMORY) as db:
        window_tables.name_tables(db, run, window.last_ns, tables, read.columns)
        count = sum(each.num_rows for each in tables.values())
        if count <= TINY_ROWS:
            db.expect(count)
            window_tables.name_views(db, read.columns)
        else:  # a copy of all rows would take more memory than there is
            window_tables.name_views(db, read.columns)
            db.expect(count)
        db.shared_views(read.views)
        made = incidents(db, {name: each.text for name, each in read.queries.items()})
    return worst_first(
        one for name, rows_of in made.items()
        for query in (read.queries[name],)
        for one in findings_of_rows(query.rule, _decided(query, rows_of))[0]
    )  # fmt: skip


def _decided(query: RuleQuery, incidents: pa.Table) -> Iterator[dict[str, Any]]:
    """The incidents that a window decides."""
    words = query.rule.words
    for row in incidents.to_pylist():
        kind = words.get(row.get("variant") or "")
        if kind is None or not kind.whole:
            yield row
