"""The functions that DuckDB is given are those of this program, and what it wrote is found."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dissector.buckets import buckets_of
from dissector.queries.duckdb_engine import DuckdbEngine, parquet_files

EDGES = sorted(
    {0, 1, 63, 64, 65, 2**63 - 1, -1, -(2**62)}
    | {(1 << power) + more for power in range(5, 63) for more in (-2, -1, 0, 1, 2)}
    | {(k << power) + more for power in range(63 - 6) for k in range(32, 64) for more in (-1, 0)}
)


@pytest.fixture(scope="module")
def db():
    with DuckdbEngine(threads=1) as found:
        found.register("numbers", pa.table({"a": [*EDGES, None]}))
        yield found


def test_buckets_are_those_of_the_command_line(db):
    found = db.table("SELECT a, histogram_bucket(a) AS bucket FROM numbers").to_pylist()
    wanted = dict(zip(EDGES, buckets_of(np.asarray(EDGES, np.int64)).tolist(), strict=True))
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
