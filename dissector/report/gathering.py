"""Blocks of rows on their way into the numbers of a report, gathered into fewer and larger ones.

A block holds what a few thousand packets brought, and each look at a batch costs as much as some
thousand of its rows. So rows are gathered table by table; when one table is full all are handed
on, frames first, because the rows of other tables name them.
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from dissector.blocks import TableBlock
from dissector.schemas.rows import TableBuilder, text_bytes

GATHERED_ROWS: Final = 1 << 16  # of one table
GATHERED_TEXT: Final = 1 << 24  # bytes of texts and lists of all tables
# Tables whose rows others name.
_FIRST: Final = ("frames",)


class Gatherer:
    """Rows of one capture after the other. take gets a table's name, its rows and their capture."""

    def __init__(self, take: Callable[[str, pa.RecordBatch, str], None]) -> None:
        self._take = take
        self._builders: dict[str, TableBuilder] = {}
        self._capture = ""
        self._text = 0

    def add(self, block: TableBlock, capture: str) -> None:
        """Take in a block of any size."""
        if capture != self._capture:
            self.flush()
            self._capture = capture
        self._text += text_bytes(block, 0, block.rows)
        start = 0
        while start < block.rows:
            builder = self._builder(block.table)
            stop = min(block.rows, start + builder.room)
            builder.append(block, start, stop)
            start = stop
            if builder.room == 0 or self._text > GATHERED_TEXT:
                self.flush()

    def _builder(self, table: str) -> TableBuilder:
        if table not in self._builders:
            self._builders[table] = TableBuilder(table, GATHERED_ROWS)
        return self._builders[table]

    def flush(self) -> None:
        """Hand on everything that has gathered."""
        self._text = 0
        tables = sorted(self._builders, key=lambda name: (name not in _FIRST, name))
        # What is handed on is kept in part: the next rows go to arrays of their own.
        builders, self._builders = self._builders, {}
        for table in tables:
            self._take(table, builders[table].finish(), self._capture)
