"""DuckDB as the engine of reports: tables of a lake in, Arrow tables out, within a bound of memory.

`sandbox` runs queries of users, which must not reach anything else.
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

# Files of schema version 1 name their capture by their folder, and rows of compacted ones theirs.
OLD_CAPTURE: Final = "REPLACE (coalesce(origin_capture, capture) AS capture)"
FEW_ROWS: Final = 300_000
# Below it, a plan and threads to share it cost more than the plain text of a query in one thread.
TINY_ROWS: Final = 30_000
_PATTERN: Final = re.compile(r"[\[*?]")
MEMORY: Final = "2GB"
# Queries that run at the same time: DuckDB plans each in one thread, and another may run meanwhile.
# A report takes a tenth to a sixth less so.
_QUERIES_AT_ONCE: Final = 2
# floor_div: for integers of either sign, divisors > 0. try_…: null where 64 bits do not hold it.
# histogram_bucket: of a duration, ns, as `dissector.buckets` numbers them; null if it is negative.
# A rounded logarithm may be one octave off beside a power of two, where either octave gives the
# same bucket: 32 * octave + 63 is 32 * (octave + 1) + 31.
FUNCTIONS: Final = (
    "floor_div(a, b) AS a // b - CASE WHEN a % b < 0 THEN 1 ELSE 0 END",
    "try_subtract(a, b) AS TRY(a - b)",
    "try_multiply(a, b) AS TRY(a * b)",
    "histogram_octave(a) AS "
    f"greatest(CAST(floor(log2(greatest(a, 1))) AS BIGINT) - {SUB_BUCKET_BITS}, 0)",
    # Inside of the CASE, the octave would be reckoned twice.
    f"histogram_bucket(a) AS {SUB_BUCKETS} * histogram_octave(a) "
    "+ (a >> CAST(histogram_octave(a) AS INT)) + CASE WHEN a >= 0 THEN 0 END",
    "micros(a) AS epoch_us(a)",
    "items(a) AS len(a)",
    *EVERYTHING.functions(),
    # String.hashCode without its sign, over UTF-16 units: its value with one code point more.
    "java_hash(a) AS 2147483647 & list_reduce(list_transform(string_split(a, ''), "
    "lambda c: CAST(unicode(c) AS BIGINT)), lambda s, c: 4294967295 & CASE WHEN c < 65536 "
    "THEN 31 * s + c ELSE 961 * s + 31 * (55232 + (c >> 10)) + 56320 + (c & 1023) END, "
    "CAST(0 AS BIGINT))",
    # Of ranges that do not overlap, what is above an odd number of ends is between two.
    "lies_in(a, b) AS list_contains(b, a) OR len(list_filter(b, lambda c: c < a)) % 2 = 1",
)


def connect() -> "duckdb.DuckDBPyConnection":
    """A database in memory, times in UTC, with `FUNCTIONS`. It loads nothing from elsewhere, and
    writes no file until somebody names a folder for what does not fit into memory.

    Raises:
        DependencyError: DuckDB is not there.
    """
    try:
        import duckdb
    except ImportError as error:
        raise DependencyError("duckdb is missing: pip install duckdb") from error
    # A result is copied once more than a relation's, which costs less than to bind a query twice.
    warnings.filterwarnings("ignore", message="Arrow output on a DB-API result")
    connection = duckdb.connect(config={"allow_community_extensions": "false"})
    connection.execute("SET autoinstall_known_extensions = false")
    connection.execute("SET temp_directory = ''")
    connection.execute("SET GLOBAL TimeZone = 'UTC'")  # of its cursors, too
    define(connection, FUNCTIONS)
    return connection


def define(connection: "duckdb.DuckDBPyConnection", functions: Iterable[str]) -> None:
    """Functions of SQL, in the place of those of their names."""
    connection.execute("; ".join(f"CREATE OR REPLACE MACRO {each}" for each in functions))


class DuckdbEngine:
    """A connection to DuckDB over tables that the caller names.

    Args:
        folder: where it writes what does not fit into memory.
        threads: as many as DuckDB may use. memory: beyond it, DuckDB goes on in its folder.

    Raises:
        DependencyError: DuckDB is not there.
    """

    name: Final = "duckdb"
    at_once: Final = 1

    def __init__(
        self, folder: Path | None = None, threads: int | None = None, memory: str = MEMORY
    ) -> None:
        self._folder = folder
        self._threads = threads
        self._kind = "VIEW"
        self._kinds: dict[str, str] = {}  # of what has a name: VIEW or TABLE
        self._functions = EVERYTHING.functions()
        self._known = KnownRows(self._tell, self._make)
        self._lazy: dict[str, SharedView] = {}  # shared views that were not read yet
        self._lent: dict[str, _Lent] = {}
        self._memory = memory
        self._settings: list[str] = []  # that hold for a cursor alone
        self._cursors: list[duckdb.DuckDBPyConnection] = []  # that nobody uses
        self._close = ExitStack()

    @cached_property
    def _connection(self) -> "duckdb.DuckDBPyConnection":
        """Made when it is needed: that takes as long as ten queries."""
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
        """A small table, under a name that replaces what had it."""
        self._connection.register("registered", rows)
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM registered")
        self._connection.unregister("registered")
        self._known.set_count(name, rows.num_rows)
        self._known.forget()

    def define(self, functions: Iterable[str]) -> None:
        """Functions of SQL, in the place of those of their names."""
        functions = tuple(functions)
        if functions != self._functions:
            self._functions = functions
            define(self._connection, functions)
            self._known.forget()

    def lend(self, name: str, rows: "pa.Table") -> None:
        """A table that is read where it lies, until another one has its name. By one thread: other
        connections do not see it."""
        self._known.forget()
        lent = self._lent.get(name)
        if lent is not None and lent.rows.schema.equals(rows.schema):
            lent.rows = rows
            return
        self._lent[name] = lent = _Lent(rows)
        self._connection.register(name, lent)

    def lake_table(
        self, table: str, paths: Sequence[str], old_paths: Sequence[str], empty: "pa.Table"
    ) -> str:
        """A view `lake_<table>` over all its files.

        Args:
            old_paths: files of schema version 1, which name their capture by their folder.
            empty: a table with its columns, for those that files lack.

        Returns:
            What to select its columns from: the files, where they have all of them.
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
        """A view over Parquet files that this program wrote, all of these columns."""
        if not paths:
            from dissector.schemas.small_tables import no_rows

            self.register(name, no_rows(schema))
            return
        self.view(name, f"SELECT {', '.join(schema.names)} FROM {parquet(paths)}")

    def budget(self, _tasks: int) -> tuple[str, int | None]:
        """Memory and threads of each of some tasks; they run one after the other."""
        return MEMORY, self._threads

    def each(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """What a function gives for each task."""
        return [function(task) for task in tasks]

    def expect(self, rows: int) -> None:
        """How many rows the tables have together, told before they are named.

        Few rows are read once, and views of them become tables: to plan a query over views costs
        more than to run it over few rows.
        """
        self._kind = "TABLE" if rows <= FEW_ROWS else "VIEW"
        self._known.is_large = rows > FEW_ROWS
        if rows <= TINY_ROWS:
            self._connection.execute("SET threads = 1")
            self._settings = ["PRAGMA disable_optimizer"]
            self._connection.execute(self._settings[0])

    def view(self, name: str, query: str) -> None:
        """A view, in the place of one of that name."""
        self._materialize([query])
        self._create(self._kind, name, query)
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
        """The views that queries share, or some of them, over tables that are there: each costs its
        plan, so that it is made when a query reads it."""
        views = shared_views() if wanted is None else wanted
        self._known.views = {each.name: each for each in views}
        self._known.forget()
        self._lazy = dict(self._known.views)

    def renew(self, views: Sequence[SharedView]) -> None:
        """Tables are others now: `views`, which `shared_views` made, stay; rows made of them are
        made again when they are read."""
        self._known.forget()
        made = {each.name for each in views} - self._lazy.keys()
        self._lazy = {
            each.name: each for each in views if each.is_materialized or each.name not in made
        }

    def table(self, query: str) -> "pa.Table":
        """All rows of a query."""
        self._materialize([query])
        return self._rows(query)

    def _rows(self, query: str) -> "pa.Table":
        if self._lent:
            return self._connection.execute(query).to_arrow_table()
        with reading(), self._cursor() as cursor:
            return cursor.execute(query).to_arrow_table()

    @contextmanager
    def _cursor(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """A connection for one thread at a time; to make one takes as long as a small query."""
        try:
            cursor = self._cursors.pop()  # another thread may take the last one
        except IndexError:
            cursor = self._connection.cursor()
            for setting in self._settings:
                cursor.execute(setting)
        yield cursor
        self._cursors.append(cursor)  # of one whose query failed nobody knows the state

    def tables(
        self, queries: Mapping[str, str], needs: Mapping[str, Need] | None = None
    ) -> dict[str, "pa.Table"]:
        """All rows of each query; of one that may fail and does, the reason. One that has no rows
        may have no columns but the capture.

        Args:
            needs: what queries need, by name, beside what their texts tell.
        """
        from dissector.schemas.small_tables import TEXT, small_table

        asked = self._answerable(queries, needs)
        tables = dict.fromkeys(queries, small_table([], capture=TEXT))
        if self._threads == 1:  # the caller's own, whose time a tap reckons with
            tables |= {name: self._table_or_reason(name, asked[name]) for name in asked}
        else:
            _ = self._connection  # made before threads share it
            with ThreadPoolExecutor(_QUERIES_AT_ONCE) as pool:
                found = pool.map(self._table_or_reason, asked, asked.values())
                tables |= zip(asked, found, strict=True)
        for table in self._known.made():
            self._connection.execute(f"DROP TABLE {table}")
        return tables

    def write(self, queries: Mapping[str, str], folder: Path) -> None:
        """The rows of each query as a Parquet file of its name in a folder; no file of one that has
        no rows may be there."""
        for name, query in self._answerable(queries).items():
            self._write(query, folder / f"{name}.parquet")

    def _answerable(
        self, queries: Mapping[str, str], needs: Mapping[str, Need] | None = None
    ) -> dict[str, str]:
        """Those of queries that may have rows; the views that they read are made."""
        asked = self._known.answerable(queries, needs or {})
        self._materialize(asked.values())
        return asked

    def _make(self, view: str) -> bool:
        """Make the rows of a shared view, if it is one that is made; whether they are."""
        self._materialize([view])
        return self._kinds.get(view) == "TABLE"

    def _tell(self, query: str) -> tuple[Any, ...] | None:
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
            # What another run may not meet is no fault of the query, and must not be kept as one.
            passing = (duckdb.OutOfMemoryException, duckdb.IOException, duckdb.InterruptException)
            if not name.startswith(MAY_FAIL) or isinstance(error, passing):
                raise
            return self._rows(failed(one_line(error)))

    def _materialize(self, queries: Iterable[str]) -> None:
        """Make the views that queries read and that are not there yet, and their rows where that is
        said of them, or all that there are are few."""
        views = (*self._known.views.values(),)
        for view in {e.name: e for text in queries for e in used_views(text, views)}.values():
            if self._lazy.pop(view.name, None) is None:
                continue
            query = view.query
            is_made = view.is_materialized or self._kind == "TABLE"
            if is_made and not self._known.may_be_there(view.name):
                query = f"SELECT * FROM ({query}) WHERE FALSE"  # read to see that nothing is there
            self._create("TABLE" if is_made else "VIEW", view.name, query)

    def _write(self, query: str, target: Path) -> None:
        with reading():
            rows = self._connection.sql(query)
            # Sums of 64 bits have 128 in DuckDB; Parquet would have them as fractions.
            kinds = zip(rows.columns, rows.types, strict=True)
            wide = [name for name, kind in kinds if str(kind) == "HUGEINT"]
            if wide:
                narrow = ", ".join(f"TRY_CAST({name} AS BIGINT) AS {name}" for name in wide)
                query = f"SELECT * REPLACE ({narrow}) FROM ({query})"
            self._connection.execute(
                f"COPY ({query}) TO {quoted(str(target))} (FORMAT parquet, COMPRESSION zstd)"
            )


class _Lent:
    """What stands for a table that is read where it lies: a name for it is made once, whatever rows
    it has later."""

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
    """The query of all rows of a table whose files have all of its columns; empty where they lack
    some, or there are none.

    Args:
        old_paths: files of schema version 1, which do.
        more: what else to select, with a comma before it.
    """
    if not paths or old_paths:
        return ""
    there = connection.sql(f"SELECT * FROM {parquet(paths)}").columns
    return some_columns(paths, columns, more) if {*columns} <= {*there} else ""


def some_columns(paths: Sequence[str], columns: Sequence[str], more: str = "") -> str:
    """The query of columns that all of some Parquet files have. more: as of `plain_rows`."""
    names = ", ".join(f'"{column}"' for column in columns)
    return f"SELECT {names}{more} FROM {parquet(paths)}"


def all_rows(empty: str, paths: Sequence[str], old_paths: Sequence[str], more: str = "") -> str:
    """The query of all rows of a table.

    Args:
        empty: a table with its columns, for those that files lack.
        old_paths: files of schema version 1, which name their capture by their folder.
        more: as of `plain_rows`.
    """
    parts = [f"SELECT * FROM {empty}"]
    if paths:
        parts.append(f"SELECT *{more} FROM {parquet(paths, by_name=True)}")
    if old_paths:
        parts.append(f"SELECT * {OLD_CAPTURE}{more} FROM {parquet(old_paths, is_old=True)}")
    return " UNION ALL BY NAME ".join(parts)


def parquet(paths: Sequence[str], *, is_old: bool = False, by_name: bool = False) -> str:
    """Parquet files, as what a query reads from. is_old: the folder's name has the capture;
    by_name: files may lack columns that others have."""
    how = "true" if is_old else "false"
    more = ", union_by_name = true" if by_name else ""
    return f"read_parquet({_listed(paths)}, hive_partitioning = {how}{more})"


def parquet_files(folder: Path, name: str) -> list[str]:
    """<name>.parquet of a folder, or the files of the folder <name>, in order; none if neither:
    what an engine wrote for a query, whichever engine it was."""
    single = folder / f"{name}.parquet"
    files = [single] if single.is_file() else sorted((folder / name).glob("*.parquet"))
    return [str(file) for file in files]


def _listed(paths: Sequence[str]) -> str:
    """Names of files as a list; a name is a pattern to DuckDB, so what would be one is escaped."""
    plain = (quoted(_PATTERN.sub(r"[\g<0>]", path)) for path in paths)
    return f"[{', '.join(plain)}]"


def quoted(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


class reading:
    """Errors of files, as errors of input."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import duckdb

        # What a damaged footer says is an error of no kind.
        is_of_files = isinstance(error, duckdb.IOException | duckdb.InvalidInputException)
        if is_of_files or type(error) is duckdb.Error:
            raise unreadable(error) from error


def unreadable(error: BaseException | None) -> InputError:
    """The error of a file that the engine could not read."""
    return InputError(
        f"a file of the lake cannot be read, dissector lake verify tells which: {one_line(error)}"
    )


def failed(reason: str) -> str:
    """The query of what stands in the place of a query that failed."""
    return f"SELECT CAST(NULL AS STRING) AS capture, {quoted(reason)} AS problem"


def one_line(error: BaseException | None) -> str:
    """An error of the engine as one line: what is wrong, what it might have been, and where,
    without its drawing of the place."""
    return "; ".join(line.strip() for line in str(error).splitlines() if line.strip(" ^\t"))
