"""Write rows of frames and events; assemble frames that span several ranges in the arena.

These are the steps of the splitting kernel (`splitting`), each on one direction or one row.
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
from dissector.stream.columns import ENDPOINT_BITS, ENDPOINT_MASK, RETRANSMITTED, RangeColumns

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
    """The arguments of a pass over ranges: state, ranges and their bytes, output rows, callbacks.

    row: in the pool, of the requeued range that `ranges` holds alone; ABSENT in a pass over new
        ranges.
    """

    state: FramingState
    ranges: RangeColumns
    sources: Sources
    out: FrameColumns
    calls: Callbacks
    row: int


class Step(NamedTuple):
    """The progress of a step: handled bytes of the range, rows filled, status."""

    position: int
    filled: int
    status: SplitStatus


@inlined
def direction_of(state: FramingState, connection_index: int, endpoint_index: int) -> int:
    """0 to_broker, 1 to_client, 2 while the role is undecided."""
    if state.connections.role[connection_index] != RoleState.DECIDED:
        return 2
    return 0 if state.connections.client_endpoint[connection_index] == endpoint_index else 1


@inlined
def broker_of(state: FramingState, connection_index: int) -> int:
    """The hash of a connection's broker: the side that is no client, as far as is known."""
    hashes = state.connections.endpoint_hashes[connection_index]
    is_second = state.connections.client_endpoint[connection_index] == 0
    return int((hashes if is_second else hashes >> ENDPOINT_BITS) & ENDPOINT_MASK)


@inlined
def note(
    context: PassContext, index: int, direction_index: int, kind: int, offset: int, value: int
) -> None:
    """Add a notice on a direction at a range. kind: number in notices.NOTICES."""
    state, ranges, connection_index = context.state, context.ranges, direction_index >> 1
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
    """Set the start of a direction's frame: stream offset, first packet and time, of a range."""
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
    """Extend a direction's frame by a range: its last packet and time, its flags."""
    directions = state.directions
    if ranges.packet[index] >= directions.last_packet[direction_index]:
        directions.last_packet[direction_index] = ranges.packet[index]
        directions.last_ts[direction_index] = ranges.ts_ns[index]
    directions.retransmitted[direction_index] |= ranges.flags[index] & RETRANSMITTED


@inlined
def emit_event(
    context: PassContext, row: int, index: int, connection_index: int, command: int
) -> None:
    """Write the row of an event (`FrameEvent`) that a range reports."""
    state, ranges, out = context.state, context.ranges, context.out
    endpoint_index = ranges.endpoint_index[index]
    out.connection_id[row] = ranges.connection[index]
    out.endpoint_index[row] = endpoint_index
    out.direction[row] = direction_of(state, connection_index, endpoint_index)
    out.broker[row] = broker_of(state, connection_index)
    out.is_two_way[row] = state.connections.is_two_way[connection_index]
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
    """Write the row of a frame; its release_packet and its data are the caller's to write."""
    directions = state.directions
    connection_index = direction_index >> 1
    endpoint_index = direction_index & 1
    state.counters[framing_state.COUNTER_FRAME_NO] += 1
    out.connection_id[row] = state.connections.connection_id[connection_index]
    out.endpoint_index[row] = endpoint_index
    out.direction[row] = direction_of(state, connection_index, endpoint_index)
    out.broker[row] = broker_of(state, connection_index)
    out.is_two_way[row] = state.connections.is_two_way[connection_index]
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
    """Decide the role by a frame; DONE, or ROLE_WAIT if its row or rows before it wait."""
    connections = state.connections
    connection_index = direction_index >> 1
    if connections.role[connection_index] == RoleState.DECIDED:
        return SplitStatus.DONE
    direction = calls.one_way[connections.protocol[connection_index]](data, at, end)
    if direction == 2:
        return (
            SplitStatus.DONE
            if connections.role_source[connection_index] == RoleSource.BY_FIRST_SEEN
            else SplitStatus.ROLE_WAIT
        )
    client_endpoint = (direction_index & 1) if direction == 0 else 1 - (direction_index & 1)
    if (
        connections.role[connection_index] == RoleState.PROVISIONAL
        and client_endpoint == connections.client_endpoint[connection_index]
    ):
        connections.role[connection_index] = RoleState.DECIDED
        return (
            SplitStatus.ROLE_WAIT if connections.waiting[connection_index] > 0 else SplitStatus.DONE
        )
    was_provisional = connections.role[connection_index] == RoleState.PROVISIONAL
    connections.role[connection_index] = RoleState.DECIDED
    connections.client_endpoint[connection_index] = client_endpoint
    connections.role_source[connection_index] = RoleSource.BY_COMMAND
    # A contradiction of the SYN is a notice, which `roles` writes.
    return (
        SplitStatus.ROLE_WAIT
        if was_provisional or connections.waiting[connection_index] > 0
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
    """Raise both directions' limits to the frame limit that one of a broker's first frames
    announces."""
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
    context: PassContext, row: int, index: int, direction_index: int, status: int
) -> SplitStatus:
    """Emit a direction's unfinished frame from the arena and reset the direction for the next one.

    index: of the range that ends it. Returns DONE or ROLE_WAIT.
    """
    state, out, calls = context.state, context.out, context.calls
    directions = state.directions
    at = directions.arena_at[direction_index]
    have = directions.have[direction_index]
    total = directions.total[direction_index]
    emit_frame(state, out, row, direction_index, total, status)
    out.release_packet[row] = context.ranges.release_packet[index]
    out.source[row] = SOURCE_ARENA
    out.data_offset[row] = at
    out.data_bytes[row] = have
    result = decide_role(state, direction_index, state.arena, at, at + have, calls)
    out.direction[row] = direction_of(state, direction_index >> 1, direction_index & 1)
    if status == COMPLETE:
        learn_limit(state, direction_index, state.arena, at, have, calls)
    directions.verify[direction_index] = 0 if status == COMPLETE else 1
    directions.total[direction_index] = 0
    directions.have[direction_index] = 0
    directions.arena_room[direction_index] = 0
    directions.broken[direction_index] = 0
    directions.skip[direction_index] = 0
    return result


@inlined
def room_at(state: FramingState, at: int, have: int, had_room: int, room: int) -> int:
    """Move bytes of the arena to where `room` bytes fit; return the new position, or -1 without a
    change if the arena is full."""
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
    """Reserve room for `needed` bytes of the unfinished frame; False if the arena is full."""
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
    """Append bytes to a direction's unfinished frame; the caller has reserved room."""
    directions = state.directions
    target = directions.arena_at[direction_index] + directions.have[direction_index]
    for index in range(count):
        state.arena[target + index] = data[at + index]
    directions.have[direction_index] += count
