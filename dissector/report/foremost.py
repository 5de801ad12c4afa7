"""The foremost rows of every group: what a list of single findings can need, and no more."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dissector.blocks import Int64Array
from dissector.report.rows import codes
from dissector.report.tallies import concat

_SETTLE_ROWS = 10_000
Order = tuple[tuple[str, str], ...]


def ranks(groups: Int64Array) -> Int64Array:
    """The place of each row in its group, from 0; the rows of a group lie together."""
    starts = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))[: len(groups)]
    sizes = np.diff(np.append(starts, len(groups)))
    places: npt.NDArray[np.int64] = np.arange(len(groups)) - np.repeat(starts, sizes)
    return places


def foremost(table: pa.Table, group: tuple[str, ...], order: Order, limit: int) -> pa.Table:
    """The first `limit` rows of every group in this order (column, ascending or descending)."""
    if table.num_rows == 0:
        return table
    table = table.combine_chunks()
    table = table.sort_by([*((name, "ascending") for name in group), *order])
    columns = [table.column(name).combine_chunks() for name in group]
    code, _ = codes(*columns)
    return table.filter(pa.array(ranks(code) < limit))


class Foremost:
    """Rows that come bit by bit, of which only the foremost of each group are kept."""

    def __init__(self, schema: pa.Schema, group: tuple[str, ...], order: Order, limit: int) -> None:
        self._schema = schema
        self._how = (group, order, limit)
        self._found: list[pa.Table] = []
        self._rows = 0
        self._settled = 0

    def add(self, table: pa.Table) -> None:
        """Take in rows of the schema."""
        self._found.append(table)
        self._rows += table.num_rows
        if self._rows > 2 * self._settled + _SETTLE_ROWS:
            self.table()

    def table(self) -> pa.Table:
        """The foremost rows so far."""
        table = foremost(concat(self._found, self._schema), *self._how)
        self._found = [table]
        self._rows = self._settled = table.num_rows
        return table
