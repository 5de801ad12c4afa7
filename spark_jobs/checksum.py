"""Checksum failures: verdicts on CRC32C, and what the peer said about each mismatch.

spark-submit spark_jobs/checksum.py --lake LAKE -o OUT
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from dissector.report.frame_rows import MAX_MISMATCHES
from dissector.report.parts import MISMATCHES
from dissector.report.tallies import CHECKSUMS
from spark_jobs import job
from spark_jobs.counting import tally
from spark_jobs.errors import at_request
from spark_jobs.tables import CONNECTION

SECTION: Final = "checksum_failures"
_ENTRY: Final = [*CONNECTION, "consumer_id", "incarnation", "ledger_id", "entry_id"]


def transform_checksums(frames: DataFrame) -> DataFrame:
    """Frames that can carry a checksum, by verdict, producer or consumer, and topic."""
    rows = frames.where(F.col("checksum").isNotNull())
    return tally(rows.withColumn("frames", F.lit(1).cast("bigint")), CHECKSUMS)


def transform_copies(bad: DataFrame, exchanges: DataFrame, deliveries: DataFrame) -> DataFrame:
    """The first other copy of each of some frames: a publish or delivery of the same entry.

    bad: capture, frame_no, is_send, sequence_id, ledger_id, entry_id, both checksums.
    """
    publishes = exchanges.where(F.col("kind") == "publish").select(
        "capture",
        F.col("crc32c_stored").alias("crc"),
        F.col("request_frame_no").alias("copy"),
        F.col("sequence_id").alias("copy_sequence_id"),
        F.col("ledger_id").alias("copy_ledger_id"),
        F.col("entry_id").alias("copy_entry_id"),
        F.lit(True).alias("of_send"),
    )
    delivered = deliveries.where(F.col("checksum") == "ok").select(
        "capture",
        F.col("crc32c_stored").alias("crc"),
        F.col("frame_no").alias("copy"),
        F.lit(None).cast("bigint").alias("copy_sequence_id"),
        F.col("ledger_id").alias("copy_ledger_id"),
        F.col("entry_id").alias("copy_entry_id"),
        F.lit(False).alias("of_send"),
    )
    wanted = bad.select(
        "capture",
        "frame_no",
        "is_send",
        "sequence_id",
        "ledger_id",
        "entry_id",
        F.explode(F.array_distinct(F.array("crc32c_stored", "crc32c_computed"))).alias("crc"),
    )
    others = publishes.unionByName(delivered).where(F.col("copy").isNotNull())
    others = others.join(
        bad.select("capture", F.col("frame_no").alias("copy")),
        on=["capture", "copy"],
        how="left_anti",
    )
    is_same = F.when(
        F.col("is_send"), F.col("of_send") & (F.col("copy_sequence_id") == F.col("sequence_id"))
    ).otherwise(
        (F.col("copy_ledger_id") == F.col("ledger_id"))
        & (F.col("copy_entry_id") == F.col("entry_id"))
    )
    found = wanted.join(others, on=["capture", "crc"], how="inner").where(is_same)
    first = found.groupBy("capture", "frame_no").agg(F.min(F.struct("copy", "crc")).alias("first"))
    return first.select(
        "capture",
        "frame_no",
        F.col("first.copy").alias("copy_frame_no"),
        F.col("first.crc").alias("copy_crc32c"),
    )


def transform_mismatches(
    frames: DataFrame, exchanges: DataFrame, acks: DataFrame, deliveries: DataFrame
) -> DataFrame:
    """Frames whose checksum does not match, each with its peer's answer.

    That is the exchange of a SEND, and for a MESSAGE the first ACK of the same consumer for the
    same entry that says ChecksumMismatch.
    """
    bad = frames.where(F.col("checksum") == "mismatch")
    bad = bad.orderBy("last_ts_ns", "capture", "frame_no").limit(MAX_MISMATCHES)
    bad = bad.withColumn("is_send", F.col("command") == "SEND")
    answers = at_request(exchanges).select(
        *CONNECTION,
        F.col("request_frame_no").alias("frame_no"),
        F.col("outcome").alias("send_outcome"),
        F.col("error_code").alias("send_error_code"),
        F.col("response_frame_no").alias("answer_frame_no"),
    )
    refusals = (
        acks.where(F.col("validation_error") == "ChecksumMismatch")
        .groupBy(*_ENTRY)
        .agg(F.min("frame_no").alias("refused_frame_no"))
    )
    sends = bad.where(F.col("is_send")).join(answers, on=[*CONNECTION, "frame_no"], how="left")
    sends = sends.withColumn("refused_frame_no", F.lit(None).cast("bigint"))
    messages = bad.where(~F.col("is_send")).join(refusals, on=_ENTRY, how="left")
    nothing = {
        "send_outcome": F.lit(None).cast("string"),
        "send_error_code": F.lit(None).cast("string"),
        "answer_frame_no": F.lit(None).cast("bigint"),
    }
    both = sends.unionByName(messages.withColumns(nothing))
    copies = transform_copies(bad, exchanges, deliveries)
    both = both.join(copies, on=["capture", "frame_no"], how="left")
    return both.withColumn("at_ns", F.col("last_ts_ns")).select(*MISMATCHES.names)


def frames(tables: job.Tables, args: argparse.Namespace) -> job.Frames:
    """What this section is made from, by the name of its part."""
    rows = tables.read("frames")
    mismatches = transform_mismatches(
        rows, tables.read("exchanges"), tables.read("acks"), tables.read("deliveries")
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
