"""The functions that DuckDB is given are those of this program, and what it wrote is found."""

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from dissector.buckets import bucket_of
from dissector.queries.catalogue import shared_views
from dissector.queries.duckdb_engine import FEW_ROWS, DuckdbEngine, parquet_files

EDGES = sorted(
    {0, 1, 63, 64, 65, 2**63 - 1, -1, -(2**62)}
    | {(1 << power) + more for power in range(5, 63) for more in (-2, -1, 0, 1, 2)}
    | {(k << power) + more for power in range(63 - 6) for k in range(32, 64) for more in (-1, 0)}
)


@pytest.fixture(scope="module")
def db():
    with DuckdbEngine(threads=1) as engine:
        engine.register("numbers", pa.table({"a": [*EDGES, None]}))
        yield engine


def test_buckets_are_those_of_the_command_line(db):
    found = db.table("SELECT a, histogram_bucket(a) AS bucket FROM numbers").to_pylist()
    wanted = dict(zip(EDGES, map(bucket_of, EDGES), strict=True))
    assert len(found) == len(EDGES) + 1
    for row in found:
        a = row["a"]
        assert row["bucket"] == (wanted[a] if a is not None and a >= 0 else None), a


@pytest.mark.parametrize("divisor", [1, 7, 60_000_000_000])
def test_division_is_rounded_down(db, divisor):
    for row in db.table(f"SELECT a, floor_div(a, {divisor}) AS b FROM numbers").to_pylist():
        assert row["b"] == (None if row["a"] is None else row["a"] // divisor)


def test_one_file_many_files_and_none(tmp_path: Path) -> None:
    (tmp_path / "one.parquet").touch()
    (tmp_path / "many").mkdir()
    for name in ("b.parquet", "a.parquet", "_SUCCESS"):
        (tmp_path / "many" / name).touch()
    assert parquet_files(tmp_path, "one") == [str(tmp_path / "one.parquet")]
    names = ("a.parquet", "b.parquet")
    assert parquet_files(tmp_path, "many") == [str(tmp_path / "many" / name) for name in names]
    assert parquet_files(tmp_path, "none") == []


@pytest.mark.parametrize("rows", [1, FEW_ROWS + 1], ids=["few", "many"])
def test_views_of_the_caller_read_those_that_queries_share(rows: int) -> None:
    legs = pa.table({"capture": ["c"], "connection_id": [1], "leg": ["broker"],
                     "twin_connection_id": [2]})  # fmt: skip
    twins = next(view for view in shared_views() if view.name == "twins")
    with DuckdbEngine() as db:
        db.expect(rows)
        db.register("legs", legs)
        db.shared_views([twins])
        db.view("mine", "SELECT connection_id + 1 AS next FROM twins")
        assert db.table("SELECT next FROM mine").to_pylist() == [{"next": 2}]
        assert db.tables({"own": "SELECT count(*) AS n FROM twins"})["own"].to_pylist() == [
            {"n": 1}
        ]


def test_queries_that_run_at_the_same_time_are_told_apart_and_in_utc() -> None:
    with DuckdbEngine(threads=2) as db:
        db.expect(1)
        texts = {f"of {n}": f"SELECT {n} AS n, current_setting('TimeZone') AS z" for n in range(20)}
        tables = db.tables(texts)
    assert [*tables] == [*texts]
    assert [tables[name].to_pylist() for name in texts] == [
        [{"n": n, "z": "UTC"}] for n in range(20)
    ]


def test_queries_of_one_thread_run_in_the_thread_that_asks(monkeypatch) -> None:
    """A tap limits the processor time of its rules' thread, and cannot see that of others."""
    ran: set[int] = set()
    rows = DuckdbEngine._rows

    def noted(self: DuckdbEngine, query: str) -> pa.Table:
        ran.add(threading.get_ident())
        return rows(self, query)

    monkeypatch.setattr(DuckdbEngine, "_rows", noted)
    with DuckdbEngine(threads=1) as engine:
        engine.tables({"one": "SELECT 1 AS a", "two": "SELECT 2 AS a"})
    assert ran == {threading.get_ident()}
