"""Arrow columns as lists of Python values, read directly from the buffers.

`to_pylist` creates an Arrow object for every cell and takes several times as long; `to_numpy`
imports pandas.
"""

from datetime import UTC, datetime, timedelta
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.schemas.builders import bits_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def plain_values(column: pa.Array) -> list[Any]:
    """The same list as `column.to_pylist()`, faster."""
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
    values: list[Any]
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        values = _texts(column, is_text=pa.types.is_string(kind))
    elif pa.types.is_boolean(kind):
        packed = np.frombuffer(column.buffers()[1], np.uint8)
        bits = np.unpackbits(packed, bitorder="little")[column.offset :][: len(column)]
        values = bits.astype(np.bool_).tolist()
    elif pa.types.is_integer(kind):
        bytes_each = kind.bit_width // 8
        letter = "i" if pa.types.is_signed_integer(kind) else "u"
        end = column.offset + len(column)
        numbers = np.frombuffer(column.buffers()[1], f"<{letter}{bytes_each}", end)
        values = numbers[column.offset :].tolist()
    else:
        return list(column.to_pylist())
    if not column.null_count:
        return values
    validity = bits_of(column).tolist()
    return [value if is_valid else None for value, is_valid in zip(values, validity, strict=True)]


def column_values(column: pa.ChunkedArray) -> list[Any]:
    """The same list as `column.to_pylist()`, faster, for a column of several chunks."""
    return [*chain.from_iterable(map(plain_values, column.chunks))]


def plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The same list as `table.to_pylist()`, faster."""
    columns = map(column_values, table.columns)
    rows = zip(*columns, strict=True)
    names = table.column_names  # the property builds a new list at each access
    return [dict(zip(names, row, strict=True)) for row in rows]


def _texts(column: pa.Array, *, is_text: bool) -> list[Any]:
    """The strings or bytes of a column; nulls are empty."""
    _, bounds, data = column.buffers()
    first = column.offset
    ends = np.frombuffer(bounds, np.int32, first + len(column) + 1)[first:].tolist()
    content = b"" if data is None else data.to_pybytes()
    if not is_text:
        return [content[start:stop] for start, stop in pairwise(ends)]
    if content.isascii():
        text = content.decode("ascii")
        return [text[start:stop] for start, stop in pairwise(ends)]
    return [content[start:stop].decode() for start, stop in pairwise(ends)]
