"""Publish to delivery and ack latency: how long entries and acks took, and what was stored.

spark-submit spark_jobs/lifetimes.py --lake LAKE -o OUT
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from dissector.report.lags import COMMITTED, DELIVERED
from dissector.report.parts import ENTRIES, LEFT_OUTCOMES, PASSED_DELIVERIES
from dissector.report.passed_over import DELIVERIES, DISCARDED
from dissector.report.tallies import ACK_COMMANDS, ACK_TIMES, LAGS, LAST_LAG_BITS, TRANSITS
from spark_jobs import job
from spark_jobs.counting import tally
from spark_jobs.coverage import frames_part
from spark_jobs.merged import Merged
from spark_jobs.tables import CONNECTION, at_own_place, bucket, flag, without_twins

SECTIONS: Final = ("publish_to_delivery", "ack_latency")
_ENTRY: Final = ["ledger_id", "entry_id"]


def _one() -> Column:
    return F.lit(1).cast("bigint")


def transform_ack_times(deliveries: DataFrame) -> DataFrame:
    """From deliveries to their acks, of rows of deliveries."""
    is_timed = (F.col("outcome") == "acked") & F.col("ack_latency_ns").isNotNull()
    took = F.when(is_timed, F.col("ack_latency_ns"))
    rows = deliveries.withColumns(
        {"deliveries": _one(), "timed": flag(is_timed), "bucket": bucket(took)}
    )
    at_us = F.unix_micros("ts")
    return tally(rows.withColumns({"ack_latency_ns": took, "at_us": at_us}), ACK_TIMES)


def transform_transits(deliveries: DataFrame) -> DataFrame:
    """From publishes to their first deliveries, of rows of deliveries."""
    is_again = F.coalesce(F.col("is_redelivered"), F.lit(False))
    is_delayed = F.coalesce(F.col("deliver_at_ms") > 0, F.lit(False))
    is_timed = F.col("publish_to_delivery_ns").isNotNull() & ~is_again & ~is_delayed
    took = F.when(is_timed, F.col("publish_to_delivery_ns"))
    rows = deliveries.withColumns(
        {
            "is_redelivered": is_again,
            "is_delayed": is_delayed,
            "deliveries": _one(),
            "timed": flag(is_timed),
            "bucket": bucket(took),
        }
    )
    return tally(rows.withColumn("publish_to_delivery_ns", took), TRANSITS)


def transform_ack_commands(acks: DataFrame) -> DataFrame:
    """ACK commands and the ids in them, of rows of acks."""
    order = Window.partitionBy(*CONNECTION, "frame_no").orderBy("ledger_id", "entry_id")
    rows = acks.where(F.col("action") == "ack").withColumns(
        {
            "is_answered": F.col("request_id").isNotNull(),
            "ack_commands": flag(F.row_number().over(order) == 1),
            "ids": _one(),
        }
    )
    return tally(rows, ACK_COMMANDS)


def transform_passed(deliveries: DataFrame) -> DataFrame:
    """Deliveries that were left behind (PASSED_DELIVERIES), of rows of deliveries."""
    consumer = Window.partitionBy("capture", *DELIVERIES.owner)
    acked = F.when(F.col("outcome").isin(*DELIVERIES.settled), F.col("order_no"))
    rows = deliveries.withColumn("last_acked", F.max(acked).over(consumer))
    passed = rows.where(
        F.col("outcome").isin(*LEFT_OUTCOMES)
        & ((F.col("outcome") == DISCARDED) | (F.col("order_no") < F.col("last_acked")))
    )
    columns = {"at_us": F.unix_micros("ts"), "packet": F.lit(None).cast("bigint")}
    return at_own_place(passed).withColumns(columns).select(*PASSED_DELIVERIES.names)


def transform_lags(acks: DataFrame, deliveries: DataFrame) -> DataFrame:
    """How far groups lag behind the end of their logs, see dissector.report.lags."""
    most = (1 << LAST_LAG_BITS) - 1
    committed = acks.where(F.col("action") == "ack").withColumn("which", F.lit(COMMITTED))
    delivered = deliveries.where(F.col("entry_id").isNotNull())
    delivered = delivered.withColumn("which", F.lit(DELIVERED))
    names = ["consumer_id", "frame_no", "lag", "ts", *LAGS.key_names]
    found = committed.select(*names).unionByName(delivered.select(*names))
    found = found.where(F.col("consumer_id").isNull() & F.col("subscription").isNotNull())
    place = F.call_function("shiftleft", F.col("frame_no"), F.lit(LAST_LAG_BITS))
    is_known = F.col("lag").isNotNull()
    return tally(
        found.withColumns(
            {
                "judged": flag(is_known),
                "unjudged": flag(~is_known),
                "last": F.when(is_known, place + F.least(F.col("lag"), F.lit(most))),
                "at_us": F.when(is_known, F.unix_micros("ts")),
            }
        ),
        LAGS,
    )


def transform_entries(
    exchanges: DataFrame, deliveries: DataFrame, connections: DataFrame
) -> DataFrame:
    """Entries with a receipt or delivered, once for each capture."""
    stored = (F.col("kind") == "publish") & (F.col("outcome") == "ok")
    found = []
    for rows, confirmed in ((exchanges.where(stored), 1), (deliveries, 0)):
        has_id = F.col("ledger_id").isNotNull() & F.col("entry_id").isNotNull()
        is_kept = ~F.coalesce(F.col("topic").startswith("non-persistent://"), F.lit(False))
        rows = without_twins(rows.where(has_id & is_kept), connections)
        found.append(rows.select("capture", *_ENTRY, F.lit(confirmed).alias("is_confirmed")))
    return found[0].unionByName(found[1]).groupBy("capture", *_ENTRY).agg(*_sides())


def _sides(*, is_merged: bool = False) -> list[Column]:
    confirmed = F.col("confirmed") if is_merged else F.col("is_confirmed")
    delivered = F.col("delivered") if is_merged else F.lit(1) - F.col("is_confirmed")
    return [F.max(confirmed).alias("confirmed"), F.max(delivered).alias("delivered")]


def finish_entries(entries: DataFrame, clusters: DataFrame) -> DataFrame:
    """Distinct entries with a receipt, delivered, or one of both, per cluster (ENTRIES)."""
    named = entries.join(F.broadcast(clusters), on="capture", how="left")
    seen = named.groupBy("cluster", *_ENTRY).agg(*_sides(is_merged=True))
    return seen.groupBy("cluster").agg(
        F.sum("confirmed").cast("bigint").alias("confirmed"),
        F.sum("delivered").cast("bigint").alias("delivered"),
        F.count(F.lit(1)).alias("either"),
    )


def transit_frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What the section publish_to_delivery is made from."""
    entries = transform_entries(
        tables.read("exchanges"),
        tables.read("deliveries"),
        tables.read("connections"),
    )
    return {
        "frames": frames_part(tables),
        "transits": (transform_transits(tables.read("deliveries")), TRANSITS.schema()),
        "entries": Merged(entries, finish_entries, ENTRIES),
    }


def ack_frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What the section ack_latency is made from."""
    return {
        "frames": frames_part(tables),
        "ack_times": (transform_ack_times(tables.read("deliveries")), ACK_TIMES.schema()),
        "ack_commands": (transform_ack_commands(tables.read("acks")), ACK_COMMANDS.schema()),
        "lags": (transform_lags(tables.read("acks"), tables.read("deliveries")), LAGS.schema()),
        "passed_deliveries": (transform_passed(tables.read("deliveries")), PASSED_DELIVERIES),
    }


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute both sections and write them; returns the JSON."""
    sections: dict[str, job.SectionFrames] = {
        "publish_to_delivery": transit_frames,
        "ack_latency": ack_frames,
    }
    return job.run(spark, args, sections)


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, run, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
