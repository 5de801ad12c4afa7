"""What two captures hold counts once, on hand-made rows."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import functions as F

from spark_jobs import latency, lifetimes
from spark_jobs.merged import Merged

SENDS = (
    "capture string, connection_id bigint, producer_id bigint, incarnation bigint, topic string, "
    "producer_name string, client_ip string, broker_ip string, outcome string, "
    "message_id bigint, sequence_id bigint, chunk_id bigint, crc32c_stored bigint, "
    "attempt bigint, message_count bigint, request_last_ns bigint, response_last_ns bigint, "
    "is_request boolean, is_timed boolean, is_first boolean, latency_ns bigint, bucket bigint"
)


def send(capture: str, number: int, attempt: int, outcome: str, at: int, count: int) -> Any:
    is_ok = outcome == "ok"
    return (
        capture, 0, 1, 0, "t", "p", f"of {capture}", "b", outcome, number, number, None, 9,
        attempt, count, at, at + 5 if is_ok else None, True, is_ok, attempt == 1,
        5 if is_ok else None, 5 if is_ok else None,
    )  # fmt: skip


def test_messages_and_attempts_of_two_captures_are_put_together(spark: Any) -> None:
    rows = spark.createDataFrame(
        [send("x", 1, 1, "ok", 100, 2), send("x", 2, 1, "conn_closed", 200, 3),
         send("y", 2, 2, "ok", 900, 4), send("y", 3, 1, "ok", 300, 5)], SENDS,
    )  # fmt: skip
    nothing = spark.createDataFrame([], "capture string, cluster string")
    halves = [rows.where(F.col("capture") == name) for name in "xy"]
    kept = latency.message_counts(halves[0]).unionByName(latency.message_counts(halves[1]))
    found = {
        (row["grouping"], row["client_ip"]): row["messages"]
        for row in latency.finish_messages(kept, nothing).collect()
    }
    assert found == {
        ("producer", None): 11, ("client", "of x"): 5, ("client", "of y"): 9, ("broker", None): 11,
    }  # fmt: skip
    waiting = latency.attempts(halves[0]).unionByName(latency.attempts(halves[1]))
    (later,) = latency.finish_later(waiting, nothing).collect()
    assert (later["capture"], later["logicals"], later["logical_ns"]) == ("y", 1, 705)
    assert latency.settled_latencies(rows).count() == 2


def test_entries_of_two_captures_of_one_cluster_count_once(spark: Any) -> None:
    entries = spark.createDataFrame(
        [("x", 7, 1, 1, 0), ("y", 7, 1, 0, 1), ("y", 7, 2, 0, 1), ("z", 7, 1, 1, 1)],
        "capture string, ledger_id bigint, entry_id bigint, confirmed int, delivered int",
    )
    labels = spark.createDataFrame([("x", None), ("y", None), ("z", "east")],
                                   "capture string, cluster string")  # fmt: skip
    part = Merged(entries, lifetimes.finish_entries, lifetimes.ENTRIES)
    found = {tuple(row) for row in part.finish(part.rows, labels).collect()}
    assert found == {(None, 1, 2, 2), ("east", 1, 1, 1)}
