"""Converts blocks of columns to Arrow record batches, through reused arrays.

Numbers, flags and codes of names are copied once, into arrays that live as long as the builder.
The Arrow arrays of a batch share them without a further copy, so a batch must be used before the
next row is appended. A column without any value so far costs one comparison per block.
"""

from collections.abc import Container, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Coded, Lists, Spans, TableBlock
from dissector.schemas.arrow import in_memory_schema
from dissector.schemas.builders import ColumnBuilder, ColumnValues, builder_for
from dissector.schemas.column import Table
from dissector.schemas.tables import TABLES

_FIXED: Final = (np.ndarray, Coded)  # columns whose values all have one size


class TableBuilder:
    """Collects rows of one table into record batches of at most `capacity` rows.

    Args:
        names: columns that blocks may have; None for all of the table.
    """

    def __init__(self, table: str, capacity: int, names: Container[str] | None = None) -> None:
        self.table: Table = TABLES[table]
        self.capacity = capacity
        self._begin()
        self._columns: dict[str, ColumnBuilder] = {
            column.name: builder_for(column, capacity)
            for column in self.table.columns
            if names is None or column.name in names
        }

    def _begin(self) -> None:
        self.rows = 0
        self._live: set[str] = set()  # columns that have a value so far

    @property
    def free_rows(self) -> int:
        """Number of rows that can be appended."""
        return self.capacity - self.rows

    def append(self, block: TableBlock, start: int, stop: int) -> None:
        """Append the rows [start, stop) of a block, at most `free_rows`."""
        assert block.table == self.table.name and stop - start <= self.free_rows
        unknown = block.columns.keys() - self._columns.keys()
        assert not unknown, f"{block.table} has no column {sorted(unknown)}"
        for name in self._live - block.columns.keys():
            self._columns[name].skip(self.rows, stop - start)
        for name, values in block.columns.items():
            builder = self._columns[name]
            builder.append(values, start, stop, self.rows)
            if builder.is_live:
                self._live.add(name)
        self.rows += stop - start

    def take(self) -> list[ColumnValues]:
        """Return all rows by column without conversion, valid until the next append; reset."""
        taken = [builder.take(self.rows) for builder in self._columns.values()]
        self._begin()
        return taken

    def finish(self) -> pa.RecordBatch:
        """Return all rows as one batch, valid until the next append; reset."""
        arrays = [builder.finish(self.rows) for builder in self._columns.values()]
        self._begin()
        schema = in_memory_schema(self.table.name)
        fields = [schema.field(name) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def arrow_batch(block: TableBlock) -> pa.RecordBatch:
    """Convert one block to a record batch."""
    builder = TableBuilder(block.table, max(block.rows, 1))
    builder.append(block, 0, block.rows)
    return builder.finish()


def text_bytes(block: TableBlock, start: int, stop: int) -> int:
    """Return the size in bytes of text, lists and maps in some rows, without coded names."""
    return sum(
        _value_bytes(values, start, stop)
        for values in block.columns.values()
        if not isinstance(values, _FIXED)
    )


def _value_bytes(values: Spans | Lists | Sequence[Any], start: int, stop: int) -> int:
    if isinstance(values, Spans):
        return int(np.maximum(values.lengths[start:stop], 0).sum()) << int(values.is_hex)
    if isinstance(values, Lists):
        return 8 * int(np.maximum(values.counts[start:stop], 0).sum())
    return sum(map(_object_bytes, filter(None, values[start:stop])))


def _object_bytes(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        value = list(value.items())
    return 8 + sum(map(_object_bytes, value)) if isinstance(value, list | tuple) else 8
