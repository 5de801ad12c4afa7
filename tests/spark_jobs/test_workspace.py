"""The folder for rows that are read several times."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.errors import OutputError
from spark_jobs.workspace import SMALL_BYTES, workspace


@pytest.mark.parametrize("lake_bytes", [0, SMALL_BYTES], ids=["small", "large"])
def test_rows_come_back_with_their_types_and_nothing_is_left(
    spark: Any, tmp_path: Path, lake_bytes: int
) -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    given = spark.createDataFrame(
        [(1, None, [2, 3], (5, "y"), at, {"k": "v"}), (4, "x", None, None, None, None)],
        "a bigint, b string, c array<bigint>, d struct<e:int,f:string>, g timestamp, "
        "h map<string,string>",
    )
    with workspace(tmp_path / "deep" / "report", lake_bytes) as work:
        found = work.all_settled({"one": given, "none": given.limit(0)}, "some/")
        assert found["one"].schema == given.schema
        assert sorted(found["one"].collect()) == sorted(given.collect())
        assert found["one"].where("h is not null").collect()[0]["g"] == given.collect()[0]["g"]
        assert found["none"].count() == 0
        assert list(work.folder("some/one").glob("*.parquet"))
    assert list((tmp_path / "deep").iterdir()) == []


def test_what_a_killed_run_left_is_removed_and_what_runs_is_not(tmp_path: Path) -> None:
    left = tmp_path / ".report.work.0123456789ab"
    left.mkdir()
    (left / "_lock").write_text("")
    with workspace(tmp_path / "report"):
        assert not left.exists()
        with workspace(tmp_path / "report"):
            assert len(list(tmp_path.iterdir())) == 2


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OutputError), workspace(tmp_path / "file" / "report"):
        pass
