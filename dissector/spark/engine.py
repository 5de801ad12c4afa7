"""Spark as the engine of reports: the tables of a lake in, Parquet files out.

Captures that are counted by themselves are shared out: each task opens the files of its own and
runs the queries as `dissector.queries.duckdb_engine` does in one process
(`dissector.report.partitions`). That costs a tenth of what Spark SQL does for the same rows, and
nothing is shuffled. What is too large for one task, and what asks for all rows at once, are queries
of Spark SQL, with the same text. What they give is written by Spark's tasks; only `table`, for what
is known to be small, brings rows to the driver.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Self, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from dissector.errors import InputError
from dissector.queries.catalogue import BUCKET, JAVA_HASH, MAY_FAIL, OCTAVE, shared_views
from dissector.queries.duckdb_engine import MEMORY, failed
from dissector.spark.schemas import spark_schema
from dissector.spark.session import SMALL_LAKE_ROWS
from dissector.spark.uris import to_read, to_write

Task = TypeVar("Task")
Result = TypeVar("Result")

FUNCTIONS: Final = (
    "floor_div(a BIGINT, b BIGINT) RETURNS BIGINT RETURN "
    "a div b - CASE WHEN a % b < 0 THEN 1 ELSE 0 END",
    f"histogram_octave(a BIGINT) RETURNS BIGINT RETURN {OCTAVE}",
    f"histogram_bucket(a BIGINT) RETURNS BIGINT RETURN {BUCKET}",
    "micros(a TIMESTAMP) RETURNS BIGINT RETURN unix_micros(a)",
    "items(a ARRAY<BIGINT>) RETURNS BIGINT RETURN CAST(array_size(a) AS BIGINT)",
    "java_hash(a STRING) RETURNS BIGINT RETURN 2147483647 & aggregate(transform(split(a, ''), "
    f"c -> CAST(ascii(c) AS BIGINT)), CAST(0 AS BIGINT), (s, c) -> {JAVA_HASH})",
    "lies_in(a BIGINT, b ARRAY<BIGINT>) RETURNS BOOLEAN "
    "RETURN array_contains(b, a) OR array_size(filter(b, c -> c < a)) % 2 = 1",
)
# The files of a lake are told by name: no task looks for them, whatever their number.
SETTINGS: Final = {
    "spark.sql.sources.parallelPartitionDiscovery.threshold": str((1 << 31) - 1),
}
# A side of a join that is a small file goes to every task as a hash table. Our files are compressed
# to a sixteenth of what their rows are there, several queries make such tables at once, and what
# does not fit into memory ends the report. Rows of a small lake always fit.
BROADCAST: Final = "spark.sql.autoBroadcastJoinThreshold"
BROADCAST_NEVER: Final = "-1"
BROADCAST_OF_SMALL: Final = "10MB"
_OF_FILES: Final = re.compile(
    r"\[(?:FAILED_READ_FILE|CANNOT_READ_FILE_FOOTER|PATH_NOT_FOUND)\b[^\n]*"
)
AT_ONCE: Final = 4  # queries that wait for the cores at the same time
# Of how many rows, all tables together, one capture (or group of joined ones) may be for a task:
# ten minutes of one core. `--conf spark.dissector.taskRows=0` gives everything to Spark SQL.
TASK_ROWS: Final = 200_000_000
TASK_ROWS_SETTING: Final = "spark.dissector.taskRows"
TASK_MEMORY: Final = "1GB"  # where several run on one machine; then they go on in their folder


class SparkEngine:
    """A session over tables that the caller names; `DuckdbEngine` does the same with DuckDB.

    Args:
        spark: the session; it is the caller's, and goes on.
        folder: where rows that several queries read are written down.
    """

    name: Final = "spark"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder.absolute()
        self._views: list[str] = []
        self._settled: set[str] = set()
        self._rounds = 0  # how often tables were named
        self._is_small = False
        self._tables: dict[str, str] = {}  # views of the tables of a small lake
        self._is_ready = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for name in reversed(self._views):
            self._spark.catalog.dropTempView(name)

    @property
    def at_once(self) -> int:
        """How many tasks run at the same time: one for each core."""
        return max(1, self._spark.sparkContext.defaultParallelism)

    @property
    def task_rows(self) -> int:
        """Of how many rows a unit may be for one task."""
        return int(self._spark.conf.get(TASK_ROWS_SETTING, str(TASK_ROWS)) or TASK_ROWS)

    def budget(self, tasks: int) -> tuple[str, int | None]:
        """The memory and the threads of each of so many tasks: on one machine, few tasks share its
        cores; elsewhere a task has what Spark says it has."""
        context = self._spark.sparkContext
        if not str(context.master).startswith("local"):
            return TASK_MEMORY, int(context.getConf().get("spark.task.cpus", "1") or 1)
        return (MEMORY if tasks < 2 else TASK_MEMORY), max(1, self.at_once // max(1, tasks))

    def expect(self, rows: int) -> None:
        """How many rows the tables have together, told before they are named.

        Of few the views of tables are settled, too: a file that is made once is read in less time
        than what it takes to plan the view and to open all files of the lake for each reader.
        """
        self._is_small = rows < SMALL_LAKE_ROWS
        self._tables.clear()
        self._spark.conf.set(BROADCAST, BROADCAST_OF_SMALL if self._is_small else BROADCAST_NEVER)

    def register(self, name: str, rows: pa.Table) -> None:
        """A small table, under a name that replaces what had it."""
        self._name(name, self._spark.createDataFrame(rows))

    def lake_table(
        self, table: str, paths: Sequence[str], old_paths: Sequence[str], empty: pa.Table
    ) -> None:
        """A view `lake_<table>` over all its files.

        Args:
            old_paths: files of schema version 1, which name their capture by their folder.
        """
        rows = self._parquet(paths, spark_schema(table))
        if old_paths:
            base = to_write(Path(old_paths[0]).parent.parent)
            old = self._parquet(old_paths, spark_schema(table), basePath=base)
            cells = {"capture": "coalesce(origin_capture, capture)"}
            rows = rows.unionByName(
                old.selectExpr(*(f"{cells.get(name, name)} AS {name}" for name in rows.columns))
            )
        self._name(f"lake_{table}", rows)

    def parquet_table(self, name: str, paths: Sequence[str], schema: pa.Schema) -> None:
        """A view over files that this program wrote."""
        self._name(name, self._parquet(paths, from_arrow_schema(schema)))

    def view(self, name: str, query: str) -> None:
        """A view of a table, in the place of one of that name."""
        self._prepare()
        self._name(name, self._spark.sql(query))
        if self._is_small:
            self._tables[name] = query

    def shared_views(self) -> None:
        """The views that queries share, over tables that are there: `write` and `table` make
        those that their queries read."""
        self._settled.clear()
        self._rounds += 1

    def table(self, query: str) -> pa.Table:
        """All rows of a query that gives few."""
        self._prepare()
        self._settle([query])
        with _reading():
            return self._spark.sql(query).toArrow()

    def tables(self, queries: Mapping[str, str]) -> dict[str, pa.Table]:
        """All rows of queries that give few; of one that may fail and does, the reason."""
        self._prepare()
        self._settle(list(queries.values()))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            tables = pool.map(self._table_or_reason, queries, queries.values())
            return dict(zip(queries, tables, strict=True))

    def _table_or_reason(self, name: str, query: str) -> pa.Table:
        try:
            with _reading():
                return self._spark.sql(query).toArrow()
        except PySparkException as error:
            if not name.startswith(MAY_FAIL):
                raise
            return self._spark.sql(failed(str(error).splitlines()[0])).toArrow()

    def write(self, queries: Mapping[str, str], folder: Path) -> None:
        """The rows of each query as Parquet files in a folder of its name in a folder."""
        self._prepare()
        self._settle(list(queries.values()))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = [
                pool.submit(self._write, query, folder.absolute() / name)
                for name, query in queries.items()
            ]
            for future in waiting:
                future.result()

    def _settle(self, queries: Sequence[str]) -> None:
        """Write down the views that are read more than once: Spark would make them again for each
        place of a text that names them."""
        views = self._tables | {view.name: view.query for view in shared_views()}
        readers = Counter(name for text in queries for name in views for _ in reads_of(name, text))
        for name in reversed(views):
            if readers[name]:
                for inner in views:
                    readers[inner] += len(reads_of(inner, views[name]))
        for name, query in views.items():
            if readers[name] > 1 and name not in self._settled:
                target = self._folder / f"settled-{self._rounds}" / name
                rows = self._write(query, target)
                self._name(name, self._spark.read.schema(rows.schema).parquet(to_read(target)))
                self._settled.add(name)
            elif readers[name] and name not in self._settled:
                self._name(name, self._spark.sql(query))  # over views that may be settled by now

    def _write(self, query: str, target: Path) -> DataFrame:
        rows = self._spark.sql(query)
        rows = rows.coalesce(1) if self._is_small else rows
        with _reading():
            rows.write.option("compression", "zstd").parquet(to_write(target))
        return rows

    def each(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """What a function gives for each of some tasks, each a task of Spark."""
        if not tasks:
            return []
        run = partial(_outcome_of, function)
        outcomes = self._spark.sparkContext.parallelize(tasks, len(tasks)).map(run).collect()
        results: list[Result] = []
        for result, problem in outcomes:
            if problem is not None:
                raise InputError(problem)
            results += result
        return results

    def _prepare(self) -> None:
        """What Spark SQL needs, once; tasks do not need it."""
        if self._is_ready:
            return
        self._is_ready = True
        for key, value in SETTINGS.items():
            self._spark.conf.set(key, value)
        for function in FUNCTIONS:
            self._spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {function}")

    def _name(self, name: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(name)
        self._views.append(name)

    def _parquet(self, paths: Sequence[str], schema: StructType, **options: str) -> DataFrame:
        if not paths:
            return self._spark.createDataFrame([], schema)
        self._prepare()
        reader = self._spark.read.schema(schema).options(**options)
        with _reading():
            return reader.parquet(*map(to_read, paths))


def _outcome_of(function: Callable[[Task], Result], task: Task) -> tuple[list[Result], str | None]:
    """What a task gives, or what is wrong with its input: to try that again would not help."""
    try:
        return [function(task)], None
    except InputError as problem:
        return [], str(problem)


def reads_of(name: str, text: str) -> list[str]:
    """Where a text reads a view, one for each."""
    return re.findall(rf"\b(?:FROM|JOIN)\s+{name}\b", text)


class _reading:
    """Errors of files, as errors of input."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            return
        text = _reason(error)
        if text:
            raise InputError(
                f"a file of the lake cannot be read, dissector lake verify tells which: {text}"
            ) from error


def _reason(error: BaseException) -> str:
    """What is wrong with a file, in the words of Spark; empty if the error is none of files."""
    match = _OF_FILES.search(str(error))
    return match[0][:300] if match else ""
