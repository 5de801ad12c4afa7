"""Attempts: how often one message was sent, over all connections.

A client that gets no answer, or an error, sends again with the same producer name and sequence id,
on another connection or on the same one. A *source* is a topic and a producer name; the proxy's
side of a connection that was captured twice has sources of its own. An attempt row stays while one
of its sends is unanswered. Then it is appended to the answered rows of its source, of which the
last ones stay: a client sends again if an answer arrives after it stopped waiting.

Rows are found by hash chains, and a row is one line of the processor's cache, links included: each
send adds and removes rows, and in an open-addressing table a removal shifts neighbours that lie
elsewhere, which took a third of the time of all exchanges.
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
_KEY_PROXY_SIDE: Final = -2  # the second word is the proxy's connection of a pair
# Answered rows evicted per answer at most: after a reconnect, rows that are sent again soon are at
# the end of the list, and eviction of the rows before them must not reach them.
_FORGET_AT_ONCE: Final = 2

# Indexes into Attempts.counts.
_SOURCES: Final = 0  # sources so far
_CLOCK_HAND: Final = 1  # source whose oldest row is evicted next when there is no room
_MAX_SOURCES: Final = 2
_MAX_ROWS: Final = 3


class AttemptColumns(Records):
    """Sends whose attempts are counted, int64[rows] each.

    source: number of a topic and producer name.
    sequence_id, chunk_id, crc32c_stored: the rest of the key.
    count: attempts so far, 0 in a free row.
    waiting: attempts without an answer.
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
    """The state of all attempts.

    heads: int64[power of two], first row of each hash chain.
    answered: by source, the list of its rows without waiting sends.
    sources: numbers of sources, the proxy's connections, and the secret of the hashes.
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
    """An empty state with `rows` rows, at most max_rows; it grows. key: of hashes."""
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
    """Return the attempts, or larger copies, with room for `more` rows up to the bounds."""
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
    """Whether there is room for one more send."""
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
    """The index in `heads` of a row's chain."""
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
    """Insert a row, whose key is written, in its hash chain."""
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
    """Remove a row from its hash chain and mark it as free."""
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
    """Insert all rows in use in their chains, which are empty."""
    for row in range(len(attempts.rows.count)):
        if attempts.rows.count[row] > 0:
            link_attempt(attempts, row)


@kernel
def set_proxy_side(attempts: Attempts, connection: int, is_proxy_side: int) -> None:
    """Set whether a connection is the proxy's side of a pair; 0 when it ends."""
    if is_proxy_side == 1:
        tables.put(attempts.sources, _KEY_PROXY_SIDE, connection, 0, 0, 1)
    else:
        tables.remove(attempts.sources, _KEY_PROXY_SIDE, connection, 0, 0)


@kernel
def source_of(attempts: Attempts, connection: int, topic: int, producer_name: int) -> int:
    """The source of a topic and a producer name, added if it is new; ABSENT without room."""
    table = attempts.sources
    proxy_side = max(tables.find(table, _KEY_PROXY_SIDE, connection, 0, 0), 0)
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
    """Count a send in its attempt row, added if it is new; return the row, ABSENT without room."""
    rows = attempts.rows
    row = find_attempt(attempts, source, sequence_id, chunk_id, crc32c_stored)
    if row == tables.ABSENT:
        row = tables.allocate_row(attempts.pool)
        if row == tables.ABSENT and _evict_answered(attempts):
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
    """Count a send of a row as answered; a row without waiting sends joins the answered ones."""
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
    """Free the row of a source that was answered longest ago."""
    row = attempts.answered.first[source]
    tables.list_unlink(attempts.answered, attempts.links, source, row)
    unlink_attempt(attempts, row)
    tables.give_row(attempts.pool, row)


@kernel
def _evict_answered(attempts: Attempts) -> bool:
    """Free an answered row of the next source that has one; False if MAX_CHAIN_STEPS have none."""
    sources = attempts.counts[_SOURCES]
    for _ in range(min(MAX_CHAIN_STEPS, sources)):
        position = attempts.counts[_CLOCK_HAND] % sources
        attempts.counts[_CLOCK_HAND] = position + 1
        if attempts.answered.first[position] != tables.ABSENT:
            _forget_oldest(attempts, position)
            return True
    return False
