"""From blocks of columns to Arrow: rows are gathered in reused arrays and come out as batches.

Numbers, flags and codes of names are copied once, into arrays that live as long as the builder;
the Arrow arrays of a batch lie over them without a further copy, so a batch must be used before
the next row is appended. A column that had no value yet costs a look at its first value per block.
"""

from collections.abc import Container, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dissector.blocks import Coded, Lists, Spans, TableBlock
from dissector.schemas.arrow import in_memory_schema
from dissector.schemas.builders import ColumnBuilder, Gathered, builder_for
from dissector.schemas.column import Table
from dissector.schemas.tables import TABLES

_FIXED: Final = (np.ndarray, Coded)  # columns whose values all have one size


class TableBuilder:
    """Rows of one table on their way to a record batch of at most `capacity` rows.

    Args:
        names: of the columns that blocks may have; all of the table if not given.
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
        """Rows that still fit."""
        return self.capacity - self.rows

    def append(self, block: TableBlock, start: int, stop: int) -> None:
        """Add the rows start to stop of a block; they fit."""
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

    def take(self) -> list[Gathered]:
        """All rows column by column as they were gathered, valid until the next append."""
        taken = [builder.take(self.rows) for builder in self._columns.values()]
        self._begin()
        return taken

    def finish(self) -> pa.RecordBatch:
        """All rows as one batch, valid until the next append; the builder is empty again."""
        arrays = [builder.finish(self.rows) for builder in self._columns.values()]
        self._begin()
        schema = in_memory_schema(self.table.name)
        fields = [schema.field(name) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def arrow_batch(block: TableBlock) -> pa.RecordBatch:
    """One block as a record batch of its own."""
    builder = TableBuilder(block.table, max(block.rows, 1))
    builder.append(block, 0, block.rows)
    return builder.finish()


def text_bytes(block: TableBlock, start: int, stop: int) -> int:
    """Bytes of text, lists and maps in some rows, names apart: what makes rows large."""
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
