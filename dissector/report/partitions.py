"""Query tasks over a lake: groups of cache partitions, run in this process or by Spark.

Queries give rows per capture, and those of a cache partition depend on no other one. So a
`Partition` is a plain value that names files and small tables: its task opens them with a DuckDB of
its own, runs the queries and writes their rows.
"""

import secrets
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from dissector.findings.querying import rule_queries, write_incidents
from dissector.joining import survey
from dissector.joining.closing import SCHEMAS as CLOSED_SCHEMAS
from dissector.joining.files import CaptureFiles, files_of, names_in
from dissector.joining.increment_cache import OF_INCREMENT, IncrementCache
from dissector.joining.links import CaptureGroup, JoinPlan
from dissector.lake.cache import CachePartition
from dissector.lake.manifest import ROTATION, tap_run_of
from dissector.lake.reader import Lake
from dissector.limits import MAX_PARTITION_ROWS
from dissector.queries.catalogue import shared_views
from dissector.queries.duckdb_engine import DuckdbEngine, parquet_files
from dissector.queries.selection import Selection
from dissector.queries.tables import CLOSED as IN_PLACE
from dissector.queries.tables import (
    COPY,
    MOVED,
    OTHER_PROXY_SIDE,
    repeated_legs,
    table_views,
    without_repeated_legs,
)
from dissector.report.numbers import step_ns
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.small_tables import NUMBER, TEXT, no_rows, small_table

T = TypeVar("T")
R = TypeVar("R")
# Rows of a partition, all tables together: reading fewer costs less than planning the queries, and
# larger partitions save nothing further.
LEAST_ROWS: Final = 500_000


class Engine(Protocol):
    """Runs tasks: in this process (`queries.duckdb_engine`), or by Spark (`spark.engine`)."""

    @property
    def at_once(self) -> int:
        """The number of tasks that run at the same time."""

    def budget(self, tasks: int, /) -> tuple[str, int | None]:
        """The memory and threads of a task, if there are so many tasks."""

    def each(self, function: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
        """Call a function for each task; return its results."""


EngineIn = Callable[[Path], AbstractContextManager[Engine]]


class Inputs(NamedTuple):
    """The captures of a lake that are read, and the plan by which they are joined.

    digests: of the counted captures, by the names in their rows.
    spans: times of the first and last packet of each capture's group, ns.
    memory: the cache of long groups, if one is used.
    """

    lake: Lake
    digests: Mapping[str, str]
    known: survey.SurveyTables
    plan: JoinPlan
    cache_partitions: tuple[CachePartition, ...]
    spans: Mapping[str, tuple[int, int]]
    memory: IncrementCache | None = None

    @property
    def captures(self) -> frozenset[str]:
        """The names of all captures that count."""
        return frozenset(self.digests)


class Tables(NamedTuple):
    """The tables of some captures, to be opened in DuckDB.

    source: their files.
    rows: in these files.
    small: Arrow tables by name.
    closed: files that joining wrote, by table; None where nothing was joined.
    """

    source: CaptureFiles
    rows: int
    small: Mapping[str, pa.Table]
    closed: Mapping[str, list[str]] | None
    selection: Selection

    def open(self, db: DuckdbEngine, only: Collection[str] = ()) -> None:
        """Create the tables and views that queries read.

        Args:
            only: create these tables alone, connections among them, without the shared views; none:
                everything.
        """
        db.expect(self.rows)
        source = self.source.here(only or TABLES)
        sources = {}
        for table in only or TABLES:
            empty = no_rows(arrow_schema(table))
            files, old_files = source.files[table], source.old_files[table]
            sources[table] = db.lake_table(table, files, old_files, empty)
        for name, rows in self.small.items():
            db.register(name, rows)
        for name, paths in (self.closed or {}).items():
            db.parquet_table(f"closed_{name}", paths, CLOSED_SCHEMAS[name])
        self.selection.register(db)
        views = dict(
            table_views(
                sources,
                has_others=self.source.only is not None,
                has_rotations=self.source.has_rotations,
                is_joined=self.closed is not None,
                has_proxy_peers="twins_elsewhere" in self.small,
            )
        )
        legs = db.table(repeated_legs(views))
        if legs.num_rows:
            db.register("repeated_legs", legs)
            views = dict(without_repeated_legs(views))
        for name, query in self.selection.views(views.items()):
            if not only or name in only:
                db.view(name, query)
        if not only:
            db.shared_views(shared_views(has_rows_around=not self.selection.is_everything))


def tables_of(
    read: Inputs, captures: Collection[str], closed: Path | None, selection: Selection
) -> Tables:
    """The tables of some captures, which are whole cache partitions.

    Args:
        closed: the folder of the rows that joining wrote for the joined ones.
    """
    source = files_of(read.lake, frozenset(captures))
    chosen = [each for each in read.lake.captures if names_in(each) & {*captures}]
    names, wholes = sorted(captures), read.plan.wholes
    widths = [step_ns(*read.spans.get(name, (0, 0))) for name in names]
    small = {
        "wanted": small_table(zip(names), capture=TEXT),
        "units": small_table([(n, wholes.get(n, n)) for n in names], capture=TEXT, unit=TEXT),
        "steps": small_table(zip(names, widths, strict=True), capture=TEXT, step_ns=NUMBER),
    }
    if source.has_rotations:
        inside = (each.capture_id for capture in chosen for each in capture.captures())
        rotations = [(name, tap_run_of(name)) for name in inside if ROTATION.fullmatch(name)]
        small["rotations"] = _rows(rotations, ("rotation", "run"))
    joined = sorted(read.plan.captures.intersection(captures))
    if joined and closed is not None:
        small["joined"] = small_table(zip(joined), capture=TEXT)
        moved = sorted((*at, *head) for at, head in read.plan.moved.items() if at[0] in captures)
        small["closed_moved"] = _rows(moved, MOVED)
    proxy_peers = sorted(key for key in read.plan.proxy_peers if key[0] in captures)
    if proxy_peers:
        small["twins_elsewhere"] = _rows(
            [(*key, COPY if key in read.plan.copied else OTHER_PROXY_SIDE) for key in proxy_peers],
            (*MOVED[:2], "twin_id"),
        )
    return Tables(
        source,
        sum(part.rows for capture in chosen for part in capture.files),
        small,
        _closed(read, joined, closed) if joined and closed is not None else None,
        selection,
    )


def closed_as(group: CaptureGroup) -> str:
    """The stem of the files that joining writes for a group; increments append their own."""
    return f"group-{group.number}"


def _closed(read: Inputs, joined: Sequence[str], closed: Path) -> dict[str, list[str]]:
    """The files that joining wrote for these captures, by table."""
    stems = {closed_as(group) for group in read.plan.groups if group.captures[0] in {*joined}}

    def is_mine(path: str) -> bool:
        return Path(path).stem.partition(OF_INCREMENT)[0] in stems

    return {
        name: list(filter(is_mine, parquet_files(closed, name)))
        for name in sorted({*chain.from_iterable(IN_PLACE.values()), "left_out", "untouched"})
    }


def _rows(rows: Sequence[tuple[Any, ...]], names: Sequence[str]) -> pa.Table:
    """Rows as a table: names that end in `_id` are numbers, all others text."""
    kinds = {name: NUMBER if name.endswith("_id") else TEXT for name in names}
    return small_table(rows, **kinds)


class Partition(NamedTuple):
    """A task: queries over the tables of some cache partitions.

    folder: of the rows that they give.
    spill: DuckDB's folder for data that exceed its memory.
    memory, threads: DuckDB's limits.
    """

    tables: Tables
    queries: Mapping[str, str]
    folder: Path
    spill: Path
    memory: str
    threads: int | None


def run_partition(partition: Partition) -> None:
    """Run the queries of a partition and write their rows, <query>.parquet each.

    A task may run again, or twice at the same time: each run has its own folder, and the first to
    rename it to the partition's wins.

    Raises:
        InputError: a file cannot be read. OutputError: a file of a store cannot be kept.
    """
    suffix = f".{secrets.token_hex(6)}"
    written = partition.folder.with_name(f"{partition.folder.name}{suffix}")
    spill = partition.spill.with_name(f"{partition.spill.name}{suffix}")
    written.mkdir(parents=True)
    spill.mkdir(parents=True)
    engine = DuckdbEngine(spill, partition.threads, partition.memory)
    with partition.tables.source.held(), engine as db:
        partition.tables.open(db)
        write_rows(db, partition.queries, written)
    try:
        written.rename(partition.folder)
    except OSError:
        shutil.rmtree(written)
        if not partition.folder.is_dir():
            raise


def write_rows(db: DuckdbEngine, queries: Mapping[str, str], folder: Path) -> None:
    """Write the rows of queries over the open tables, <query>.parquet each."""
    rules = rule_queries()
    write_incidents(db, queries, folder)
    db.write({name: text for name, text in queries.items() if name not in rules}, folder)


def partitioned(
    cache_partitions: Sequence[CachePartition], read: Inputs, at_once: int
) -> list[tuple[int, list[CachePartition]]]:
    """Cache partitions grouped into tasks: (rows, cache partitions) each.

    Cache partitions of one compacted group are adjacent, so that few tasks read the same files.

    Args:
        at_once: the number of tasks that run at the same time.
    """
    rows: dict[str, int] = {}
    order: dict[str, int] = {}
    for index, capture in enumerate(read.lake.captures):
        inside = [tap_run_of(each.capture_id) for each in capture.captures()]
        share = sum(part.rows for part in capture.files) // max(1, len(inside))
        for name in inside:
            rows[name] = rows.get(name, 0) + share
            order.setdefault(name, index)
    sizes = {
        cache_partition: sum(rows[name] for name in cache_partition.captures)
        for cache_partition in cache_partitions
    }
    most = min(MAX_PARTITION_ROWS, max(LEAST_ROWS, -(-sum(sizes.values()) // at_once)))
    partitions: list[tuple[int, list[CachePartition]]] = []
    for cache_partition in sorted(
        cache_partitions,
        key=lambda cache_partition: (order[cache_partition.captures[0]], cache_partition),
    ):
        size = sizes[cache_partition]
        if partitions and partitions[-1][0] + size <= most:
            held, some = partitions.pop()
            partitions.append((held + size, [*some, cache_partition]))
        else:
            partitions.append((size, [cache_partition]))
    return partitions
