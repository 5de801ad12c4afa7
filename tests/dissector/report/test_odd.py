"""Odd rows are odd in every way that engines must agree about, within the schema."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dissector.schemas import TABLES
from dissector.schemas.column import NEVER
from tests.dissector.report.made import RandomCapture
from tests.dissector.report.odd import ODD_TEXTS, OddTables, odd_captures, odd_lake

SEEDS = range(4)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_never_null_is_not_and_the_lake_can_be_written(seed: int, tmp_path: Path) -> None:
    never = {
        name: [c.name for c in table.columns if c.null == NEVER] for name, table in TABLES.items()
    }
    plain = RandomCapture(seed).tables
    odd = OddTables(plain, seed).tables
    for table, rows in odd.items():
        given = {name for row in plain[table] for name in row if row[name] is not None}
        for name in given.intersection(never[table]):
            lacking = [row for row in plain[table] if row.get(name) is None]
            assert lacking or all(row.get(name) is not None for row in rows), (table, name)
    lake = odd_lake(tmp_path / "lake", seed)
    parts = list((lake / "exchanges").glob("*/*/*.parquet"))
    assert len(parts) == 3 and all(pq.ParquetFile(part).metadata.num_rows > 50 for part in parts)


def test_all_kinds_of_oddities_are_there() -> None:
    done: dict[str, int] = {}
    for seed in SEEDS:
        for (_, kind), count in OddTables(RandomCapture(seed).tables, seed).done.items():
            done[kind] = done.get(kind, 0) + count
    assert sorted(done) == ["double", "late name", "missing", "moved", "null", "odd", "swapped"]
    assert min(done.values()) >= 5
    captures = [tables for seed in SEEDS for tables in odd_captures(seed).values()]
    texts = {row.get("topic") for tables in captures for row in tables["exchanges"]}
    assert len(texts.intersection(ODD_TEXTS)) > 3
    latencies = [row["latency_ns"] for tables in captures for row in tables["exchanges"]]
    assert min(each for each in latencies if each is not None) < 0
    assert {row["protocol"] for tables in captures for row in tables["connections"]} >= {
        "pulsar", "cursus",
    }  # fmt: skip


def test_a_seed_gives_the_same_rows() -> None:
    assert odd_captures(1) == odd_captures(1) != odd_captures(2)
