"""Hash tables of addresses of connection rows; each row holds its own hash in one of its cells.

Probing is linear, and removal shifts the cluster back, so that no tombstones pile up in a tap of
weeks. Hashes must be mixed: numbers in a row would be one cluster, walked at each removal. A place
holds an address or -1. Tables are a power of two and at most half full.
"""

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel


@kernel
def enter(table: Int64Array, base: int, value: int) -> int:
    """Put an address in. value: its hash. Returns how many places were looked at."""
    mask = len(table) - 1
    at = value & mask
    steps = 1
    while table[at] >= 0:
        at = (at + 1) & mask
        steps += 1
    table[at] = base
    return steps


@kernel
def leave(table: Int64Array, cells: Int64Array, cell: int, base: int) -> int:
    """Take an address out that is in. cell: place of the hash in a row. Returns the steps."""
    mask = len(table) - 1
    hole = cells[base + cell] & mask
    steps = 1
    while table[hole] != base:
        hole = (hole + 1) & mask
        steps += 1
    following = (hole + 1) & mask
    while table[following] >= 0:
        home = cells[table[following] + cell] & mask
        # An entry may move into the hole unless its home lies cyclically behind the hole.
        if ((following - home) & mask) >= ((following - hole) & mask):
            table[hole] = table[following]
            hole = following
        following = (following + 1) & mask
        steps += 1
    table[hole] = -1
    return steps


@inlined
def find_value(table: Int64Array, cells: Int64Array, cell: int, value: int) -> int:
    """The address of the row with a number in a cell by which the table is hashed, or -1."""
    mask = len(table) - 1
    at = value & mask
    while table[at] >= 0:
        if cells[table[at] + cell] == value:
            return int(table[at])
        at = (at + 1) & mask
    return -1
