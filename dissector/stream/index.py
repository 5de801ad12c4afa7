"""Hash tables of rows of records, each of which holds its own hash.

Unlike `dissector.tables.HashTable`, which keeps the keys beside the rows, an index takes several
rows of one key, and a search reads eight bytes per slot. Probing is linear, and removal shifts the
cluster back, so that no tombstones pile up in a tap of weeks. Hashes must be mixed: numbers in a
row would be one cluster, walked at each removal. A slot holds a row or -1; there are a power of two
of them, at most half of them taken.
"""

import numpy as np

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel


def grown_index(table: Int64Array, hashes: Int64Array, slots: int) -> Int64Array:
    """A copy with so many slots."""
    fresh = np.full(slots, -1, np.int64)
    _enter_all(fresh, hashes, table[table >= 0])
    return fresh


@kernel
def _enter_all(table: Int64Array, hashes: Int64Array, rows: Int64Array) -> None:
    for row in rows:
        enter(table, hashes, row)


@kernel
def enter(table: Int64Array, hashes: Int64Array, row: int) -> int:
    """Put a row in. hashes: of each row. Returns how many slots were looked at."""
    mask = len(table) - 1
    at = hashes[row] & mask
    steps = 1
    while table[at] >= 0:
        at = (at + 1) & mask
        steps += 1
    table[at] = row
    return steps


@kernel
def leave(table: Int64Array, hashes: Int64Array, row: int) -> int:
    """Take a row out that is in. Returns how many slots were looked at."""
    mask = len(table) - 1
    hole = hashes[row] & mask
    steps = 1
    while table[hole] != row:
        hole = (hole + 1) & mask
        steps += 1
    ahead = (hole + 1) & mask
    while table[ahead] >= 0:
        home = hashes[table[ahead]] & mask
        # An entry may move into the hole unless its home lies cyclically behind the hole.
        if ((ahead - home) & mask) >= ((ahead - hole) & mask):
            table[hole] = table[ahead]
            hole = ahead
        ahead = (ahead + 1) & mask
        steps += 1
    table[hole] = -1
    return steps


@inlined
def find_value(table: Int64Array, hashes: Int64Array, value: int) -> int:
    """The row that has a hash, or -1; for hashes that are different for each row."""
    mask = len(table) - 1
    at = value & mask
    while table[at] >= 0:
        if hashes[table[at]] == value:
            return int(table[at])
        at = (at + 1) & mask
    return -1
