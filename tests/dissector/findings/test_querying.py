"""Rules as queries of reports: whatever the rows are, and with packets."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissector.findings.querying import rule_queries, with_packets, write_incidents
from dissector.queries.duckdb_engine import DuckdbEngine
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema
from tests.dissector.report.made import RandomCapture, batch
from tests.numbers import Numbers

ODD = (None, 0, 1, -1, 2, 7, (1 << 63) - 1, -(1 << 63))
NAMES = (None, "", "a", "persistent://t/n/x", "\x1b[2J<b>", "MESSAGE", "SEND", "ok", "publish")


def odd_rows(seed: int) -> Numbers:
    """Rows of all tables that no program wrote."""
    generator, numbers = random.Random(seed), Numbers()

    def cell(kind: pa.DataType) -> Any:
        if pa.types.is_int64(kind):
            return generator.choice(ODD)
        if pa.types.is_boolean(kind):
            return generator.choice((None, True, False))
        if pa.types.is_string(kind):
            return generator.choice(NAMES)
        return generator.choice((None, -1, 10**15)) if pa.types.is_timestamp(kind) else None

    for table in TABLES:
        schema = arrow_schema(table)
        rows = [{field.name: cell(field.type) for field in schema} for _ in range(40)]
        numbers.add(table, pa.Table.from_pylist(rows, schema))
    return numbers


def likely_rows(seed: int) -> Numbers:
    """Rows of a capture in which everything occurs that reports tell apart."""
    numbers = Numbers()
    for name, rows in RandomCapture(seed).tables.items():
        numbers.add(name, batch(name, rows))
    return numbers


@pytest.mark.parametrize("seed", range(6))
def test_rows_that_nobody_wrote_make_no_rule_raise(seed: int) -> None:
    db = odd_rows(seed).opened()
    tables = db.tables({name: query.text for name, query in rule_queries().items()})
    assert tables.keys() == rule_queries().keys()
    assert [name for name, rows in tables.items() if "problem" in rows.column_names] == []
    with_packets(db, tables)


def asked_of(db: DuckdbEngine, names: Iterable[str]) -> set[str]:
    """The rules that are asked, since what their front matter needs is there."""
    needs = {name: rule_queries()[name].needs for name in names}
    tables = db.tables(dict.fromkeys(needs, "SELECT 1 AS one"), needs)
    return {name for name, rows in tables.items() if rows.num_rows}


def test_a_rule_needs_a_row_of_any_of_its_tables() -> None:
    rules = ("finding_d15", "finding_d16", "finding_d30")
    needs = {name: {"finding_d15", "finding_d30"} for name in ("seen", "unsent")}
    needs["neither"] = {"finding_d30"}
    for case, expected in needs.items():
        with DuckdbEngine() as db:
            kind, attempts = ("publish", 2) if case == "seen" else ("request", None)
            topics = ["t"] if case == "unsent" else []
            db.register("exchange_kinds", pa.table({
                "kind": [kind], "most_attempts": pa.array([attempts], pa.int64()),
                "outcome": ["ok"],
            }))  # fmt: skip
            db.register("unsent_topics", pa.table({"topic": pa.array(topics, pa.string())}))
            assert asked_of(db, rules) == expected


def test_where_nobody_can_tell_what_rules_need_all_are_asked() -> None:
    with DuckdbEngine() as db:
        assert asked_of(db, rule_queries()) == rule_queries().keys()


def test_a_rule_that_fails_says_why_and_others_go_on() -> None:
    with DuckdbEngine() as db:
        good = "SELECT 'c' AS capture"
        tables = db.tables({"finding_bad": "SELECT no_such", "finding_good": good})
        (row,) = tables["finding_bad"].to_pylist()
        assert row["capture"] is None and "no_such" in row["problem"]
        assert tables["finding_good"].num_rows == 1


def test_packets_stand_beside_frames_in_memory_and_in_files(tmp_path: Path) -> None:
    frames = pa.table({"capture": ["c", "c", "d"], "frame_no": [7, 8, 7], "last_packet": [1, 2, 3]})
    incidents = pa.table({"capture": ["c", "d"], "frame_first": [7, 7], "frame_last": [8, None]})
    with DuckdbEngine() as db:
        db.register("frames", frames)
        db.register("connections", pa.table({"protocol": ["pulsar", "tls"]}))
        found = with_packets(db, {"finding_x": incidents, "other": frames})
        assert found["other"] is frames
        assert found["finding_x"].column("packet_first").to_pylist() == [1, 3]
        assert found["finding_x"].column("packet_last").to_pylist() == [2, None]
        query = "SELECT 'c' AS capture, 8 AS frame_first"
        queries = {"finding_d01": query, "finding_c01": "SELECT no_such", "other": "SELECT 1"}
        write_incidents(db, queries, tmp_path)
    # Nobody speaks Cursus, so its rule is not asked.
    assert pq.read_table(tmp_path / "finding_c01.parquet").num_rows == 0
    assert {file.stem for file in tmp_path.iterdir()} == {"finding_d01", "finding_c01"}
    (row,) = pq.read_table(tmp_path / "finding_d01.parquet").to_pylist()
    assert row == {"capture": "c", "frame_first": 8, "packet_first": 2}
