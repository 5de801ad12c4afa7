"""Spark's types of the lake's columns."""

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed")

from dissector.schemas import TABLES
from dissector.spark.schemas import SPARK_TYPES, spark_schema


def test_every_column_of_the_lake_has_a_spark_type() -> None:
    for name, table in TABLES.items():
        assert [field.name for field in spark_schema(name)] == [
            column.name for column in table.columns
        ]
        assert all(column.type in SPARK_TYPES for column in table.columns)
