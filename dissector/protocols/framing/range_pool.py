"""Bytes of directions whose frames are not known: one pool of ranges, one buffer per direction.

A direction has such a buffer at the beginning of a connection until its protocol is decided, behind
a header that was lost or is none, and while it waits for the other direction's frames. The buffer's
bytes lie one behind the other in the arena; its ranges are a list of rows of the pool, gaps and
events among them; each protocol whose frames are looked for has a search (`search_state`), which
goes on where it stood. When it is decided what the bytes are, the rows go to the front of one list,
of the ranges that pass through the splitting kernel again, before any other.

Buffers are small or large by what they hold, and each kind has a bound: small ones only go on to
hold, large ones must be decided.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.protocols.framing.search_state import SEARCH_CELLS
from dissector.tables import Pool, grown_pool, new_pool

RANGE_BYTES: Final = 256  # counted as held for each range, beside its bytes

# What the pool counts.
SMALL_HELD: Final = 0  # bytes of small buffers
LARGE_HELD: Final = 1  # bytes of large ones
SMALL_LIMIT: Final = 2  # a buffer that would bring small ones above it is large
LARGE_LIMIT: Final = 3  # above it large ones are decided
ARRIVALS: Final = 4  # ranges that came for the first time
_COUNTS: Final = 5

_FIRST_RANGES: Final = 1 << 8
_FIRST_BUFFERS: Final = 1 << 7


class BufferedRanges(Records):
    """Ranges of buffers, and those that go through the kernel again.

    direction_index: 2 * row + side; kind to cause: as in `RangeColumns`.
    order: rises with the ranges of both directions as they arrived.
    starts_chain: its first byte is where frames were found again; 1 more than the bytes that were
        passed over before it, else 0.
    is_judged: the first of them need not be strict.
    begin: its first byte in the buffer, counted from the first byte that this ever had.
    at, release_packet: where its bytes lie in the arena and which packet lets it out, once it goes
        through the kernel again.
    next: row of the following range.
    next_gap: of the following gap; ABSENT behind the last.
    """

    direction_index: Int64Array
    kind: Int64Array
    stream_offset: Int64Array
    length: Int64Array
    packet: Int64Array
    ts_ns: Int64Array
    flags: Int64Array
    cause: Int64Array
    order: Int64Array
    starts_chain: Int64Array
    is_judged: Int64Array
    begin: Int64Array
    at: Int64Array
    release_packet: Int64Array
    next: Int64Array
    next_gap: Int64Array


class ResyncBuffers(Records):
    """The buffer of one direction.

    at, room: where its bytes lie in the arena.
    size: how many.
    first, last: its ranges, of which there are `ranges`.
    first_gap, last_gap: those of them that are gaps with bytes of the buffer before them.
    base: bytes dropped so far.
    resume_mode: what the direction goes back to, of a buffer that only waits for the other
        direction; -1 of one that is searched.
    at_start: its first byte is the first of the connection.
    is_known_start: and it was seen so, from a SYN.
    peer_waits: the other direction waits for its frames.
    peer_timed_out: it did so for too long.
    is_confirmed: more than a chain speaks for the frames that were found.
    has_events: it holds ranges that are no bytes and must be reported.
    follows_records: it may be TLS.
    next_record, records_in_a_row: TLS records so far (`first_bytes`).
    is_tls: it is.
    is_large: which bound it counts in.
    """

    at: Int64Array
    room: Int64Array
    size: Int64Array
    first: Int64Array
    last: Int64Array
    ranges: Int64Array
    first_gap: Int64Array
    last_gap: Int64Array
    base: Int64Array
    resume_mode: Int64Array
    at_start: Int64Array
    is_known_start: Int64Array
    peer_waits: Int64Array
    peer_timed_out: Int64Array
    is_confirmed: Int64Array
    has_events: Int64Array
    follows_records: Int64Array
    next_record: Int64Array
    records_in_a_row: Int64Array
    is_tls: Int64Array
    is_large: Int64Array


class RangePool(NamedTuple):
    """All buffers.

    searches: int64[buffers * protocols, SEARCH_CELLS], those of one buffer one behind the other.
    counts: int64[], see above.
    """

    ranges: BufferedRanges
    free_ranges: Pool
    buffers: ResyncBuffers
    free_buffers: Pool
    searches: Int64Array
    counts: Int64Array


def new_range_pool(protocols: int) -> RangePool:
    """No buffer."""
    return RangePool(
        BufferedRanges.new(_FIRST_RANGES),
        new_pool(_FIRST_RANGES),
        ResyncBuffers.new(_FIRST_BUFFERS),
        new_pool(_FIRST_BUFFERS),
        np.zeros((_FIRST_BUFFERS * protocols, SEARCH_CELLS), np.int64),
        np.zeros(_COUNTS, np.int64),
    )


def grown_range_pool(pool: RangePool, more: int) -> RangePool:
    """The same with so many free rows more of what has fewer."""
    if pool.free_ranges.free[0] < more:
        rows = 2 * len(pool.free_ranges.rows)
        pool = pool._replace(
            ranges=pool.ranges.grown(rows), free_ranges=grown_pool(pool.free_ranges, rows)
        )
    if pool.free_buffers.free[0] < more:
        rows = 2 * len(pool.free_buffers.rows)
        pool = pool._replace(
            buffers=pool.buffers.grown(rows),
            free_buffers=grown_pool(pool.free_buffers, rows),
            searches=np.concatenate((pool.searches, np.zeros_like(pool.searches))),
        )
    return pool
