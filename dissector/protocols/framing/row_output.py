"""Write the rows of frames and events, and gather frames that straddle ranges in the arena.

The small steps of the splitting kernel (`splitting`), each on one direction or one row.
"""

from typing import NamedTuple

from dissector.blocks import ByteArray
from dissector.jit import inlined
from dissector.limits import MAX_FRAME_BYTES_HARD, NULL
from dissector.notice_rows import add_row
from dissector.protocols.columns import COMPLETE, FrameColumns
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.state import FramingState, RoleSource, RoleState, SplitStatus
from dissector.protocols.interface import HEADER_WINDOW, Sources
from dissector.stream.columns import RETRANSMITTED, RangeColumns

SOURCE_ARENA = 3
HANDSHAKE_FRAMES = 8  # a broker announces its limits in one of its first frames


class Callbacks(NamedTuple):
    """The compiled callbacks of all protocols, each a tuple with one entry per protocol.

    check: (data, offset, end, direction, limit, is_strict) -> frame bytes, 0 more needed, -1 no.
    prove: (data, offset, length) -> 1 proven, 0 not known, -1 wrong.
    one_way: (data, offset, end) -> 0 to_broker, 1 to_client, 2 either.
    limit: (data, offset, length) -> frame limit that this frame announces, 0 none.
    """

    check: tuple  # type: ignore[type-arg]
    prove: tuple  # type: ignore[type-arg]
    one_way: tuple  # type: ignore[type-arg]
    limit: tuple  # type: ignore[type-arg]


class PassContext(NamedTuple):
    """What a pass over ranges works on: state, ranges, where their bytes lie, rows to be filled,
    callbacks.

    row: of the one range that there is, in the pool, where it goes through once more; else ABSENT.
    """

    state: FramingState
    ranges: RangeColumns
    sources: Sources
    out: FrameColumns
    calls: Callbacks
    row: int


class Step(NamedTuple):
    """How far a helper came: bytes of the range taken, rows filled, status."""

    position: int
    filled: int
    status: SplitStatus


@inlined
def direction_of(state: FramingState, connection_index: int, endpoint_index: int) -> int:
    """0 to_broker, 1 to_client, 2 while the role is open."""
    if state.connections.role[connection_index] != RoleState.DECIDED:
        return 2
    return 0 if state.connections.client_endpoint[connection_index] == endpoint_index else 1


@inlined
def note(
    work: PassContext, index: int, direction_index: int, kind: int, offset: int, value: int
) -> None:
    """Add a notice of a direction at a range. kind: number in notices.NOTICES."""
    state, ranges, connection_index = work.state, work.ranges, direction_index >> 1
    row, rows = add_row(state.notices, kind), state.notices.rows
    rows.ts_ns[row] = ranges.ts_ns[index]
    rows.connection_id[row] = state.connections.connection_id[connection_index]
    rows.direction[row] = direction_of(state, connection_index, direction_index & 1)
    rows.packet[row] = ranges.packet[index]
    rows.stream_offset[row] = offset
    rows.bytes[row] = rows.value[row] = value


@inlined
def start_frame(
    state: FramingState, direction_index: int, ranges: RangeColumns, index: int, position: int
) -> None:
    """A frame of a direction begins within a range."""
    directions = state.directions
    directions.frame_start[direction_index] = ranges.stream_offset[index] + position
    directions.first_packet[direction_index] = ranges.packet[index]
    directions.first_ts[direction_index] = ranges.ts_ns[index]
    directions.last_packet[direction_index] = ranges.packet[index]
    directions.last_ts[direction_index] = ranges.ts_ns[index]
    directions.retransmitted[direction_index] = ranges.flags[index] & RETRANSMITTED


@inlined
def touch_frame(
    state: FramingState, direction_index: int, ranges: RangeColumns, index: int
) -> None:
    """A frame of a direction goes on in a range."""
    directions = state.directions
    if ranges.packet[index] >= directions.last_packet[direction_index]:
        directions.last_packet[direction_index] = ranges.packet[index]
        directions.last_ts[direction_index] = ranges.ts_ns[index]
    directions.retransmitted[direction_index] |= ranges.flags[index] & RETRANSMITTED


@inlined
def emit_event(
    work: PassContext, row: int, index: int, connection_index: int, command: int
) -> None:
    """Write the row of an event (`FrameEvent`) that a range brings."""
    state, ranges, out = work.state, work.ranges, work.out
    endpoint_index = ranges.endpoint_index[index]
    out.connection_id[row] = ranges.connection[index]
    out.endpoint_index[row] = endpoint_index
    out.direction[row] = direction_of(state, connection_index, endpoint_index)
    out.protocol[row] = state.connections.protocol[connection_index]
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
    direction_index: int,
    frame_bytes: int,
    status: int,
) -> None:
    """Write the row of a frame but for its release_packet and its data, which the caller knows."""
    directions = state.directions
    connection_index = direction_index >> 1
    endpoint_index = direction_index & 1
    state.counters[framing_state.COUNTER_FRAME_NO] += 1
    out.connection_id[row] = state.connections.connection_id[connection_index]
    out.endpoint_index[row] = endpoint_index
    out.direction[row] = direction_of(state, connection_index, endpoint_index)
    out.protocol[row] = state.connections.protocol[connection_index]
    out.command[row] = NULL
    out.first_ts_ns[row] = directions.first_ts[direction_index]
    out.last_ts_ns[row] = directions.last_ts[direction_index]
    out.first_packet[row] = directions.first_packet[direction_index]
    out.last_packet[row] = directions.last_packet[direction_index]
    out.stream_offset[row] = directions.frame_start[direction_index]
    out.frame_bytes[row] = frame_bytes
    out.status[row] = status
    out.retransmitted[row] = directions.retransmitted[direction_index]
    out.frame_no[row] = state.counters[framing_state.COUNTER_FRAME_NO]
    directions.frames[direction_index] += 1
    directions.is_first[direction_index] = 0
    if status == COMPLETE:
        directions.decoded_bytes[direction_index] += frame_bytes


@inlined
def decide_role(
    state: FramingState, direction_index: int, data: ByteArray, at: int, end: int, calls: Callbacks
) -> SplitStatus:
    """Let a frame decide the role; DONE, or ROLE_WAIT if its row (or rows before it) must wait."""
    known = state.connections
    connection_index = direction_index >> 1
    if known.role[connection_index] == RoleState.DECIDED:
        return SplitStatus.DONE
    direction = calls.one_way[known.protocol[connection_index]](data, at, end)
    if direction == 2:
        return (
            SplitStatus.DONE
            if known.role_source[connection_index] == RoleSource.BY_FIRST_SEEN
            else SplitStatus.ROLE_WAIT
        )
    client_endpoint = (direction_index & 1) if direction == 0 else 1 - (direction_index & 1)
    if (
        known.role[connection_index] == RoleState.PROVISIONAL
        and client_endpoint == known.client_endpoint[connection_index]
    ):
        known.role[connection_index] = RoleState.DECIDED
        return SplitStatus.ROLE_WAIT if known.waiting[connection_index] > 0 else SplitStatus.DONE
    was_provisional = known.role[connection_index] == RoleState.PROVISIONAL
    known.role[connection_index] = RoleState.DECIDED
    known.client_endpoint[connection_index] = client_endpoint
    known.role_source[connection_index] = RoleSource.BY_COMMAND
    # A contradiction of the SYN is a notice, which `roles` writes.
    return (
        SplitStatus.ROLE_WAIT
        if was_provisional or known.waiting[connection_index] > 0
        else SplitStatus.DONE
    )


@inlined
def learn_limit(
    state: FramingState,
    direction_index: int,
    data: ByteArray,
    at: int,
    length: int,
    calls: Callbacks,
) -> None:
    """Take over the frame limit that a broker announces; only looked for in its first frames."""
    directions = state.directions
    if directions.frames[direction_index] > HANDSHAKE_FRAMES:
        return
    announced = calls.limit[state.connections.protocol[direction_index >> 1]](data, at, length)
    if announced > 0:
        for each in range(direction_index & ~1, (direction_index & ~1) + 2):
            directions.limit[each] = min(
                max(announced, directions.limit[each]), MAX_FRAME_BYTES_HARD
            )


@inlined
def finish_frame(
    work: PassContext, row: int, index: int, direction_index: int, status: int
) -> SplitStatus:
    """Emit the unfinished frame of the arena as it is and make the direction ready for the next.

    index: of the range that ends it. Returns DONE or ROLE_WAIT.
    """
    state, out, calls = work.state, work.out, work.calls
    directions = state.directions
    at = directions.arena_at[direction_index]
    have = directions.have[direction_index]
    total = directions.total[direction_index]
    emit_frame(state, out, row, direction_index, total, status)
    out.release_packet[row] = work.ranges.release_packet[index]
    out.source[row] = SOURCE_ARENA
    out.data_offset[row] = at
    out.data_bytes[row] = have
    settled = decide_role(state, direction_index, state.arena, at, at + have, calls)
    out.direction[row] = direction_of(state, direction_index >> 1, direction_index & 1)
    if status == COMPLETE:
        learn_limit(state, direction_index, state.arena, at, have, calls)
    directions.verify[direction_index] = 0 if status == COMPLETE else 1
    directions.total[direction_index] = 0
    directions.have[direction_index] = 0
    directions.arena_room[direction_index] = 0
    directions.broken[direction_index] = 0
    directions.skip[direction_index] = 0
    return settled


@inlined
def room_at(state: FramingState, at: int, have: int, had_room: int, room: int) -> int:
    """Where there is more room for some bytes of the arena, which are moved there; -1 if it is
    full, and nothing changes."""
    used = state.counters[framing_state.COUNTER_ARENA_USED]
    is_last = have > 0 and at + had_room == used
    fresh = at if is_last else used  # the last piece of the arena grows where it is
    if used + room > len(state.arena):
        state.counters[framing_state.COUNTER_ARENA_NEEDED] = room
        return -1
    for index in range(0 if is_last else have):
        state.arena[fresh + index] = state.arena[at + index]
    state.counters[framing_state.COUNTER_ARENA_USED] = fresh + room
    return int(fresh)


@inlined
def reserve(state: FramingState, direction_index: int, needed: int) -> bool:
    """Room for so many bytes of the unfinished frame in the arena; False if the arena is full."""
    directions = state.directions
    if directions.arena_room[direction_index] >= needed:
        return True
    have = directions.have[direction_index]
    room = max(needed, min(2 * have, have + (1 << 20)), HEADER_WINDOW)
    at = room_at(
        state,
        directions.arena_at[direction_index],
        have,
        directions.arena_room[direction_index],
        room,
    )
    if at < 0:
        return False
    directions.arena_at[direction_index] = at
    directions.arena_room[direction_index] = room
    return True


@inlined
def append_bytes(
    state: FramingState, direction_index: int, data: ByteArray, at: int, count: int
) -> None:
    """Add bytes to the unfinished frame of a direction, for which there is room."""
    directions = state.directions
    target = directions.arena_at[direction_index] + directions.have[direction_index]
    for index in range(count):
        state.arena[target + index] = data[at + index]
    directions.have[direction_index] += count
