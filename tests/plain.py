"""Rows of tables as Python values, made column by column.

`to_pylist` makes an object of Arrow for every cell first: with a hundred columns, most of them
empty, that took longer than to dissect the capture did.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Coded, Column, Lists, Spans, TableBlock
from dissector.limits import NULL
from dissector.queries.plain_values import plain_values
from dissector.schemas import TABLES
from dissector.schemas.text import plain_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """What `rows.to_pylist()` gives."""
    names = rows.schema.names
    columns = map(plain_values, rows.columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def rows_of_block(block: TableBlock) -> list[dict[str, Any]]:
    """The rows of a block of any table: what its record batch holds, without one.

    A batch of a small capture costs as much as to dissect it.
    """
    columns = _kinds(block.table)
    assert block.columns.keys() <= columns.keys()
    cells = [
        _cells(kind, block.columns[name], block.rows)
        if name in block.columns
        else repeat(None, block.rows)
        for name, kind in columns.items()
    ]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


@cache
def _kinds(table: str) -> dict[str, str]:
    """The kinds of a table's columns, by name."""
    return {column.name: column.type for column in TABLES[table].columns}


def _cells(kind: str, column: Column, rows: int) -> list[Any]:
    """The first rows of a column of a block."""
    if isinstance(column, Coded):
        codes = column.codes[:rows].tolist()
        texts = {code: plain_text(column.names[code]) for code in {*codes} if code >= 0}
        return [texts.get(code) for code in codes]
    if isinstance(column, Spans | Lists):
        data = column.data if isinstance(column, Spans) else column.values
        counts = column.lengths if isinstance(column, Spans) else column.counts
        spans = zip(column.starts[:rows].tolist(), counts[:rows].tolist(), strict=True)
        parts = [None if size < 0 else data[start : start + size] for start, size in spans]
        if isinstance(column, Lists):
            return [None if part is None else part.tolist() for part in parts]
        wire = [None if part is None else part.tobytes() for part in parts]
        shown = bytes.hex if column.is_hex else plain_text
        return [None if text is None else shown(text) for text in wire]
    value_of = _VALUES[kind]
    if not isinstance(column, np.ndarray):
        return [None if value is None else value_of(value) for value in column[:rows]]
    values = column[:rows].tolist()
    if value_of is int and column.dtype == np.int64:  # that is what they are already
        return [None if value == NULL else value for value in values] if NULL in values else values
    return [None if value == NULL else value_of(value) for value in values]


_VALUES: Final[dict[str, Callable[[Any], Any]]] = {
    "bigint": int,
    "boolean": bool,
    "timestamp[us, UTC]": lambda ns: _EPOCH + timedelta(microseconds=ns // 1000),
    "string": plain_text,
    "array<bigint>": list,
    "array<string>": lambda texts: [*map(plain_text, texts)],
    "map<string,bigint>": lambda pairs: [
        (plain_text(key), value) for key, value in dict(pairs).items()
    ],
    "map<string,string>": lambda pairs: [
        (plain_text(key), plain_text(value)) for key, value in dict(pairs).items()
    ],
}
