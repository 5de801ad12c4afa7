"""Handle ranges of a direction without known frame starts.

They are appended to its buffer (`range_pool`), which is recognised or searched until a chain of
frames is believed; then its ranges are requeued from the chain on. The kernel decides at the first
range that allows it, of any kind: bytes, a gap, the end of a direction or of the connection.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import MAX_WAIT_BYTES, NULL
from dissector.notice_rows import has_room
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.framing import buffers as framing_buffers
from dissector.protocols.framing import searching
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.range_pool import LARGE_HELD
from dissector.protocols.framing.resync import HOLD_NS, has_some
from dissector.protocols.framing.roles import decide_role_at_last
from dissector.protocols.framing.row_output import PassContext, note
from dissector.protocols.framing.search_state import IS_BEGUN, RESUME
from dissector.protocols.framing.state import DirectionMode, SplitStatus
from dissector.stream.columns import RangeKind
from dissector.tables import ABSENT

_DESYNC: Final = NOTICE_NUMBER["desync"]
_CHAIN_NOTICES: Final = 4  # at most, per accepted chain


# -- ranges by kind


@kernel
def handle_bytes(
    context: PassContext, index: int, position: int, direction_index: int
) -> SplitStatus:
    """Buffer the bytes of a range from a position on, and search the buffer.

    Returns:
        DONE; RETRY if a chain begins here; ARENA_FULL if nothing was changed.
    """
    state, directions = context.state, context.state.directions
    buffer = _buffer_for(context, direction_index)
    if buffer == ABSENT and context.row != ABSENT and position == 0:
        rows, row = state.pool.ranges, context.row
        if rows.starts_chain[row]:
            directions.mode[direction_index] = DirectionMode.CHAIN
            directions.verify[direction_index] = 1 - rows.header_ok[row]
            rows.starts_chain[row] = 0
            return SplitStatus.RETRY
    is_new = buffer == ABSENT
    if is_new:
        buffer = framing_buffers.begin_buffer(context, direction_index)
    more = context.ranges.length[index] - position
    if not framing_buffers.reserve(state, buffer, more + directions.have[direction_index]):
        if is_new:
            framing_buffers.give_up(state, direction_index, directions.mode[direction_index])
        return SplitStatus.ARENA_FULL
    buffers = state.pool.buffers
    if buffers.resume_mode[buffer] != framing_buffers.SEARCHED:
        _go_on_waiting(context, index, position, direction_index)
        return SplitStatus.DONE
    if directions.mode[direction_index] == DirectionMode.CHAIN:
        _break_chain(context, index, position, direction_index)
    elif is_new and directions.mode[direction_index] == DirectionMode.HEAD:
        is_at_start = context.ranges.stream_offset[index] + position == 0
        is_known = is_at_start and state.connections.is_from_syn[direction_index >> 1] != 0
        buffers.at_start[buffer] = is_at_start
        buffers.is_known_start[buffer] = is_known
        buffers.follows_records[buffer] = not is_known
    framing_buffers.append_range(context, index, position, direction_index)
    searching.look_for_frames(context, index, direction_index, False)
    return SplitStatus.DONE


@kernel
def handle_gap(context: PassContext, index: int, direction_index: int) -> bool:
    """Append a gap to the direction's buffer, since a chain may span it; False without a buffer."""
    state = context.state
    buffer = _buffer_for(context, direction_index)
    if buffer == ABSENT:
        return False
    if state.pool.buffers.resume_mode[buffer] != framing_buffers.SEARCHED:
        _go_on_waiting(context, index, 0, direction_index)
        return True
    framing_buffers.append_range(context, index, 0, direction_index)
    searching.look_for_frames(context, index, direction_index, False)
    return True


@kernel
def handle_fin(context: PassContext, index: int, direction_index: int) -> SplitStatus:
    """End the search of a direction: no byte of it follows.

    A chain that does not identify the protocol waits: the other direction may.

    Returns:
        DONE if the event is in the buffer; RETRY if ranges were requeued; else REPORTED.
    """
    state, directions = context.state, context.state.directions
    buffer = _buffer_for(context, direction_index)
    if buffer != ABSENT:
        buffers = state.pool.buffers
        if buffers.resume_mode[buffer] != framing_buffers.SEARCHED:
            _go_on_waiting(context, index, 0, direction_index)
            return SplitStatus.DONE
        is_open = state.connections.protocol[direction_index >> 1] == framing_state.UNDECIDED
        if is_open and searching.has_chain(context, direction_index):
            if searching.accept_what_tells(context, index, direction_index):
                return SplitStatus.RETRY
            if not buffers.is_known_start[buffer]:
                framing_buffers.append_range(context, index, 0, direction_index)
                return SplitStatus.DONE
        if searching.finish_search(context, index, direction_index):
            return SplitStatus.RETRY
    if directions.mode[direction_index] != DirectionMode.OPAQUE:
        directions.mode[direction_index] = DirectionMode.CHAIN
        directions.have[direction_index] = 0
        directions.skip[direction_index] = 0
    return SplitStatus.REPORTED


@kernel
def handle_close(context: PassContext, index: int, connection_index: int) -> SplitStatus:
    """End a connection's buffers and release its waiting frames, before its CLOSE row.

    Returns:
        DONE; RETRY if ranges were requeued or frames released.
    """
    state, directions = context.state, context.state.directions
    connections = state.connections
    first = 2 * connection_index + connections.client_endpoint[connection_index]
    if connections.protocol[connection_index] == framing_state.UNDECIDED:
        for direction_index in (first, first ^ 1):
            if searching.accept_what_tells(context, index, direction_index):
                return SplitStatus.RETRY
    for direction_index in (first, first ^ 1):
        if searching.is_searched(state, direction_index):
            if searching.finish_search(context, index, direction_index):
                return SplitStatus.RETRY
            directions.mode[direction_index] = DirectionMode.OPAQUE
    for direction_index in (first, first ^ 1):
        if directions.buffer[direction_index] != ABSENT:
            framing_buffers.give_up(state, direction_index, DirectionMode.OPAQUE)
    is_seen = directions.is_seen[first] or directions.is_seen[first ^ 1]
    if connections.protocol[connection_index] == framing_state.UNDECIDED and is_seen:
        connections.protocol[connection_index] = framing_state.UNKNOWN
    if connections.waiting[connection_index] > 0:
        decide_role_at_last(state, connection_index, context.ranges.release_packet[index])
        return SplitStatus.RETRY
    return SplitStatus.DONE


@kernel
def decide_largest(context: PassContext, order: Int64Array, most: int) -> int:
    """Over the memory limit: accept the chains in the largest buffers; give up those whose chain
    does not identify the protocol.

    Args:
        order: int64[], directions, largest buffer first; most: bytes at which to stop.

    Returns:
        How many directions were handled; the caller calls again if pools or notices were full.
    """
    state = context.state
    for at in range(len(order)):
        direction_index = order[at]
        is_full = not has_room(state.notices, _CHAIN_NOTICES)
        is_full |= state.pool.free_buffers.free[0] <= 1
        if is_full or state.pool.counts[LARGE_HELD] <= most:
            return at
        if not searching.may_be_accepted(state, direction_index):
            continue
        protocol, is_live = searching.certain_protocol(context, direction_index, 0)
        if protocol != searching.NO_PROTOCOL:
            searching.accept(context, 0, direction_index, protocol)
        elif is_live:
            size = state.pool.buffers.size[state.directions.buffer[direction_index]]
            searching.refuse(context, 0, direction_index, size)
    return len(order)


# -- a direction that waits for its peer


@inlined
def _go_on_waiting(context: PassContext, index: int, position: int, direction_index: int) -> None:
    """Buffer a range of a direction that waits for its peer; end the wait at its limits."""
    pool, buffer = context.state.pool, context.state.directions.buffer[direction_index]
    framing_buffers.append_range(context, index, position, direction_index)
    began = pool.ranges.ts_ns[pool.buffers.first[buffer]]
    is_too_much = pool.buffers.size[buffer] > MAX_WAIT_BYTES
    if is_too_much or context.ranges.ts_ns[index] - began > HOLD_NS:
        _end_wait(context, index, direction_index)


@kernel
def _end_wait(context: PassContext, index: int, direction_index: int) -> None:
    """End a direction's wait: accept its peer's chain if there is one, else go on without it."""
    state, peer = context.state, direction_index ^ 1
    protocol = state.connections.protocol[direction_index >> 1]
    if searching.is_searched(state, peer):
        if has_some(framing_buffers.search_view(state, peer, protocol), 1):
            searching.accept(context, index, peer, protocol)
            return
        buffer = state.directions.buffer[peer]
        state.pool.buffers.peer_waits[buffer] = 0
        state.pool.buffers.peer_timed_out[buffer] = 1
    framing_buffers.resume(context, index, direction_index)


# -- the start of a buffer


@inlined
def _buffer_for(context: PassContext, direction_index: int) -> int:
    """The buffer of a direction, a new one if the direction must wait for its peer, or ABSENT."""
    state = context.state
    buffer, peer = (
        state.directions.buffer[direction_index],
        state.directions.buffer[direction_index ^ 1],
    )
    if buffer == ABSENT and peer != ABSENT and state.pool.buffers.peer_waits[peer]:
        return framing_buffers.wait_for_peer(context, direction_index)
    return int(buffer)


@inlined
def _break_chain(context: PassContext, index: int, position: int, direction_index: int) -> None:
    """End a chain at an invalid header: move the header's bytes to the buffer, for the search."""
    state, directions, rows = context.state, context.state.directions, context.state.pool.ranges
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    have, at = directions.have[direction_index], directions.arena_at[direction_index]
    offset = context.ranges.stream_offset[index] + position - have
    note(context, index, direction_index, _DESYNC, offset, NULL)
    directions.mode[direction_index] = DirectionMode.SEARCH
    directions.have[direction_index] = directions.total[direction_index] = 0
    search = state.pool.searches[
        framing_buffers.search_of(state, buffer, state.connections.protocol[direction_index >> 1])
    ]
    search[RESUME] = search[IS_BEGUN] = 1  # the first byte is known to start no frame
    if have == 0:
        return
    row = framing_buffers.append_row(state, direction_index, have)
    rows.kind[row] = RangeKind.DATA
    rows.stream_offset[row] = offset
    rows.length[row] = have
    rows.packet[row] = directions.first_packet[direction_index]
    rows.ts_ns[row] = directions.first_ts[direction_index]
    rows.order[row] = framing_buffers.next_order(context)
    for each in range(have):
        state.arena[buffers.at[buffer] + each] = state.arena[at + each]
        state.marks[buffers.at[buffer] + each] = 0
    buffers.size[buffer] = have
