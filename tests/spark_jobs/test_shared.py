"""Captures that have messages in common, on hand-made rows."""

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import functions as F

from spark_jobs.shared import shared_captures


def test_captures_that_share_messages_are_found(spark: Any) -> None:
    clusters = spark.createDataFrame(
        [("a", None), ("b", None), ("c", None), ("d", "east")], "capture string, cluster string"
    )
    at = [datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC) for second in range(4)]
    sends = spark.createDataFrame(
        [
            ("a", "publish", "t", "p", 1, None, 9, 3, 4, at[0]),
            ("b", "publish", "t", "p", 1, None, 9, None, None, at[1]),
            ("c", "publish", "t", "p", 2, None, 8, 3, 5, at[2]),
            ("d", "publish", "t", "p", 1, None, 9, 3, 4, at[0]),
        ],
        "capture string, kind string, topic string, producer_name string, sequence_id bigint, "
        "chunk_id bigint, crc32c_stored bigint, ledger_id bigint, entry_id bigint, ts timestamp",
    )
    columns = (
        "capture string, topic string, subscription string, ledger_id bigint, entry_id bigint, "
        "ts timestamp"
    )
    nothing = spark.createDataFrame([], columns)
    rows = [("b", "t", "s", 3, 5, at[2]), ("c", "u", "s", 3, 4, at[2])]
    got = spark.createDataFrame(rows, columns)
    assert shared_captures(sends, nothing, clusters) == ([["a", "b"]], [])
    assert shared_captures(sends, got, clusters) == ([["a", "b"], ["b", "c"]], [])
    same = sends.withColumn("ts", F.lit(at[0]))
    assert shared_captures(same, got, clusters).views == [["a", "b"]]
