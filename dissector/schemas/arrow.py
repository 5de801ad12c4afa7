"""Arrow schemas of the tables, built on first use."""

from functools import cache
from typing import Final

import pyarrow as pa

from dissector.schemas.column import Column
from dissector.schemas.tables import OF_REPORTS, TABLES

ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "timestamp[us, UTC]": pa.timestamp("us", "UTC"),
    "array<bigint>": pa.list_(pa.field("element", pa.int64())),
    "array<string>": pa.list_(pa.field("element", pa.string())),
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
}
_CODED_TEXT: Final = pa.dictionary(pa.int32(), pa.string())


@cache
def arrow_schema(table: str) -> pa.Schema:
    """Return the schema of the files."""
    return pa.schema([(c.name, ARROW_TYPES[c.type]) for c in (TABLES | OF_REPORTS)[table].columns])


@cache
def in_memory_type(column: Column) -> pa.DataType:
    """Return the type of a column in our own batches: text that repeats is dictionary-coded.

    In Parquet files both types are the same string type.
    """
    if column.type == "string" and column.repeats:
        return _CODED_TEXT
    return ARROW_TYPES[column.type]


@cache
def in_memory_schema(table: str) -> pa.Schema:
    """Return the schema of the batches that `rows` builds."""
    return pa.schema([(c.name, in_memory_type(c)) for c in TABLES[table].columns])
