"""What all jobs share: options, reading a lake, computing sections, writing them.

A job gives, per section, the small DataFrames that the section is made from; here they are
collected, and `dissector.report.result` does the last arithmetic, the same as for `summary`.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dissector.errors import DissectorError, UsageError
from dissector.lake.reader import Lake, open_lake
from dissector.places import local
from dissector.report.names import CONSUMERS, LEGS, PRODUCERS
from dissector.report.output import TABLES, read_report, write_report
from dissector.report.result import build
from spark_jobs import planning, session, state
from spark_jobs.counting import collect_all
from spark_jobs.joined import CLOSED, Joined, closed_schema
from spark_jobs.joined import section as closing_section
from spark_jobs.merged import Merged
from spark_jobs.parts import CLOSING, Found, assembled, with_packets
from spark_jobs.selection import TIMED, Selection, selected, selection_of
from spark_jobs.survey import SCHEMAS, Keeper, Survey, surveyed
from spark_jobs.tables import CONNECTION, LakeTables, chosen_captures, held_elsewhere, lake_bytes
from spark_jobs.workspace import Workspace, workspace

Frames = dict[str, tuple[DataFrame, pa.Schema] | Merged]


class Tables(LakeTables):
    """The tables of a lake, joined where captures belong together, as the sections read them.

    steps: the width of the points of series over time of each capture, ns.
    """

    def __init__(
        self, spark: SparkSession, lake: Lake, survey: Survey, read: frozenset[str], work: Workspace
    ) -> None:
        """read: the names of the captures that are read, whole units."""
        super().__init__(spark, lake, read)
        self.captures = read
        self.survey = survey
        self.steps = planning.steps(survey.files, survey.plan)
        self._work = work
        self._once: dict[str, DataFrame] = {}
        self.all_frames = self.read("frames")
        part = planning.part_of(survey.plan, read)
        rows = survey.connections_of(part.captures)
        self.joined = Joined(LakeTables(spark, lake, read), part, rows, work)
        self._read |= self.joined.tables

    def steps_frame(self) -> DataFrame:
        """capture and step_ns, the width of the points of its series."""
        return self.spark.createDataFrame(
            list(self.steps.items()), "capture string, step_ns bigint"
        )

    def select(self, what: Selection) -> None:
        """Leave only a part of the tables to the sections."""
        if what.is_everything:
            return
        known = []
        for name, number in zip(subject_names(self), ("producer_id", "consumer_id"), strict=True):
            rows = self.read(name).select(*CONNECTION, number, "incarnation", "topic").toArrow()
            known.append(self.spark.createDataFrame(rows))
        rows = {
            name: selected(self.read(name), name, what, *known) for name in (*TIMED, "connections")
        }
        self._read |= self._work.all_settled(rows, "selected/")

    def settled(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """Rows that a section reads several times, written down once."""
        if name not in self._once:
            self._once[name] = self._work.settled(make(), f"sections/{name}")
        return self._once[name]

    def once(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """Rows that several sections are made from, put together once."""
        if name not in self._once:
            self._once[name] = make()
        return self._once[name]


SectionFrames = Callable[[Tables, argparse.Namespace], Frames]
# Takes how many sections are done, of how many, and what is being computed.
Step = Callable[[int, int, str], None]


class Steps:
    """Tells which sections are done while their parts are computed, several at a time.

    A section is done when all DataFrames that it is made from are; they may serve several.
    """

    def __init__(self, step: Step, total: int) -> None:
        self._step = step
        self._total = total
        self._open: dict[str, set[str]] = {}
        self._done = 0

    def at(self, what: str) -> None:
        """Something goes on that is no section."""
        self._step(self._done, self._total, what)

    def expect(self, section: str, parts: Iterable[str]) -> None:
        """A section, and the names of what it is made from."""
        self._open[section] = set(parts)

    def done(self, part: str) -> None:
        """A part is computed."""
        for parts in self._open.values():
            parts.discard(part)
        still = {name: parts for name, parts in self._open.items() if parts}
        self._done += len(self._open) - len(still)
        self._open = still
        self.at(next(iter(still), "the last numbers"))


def _no_step(done: int, total: int, what: str) -> None:
    """Nobody wants to know."""


def subject_names(tables: Tables) -> tuple[str, str]:
    """The tables of producers and consumers that have the names of all."""
    if "producer_names" in tables.joined.tables:
        return "producer_names", "consumer_names"
    return "producers", "consumers"


def _names(tables: Tables) -> Frames:
    """Late names and legs; where captures were joined also those by the numbers of each."""
    legs = "legs" if "legs" in tables.joined.tables else "connections"
    names = (legs, *subject_names(tables))
    kinds = {"legs": LEGS, "producers": PRODUCERS, "consumers": CONSUMERS}
    return {
        f"names.{kind}": (tables.read(name), schema)
        for name, (kind, schema) in zip(names, kinds.items(), strict=True)
    }


def gathered(
    tables: Tables,
    args: argparse.Namespace,
    sections: dict[str, SectionFrames],
    keeper: Keeper | None,
    steps: Steps,
) -> Found:
    """Compute what some sections are made from."""
    frames = _names(tables)
    for name, section in sections.items():
        steps.at(f"getting ready for {name}")
        parts = section(tables, args)
        steps.expect(name, parts)
        frames |= parts
    plain = {name: each for name, each in frames.items() if not isinstance(each, Merged)}
    merged = {name: each for name, each in frames.items() if isinstance(each, Merged)}
    rows = {name: each.rows for name, each in merged.items()}
    if rows and keeper is not None:
        rows = keeper.rows_of_all(rows, tables.captures, tables.survey)
    labels = planning.clusters(tables.survey.files, tables.all_frames)
    plain |= {name: (each.finish(rows[name], labels), each.schema) for name, each in merged.items()}
    found = with_packets(tables.all_frames, collect_all(plain | tables.joined.parts(), steps.done))
    return found if keeper is None else keeper.parts_of_all(found, tables.captures, tables.survey)


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
    output = Path(args.output)
    what = selection_of(args)
    steps = Steps(getattr(args, "step", _no_step), len(sections))
    with open_lake(Path(args.lake)) as lake, workspace(output, lake_bytes(lake)) as work:
        twice = {} if args.capture else held_elsewhere(lake.captures)
        for name, other in twice.items():
            args.tell(f"{name} is not counted: all its files are in {other}")
        lake = lake._replace(captures=tuple(chosen_captures(lake.captures, args.capture)))
        keeper = keeper_of(args, what, work)
        digests = {
            name: digest
            for name, digest in planning.digests(lake.captures).items()
            if name not in twice
        }
        steps.at("what the captures hold")
        survey = keeper.survey(spark, lake, digests) if keeper else surveyed(spark, lake, digests)
        read = keeper.to_read(survey) if keeper else survey.captures
        if keeper:
            args.tell(keeper.text(read, survey))
            if not read:
                return read_report(output)
        steps.at("which captures belong together")
        tables = Tables(spark, lake, survey, read, work)
        tables.select(what)
        found = gathered(tables, args, sections, keeper, steps)
        report = build(assembled(found, survey.files, survey.plan), sections)
        if not what.is_everything:
            report["selection"] = what.as_json()
        if is_whole and twice:
            report["coverage"]["not_counted"] = [
                {"capture": name, "held_by": other} for name, other in twice.items()
            ]
        if is_whole and len(survey.captures) > 1:
            changed = {name: found.get(name, rows.empty_table()) for name, rows in CLOSING.items()}
            report["closing"] = closing_section(survey.plan, survey.captures, changed)
        steps.at("writing the report")
        writers = closed_writers(work, is_joined=bool(survey.plan.groups)) if is_whole else {}
        if keeper:
            writers = keeper.writers(read, survey, is_joined=bool(tables.joined.plan.groups))
        write_report(output, report, has_page=args.page, more=writers, is_forced=args.force)
    return report


def keeper_of(args: argparse.Namespace, what: Selection, work: Workspace) -> Keeper | None:
    """What keeps and recalls rows of earlier runs, with --new.

    Raises:
        UsageError: --exact, which needs all values and not sums of them.
    """
    if not getattr(args, "new", False):
        return None
    if args.exact:
        raise UsageError("--new keeps histograms, --exact wants every value: leave one of them out")
    settings = state.settings(what.as_json(), SCHEMAS)
    memory = state.recall(Path(args.output), settings, work.folder("old"))
    return Keeper(memory, work, settings)


def closed_writers(work: Workspace, *, is_joined: bool) -> dict[str, Callable[[Path], None]]:
    """What puts the closed rows of each table into a folder of its own."""

    def writer(name: str) -> Callable[[Path], None]:
        def write(folder: Path) -> None:
            new = work.folder(f"closed/{name}") if is_joined else None
            state.extend(folder, None, frozenset(), new)
            if not is_joined:
                state.write(closed_schema(name).empty_table(), folder)

        return write

    return {f"{TABLES}/closed_{name}": writer(name) for name in CLOSED}


def parser(description: str) -> argparse.ArgumentParser:
    """The options of every job."""
    options = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument(
        "--lake", required=True, type=local, metavar="DIR", help="the lake to read"
    )
    options.add_argument(
        "-o", "--output", required=True, type=local, metavar="DIR", help="where to write"
    )
    options.add_argument(
        "--capture", action="append", default=[], metavar="ID", help="only this one (repeatable)"
    )
    options.add_argument("--since", metavar="T", help="from this time on (UTC)")
    options.add_argument("--until", metavar="T", help="up to this time (UTC)")
    options.add_argument(
        "--topic", action="append", default=[], metavar="NAME", help="only this one (repeatable)"
    )
    options.add_argument("--exact", action="store_true", help="exact percentiles, by sorting")
    options.add_argument("--force", action="store_true", help="write beside other files there")
    options.add_argument("--master", help="Spark master (default: local[*])")
    options.set_defaults(page=False, new=False, tell=_tell, step=_tell_step)
    return options


PARTIAL: Final = 3  # the exit code where some captures of the lake cannot be read


def _tell(text: str) -> None:
    print(text, file=sys.stderr)


def _tell_step(done: int, total: int, what: str) -> None:
    """A line on a terminal; a log does not need it."""
    if sys.stderr.isatty():
        _tell(f"{done} of {total} sections done, now {what}")


@contextmanager
def started(args: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """A session for a lake of this size; one that runs already is used and left running."""
    with open_lake(Path(args.lake)) as lake:
        rows = lake.rows()
        args.unread = lake.unread
    running = SparkSession.getActiveSession()
    spark = running or session.start(args.master, rows, name)
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
    options = parser(description)
    if has_page:
        options.add_argument(
            "--new", action="store_true", help="read only captures that landed since the last run"
        )
    name = f"dissector-{Path(sys.argv[0]).stem}"
    try:
        args = options.parse_args(argv)
        args.page = has_page
        with started(args, name) as spark:
            run_job(spark, args)
    except DissectorError as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        return error.exit_code
    unread = () if args.capture else args.unread
    for each in unread:
        _tell(each.text)
    print(Path(args.output) / "report.json")
    return PARTIAL if unread else 0
