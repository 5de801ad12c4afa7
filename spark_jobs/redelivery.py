"""Redelivery: what was delivered more than once, why, and what was put aside for later.

spark-submit spark_jobs/redelivery.py --lake LAKE -o OUT
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from dissector.report.parts import MAX_EXAMPLES, REDELIVERED
from dissector.report.tallies import DELIVERIES, PLACEHOLDERS, RECONSUMED, REDELIVER_REQUESTS
from spark_jobs import job
from spark_jobs.counting import tally
from spark_jobs.coverage import frames_part
from spark_jobs.tables import CONNECTION, at_own_place, flag

SECTION: Final = "redelivery"


def transform_deliveries(deliveries: DataFrame) -> DataFrame:
    """Sums per consumer, cause and outcome, of rows of deliveries."""
    rows = deliveries.withColumns(
        {
            "deliveries": F.lit(1).cast("bigint"),
            "messages": F.col("message_count"),
            "counts_unknown": flag(F.col("message_count").isNull()),
            "counted_by_broker": flag(F.col("redelivery_count") > 0),
            "seen_before": flag(F.col("previous_frame_no").isNotNull()),
        }
    )
    return tally(rows, DELIVERIES)


def transform_requests(acks: DataFrame) -> DataFrame:
    """Ids that consumers asked for again, of rows of acks; a row without an id asks for all."""
    rows = acks.where(F.col("action") == "redeliver").withColumns(
        {
            "ids_requested": flag(F.col("ledger_id").isNotNull()),
            "requests_for_all": flag(F.col("ledger_id").isNull()),
        }
    )
    return tally(rows, REDELIVER_REQUESTS)


def transform_reconsumed(frames: DataFrame) -> DataFrame:
    """Publishes by topic, and by what their properties say they come from. frames: all."""
    rows = frames.where(F.col("command") == "SEND").withColumns(
        {
            "has_reconsume_times": F.col("reconsume_times").isNotNull(),
            "publishes": F.lit(1).cast("bigint"),
            "messages": F.col("message_count"),
        }
    )
    return tally(rows, RECONSUMED)


def transform_placeholders(messages: DataFrame) -> DataFrame:
    """Places of delivered batches that a compaction emptied, of rows of messages."""
    rows = messages.where(F.col("is_compacted_out") & (F.col("direction") == "to_client"))
    return tally(rows.withColumn("placeholders", F.lit(1).cast("bigint")), PLACEHOLDERS)


def transform_examples(deliveries: DataFrame) -> DataFrame:
    """The first redelivered entries of each connection, of rows of deliveries."""
    order = Window.partitionBy(*CONNECTION).orderBy("order_no")
    again = deliveries.where(F.col("is_redelivered")).withColumn("row", F.row_number().over(order))
    first = at_own_place(again.where(F.col("row") <= MAX_EXAMPLES))
    is_here = F.col("previous_capture").isNull()
    first = first.withColumn("previous_frame_no", F.when(is_here, F.col("previous_frame_no")))
    return first.withColumns(
        {"at_us": F.unix_micros("ts"), "packet": F.lit(None).cast("bigint")}
    ).select(*REDELIVERED.names)


def frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What this section is made from, by the name of its part."""
    deliveries = tables.read("deliveries")
    return {
        "frames": frames_part(tables),
        "deliveries": (transform_deliveries(deliveries), DELIVERIES.schema()),
        "redeliver_requests": (
            transform_requests(tables.read("acks")),
            REDELIVER_REQUESTS.schema(),
        ),
        "reconsumed": (transform_reconsumed(tables.read("frames")), RECONSUMED.schema()),
        "placeholders": (transform_placeholders(tables.read("messages")), PLACEHOLDERS.schema()),
        "redelivered": (transform_examples(deliveries), REDELIVERED),
    }


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute the section and write it; returns the JSON."""
    return job.run(spark, args, {SECTION: frames})


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, run, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
