"""The queries of docs/lake.md over sample captures: they run, and what they say was so."""

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

from dissector.lake.queries import JOINS, QUERIES, VIEW
from dissector.lake.reader import open_lake
from dissector.schemas import TABLES
from tests.dissector.lake.samples import CAPTURES, compacted, landed

SAMPLES = (
    "pulsar-apache/java-j12_nack.pcap",
    "pulsar-apache/java-j23_errors.pcap",
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/java-j40_slow_consumer.pcap",
    "pulsar-apache/java-j74_corrupt.pcap",
)
NACKS = "persistent://public/default/j12"
Row = dict[str, Any]


def rows_of(lake: Path) -> dict[str, list[Row]]:
    """What each query gives."""
    connection = duckdb.connect()
    for table in TABLES:
        connection.execute(VIEW.format(table=table, lake=lake))
    rows = {}
    for query in QUERIES:
        cursor = connection.execute(query.sql)
        names = [column[0] for column in cursor.description or ()]
        rows[query.name] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return rows


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield landed(tmp_path_factory.mktemp("queries") / "lake", SAMPLES)


@pytest.fixture(scope="module")
def answers(lake: Path) -> dict[str, list[Row]]:
    return rows_of(lake)


@pytest.fixture(scope="module")
def nacks() -> dict[str, list[Row]]:
    """What the clients of a sample logged, by the kind of event."""
    path = CAPTURES / "pulsar-apache" / "java-j12_nack.events.jsonl.gz"
    events: dict[str, list[Row]] = {}
    for line in gzip.decompress(path.read_bytes()).splitlines():
        event = json.loads(line)
        events.setdefault(event["ev"], []).append(event)
    return events


def test_there_are_ten_and_each_finds_something(answers: dict[str, list[Row]]) -> None:
    assert len({query.name for query in QUERIES}) == len(QUERIES) == len(answers) >= 10
    assert [name for name, rows in answers.items() if not rows] == []


def test_they_give_the_same_when_the_lake_is_compacted(
    lake: Path, answers: dict[str, list[Row]], tmp_path: Path
) -> None:
    again = rows_of(compacted(lake, tmp_path / "group"))
    for name, rows in answers.items():
        assert Counter(map(str, again[name])) == Counter(map(str, rows)), name


def test_sends_are_those_that_the_client_logged(
    answers: dict[str, list[Row]], nacks: dict[str, list[Row]]
) -> None:
    (topic,) = (row for row in answers["latency"] if row["topic"] == NACKS)
    (producer,) = (row for row in answers["names"] if row["topic"] == NACKS)
    sends = nacks["send"]
    assert topic["sends"] == producer["messages"] == len(sends)
    assert producer["payload_bytes"] == sum(event["len"] for event in sends)
    assert producer["producer"] == sends[0]["producer"]
    # The client's clock starts before the first byte is on the wire, and stops after the answer.
    assert topic["p50_ms"] <= topic["p99_ms"] <= topic["max_ms"] <= max(e["lat_ms"] for e in sends)
    of_client = {(event["topic"], event["seq"]): event["lat_ms"] for event in sends}
    slow = [row for row in answers["slowest"] if row["topic"] == NACKS]
    for row in slow:
        assert row["latency_ms"] <= of_client[row["topic"], row["sequence_id"]]
        assert row["send_packet"] < row["receipt_packet"]


def test_deliveries_are_those_that_the_client_logged(
    answers: dict[str, list[Row]], nacks: dict[str, list[Row]]
) -> None:
    journeys = [row for row in answers["journey"] if row["topic"] == NACKS]
    acked = {f"{row['ledger_id']}:{row['entry_id']}:-1" for row in journeys}
    assert acked == {event["mid"] for event in nacks["ack"]} and len(journeys) == len(acked)
    again = [row for row in answers["again"] if row["topic"] == NACKS]
    assert len(again) == len(nacks["nack"])
    assert {row["redelivery_cause"] for row in again} == {"explicit"}
    held = [row for row in answers["unacked"] if row["topic"] == NACKS]
    assert sum(row["entries"] for row in held) == len(nacks["nack"])
    assert {row["outcome"] for row in held} == {"redelivery_requested"}


def test_sums_are_those_of_the_manifests(lake: Path, answers: dict[str, list[Row]]) -> None:
    with open_lake(lake) as opened:
        rows = sum(capture.rows()["exchanges"] for capture in opened.captures)
        damaged = opened.table("frames", ["checksum"]).column(0).to_pylist().count("mismatch")
    assert sum(row["exchanges"] for row in answers["outcomes"]) == rows
    refused = sum(row["exchanges"] for row in answers["outcomes"] if row["outcome"] == "error")
    assert sum(row["times"] for row in answers["errors"]) == refused > 0
    assert len(answers["checksums"]) == damaged > 0
    # One file per capture: its numbers are the capture's.
    assert all(row["packet_of_file"] > 0 for row in answers["checksums"])
    assert all(row["seconds"] >= 0 for row in answers["starved"])


def test_joins_name_tables_and_columns_that_are_there() -> None:
    for join in JOINS:
        tables = join.table.replace("all but capture_files", "frames").replace("all", "notices")
        for table in tables.split(", "):
            columns = {column.name for column in TABLES[table].columns}
            assert set(join.by.replace(" or ", ", ").split(", ")) <= columns, join
        assert join.to.replace(",", " ").replace(":", " ").split()[0] in TABLES


@pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable"])
def test_pandas_keeps_digits_with_types_that_hold_nulls(lake: Path, backend: Any) -> None:
    with open_lake(lake) as opened:
        exact = opened.table("exchanges", ["response_last_ns"]).column(0).to_pylist()
    assert None in exact
    folder = lake / "exchanges"
    rounded = pd.read_parquet(folder)["response_last_ns"]
    assert rounded.dtype == "float64"
    known = rounded.dropna().astype("int64").tolist()
    assert Counter(known) != Counter(value for value in exact if value is not None)
    kept = pd.read_parquet(folder, dtype_backend=backend)["response_last_ns"]
    assert Counter(kept.dropna().tolist()) == Counter(v for v in exact if v is not None)
    assert kept.isna().sum() == exact.count(None)
