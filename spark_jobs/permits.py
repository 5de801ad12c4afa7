"""Permit utilization: the balance of every consumer over time, stalls and silence.

    spark-submit spark_jobs/permits.py --lake LAKE -o OUT

The definitions stand in `dissector.report.balance`, which walks the same rows in one process; here
they are said with window functions over the rows of one consumer incarnation.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window, WindowSpec

from dissector.report.numbers import NS_PER_US
from dissector.report.parts import CONSUMERS, STALLS
from dissector.report.sections.permit_utilization import CONFIRM_US, STALL_US
from dissector.report.tallies import BALANCES, DELIVERIES, LAST_BITS, LAST_ZERO
from spark_jobs import job
from spark_jobs.counting import tally
from spark_jobs.coverage import frames_part
from spark_jobs.redelivery import transform_deliveries
from spark_jobs.tables import flag, floor_div, without_twins

SECTION: Final = "permit_utilization"
IDENTITY: Final = ["capture", "connection_id", "consumer_id", "incarnation"]


def _of_one() -> WindowSpec:
    """The rows of one consumer incarnation in order."""
    return Window.partitionBy(*IDENTITY).orderBy(F.asc_nulls_last("order_no"), F.asc("at_us"))


def _until_here() -> WindowSpec:
    return _of_one().rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _after() -> WindowSpec:
    return _of_one().rowsBetween(1, Window.unboundedFollowing)


def closings(consumers: DataFrame, frames: DataFrame) -> DataFrame:
    """When consumers closed: closed_us by IDENTITY, of those that a frame closed.

    Of joined connections closed_capture, closed_connection_id and closed_no say which frame.
    """
    closed = consumers.where(F.col("closed_frame_no").isNotNull())
    places = {
        "at_capture": ("closed_capture", "capture"),
        "at_connection_id": ("closed_connection_id", "connection_id"),
        "at_frame_no": ("closed_no", "closed_frame_no"),
    }
    known = {name: [each for each in of if each in closed.columns] for name, of in places.items()}
    closed = closed.withColumns({name: F.coalesce(*of) for name, of in known.items()})
    closed = closed.select(*IDENTITY, *places).distinct()
    found = frames.select(
        F.col("capture").alias("at_capture"),
        F.col("connection_id").alias("at_connection_id"),
        F.col("frame_no").alias("at_frame_no"),
        F.unix_micros("ts").alias("closed_us"),
    )
    return found.join(F.broadcast(closed), on=list(places)).drop(*places)


def states(permits: DataFrame, connections: DataFrame, closed: DataFrame) -> DataFrame:
    """Rows of permits with the state after each: active, balance, and the time until the next one.

    ends_us is when the observation of the consumer ends: with the frame that closed it, else with
    its connection's last packet, but not before its own last row. closed: of closings.
    """
    ends = connections.select(
        "capture", "connection_id", floor_div(F.col("last_ts_ns"), NS_PER_US).alias("last_us")
    )
    rows = without_twins(permits, connections).join(
        F.broadcast(ends), on=["capture", "connection_id"], how="left"
    )
    rows = rows.join(F.broadcast(closed), on=IDENTITY, how="left")
    rows = rows.withColumn("at_us", F.unix_micros("ts"))
    whole = Window.partitionBy(*IDENTITY)
    is_grant = (F.col("event") == "grant") & (F.col("delta") > 0)
    rows = rows.withColumns(
        {
            "resets": F.sum(flag(F.col("event") == "reset")).over(_until_here()),
            "final_us": F.last("at_us").over(
                whole.orderBy(F.asc_nulls_last("order_no"), F.asc("at_us")).rowsBetween(
                    Window.unboundedPreceding, Window.unboundedFollowing
                )
            ),
            "first_grant": F.coalesce(
                F.first(F.when(is_grant, F.col("delta")), ignorenulls=True).over(_until_here()),
                F.lit(0),
            ),
        }
    )
    since_reset = (
        Window.partitionBy(*IDENTITY, "resets")
        .orderBy(F.asc_nulls_last("order_no"), F.asc("at_us"))
        .rowsBetween(Window.unboundedPreceding, Window.currentRow)
    )
    started = F.sum(flag(is_grant)).over(since_reset) > 0
    rows = rows.withColumn(
        "is_active",
        started & F.col("available_after").isNotNull() & (F.col("event") != "reset"),
    )
    ends_us = F.greatest(F.coalesce("closed_us", "last_us", "final_us"), F.col("final_us"))
    rows = rows.withColumn("ends_us", ends_us)
    rows = rows.withColumn("next_us", F.lead("at_us").over(_of_one()))
    until = F.coalesce(F.col("next_us"), F.col("ends_us"))
    passed = F.when(F.col("is_active"), F.greatest(until - F.col("at_us"), F.lit(0)))
    return rows.withColumn("passed_us", F.coalesce(passed, F.lit(0).cast("bigint")))


def _is_open() -> Column:
    """Active with permits left."""
    return F.col("is_active") & (F.col("available_after") > 0)


def _is_exhausted() -> Column:
    """Active without permits."""
    return F.col("is_active") & (F.col("available_after") <= 0)


def _next(rows: DataFrame, name: str, condition: Column, columns: Sequence[str]) -> DataFrame:
    """Add, as a struct, columns of the consumer's first later row that meets a condition."""
    found = F.first(F.when(condition, F.struct(*columns)), ignorenulls=True).over(_after())
    return rows.withColumn(name, found)


def _stall_starts(rows: DataFrame) -> DataFrame:
    """Rows at which a stall begins, with the row that ends it. rows: of states."""
    before = F.lag(_is_exhausted(), 1, False).over(_of_one())
    rows = rows.withColumn("is_exhausted", _is_exhausted())
    rows = rows.withColumn("is_start", F.col("is_exhausted") & ~before)
    end = ["at_us", "frame_no", "order_no", "event", "is_active"]
    return _next(rows, "end", ~F.col("is_exhausted"), end)


def transform_stalls(rows: DataFrame) -> DataFrame:
    """Stalls that a grant ended, and whether a delivery followed at once. rows: of states."""
    rows = _next(
        _stall_starts(rows),
        "verdict",
        F.col("event") != "grant",
        ["at_us", "frame_no", "event"],
    )
    # The delivery that judges a stall is looked up at the grant that ends it.
    grants = rows.where(F.col("event") == "grant").select(
        *IDENTITY, F.col("order_no").alias("end_order_no"), "verdict"
    )
    ended = rows.where(
        F.col("is_start")
        & F.col("end").isNotNull()
        & (F.col("end.event") == "grant")
        & F.col("end.is_active")
        & (F.col("end.at_us") - F.col("at_us") >= STALL_US)
    ).select(
        *IDENTITY,
        F.col("frame_no").alias("start_frame_no"),
        F.col("end.frame_no").alias("end_frame_no"),
        F.col("end.order_no").alias("end_order_no"),
        F.col("at_us").alias("start_us"),
        F.col("end.at_us").alias("end_us"),
    )
    judged = ended.join(grants, on=[*IDENTITY, "end_order_no"], how="left")
    soon = F.col("verdict.at_us") - F.col("end_us") <= CONFIRM_US
    confirmed = F.coalesce((F.col("verdict.event") == "delivery") & soon, F.lit(False))
    return judged.select(
        *IDENTITY,
        "start_frame_no",
        "end_frame_no",
        "start_us",
        (F.col("end_us") - F.col("start_us")).alias("stall_us"),
        confirmed.alias("confirmed"),
    )


def _open_stalls(rows: DataFrame) -> DataFrame:
    """Stalls that nothing ended while the consumer was observed. rows: of states."""
    starts = _stall_starts(rows).where(F.col("is_start") & F.col("end").isNull())
    lasted = F.col("ends_us") - F.col("at_us")
    return (
        starts.where(lasted >= STALL_US)
        .groupBy(*IDENTITY)
        .agg(
            F.max(lasted).alias("open_stall_us"),
            F.max("frame_no").alias("open_stall_frame"),
            F.max("at_us").alias("open_stall_start_us"),
        )
    )


def _silences(rows: DataFrame) -> DataFrame:
    """Times with permits left and no delivery, long ones only, per consumer. rows: of states."""
    before = F.lag(_is_open(), 1, False).over(_of_one())
    rows = rows.withColumn("is_open", _is_open())
    rows = rows.withColumn(
        "is_quiet_start", F.col("is_open") & ((F.col("event") == "delivery") | ~before)
    )
    rows = _next(rows, "broken", (F.col("event") != "grant") | ~F.col("is_open"), ["at_us"])
    lasted = F.coalesce(F.col("broken.at_us"), F.col("ends_us")) - F.col("at_us")
    long = rows.where(F.col("is_quiet_start")).withColumn("lasted", lasted)
    return (
        long.where(F.col("lasted") >= STALL_US)
        .groupBy(*IDENTITY)
        .agg(
            F.count(F.lit(1)).alias("quiets"),
            F.sum("lasted").alias("quiet_us"),
            F.max("lasted").alias("quiet_max_us"),
        )
    )


def _sums(rows: DataFrame) -> DataFrame:
    """Everything about a consumer that is a sum, a least or a greatest value. rows: of states."""
    is_grant, is_delivery = F.col("event") == "grant", F.col("event") == "delivery"
    is_change = is_grant | is_delivery
    is_known = F.col("available_after").isNotNull()
    delta = F.coalesce(F.col("delta"), F.lit(0))
    changes = F.when(is_change & is_known, F.col("available_after"))
    unused = F.col("first_grant") - F.col("available_after")
    first_known = F.when(is_change & is_known, F.col("available_after") - delta)
    order = F.when(is_change & is_known, F.col("row"))
    rows = rows.withColumn("row", F.row_number().over(_of_one()))
    return rows.groupBy(*IDENTITY).agg(
        F.max("topic").alias("topic"),
        F.max("subscription").alias("subscription"),
        F.max("subscription_type").alias("subscription_type"),
        F.sum(flag(is_grant)).alias("grants"),
        F.sum(F.when(is_grant, delta).otherwise(0)).alias("granted"),
        F.sum(flag(is_delivery)).alias("deliveries"),
        F.sum(F.when(is_delivery, -delta).otherwise(0)).alias("delivered"),
        F.sum(flag(is_change & is_known)).alias("known_rows"),
        F.sum(flag(is_change & ~is_known)).alias("unknown_rows"),
        F.sum(F.when(is_grant & is_known, delta).otherwise(0)).alias("known_granted"),
        F.sum(F.when(is_delivery & is_known, -delta).otherwise(0)).alias("known_delivered"),
        F.coalesce(F.min_by(first_known, order), F.lit(0)).alias("start_balance"),
        F.max("first_grant").alias("first_grant"),
        F.min(changes).alias("available_min"),
        F.max(changes).alias("available_max"),
        F.max(F.when(is_change, F.col("unacked_after"))).alias("unacked_max"),
        F.sum("passed_us").alias("observed_us"),
        F.sum(F.coalesce(F.greatest(unused, F.lit(0)) * F.col("passed_us"), F.lit(0))).alias(
            "occupied"
        ),
        F.sum(F.when(_is_exhausted(), F.col("passed_us")).otherwise(0)).alias("exhausted_us"),
    )


def transform_consumers(rows: DataFrame) -> DataFrame:
    """One row per consumer incarnation (CONSUMERS). rows: of states."""
    found = _sums(rows)
    for more in (_open_stalls(rows), _silences(rows)):
        found = found.join(more, on=IDENTITY, how="left")
    zeros = ("open_stall_us", "quiets", "quiet_us", "quiet_max_us")
    filled = found.withColumns({name: F.coalesce(F.col(name), F.lit(0)) for name in zeros})
    return filled.select(*CONSUMERS.names)


def transform_balances(rows: DataFrame, steps: DataFrame) -> DataFrame:
    """Least and greatest balance per point of the series over time.

    rows: of states. steps: capture and step_ns, the width of its points.
    """
    known = rows.where(F.col("available_after").isNotNull() & (F.col("event") != "reset"))
    known = known.join(F.broadcast(steps), on="capture", how="inner")
    at_ns = F.col("at_us") * NS_PER_US
    rest = F.pmod(at_ns, F.col("step_ns"))
    point = F.call_function("div", at_ns - rest, F.col("step_ns"))
    cut = F.greatest(F.least("available_after", F.lit(LAST_ZERO - 1)), F.lit(-LAST_ZERO))
    last = F.col("order_no") * (1 << LAST_BITS) + cut + LAST_ZERO
    return tally(known.withColumns({"point": point, "last": last}), BALANCES)


def frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What this section is made from, by the name of its part."""
    closed = closings(tables.read("consumers"), tables.read("frames"))
    rows = tables.settled(
        "states", lambda: states(tables.read("permits"), tables.read("connections"), closed)
    )
    steps = tables.steps_frame()
    return {
        "frames": frames_part(tables),
        "deliveries": (transform_deliveries(tables.read("deliveries")), DELIVERIES.schema()),
        "consumers": (transform_consumers(rows), CONSUMERS),
        "stalls": (transform_stalls(rows), STALLS),
        "balances": (transform_balances(rows, steps), BALANCES.schema()),
    }


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute the section and write it; returns the JSON."""
    return job.run(spark, args, {SECTION: frames})


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, run, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
