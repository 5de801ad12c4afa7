"""Rows of bundles that are handed out and given back.

A free row waits in a list of its own through its column next, as rows in use do in theirs
(dissector.protocols.tables). Nothing here needs to be set up row by row, so that room for many
rows costs nothing before they are used.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined
from dissector.protocols.tables import ABSENT, InLists

# A stock of free rows takes three counters: first free row, rows ever handed out, rows in use.
FREE: Final = 0
EVER: Final = 1
USED: Final = 2
STOCK_COUNTERS: Final = 3


@inlined
def has_row(rows: InLists, counters: Int64Array, stock: int) -> bool:
    """Whether take_row can give a row."""
    return bool(counters[stock + USED] < len(rows.next))


@inlined
def take_row(rows: InLists, counters: Int64Array, stock: int) -> int:
    """A row that is not in use, or ABSENT; stock: place of the counters of these rows."""
    row = counters[stock + FREE]
    if row != ABSENT:
        counters[stock + FREE] = rows.next[row]
    else:
        row = counters[stock + EVER]
        if row >= len(rows.next):
            return ABSENT
        counters[stock + EVER] = row + 1
    counters[stock + USED] += 1
    return int(row)


@inlined
def give_row(rows: InLists, counters: Int64Array, stock: int, row: int) -> None:
    """Make a row free; it must be in no list."""
    rows.next[row] = counters[stock + FREE]
    counters[stock + FREE] = row
    counters[stock + USED] -= 1
