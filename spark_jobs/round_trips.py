"""Requests and connecting: round trips by command, and how clients get to a topic.

spark-submit spark_jobs/round_trips.py --lake LAKE -o OUT
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dissector.report.parts import SETUP, SETUP_COMMANDS
from dissector.report.round_trips import MAX_STEPS
from dissector.report.tallies import REQUESTS
from spark_jobs import job
from spark_jobs.counting import tally
from spark_jobs.coverage import frames_part
from spark_jobs.tables import first_of_each, flag

SECTIONS: Final = ("requests", "connecting")


def transform_requests(exchanges: DataFrame, frames: DataFrame) -> DataFrame:
    """Requests that are no publishes, by command and outcome; who sent a PING, frames say."""
    pings = frames.where((F.col("command") == "PING") & (F.col("direction") == "to_broker"))
    own = {"capture": "own_capture", "connection_id": "own_connection_id"}
    pings = pings.withColumnsRenamed({**own, "frame_no": "request_frame_no"})
    pings = pings.select(*own.values(), "request_frame_no", F.lit("client").alias("by"))
    rows = exchanges.where(F.coalesce(F.col("kind") != "publish", F.lit(True)))
    rows = rows.join(pings, on=[*own.values(), "request_frame_no"], how="left")
    is_timed = F.col("outcome").isin("ok", "error") & F.col("latency_ns").isNotNull()
    is_ping = F.col("request_command") == "PING"
    rows = rows.withColumns(
        {
            "asked_by": F.when(is_ping, F.coalesce(F.col("by"), F.lit("broker"))),
            "bucket": F.when(is_timed, F.col("latency_bucket")),
            "requests": F.lit(1).cast("bigint"),
            "tainted": flag(F.col("tainted")),
            "latencies": flag(is_timed),
            "latency_ns": F.when(is_timed, F.col("latency_ns")),
        }
    )
    return tally(rows, REQUESTS)


def transform_setup(exchanges: DataFrame) -> DataFrame:
    """Requests by which clients find their broker and open something, the first of each capture
    (SETUP)."""
    is_step = F.col("request_command").isin(*SETUP_COMMANDS)
    rows = exchanges.where(is_step & F.col("request_first_ns").isNotNull())
    order = ("request_first_ns", "request_frame_no")
    return first_of_each(rows, MAX_STEPS, *order).select(*SETUP.names)


def request_frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What the section requests is made from."""
    rows = transform_requests(tables.read("exchanges"), tables.read("frames"))
    return {"frames": frames_part(tables), "requests": (rows, REQUESTS.schema())}


def setup_frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What the section connecting is made from."""
    setup = (transform_setup(tables.read("exchanges")), SETUP)
    return {**request_frames(tables, args), "setup": setup}


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute both sections and write them; returns the JSON."""
    return job.run(spark, args, {"requests": request_frames, "connecting": setup_frames})


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, run, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
