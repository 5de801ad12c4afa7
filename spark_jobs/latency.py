"""Send latency: SEND to SEND_RECEIPT by topic, producer, client and broker, over time.

spark-submit spark_jobs/latency.py --lake LAKE -o OUT
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from dissector.report.numbers import NS_PER_MINUTE, PERCENTILES
from dissector.report.parts import ANSWERED, EXACT, MESSAGES, PASSED_OUTCOMES, PASSED_OVER
from dissector.report.sections.send_latency import GROUPINGS
from dissector.report.sends import REPLICATOR
from dissector.report.tallies import (
    LOGICAL,
    SEND_MINUTES,
    SEND_POINTS,
    SENDS,
    TRANSMITS,
)
from spark_jobs import job
from spark_jobs.counting import tally
from spark_jobs.merged import Merged
from spark_jobs.tables import at_own_place, bucket, flag, floor_div, name_producers, without_twins

SECTION: Final = "send_latency"
_LEAF: Final = [name for name in SENDS.key_names if name != "outcome"]
_PLACE: Final = ["capture", "connection_id", "producer_id", "incarnation"]
# Messages are distinct within these columns; see message_keys.
_KEY: Final = ["key_topic", "key_producer", *(f"key_{name}" for name in _PLACE)]
_SEND: Final = ["sequence_id", "chunk_id", "crc32c_stored"]


def publishes(exchanges: DataFrame, producers: DataFrame, connections: DataFrame) -> DataFrame:
    """Sends and orphan receipts, once each, with late names and what all transforms need."""
    rows = without_twins(exchanges.where(F.col("kind") == "publish"), connections)
    # What tells a producer's messages apart; see dissector.report.sends.message_ids.
    is_replicator = F.col("producer_name").startswith(REPLICATOR)
    by_crc = is_replicator & F.col("sequence_id").isNotNull()
    message_id = F.coalesce(F.when(by_crc, F.col("crc32c_stored")), F.col("sequence_id"))
    message_id = F.when(F.col("producer_id").isNotNull(), message_id)
    rows = name_producers(rows.withColumn("message_id", message_id), producers)
    is_request = F.col("outcome") != "orphan_response"
    is_timed = (F.col("outcome") == "ok") & F.col("latency_ns").isNotNull()
    attempt = F.coalesce(F.col("attempt"), F.lit(1))
    return rows.select(
        *_LEAF,
        "outcome",
        "message_id",
        "sequence_id",
        "chunk_id",
        "crc32c_stored",
        "attempt",
        "message_count",
        "request_bytes",
        "request_last_ns",
        "response_last_ns",
        flag(F.col("tainted")).alias("tainted"),
        flag(F.col("attempt") > 1).alias("resent"),
        is_request.alias("is_request"),
        is_timed.alias("is_timed"),
        (attempt == 1).alias("is_first"),
        F.when(is_timed, F.col("latency_ns")).alias("latency_ns"),
        F.when(is_timed, F.col("latency_bucket")).alias("bucket"),
        F.when(is_request, F.col("transmit_ns")).alias("transmit_ns"),
        F.lit(1).cast("bigint").alias("sends"),
        flag(is_timed).alias("latencies"),
        flag(is_request & F.col("message_count").isNull()).alias("counts_unknown"),
    )


def transform_sends(rows: DataFrame) -> DataFrame:
    """Sums per producer and outcome. rows: of publishes."""
    rows = rows.withColumn("transmits", flag(F.col("transmit_ns").isNotNull()))
    return tally(rows.withColumn("messages", F.col("message_count")), SENDS)


def transform_transmits(rows: DataFrame) -> DataFrame:
    """The histogram of the time from a SEND's first byte to its last. rows: of publishes."""
    sent = rows.where(F.col("transmit_ns").isNotNull())
    sent = sent.withColumn("bucket", bucket(F.col("transmit_ns")))
    return tally(sent.withColumn("transmits", F.lit(1).cast("bigint")), TRANSMITS)


def _timed(rows: DataFrame) -> DataFrame:
    """Sends with the messages that count over time: those of first attempts."""
    messages = F.when(F.col("is_first"), F.col("message_count"))
    return rows.where(F.col("is_request")).withColumn("messages", messages)


def transform_minutes(rows: DataFrame) -> DataFrame:
    """Sends, messages, bytes and the latency histogram per minute. rows: of publishes."""
    minute = floor_div(F.col("request_last_ns"), NS_PER_MINUTE)
    return tally(_timed(rows).withColumn("minute", minute), SEND_MINUTES)


def transform_points(rows: DataFrame, steps: DataFrame) -> DataFrame:
    """The same per point of the series over time. rows: of publishes.

    steps: capture and step_ns, the width of its points.
    """
    timed = _timed(rows).join(F.broadcast(steps), on="capture", how="inner")
    at_ns = F.col("request_last_ns")
    point = F.call_function("div", at_ns - F.pmod(at_ns, F.col("step_ns")), F.col("step_ns"))
    return tally(timed.withColumn("point", point), SEND_POINTS)


def message_keys(rows: DataFrame) -> DataFrame:
    """Add what tells messages of equal sequence ids apart.

    That is topic and producer, if both are known (one producer name serves all partitions of a
    topic with equal ids); else ids are compared only within one producer id of one connection.
    """
    is_known = F.col("topic").isNotNull() & F.col("producer_name").isNotNull()
    rows = rows.withColumn("key_topic", F.col("topic"))
    rows = rows.withColumn("key_producer", F.col("producer_name"))
    for name in _PLACE:
        rows = rows.withColumn(f"key_{name}", F.when(~is_known, F.col(name)))
    return rows


def message_counts(rows: DataFrame) -> DataFrame:
    """Distinct messages of each capture, with what they count for. rows: of publishes."""
    sends = message_keys(rows.where(F.col("is_request")))
    # Where no id tells messages apart each first attempt counts.
    count = F.coalesce("message_count", F.lit(0))
    return sends.groupBy("capture", *_KEY, "client_ip", "broker_ip", "message_id").agg(
        F.max(count).alias("largest"),
        F.sum(F.when(F.col("is_first"), count).otherwise(0)).alias("firsts"),
    )


def _distinct(
    counts: DataFrame, grouping: str, extra: Sequence[str], shown: Sequence[str]
) -> DataFrame:
    distinct = F.when(F.col("message_id").isNull(), F.sum("firsts")).otherwise(F.max("largest"))
    largest = counts.groupBy(*_KEY, *extra, "message_id").agg(distinct.alias("messages"))
    counted = largest.groupBy(*_KEY, *extra).agg(F.sum("messages").alias("messages"))
    columns = {"topic": F.col("key_topic"), "producer_name": F.col("key_producer")}
    columns |= {name: F.col(name) for name in extra}
    text = [
        (columns[name] if name in shown else F.lit(None).cast("string")).alias(name)
        for name in ("topic", "producer_name", "client_ip", "broker_ip")
    ]
    return counted.select(F.lit(grouping).alias("grouping"), *text, F.col("messages"))


def finish_messages(counts: DataFrame, clusters: DataFrame) -> DataFrame:
    """Distinct messages per producer, client and broker. counts: of message_counts."""
    by_producer = _distinct(counts, "producer", (), ("topic", "producer_name"))
    by_client = _distinct(counts, "client", ("client_ip",), ("client_ip",))
    by_broker = _distinct(counts, "broker", ("broker_ip",), ("broker_ip",))
    return by_producer.unionByName(by_client).unionByName(by_broker)


def settled_latencies(rows: DataFrame) -> DataFrame:
    """logical_ns of sends whose first attempt got its receipt. rows: of publishes."""
    settled = rows.where(F.col("is_request") & F.col("is_first") & F.col("is_timed"))
    return settled.select(*_LEAF, F.col("latency_ns").alias("logical_ns"), "bucket")


def attempts(rows: DataFrame) -> DataFrame:
    """All other sends of each capture, once each, with what its attempts tell. rows: of publishes.

    Sends whose other side was not captured are left out, since no answer could settle them.
    """
    is_ok = F.col("outcome") == "ok"
    waiting = rows.where(
        F.col("is_request")
        & ~(F.col("is_first") & is_ok)
        & F.col("attempt").isNotNull()
        & (F.col("outcome") != "other_side_not_captured")
    )
    answered = F.when(is_ok, F.col("response_last_ns"))
    waiting = message_keys(waiting).withColumn("answered", answered)
    place = F.struct("answered", "connection_id", "producer_id", "incarnation", "capture")
    order = F.when(F.col("answered").isNotNull(), place)
    return waiting.groupBy("capture", *_KEY, *_SEND).agg(
        F.min("attempt").alias("first_attempt"),
        F.min("request_last_ns").alias("first_sent"),
        F.min("answered").alias("first_answer"),
        F.min(order).alias("order"),
        F.min_by(F.struct(*_LEAF), order).alias("leaf"),
    )


def later_latencies(attempts: DataFrame) -> DataFrame:
    """logical_ns of sends that a later attempt settled, from the first one. attempts: see there.

    They are joined over attempts by topic, producer, sequence id, chunk and checksum.
    """
    found = attempts.groupBy(*_KEY, *_SEND).agg(
        F.min("first_attempt").alias("first_attempt"),
        F.min("first_sent").alias("first_sent"),
        F.min("first_answer").alias("first_answer"),
        F.min_by("leaf", "order").alias("leaf"),
    )
    took = F.col("first_answer") - F.col("first_sent")
    return found.where((F.col("first_attempt") == 1) & (took >= 0)).select(
        "leaf.*", took.alias("logical_ns"), bucket(took).alias("bucket")
    )


def transform_logical(latencies: DataFrame) -> DataFrame:
    """The histogram of logical latencies. latencies: with logical_ns and bucket."""
    return tally(latencies.withColumn("logicals", F.lit(1).cast("bigint")), LOGICAL)


def finish_later(attempts: DataFrame, clusters: DataFrame) -> DataFrame:
    """The histogram of those that a later attempt settled. attempts: see there."""
    return transform_logical(later_latencies(attempts))


def transform_passed_over(exchanges: DataFrame) -> DataFrame:
    """Unanswered sends before one of the same producer that was answered (PASSED_OVER)."""
    producer = Window.partitionBy(*_PLACE)
    answered = F.when(F.col("outcome").isin(*ANSWERED), F.col("order_no"))
    sends = exchanges.where((F.col("kind") == "publish") & F.col("request_frame_no").isNotNull())
    rows = sends.withColumn("last_answered", F.max(answered).over(producer))
    passed = rows.where(
        F.col("outcome").isin(*PASSED_OUTCOMES) & (F.col("order_no") < F.col("last_answered"))
    )
    columns = {"at_ns": F.col("request_last_ns"), "request_packet": F.lit(None).cast("bigint")}
    return at_own_place(passed).withColumns(columns).select(*PASSED_OVER.names)


def transform_exact(rows: DataFrame) -> DataFrame:
    """Exact percentiles, by sorting the values themselves. rows: of publishes."""
    logical = settled_latencies(rows).unionByName(later_latencies(attempts(rows)))
    measures = [
        ("latency", rows.where(F.col("is_timed")), F.col("latency_ns")),
        ("transmit", rows.where(F.col("transmit_ns").isNotNull()), F.col("transmit_ns")),
        ("logical", logical, F.col("logical_ns")),
    ]
    found = []
    for measure, values, column in measures:
        for grouping, keys in GROUPINGS.items():
            chosen = values.withColumn("value_ns", column)
            found.append(_ranked(chosen, measure, grouping, keys))
    result = found[0]
    for frame in found[1:]:
        result = result.unionByName(frame)
    return result.select(*EXACT.names)


def _ranked(rows: DataFrame, measure: str, grouping: str, keys: Sequence[str]) -> DataFrame:
    """The values of the wanted ranks; rank = ceil(count * share), from 1."""
    part = Window.partitionBy(*(F.col(key) for key in keys), F.lit(0))
    numbered = rows.select(*keys, "value_ns").withColumns(
        {
            "rank": F.row_number().over(part.orderBy("value_ns")),
            "count": F.count(F.lit(1)).over(part),
        }
    )
    return numbered.groupBy(*keys).agg(
        F.lit(grouping).alias("grouping"),
        F.lit(measure).alias("measure"),
        *(_empty(name) for name in ("topic", "producer_name", "client_ip", "broker_ip")
          if name not in keys),
        *(F.max(F.when(_has_rank(permille), F.col("value_ns"))).alias(name)
          for name, permille in PERCENTILES),
    )  # fmt: skip


def _empty(name: str) -> Column:
    return F.lit(None).cast("string").alias(name)


def _has_rank(permille: int) -> Column:
    rank = floor_div(F.col("count") * F.lit(permille) + F.lit(999), 1000)
    return F.col("rank") == F.greatest(F.lit(1), rank)


def frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What this section is made from, by the name of its part."""
    read = tables.read("exchanges"), tables.read("producers"), tables.read("connections")
    rows = tables.settled("publishes", lambda: publishes(*read))
    found: job.Frames = {
        "sends": (transform_sends(rows), SENDS.schema()),
        "transmits": (transform_transmits(rows), TRANSMITS.schema()),
        "send_minutes": (transform_minutes(rows), SEND_MINUTES.schema()),
        "send_points": (transform_points(rows, tables.steps_frame()), SEND_POINTS.schema()),
        "messages": Merged(message_counts(rows), finish_messages, MESSAGES),
        "logical": (transform_logical(settled_latencies(rows)), LOGICAL.schema()),
        "later": Merged(attempts(rows), finish_later, LOGICAL.schema()),
        "passed_over": (transform_passed_over(tables.read("exchanges")), PASSED_OVER),
    }
    if args.exact:
        found["exact"] = (transform_exact(rows), EXACT)
    return found


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute the section and write it; returns the JSON."""
    return job.run(spark, args, {SECTION: frames})


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, run, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
