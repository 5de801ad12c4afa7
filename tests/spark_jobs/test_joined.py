"""The report of captures landed apart is the report of the whole, places apart."""

import copy
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

import pyarrow.parquet as pq
from spark_jobs.joined import CLOSED, closed_schema, merged_connections

from tests.spark_jobs.conftest import CUTS, WHOLE, Apart
from tests.spark_jobs.cutting import land, read
from tests.spark_jobs.test_jobs import summary
from tests.spark_jobs.test_report import differences, reported

# What says where something lies, and counts of files.
PLACES = {
    "capture", "connection_id", "frame_no", "packet", "request_frame_no", "response_frame_no",
    "request_packet", "response_packet", "previous_frame_no", "start_frame_no", "end_frame_no",
    "first_packet", "last_packet", "answer_frame_no", "evidence_frame_no", "copy_frame_no",
    "captures", "files",
    "file_bytes", "by_capture", "sources", "connections", "twin_connection_id",
    "verdicts",  # of each capture by itself
    # How far a log reaches is known to each capture by itself.
    "lag_committed_last", "lag_committed_max", "lag_delivered_last", "lag_delivered_max",
    "lag_not_judged",
}  # fmt: skip


def without_places(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_places(each) for key, each in value.items() if key not in PLACES}
    return [without_places(each) for each in value] if isinstance(value, list) else value


def test_every_section_is_that_of_the_whole(
    apart: Apart, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = summary(capsys, *CUTS, *WHOLE)
    found = copy.deepcopy(apart.report)
    closing = found.pop("closing")
    assert closing["total"]["captures"] == 10 and closing["total"]["captures_joined"] == 9
    assert closing["total"]["groups"] == 4 and closing["straddling"] == []
    assert closing["total"]["exchanges_answered_later"] > 0
    assert closing["total"]["redeliveries_recognised"] > 50
    told = differences(without_places(found), without_places(whole))
    notices = [text for text in told if "notices" in text or "limits" in text]
    assert [text for text in told if text not in notices] == []
    assert whole["coverage"]["total"]["connections"] == found["coverage"]["total"]["connections"]


def test_both_sides_of_a_proxy_landed_apart_count_once(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they do in a capture of both, but for connections that carry no message."""
    for side in ("front", "back"):
        land(read(f"cpp-s08_nack-proxy-{side}.pcap"), side, tmp_path / "lake", tmp_path)
    found = reported(spark, tmp_path / "lake", tmp_path / "report")
    both = summary(capsys, "cpp-s08_nack-proxy-any.pcap")
    assert [row["capture"][:6] for row in found["closing"]["copies"]] == ["c-back"]
    for section in ("send_latency", "redelivery", "permit_utilization"):
        for key in ("sends", "messages", "deliveries", "redelivered", "granted", "delivered"):
            expected = both[section]["total"].get(key)
            assert found[section]["total"].get(key) == expected, (section, key)


def test_closed_rows_are_written_and_lead_to_their_frames(apart: Apart) -> None:
    folder = apart.folder / "tables"
    exchanges = pq.read_table(folder / "closed_exchanges").to_pylist()
    later = [row for row in exchanges if row["response_capture"] is not None]
    assert later and all(row["response_capture"] != row["own_capture"] for row in later)
    assert not [row for row in exchanges if row["outcome"] == "orphan_response"]
    for table in CLOSED:
        there = pq.read_table(folder / f"closed_{table}")
        assert there.num_rows > 0
        assert sorted(there.schema.names) == sorted(closed_schema(table).names)
    deliveries = pq.read_table(folder / "closed_deliveries").to_pylist()
    places = {(r["own_capture"], r["own_connection_id"], r["frame_no"]) for r in deliveries}
    again = [row for row in deliveries if row["previous_frame_no"] is not None]
    for row in again:
        capture = row["previous_capture"] or row["own_capture"]
        assert (capture, row["previous_connection_id"], row["previous_frame_no"]) in places
    assert {row["previous_capture"] is None for row in again} == {True, False}
    assert any(row["previous_connection_id"] != row["own_connection_id"] for row in again)
    total = apart.report["closing"]["total"]
    assert total["outcomes_before"].keys() > total["outcomes_after"].keys()


def test_rows_of_one_connection_become_one(spark: Any) -> None:
    from dissector.schemas import TABLES
    from spark_jobs.schemas import SPARK_TYPES

    names = [column.name for column in TABLES["connections"].columns]
    kinds = {column.name: SPARK_TYPES[column.type] for column in TABLES["connections"].columns}
    first = dict.fromkeys(names) | {
        "connection_id": 3, "protocol": "pulsar", "started": "syn", "ended": "capture_end",
        "first_ts_ns": 10, "last_ts_ns": 20, "packets_to_broker": 5, "client_version": "x",
    }  # fmt: skip
    second = dict.fromkeys(names) | {
        "connection_id": 0, "protocol": "none", "started": "midstream", "ended": "fin",
        "first_ts_ns": 20, "last_ts_ns": 30, "packets_to_broker": 2, "ended_packet": 9,
    }  # fmt: skip
    schema = ", ".join(f"`{name}` {kinds[name].simpleString()}" for name in names)
    schema += ", rank bigint, head_capture string, head_connection_id bigint"
    rows = [(*row.values(), rank, "a", 3) for rank, row in enumerate((first, second))]
    (found,) = merged_connections(spark.createDataFrame(rows, schema)).collect()
    assert (found["capture"], found["connection_id"], found["protocol"]) == ("a", 3, "pulsar")
    assert (found["started"], found["ended"], found["ended_packet"]) == ("syn", "fin", 9)
    assert (found["first_ts_ns"], found["last_ts_ns"]) == (10, 30)
    assert found["packets_to_broker"] == 7 and found["client_version"] == "x"
