"""Rows of tables as Python values, made column by column.

`to_pylist` makes an object of Arrow for every cell first: with a hundred columns, most of them
empty, that took longer than to dissect the capture did.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from dissector.blocks import TableBlock
from dissector.schemas.rows import arrow_batch

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain_values(column: pa.Array) -> list[Any]:
    """What `column.to_pylist()` gives."""
    kind = column.type
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_dictionary(kind):
        words = plain_values(column.dictionary)
        return [None if each is None else words[each] for each in plain_values(column.indices)]
    if kind == pa.timestamp("us", "UTC"):
        return [
            None if each is None else _EPOCH + timedelta(microseconds=each)
            for each in plain_values(column.cast(pa.int64()))
        ]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return list(column.to_pylist())
    values = column.fill_null(pa.scalar(0).cast(kind)).to_numpy(zero_copy_only=False).tolist()
    if not column.null_count:
        return list(values)
    is_there = column.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [value if there else None for value, there in zip(values, is_there, strict=True)]


def plain_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """What `rows.to_pylist()` gives."""
    names = rows.schema.names
    columns = map(plain_values, rows.columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def rows_of_block(block: TableBlock) -> list[dict[str, Any]]:
    """The rows of a block of any table."""
    return plain_rows(arrow_batch(block))
