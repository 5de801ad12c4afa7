"""Bounded tables of facts: hash tables on integer keys, first-in first-out lists, row pools.

Theory. Pending entries (a send that waits for its receipt, a delivery for its ack) are rows of a
pool, numbered from 0. A *hash table* maps a key of four integers to a row; unused words are zero,
and one word should be the kind of key, so that one table serves several. Hashes are keyed
(`codecs.keyed_hash`). Probing is linear, and removing a key shifts its followers back: without
tombstones, a table that lives as long as a tap does not fill up. A *list* (`ListHeads` over
`ListLinks`) keeps rows in order of insertion and removes any of them in constant time. A *chain* is
a list whose head is the value of a hash table: all rows of one key, oldest first. A *pool*
allocates free rows.

Kernels never grow a table: before a block the caller reserves space for all that the block could
add (`reserved`, `grow_rows`), up to a bound of `limits`; at the bound the kernel evicts an old row
first. So no kernel meets a full table. A *memory* is a table of fixed size for hints: a new key
evicts the oldest.

Every loop ends, whatever the memory contains. A search over more than `limits.MAX_PROBES` slots is
counted, and before the next block the table is rebuilt under another secret (`reserved`). A walk
along a list or chain is a `for` with a bound (of `limits`, or the number of rows) that counts when
the bound is hit (`note_cut_walk`). `notice_log.of_limits` makes notices of both.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Bundle, Records
from dissector.codecs import keyed_hash
from dissector.jit import inlined, kernel
from dissector.limits import MAX_PROBES
from dissector.native.zeros import zeros
from dissector.states import State

KEY_WORDS: Final = 4
ABSENT: Final = -1  # no such key, no such row, end of a list
NO_BOUND: Final = 1 << 62

# Indexes into HashTable.counts.
TAKEN: Final = 0  # slots that are taken
PROBES: Final = 1  # slots probed after the first one of each search
CROWDED: Final = 2  # searches of more than MAX_PROBES slots since the table was built
CROWDED_BEFORE: Final = 3  # the same in the tables that it was copied from
CUT_WALKS: Final = 4  # walks along lists of the same state that ended at their bound
COUNTS: Final = 5


class HashTable(NamedTuple):
    """Keys of four integers, each with a row number.

    keys: int64[slots, 4].
    values: int64[slots], ABSENT where the slot is free (values are >= 0).
    counts: see above.
    secret: of its hashes. The number of slots is a power of two and at least one slot is always
        free.
    """

    keys: Int64Array
    values: Int64Array
    counts: Int64Array
    secret: Int64Array


class InLists(Protocol):
    """A bundle whose rows are in lists: the neighbouring rows, ABSENT at the ends."""

    next: Int64Array
    previous: Int64Array


class HasLists(Protocol):
    """A bundle that owns lists: first and last row, ABSENT when empty, and length of each."""

    first: Int64Array
    last: Int64Array
    length: Int64Array


class ListLinks(Records):
    """Neighbours of each row in the one list it is in: int64[rows] each, ABSENT at the ends."""

    next: Int64Array
    previous: Int64Array


class ListHeads(Records):
    """First and last row and length of each list: int64[lists] each, rows ABSENT when empty."""

    first: Int64Array
    last: Int64Array
    length: Int64Array

    def grown(self, lists: int, value: int = ABSENT) -> Self:
        """Return a copy with `lists` lists; the new ones are empty."""
        larger = super().grown(lists, value)
        larger.length[len(self.length) :] = 0
        return larger


class Pool(NamedTuple):
    """A stack of free rows.

    rows: int64[capacity].
    free: int64[1], number of free rows.
    """

    rows: Int64Array
    free: Int64Array


class RecentKeys(NamedTuple):
    """The most recent keys, with a number for each.

    table: has twice as many slots as the ring.
    ring: int64[capacity, 4], the keys in order of insertion.
    counts: int64[2], index of the oldest key in the ring and number of keys.
    """

    table: HashTable
    ring: Int64Array
    counts: Int64Array


def new_memory(capacity: int, key: int = 0) -> RecentKeys:
    """Return an empty memory of `capacity` keys, a power of two. key: of its hashes."""
    return RecentKeys(
        new_hash_table(2 * capacity, key),
        zeros((capacity, KEY_WORDS)),
        np.zeros(2, np.int64),
    )


def new_hash_table(slots: int, key: int = 0) -> HashTable:
    """Return an empty table; slots: a power of two. key: of its hashes; 0 suits tests."""
    return _empty_table(slots, keyed_hash.new_secret(key))


def _empty_table(slots: int, secret: Int64Array) -> HashTable:
    assert slots >= 2 and slots & (slots - 1) == 0, "slots must be a power of two"
    assert len(secret) == keyed_hash.SECRET_WORDS
    return HashTable(
        zeros((slots, KEY_WORDS)),
        np.full(slots, ABSENT, np.int64),
        np.zeros(COUNTS, np.int64),
        secret,
    )


def reserved(table: HashTable, more: int) -> HashTable:
    """Return the table, or a larger copy, at most half full after `more` further keys.

    If a search was crowded, return a copy under another secret.
    """
    slots = len(table.values)
    while 2 * (int(table.counts[TAKEN]) + more) > slots:
        slots *= 2
    crowded = int(table.counts[CROWDED])
    if slots == len(table.values) and not crowded:
        return table
    other = _empty_table(
        slots, keyed_hash.following_secret(table.secret) if crowded else table.secret
    )
    _copy_keys(table, other)
    other.counts[CROWDED] = 0  # searches of copying do not count
    other.counts[PROBES] += table.counts[PROBES]
    other.counts[CROWDED_BEFORE] = table.counts[CROWDED_BEFORE] + crowded
    other.counts[CUT_WALKS] = table.counts[CUT_WALKS]
    return other


def hash_tables(memory: Any) -> Iterator[HashTable]:
    """Yield the hash tables in a state, or in a tuple of arrays."""
    if isinstance(memory, HashTable):
        yield memory
    elif not isinstance(memory, np.ndarray | Bundle):
        for name in memory._fields:
            yield from hash_tables(getattr(memory, name))


def settled(memory: RecentKeys) -> RecentKeys:
    """Return the memory, or a copy under another secret if a search was crowded."""
    return memory._replace(table=reserved(memory.table, 0))


def new_ends(lists: int) -> ListHeads:
    """Return the heads of `lists` empty lists."""
    ends = ListHeads.new(lists, ABSENT)
    ends.length[:] = 0
    return ends


def new_pool(capacity: int) -> Pool:
    """Return a pool with all rows free; row 0 is allocated first."""
    return Pool(np.arange(capacity - 1, -1, -1, dtype=np.int64), np.full(1, capacity, np.int64))


def grown_pool(pool: Pool, capacity: int) -> Pool:
    """Return a copy with `capacity` rows; the new ones are allocated after the old free ones."""
    old = len(pool.rows)
    free = int(pool.free[0])
    added = np.arange(capacity - 1, old - 1, -1, dtype=np.int64)
    rows = np.zeros(capacity, np.int64)
    rows[: len(added)] = added
    rows[len(added) : len(added) + free] = pool.rows[:free]
    return Pool(rows, np.full(1, free + len(added), np.int64))


def grow_rows(state: State, pool: str, more: int, bound: int = NO_BOUND, **fields: int) -> None:
    """Grow a state's pool until `more` rows are free, or up to the bound.

    Args:
        fields: the fields that are as long as the pool, and the value of their new cells.
    """
    before: Pool = getattr(state, pool)
    have = len(before.rows)
    needed = have - int(before.free[0]) + more
    if have < min(needed, bound):
        rows = min(max(2 * have, needed), bound)
        larger = {name: getattr(state, name).grown(rows, cell) for name, cell in fields.items()}
        state.grow(**larger, **{pool: grown_pool(before, rows)})


@inlined
def slot_of(secret: Int64Array, a: int, b: int, c: int, d: int, mask: int) -> int:
    """Return the slot where the search for a key starts."""
    return keyed_hash.hash_of_words(secret, a, b, c, d) & mask


@inlined
def note_probes(counts: Int64Array, steps: int) -> None:
    """Count the slots of a search after the first one; counts: of a table."""
    counts[PROBES] += steps
    if steps >= MAX_PROBES:
        counts[CROWDED] += 1


@inlined
def note_cut_walk(table: HashTable) -> None:
    """Count a walk along a list of the table's state that ended at its bound."""
    table.counts[CUT_WALKS] += 1


@inlined
def _same(keys: Int64Array, slot: int, a: int, b: int, c: int, d: int) -> bool:
    """Whether the slot holds this key."""
    return bool(
        keys[slot, 0] == a and keys[slot, 1] == b and keys[slot, 2] == c and keys[slot, 3] == d
    )


@kernel
def find_slot(table: HashTable, a: int, b: int, c: int, d: int) -> int:
    """Return the slot of a key, or the free slot for it."""
    mask = len(table.values) - 1
    slot = slot_of(table.secret, a, b, c, d, mask)
    if table.values[slot] == ABSENT or _same(table.keys, slot, a, b, c, d):
        return slot
    for steps in range(1, mask + 1):
        slot = (slot + 1) & mask
        if table.values[slot] == ABSENT or _same(table.keys, slot, a, b, c, d):
            note_probes(table.counts, steps)
            return slot
    return slot


@kernel
def find(table: HashTable, a: int, b: int, c: int, d: int) -> int:
    """Return the row of a key, or ABSENT."""
    return int(table.values[find_slot(table, a, b, c, d)])


@inlined
def fill_slot(table: HashTable, slot: int, a: int, b: int, c: int, d: int, value: int) -> None:
    """Write an absent key and its row to the free slot that `find_slot` returned for it."""
    table.keys[slot, 0] = a
    table.keys[slot, 1] = b
    table.keys[slot, 2] = c
    table.keys[slot, 3] = d
    table.counts[TAKEN] += 1
    table.values[slot] = value


@kernel
def put(table: HashTable, a: int, b: int, c: int, d: int, value: int) -> int:
    """Set the row (>= 0) of a key; return its previous row, or ABSENT. Needs a free slot."""
    slot = find_slot(table, a, b, c, d)
    before = table.values[slot]
    if before == ABSENT:
        fill_slot(table, slot, a, b, c, d, value)
    else:
        table.values[slot] = value
    return int(before)


@kernel
def remove(table: HashTable, a: int, b: int, c: int, d: int) -> int:
    """Remove a key; return its row, or ABSENT."""
    slot = find_slot(table, a, b, c, d)
    before = table.values[slot]
    if before != ABSENT:
        clear_slot(table, slot)
    return int(before)


@kernel
def clear_slot(table: HashTable, slot: int) -> None:
    """Free a slot and shift back the following keys that it displaced."""
    mask = len(table.values) - 1
    hole = slot
    keys = table.keys
    for steps in range(1, mask + 1):
        ahead = (slot + steps) & mask
        if table.values[ahead] == ABSENT:
            table.counts[PROBES] += steps - 1
            break
        home = slot_of(
            table.secret, keys[ahead, 0], keys[ahead, 1], keys[ahead, 2], keys[ahead, 3], mask
        )
        # The key may move into the hole unless its home lies behind the hole, cyclically.
        if (ahead - home) & mask >= (ahead - hole) & mask:
            for word in range(KEY_WORDS):
                keys[hole, word] = keys[ahead, word]
            table.values[hole] = table.values[ahead]
            hole = ahead
    table.values[hole] = ABSENT
    table.counts[TAKEN] -= 1


@kernel
def _copy_keys(table: HashTable, larger: HashTable) -> None:
    """Insert every key of a table into another one."""
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
    """Whether `more` further keys fill at most half of the slots."""
    return bool(2 * (table.counts[TAKEN] + more) <= len(table.values))


@inlined
def allocate_row(pool: Pool) -> int:
    """Allocate and return a free row, or ABSENT."""
    left = pool.free[0] - 1
    if left < 0:
        return ABSENT
    pool.free[0] = left
    return int(pool.rows[left])


@inlined
def give_row(pool: Pool, row: int) -> None:
    """Free a row that `allocate_row` returned."""
    pool.rows[pool.free[0]] = row
    pool.free[0] += 1


@inlined
def list_insert(ends: HasLists, links: InLists, which: int, before: int, row: int) -> None:
    """Insert a row after row `before` of a list (ABSENT: at the front); it must be in no list of
    these links."""
    after = ends.first[which] if before == ABSENT else links.next[before]
    links.previous[row] = before
    links.next[row] = after
    if before == ABSENT:
        ends.first[which] = row
    else:
        links.next[before] = row
    if after == ABSENT:
        ends.last[which] = row
    else:
        links.previous[after] = row
    ends.length[which] += 1


@inlined
def list_append(ends: HasLists, links: InLists, which: int, row: int) -> None:
    """Append a row to a list; as `list_insert`."""
    list_insert(ends, links, which, ends.last[which], row)


@inlined
def list_unlink(ends: HasLists, links: InLists, which: int, row: int) -> None:
    """Remove a row from its list."""
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
def chain_append(
    table: HashTable, links: ListLinks, a: int, b: int, c: int, d: int, row: int
) -> None:
    """Append a row to the chain of a key. `previous` of a chain's head is its last row."""
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
def chain_unlink(
    table: HashTable, links: ListLinks, a: int, b: int, c: int, d: int, row: int
) -> None:
    """Remove a row from the chain of its key; an empty chain's key is removed from the table."""
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
def remember(memory: RecentKeys, a: int, b: int, c: int, d: int, value: int) -> None:
    """Store a number (>= 0) for a key; a new key evicts the oldest one if the ring is full."""
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
