"""Landing on a Spark cluster: what `spark_jobs/land.py` says and takes on the command line."""

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dissector.cli.land import Landing, end_landing, landing_options, take_outcomes
from dissector.cli.main import run
from dissector.cli.options import Common, LocalPath, example
from dissector.cli.reading import STDIN, Reading
from dissector.errors import DependencyError
from dissector.lake.reader import open_lake

if TYPE_CHECKING:
    from dissector.lake.land import Outcome


@click.command(
    name="land.py",
    epilog=example(
        "spark-submit spark_jobs/land.py /taps/night-*.pcap.zst --lake /lake\n"
        "python -m spark_jobs.land /taps --lake /lake --master spark://host:7077"
    ),
)
@landing_options
@click.option("--master", metavar="URL", help="Run on this Spark master.  [default: local[*]]")
@click.option(
    "--archive",
    type=LocalPath(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Give workers this archive of the program (spark_jobs.archive makes it).",
)
def land(common: Common, landing: Landing, master: str | None, archive: Path | None) -> int:
    """Dissect captures into a lake on a Spark cluster, one capture per task.

    Prints the id of each capture. Landing the same bytes again changes nothing.
    """
    if common.is_strict:
        raise click.UsageError("--strict lands all captures or none, which tasks on many machines "
                               "cannot; use dissector land --strict")  # fmt: skip
    if STDIN in landing.inputs:
        raise click.UsageError("standard input is not there on other machines; name files")
    reading = Reading(landing.inputs, common, landing.chain)
    options = common.core_options(**landing.core)
    outcomes: list[Outcome] = []
    is_interrupted = False
    job = _job()
    tasks = job.tasks_of(reading.chains, landing.lake, options, landing.cluster)
    with job.started(master, archive) as spark:
        try:
            for outcome in job.land_on(spark, tasks):
                outcomes.append(outcome)
        except KeyboardInterrupt:
            is_interrupted = True
    take_outcomes(reading, outcomes)
    with open_lake(landing.lake):
        pass  # clears what a task left that was stopped
    return end_landing(reading, outcomes, landing, is_interrupted)


def _job() -> Any:
    try:
        return importlib.import_module("spark_jobs.land")
    except ImportError as error:
        raise DependencyError(
            f"{error.name or 'Spark'} is missing: pip install 'pulsar-dissector[spark,jvm]'; "
            "`dissector land` works without"
        ) from error


def main(argv: Sequence[str]) -> int:
    """Run it; returns the exit code."""
    return run(argv, land)
