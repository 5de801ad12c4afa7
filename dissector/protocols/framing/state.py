"""The framing's state of each connection and direction between two ranges.

A connection has a row; its directions have the rows 2 * row + side. A row is reused once the closed
connection's table rows have been written.
"""

import enum
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle, Records
from dissector.jit import inlined
from dissector.notice_rows import Notices, has_room, new_notices
from dissector.protocols.columns import FramingColumns
from dissector.protocols.framing.range_pool import RangePool, grown_range_pool, new_range_pool
from dissector.stream.columns import RangeColumns
from dissector.tables import ABSENT, HashTable, Pool, grown_pool, new_hash_table, new_pool


class DirectionMode(enum.IntEnum):
    """How the bytes of a direction are handled."""

    HEAD = 0  # undecided: the protocol is to be recognised from the first bytes
    CHAIN = 1  # frame follows frame
    SEARCH = 2  # the start of a frame is searched (after a gap, or a broken chain)
    OPAQUE = 3  # not parsed: TLS, HTTP, another protocol; bytes are only counted
    HELD = 4  # buffered until the search of the other direction ends


class RoleState(enum.IntEnum):
    """How certain it is which endpoint is the client."""

    UNDECIDED = 0
    PROVISIONAL = 1  # by SYN; the first one-way command confirms or contradicts it
    DECIDED = 2


class RoleSource(enum.IntEnum):
    """How the client was recognised (`connections.role_source`)."""

    BY_SYN = 0
    BY_COMMAND = 1
    BY_PORT = 2
    BY_FIRST_SEEN = 3


ROLE_SOURCE_NAMES: Final = ("syn", "command", "port", "first_seen")

# Protocols that are recognised but not decoded: numbers above all indexes in PROTOCOLS.
UNDECIDED: Final = -1
TLS: Final = 100
HTTP: Final = 101
UNKNOWN: Final = 102
OPAQUE_NAMES: Final = {TLS: "tls", HTTP: "http", UNKNOWN: "unknown"}

# The stored first bytes of a direction, by which `other_protocols` names an undecoded protocol.
PREFIX_WORD_BYTES: Final = 7  # in each of two int64
PREFIX_BYTES: Final = 2 * PREFIX_WORD_BYTES


class SplitStatus(enum.IntEnum):
    """Why the splitting kernel returned, or the result of one of its steps."""

    DONE = 0
    FULL = 1  # no room for another frame: flush the rows, call again
    ARENA_FULL = 2  # the arena needs more room
    CONNECTIONS_FULL = 3  # a new connection needs a row
    POOLS_FULL = 4  # ranges, buffers, notices or waiting frames need more rows
    BUFFERS_FULL = 5  # large buffers hold more than they may
    # These never leave the kernel.
    BROKEN = 6  # no header where the chain's next frame must begin
    ROLE_WAIT = 7  # the last row waits for the role, or decides it for rows that wait
    RETRY = 8  # handle requeued ranges or released frames first, then this range once more
    REPORTED = 9  # the end of a direction is in no buffer: its event is to be written


class DirectionState(Bundle):
    """One direction, int64[2 * rows] each.

    total: bytes of the unfinished frame, 0 unknown.
    have: its bytes in the arena, from its start.
    arena_at, arena_room: its position and capacity in the arena.
    broken: its status if it has a gap, else 0 (COMPLETE).
    skip: bytes of a frame with a gap that are still expected.
    frame_start: stream offset of the frame.
    verify: the next header is checked strictly.
    limit: longest frame accepted, bytes.
    skipped: bytes that belong to no frame since the last frame.
    is_seen: the direction had data.
    is_first: no frame was emitted yet.
    buffer: row of its buffer (`range_pool`), ABSENT if it has none.
    prefix_first, prefix_second: its first prefix_bytes bytes, up to PREFIX_BYTES, from stream
        offset prefix_offset on.
    """

    mode: Int64Array
    total: Int64Array
    have: Int64Array
    arena_at: Int64Array
    arena_room: Int64Array
    broken: Int64Array
    skip: Int64Array
    frame_start: Int64Array
    first_packet: Int64Array
    first_ts: Int64Array
    last_packet: Int64Array
    last_ts: Int64Array
    retransmitted: Int64Array
    verify: Int64Array
    limit: Int64Array
    skipped: Int64Array
    frames: Int64Array
    decoded_bytes: Int64Array
    is_seen: Int64Array
    is_first: Int64Array
    buffer: Int64Array
    prefix_bytes: Int64Array
    prefix_offset: Int64Array
    prefix_first: Int64Array
    prefix_second: Int64Array


class ConnectionState(Bundle):
    """One connection, int64[rows] each.

    client_endpoint: 0 or 1, which side is the client.
    waiting: number of frames that wait for the role, linked from row first_waiting to last_waiting
        of `WaitingFrames`.
    is_from_syn: its SYN or SYN-ACK was seen.
    is_two_way: as in `FrameColumns`.
    ports, endpoint_hashes: see `RangeColumns`.
    """

    connection_id: Int64Array
    protocol: Int64Array
    role: Int64Array
    client_endpoint: Int64Array
    role_source: Int64Array
    waiting: Int64Array
    first_waiting: Int64Array
    last_waiting: Int64Array
    is_from_syn: Int64Array
    is_two_way: Int64Array
    ports: Int64Array
    endpoint_hashes: Int64Array


class WaitingFrames(FramingColumns, Records):
    """Frames whose direction is not known yet; their bytes lie in the arena.

    next: row of the connection's next waiting frame.
    """

    next: Int64Array


class NamingBytes(Records):
    """First bytes that may hold a name, for `Detection.read_names`: at, size: position in the
    arena; verdict: a `first_bytes.HeadVerdict`."""

    connection_id: Int64Array
    verdict: Int64Array
    at: Int64Array
    size: Int64Array


class FramingState(NamedTuple):
    """Everything that the splitting kernel changes.

    connection_indexes: connection id -> row.
    free_connections: rows not in use.
    counters: see COUNTER_*.
    arena, marks: bytes, and the marks of searches on each (`resync.SearchView`).
    requeued: one row, the requeued range that is being handled.
    port_hints: int64[65536], by port: PORT_OF_BROKER, and << PROTOCOL_SHIFT the protocol that an
        option gives the port, counted from 1.
    """

    directions: DirectionState
    connections: ConnectionState
    connection_indexes: HashTable
    free_connections: Pool
    counters: Int64Array
    arena: ByteArray
    marks: ByteArray
    pool: RangePool
    requeued: RangeColumns
    waiting: WaitingFrames
    free_waiting: Pool
    notices: Notices
    naming: NamingBytes
    port_hints: Int64Array


PORT_OF_BROKER: Final = 1
PROTOCOL_SHIFT: Final = 1

COUNTER_FRAME_NO: Final = 0  # the last frame number assigned
COUNTER_ARENA_USED: Final = 1
COUNTER_CURSOR: Final = 2  # index of the range that is handled next
COUNTER_POSITION: Final = 3  # bytes of that range, or of the requeued one, already handled
COUNTER_ARENA_NEEDED: Final = 4
COUNTER_FRAME_LIMIT: Final = 5  # bytes of the longest frame of a fresh connection
COUNTER_IS_FORCED: Final = 6  # options name protocols, which override the content
COUNTER_ONLY: Final = 7  # protocol of all connections by option, counted from 1; 0 none
COUNTER_CONNECTION: Final = 8  # row of the connection at which the kernel stopped
COUNTER_REQUEUED: Final = 9  # row of the first requeued range, or ABSENT
COUNTER_RELEASED: Final = 10  # row of the connection whose waiting frames are written, or ABSENT
COUNTER_RELEASE_PACKET: Final = 11  # packet that released them
COUNTER_MOST_WAITING: Final = 12  # frames of a connection that may wait for its role
COUNTER_NAMING: Final = 13  # rows of `NamingBytes` in use
COUNTERS: Final = 14

_FIRST_WAITING: Final = 1 << 8
_NOTICES: Final = 1 << 10
_NAMING: Final = 1 << 6
# Rows that one step may use at most in each of these.
_STEP_ROWS: Final = 8


def new_state(
    connection_indexes: int, arena_bytes: int, key: int = 0, protocols: int = 1
) -> FramingState:
    """A state for `connection_indexes` open connections, a power of two.

    key: of its hash table; protocols: how many are searched for.
    """
    counters = np.zeros(COUNTERS, np.int64)
    counters[[COUNTER_REQUEUED, COUNTER_RELEASED]] = ABSENT
    directions = DirectionState.new(2 * connection_indexes)
    directions.buffer[:] = ABSENT
    return FramingState(
        directions,
        ConnectionState.new(connection_indexes),
        new_hash_table(4 * connection_indexes, key),
        new_pool(connection_indexes),
        counters,
        np.empty(arena_bytes, np.uint8),
        np.empty(arena_bytes, np.uint8),
        new_range_pool(protocols),
        RangeColumns.new(1),
        WaitingFrames.new(_FIRST_WAITING),
        new_pool(_FIRST_WAITING),
        new_notices(_NOTICES),
        NamingBytes.new(_NAMING),
        np.zeros(1 << 16, np.int64),
    )


@inlined
def has_rows(state: FramingState) -> bool:
    """Whether the pools have enough free rows for any one range."""
    pool, counters = state.pool, state.counters
    return bool(
        pool.free_ranges.free[0] >= _STEP_ROWS
        and pool.free_buffers.free[0] >= _STEP_ROWS
        and state.free_waiting.free[0] > 0
        and has_room(state.notices, _STEP_ROWS)
        and counters[COUNTER_NAMING] + _STEP_ROWS <= len(state.naming.at)
    )


def grown_pools(state: FramingState) -> FramingState:
    """Return the state with more rows in its full pools; the caller has drained notices, names."""
    if state.free_waiting.free[0] == 0:
        rows = 2 * len(state.free_waiting.rows)
        state = state._replace(
            waiting=state.waiting.grown(rows), free_waiting=grown_pool(state.free_waiting, rows)
        )
    return state._replace(pool=grown_range_pool(state.pool, _STEP_ROWS))
