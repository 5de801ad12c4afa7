"""The tables of a lake as DataFrames: only captures that exist, each row with its capture."""

from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from dissector.errors import UsageError
from dissector.lake.manifest import ROTATION, Manifest, tap_run_of
from dissector.lake.reader import Lake
from spark_jobs.schemas import spark_schema
from spark_jobs.uris import to_read, to_write

CONNECTION: Final = ["capture", "connection_id"]
# Where a row's frames lie if captures are joined: its own one, and others that it names if they are
# in another capture (the connection of a previous delivery: wherever it is). `capture` and
# `connection_id` are then those of the joined connection. The frame of a row orders the rows of a
# connection, by its number in all captures that were joined.
_OWN: Final = ("own_capture", "own_connection_id")
OTHER_PLACES: Final[dict[str, tuple[str, ...]]] = {
    "exchanges": ("response_capture", "response_connection_id"),
    "deliveries": (
        "previous_capture", "previous_connection_id", "ack_capture", "ack_connection_id",
    ),
    "permits": (),
}  # fmt: skip
ORDERED_BY: Final = {
    "exchanges": "request_frame_no", "deliveries": "frame_no", "permits": "frame_no",
}  # fmt: skip


def chosen_captures(captures: Sequence[Manifest], wanted: Sequence[str] = ()) -> list[Manifest]:
    """The captures that a report reads. wanted: ids; none = all.

    Raises:
        UsageError: an id is not in the lake, or the lake has no capture.
    """
    by_id = {capture.capture_id: capture for capture in captures}
    unknown = [name for name in wanted if name not in by_id]
    for capture in captures:
        if unknown and any(inside.capture_id == unknown[0] for inside in capture.replaces):
            raise UsageError(
                f"{unknown[0]} is in the compacted group {capture.capture_id}: a report can be of "
                "the whole group"
            )
    if unknown:
        raise UsageError(f"no capture {unknown[0]} in the lake: `dissector lake list` shows them")
    if not captures:
        raise UsageError("the lake has no captures: `dissector land` puts some there")
    return [by_id[name] for name in sorted(set(wanted))] if wanted else list(captures)


def held_elsewhere(captures: Sequence[Manifest]) -> dict[str, str]:
    """Captures all files of which are in another one too, under whatever name, and that other one:
    they would be counted twice. Of captures of equal files the one with the lowest id counts."""
    files = {
        inside.capture_id: frozenset(source.sha256 for source in inside.sources)
        for capture in captures
        for inside in capture.captures()
    }
    by_file: dict[str, list[str]] = {}
    for name, mine in sorted(files.items()):
        for sha256 in mine:
            by_file.setdefault(sha256, []).append(name)
    found = {}
    for name, mine in files.items():
        # Whoever holds all of them holds any of them.
        for other in by_file[min(mine)] if mine else ():
            if mine < files[other] or (mine == files[other] and other < name):
                found[name] = other
                break
    # One that holds another's files may be left out itself.
    return {name: _last_of(found, other) for name, other in sorted(found.items())}


def _last_of(found: dict[str, str], name: str) -> str:
    while name in found:
        name = found[name]
    return name


def names_in(capture: Manifest) -> frozenset[str]:
    """What the rows of a capture of a lake call theirs, see LakeTables.read."""
    return frozenset(tap_run_of(inside.capture_id) for inside in capture.captures())


class LakeTables:
    """Tables of the captures of a lake, or of some of them.

    only: names of captures as their rows have them (see `read`); files of others are not opened.
    """

    def __init__(self, spark: SparkSession, lake: Lake, only: frozenset[str] | None = None) -> None:
        chosen = lake.captures
        if only is not None:
            chosen = tuple(capture for capture in chosen if names_in(capture) & only)
        self.spark = spark
        self.lake = lake._replace(captures=chosen)
        names = frozenset[str]().union(*map(names_in, chosen))
        # Others can only be in the files of compacted captures.
        self._only = sorted(only) if only is not None and names - only else None
        self._read: dict[str, DataFrame] = {}
        self._has_rotations = any(
            ROTATION.fullmatch(inside.capture_id)
            for capture in chosen
            for inside in capture.captures()
        )

    def read(self, table: str) -> DataFrame:
        """A table, of whatever schema version its files are.

        Rotations of a tap continue each other, so that all of one run are one capture here.

        Tables that joining captures changes have the columns of OTHER_PLACES, and order_no, by
        which the rows of one connection are in order.
        """
        if table not in self._read:
            self._read[table] = self._open(table)
        return self._read[table]

    def _open(self, table: str) -> DataFrame:
        schema = spark_schema(table)
        old = [c for c in self.lake.captures if c.schema_version == 1]
        new = [c for c in self.lake.captures if c.schema_version != 1]
        parts = []
        if new or not old:
            paths = map(to_read, self.lake._replace(captures=tuple(new)).part_paths(table))
            parts.append(self.spark.read.schema(schema).parquet(*paths))
        if old:
            # Their folders are named capture=<id>, which their files do not have as a column.
            paths = map(to_read, self.lake._replace(captures=tuple(old)).part_paths(table))
            folder = to_write(Path(self.lake.folder) / table)
            rows = self.spark.read.schema(schema).option("basePath", folder).parquet(*paths)
            rows = rows.withColumn("capture", F.coalesce("origin_capture", "capture"))
            parts.append(rows.select(*schema.names))
        rows = reduce(DataFrame.unionByName, parts)
        if self._has_rotations:
            capture = F.regexp_replace("capture", f"^{ROTATION.pattern}$", "$1")
            rows = rows.withColumn("capture", capture)
        if self._only is not None:
            rows = rows.where(F.col("capture").isin(self._only))
        return with_places(rows, table)


def with_places(rows: DataFrame, table: str) -> DataFrame:
    """Rows as one capture has them, with the columns that say where their frames lie."""
    if table not in OTHER_PLACES:
        return rows
    own = dict(zip(_OWN, (F.col(name) for name in CONNECTION), strict=True))
    kinds = {True: "bigint", False: "string"}
    other = {
        name: F.lit(None).cast(kinds[name.endswith("_id")])
        for name in OTHER_PLACES[table]
        if name not in rows.columns
    }
    return rows.withColumns({**own, **other, "order_no": F.col(ORDERED_BY[table])})


def at_own_place(rows: DataFrame) -> DataFrame:
    """Rows that are listed one by one, under the place where their first frame lies."""
    return rows.withColumns(
        {"capture": F.col("own_capture"), "connection_id": F.col("own_connection_id")}
    )


def lake_bytes(lake: Lake) -> int:
    """Size of all files of a lake."""
    return sum(part.bytes for capture in lake.captures for part in capture.files)


def twins(connections: DataFrame) -> DataFrame:
    """Connections that repeat another one's frames: broker legs of a proxy whose twin is there."""
    is_twin = (F.col("leg") == "broker") & F.col("twin_connection_id").isNotNull()
    return connections.where(is_twin).select(*CONNECTION)


def without_twins(rows: DataFrame, connections: DataFrame) -> DataFrame:
    """The rows of all connections but those of `twins`."""
    return rows.join(F.broadcast(twins(connections)), on=CONNECTION, how="left_anti")


def name_producers(rows: DataFrame, producers: DataFrame) -> DataFrame:
    """Fill topic and producer_name that were not known when a row was written."""
    keys = [*CONNECTION, "producer_id", "incarnation"]
    known = producers.groupBy(*keys).agg(
        F.min("topic").alias("late_topic"), F.min("name").alias("late_name")
    )
    named = rows.join(F.broadcast(known), on=keys, how="left")
    return (
        named.withColumn("topic", F.coalesce("topic", "late_topic"))
        .withColumn("producer_name", F.coalesce("producer_name", "late_name"))
        .drop("late_topic", "late_name")
    )


def first_of_each(rows: DataFrame, count: int, *order: str) -> DataFrame:
    """The first rows of each capture. (Spark knows such a rank as a limit: it keeps no others.)"""
    place = F.row_number().over(Window.partitionBy("capture").orderBy(*order))
    return rows.withColumn("place", place).where(F.col("place") <= count).drop("place")


def floor_div(number: Column, divisor: int) -> Column:
    """number / divisor rounded down, for integers of either sign."""
    rest = F.pmod(number, F.lit(divisor))
    return F.call_function("div", number - rest, F.lit(divisor))


def flag(condition: Column) -> Column:
    """1 where a condition holds, 0 elsewhere, also where it is null."""
    return F.when(condition, F.lit(1)).otherwise(F.lit(0)).cast("bigint")


def bucket(duration_ns: Column) -> Column:
    """The histogram bucket of a duration, as `dissector.buckets` numbers them; null if negative."""
    bits = F.length(F.bin(duration_ns)).cast("int")
    octave = F.greatest(bits - F.lit(6), F.lit(0))
    shifted = F.call_function("shiftright", duration_ns, octave)
    number = F.call_function("shiftleft", octave.cast("bigint"), F.lit(5)) + shifted
    return F.when(duration_ns >= 0, number)
