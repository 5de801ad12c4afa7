"""Errors and slowest: answers that refuse something, and the exchanges that took longest.

spark-submit spark_jobs/errors.py --lake LAKE -o OUT
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from dissector.report.exchange_rows import MAX_ERRORS
from dissector.report.parts import ERRORS, MAX_SLOW, SLOW, SLOW_ORDER
from dissector.report.sections.slowest import LISTS
from spark_jobs import job
from spark_jobs.tables import CONNECTION, at_own_place, first_of_each

SECTIONS: Final = ("errors", "slowest")


def at_response(rows: DataFrame) -> DataFrame:
    """Rows under the place of their answer; a request in another capture has no number there."""
    is_here = F.col("response_capture").isNull()
    return at_own_place(rows).withColumns(
        {
            "capture": F.coalesce("response_capture", "capture"),
            "connection_id": F.coalesce("response_connection_id", "connection_id"),
            "request_frame_no": F.when(is_here, F.col("request_frame_no")),
        }
    )


def at_request(rows: DataFrame) -> DataFrame:
    """Rows under the place of their request; an answer in another capture has no number there."""
    is_here = F.col("response_capture").isNull()
    return at_own_place(rows).withColumn(
        "response_frame_no", F.when(is_here, F.col("response_frame_no"))
    )


def transform_errors(exchanges: DataFrame) -> DataFrame:
    """Answers that carry an error, the first of each capture, of rows of exchanges (ERRORS)."""
    refused = F.col("error_code").isNotNull() | (F.col("outcome") == "error")
    rows = exchanges.where(refused & F.col("response_last_ns").isNotNull())
    rows = at_response(rows)
    rows = rows.withColumns(
        {"at_ns": F.col("response_last_ns"), "packet": F.lit(None).cast("bigint")}
    )
    return first_of_each(rows, MAX_ERRORS, "at_ns", "response_frame_no").select(*ERRORS.names)


def transform_slowest(exchanges: DataFrame) -> DataFrame:
    """The slowest exchanges of each connection and list, of rows of exchanges (SLOW)."""
    which = F.lit(None).cast("string")
    for name, kinds in LISTS.items():
        which = F.when(F.col("kind").isin(*kinds), F.lit(name)).otherwise(which)
    order = [
        F.desc(name) if how == "descending" else F.asc_nulls_last(name) for name, how in SLOW_ORDER
    ]
    is_refused = (F.col("kind") == "publish") & F.col("outcome").eqNullSafe("error")
    timed = exchanges.where(F.col("latency_ns").isNotNull() & ~is_refused)
    rows = timed.withColumn("list", which)
    ranked = rows.where(F.col("list").isNotNull()).withColumn(
        "row", F.row_number().over(Window.partitionBy(*CONNECTION, "list").orderBy(*order))
    )
    unknown = F.lit(None).cast("bigint")
    chosen = ranked.where(F.col("row") <= MAX_SLOW)
    chosen = at_request(chosen).withColumns({"request_packet": unknown, "response_packet": unknown})
    return chosen.select(*SLOW.names)


def error_frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What the section errors is made from."""
    return {"errors": (transform_errors(tables.read("exchanges")), ERRORS)}


def slow_frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What the section slowest is made from."""
    return {"slow": (transform_slowest(tables.read("exchanges")), SLOW)}


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute both sections and write them; returns the JSON."""
    return job.run(spark, args, {"errors": error_frames, "slowest": slow_frames})


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, run, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
