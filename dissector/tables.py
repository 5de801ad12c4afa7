"""Bounded tables of facts: hash tables on integer keys, first-in first-out lists, row pools.

Theory. Facts keep what waits (a send for its receipt, a delivery for its ack) as rows of a pool,
numbered from 0. A *hash table* finds a row by a key of four integers; fewer words are filled up
with zeros, and one word is best spent on the kind of key, so that one table serves several. Hashes
are keyed (`codecs.keyed_hash`). Probing is linear and a removed key is filled up by shifting its
followers back: no tombstones, so a table that lives as long as a tap does not silt up. A *list*
(`ListHeads` over `ListLinks`) keeps rows in the order in which they came and gives up any of them
at once. A *chain* is a list whose head is the value of
a hash table: all rows of one key, oldest first. A *pool* hands out free rows.

Kernels never grow anything: before a block the caller makes sure that there is room for all that
the block could add (`reserved`, `grow_rows`), up to a bound of `limits`, and at the bound the
kernel gives up an old row first. So no kernel meets a full table. A *memory* is a table of fixed
size for hints: a new key pushes out the oldest.

Every loop ends, whatever the memory holds. A search that takes more than `limits.MAX_PROBES` slots
is counted, and before the next block the table is made anew under another secret (`reserved`).
Whoever follows a list or chain does so in a `for` with a bound, a number of `limits` or the rows
there are, and counts where the bound is hit (`note_cut_walk`). `notice_log.of_limits` makes notices
of both.
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
PROBES: Final = 1  # slots looked at behind the first one of each search
CROWDED: Final = 2  # searches since the table was made that took more than MAX_PROBES slots
CROWDED_BEFORE: Final = 3  # and in those that it was made of
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
    """A bundle whose rows stand in lists: the rows before and after, ABSENT at the ends."""

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
        """A copy with room for `lists` lists; the new ones are empty."""
        larger = super().grown(lists, value)
        larger.length[len(self.length) :] = 0
        return larger


class Pool(NamedTuple):
    """Free rows, taken from the end.

    rows: int64[capacity].
    free: int64[1], how many are left.
    """

    rows: Int64Array
    free: Int64Array


class RecentKeys(NamedTuple):
    """The last so many keys and a number for each.

    table: twice as many slots as keys are kept.
    ring: int64[capacity, 4], the keys in the order in which they came.
    counts: int64[2], index of the oldest key in the ring and number of keys.
    """

    table: HashTable
    ring: Int64Array
    counts: Int64Array


def new_memory(capacity: int, key: int = 0) -> RecentKeys:
    """A memory of so many keys, a power of two. key: of its hashes."""
    return RecentKeys(
        new_hash_table(2 * capacity, key),
        zeros((capacity, KEY_WORDS)),
        np.zeros(2, np.int64),
    )


def new_hash_table(slots: int, key: int = 0) -> HashTable:
    """An empty table; slots is a power of two. key: of its hashes; 0 suits tests."""
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
    """The table, or a larger copy that `more` further keys fill to half at most.

    Where a search took too long, the copy has another secret.
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
    other.counts[CROWDED] = 0  # whatever copying met: what is searched will tell
    other.counts[PROBES] += table.counts[PROBES]
    other.counts[CROWDED_BEFORE] = table.counts[CROWDED_BEFORE] + crowded
    other.counts[CUT_WALKS] = table.counts[CUT_WALKS]
    return other


def hash_tables(memory: Any) -> Iterator[HashTable]:
    """The hash tables in a state, or in a tuple of arrays."""
    if isinstance(memory, HashTable):
        yield memory
    elif not isinstance(memory, np.ndarray | Bundle):
        for name in memory._fields:
            yield from hash_tables(getattr(memory, name))


def settled(memory: RecentKeys) -> RecentKeys:
    """The memory, or a copy under another secret where a search took too long."""
    return memory._replace(table=reserved(memory.table, 0))


def new_ends(lists: int) -> ListHeads:
    """Empty lists."""
    ends = ListHeads.new(lists, ABSENT)
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
def slot_of(secret: Int64Array, a: int, b: int, c: int, d: int, mask: int) -> int:
    """Where the search for a key starts."""
    return keyed_hash.hash_of_words(secret, a, b, c, d) & mask


@inlined
def note_probes(counts: Int64Array, steps: int) -> None:
    """Count the slots of a search behind the first one; counts: as a table's."""
    counts[PROBES] += steps
    if steps >= MAX_PROBES:
        counts[CROWDED] += 1


@inlined
def note_cut_walk(table: HashTable) -> None:
    """Count a walk along a list, of the state whose table this is, that ended at its bound."""
    table.counts[CUT_WALKS] += 1


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
    """The row of a key, or ABSENT."""
    return int(table.values[find_slot(table, a, b, c, d)])


@inlined
def fill_slot(table: HashTable, slot: int, a: int, b: int, c: int, d: int, value: int) -> None:
    """Put a key that is not there, with its row, into the free slot that find_slot gave for it."""
    table.keys[slot, 0] = a
    table.keys[slot, 1] = b
    table.keys[slot, 2] = c
    table.keys[slot, 3] = d
    table.counts[TAKEN] += 1
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
    return bool(2 * (table.counts[TAKEN] + more) <= len(table.values))


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
def list_insert(ends: HasLists, links: InLists, which: int, before: int, row: int) -> None:
    """Put a row behind another one of a list, ABSENT: at its beginning; it must be in no list of
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
    """Put a row at the end of a list; as `list_insert`."""
    list_insert(ends, links, which, ends.last[which], row)


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
def chain_append(
    table: HashTable, links: ListLinks, a: int, b: int, c: int, d: int, row: int
) -> None:
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
def chain_unlink(
    table: HashTable, links: ListLinks, a: int, b: int, c: int, d: int, row: int
) -> None:
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
def remember(memory: RecentKeys, a: int, b: int, c: int, d: int, value: int) -> None:
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
