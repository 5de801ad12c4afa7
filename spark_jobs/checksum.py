"""Checksum failures: verdicts on CRC32C, and what the peer said about each mismatch.

spark-submit spark_jobs/checksum.py --lake LAKE -o OUT
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dissector.report.frame_rows import MAX_MISMATCHES
from dissector.report.parts import MISMATCHES
from dissector.report.tallies import CHECKSUMS
from spark_jobs import job
from spark_jobs.counting import tally
from spark_jobs.errors import at_request
from spark_jobs.tables import CONNECTION, at_own_place, first_of_each

SECTION: Final = "checksum_failures"


def transform_checksums(frames: DataFrame) -> DataFrame:
    """Frames that can carry a checksum, by verdict, producer or consumer, and topic."""
    rows = frames.where(F.col("checksum").isNotNull())
    return tally(rows.withColumn("frames", F.lit(1).cast("bigint")), CHECKSUMS)


def _in_wholes(rows: DataFrame, wholes: Mapping[str, str]) -> DataFrame:
    """Rows with `whole`: what their own capture is part of, see links.Plan.wholes."""
    if not wholes:
        return rows.withColumn("whole", F.col("capture"))
    known = rows.sparkSession.createDataFrame(list(wholes.items()), "capture string, whole string")
    rows = rows.join(F.broadcast(known), on="capture", how="left")
    return rows.withColumn("whole", F.coalesce("whole", "capture"))


def transform_copies(
    bad: DataFrame, exchanges: DataFrame, deliveries: DataFrame, wholes: Mapping[str, str]
) -> DataFrame:
    """The first other copy of each of some frames: a publish or delivery of the same entry.

    bad: capture, frame_no, is_send, sequence_id, ledger_id, entry_id, both checksums. A copy in
    another capture, one that was joined with it, has no number there.
    """
    entry = ("ledger_id", "entry_id", "crc32c_stored", "order_no")
    publishes = at_own_place(exchanges.where(F.col("kind") == "publish")).select(
        "capture",
        *(F.col(name).alias(f"copy_{name}") for name in ("sequence_id", *entry)),
        F.col("request_frame_no").alias("copy"),
        F.lit(True).alias("of_send"),
    )
    delivered = at_own_place(deliveries.where(F.col("checksum") == "ok")).select(
        "capture",
        F.lit(None).cast("bigint").alias("copy_sequence_id"),
        *(F.col(name).alias(f"copy_{name}") for name in entry),
        F.col("frame_no").alias("copy"),
        F.lit(False).alias("of_send"),
    )
    wanted = _in_wholes(bad, wholes).select(
        "whole", "capture", "frame_no", "is_send", "sequence_id", "ledger_id", "entry_id",
        F.explode(F.array_distinct(F.array("crc32c_stored", "crc32c_computed"))).alias("crc"),
    )  # fmt: skip
    others = publishes.unionByName(delivered).where(F.col("copy").isNotNull())
    others = others.join(
        bad.select("capture", F.col("frame_no").alias("copy")),
        on=["capture", "copy"],
        how="left_anti",
    )
    others = _in_wholes(others, wholes).withColumnsRenamed(
        {"capture": "copy_capture", "copy_crc32c_stored": "crc"}
    )
    is_same = F.when(
        F.col("is_send"), F.col("of_send") & (F.col("copy_sequence_id") == F.col("sequence_id"))
    ).otherwise(
        (F.col("copy_ledger_id") == F.col("ledger_id"))
        & (F.col("copy_entry_id") == F.col("entry_id"))
    )
    found = wanted.join(others, on=["whole", "crc"], how="inner").where(is_same)
    order = F.struct(F.col("copy_order_no").alias("order_no"), "crc", "copy_capture", "copy")
    first = found.groupBy("capture", "frame_no").agg(F.min(order).alias("first"))
    is_here = F.col("first.copy_capture") == F.col("capture")
    return first.select(
        "capture",
        "frame_no",
        F.when(is_here, F.col("first.copy")).alias("copy_frame_no"),
        F.col("first.crc").alias("copy_crc32c"),
    )


def transform_refusals(acks: DataFrame, deliveries: DataFrame) -> DataFrame:
    """Deliveries that an ACK ended which says ChecksumMismatch, by the place of the MESSAGE.

    An entry may be delivered several times, damaged each time: an ACK speaks of one delivery. One
    in another capture than its MESSAGE has no number there.
    """
    ack = {"capture": "ack_capture", "connection_id": "ack_connection_id"}
    discarded = at_own_place(deliveries.where(F.col("outcome") == "discarded"))
    is_here = F.col("ack_capture").isNull()
    discarded = discarded.select(
        *CONNECTION,
        "frame_no",
        F.when(is_here, F.col("ack_frame_no")).alias("refused_frame_no"),
        *(F.coalesce(there, here).alias(there) for here, there in ack.items()),
        "ack_frame_no",
    )
    refusals = acks.where(F.col("validation_error") == "ChecksumMismatch")
    refusals = refusals.withColumnsRenamed({**ack, "frame_no": "ack_frame_no"})
    places = [*ack.values(), "ack_frame_no"]
    refused = discarded.join(refusals.select(*places), on=places, how="left_semi")
    return refused.select(*CONNECTION, "frame_no", "refused_frame_no")


def transform_mismatches(
    frames: DataFrame,
    exchanges: DataFrame,
    acks: DataFrame,
    deliveries: DataFrame,
    wholes: Mapping[str, str] = MappingProxyType({}),
) -> DataFrame:
    """Frames whose checksum does not match, the first of each capture, with their peer's answer.

    That is the exchange of a SEND, and for a MESSAGE the ACK that ended its delivery, if that says
    ChecksumMismatch. wholes: what each capture is part of, where captures were joined.
    """
    bad = frames.where(F.col("checksum") == "mismatch")
    bad = first_of_each(bad, MAX_MISMATCHES, "last_ts_ns", "frame_no")
    bad = bad.withColumn("is_send", F.col("command") == "SEND")
    answers = at_request(exchanges).select(
        *CONNECTION,
        F.col("request_frame_no").alias("frame_no"),
        F.col("outcome").alias("send_outcome"),
        F.col("error_code").alias("send_error_code"),
        F.col("response_frame_no").alias("answer_frame_no"),
    )
    refusals = transform_refusals(acks, deliveries).withColumn("is_refused", F.lit(True))
    frame = [*CONNECTION, "frame_no"]
    rows = bad.join(answers, on=frame, how="left").join(refusals, on=frame, how="left")
    rows = rows.withColumns(
        {
            **{
                name: F.when(F.col("is_send"), F.col(name))
                for name in ("send_outcome", "send_error_code", "answer_frame_no")
            },
            "is_refused": F.coalesce("is_refused", F.lit(False)),
            "at_ns": F.col("last_ts_ns"),
        }
    )
    copies = transform_copies(bad, exchanges, deliveries, wholes)
    rows = rows.join(copies, on=["capture", "frame_no"], how="left")
    return rows.select(*MISMATCHES.names)


def frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What this section is made from, by the name of its part."""
    rows = tables.read("frames")
    mismatches = transform_mismatches(
        rows,
        tables.read("exchanges"),
        tables.read("acks"),
        tables.read("deliveries"),
        tables.joined.plan.wholes,
    )
    return {
        "checksums": (transform_checksums(rows), CHECKSUMS.schema()),
        "mismatches": (mismatches, MISMATCHES),
    }


def run(spark: SparkSession, args: argparse.Namespace) -> dict[str, Any]:
    """Compute the section and write it; returns the JSON."""
    return job.run(spark, args, {SECTION: frames})


def main(argv: Sequence[str] | None = None) -> int:
    """The job by itself."""
    return job.main(argv, run, __doc__ or "")


if __name__ == "__main__":
    sys.exit(main())
