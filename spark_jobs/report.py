"""All jobs together: report.json, its tables as Parquet, and the HTML page.

spark-submit spark_jobs/report.py --lake LAKE -o REPORT
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_jobs import (
    checksum,
    coverage,
    errors,
    job,
    latency,
    lifetimes,
    permits,
    redelivery,
    round_trips,
)

SECTIONS: Final[dict[str, job.SectionFrames]] = {
    coverage.SECTION: coverage.frames,
    latency.SECTION: latency.frames,
    permits.SECTION: permits.frames,
    redelivery.SECTION: redelivery.frames,
    checksum.SECTION: checksum.frames,
    "errors": errors.error_frames,
    "publish_to_delivery": lifetimes.transit_frames,
    "ack_latency": lifetimes.ack_frames,
    "requests": round_trips.request_frames,
    "connecting": round_trips.setup_frames,
    "slowest": errors.slow_frames,
}


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute every section over a lake and write the report; returns the JSON."""
    return job.run(spark, args, SECTIONS, is_whole=True)


def write_report(
    lake: Path,
    output: Path,
    *,
    captures: Sequence[str] = (),
    is_exact: bool = False,
    master: str | None = None,
    since: str | None = None,
    until: str | None = None,
    topics: Sequence[str] = (),
    is_new: bool = False,
    is_forced: bool = False,
    tell: Callable[[str], None] = print,
) -> dict[str, Any]:
    """What `dissector report` does: start Spark, run all jobs over a lake, write the report.

    Args:
        lake, output: folders.
        captures: ids; none = all.
        is_exact: percentiles by sorting the values instead of from histograms.
        master: Spark master; None = local[*].
        since, until, topics: only this part of the lake; see spark_jobs.selection.
        is_new: read only captures that landed since the last run, see spark_jobs.survey.
        is_forced: other files may be in the output, and stay.
        tell: takes a line for the user.

    Returns:
        The content of report.json.

    Raises:
        DissectorError: DependencyError without Java, InputError, UsageError, OutputError.
    """
    args = argparse.Namespace(
        lake=str(lake), output=str(output), capture=list(captures), exact=is_exact, master=master,
        page=True, since=since, until=until, topic=list(topics), new=is_new,
        force=is_forced, tell=tell,
    )  # fmt: skip
    with job.started(args, "dissector-report") as spark:
        return run(spark, args)


def main(argv: Sequence[str] | None = None) -> int:
    """The report by itself."""
    return job.main(argv, run, __doc__ or "", has_page=True)


if __name__ == "__main__":
    sys.exit(main())
