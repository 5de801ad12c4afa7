"""Hash tables of rows of records, each of which holds its own hash.

Unlike `dissector.tables.HashTable`, which keeps the keys beside the rows, an index takes several
rows of one key, and a search reads eight bytes per slot. Hashes are keyed (`codecs.keyed_hash`).
Probing is linear, and removal shifts the cluster back, so that no tombstones pile up in a tap of
weeks: rows of one key stand in the order in which they came. A slot holds a row or -1; there are a
power of two of them, at most half of them taken, so that every search ends.
"""

import numpy as np

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel


def new_index(hashes: Int64Array, rows: Int64Array, slots: int) -> Int64Array:
    """An index of rows, in the order in which they came, with so many slots."""
    fresh = np.full(slots, -1, np.int64)
    _enter_all(fresh, hashes, rows)
    return fresh


@kernel
def _enter_all(table: Int64Array, hashes: Int64Array, rows: Int64Array) -> None:
    for row in rows:
        enter(table, hashes, row)


@kernel
def enter(table: Int64Array, hashes: Int64Array, row: int) -> int:
    """Insert a row. hashes: of each row. Returns the number of slots probed."""
    mask = len(table) - 1
    home = hashes[row] & mask
    for steps in range(mask + 1):
        at = (home + steps) & mask
        if table[at] < 0:
            table[at] = row
            return steps + 1
    return mask + 1


@kernel
def leave(table: Int64Array, hashes: Int64Array, row: int) -> int:
    """Remove a row that is in the table. Returns the number of slots probed."""
    mask = len(table) - 1
    home = hashes[row] & mask
    hole = -1
    steps = 0
    for distance in range(mask + 1):
        at = (home + distance) & mask
        steps += 1
        if hole < 0:
            if table[at] == row:
                hole = at
        elif table[at] < 0:
            break
        # An entry may move into the hole unless its home lies cyclically behind the hole.
        elif ((at - (hashes[table[at]] & mask)) & mask) >= ((at - hole) & mask):
            table[hole] = table[at]
            hole = at
    if hole >= 0:
        table[hole] = -1
    return steps


@inlined
def find_row(table: Int64Array, keys: Int64Array, place: int, key: int) -> int:
    """The row of a key, whose hash is `place`, or -1; keys: of each row."""
    mask = len(table) - 1
    for steps in range(mask + 1):
        row = table[(place + steps) & mask]
        if row < 0:
            return -1
        if keys[row] == key:
            return int(row)
    return -1
