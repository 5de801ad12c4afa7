"""Queries of users: DuckDB in this process, shut in with the Parquet files of a lake.

The tables are views over files that the caller names, and so are the views of `views.sql`. Before a
query of a user runs, the engine is shut in: no file but those is readable, no extension loadable,
no setting changeable, and statements that write files are refused before they run.
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

# Statements that can touch nothing but the memory of this process: settings are locked, and reading
# goes through the files that are allowed. COPY, EXPORT, ATTACH and their like write or open files,
# and PREPARE could hide one of them.
_HARMLESS: Final = frozenset(
    {"SELECT", "SET", "CREATE", "INSERT", "UPDATE", "DELETE", "MERGE INTO", "DROP", "ALTER"}
)
_ROWS: Final = frozenset({"SELECT", "EXPLAIN"})
# Types that neither Arrow's readers nor Parquet hold as what they are; they become text.
_TEXT_ONLY: Final = re.compile(
    r"\b(?:INTERVAL|BIT|BIGNUM|VARINT|UNION|TIME WITH TIME ZONE|TIMETZ)\b"
    r"|.+\bTIMESTAMP_NS\b|\bTIMESTAMP_NS\b.+"
)
# What is said of a file whose pages cannot be read, by an error that questions have, too.
_DAMAGE: Final = re.compile(r"Failed to read file|might be corrupted|[Cc]orrupt")
# What may stand before the statement that is explained.
_EXPLAIN: Final = re.compile(r"\s*explain\b\s*(analyze\b|\(\s*(analyze|format)\b[^()]*\))?", re.I)
# Functions that make the name of a table of texts.
_NAMING: Final = {"query", "query_table"}
_BATCH_ROWS: Final = 8192
_INTERRUPT_SECONDS: Final = 0.2  # between two tries to interrupt: the first may come too early
_PATIENCE_SECONDS: Final = 3  # a function of one huge value hears no interrupt: then it is left
DAY: Final = "day"  # of the first packet of a row's capture, by which files lie in folders
_OF_DAY: Final = rf"/{DAY}=(\d{{4}}-\d\d-\d\d)/[^/]+/[^/]+$"
_END: Final = "[^/]+/[^/]+/[^/]+$"
# The schema of what users do not see: tables that lend columns where there are no files, views.
HIDDEN: Final = "hidden"


def ready_views() -> tuple[SharedView, ...]:
    """The views of `views.sql`, in the order in which they can be made."""
    return views("views.sql")


def expanded(query: str, *, has_rows_around: bool = False) -> str:
    """A query by itself: views of reports that it reads become part of it, in one WITH before it.

    A query that reads some must not begin with a WITH of its own; in parentheses it may.

    Args:
        has_rows_around: there are rows around what is selected, in a schema of their own.
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
    """A query behind a WITH of those that it reads.

    Args:
        known: queries by name, each behind those that it reads itself.
    """
    needed: list[str] = []
    wanted = words(query)
    for name in reversed(known):
        if name in wanted:
            wanted |= words(known[name])
            needed.insert(0, f"{name} AS ({known[name]})")
    return f"WITH {', '.join(needed)} {query}" if needed else query


def tables_of(query: str) -> set[str]:
    """The tables of which a query can have rows, or more: those that it names, however spelt, in
    views or in texts, too."""
    named = set(re.findall(r"\w+", query.lower()))
    if named & _NAMING:
        return {*TABLES}
    for view in reversed(ready_views()):
        if view.name in named:
            named |= words(expanded(view.query)) | words(view.query)
    return named & TABLES.keys()


class TableFiles(NamedTuple):
    """The Parquet files of each table, by their names.

    old: those of schema version 1, which name their capture by their folder.
    days: of those that lie in no folder of a day, by the ends of their names.
    ranges: what reads those that are no files of this machine.
    """

    new: Mapping[str, Sequence[str]] = MappingProxyType({})
    old: Mapping[str, Sequence[str]] = MappingProxyType({})
    days: Mapping[str, str] = MappingProxyType({})
    ranges: "Ranges | None" = None


class SandboxRows:
    """What a statement gave: column names, and rows as Arrow record batches, read once."""

    def __init__(self, reader: "pa.RecordBatchReader", engine: "Sandbox") -> None:
        self.schema = reader.schema
        self._reader = reader
        self._engine = engine

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """The rows, some thousand at a time.

        Raises:
            UsageError: the query failed on its way. InputError: as of `apart`.
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
        most_seconds: that a statement may take, None for any time; what others do with its rows
            does not count.
        folder: where the engine writes what does not fit into memory, None for nowhere.
        selection: the rows that the tables have.
        has_ready_views: whether the views of `views.sql` are there; to make them takes as long as
            all else that is made.

    Raises:
        DependencyError: DuckDB is not there.
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
            with _problems(self._ranges), reading():
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
        """The tables that users see. tables: the query of each."""
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
        """A small table that users do not see."""
        self._small.append(name)
        self._connection.register("lent", rows)
        self._connection.execute(f"CREATE OR REPLACE TABLE {HIDDEN}.{name} AS FROM lent")
        self._connection.unregister("lent")

    def define(self, functions: Iterable[str]) -> None:
        """Functions of SQL, in the place of those of their names."""
        define(self._connection, functions)

    def table(self, query: str) -> "pa.Table":
        """The rows of a query of ours that are few."""
        return self._connection.execute(query).to_arrow_table()

    def has_rows(self) -> bool:
        """Whether a frame or a connection is there."""
        query = "SELECT 1 FROM frames UNION ALL SELECT 1 FROM connections LIMIT 1"
        with _problems(self._ranges), reading():
            return bool(self.table(query).num_rows)

    def _rows(self, table: str, files: TableFiles, empty: "pa.Table") -> str:
        """The query of all rows of a table; one without rows lends columns that files lack."""
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
        if not self._is_stuck:  # else closing would wait
            self._connection.close()

    def apart(self, work: Callable[[], T]) -> T:
        """Do something in a thread of its own, so that an interrupt reaches this one and ends it.

        Raises:
            UsageError: the engine refuses it.
            InputError: a file is damaged, or the store does not give it.
        """
        running: Future[T] = Future()

        def run() -> None:
            try:
                running.set_result(work())
            except BaseException as error:
                running.set_exception(error)

        began = time.monotonic()
        # The process may end while a thread goes on that hears no interrupt.
        thread = threading.Thread(target=run, daemon=True)
        with _problems(self._ranges), _complaints():
            try:
                thread.start()  # waits for the thread: an interrupt may come here, too
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
        """Interrupt what runs until it ends, or until it is plain that it hears nothing."""
        until = time.monotonic() + _PATIENCE_SECONDS
        while not running.done() and not self._is_stuck:
            self._connection.interrupt()
            wait([running], timeout=_INTERRUPT_SECONDS)
            self._is_stuck = time.monotonic() > until and not running.done()

    def answers(self, text: str) -> Iterator[SandboxRows]:
        """Run the statements of a text, one after the other; those without rows give none.

        Raises:
            UsageError: a statement is wrong, or would touch files.
        """
        with _complaints():
            statements = self._connection.extract_statements(text)
        if not statements:
            raise UsageError("the query is empty")
        for statement in statements:
            self._refuse_what_writes(statement)
            self._left = self._most_seconds
            if _kind_of(statement) in _ROWS:
                yield SandboxRows(self.apart(partial(self._reader, statement)), self)
            else:
                self.apart(partial(self._connection.execute, statement))

    def rows(self, text: str) -> list[dict[str, Any]]:
        """All rows of a query, or of several statements. Raises what `answers` does."""
        return [*self.each_row(text)]

    def each_row(self, text: str) -> Iterator[dict[str, Any]]:
        """The same one by one, as they are asked for."""
        for answer in self.answers(text):
            for batch in answer.batches():
                yield from batch.to_pylist()

    def _reader(self, statement: "duckdb.Statement") -> "pa.RecordBatchReader":
        return _readable(self._connection.sql(statement)).to_arrow_reader(_BATCH_ROWS)

    def _refuse_what_writes(self, statement: "duckdb.Statement") -> None:
        kinds = {_kind_of(statement)}
        if kinds == {"EXPLAIN"}:
            explained = _EXPLAIN.sub("", statement.query, count=1)
            with _complaints():
                kinds = set(map(_kind_of, self._connection.extract_statements(explained)))
        for kind in sorted(kinds - _HARMLESS):
            raise UsageError(
                f"{kind} is not for queries here: they read the tables and touch "
                "no file; -o FILE and --format write what a query gives"
            )


def _day(days: Mapping[str, str]) -> str:
    """The day of a row, by the name of its file: of files of other days nothing is read."""
    found = f"nullif(regexp_extract(filename, {quoted(_OF_DAY)}, 1), '')"
    if days:
        known = ", ".join(f"{quoted(name)}: {quoted(day)}" for name, day in days.items())
        end = f"regexp_extract(filename, {quoted(_END)})"
        found = f"coalesce({found}, MAP {{{known}}}[{end}])"
    return f"TRY_CAST({found} AS DATE)"  # what may fail is asked too late to spare files


def _kind_of(statement: "duckdb.Statement") -> str:
    """The kind of a statement in words; DuckDB's own Python part has no name for some."""
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
        query: the only one that will be asked, so that files of tables which it does not read are
            not opened. Nor are those of captures that ended before the selection begins.
        in_ranges: of a lake in a store only what is needed of files is read; else they are fetched.
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
    """The rows, columns of types that no reader takes as text."""
    odd = [_TEXT_ONLY.search(str(kind)) is not None for kind in rows.types]
    if not any(odd):
        return rows
    chosen = []
    for number, (name, is_odd) in enumerate(zip(rows.columns, odd, strict=True), start=1):
        quoted = name.replace('"', '""')
        cell = f"CAST(#{number} AS VARCHAR)" if is_odd else f"#{number}"
        chosen.append(f'{cell} AS "{quoted}"')
    return rows.project(", ".join(chosen))


@contextmanager
def _problems(ranges: "Ranges | None") -> Iterator[None]:
    """What the store of a lake says, in the place of what the engine says of it.

    Raises:
        InputError: it does not give what is read.
    """
    if ranges is None:
        yield
        return
    ranges.problem()  # of what was not needed
    try:
        with ranges.told():
            yield
    except (InputError, UsageError):
        if problem := ranges.problem():
            raise InputError(problem) from None
        raise


class _complaints:
    """Turns the engine's errors into errors of one line, without its drawing of the place: those of
    usage, or of a file that is damaged."""

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
