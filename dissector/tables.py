"""Bounded tables of facts: hash tables on integer keys, first-in first-out lists, row pools.

Theory. Facts keep what waits (a send for its receipt, a delivery for its ack) as rows of a pool,
numbered from 0. A *hash table* finds a row by a key of four integers; fewer words are filled up
with zeros, and one word is best spent on the kind of key, so that one table serves several. Probing
is linear and a removed key is filled up by shifting its followers back: no tombstones, so a table
that lives as long as a tap does not silt up. A *list* (`Ends` over `Links`) keeps rows in the order
in which they came and gives up any of them at once. A *chain* is a list whose head is the value of
a hash table: all rows of one key, oldest first. A *pool* hands out free rows.

Kernels never grow anything: before a block the caller makes sure that there is room for all that
the block could add (`roomy`, `grow_rows`), up to a bound of `limits`, and at the bound the
kernel gives up an old row first. So no kernel meets a full table. A *memory* is a table of fixed
size for hints: a new key pushes out the oldest.
"""

from typing import Final, NamedTuple, Protocol, Self

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.codecs.wrapping import product, total
from dissector.jit import inlined, kernel
from dissector.native.zeros import zeros
from dissector.states import State

KEY_WORDS: Final = 4
ABSENT: Final = -1  # no such key, no such row, end of a list
NO_BOUND: Final = 1 << 62

# Odd numbers with well mixed bits (fractions of the golden ratio, of e and of pi).
_MIX_1: Final = -0x61C8_8646_80B5_83EB
_MIX_2: Final = 0x2B7E_1516_28AE_D2A7
_MIX_3: Final = 0x243F_6A88_85A3_08D3


class HashTable(NamedTuple):
    """Keys of four integers, each with a row number.

    keys: int64[slots, 4]; values: int64[slots], ABSENT where the slot is free (values are >= 0);
    used: int64[1], how many slots are taken. The number of slots is a power of two and at least
    one slot is always free.
    """

    keys: Int64Array
    values: Int64Array
    used: Int64Array


class InLists(Protocol):
    """A bundle whose rows stand in lists: the rows before and after, ABSENT at the ends."""

    next: Int64Array
    previous: Int64Array


class HasLists(Protocol):
    """A bundle that owns lists: first and last row, ABSENT when empty, and length of each."""

    first: Int64Array
    last: Int64Array
    length: Int64Array


class Links(Records):
    """Neighbours of each row in the one list it is in: int64[rows] each, ABSENT at the ends."""

    next: Int64Array
    previous: Int64Array


class Ends(Records):
    """First and last row and length of each list: int64[lists] each, rows ABSENT when empty."""

    first: Int64Array
    last: Int64Array
    length: Int64Array

    def grown(self, lists: int, value: int = ABSENT) -> Self:
        """A copy with room for `lists` lists; the new ones are empty."""
        larger = super().grown(lists, value)
        larger.length[len(self.length) :] = 0
        return larger


class Pool(NamedTuple):
    """Free rows, taken from the end. rows: int64[capacity]; free: int64[1], how many are left."""

    rows: Int64Array
    free: Int64Array


class Memory(NamedTuple):
    """The last so many keys and a number for each.

    table: twice as many slots as keys are kept; ring: int64[capacity, 4], the keys in the order in
    which they came; counts: int64[2], index of the oldest key in the ring and number of keys.
    """

    table: HashTable
    ring: Int64Array
    counts: Int64Array


def new_memory(capacity: int) -> Memory:
    """A memory of so many keys, a power of two."""
    return Memory(
        new_hash_table(2 * capacity),
        zeros((capacity, KEY_WORDS)),
        np.zeros(2, np.int64),
    )


def new_hash_table(slots: int) -> HashTable:
    """An empty table; slots is a power of two."""
    assert slots >= 2 and slots & (slots - 1) == 0, "slots must be a power of two"
    return HashTable(
        zeros((slots, KEY_WORDS)),
        np.full(slots, ABSENT, np.int64),
        np.zeros(1, np.int64),
    )


def roomy(table: HashTable, more: int) -> HashTable:
    """The table, or a larger copy that `more` further keys fill to half at most."""
    slots = len(table.values)
    while 2 * (int(table.used[0]) + more) > slots:
        slots *= 2
    if slots == len(table.values):
        return table
    larger = new_hash_table(slots)
    _copy_keys(table, larger)
    return larger


def new_ends(lists: int) -> Ends:
    """Empty lists."""
    ends = Ends.new(lists, ABSENT)
    ends.length[:] = 0
    return ends


def new_pool(capacity: int) -> Pool:
    """A pool with all rows free; row 0 is handed out first."""
    return Pool(np.arange(capacity - 1, -1, -1, dtype=np.int64), np.full(1, capacity, np.int64))


def grown_pool(pool: Pool, capacity: int) -> Pool:
    """A copy with `capacity` rows; the new ones are handed out after the free ones it had."""
    old = len(pool.rows)
    free = int(pool.free[0])
    added = np.arange(capacity - 1, old - 1, -1, dtype=np.int64)
    rows = np.zeros(capacity, np.int64)
    rows[: len(added)] = added
    rows[len(added) : len(added) + free] = pool.rows[:free]
    return Pool(rows, np.full(1, free + len(added), np.int64))


def grow_rows(state: State, pool: str, more: int, bound: int = NO_BOUND, **fields: int) -> None:
    """Make `more` rows of a state's pool free, where there are fewer, as far as a bound allows.

    Args:
        fields: the fields that are as long as the pool, and what their new cells hold.
    """
    before: Pool = getattr(state, pool)
    have = len(before.rows)
    needed = have - int(before.free[0]) + more
    if have < min(needed, bound):
        rows = min(max(2 * have, needed), bound)
        larger = {name: getattr(state, name).grown(rows, cell) for name, cell in fields.items()}
        state.grow(**larger, **{pool: grown_pool(before, rows)})


@inlined
def slot_of(a: int, b: int, c: int, d: int, mask: int) -> int:
    """Where the search for a key starts."""
    mixed = product(a, _MIX_1)
    mixed = product(total(mixed, b) ^ (mixed >> 29), _MIX_2)
    mixed = product(total(mixed, c) ^ (mixed >> 32), _MIX_3)
    mixed = product(total(mixed, d) ^ (mixed >> 29), _MIX_1)
    return (mixed ^ (mixed >> 32)) & mask


@inlined
def _same(keys: Int64Array, slot: int, a: int, b: int, c: int, d: int) -> bool:
    """Whether the slot holds this key."""
    return bool(
        keys[slot, 0] == a and keys[slot, 1] == b and keys[slot, 2] == c and keys[slot, 3] == d
    )


@kernel
def find_slot(table: HashTable, a: int, b: int, c: int, d: int) -> int:
    """The slot of a key, or the free slot where it would go."""
    mask = len(table.values) - 1
    slot = slot_of(a, b, c, d, mask)
    while table.values[slot] != ABSENT and not _same(table.keys, slot, a, b, c, d):
        slot = (slot + 1) & mask
    return slot


@kernel
def find(table: HashTable, a: int, b: int, c: int, d: int) -> int:
    """The row of a key, or ABSENT."""
    return int(table.values[find_slot(table, a, b, c, d)])


@inlined
def fill_slot(table: HashTable, slot: int, a: int, b: int, c: int, d: int, value: int) -> None:
    """Put a key that is not there, with its row, into the free slot that find_slot gave for it."""
    table.keys[slot, 0] = a
    table.keys[slot, 1] = b
    table.keys[slot, 2] = c
    table.keys[slot, 3] = d
    table.used[0] += 1
    table.values[slot] = value


@kernel
def put(table: HashTable, a: int, b: int, c: int, d: int, value: int) -> int:
    """Set the row (>= 0) of a key; returns the one it had, or ABSENT. Needs a free slot."""
    slot = find_slot(table, a, b, c, d)
    before = table.values[slot]
    if before == ABSENT:
        fill_slot(table, slot, a, b, c, d, value)
    else:
        table.values[slot] = value
    return int(before)


@kernel
def remove(table: HashTable, a: int, b: int, c: int, d: int) -> int:
    """Forget a key; returns the row it had, or ABSENT."""
    slot = find_slot(table, a, b, c, d)
    before = table.values[slot]
    if before != ABSENT:
        clear_slot(table, slot)
    return int(before)


@kernel
def clear_slot(table: HashTable, slot: int) -> None:
    """Free a taken slot and shift back the keys behind it that it kept from their place."""
    mask = len(table.values) - 1
    hole = slot
    ahead = (slot + 1) & mask
    while table.values[ahead] != ABSENT:
        keys = table.keys
        home = slot_of(keys[ahead, 0], keys[ahead, 1], keys[ahead, 2], keys[ahead, 3], mask)
        # The key may move into the hole unless its home lies behind the hole, cyclically.
        if (ahead - home) & mask >= (ahead - hole) & mask:
            for word in range(KEY_WORDS):
                keys[hole, word] = keys[ahead, word]
            table.values[hole] = table.values[ahead]
            hole = ahead
        ahead = (ahead + 1) & mask
    table.values[hole] = ABSENT
    table.used[0] -= 1


@kernel
def _copy_keys(table: HashTable, larger: HashTable) -> None:
    """Put every key of a table into another one."""
    keys = table.keys
    for slot in range(len(table.values)):
        if table.values[slot] != ABSENT:
            put(
                larger,
                keys[slot, 0],
                keys[slot, 1],
                keys[slot, 2],
                keys[slot, 3],
                table.values[slot],
            )


@inlined
def has_room(table: HashTable, more: int) -> bool:
    """Whether `more` further keys fill no more than half of the slots, for kernels."""
    return bool(2 * (table.used[0] + more) <= len(table.values))


@inlined
def allocate_row(pool: Pool) -> int:
    """A free row, or ABSENT."""
    left = pool.free[0] - 1
    if left < 0:
        return ABSENT
    pool.free[0] = left
    return int(pool.rows[left])


@inlined
def give_row(pool: Pool, row: int) -> None:
    """Make a row free that allocate_row gave."""
    pool.rows[pool.free[0]] = row
    pool.free[0] += 1


@inlined
def list_append(ends: HasLists, links: InLists, which: int, row: int) -> None:
    """Put a row at the end of a list; it must be in no list of these links."""
    last = ends.last[which]
    links.next[row] = ABSENT
    links.previous[row] = last
    if last == ABSENT:
        ends.first[which] = row
    else:
        links.next[last] = row
    ends.last[which] = row
    ends.length[which] += 1


@inlined
def list_unlink(ends: HasLists, links: InLists, which: int, row: int) -> None:
    """Take a row out of the list it is in."""
    before = links.previous[row]
    after = links.next[row]
    if before == ABSENT:
        ends.first[which] = after
    else:
        links.next[before] = after
    if after == ABSENT:
        ends.last[which] = before
    else:
        links.previous[after] = before
    ends.length[which] -= 1


@kernel
def chain_append(table: HashTable, links: Links, a: int, b: int, c: int, d: int, row: int) -> None:
    """Put a row at the end of the chain of a key. `previous` of a chain's head is its last row."""
    slot = find_slot(table, a, b, c, d)
    head = table.values[slot]
    links.next[row] = ABSENT
    if head == ABSENT:
        links.previous[row] = row
        fill_slot(table, slot, a, b, c, d, row)
        return
    last = links.previous[head]
    links.next[last] = row
    links.previous[row] = last
    links.previous[head] = row


@kernel
def chain_unlink(table: HashTable, links: Links, a: int, b: int, c: int, d: int, row: int) -> None:
    """Take a row out of the chain of its key; an empty chain leaves the table."""
    slot = find_slot(table, a, b, c, d)
    head = table.values[slot]
    after = links.next[row]
    before = links.previous[row]
    if row == head:
        if after == ABSENT:
            clear_slot(table, slot)
            return
        table.values[slot] = after
        links.previous[after] = before
        return
    links.next[before] = after
    if after == ABSENT:
        links.previous[head] = before
    else:
        links.previous[after] = before


@kernel
def remember(memory: Memory, a: int, b: int, c: int, d: int, value: int) -> None:
    """Keep a number (>= 0) for a key; a new key pushes out the oldest one when all are taken."""
    ring = memory.ring
    capacity = len(ring)
    slot = find_slot(memory.table, a, b, c, d)
    if memory.table.values[slot] != ABSENT:
        memory.table.values[slot] = value
        return
    if memory.counts[1] == capacity:
        at = memory.counts[0]
        remove(memory.table, ring[at, 0], ring[at, 1], ring[at, 2], ring[at, 3])
        memory.counts[0] = (at + 1) & (capacity - 1)
        memory.counts[1] -= 1
    at = (memory.counts[0] + memory.counts[1]) & (capacity - 1)
    ring[at, 0] = a
    ring[at, 1] = b
    ring[at, 2] = c
    ring[at, 3] = d
    memory.counts[1] += 1
    put(memory.table, a, b, c, d, value)
