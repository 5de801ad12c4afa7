"""Bytes of directions without known frame starts: one pool of ranges, one buffer per direction.

A direction has a buffer until its protocol is decided, behind a lost or invalid header, and while
it waits for its peer's frames. The bytes of a buffer are contiguous in the arena; its ranges, with
gaps and events, are a linked list of rows of the pool; each protocol has a search (`search_state`),
which resumes where it stopped. Once the bytes are decided, the rows move to the front of one list:
the requeued ranges, which the splitting kernel handles before any other.

Buffers are small or large by the bytes they hold, and each kind has a limit: at theirs, small
buffers become large; at the other, large buffers are decided.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.protocols.framing.search_state import SEARCH_CELLS
from dissector.tables import Pool, grown_pool, new_pool

RANGE_BYTES: Final = 256  # charged for each range in addition to its bytes

# Indexes of the pool's counters.
SMALL_HELD: Final = 0  # bytes of small buffers
LARGE_HELD: Final = 1  # bytes of large ones
SMALL_LIMIT: Final = 2  # a buffer that would bring small ones above it is large
LARGE_LIMIT: Final = 3  # above it large ones are decided
ARRIVALS: Final = 4  # ranges buffered for the first time
_COUNTS: Final = 5

_FIRST_RANGES: Final = 1 << 8
_FIRST_BUFFERS: Final = 1 << 7


class BufferedRanges(Records):
    """Ranges of buffers, and requeued ranges.

    direction_index: 2 * row + side; kind to cause: as in `RangeColumns`.
    order: arrival number, counted over all directions.
    starts_chain: 1 + the bytes skipped before it if a chain of frames starts at its first byte,
        else 0.
    header_ok: the header there was accepted and need not pass the strict check.
    begin: offset of its first byte, counted from the first byte that the buffer ever had.
    at, release_packet: of a requeued range: its position in the arena, and the packet that
        released it.
    next: row of the following range.
    next_gap: row of the following gap; ABSENT behind the last.
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
    header_ok: Int64Array
    begin: Int64Array
    at: Int64Array
    release_packet: Int64Array
    next: Int64Array
    next_gap: Int64Array


class ResyncBuffers(Records):
    """The buffer of one direction.

    at, room: position and capacity of its bytes in the arena.
    size: its bytes.
    first, last: rows of its first and last range; ranges: how many it has.
    first_gap, last_gap: rows of the first and last gap with bytes of the buffer before them.
    base: bytes dropped so far.
    resume_mode: mode to restore if the direction only waits for its peer; -1 if the buffer is
        searched.
    at_start: its first byte is the first of the connection.
    is_known_start: at_start, and a SYN was seen.
    peer_waits: the peer waits for this direction's frames.
    peer_timed_out: the peer waited too long.
    is_confirmed: packets or a SYN confirm the accepted chain.
    has_events: it holds gaps or ends, which must be reported.
    follows_records: its bytes may be TLS records.
    next_record, records_in_a_row: TLS records so far (`first_bytes`).
    is_tls: they are TLS records.
    is_large: it counts against LARGE_LIMIT, not SMALL_LIMIT.
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

    searches: int64[buffers * protocols, SEARCH_CELLS], grouped by buffer.
    counts: int64[_COUNTS], by the indexes above.
    """

    ranges: BufferedRanges
    free_ranges: Pool
    buffers: ResyncBuffers
    free_buffers: Pool
    searches: Int64Array
    counts: Int64Array


def new_range_pool(protocols: int) -> RangePool:
    """A pool without buffers, for so many protocols."""
    return RangePool(
        BufferedRanges.new(_FIRST_RANGES),
        new_pool(_FIRST_RANGES),
        ResyncBuffers.new(_FIRST_BUFFERS),
        new_pool(_FIRST_BUFFERS),
        np.zeros((_FIRST_BUFFERS * protocols, SEARCH_CELLS), np.int64),
        np.zeros(_COUNTS, np.int64),
    )


def grown_range_pool(pool: RangePool, more: int) -> RangePool:
    """Return the pool; ranges and buffers with fewer than `more` free rows are doubled."""
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
