"""Coverage: what was read, how much of it could be decoded, and notices by code.

spark-submit spark_jobs/coverage.py --lake LAKE -o OUT
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dissector.report.tallies import CONNECTIONS, FRAMES, NOTICES
from spark_jobs import job
from spark_jobs.counting import tally

SECTION: Final = "coverage"


def transform_frames(frames: DataFrame) -> DataFrame:
    """Frames by connection, direction, command and status."""
    return tally(frames.withColumn("frames", F.lit(1).cast("bigint")), FRAMES)


def frames_part(tables: job.Tables) -> tuple[DataFrame, pa.Schema]:
    """The part `frames`, which other sections need as well: what was seen and not read."""
    rows = tables.once("frames", lambda: transform_frames(tables.read("frames")))
    return rows, FRAMES.schema()


def transform_notices(notices: DataFrame) -> DataFrame:
    """Notices by code."""
    return tally(notices.withColumn("notices", F.lit(1).cast("bigint")), NOTICES)


def transform_connections(connections: DataFrame) -> DataFrame:
    """Connections by protocol, start and end, with the sums of both directions."""
    zero = F.lit(0).cast("bigint")
    both = {
        name: F.coalesce(f"{name}_to_broker", zero) + F.coalesce(f"{name}_to_client", zero)
        for name in CONNECTIONS.sums
        if name != "connections"
    }
    rows = connections.withColumns({**both, "connections": F.lit(1).cast("bigint")})
    return tally(rows, CONNECTIONS)


def frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What this section is made from, by the name of its part."""
    connections = transform_connections(tables.read("connections"))
    return {
        "frames": frames_part(tables),
        "notices": (transform_notices(tables.read("notices")), NOTICES.schema()),
        "connections": (connections, CONNECTIONS.schema()),
    }


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute the section and write it; returns the JSON."""
    return job.run(spark, args, {SECTION: frames})


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, run, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
