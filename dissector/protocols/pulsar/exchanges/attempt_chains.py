"""Attempts found by their key: chains of rows behind heads, for rows that come and go at each send.

A row is one line of the processor's cache, links included. In a table of slots every removal shifts
neighbours that lie elsewhere: that took a third of the time of all exchanges.
"""

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.jit import inlined, kernel
from dissector.protocols.tables import ABSENT, slot_of


class AttemptColumns(Records):
    """Sends whose attempts are counted, int64[rows] each.

    source: topic and producer by name; sequence_id, chunk_id, crc32c_stored: the rest of the key;
    count: attempts so far, 0 in a row that is free; waiting: how many of them have no answer yet;
    next, previous: rows of the same chain, ABSENT at its ends.
    """

    source: Int64Array
    sequence_id: Int64Array
    chunk_id: Int64Array
    crc32c_stored: Int64Array
    count: Int64Array
    waiting: Int64Array
    next: Int64Array
    previous: Int64Array


def new_heads(rows: int) -> Int64Array:
    """Heads of empty chains for so many rows, int64[power of two]."""
    return np.full(1 << max(1, (2 * rows - 1).bit_length()), ABSENT, np.int64)


@inlined
def _head_of(attempts: AttemptColumns, heads: Int64Array, row: int) -> int:
    """The place in `heads` of a row's chain."""
    return slot_of(
        attempts.source[row],
        attempts.sequence_id[row],
        attempts.chunk_id[row],
        attempts.crc32c_stored[row],
        len(heads) - 1,
    )


@kernel
def find_attempt(
    attempts: AttemptColumns,
    heads: Int64Array,
    source: int,
    sequence_id: int,
    chunk_id: int,
    crc32c_stored: int,
) -> int:
    """The row of a key, or ABSENT."""
    row = heads[slot_of(source, sequence_id, chunk_id, crc32c_stored, len(heads) - 1)]
    while row != ABSENT and not (
        attempts.sequence_id[row] == sequence_id
        and attempts.source[row] == source
        and attempts.chunk_id[row] == chunk_id
        and attempts.crc32c_stored[row] == crc32c_stored
    ):
        row = attempts.next[row]
    return int(row)


@kernel
def link_attempt(attempts: AttemptColumns, heads: Int64Array, row: int) -> None:
    """Make a row whose key is written findable."""
    head = _head_of(attempts, heads, row)
    after = heads[head]
    attempts.next[row] = after
    attempts.previous[row] = ABSENT
    if after != ABSENT:
        attempts.previous[after] = row
    heads[head] = row


@kernel
def unlink_attempt(attempts: AttemptColumns, heads: Int64Array, row: int) -> None:
    """Take a row out of its chain; it is free then."""
    before = attempts.previous[row]
    after = attempts.next[row]
    if before == ABSENT:
        heads[_head_of(attempts, heads, row)] = after
    else:
        attempts.next[before] = after
    if after != ABSENT:
        attempts.previous[after] = before
    attempts.count[row] = 0


@kernel
def link_all(attempts: AttemptColumns, heads: Int64Array) -> None:
    """Put all rows that are not free into empty chains."""
    for row in range(len(attempts.count)):
        if attempts.count[row] > 0:
            link_attempt(attempts, heads, row)
