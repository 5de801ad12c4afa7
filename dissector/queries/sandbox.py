"""A sandbox for queries of users: DuckDB in this process, restricted to the files of a lake.

The tables and the views of `views.sql` are views over Parquet files that the caller passes. Before
a query of a user runs, the engine is locked: it can read no other file, load no extension and
change no setting; statements that write files are refused before they run.
"""

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from dissector.errors import InputError, UsageError
from dissector.limits import STORE_REQUESTS
from dissector.queries.catalogue import SharedView, shared_views, used_views, views, words
from dissector.queries.duckdb_engine import (
    all_rows,
    connect,
    define,
    one_line,
    plain_rows,
    quoted,
    reading,
    unreadable,
)
from dissector.queries.selection import (
    AROUND,
    CHOSEN,
    EVERYTHING,
    WHOLE,
    WITH_ROWS_AROUND,
    Selection,
)
from dissector.queries.tables import NAMED_TWICE, columns_of, table_views
from dissector.schemas import TABLES

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from dissector.lake.ranges import Ranges
    from dissector.lake.reader import Lake

T = TypeVar("T")

# Statements that change only memory of this process: settings are locked, and only allowed files
# can be read. COPY, EXPORT, ATTACH and the like access files, and PREPARE could hide one.
_HARMLESS: Final = frozenset(
    {"SELECT", "SET", "CREATE", "INSERT", "UPDATE", "DELETE", "MERGE INTO", "DROP", "ALTER"}
)
_ROWS: Final = frozenset({"SELECT", "EXPLAIN"})
# Types that Arrow or Parquet cannot represent; they are cast to text.
_TEXT_ONLY: Final = re.compile(
    r"\b(?:INTERVAL|BIT|BIGNUM|VARINT|UNION|TIME WITH TIME ZONE|TIMETZ)\b"
    r"|.+\bTIMESTAMP_NS\b|\bTIMESTAMP_NS\b.+"
)
# Messages about damaged pages; the error class is also raised for wrong queries.
_DAMAGE: Final = re.compile(r"Failed to read file|might be corrupted|[Cc]orrupt")
# The prefix of an explained statement.
_EXPLAIN: Final = re.compile(r"\s*explain\b\s*(analyze\b|\(\s*(analyze|format)\b[^()]*\))?", re.I)
# Functions that read a table whose name is computed.
_NAMING: Final = {"query", "query_table"}
_BATCH_ROWS: Final = 8192
_INTERRUPT_SECONDS: Final = 0.2  # between interrupts: the first may be too early
_PATIENCE_SECONDS: Final = 3  # then a query that ignores interrupts is abandoned
DAY: Final = "day"  # column: day of the capture's first packet, from the file's folder
_OF_DAY: Final = rf"/{DAY}=(\d{{4}}-\d\d-\d\d)/[^/]+/[^/]+$"
_END: Final = "[^/]+/[^/]+/[^/]+$"
# The schema of internal tables and views.
HIDDEN: Final = "hidden"


def ready_views() -> tuple[SharedView, ...]:
    """The views of `views.sql`, each after the views that it reads."""
    return views("views.sql")


def expanded(query: str, *, has_rows_around: bool = False) -> str:
    """A query preceded by a WITH that defines the report views which it reads.

    Such a query must not begin with a WITH of its own, except in parentheses.

    Args:
        has_rows_around: whether the hidden schema has the rows around the selection.
    """
    if not used_views(query):
        return query
    known = {f"lake_{table}": f"SELECT * FROM main.{table}" for table in TABLES}
    known |= dict(table_views(has_others=False))
    known["units"] = "SELECT DISTINCT capture, capture AS unit FROM capture_files"  # none is joined
    for name in WITH_ROWS_AROUND if has_rows_around else ():
        around = f"{name}{AROUND}"
        known[around] = known[name].replace(f"lake_{name}", f"{HIDDEN}.{around}")
    for name in (*CHOSEN, *NAMED_TWICE) if has_rows_around else ():
        table = NAMED_TWICE.get(name, name)
        source = f"{HIDDEN}.{WHOLE}{table}"
        known[f"{WHOLE}{name}"] = known[name].replace(f"lake_{table}", source)
    known |= {each.name: each.query for each in shared_views(has_rows_around=has_rows_around)}
    return _with_needed(query, known)


def _with_needed(query: str, known: dict[str, str]) -> str:
    """A query preceded by a WITH of the known queries that it reads.

    Args:
        known: queries by name, each after those that it reads.
    """
    needed: list[str] = []
    wanted = words(query)
    for name in reversed(known):
        if name in wanted:
            wanted |= words(known[name])
            needed.insert(0, f"{name} AS ({known[name]})")
    return f"WITH {', '.join(needed)} {query}" if needed else query


def tables_of(query: str) -> set[str]:
    """A superset of the tables that a query reads: all that its words name, in any case, directly,
    through views or inside string literals."""
    named = set(re.findall(r"\w+", query.lower()))
    if named & _NAMING:
        return {*TABLES}
    for view in reversed(ready_views()):
        if view.name in named:
            named |= words(expanded(view.query)) | words(view.query)
    return named & TABLES.keys()


class TableFiles(NamedTuple):
    """The paths of the Parquet files of each table.

    old: files of schema version 1, whose folders name their captures.
    days: the day of files in no folder of a day, by the end of the path.
    ranges: reads the files of a remote store.
    """

    new: Mapping[str, Sequence[str]] = MappingProxyType({})
    old: Mapping[str, Sequence[str]] = MappingProxyType({})
    days: Mapping[str, str] = MappingProxyType({})
    ranges: "Ranges | None" = None


class SandboxRows:
    """The result of a statement: column names, and Arrow record batches that can be read once."""

    def __init__(self, reader: "pa.RecordBatchReader", engine: "Sandbox") -> None:
        self.schema = reader.schema
        self._reader = reader
        self._engine = engine

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """The rows in batches of some thousand.

        Raises:
            UsageError: the query failed while running. InputError: as in `apart`.
        """
        try:
            while (batch := self._engine.apart(lambda: next(self._reader, None))) is not None:
                yield batch
        finally:
            self._reader.close()  # else the next statement is refused


class Sandbox:
    """A connection to DuckDB with the tables of a lake as views.

    Args:
        files: of the tables. columns: for each table an empty Arrow table with its columns.
        most_seconds: time limit of a statement, None for no limit; time that the caller spends on
            its rows does not count.
        folder: the temporary folder for data that does not fit into memory, None for none.
        selection: which rows the tables show.
        has_ready_views: whether to create the views of `views.sql`, which takes half of the setup.

    Raises:
        DependencyError: DuckDB is not installed.
        InputError: a file cannot be read.
    """

    def __init__(
        self,
        files: TableFiles,
        columns: Mapping[str, "pa.Table"],
        most_seconds: int | None = None,
        folder: Path | None = None,
        selection: Selection = EVERYTHING,
        *,
        has_ready_views: bool = True,
    ) -> None:
        self._most_seconds = most_seconds
        self._left: float | None = None
        self._is_stuck = False
        self._small: list[str] = []
        self._connection = connect()
        if folder is not None:
            self._connection.execute(f"SET temp_directory = {quoted(str(folder))}")
        self._ranges = files.ranges
        if self._ranges is not None:
            self._connection.register_filesystem(self._ranges.filesystem())
            self._connection.execute("SET parquet_metadata_cache = true")
            self._connection.execute(f"SET threads = {STORE_REQUESTS}")  # which wait, mostly
        self._connection.execute(f"CREATE SCHEMA {HIDDEN}")
        try:
            with _store_errors(self._ranges), reading():
                tables = {
                    table: self._rows(table, files, empty) for table, empty in columns.items()
                }
                self._make_views(tables, selection)
        except InputError:
            self._connection.close()
            raise
        for view in ready_views() if has_ready_views else ():
            query = expanded(view.query, has_rows_around=not selection.is_everything)
            self._connection.execute(f"CREATE VIEW {view.name} AS {query}")
        both = (files.new, files.old)
        paths = (path for each in both for some in each.values() for path in some)
        self._connection.execute(f"SET allowed_paths = [{', '.join(map(quoted, paths))}]")
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def _make_views(self, tables: Mapping[str, str], selection: Selection) -> None:
        """Create the views that users see. tables: the query of each table."""
        selection.register(self, f"({tables['connections']}) AS there")
        small = [name for name in self._small if name not in tables]
        known = {name: f"SELECT * FROM {HIDDEN}.{name}" for name in small}
        for name, query in selection.views(tables.items(), lambda name: [*columns_of(name), DAY]):
            if name in tables:
                self._connection.execute(f"CREATE VIEW {name} AS {_with_needed(query, known)}")
                continue
            if name.endswith(AROUND) or name.startswith(WHOLE):
                full = f"{HIDDEN}.{name}"
                self._connection.execute(f"CREATE VIEW {full} AS {_with_needed(query, known)}")
            known[name] = query

    def register(self, name: str, rows: "pa.Table") -> None:
        """Copy a small table into the hidden schema."""
        self._small.append(name)
        self._connection.register("lent", rows)
        self._connection.execute(f"CREATE OR REPLACE TABLE {HIDDEN}.{name} AS FROM lent")
        self._connection.unregister("lent")

    def define(self, functions: Iterable[str]) -> None:
        """Create SQL functions; each replaces the one of its name."""
        define(self._connection, functions)

    def table(self, query: str) -> "pa.Table":
        """The rows of an internal query with few rows."""
        return self._connection.execute(query).to_arrow_table()

    def has_rows(self) -> bool:
        """Whether any frame or connection is selected."""
        query = "SELECT 1 FROM frames UNION ALL SELECT 1 FROM connections LIMIT 1"
        with _store_errors(self._ranges), reading():
            return bool(self.table(query).num_rows)

    def _rows(self, table: str, files: TableFiles, empty: "pa.Table") -> str:
        """The query for all rows of a table. empty: adds the columns that files lack."""
        paths, old_paths = files.new.get(table, ()), files.old.get(table, ())
        day = f", {_day(files.days)} AS {DAY}"
        rows = plain_rows(self._connection, paths, old_paths, empty.schema.names, day)
        if not rows:
            self.register(table, empty)
            without = f"(SELECT *, CAST(NULL AS DATE) AS {DAY} FROM {HIDDEN}.{table})"
            rows = all_rows(without, paths, old_paths, day)
        return rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_stuck:  # closing would wait for the stuck query
            self._connection.close()

    def apart(self, work: Callable[[], T]) -> T:
        """Run `work` in a thread, so that this thread can be interrupted and then stop the query.

        Raises:
            UsageError: the engine refuses the query, or it exceeds the time limit.
            InputError: a file is damaged, or the store does not return it.
        """
        running: Future[T] = Future()

        def run() -> None:
            try:
                running.set_result(work())
            except BaseException as error:
                running.set_exception(error)

        began = time.monotonic()
        # A daemon: the process must be able to exit while the query ignores interrupts.
        thread = threading.Thread(target=run, daemon=True)
        with _store_errors(self._ranges), _engine_errors():
            try:
                thread.start()  # waits until the thread runs: may be interrupted
                wait([running], timeout=self._left)
            except KeyboardInterrupt:
                self._stop(running)
                raise
            if not running.done():
                self._stop(running)
                raise UsageError(f"stopped after {self._most_seconds} s, as --timeout says")
            if self._left is not None:
                self._left = max(0.0, self._left - (time.monotonic() - began))
            return running.result()

    def _stop(self, running: "Future[Any]") -> None:
        """Interrupt the query until it ends, or until _PATIENCE_SECONDS show that it is stuck."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while not running.done() and not self._is_stuck:
            self._connection.interrupt()
            wait([running], timeout=_INTERRUPT_SECONDS)
            self._is_stuck = time.monotonic() > until and not running.done()

    def answers(self, text: str) -> Iterator[SandboxRows]:
        """Run the statements of a text in order; yields the results of those that return rows.

        Raises:
            UsageError: a statement is wrong, or would write or open files.
        """
        with _engine_errors():
            statements = self._connection.extract_statements(text)
        if not statements:
            raise UsageError("the query is empty")
        for statement in statements:
            self._refuse_writes(statement)
            self._left = self._most_seconds
            if _kind_of(statement) in _ROWS:
                yield SandboxRows(self.apart(partial(self._reader, statement)), self)
            else:
                self.apart(partial(self._connection.execute, statement))

    def rows(self, text: str) -> list[dict[str, Any]]:
        """All rows of one or several statements. Raises: as `answers`."""
        return [*self.each_row(text)]

    def each_row(self, text: str) -> Iterator[dict[str, Any]]:
        """Yield the rows of one or several statements lazily. Raises: as `answers`."""
        for answer in self.answers(text):
            for batch in answer.batches():
                yield from batch.to_pylist()

    def _reader(self, statement: "duckdb.Statement") -> "pa.RecordBatchReader":
        return _readable(self._connection.sql(statement)).to_arrow_reader(_BATCH_ROWS)

    def _refuse_writes(self, statement: "duckdb.Statement") -> None:
        kinds = {_kind_of(statement)}
        if kinds == {"EXPLAIN"}:
            explained = _EXPLAIN.sub("", statement.query, count=1)
            with _engine_errors():
                kinds = set(map(_kind_of, self._connection.extract_statements(explained)))
        for kind in sorted(kinds - _HARMLESS):
            raise UsageError(
                f"{kind} is not for queries here: they read the tables and touch "
                "no file; -o FILE and --format write what a query gives"
            )


def _day(days: Mapping[str, str]) -> str:
    """The SQL for a row's day, from the path of its file, so that other days' files are skipped."""
    day_of_path = f"nullif(regexp_extract(filename, {quoted(_OF_DAY)}, 1), '')"
    if days:
        known = ", ".join(f"{quoted(name)}: {quoted(day)}" for name, day in days.items())
        end = f"regexp_extract(filename, {quoted(_END)})"
        day_of_path = f"coalesce({day_of_path}, MAP {{{known}}}[{end}])"
    return f"TRY_CAST({day_of_path} AS DATE)"  # DuckDB prunes files only by casts that cannot fail


def _kind_of(statement: "duckdb.Statement") -> str:
    """The kind of a statement as text; DuckDB's Python enum lacks some kinds."""
    try:
        return statement.type.name.replace("_", " ")
    except ValueError:
        return "a statement of this kind"


def sandbox_over(
    lake: "Lake",
    most_seconds: int | None = None,
    folder: Path | None = None,
    selection: Selection = EVERYTHING,
    query: str | None = None,
    *,
    in_ranges: bool = False,
    has_ready_views: bool = True,
) -> Sandbox:
    """An engine over the captures of a lake, see `Sandbox`.

    Args:
        query: the only query that will run: files of tables that it does not read are not opened,
            nor are files of captures that ended before the selection begins.
        in_ranges: read byte ranges of the files of a remote lake instead of whole files.
    """
    from dissector.schemas.arrow import arrow_schema
    from dissector.schemas.small_tables import no_rows

    tables = {*TABLES}
    if query is not None and not (selection.is_of_names or selection.clients):
        tables = tables_of(query) | ({"connections"} if selection.is_of_time else set())

    def files(is_old: bool) -> dict[str, list[str]]:
        captures = [one for one in lake.captures if (one.schema_version < 2) == is_old]
        paths = {}
        for table in tables:
            some = (one for one in captures if selection.may_have_rows(table, one.last_ts_ns))
            paths[table] = lake._replace(captures=tuple(some)).part_paths(table, ranges)
        return paths

    ranges = lake.ranges() if in_ranges else None
    columns = {table: no_rows(arrow_schema(table)) for table in TABLES}
    parts = TableFiles(files(is_old=False), files(is_old=True), lake.days(), ranges)
    return Sandbox(parts, columns, most_seconds, folder, selection, has_ready_views=has_ready_views)


def _readable(rows: "duckdb.DuckDBPyRelation") -> "duckdb.DuckDBPyRelation":
    """The rows, with columns of _TEXT_ONLY types cast to text."""
    needs_cast = [_TEXT_ONLY.search(str(kind)) is not None for kind in rows.types]
    if not any(needs_cast):
        return rows
    chosen = []
    for number, (name, is_text_only) in enumerate(
        zip(rows.columns, needs_cast, strict=True), start=1
    ):
        quoted = name.replace('"', '""')
        cell = f"CAST(#{number} AS VARCHAR)" if is_text_only else f"#{number}"
        chosen.append(f'{cell} AS "{quoted}"')
    return rows.project(", ".join(chosen))


@contextmanager
def _store_errors(ranges: "Ranges | None") -> Iterator[None]:
    """Replaces the engine's error by the error of the lake's store that caused it.

    Raises:
        InputError: the store failed to return data.
    """
    if ranges is None:
        yield
        return
    ranges.problem()  # discards problems of earlier reads
    try:
        with ranges.told():
            yield
    except (InputError, UsageError):
        if problem := ranges.problem():
            raise InputError(problem) from None
        raise


class _engine_errors:
    """Turns the engine's errors into UsageError or, for damaged files, InputError, on one line."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        import duckdb

        if isinstance(error, duckdb.Error):
            is_of_files = isinstance(error, duckdb.InvalidInputException) and _DAMAGE.search(
                str(error)
            )
            if is_of_files or isinstance(error, duckdb.IOException):
                raise unreadable(error) from None
            raise UsageError(one_line(error)) from None
