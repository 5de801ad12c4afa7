"""Priority queues whose members know their position: timers, and connections with work.

A queue is a binary heap of rows. The order depends on keys and ties only, never on row numbers.
"""

from typing import NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.jit import inlined, kernel


class QueueEntries(Records):
    """Members of a queue: key, tie-break and row; int64[positions] each, position 0 is not used."""

    key: Int64Array
    tie: Int64Array
    row: Int64Array


class Queue(NamedTuple):
    """entries: the heap; size: int64[1], how many members there are."""

    entries: QueueEntries
    size: Int64Array


def new_queue(capacity: int) -> Queue:
    """An empty queue for so many members."""
    return Queue(QueueEntries.new(capacity + 1), np.zeros(1, np.int64))


def grown_queue(queue: Queue, capacity: int) -> Queue:
    """A copy with room for so many members."""
    return Queue(queue.entries.grown(capacity + 1), queue.size)


@inlined
def _is_before(entries: QueueEntries, one: int, other: int) -> bool:
    if entries.key[one] != entries.key[other]:
        return bool(entries.key[one] < entries.key[other])
    return bool(entries.tie[one] < entries.tie[other])


@inlined
def _swap(entries: QueueEntries, positions: Int64Array, one: int, other: int) -> None:
    for part in range(3):
        value = entries.matrix[one, part]
        entries.matrix[one, part] = entries.matrix[other, part]
        entries.matrix[other, part] = value
    positions[entries.row[one]] = one
    positions[entries.row[other]] = other


@kernel
def _settle(queue: Queue, positions: Int64Array, position: int) -> None:
    """Move a member up or down to where it belongs."""
    entries = queue.entries
    at = position
    while at > 1 and _is_before(entries, at, at >> 1):
        _swap(entries, positions, at, at >> 1)
        at >>= 1
    count = queue.size[0]
    while 2 * at <= count:
        child = 2 * at
        if child < count and _is_before(entries, child + 1, child):
            child += 1
        if not _is_before(entries, child, at):
            break
        _swap(entries, positions, at, child)
        at = child


@kernel
def queue_put(queue: Queue, positions: Int64Array, row: int, key: int, tie: int) -> None:
    """Queue a row, or move it earlier; a key later than its current one changes nothing.

    positions: of each row its position in the queue, 0: not queued; written.
    """
    entries = queue.entries
    position = positions[row]
    if position == 0:
        position = queue.size[0] + 1
        queue.size[0] = position
        entries.row[position] = row
        positions[row] = position
    elif entries.key[position] <= key:
        return
    entries.key[position] = key
    entries.tie[position] = tie
    _settle(queue, positions, position)


@kernel
def queue_remove(queue: Queue, positions: Int64Array, row: int) -> None:
    """Remove a row; nothing happens if it is not queued. positions: as in queue_put."""
    position = positions[row]
    if position == 0:
        return
    last = queue.size[0]
    if position != last:
        _swap(queue.entries, positions, position, last)
    queue.size[0] = last - 1
    positions[row] = 0
    if position != last:
        _settle(queue, positions, position)
