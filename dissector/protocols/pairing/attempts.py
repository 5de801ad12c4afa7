"""Attempts: how often one message was sent, over all connections.

A client that gets no answer, or an error, sends again with the same producer name and sequence id,
on another connection or on the same one. A *source* is a topic and a producer name; the proxy's leg
of a connection that was captured on both sides has sources of its own. An attempt row stays while
one of its sends waits; then it queues behind the answered ones of its source, of which the last
ones stay, because answers that a client no longer takes are sent for again.

Rows are found by chains behind heads, and a row is one line of the processor's cache, links
included: rows come and go at each send, and in a table of slots every removal shifts neighbours
that lie elsewhere, which took a third of the time of all exchanges.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector import tables
from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.jit import inlined, kernel
from dissector.limits import MAX_ANSWERED_PER_PRODUCER, MAX_CHAIN_STEPS
from dissector.tables import HashTable, ListHeads, ListLinks, Pool

_KEY_SOURCE: Final = -1  # first word of the keys of sources
_KEY_LEG: Final = -2  # the second word is a connection of a proxy's leg
# Answered rows forgotten per answer at most: after a reconnect the unanswered ones wait at the end
# of the queue, and those in front of them shall not take them along.
_FORGET_AT_ONCE: Final = 2

# Indexes into Attempts.counts.
_SOURCES: Final = 0  # sources so far
_HAND: Final = 1  # source whose oldest row is forgotten next when there is no room
_MAX_SOURCES: Final = 2
_MAX_ROWS: Final = 3


class AttemptColumns(Records):
    """Sends whose attempts are counted, int64[rows] each.

    source: topic and producer by name.
    sequence_id, chunk_id, crc32c_stored: the rest of the key.
    count: attempts so far, 0 in a row that is free.
    waiting: how many of them have no answer yet.
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


class Attempts(NamedTuple):
    """Everything that is remembered of attempts.

    heads: int64[power of two], of the chains by which rows are found.
    answered: lists of the rows of each source that wait for nothing.
    sources: numbers of sources, and proxy legs, and the secret of the hashes of both.
    counts: int64[4].
    """

    rows: AttemptColumns
    heads: Int64Array
    pool: Pool
    links: ListLinks
    answered: ListHeads
    sources: HashTable
    counts: Int64Array


def new_attempts(rows: int, max_rows: int, max_sources: int, key: int = 0) -> Attempts:
    """No attempts, with room for so many; it grows from there. key: of hashes."""
    rows = min(rows, max_rows)
    return Attempts(
        rows=AttemptColumns.new(rows),
        heads=new_heads(rows),
        pool=tables.new_pool(rows),
        links=ListLinks.new(rows),
        answered=tables.new_ends(64),
        sources=tables.new_hash_table(1024, key),
        counts=np.array([0, 0, max_sources, max_rows], np.int64),
    )


def with_room(attempts: Attempts, more: int) -> Attempts:
    """The same, or larger copies, with room for `more` further rows, up to the bounds."""
    sources = tables.reserved(attempts.sources, more)
    is_anew = sources.secret is not attempts.sources.secret
    if sources is not attempts.sources:
        attempts = attempts._replace(sources=sources)
    if is_anew:
        attempts = attempts._replace(heads=np.full_like(attempts.heads, tables.ABSENT))
        link_all(attempts)
    free, rows = int(attempts.pool.free[0]), len(attempts.pool.rows)
    needed = min(max(2 * rows, rows + more - free), int(attempts.counts[_MAX_ROWS]))
    if free < more and needed > rows:
        attempts = attempts._replace(
            rows=attempts.rows.grown(needed),
            heads=new_heads(needed),
            pool=tables.grown_pool(attempts.pool, needed),
            links=attempts.links.grown(needed),
        )
        link_all(attempts)
    needed = int(min(attempts.counts[_SOURCES] + more, attempts.counts[_MAX_SOURCES]))
    if needed > len(attempts.answered.length):
        attempts = attempts._replace(answered=attempts.answered.grown(2 * needed))
    return attempts


@inlined
def has_attempt_room(attempts: Attempts) -> bool:
    """Whether one more send fits."""
    sources = attempts.counts[_SOURCES]
    return bool(
        tables.has_room(attempts.sources, 1)
        and (sources < len(attempts.answered.length) or sources == attempts.counts[_MAX_SOURCES])
        and (attempts.pool.free[0] > 0 or len(attempts.pool.rows) == attempts.counts[_MAX_ROWS])
    )


def new_heads(count: int) -> Int64Array:
    """Heads of empty chains for so many rows, int64[power of two]."""
    return np.full(1 << max(1, (2 * count - 1).bit_length()), tables.ABSENT, np.int64)


@inlined
def _head_of(attempts: Attempts, row: int) -> int:
    """The slot in `heads` of a row's chain."""
    rows = attempts.rows
    return tables.slot_of(
        attempts.sources.secret,
        rows.source[row],
        rows.sequence_id[row],
        rows.chunk_id[row],
        rows.crc32c_stored[row],
        len(attempts.heads) - 1,
    )


@kernel
def find_attempt(
    attempts: Attempts, source: int, sequence_id: int, chunk_id: int, crc32c_stored: int
) -> int:
    """The row of a key, or ABSENT."""
    rows, heads, sources = attempts.rows, attempts.heads, attempts.sources
    mask = len(heads) - 1
    row = heads[tables.slot_of(sources.secret, source, sequence_id, chunk_id, crc32c_stored, mask)]
    for steps in range(len(rows.count) + 1):
        if row == tables.ABSENT or (
            rows.sequence_id[row] == sequence_id
            and rows.source[row] == source
            and rows.chunk_id[row] == chunk_id
            and rows.crc32c_stored[row] == crc32c_stored
        ):
            if steps > 0:
                tables.note_probes(sources.counts, steps)
            return int(row)
        row = rows.next[row]
    tables.note_cut_walk(sources)
    return tables.ABSENT


@kernel
def link_attempt(attempts: Attempts, row: int) -> None:
    """Make a row whose key is written findable."""
    rows, heads = attempts.rows, attempts.heads
    head = _head_of(attempts, row)
    after = heads[head]
    rows.next[row] = after
    rows.previous[row] = tables.ABSENT
    if after != tables.ABSENT:
        rows.previous[after] = row
    heads[head] = row


@kernel
def unlink_attempt(attempts: Attempts, row: int) -> None:
    """Take a row out of its chain; it is free then."""
    rows = attempts.rows
    before = rows.previous[row]
    after = rows.next[row]
    if before == tables.ABSENT:
        attempts.heads[_head_of(attempts, row)] = after
    else:
        rows.next[before] = after
    if after != tables.ABSENT:
        rows.previous[after] = before
    rows.count[row] = 0


@kernel
def link_all(attempts: Attempts) -> None:
    """Put all rows that are not free into empty chains."""
    for row in range(len(attempts.rows.count)):
        if attempts.rows.count[row] > 0:
            link_attempt(attempts, row)


@kernel
def set_proxy_side(attempts: Attempts, connection: int, is_proxy_side: int) -> None:
    """Say whether a connection is the proxy's leg of a pair; called again when it ends."""
    if is_proxy_side == 1:
        tables.put(attempts.sources, _KEY_LEG, connection, 0, 0, 1)
    else:
        tables.remove(attempts.sources, _KEY_LEG, connection, 0, 0)


@kernel
def source_of(attempts: Attempts, connection: int, topic: int, producer_name: int) -> int:
    """The source of a topic and a producer name, made if it is new; ABSENT without room."""
    table = attempts.sources
    proxy_side = max(tables.find(table, _KEY_LEG, connection, 0, 0), 0)
    source = tables.find(table, _KEY_SOURCE, topic, producer_name, proxy_side)
    if source == tables.ABSENT and attempts.counts[_SOURCES] < attempts.counts[_MAX_SOURCES]:
        source = attempts.counts[_SOURCES]
        attempts.counts[_SOURCES] = source + 1
        tables.put(table, _KEY_SOURCE, topic, producer_name, proxy_side, source)
    return int(source)


@inlined
def begin_attempt(
    attempts: Attempts, source: int, sequence_id: int, chunk_id: int, crc32c_stored: int
) -> int:
    """The attempt row of a send, with this send counted in it; ABSENT without room."""
    rows = attempts.rows
    row = find_attempt(attempts, source, sequence_id, chunk_id, crc32c_stored)
    if row == tables.ABSENT:
        row = tables.allocate_row(attempts.pool)
        if row == tables.ABSENT and _forget_some(attempts):
            row = tables.allocate_row(attempts.pool)
        if row == tables.ABSENT:
            return tables.ABSENT
        rows.source[row] = source
        rows.sequence_id[row] = sequence_id
        rows.chunk_id[row] = chunk_id
        rows.crc32c_stored[row] = crc32c_stored
        rows.count[row] = 0
        rows.waiting[row] = 0
        link_attempt(attempts, row)
    elif rows.waiting[row] == 0:
        tables.list_unlink(attempts.answered, attempts.links, source, row)
    rows.count[row] += 1
    rows.waiting[row] += 1
    return int(row)


@inlined
def end_attempt(attempts: Attempts, row: int) -> None:
    """A send of this row waits no longer."""
    rows = attempts.rows
    rows.waiting[row] -= 1
    if rows.waiting[row] == 0:
        source = rows.source[row]
        tables.list_append(attempts.answered, attempts.links, source, row)
        for _ in range(_FORGET_AT_ONCE):
            if attempts.answered.length[source] > MAX_ANSWERED_PER_PRODUCER:
                _forget_oldest(attempts, source)


@inlined
def _forget_oldest(attempts: Attempts, source: int) -> None:
    """Forget the attempt row of a source that was answered longest ago."""
    row = attempts.answered.first[source]
    tables.list_unlink(attempts.answered, attempts.links, source, row)
    unlink_attempt(attempts, row)
    tables.give_row(attempts.pool, row)


@kernel
def _forget_some(attempts: Attempts) -> bool:
    """Forget an answered row of the next source that has one; False if none is near."""
    sources = attempts.counts[_SOURCES]
    for _ in range(min(MAX_CHAIN_STEPS, sources)):
        hand = attempts.counts[_HAND] % sources
        attempts.counts[_HAND] = hand + 1
        if attempts.answered.first[hand] != tables.ABSENT:
            _forget_oldest(attempts, hand)
            return True
    return False
