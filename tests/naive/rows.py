"""Rows of a block one by one as Python values: the slow twin of dissector.schemas.rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from dissector.blocks import Coded, Lists, Spans, TableBlock
from dissector.limits import NULL
from dissector.schemas import TABLES

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def plain_rows(block: TableBlock) -> list[dict[str, Any]]:
    """Every row with all columns of its table."""
    return [
        {
            column.name: _typed(_value(block.columns.get(column.name), row), column.type)
            for column in TABLES[block.table].columns
        }
        for row in range(block.rows)
    ]


def _value(values: Any, row: int) -> Any:
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        return None if values[row] == NULL else int(values[row])
    if isinstance(values, Coded):
        return None if values.codes[row] < 0 else values.names[int(values.codes[row])]
    if isinstance(values, Spans):
        if values.lengths[row] < 0:
            return None
        start = int(values.starts[row])
        data = values.data[start : start + int(values.lengths[row])].tobytes()
        return data.hex() if values.is_hex else data
    if isinstance(values, Lists):
        if values.counts[row] < 0:
            return None
        start = int(values.starts[row])
        return values.values[start : start + int(values.counts[row])].tolist()
    return values[row]


def _typed(value: Any, kind: str) -> Any:
    if value is None:
        return None
    if kind == "boolean":
        return value != 0
    if kind == "timestamp[us, UTC]":
        return _EPOCH + timedelta(microseconds=value // 1000)
    if kind == "string":
        return escaped(value)
    if kind.startswith("map"):
        return [(escaped(k), escaped(v) if "string>" in kind else v) for k, v in value.items()]
    if kind == "array<string>":
        return [escaped(text) for text in value]
    return list(value) if kind == "array<bigint>" else value


def escaped(value: bytes | str) -> str:
    """Text with the bytes that are not UTF-8, one at a time, as \\xNN."""
    if isinstance(value, str):
        return value
    out = ""
    while value:
        for length in (1, 2, 3, 4):
            try:
                out += value[:length].decode()
            except UnicodeDecodeError:
                continue
            value = value[length:]
            break
        else:
            out += f"\\x{value[0]:02x}"
            value = value[1:]
    return out
