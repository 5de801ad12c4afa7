"""Runs the rules over a tap's recent rows, in a thread.

Rules read the rows of the last ten minutes, or fewer within the memory limit, as if the capture had
begun and ended with them: closed rows, and rows of open objects (`Dissection.open_rows`). So rules
find the same incidents live as in a recording of that length.

Rules use a limited share of one processor; windows that arrive meanwhile are judged together. If
these exceed the memory limit, the oldest are skipped: packets have priority.
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

HISTORY_NS: Final = 600_000_000_000  # the longest history that a rule needs: unload_churn
_MEMORY: Final = "128MB"
_NICE: Final = 15  # findings may be a minute late
_SHARE: Final = 0.1  # of one processor for rules, at most, over a run and the pause after it


class Reading(NamedTuple):
    """The queries of rules, the views and, by table, the columns that they read."""

    queries: Mapping[str, RuleQuery]
    views: tuple[SharedView, ...]
    columns: Columns


@cache
def reading() -> Reading:
    """What the rules read that do not need a whole capture."""
    queries = {name: each for name, each in rule_queries().items() if not each.rule.words[""].whole}
    texts = [each.text for each in queries.values()]
    for each in queries.values():
        for need in tables_in(each.needs):
            texts.append(f"SELECT 1 FROM {need.table} WHERE {need.condition}")
    views = used_views("\n".join(texts))
    return Reading(queries, views, window_tables.columns_of(texts, views))


class _RuleRun(NamedTuple):
    """One run of the rules: the newest window, and the rows of all windows."""

    window: Window
    rows: list[Rows]


class Judging:
    """Judges windows in a thread and queues the findings (`drain`).

    judged, skipped, failed: windows so far.
    problem: why the last run failed, None if it succeeded.

    Args:
        may_wait: judge every window, however long it takes; for replays.
        limit: bytes of judged rows that are judged again; twice as many new rows may wait.
    """

    def __init__(self, may_wait: bool, limit: int = MAX_WINDOW_BYTES) -> None:
        self.judged = self.skipped = self.failed = 0
        self.problem: str | None = None
        self._may_wait = may_wait
        self._limit = limit
        self._history: deque[tuple[Window, Rows]] = deque()
        self._fresh = 0  # windows at the end of the history that are not judged yet
        self._pending: queue.Queue[_RuleRun | None] = queue.Queue(1)
        self._is_busy = threading.Event()
        self._due = 0.0  # on the monotonic clock: the next run's earliest start
        self._findings: queue.SimpleQueue[list[Finding]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._judge_runs, name="tap-rules", daemon=True)
        self._thread.start()

    @property
    def columns(self) -> Columns:
        """The columns that rules read, by table."""
        return reading().columns

    def is_free(self, now: float) -> bool:
        """Whether a run can start."""
        return not self._is_busy.is_set() and now >= self._due

    def expect(self) -> None:
        """Announce a window with open rows; `is_free` is False until it is judged."""
        self._is_busy.set()

    def take(self, window: Window, rows: Rows) -> None:
        """Append a window to the history; start a run if it has open rows."""
        if self._history and self._history[-1][0].run != window.run:
            self._history.clear()
            self._fresh = 0
        names_of = reading().columns
        kept = {table: rows[table].select(n) for table, n in names_of.items() if table in rows}
        self._history.append((window._replace(open_rows=None), kept))
        self._fresh += 1
        self._drop_old_windows()
        if window.open_rows is not None:
            self._fresh = 0
            self._pending.put(_RuleRun(window, [rows for _, rows in self._history]))

    def fail(self, window: Window, error: Exception) -> None:
        """Clear the history: rows of a window are missing, so its neighbours cannot be combined."""
        self._history.clear()
        self._fresh = 0
        self._record_failure(error)
        if window.open_rows is not None:
            self._is_busy.clear()

    def _drop_old_windows(self) -> None:
        """Drop windows that are older than HISTORY_NS or exceed the limit."""
        sizes = [window.size for window, _ in self._history]
        judged = len(sizes) - self._fresh
        old, new = sum(sizes[:judged]), sum(sizes[judged:])
        oldest_ns = self._history[-1][0].last_ns - HISTORY_NS
        while judged and (
            old > min(self._limit, 2 * self._limit - new) or self._history[0][0].last_ns < oldest_ns
        ):
            old -= self._history.popleft()[0].size
            judged -= 1
        # Rows before a gap do not help to judge rows after it, so the oldest window is dropped.
        while not self._may_wait and self._fresh > 1 and new > 2 * self._limit:
            new -= self._history.popleft()[0].size
            self._fresh -= 1
            self.skipped += 1

    def _record_failure(self, error: Exception) -> None:
        self.failed += 1
        self.problem = f"{type(error).__name__}: {error}"

    def drain(self) -> list[Finding]:
        """Return the findings since the last call."""
        findings: list[Finding] = []
        while not self._findings.empty():
            findings += self._findings.get()
        return findings

    def close(self) -> None:
        """Wait for the last run and end the thread."""
        self._pending.put(None)
        self._thread.join()

    # -- in the thread

    def _judge_runs(self) -> None:
        step_back(_NICE)
        while (rule_run := self._pending.get()) is not None:
            began, used = time.monotonic(), time.thread_time()
            try:
                self._findings.put(judge(rule_run.window, window_tables.joined(rule_run.rows)))
                self.judged += 1
                self.problem = None
            except Exception as error:  # a rule failed, or memory is short: packets continue
                self._record_failure(error)
            del rule_run
            self._due = began + (time.thread_time() - used) / _SHARE
            self._is_busy.clear()


def judge(window: Window, rows: Rows) -> list[Finding]:
    """The findings in closed rows and in the rows that were open at the window's end."""
    run, read = window.run, reading()
    tables = window_tables.joined(
        [rows, window_tables.as_tables(window.open_rows or (), run, read.columns)]
    )
    with DuckdbEngine(threads=1, memory=_MEMORY) as db:
        window_tables.name_tables(db, run, window.last_ns, tables, read.columns)
        count = sum(each.num_rows for each in tables.values())
        if count <= TINY_ROWS:
            db.expect(count)
            window_tables.name_views(db, read.columns, has_all_rows=False)
        else:  # a copy of all rows would exceed the memory limit
            window_tables.name_views(db, read.columns, has_all_rows=False)
            db.expect(count)
        db.shared_views(read.views)
        incident_tables = incidents(db, {name: each.text for name, each in read.queries.items()})
    return worst_first(
        one for name, rows_of in incident_tables.items()
        for query in (read.queries[name],)
        for one in findings_of_rows(query.rule, _decided(query, rows_of))[0]
    )  # fmt: skip


def _decided(query: RuleQuery, incidents: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of incidents that do not need a whole capture."""
    words = query.rule.words
    for row in incidents.to_pylist():
        kind = words.get(row.get("variant") or "")
        if kind is None or not kind.whole:
            yield row
