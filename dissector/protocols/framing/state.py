"""What the framing remembers of each connection and direction between two ranges.

A connection has a slot; its directions stand at 2 * slot + side. Slots are reused when the rows of
a closed connection have been written.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle
from dissector.limits import MOST_OPENING_BYTES, MOST_OPENING_RANGES
from dissector.protocols.framing.replays import Pieces
from dissector.protocols.framing.resync import new_search
from dissector.tables import HashTable, Pool, grown_pool, new_hash_table, new_pool

# Modes of a direction.
HEAD: Final = 0  # nothing decided: the protocol is to be recognised from the first bytes
CHAIN: Final = 1  # frame follows frame
SEARCH: Final = 2  # a frame's start must be found again (after a gap, or a broken chain)
OPAQUE: Final = 3  # not parsed: TLS, HTTP, another protocol; bytes are only counted
HELD: Final = 4  # waits for the other direction, whose frames are being searched

# What is known about who the client is.
ROLE_UNDECIDED: Final = 0
ROLE_PROVISIONAL: Final = 1  # by SYN; the first one-way command confirms or contradicts
ROLE_DECIDED: Final = 2

# How the client was recognised (`connections.role_source`).
ROLE_BY_SYN: Final = 0
ROLE_BY_COMMAND: Final = 1
ROLE_BY_PORT: Final = 2
ROLE_BY_FIRST_SEEN: Final = 3
ROLE_SOURCE_NAMES: Final = ("syn", "command", "port", "first_seen")

# Protocols that are recognised but not decoded have numbers above all indexes in PROTOCOLS.
UNDECIDED: Final = -1
TLS: Final = 100
HTTP: Final = 101
UNKNOWN: Final = 102
OPAQUE_NAMES: Final = {TLS: "tls", HTTP: "http", UNKNOWN: "unknown"}

# First bytes of a direction that are kept to name a protocol that is not read (`others`).
HEAD_WORD_BYTES: Final = 7  # in each of two words
HEADS: Final = 2 * HEAD_WORD_BYTES

# Why the splitting kernel returned.
DONE: Final = 0
FULL: Final = 1  # no room for another frame or notice: take the rows, call again
ARENA_FULL: Final = 2  # the arena needs more room
SLOTS_FULL: Final = 3  # a new connection needs a slot
ATTENTION: Final = 4  # the range at the cursor needs the slow path (recognise, search)
ROLE_WAIT: Final = 5  # the last row waits for the role, or decides it for rows that wait
OPENINGS_FULL: Final = 6  # the first ranges of directions need more rows
CHAIN_FOUND: Final = 7  # frames were found in the openings of a connection, with the last range

# What is kept of the first ranges of a direction (`openings`).
NO_OPENING: Final = 0
KEPT: Final = 1  # all, while they decide nothing
WAITING: Final = 2  # those from the first frame on, until the other direction's frames are found
FOUND: Final = 3  # the same, which go through the kernel once more
# What is to be noted of the beginning of frames.
CONFIRMED: Final = 1  # packets confirm it, behind bytes that were skipped
NOT_CONFIRMED: Final = 2

_FIRST_OPENINGS: Final = 1 << 8  # ranges


class FlowState(Bundle):
    """One direction, int64[2 * slots] each.

    total: bytes of the unfinished frame, 0 unknown; have: its bytes in the arena, from its start;
    arena_at, arena_room: its room there; broken: 0, or 1 + the status it will have; skip: bytes
    of a broken frame still to come; frame_start: its stream offset; verify: the next header is
    checked strictly; limit: longest frame accepted, bytes; skipped: bytes passed over since the
    last frame; held: bytes that the slow path keeps; is_seen: any data so far; is_first: no frame
    came out yet. opening: what is kept of its first ranges, as many as opening_ranges in rows of
    `Openings` from first_row to last_row; opening_steps: headers looked at in searches of them;
    is_at_start: their first byte is the first of the direction; next_record, records_in_a_row: TLS
    records so far, see `first_bytes`; to_note: 0, CONFIRMED or NOT_CONFIRMED. head_first,
    head_second: its first head_bytes bytes, up to HEADS, the first of them at stream offset
    head_from.
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
    opening: Int64Array
    opening_ranges: Int64Array
    opening_steps: Int64Array
    first_row: Int64Array
    last_row: Int64Array
    is_at_start: Int64Array
    next_record: Int64Array
    records_in_a_row: Int64Array
    to_note: Int64Array
    head_bytes: Int64Array
    head_from: Int64Array
    head_first: Int64Array
    head_second: Int64Array


class ConnectionState(Bundle):
    """One connection, int64[slots] each.

    client_side: 0 or 1, which side is the client; waiting: frames that wait for the role;
    is_from_syn: its SYN or SYN-ACK was seen; is_slow: the slow path keeps something of it.
    """

    connection_id: Int64Array
    protocol: Int64Array
    role: Int64Array
    client_side: Int64Array
    role_source: Int64Array
    waiting: Int64Array
    is_from_syn: Int64Array
    is_slow: Int64Array


class Openings(NamedTuple):
    """The first ranges of directions whose frames are not found yet (`openings`).

    pieces: a row for each; next_row: the next one of its direction; free: rows not in use. The
    others are for the direction that is searched: marks, cells, holes and row_pieces as in
    `resync.Searched`, records as in `first_bytes`.
    """

    pieces: Pieces
    next_row: Int64Array
    free: Pool
    marks: ByteArray
    cells: Int64Array
    holes: Int64Array
    row_pieces: Pieces
    records: Int64Array


class FramingState(NamedTuple):
    """Everything the splitting kernel changes.

    slots: connection id -> slot; free_slots: those not in use; counters: see COUNTER_*.
    """

    flows: FlowState
    connections: ConnectionState
    slots: HashTable
    free_slots: Pool
    counters: Int64Array
    arena: ByteArray
    openings: Openings


COUNTER_FRAME_NO: Final = 0  # the last number given
COUNTER_ARENA_USED: Final = 1
COUNTER_CURSOR: Final = 2  # range to go on with
COUNTER_POSITION: Final = 3  # bytes of that range already taken
COUNTER_ARENA_NEEDED: Final = 4
COUNTER_FRAME_LIMIT: Final = 5  # bytes of the longest frame of a fresh connection
COUNTER_IS_ASKED: Final = 6  # the user names protocols: no first byte decides before the slow path
COUNTER_SLOT: Final = 7  # of the connection at which the kernel stopped
COUNTER_GATHERED: Final = 8  # what the ranges passed count for that runs had taken before
COUNTER_ARRIVALS: Final = 9  # ranges that came for the first time, of those kept or searched
COUNTER_OPENING_BYTES: Final = 10  # what openings count for, as runs do
COUNTER_OPENING_LIMIT: Final = 11  # and may count for at most
COUNTERS: Final = 12


def new_openings() -> Openings:
    """No opening."""
    return Openings(
        Pieces.new(_FIRST_OPENINGS),
        np.zeros(_FIRST_OPENINGS, np.int64),
        new_pool(_FIRST_OPENINGS),
        np.empty(MOST_OPENING_BYTES, np.uint8),
        new_search(),
        np.zeros((2, 1), np.int64),
        Pieces.new(MOST_OPENING_RANGES),
        np.empty(2, np.int64),
    )


def grown_openings(before: Openings) -> Openings:
    """The same with twice the rows."""
    rows = 2 * len(before.next_row)
    return before._replace(
        pieces=before.pieces.grown(rows),
        next_row=np.concatenate((before.next_row, np.zeros_like(before.next_row))),
        free=grown_pool(before.free, rows),
    )


def new_state(slots: int, arena_bytes: int, key: int = 0) -> FramingState:
    """A state for so many connections at once; slots must be a power of two.

    key: of its hash table.
    """
    return FramingState(
        FlowState.new(2 * slots),
        ConnectionState.new(slots),
        new_hash_table(4 * slots, key),
        new_pool(slots),
        np.zeros(COUNTERS, np.int64),
        np.empty(arena_bytes, np.uint8),
        new_openings(),
    )
