"""What all jobs share: options, reading a lake, computing sections, writing them.

A job gives, per section, the small DataFrames that the section is made from; here they are
collected, and `dissector.report.result` does the last arithmetic, the same as for `summary`.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dissector.errors import DissectorError
from dissector.lake.reader import Lake, open_lake
from dissector.report.names import CONSUMERS, LEGS, PRODUCERS, Names
from dissector.report.output import write_report
from dissector.report.parts import FILES, Parts, no_parts
from dissector.report.result import build
from dissector.report.summary import capture_steps, span_step_ns
from spark_jobs import session
from spark_jobs.counting import collect_all, collected
from spark_jobs.joined import CLOSED, Joined, closed_schema
from spark_jobs.selection import TIMED, Selection, selected, selection_of
from spark_jobs.tables import CONNECTION, LakeTables, lake_bytes

Frames = dict[str, tuple[DataFrame, pa.Schema]]
# Columns of listed rows that name a frame, and where its last packet goes.
_PACKETS = {
    "slow": (("request_frame_no", "request_packet"), ("response_frame_no", "response_packet")),
    "passed_over": (("request_frame_no", "request_packet"),),
    "errors": (("response_frame_no", "packet"),),
    "redelivered": (("frame_no", "packet"),),
}


class Tables(LakeTables):
    """The tables of a lake, and what is known about all of it before the sections are computed."""

    def __init__(self, spark: SparkSession, lake: Lake, captures: Sequence[str] = ()) -> None:
        super().__init__(spark, lake, captures)
        self.files = collected(self.read("capture_files"), FILES)
        self.step_ns = span_step_ns(self.files)
        self.steps = capture_steps(self.files)
        self._kept: list[DataFrame] = []
        self.all_frames = self.read("frames")
        self.joined = Joined(LakeTables(spark, lake, captures), self.files)
        self._read |= self.joined.tables
        for group in self.joined.plan.groups:
            mine = pc.is_in(self.files.column("capture"), pa.array(group.captures))
            step = span_step_ns(self.files.filter(mine))
            self.steps |= dict.fromkeys(group.captures, step)

    def select(self, what: Selection) -> None:
        """Leave only a part of the tables to the sections."""
        if what.is_everything:
            return
        known = []
        for name, number in zip(subject_names(self), ("producer_id", "consumer_id"), strict=True):
            rows = self.read(name).select(*CONNECTION, number, "incarnation", "topic").toArrow()
            known.append(self.spark.createDataFrame(rows))
        for name in (*TIMED, "connections"):
            self._read[name] = selected(self.read(name), name, what, *known).persist()
            self.keep(self._read[name])

    def keep(self, rows: DataFrame) -> None:
        """Remember a persisted DataFrame, to be dropped by `close`."""
        self._kept.append(rows)

    def close(self) -> None:
        """Drop what was persisted."""
        for rows in self._kept:
            rows.unpersist()
        self._kept.clear()
        self.joined.close()


SectionFrames = Callable[[Tables, argparse.Namespace], Frames]


def packets_of(frames: DataFrame, wanted: DataFrame) -> DataFrame:
    """The last packet of some frames. wanted: capture, connection_id, frame_no."""
    keys = [*CONNECTION, "frame_no"]
    found = frames.select(*keys, "last_packet")
    return found.join(F.broadcast(wanted.distinct()), on=keys, how="left_semi")


def _with_packets(tables: Tables, found: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """Fill in the packets of rows that are listed one by one, with one pass over frames."""
    wanted: set[tuple[Any, ...]] = set()
    for name, columns in _PACKETS.items():
        if name in found:
            for frame, _ in columns:
                wanted |= set(_frame_keys(found[name], frame))
    wanted = {key for key in wanted if key[2] is not None}
    if not wanted:
        return found
    keys = pa.table(
        {
            "capture": pa.array([key[0] for key in wanted], pa.string()),
            "connection_id": pa.array([key[1] for key in wanted], pa.int64()),
            "frame_no": pa.array([key[2] for key in wanted], pa.int64()),
        }
    )
    rows = packets_of(tables.all_frames, tables.spark.createDataFrame(keys)).toArrow()
    packets = {tuple(row.values())[:3]: row["last_packet"] for row in rows.to_pylist()}
    filled = dict(found)
    for name, columns in _PACKETS.items():
        for frame, packet in columns if name in found else ():
            table = filled[name]
            column = pa.array([packets.get(key) for key in _frame_keys(table, frame)], pa.int64())
            at = table.schema.get_field_index(packet)
            filled[name] = table.set_column(at, packet, column)
    return filled


def _frame_keys(table: pa.Table, frame: str) -> list[tuple[Any, ...]]:
    rows = table.select([*CONNECTION, frame]).to_pylist()
    return [tuple(row.values()) for row in rows]


def subject_names(tables: Tables) -> tuple[str, str]:
    """The tables of producers and consumers that have the names of all."""
    if tables.joined.tables:
        return "producer_names", "consumer_names"
    return "producers", "consumers"


def _names(tables: Tables) -> dict[str, tuple[DataFrame, pa.Schema]]:
    """Late names and legs; where captures were joined also those by the numbers of each."""
    names = ("legs" if tables.joined.tables else "connections", *subject_names(tables))
    kinds = {"legs": LEGS, "producers": PRODUCERS, "consumers": CONSUMERS}
    return {
        f"names.{kind}": (tables.read(name), schema)
        for name, (kind, schema) in zip(names, kinds.items(), strict=True)
    }


def parts(tables: Tables, args: argparse.Namespace, sections: dict[str, SectionFrames]) -> Parts:
    """Compute what some sections are made from."""
    frames = _names(tables)
    for section in sections.values():
        frames |= section(tables, args)
    found = collect_all(frames)
    names = Names(*(found.pop(f"names.{name}") for name in ("legs", "producers", "consumers")))
    found = _with_packets(tables, found)
    everything = no_parts().tables | {"files": tables.files} | found
    plan = tables.joined.plan
    return Parts(everything, names, tables.step_ns, {}, tables.steps, plan.head_of(), plan.wholes)


def run(
    spark: SparkSession,
    args: argparse.Namespace,
    sections: dict[str, SectionFrames],
    *,
    is_whole: bool = False,
) -> dict[str, Any]:
    """Compute sections over a lake and write them to args.output.

    Args:
        is_whole: all sections; they come with what joining the captures of the lake changed, and
            with the rows that it closed.

    Raises:
        InputError, UsageError: the lake cannot be read. OutputError: the report not written.
    """
    with open_lake(Path(args.lake)) as lake:
        tables = Tables(spark, lake, args.capture)
        try:
            what = selection_of(args)
            tables.select(what)
            report = build(parts(tables, args, sections), sections)
            if not what.is_everything:
                report["selection"] = what.as_json()
            if is_whole and len(tables.joined.captures) > 1:
                report["closing"] = tables.joined.section()
            more = closed_writers(tables) if is_whole else {}
            write_report(Path(args.output), report, has_page=args.page, more=more)
        finally:
            tables.close()
    return report


def closed_writers(tables: Tables) -> dict[str, Callable[[Path], None]]:
    """What writes the closed rows of each table into a folder of its own."""

    def nothing(name: str) -> Callable[[Path], None]:
        # Without Spark, which for its files wants tools that a small machine may not have.
        def write(folder: Path) -> None:
            folder.mkdir(parents=True)
            pq.write_table(closed_schema(name).empty_table(), folder / "part-00000.parquet")

        return write

    def writer(name: str) -> Callable[[Path], None]:
        rows = tables.joined.closed(name)
        return lambda folder: (
            rows.write.mode("overwrite")
            .option("compression", "zstd")
            .parquet(str(folder.absolute()))
        )

    make = writer if tables.joined.plan.groups else nothing
    return {f"closed_{name}": make(name) for name in CLOSED}


def parser(description: str) -> argparse.ArgumentParser:
    """The options of every job."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--lake", required=True, metavar="DIR", help="the lake to read")
    options.add_argument("-o", "--output", required=True, metavar="DIR", help="where to write")
    options.add_argument(
        "--capture", action="append", default=[], metavar="ID", help="only this one (repeatable)"
    )
    options.add_argument("--since", metavar="T", help="from this time on (UTC)")
    options.add_argument("--until", metavar="T", help="up to this time (UTC)")
    options.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="only this one (repeatable)"
    )
    options.add_argument("--exact", action="store_true", help="exact percentiles, by sorting")
    options.add_argument("--master", help="Spark master (default: local[*])")
    options.set_defaults(page=False)
    return options


@contextmanager
def started(args: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """A session for a lake of this size; one that runs already is used and left running."""
    with open_lake(Path(args.lake)) as lake:
        size = lake_bytes(lake)
    running = SparkSession.getActiveSession()
    spark = running or session.start(args.master, size, name)
    try:
        yield spark
    finally:
        if running is None:
            spark.stop()


def main(
    argv: Sequence[str] | None,
    run_job: Callable[[SparkSession, argparse.Namespace], dict[str, Any]],
    description: str,
    *,
    has_page: bool = False,
) -> int:
    """Run one job from the command line; returns the exit code."""
    args = parser(description).parse_args(argv)
    args.page = has_page
    name = f"dissector-{Path(sys.argv[0]).stem}"
    try:
        with started(args, name) as spark:
            run_job(spark, args)
    except DissectorError as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        return error.exit_code
    print(Path(args.output) / "report.json")
    return 0
