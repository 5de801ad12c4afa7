"""Columns of Arrow as lists of Python values.

`to_pylist` makes an object of Arrow for every cell first, which takes several times as long.
"""

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def plain_values(column: pa.Array) -> list[Any]:
    """What `column.to_pylist()` gives."""
    kind = column.type
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_dictionary(kind):
        words = [*plain_values(column.dictionary), None]
        return [words[each] for each in _numbers(column.indices, len(words) - 1)]
    if kind == pa.timestamp("us", "UTC"):
        return [
            None if each is None else _EPOCH + timedelta(microseconds=each)
            for each in plain_values(column.cast(pa.int64()))
        ]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return list(column.to_numpy(zero_copy_only=False).tolist())
    if not (pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return list(column.to_pylist())
    values = _numbers(column, 0)
    if not column.null_count:
        return values
    is_there = column.is_valid().to_numpy(zero_copy_only=False).tolist()
    return [value if there else None for value, there in zip(values, is_there, strict=True)]


def _numbers(column: pa.Array, null: int) -> list[Any]:
    """The numbers or truths of a column, this one in the place of nulls."""
    if column.null_count:
        column = column.fill_null(pa.scalar(null).cast(column.type))
    return list(column.to_numpy(zero_copy_only=False).tolist())
