"""Write the rows of frames and events, and gather frames that straddle ranges in the arena.

The small steps of the splitting kernel (`protocols.framing`), each on one direction or one row.
"""

from typing import NamedTuple

from dissector.blocks import ByteArray
from dissector.jit import inlined
from dissector.limits import MAX_FRAME_BYTES_HARD, NULL
from dissector.protocols.columns import COMPLETE, FrameColumns
from dissector.protocols.framing.slots import find_slot
from dissector.protocols.framing.state import (
    COUNTER_ARENA_USED,
    COUNTER_ARENA_WANTED,
    COUNTER_FRAME_NO,
    DONE,
    ROLE_BY_COMMAND,
    ROLE_BY_FIRST_SEEN,
    ROLE_DECIDED,
    ROLE_PROVISIONAL,
    ROLE_WAIT,
    FramingState,
)
from dissector.stream.columns import RETRANSMITTED, RangeColumns

# Bytes that are gathered before a header that straddles ranges is looked at again; no protocol
# needs more to tell a header.
HEADER_WINDOW = 64
SOURCE_ARENA = 3
HANDSHAKE_FRAMES = 8  # a broker announces its limits in one of its first frames


class Callbacks(NamedTuple):
    """The compiled callbacks of all protocols, each a tuple with one entry per place.

    check: (data, offset, end, direction, limit, is_strict) -> frame bytes, 0 more needed, -1 no;
    one_way: (data, offset, end) -> 0 to_broker, 1 to_client, 2 either; limit: (data, offset,
    length) -> frame limit that this frame announces, 0 none.
    """

    check: tuple  # type: ignore[type-arg]
    one_way: tuple  # type: ignore[type-arg]
    limit: tuple  # type: ignore[type-arg]


class Step(NamedTuple):
    """How far a helper came: bytes of the range taken, rows filled, status."""

    position: int
    filled: int
    status: int


@inlined
def direction_of(state: FramingState, slot: int, side: int) -> int:
    """0 to_broker, 1 to_client, 2 while the role is open."""
    if state.connections.role[slot] != ROLE_DECIDED:
        return 2
    return 0 if state.connections.client_side[slot] == side else 1


@inlined
def start_frame(
    state: FramingState, way: int, ranges: RangeColumns, index: int, position: int
) -> None:
    ways = state.directions
    ways.frame_start[way] = ranges.stream_offset[index] + position
    ways.first_packet[way] = ranges.packet[index]
    ways.first_ts[way] = ranges.ts_ns[index]
    ways.last_packet[way] = ranges.packet[index]
    ways.last_ts[way] = ranges.ts_ns[index]
    ways.retransmitted[way] = ranges.flags[index] & RETRANSMITTED


@inlined
def touch_frame(state: FramingState, way: int, ranges: RangeColumns, index: int) -> None:
    ways = state.directions
    if ranges.packet[index] >= ways.last_packet[way]:
        ways.last_packet[way] = ranges.packet[index]
        ways.last_ts[way] = ranges.ts_ns[index]
    ways.retransmitted[way] |= ranges.flags[index] & RETRANSMITTED


@inlined
def emit_event(
    state: FramingState,
    out: FrameColumns,
    row: int,
    ranges: RangeColumns,
    index: int,
    command: int,
) -> None:
    slot = find_slot(state, ranges.connection[index])
    side = ranges.side[index]
    out.connection_id[row] = ranges.connection[index]
    out.side[row] = side
    out.direction[row] = direction_of(state, slot, side)
    out.protocol[row] = state.connections.protocol[slot]
    out.command[row] = command
    out.first_ts_ns[row] = ranges.ts_ns[index]
    out.last_ts_ns[row] = ranges.ts_ns[index]
    out.first_packet[row] = ranges.packet[index]
    out.last_packet[row] = ranges.packet[index]
    out.release_packet[row] = ranges.release_packet[index]
    out.stream_offset[row] = ranges.stream_offset[index]
    out.frame_bytes[row] = ranges.length[index]
    out.status[row] = ranges.cause[index]
    out.retransmitted[row] = 0
    out.frame_no[row] = NULL
    out.source[row] = 0
    out.data_offset[row] = 0
    out.data_bytes[row] = 0


@inlined
def emit_frame(
    state: FramingState,
    out: FrameColumns,
    row: int,
    way: int,
    frame_bytes: int,
    status: int,
) -> None:
    """Write the row of a frame but for its release_packet and its data, which the caller knows."""
    ways = state.directions
    slot = way >> 1
    side = way & 1
    state.counters[COUNTER_FRAME_NO] += 1
    out.connection_id[row] = state.connections.connection_id[slot]
    out.side[row] = side
    out.direction[row] = direction_of(state, slot, side)
    out.protocol[row] = state.connections.protocol[slot]
    out.command[row] = NULL
    out.first_ts_ns[row] = ways.first_ts[way]
    out.last_ts_ns[row] = ways.last_ts[way]
    out.first_packet[row] = ways.first_packet[way]
    out.last_packet[row] = ways.last_packet[way]
    out.stream_offset[row] = ways.frame_start[way]
    out.frame_bytes[row] = frame_bytes
    out.status[row] = status
    out.retransmitted[row] = ways.retransmitted[way]
    out.frame_no[row] = state.counters[COUNTER_FRAME_NO]
    ways.frames[way] += 1
    ways.is_first[way] = 0
    if status == COMPLETE:
        ways.decoded_bytes[way] += frame_bytes


@inlined
def settle_role(
    state: FramingState, way: int, data: ByteArray, at: int, end: int, calls: Callbacks
) -> int:
    """Let a frame decide the role; DONE, or ROLE_WAIT if its row (or rows before it) must wait."""
    known = state.connections
    slot = way >> 1
    if known.role[slot] == ROLE_DECIDED:
        return DONE
    way_of_frame = calls.one_way[known.protocol[slot]](data, at, end)
    if way_of_frame == 2:
        return DONE if known.role_source[slot] == ROLE_BY_FIRST_SEEN else ROLE_WAIT
    client_side = (way & 1) if way_of_frame == 0 else 1 - (way & 1)
    if known.role[slot] == ROLE_PROVISIONAL and client_side == known.client_side[slot]:
        known.role[slot] = ROLE_DECIDED
        return ROLE_WAIT if known.waiting[slot] > 0 else DONE
    was_provisional = known.role[slot] == ROLE_PROVISIONAL
    known.role[slot] = ROLE_DECIDED
    known.client_side[slot] = client_side
    known.role_source[slot] = ROLE_BY_COMMAND
    # A contradiction of the SYN is a notice, which the slow path writes.
    return ROLE_WAIT if was_provisional or known.waiting[slot] > 0 else DONE


@inlined
def learn_limit(
    state: FramingState, way: int, data: ByteArray, at: int, length: int, calls: Callbacks
) -> None:
    """Take over the frame limit that a broker announces; only looked for in its first frames."""
    ways = state.directions
    if ways.frames[way] > HANDSHAKE_FRAMES:
        return
    announced = calls.limit[state.connections.protocol[way >> 1]](data, at, length)
    if announced > 0:
        for each in range(way & ~1, (way & ~1) + 2):
            ways.limit[each] = min(max(announced, ways.limit[each]), MAX_FRAME_BYTES_HARD)


@inlined
def finish_frame(
    state: FramingState,
    out: FrameColumns,
    row: int,
    way: int,
    status: int,
    calls: Callbacks,
) -> int:
    """Emit the unfinished frame of the arena as it is and make the direction ready for the next.

    The caller sets release_packet. Returns DONE or ROLE_WAIT.
    """
    ways = state.directions
    at = ways.arena_at[way]
    have = ways.have[way]
    total = ways.total[way]
    emit_frame(state, out, row, way, total, status)
    out.source[row] = SOURCE_ARENA
    out.data_offset[row] = at
    out.data_bytes[row] = have
    settled = settle_role(state, way, state.arena, at, at + have, calls)
    out.direction[row] = direction_of(state, way >> 1, way & 1)
    if status == COMPLETE:
        learn_limit(state, way, state.arena, at, have, calls)
        ways.verify[way] = 0
    else:
        ways.verify[way] = 1
    ways.total[way] = 0
    ways.have[way] = 0
    ways.arena_room[way] = 0
    ways.broken[way] = 0
    ways.skip[way] = 0
    return settled


@inlined
def make_room(state: FramingState, way: int, wanted: int) -> bool:
    """Room for so many bytes of the unfinished frame in the arena; False if the arena is full."""
    ways = state.directions
    if ways.arena_room[way] >= wanted:
        return True
    have = ways.have[way]
    room = max(wanted, min(2 * have, have + (1 << 20)), HEADER_WINDOW)
    used = state.counters[COUNTER_ARENA_USED]
    if used + room > len(state.arena):
        state.counters[COUNTER_ARENA_WANTED] = room
        return False
    if have > 0 and ways.arena_at[way] + ways.arena_room[way] == used:
        # The last piece of the arena grows where it is.
        used = ways.arena_at[way]
        if used + room > len(state.arena):
            state.counters[COUNTER_ARENA_WANTED] = room
            return False
    else:
        at = ways.arena_at[way]
        for index in range(have):
            state.arena[used + index] = state.arena[at + index]
    ways.arena_at[way] = used
    ways.arena_room[way] = room
    state.counters[COUNTER_ARENA_USED] = used + room
    return True


@inlined
def append_bytes(state: FramingState, way: int, data: ByteArray, at: int, count: int) -> None:
    ways = state.directions
    target = ways.arena_at[way] + ways.have[way]
    for index in range(count):
        state.arena[target + index] = data[at + index]
    ways.have[way] += count
