"""Rows of bundles that are handed out, given back and kept in lists, threaded through the bundle.

A bundle whose rows stand in a list has the columns next and previous; one that owns lists has
first, last and length. A free row waits in a list of its own through next. Nothing here needs to
be set up row by row, so that room for many rows costs nothing before they are used.
"""

from typing import Final, Protocol

from dissector.blocks import Int64Array
from dissector.jit import inlined
from dissector.protocols.tables import ABSENT

# A stock of free rows takes three counters: first free row, rows ever handed out, rows in use.
FREE: Final = 0
EVER: Final = 1
USED: Final = 2
STOCK_COUNTERS: Final = 3


class Rows(Protocol):
    """A bundle whose rows stand in lists."""

    next: Int64Array
    previous: Int64Array


class Owners(Protocol):
    """A bundle that owns lists: first and last row, ABSENT when empty, and length of each."""

    first: Int64Array
    last: Int64Array
    length: Int64Array


@inlined
def has_row(rows: Rows, counters: Int64Array, stock: int) -> bool:
    """Whether take_row can give a row."""
    return bool(counters[stock + USED] < len(rows.next))


@inlined
def take_row(rows: Rows, counters: Int64Array, stock: int) -> int:
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
def give_row(rows: Rows, counters: Int64Array, stock: int, row: int) -> None:
    """Make a row free; it must be in no list."""
    rows.next[row] = counters[stock + FREE]
    counters[stock + FREE] = row
    counters[stock + USED] -= 1


@inlined
def append_row(owners: Owners, rows: Rows, owner: int, row: int) -> None:
    """Put a row at the end of an owner's list; it must be in no list."""
    last = owners.last[owner]
    rows.next[row] = ABSENT
    rows.previous[row] = last
    if last == ABSENT:
        owners.first[owner] = row
    else:
        rows.next[last] = row
    owners.last[owner] = row
    owners.length[owner] += 1


@inlined
def unlink_row(owners: Owners, rows: Rows, owner: int, row: int) -> None:
    """Take a row out of its owner's list."""
    before = rows.previous[row]
    after = rows.next[row]
    if before == ABSENT:
        owners.first[owner] = after
    else:
        rows.next[before] = after
    if after == ABSENT:
        owners.last[owner] = before
    else:
        rows.previous[after] = before
    owners.length[owner] -= 1
