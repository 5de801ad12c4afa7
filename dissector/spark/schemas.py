"""Spark schemas of the lake's tables, derived from `dissector.schemas`."""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from dissector.schemas import TABLES

SPARK_TYPES: Final[dict[str, DataType]] = {
    "bigint": LongType(),
    "boolean": BooleanType(),
    "string": StringType(),
    "timestamp[us, UTC]": TimestampType(),
    "array<bigint>": ArrayType(LongType()),
    "array<string>": ArrayType(StringType()),
    "map<string,bigint>": MapType(StringType(), LongType()),
    "map<string,string>": MapType(StringType(), StringType()),
}


def spark_schema(table: str) -> StructType:
    """The Spark schema of a table's files."""
    return StructType(
        [StructField(column.name, SPARK_TYPES[column.type]) for column in TABLES[table].columns]
    )
