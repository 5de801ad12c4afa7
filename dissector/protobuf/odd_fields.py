"""Counts unknown fields, as of a newer sender, by message and field number.

A span's unknown fields count only if it parses to its end: in garbage every field is unknown.
"""

from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.limits import MAX_ODD_FIELDS

# The fields of the span in hand: how many, then node and number of each.
ODD_FIELDS_HERE: Final = 0
_FIRST: Final = 1
SPAN_ROOM: Final = _FIRST + 2 * MAX_ODD_FIELDS

# Rows of the table of all.
ODD_NODE: Final = 0  # of the plan
ODD_FIELD: Final = 1
ODD_COUNT: Final = 2  # 0 where the column is free
ODD_ROW: Final = 3  # of the first
ODD_SLOTS: Final = 64


def new_odd_fields() -> Int64Array:
    """Return a table int64[4, ODD_SLOTS + 1]; its last column counts fields without a slot."""
    return np.zeros((4, ODD_SLOTS + 1), np.int64)


@kernel
def keep_odd_field(here: Int64Array, node: int, number: int) -> None:
    """Record an unknown field of the current span, once for each number."""
    count = here[ODD_FIELDS_HERE]
    for at in range(_FIRST, _FIRST + 2 * count, 2):
        if here[at] == node and here[at + 1] == number:
            return
    if count < MAX_ODD_FIELDS:
        here[_FIRST + 2 * count] = node
        here[_FIRST + 2 * count + 1] = number
        here[ODD_FIELDS_HERE] = count + 1


@kernel
def count_odd_fields(table: Int64Array, here: Int64Array, row: int) -> None:
    """Count the recorded fields of a parsed span; row: of its frame."""
    for index in range(here[ODD_FIELDS_HERE]):
        node = here[_FIRST + 2 * index]
        number = here[_FIRST + 2 * index + 1]
        slot = (31 * node + number) & (ODD_SLOTS - 1)
        is_other = table[ODD_NODE, slot] != node or table[ODD_FIELD, slot] != number
        if table[ODD_COUNT, slot] > 0 and is_other:
            slot = ODD_SLOTS
        if table[ODD_COUNT, slot] == 0:
            table[ODD_NODE, slot] = node
            table[ODD_FIELD, slot] = number
            table[ODD_ROW, slot] = row
        table[ODD_COUNT, slot] += 1
