"""DuckDB as the engine of reports: lake tables in, Arrow tables out, within a memory limit.

`sandbox` runs queries of users, which must not access anything else.
"""

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from dissector.errors import DependencyError, InputError
from dissector.limits import SUB_BUCKET_BITS, SUB_BUCKETS
from dissector.queries.catalogue import MAY_FAIL, SharedView, shared_views, used_views
from dissector.queries.known_rows import KnownRows
from dissector.queries.needed_rows import Need
from dissector.queries.selection import EVERYTHING

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")
R = TypeVar("R")

# In schema version 1 the folder of a file names its capture; in compacted files each row does.
OLD_CAPTURE: Final = "REPLACE (coalesce(origin_capture, capture) AS capture)"
FEW_ROWS: Final = 300_000
# Below this, the optimizer and several threads cost more than they save.
TINY_ROWS: Final = 30_000
_PATTERN: Final = re.compile(r"[\[*?]")
MEMORY: Final = "2GB"
# Queries that run concurrently: DuckDB plans each in one thread, while another one can run. This
# shortens a report by a tenth to a sixth.
_QUERIES_AT_ONCE: Final = 2
# floor_div: for integers of either sign, divisors > 0. try_…: null on overflow of 64 bits.
# histogram_bucket: the bucket of a duration in ns, as in `dissector.buckets`; null if negative.
# The rounded logarithm may be one octave off next to a power of two; there both octaves give the
# same bucket: 32 * octave + 63 is 32 * (octave + 1) + 31.
FUNCTIONS: Final = (
    "floor_div(a, b) AS a // b - CASE WHEN a % b < 0 THEN 1 ELSE 0 END",
    "try_subtract(a, b) AS TRY(a - b)",
    "try_multiply(a, b) AS TRY(a * b)",
    "histogram_octave(a) AS "
    f"greatest(CAST(floor(log2(greatest(a, 1))) AS BIGINT) - {SUB_BUCKET_BITS}, 0)",
    # Inside the CASE, the octave would be computed twice.
    f"histogram_bucket(a) AS {SUB_BUCKETS} * histogram_octave(a) "
    "+ (a >> CAST(histogram_octave(a) AS INT)) + CASE WHEN a >= 0 THEN 0 END",
    "micros(a) AS epoch_us(a)",
    "items(a) AS len(a)",
    *EVERYTHING.functions(),
    # String.hashCode without its sign, over UTF-16 units; the fold appends one code point per step.
    "java_hash(a) AS 2147483647 & list_reduce(list_transform(string_split(a, ''), "
    "lambda c: CAST(unicode(c) AS BIGINT)), lambda s, c: 4294967295 & CASE WHEN c < 65536 "
    "THEN 31 * s + c ELSE 961 * s + 31 * (55232 + (c >> 10)) + 56320 + (c & 1023) END, "
    "CAST(0 AS BIGINT))",
    # b: the ends of disjoint ranges. A value above an odd number of ends lies inside a range.
    "lies_in(a, b) AS list_contains(b, a) OR len(list_filter(b, lambda c: c < a)) % 2 = 1",
)


def connect() -> "duckdb.DuckDBPyConnection":
    """A database in memory, times in UTC, with `FUNCTIONS`. It loads no extension, and spills no
    data to disk until a temporary folder is set.

    Raises:
        DependencyError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError as error:
        raise DependencyError("duckdb is missing: pip install duckdb") from error
    # `execute` copies a result once more than a relation, but a relation binds the query twice.
    warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")
    connection = duckdb.connect(config={"allow_community_extensions": "false"})
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET temp_directory = ''")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # of its cursors, too
    define(connection, FUNCTIONS)
    return connection


def define(connection: "duckdb.DuckDBPyConnection", functions: Iterable[str]) -> None:
    """Create SQL functions; each replaces the one of its name."""
    connection.execute("; ".join(f"CREATE OR REPLACE MACRO {each}" for each in functions))


class DuckdbEngine:
    """A connection to DuckDB over tables that the caller registers.

    Args:
        folder: the temporary folder for data that does not fit into memory.
        threads: the most that DuckDB may use. memory: beyond it, DuckDB spills to its folder.

    Raises:
        DependencyError: DuckDB is not installed.
    """

    name: Final = "duckdb"
    at_once: Final = 1

    def __init__(
        self, folder: Path | None = None, threads: int | None = None, memory: str = MEMORY
    ) -> None:
        self._folder = folder
        self._threads = threads
        self._view_kind = "VIEW"
        self._kinds: dict[str, str] = {}  # VIEW or TABLE, by name
        self._functions = EVERYTHING.functions()
        self._known = KnownRows(self._only_row, self._create_view)
        self._pending_views: dict[str, SharedView] = {}  # shared views not yet created
        self._replaceable: dict[str, _ReplaceableTable] = {}
        self._memory = memory
        self._settings: list[str] = []  # of each cursor
        self._cursors: list[duckdb.DuckDBPyConnection] = []  # idle
        self._close = ExitStack()

    @cached_property
    def _connection(self) -> "duckdb.DuckDBPyConnection":
        """Opened on first use: opening takes as long as ten queries."""
        connection = self._close.enter_context(connect())
        run = connection.execute
        run(f"SET memory_limit = {quoted(self._memory)}")
        run("SET preserve_insertion_order = false")
        run("SET parquet_metadata_cache = true")
        if self._threads is not None:
            run(f"SET threads = {self._threads}")
        if self._folder is not None:
            run(f"SET temp_directory = {quoted(str(self._folder))}")
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._close.close()

    def register(self, name: str, rows: "pa.Table") -> None:
        """Copy a small table into the engine; it replaces the one of that name."""
        self._connection.register("registered", rows)
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM registered")
        self._connection.unregister("registered")
        self._known.set_count(name, rows.num_rows)
        self._known.forget()

    def define(self, functions: Iterable[str]) -> None:
        """Create SQL functions; each replaces the one of its name."""
        functions = tuple(functions)
        if functions != self._functions:
            self._functions = functions
            define(self._connection, functions)
            self._known.forget()

    def lend(self, name: str, rows: "pa.Table") -> None:
        """Expose a table without a copy, until another one replaces it. Only the main connection
        sees it, so queries run in one thread."""
        self._known.forget()
        lent = self._replaceable.get(name)
        if lent is not None and lent.rows.schema.equals(rows.schema):
            lent.rows = rows
            return
        self._replaceable[name] = lent = _ReplaceableTable(rows)
        self._connection.register(name, lent)

    def lake_table(
        self, table: str, paths: Sequence[str], old_paths: Sequence[str], empty: "pa.Table"
    ) -> str:
        """Create the view `lake_<table>` over all files of the table.

        Args:
            old_paths: files of schema version 1, whose folders name their captures.
            empty: a table without rows that adds the columns which files lack.

        Returns:
            The FROM expression: the files if they have all columns, else the view.
        """
        import duckdb

        if paths and not old_paths:
            with suppress(duckdb.BinderException):  # files lack some of the columns
                self._create("VIEW", f"lake_{table}", some_columns(paths, empty.schema.names))
                return parquet(paths)
        self.register(f"empty_{table}", empty)
        self._create("VIEW", f"lake_{table}", all_rows(f"empty_{table}", paths, old_paths))
        return f"lake_{table}"

    def parquet_table(self, name: str, paths: Sequence[str], schema: "pa.Schema") -> None:
        """Create a view over Parquet files of this program, which have all columns."""
        if not paths:
            from dissector.schemas.small_tables import no_rows

            self.register(name, no_rows(schema))
            return
        self.view(name, f"SELECT {', '.join(schema.names)} FROM {parquet(paths)}")

    def budget(self, _tasks: int) -> tuple[str, int | None]:
        """Memory and threads of one task; tasks run one after the other."""
        return self._memory, self._threads

    def each(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """The results of a function for all tasks, in order."""
        return [function(task) for task in tasks]

    def expect(self, rows: int) -> None:
        """Choose the strategy for the number of rows of all tables, before they are created.

        Over few rows views become tables, because planning a query over views costs more than
        running it over few rows.
        """
        self._view_kind = "TABLE" if rows <= FEW_ROWS else "VIEW"
        self._known.is_large = rows > FEW_ROWS
        if rows <= TINY_ROWS:
            self._connection.execute("SET threads = 1")
            self._settings = ["PRAGMA disable_optimizer"]
            self._connection.execute(self._settings[0])

    def view(self, name: str, query: str) -> None:
        """Create a view; it replaces the one of that name."""
        self._materialize([query])
        self._create(self._view_kind, name, query)
        self._known.forget()

    def _create(self, kind: str, name: str, query: str) -> None:
        before = self._kinds.get(name, kind)
        if before != kind:
            self._connection.execute(f"DROP {before} {name}")
        self._kinds[name] = kind
        with reading():
            made = self._connection.execute(f"CREATE OR REPLACE {kind} {name} AS {query}")
        count = made.fetchall()
        self._known.set_count(name, count[0][0] if kind == "TABLE" else None)

    def shared_views(self, wanted: Sequence[SharedView] | None = None) -> None:
        """Declare the views that queries share, or `wanted`, over existing tables. Each view is
        created when a query first reads it, because creating it costs a plan."""
        views = shared_views() if wanted is None else wanted
        self._known.views = {each.name: each for each in views}
        self._known.forget()
        self._pending_views = dict(self._known.views)

    def renew(self, views: Sequence[SharedView]) -> None:
        """Note that tables were replaced: plain `views` remain, materialized ones are computed
        again when a query reads them."""
        self._known.forget()
        made = {each.name for each in views} - self._pending_views.keys()
        self._pending_views = {
            each.name: each for each in views if each.is_materialized or each.name not in made
        }

    def table(self, query: str) -> "pa.Table":
        """All rows of a query."""
        self._materialize([query])
        return self._rows(query)

    def _rows(self, query: str) -> "pa.Table":
        if self._replaceable:
            return self._connection.execute(query).to_arrow_table()
        with reading(), self._cursor() as cursor:
            return cursor.execute(query).to_arrow_table()

    @contextmanager
    def _cursor(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """An idle or new connection for one thread; opening one costs as much as a small query."""
        try:
            cursor = self._cursors.pop()  # another thread may pop the last one first
        except IndexError:
            cursor = self._connection.cursor()
            for setting in self._settings:
                cursor.execute(setting)
        yield cursor
        self._cursors.append(cursor)  # not after an error: its state is unknown

    def tables(
        self, queries: Mapping[str, str], needs: Mapping[str, Need] | None = None
    ) -> dict[str, "pa.Table"]:
        """All rows of each query; for a failed query that may fail, one row with the reason. A
        table without rows may have no column but the capture.

        Args:
            needs: conditions for queries to have rows, by name, beside those derived from their
            SQL.
        """
        from dissector.schemas.small_tables import TEXT, small_table

        runnable = self._answerable(queries, needs)
        tables = dict.fromkeys(queries, small_table([], capture=TEXT))
        if self._threads == 1:  # the caller's thread: a tap measures its CPU time
            tables |= {name: self._table_or_reason(name, runnable[name]) for name in runnable}
        else:
            _ = self._connection  # opened before threads share it
            with ThreadPoolExecutor(_QUERIES_AT_ONCE) as pool:
                results = pool.map(self._table_or_reason, runnable, runnable.values())
                tables |= zip(runnable, results, strict=True)
        for table in self._known.made():
            self._connection.execute(f"DROP TABLE {table}")
        return tables

    def write(self, queries: Mapping[str, str], folder: Path) -> None:
        """Write the rows of each query to <name>.parquet in a folder. A query without rows may
        write no file."""
        for name, query in self._answerable(queries).items():
            self._write(query, folder / f"{name}.parquet")

    def _answerable(
        self, queries: Mapping[str, str], needs: Mapping[str, Need] | None = None
    ) -> dict[str, str]:
        """The queries that may have rows; creates the views that they read."""
        may_have_rows = self._known.answerable(queries, needs or {})
        self._materialize(may_have_rows.values())
        return may_have_rows

    def _create_view(self, view: str) -> bool:
        """Create a shared view; whether it is a table with rows now."""
        self._materialize([view])
        return self._kinds.get(view) == "TABLE"

    def _only_row(self, query: str) -> tuple[Any, ...] | None:
        """The only row of a query, None if it fails."""
        import duckdb

        try:
            (row,) = self._connection.execute(query).fetchall()
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            return None
        return tuple(row)

    def _table_or_reason(self, name: str, query: str) -> "pa.Table":
        import duckdb

        try:
            return self._rows(query)
        except duckdb.Error as error:
            # Another run may not meet these errors, so they must not be cached as a query's result.
            passing = (duckdb.OutOfMemoryException, duckdb.IOException, duckdb.InterruptException)
            if not name.startswith(MAY_FAIL) or isinstance(error, passing):
                raise
            return self._rows(failed(one_line(error)))

    def _materialize(self, queries: Iterable[str]) -> None:
        """Create the missing views that queries read. A view becomes a table with rows if it is
        marked as materialized or if all tables are small."""
        views = (*self._known.views.values(),)
        for view in {e.name: e for text in queries for e in used_views(text, views)}.values():
            if self._pending_views.pop(view.name, None) is None:
                continue
            query = view.query
            is_made = view.is_materialized or self._view_kind == "TABLE"
            if is_made and not self._known.may_be_there(view.name):
                query = f"SELECT * FROM ({query}) WHERE FALSE"  # computing it would return nothing
            self._create("TABLE" if is_made else "VIEW", view.name, query)

    def _write(self, query: str, target: Path) -> None:
        with reading():
            rows = self._connection.sql(query)
            # DuckDB sums 64-bit integers to HUGEINT, which Parquet would store as DOUBLE.
            kinds = zip(rows.columns, rows.types, strict=True)
            wide = [name for name, kind in kinds if str(kind) == "HUGEINT"]
            if wide:
                narrow = ", ".join(f"TRY_CAST({name} AS BIGINT) AS {name}" for name in wide)
                query = f"SELECT * REPLACE ({narrow}) FROM ({query})"
            self._connection.execute(
                f"COPY ({query}) TO {quoted(str(target))} (FORMAT parquet, COMPRESSION zstd)"
            )


class _ReplaceableTable:
    """A replaceable Arrow table: it is registered once, its rows are replaced later."""

    def __init__(self, rows: "pa.Table") -> None:
        self.rows = rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.rows.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.rows.schema.__arrow_c_schema__()


def plain_rows(
    connection: "duckdb.DuckDBPyConnection",
    paths: Sequence[str],
    old_paths: Sequence[str],
    columns: Sequence[str],
    more: str = "",
) -> str:
    """The query for all rows of a table; "" if there are no files or files lack columns.

    Args:
        old_paths: files of schema version 1, which lack columns.
        more: further SELECT expressions, with a leading comma.
    """
    if not paths or old_paths:
        return ""
    columns_in_files = connection.sql(f"SELECT * FROM {parquet(paths)}").columns
    return some_columns(paths, columns, more) if {*columns} <= {*columns_in_files} else ""


def some_columns(paths: Sequence[str], columns: Sequence[str], more: str = "") -> str:
    """The query for columns that all these Parquet files have. more: as in `plain_rows`."""
    names = ", ".join(f'"{column}"' for column in columns)
    return f"SELECT {names}{more} FROM {parquet(paths)}"


def all_rows(empty: str, paths: Sequence[str], old_paths: Sequence[str], more: str = "") -> str:
    """The query for all rows of a table.

    Args:
        empty: a table without rows that adds the columns which files lack.
        old_paths: files of schema version 1, whose folders name their captures.
        more: as in `plain_rows`.
    """
    parts = [f"SELECT * FROM {empty}"]
    if paths:
        parts.append(f"SELECT *{more} FROM {parquet(paths, by_name=True)}")
    if old_paths:
        parts.append(f"SELECT * {OLD_CAPTURE}{more} FROM {parquet(old_paths, is_old=True)}")
    return " UNION ALL BY NAME ".join(parts)


def parquet(paths: Sequence[str], *, is_old: bool = False, by_name: bool = False) -> str:
    """The FROM expression of Parquet files. is_old: the folder's name has the capture; by_name:
    some files may lack columns."""
    how = "true" if is_old else "false"
    more = ", union_by_name = true" if by_name else ""
    return f"read_parquet({_listed(paths)}, hive_partitioning = {how}{more})"


def parquet_files(folder: Path, name: str) -> list[str]:
    """The files that DuckDB or Spark wrote for a query: <name>.parquet, or the files of the folder
    <name> in order; none if neither exists."""
    single = folder / f"{name}.parquet"
    files = [single] if single.is_file() else sorted((folder / name).glob("*.parquet"))
    return [str(file) for file in files]


def _listed(paths: Sequence[str]) -> str:
    """Paths as an SQL list; pattern characters are escaped, because DuckDB expands them."""
    plain = (quoted(_PATTERN.sub(r"[\g<0>]", path)) for path in paths)
    return f"[{', '.join(plain)}]"


def quoted(text: str) -> str:
    """A text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


class reading:
    """Raises DuckDB's file errors as InputError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import duckdb

        # For a damaged footer DuckDB raises the base class.
        is_of_files = isinstance(error, duckdb.IOException | duckdb.InvalidInputException)
        if is_of_files or type(error) is duckdb.Error:
            raise unreadable(error) from error


def unreadable(error: BaseException | None) -> InputError:
    """The error of a file that the engine could not read."""
    reason = one_line(error).partition("; LINE ")[0]  # of a query that is not the user's
    return InputError(
        f"a file of the lake cannot be read, dissector lake verify tells which: {reason}"
    )


def failed(reason: str) -> str:
    """The query that replaces a failed one: one row with the reason."""
    return f"SELECT CAST(NULL AS STRING) AS capture, {quoted(reason)} AS problem"


def one_line(error: BaseException | None) -> str:
    """A DuckDB error as one line, without the lines that draw its position."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip(" ^\t"))
