"""Folders of a lake as an engine's own tables: stated columns have the types of files."""

from pathlib import Path
from typing import Any

import duckdb

from dissector.lake.document import hive_columns
from dissector.schemas import TABLES
from tests.dissector.lake.samples import landed


def test_stated_columns_read_what_files_hold(spark: Any, tmp_path: Path) -> None:
    """Spark takes the types that Hive and Athena do; a type that is not a file's fails to read."""
    lake = landed(tmp_path / "lake")
    for table in TABLES:
        name = f"stated_{table}"
        columns = ", ".join(hive_columns(table))
        spark.sql(
            f"create table {name} ({columns}, day date, landing string) using parquet "
            f"partitioned by (day, landing) location 'file://{lake}/{table}'"
        )
        try:
            spark.sql(f"msck repair table {name}")
            read = spark.sql(f"select * from {name}").toArrow()
        finally:
            spark.sql(f"drop table {name}")
        files = f"read_parquet('{lake}/{table}/*/*/*.parquet', hive_partitioning = true)"
        numbers = [c.name for c in TABLES[table].columns if c.type == "bigint"]
        sums = ", ".join(f"sum({each}::hugeint)::varchar" for each in (*numbers, "len(landing)"))
        counts = ", ".join(f"count({c.name})" for c in TABLES[table].columns)
        asked = f"select count(*), min(day), max(day), {sums}, {counts}"
        wanted = duckdb.sql(f"{asked} from {files}").fetchall()
        assert read.num_rows and duckdb.sql(f"{asked} from read").fetchall() == wanted, table
