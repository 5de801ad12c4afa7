"""Spark reads and writes here, whatever the default of its cluster is and folders are called."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.spark import uris
from tests.spark_jobs.conftest import default_elsewhere

NAMES = ("plain", "a b", "p%20q", "x[ab]y", "s{1,2}", "st*r", "q?", "n\u00e4chte-\u591c", "a:b",
         "h#h", "back\\slash", "c,d", "a+b&c=d")  # fmt: skip


def test_paths_are_of_files_here() -> None:
    assert uris.to_write("/a b/c%d") == "file:///a b/c%d"
    assert uris.to_read("/x[1]/*.parquet") == "file:///x\\[1\\]/\\*.parquet"
    assert uris.to_send("/a b/\u591c") == "file:///a%20b/%E5%A4%9C"
    assert uris.to_write("x") == f"file://{Path.cwd()}/x"


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_of_any_name_is_read_and_written(spark: Any, tmp_path: Path, name: str) -> None:
    folder = tmp_path / name / "landing=1"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"v": [1, 2]}), folder / "part-0.parquet")
    with default_elsewhere(spark):
        reader = spark.read.schema("v bigint").option("basePath", uris.to_write(tmp_path / name))
        rows = reader.parquet(uris.to_read(folder / "part-0.parquet"))
        rows.write.parquet(uris.to_write(tmp_path / name / "out"))
        assert spark.read.parquet(uris.to_read(tmp_path / name / "out")).count() == 2
    assert list((tmp_path / name / "out").glob("*.parquet"))
