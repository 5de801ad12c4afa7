"""Rows of tables as Python values."""

from typing import Any

import pyarrow as pa

from dissector.blocks import TableBlock
from dissector.queries.plain_values import plain_values
from dissector.schemas.rows import arrow_batch


def plain_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """What `rows.to_pylist()` gives."""
    names = rows.schema.names
    columns = map(plain_values, rows.columns)
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def rows_of_block(block: TableBlock) -> list[dict[str, Any]]:
    """The rows of a block of any table."""
    return plain_rows(arrow_batch(block))
