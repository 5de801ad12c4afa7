"""What the framing remembers of each connection and direction between two ranges.

A connection has a row; its directions stand at 2 * row + side. Rows are reused when the rows of
a closed connection have been written.
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
    """What is done with the bytes of a direction."""

    HEAD = 0  # nothing decided: the protocol is to be recognised from the first bytes
    CHAIN = 1  # frame follows frame
    SEARCH = 2  # a frame's start must be found again (after a gap, or a broken chain)
    OPAQUE = 3  # not parsed: TLS, HTTP, another protocol; bytes are only counted
    HELD = 4  # waits for the other direction, whose frames are being searched


class RoleState(enum.IntEnum):
    """What is known about who the client is."""

    UNDECIDED = 0
    PROVISIONAL = 1  # by SYN; the first one-way command confirms or contradicts
    DECIDED = 2


class RoleSource(enum.IntEnum):
    """How the client was recognised (`connections.role_source`)."""

    BY_SYN = 0
    BY_COMMAND = 1
    BY_PORT = 2
    BY_FIRST_SEEN = 3


ROLE_SOURCE_NAMES: Final = ("syn", "command", "port", "first_seen")

# Protocols that are recognised but not decoded have numbers above all indexes in PROTOCOLS.
UNDECIDED: Final = -1
TLS: Final = 100
HTTP: Final = 101
UNKNOWN: Final = 102
OPAQUE_NAMES: Final = {TLS: "tls", HTTP: "http", UNKNOWN: "unknown"}

# First bytes of a direction that are kept to name a protocol that is not read (`other_protocols`).
HEAD_WORD_BYTES: Final = 7  # in each of two words
HEADS: Final = 2 * HEAD_WORD_BYTES


class SplitStatus(enum.IntEnum):
    """Why the splitting kernel returned, or what a step of it asks for."""

    DONE = 0
    FULL = 1  # no room for another frame: take the rows, call again
    ARENA_FULL = 2  # the arena needs more room
    CONNECTIONS_FULL = 3  # a new connection needs a row
    POOLS_FULL = 4  # ranges, buffers, notices or waiting frames need more rows
    BUFFERS_FULL = 5  # large buffers hold more than they may
    # These never leave the kernel.
    BROKEN = 6  # no header stands where the chain should go on
    ROLE_WAIT = 7  # the last row waits for the role, or decides it for rows that wait
    AGAIN = 8  # something comes before this range; then it is handled once more
    REPORTED = 9  # the end of a direction that no buffer has: its event is written


class DirectionState(Bundle):
    """One direction, int64[2 * rows] each.

    total: bytes of the unfinished frame, 0 unknown.
    have: its bytes in the arena, from its start.
    arena_at, arena_room: its room there.
    broken: 0, or 1 + the status it will have.
    skip: bytes of a broken frame still to come.
    frame_start: its stream offset.
    verify: the next header is checked strictly.
    limit: longest frame accepted, bytes.
    skipped: bytes passed over since the last frame.
    is_seen: any data so far.
    is_first: no frame came out yet.
    buffer: the row of its bytes without a chain (`range_pool`), ABSENT if it has none.
    head_first, head_second: its first head_bytes bytes, up to HEADS, the first of them at stream
        offset head_from.
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
    head_bytes: Int64Array
    head_from: Int64Array
    head_first: Int64Array
    head_second: Int64Array


class ConnectionState(Bundle):
    """One connection, int64[rows] each.

    client_endpoint: 0 or 1, which side is the client.
    waiting: frames that wait for the role, from row first_waiting to last_waiting of
        `WaitingFrames`.
    is_from_syn: its SYN or SYN-ACK was seen.
    ports: of side 0 << 16 | of side 1.
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
    ports: Int64Array


class WaitingFrames(FramingColumns, Records):
    """Frames whose direction is not known yet, as rows of frames; their bytes lie in the arena.

    next: of the same connection.
    """

    next: Int64Array


class NamingBytes(Records):
    """First bytes that name somebody, for whoever reads texts: at, size: where they lie in the
    arena; verdict: as `first_bytes` has it."""

    connection_id: Int64Array
    verdict: Int64Array
    at: Int64Array
    size: Int64Array


class FramingState(NamedTuple):
    """Everything the splitting kernel changes.

    connection_indexes: connection id -> row.
    free_connections: those not in use.
    counters: see COUNTER_*.
    arena, marks: bytes, and what searches noted of each (`range_pool`).
    again: one range, of those that go through the kernel once more.
    port_hints: of each port, PORT_OF_BROKER and << PROTOCOL_SHIFT the protocol, counted from 1,
        that the user says is spoken there.
    """

    directions: DirectionState
    connections: ConnectionState
    connection_indexes: HashTable
    free_connections: Pool
    counters: Int64Array
    arena: ByteArray
    marks: ByteArray
    pool: RangePool
    again: RangeColumns
    waiting: WaitingFrames
    free_waiting: Pool
    notices: Notices
    naming: NamingBytes
    port_hints: Int64Array


PORT_OF_BROKER: Final = 1
PROTOCOL_SHIFT: Final = 1

COUNTER_FRAME_NO: Final = 0  # the last number given
COUNTER_ARENA_USED: Final = 1
COUNTER_CURSOR: Final = 2  # range to go on with
COUNTER_POSITION: Final = 3  # bytes already taken of the range that is handled
COUNTER_ARENA_NEEDED: Final = 4
COUNTER_FRAME_LIMIT: Final = 5  # bytes of the longest frame of a fresh connection
COUNTER_IS_ASKED: Final = 6  # the user names protocols: they decide before any content
COUNTER_ONLY: Final = 7  # the protocol, counted from 1, that the user says all connections speak
COUNTER_CONNECTION: Final = 8  # of the connection at which the kernel stopped
COUNTER_AGAIN: Final = 9  # first of the ranges that go through the kernel once more, or ABSENT
COUNTER_RELEASED: Final = 10  # row whose waiting frames go out, or ABSENT
COUNTER_RELEASE_PACKET: Final = 11  # that lets them out
COUNTER_MOST_WAITING: Final = 12  # frames of a connection that may wait for its role
COUNTER_NAMING: Final = 13  # rows of `NamingBytes` in use
COUNTERS: Final = 14

_FIRST_WAITING: Final = 1 << 8
_NOTICES: Final = 1 << 10
_NAMING: Final = 1 << 6
# So many rows a step may take at most of each of these.
_STEP_ROWS: Final = 8


def new_state(
    connection_indexes: int, arena_bytes: int, key: int = 0, protocols: int = 1
) -> FramingState:
    """A state for so many connections at once; rows must be a power of two.

    key: of its hash table; protocols: whose frames are searched for.
    """
    counters = np.zeros(COUNTERS, np.int64)
    counters[[COUNTER_AGAIN, COUNTER_RELEASED]] = ABSENT
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
    """Whether the pools have rows for all that one range may bring."""
    pool, counters = state.pool, state.counters
    return bool(
        pool.free_ranges.free[0] >= _STEP_ROWS
        and pool.free_buffers.free[0] >= _STEP_ROWS
        and state.free_waiting.free[0] > 0
        and has_room(state.notices, _STEP_ROWS)
        and counters[COUNTER_NAMING] + _STEP_ROWS <= len(state.naming.at)
    )


def grown_pools(state: FramingState) -> FramingState:
    """The same with more rows in the pools that want them; notices and names were taken before."""
    if state.free_waiting.free[0] == 0:
        rows = 2 * len(state.free_waiting.rows)
        state = state._replace(
            waiting=state.waiting.grown(rows), free_waiting=grown_pool(state.free_waiting, rows)
        )
    return state._replace(pool=grown_range_pool(state.pool, _STEP_ROWS))
