"""Lands many captures on a cluster: one stage, one chain of files per task, the largest first.

    spark-submit --conf spark.log.level=WARN spark_jobs/land.py INPUT... --lake LAKE
    python -m spark_jobs.land INPUT... --lake LAKE --master spark://host:7077 --archive FILE

Options, output and exit codes are those of `dissector land`, and so are the bytes in the lake.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dissector.cli.land import LandOptions, end_landing, landing_options, note_outcomes
from dissector.cli.main import run
from dissector.cli.options import Common, LocalPath, example, master_option
from dissector.cli.reading import STDIN, Reading
from dissector.errors import needs
from dissector.lake import mirror
from dissector.lake.install import writing_to
from dissector.lake.reader import open_lake

if TYPE_CHECKING:
    from dissector.lake.land import Outcome


@click.command(
    name="land.py",
    epilog=example(
        "spark-submit --conf spark.log.level=WARN "
        "spark_jobs/land.py /taps/night-*.pcap.zst --lake /lake\n"
        "python -m spark_jobs.land /taps --lake /lake --master spark://host:7077"
    ),
)
@landing_options
@master_option
@click.option(
    "--archive",
    type=LocalPath(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Send workers this archive of the program (see spark_jobs.archive).",
)
def land(common: Common, landing: LandOptions, master: str | None, archive: Path | None) -> int:
    """Land captures on a Spark cluster, one per task, and print their ids; returns the exit code.

    Landing the same bytes again changes nothing.
    """
    if common.is_strict:
        raise click.UsageError("--strict lands all captures or none, which tasks on many machines "
                               "cannot; use dissector land --strict")  # fmt: skip
    if STDIN in landing.inputs:
        raise click.UsageError("standard input is not there on other machines; name files")
    with needs("spark,jvm", "`dissector land` works without"):
        from dissector.spark import session
        from spark_jobs.archive import settings_of
        from spark_jobs.landing import land_on, tasks_of
    reading = Reading(landing.inputs, common, landing.chain)
    options = common.core_options(**landing.core)
    outcomes: list[Outcome] = []
    is_interrupted = False
    with writing_to(landing.lake):  # reports a problem of the store before anything starts
        mirror.refresh(landing.lake)
    tasks = tasks_of(reading.chains, landing.lake, options, landing.cluster)
    with session.started(master, "dissector-land", settings_of(archive)) as spark:
        try:
            for outcome in land_on(spark, tasks):
                outcomes.append(outcome)
        except KeyboardInterrupt:
            is_interrupted = True
    note_outcomes(reading, outcomes)
    if mirror.of(landing.lake) is None:
        with open_lake(landing.lake):
            pass  # removes the leftovers of a stopped task
    return end_landing(reading, outcomes, landing, is_interrupted)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    return run(sys.argv[1:] if argv is None else argv, land)


if __name__ == "__main__":
    sys.exit(main())
