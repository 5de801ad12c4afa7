"""Captures that have messages in common, on hand-made rows."""

from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import functions as F

from spark_jobs.shared import shared_captures

SENDS = (
    "capture string, connection_id bigint, kind string, topic string, producer_name string, "
    "sequence_id bigint, chunk_id bigint, crc32c_stored bigint, ledger_id bigint, entry_id bigint, "
    "ts timestamp"
)
GOT = (
    "capture string, connection_id bigint, topic string, subscription string, ledger_id bigint, "
    "entry_id bigint, ts timestamp"
)


def at(second: int, us: int = 0) -> datetime:
    return datetime(2026, 1, 1, 0, 0, second, us, tzinfo=UTC)


def test_captures_that_share_messages_are_found(spark: Any) -> None:
    clusters = spark.createDataFrame(
        [("a", None), ("b", None), ("c", None), ("d", "east")], "capture string, cluster string"
    )
    sends = spark.createDataFrame(
        [
            ("a", 0, "publish", "t", "p", 1, None, 9, 3, 4, at(0)),
            ("b", 0, "publish", "t", "p", 1, None, 9, None, None, at(1)),
            ("c", 0, "publish", "t", "p", 2, None, 8, 3, 5, at(2)),
            ("d", 0, "publish", "t", "p", 1, None, 9, 3, 4, at(0)),
        ],
        SENDS,
    )
    nothing = spark.createDataFrame([], GOT)
    rows = [("b", 0, "t", "s", 3, 5, at(2)), ("c", 0, "u", "s", 3, 4, at(2))]
    got = spark.createDataFrame(rows, GOT)
    assert shared_captures(sends, nothing, clusters) == ([["a", "b"]], [], [])
    assert shared_captures(sends, got, clusters) == ([["a", "b"], ["b", "c"]], [], [])
    same = sends.withColumn("ts", F.lit(at(0)))
    assert shared_captures(same, got, clusters).views == [["a", "b"]]


def test_the_brokers_side_of_a_proxy_repeats_what_the_clients_side_shows(spark: Any) -> None:
    clusters = spark.createDataFrame([("a", None), ("b", None)], "capture string, cluster string")
    sends = spark.createDataFrame(
        [("a", 3, "publish", "t", "p", 1, None, 9, 3, 4, at(0, 700)),
         ("b", 5, "publish", "t", "p", 1, None, 9, 3, 4, at(0, 200)),
         # Another client, who does not come by the proxy.
         ("a", 4, "publish", "t", "q", 1, None, 7, 3, 5, at(1))],
        SENDS,
    )  # fmt: skip
    got = spark.createDataFrame(
        [("a", 6, "t", "s", 3, 4, at(2, 100)), ("b", 7, "t", "s", 3, 4, at(2, 500))], GOT
    )
    found = shared_captures(sends, got, clusters)
    assert found.views == [["b", "a"]] and found.twins == [("a", 3), ("a", 6)]
