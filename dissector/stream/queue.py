"""Queues ordered by a number, whose members know their place: timers, and connections with work.

A queue is a binary heap in one int64 array: cell 0 the count, then from place 1 on three cells per
member: key, tie-break, and the address of the cell that holds the member's place (0: not queued).
The order depends on keys and ties only, never on addresses.
"""

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel


@inlined
def _is_before(queue: Int64Array, one: int, other: int) -> bool:
    if queue[3 * one] != queue[3 * other]:
        return bool(queue[3 * one] < queue[3 * other])
    return bool(queue[3 * one + 1] < queue[3 * other + 1])


@inlined
def _swap(queue: Int64Array, cells: Int64Array, one: int, other: int) -> None:
    for part in range(3):
        value = queue[3 * one + part]
        queue[3 * one + part] = queue[3 * other + part]
        queue[3 * other + part] = value
    cells[queue[3 * one + 2]] = one
    cells[queue[3 * other + 2]] = other


@kernel
def _settle(queue: Int64Array, cells: Int64Array, place: int) -> None:
    """Move a member up or down to where it belongs."""
    at = place
    while at > 1 and _is_before(queue, at, at >> 1):
        _swap(queue, cells, at, at >> 1)
        at >>= 1
    count = queue[0]
    while 2 * at <= count:
        child = 2 * at
        if child < count and _is_before(queue, child + 1, child):
            child += 1
        if not _is_before(queue, child, at):
            break
        _swap(queue, cells, at, child)
        at = child


@kernel
def queue_put(queue: Int64Array, cells: Int64Array, where: int, key: int, tie: int) -> None:
    """Queue a member, or let it come earlier; a key later than the one it has changes nothing.

    where: address of the cell for its place; writes queue and cells.
    """
    place = cells[where]
    if place == 0:
        place = queue[0] + 1
        queue[0] = place
        queue[3 * place + 2] = where
        cells[where] = place
    elif queue[3 * place] <= key:
        return
    queue[3 * place] = key
    queue[3 * place + 1] = tie
    _settle(queue, cells, place)


@kernel
def queue_remove(queue: Int64Array, cells: Int64Array, where: int) -> None:
    """Take a member out, wherever it stands; nothing happens if it is not queued."""
    place = cells[where]
    if place == 0:
        return
    last = queue[0]
    if place != last:
        _swap(queue, cells, place, last)
    queue[0] = last - 1
    cells[where] = 0
    if place != last:
        _settle(queue, cells, place)
