"""Spark as the engine of reports: the same tables, functions and views as DuckDB's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.errors import InputError
from dissector.queries.catalogue import SharedView
from dissector.queries.duckdb_engine import DuckdbEngine, parquet_files
from dissector.schemas.arrow import arrow_schema
from dissector.spark import engine
from dissector.spark.engine import SparkEngine, reads_of
from dissector.spark.session import SMALL_LAKE_ROWS
from tests.dissector.queries import test_functions, test_selection


@pytest.fixture
def db(spark: Any, tmp_path: Path) -> Iterator[SparkEngine]:
    with SparkEngine(spark, tmp_path / "work") as found:
        yield found


def test_functions_are_those_of_the_other_engine(db: SparkEngine) -> None:
    test_functions.check_buckets(db)
    test_functions.check_others(db)


def test_selections_leave_what_they_leave_on_the_other_engine(db: SparkEngine) -> None:
    test_selection.check_times(db)
    test_selection.check_topics(db)
    test_selection.check_clients(db)
    test_selection.check_subscriptions(db)


def test_files_are_read_by_their_names_whatever_stands_in_them(
    db: SparkEngine, tmp_path: Path
) -> None:
    """Names that are patterns, addresses or percent-encoded to somebody; files without rows."""
    with DuckdbEngine() as writer:
        rows = pa.table({"capture": ["a"], "frame_no": [7]})
        writer.register("rows", rows)
        paths = []
        for name in ("plain", "[a-b]*{x}?", "50%20 off", "a:b=c", "ümlaut"):
            folder = tmp_path / name
            folder.mkdir()
            writer.write({"part": "SELECT * FROM rows"}, folder)
            paths += parquet_files(folder, "part")
    db.parquet_table("found", paths, rows.schema)
    assert db.table("SELECT * FROM found").to_pylist() == rows.to_pylist() * len(paths)
    db.parquet_table("found", [], rows.schema)
    assert db.table("SELECT * FROM found").num_rows == 0
    db.lake_table("frames", paths[:1], [], arrow_schema("frames").empty_table())
    (row,) = db.table("SELECT frame_no, topic FROM lake_frames").to_pylist()
    assert row == {"frame_no": 7, "topic": None}


def test_a_damaged_file_is_an_error_of_input(db: SparkEngine, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 and nothing else")
    db.parquet_table("bad", [str(tmp_path / "bad.parquet")], pa.schema({"n": pa.int64()}))
    with pytest.raises(InputError, match="cannot be read, dissector lake verify tells which"):
        db.table("SELECT * FROM bad")
    with pytest.raises(InputError, match="cannot be read"):
        db.write({"copy": "SELECT * FROM bad"}, tmp_path)


def test_views_that_are_read_twice_are_written_down_once(
    db: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = (
        SharedView("base", "a number", "SELECT n FROM numbers"),
        SharedView("once", "one", "SELECT n FROM base WHERE n > 1"),
        SharedView("unread", "nothing reads it", "SELECT no_such_column FROM base"),
    )
    monkeypatch.setattr(engine, "shared_views", lambda: views)
    db.register("numbers", pa.table({"n": [1, 2, 3]}))
    db.write({"a": "SELECT n FROM once", "b": "SELECT sum(n) AS n FROM base"}, tmp_path / "out")
    assert [path.name for path in (tmp_path / "work" / "settled-0").iterdir()] == ["base"]
    with DuckdbEngine() as reader:
        for name, expected in (("a", [2, 3]), ("b", [6])):
            reader.parquet_table(
                "rows", parquet_files(tmp_path / "out", name), pa.schema({"n": pa.int64()})
            )
            assert sorted(reader.table("FROM rows").column("n").to_pylist()) == expected
    assert reads_of("base", "FROM base AS b\nJOIN base ON based = base.n, bases") == [
        "FROM base", "JOIN base",
    ]  # fmt: skip


@pytest.mark.parametrize(("rows", "settled"), [(3, ["numbers"]), (10**7, [])])
def test_views_of_tables_are_written_down_where_rows_are_few(
    db: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, settled: list[str]
) -> None:
    monkeypatch.setattr(engine, "shared_views", lambda: ())
    db.expect(rows)
    db.register("lake_numbers", pa.table({"n": [1, 2, 3]}))
    db.view("numbers", "SELECT n FROM lake_numbers WHERE n > 1")
    tables = db.tables({"a": "SELECT n FROM numbers", "b": "SELECT sum(n) AS n FROM numbers"})
    assert [tables[name].column("n").to_pylist() for name in "ab"] == [[2, 3], [5]]
    work = tmp_path / "work"
    assert sorted(path.name for path in work.glob("settled-*/*")) == settled
    db.shared_views()  # tables are named again
    db.register("lake_numbers", pa.table({"n": [7]}))
    db.view("numbers", "SELECT n FROM lake_numbers")
    assert db.tables({"a": "SELECT n FROM numbers JOIN numbers AS m USING (n)"})["a"].num_rows == 1


def test_no_file_of_a_large_lake_becomes_a_hash_table_of_every_task(
    db: SparkEngine, tmp_path: Path
) -> None:
    """18 bytes of a file are 300 there: what looks small by its bytes fills the memory."""
    with DuckdbEngine() as writer:
        writer.write({"part": "SELECT range AS id FROM range(1000)"}, tmp_path)
    path = parquet_files(tmp_path, "part")
    for rows, is_shared in ((SMALL_LAKE_ROWS, False), (SMALL_LAKE_ROWS - 1, True)):
        db.expect(rows)
        for name in ("one", "other"):
            db.parquet_table(name, path, pa.schema([("id", pa.int64())]))
        (plan,) = db.table("EXPLAIN SELECT count(*) FROM one JOIN other USING (id)").to_pylist()
        assert ("BroadcastHashJoin" in plan["plan"]) == is_shared, plan["plan"]


def test_tasks_run_a_function_each(db: SparkEngine) -> None:
    assert db.each(len, ["a", "bb", ""]) == [1, 2, 0]
    assert db.each(len, []) == []


def test_what_is_wrong_with_a_file_of_a_task_is_an_error_of_input(db: SparkEngine) -> None:
    with pytest.raises(InputError, match=r"^capture 2 cannot be read$"):
        db.each(unreadable, [1, 2, 3])


def unreadable(number: int) -> int:
    if number == 2:
        raise InputError("capture 2 cannot be read")
    return number
