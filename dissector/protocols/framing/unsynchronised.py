"""What becomes of the bytes of a direction whose frames are not known.

They are added to its buffer (`range_pool`), which is recognised or searched until a chain of frames
can be believed; then the buffer goes through the splitting kernel again, from the chain on. All of
it is decided at the range that decides it, within the kernel, whatever the range is: bytes, a hole,
the end of a direction or of the connection.
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
_CHAIN_NOTICES: Final = 4  # of one chain that is accepted, at most


# -- what a range does


@kernel
def handle_bytes(work: PassContext, index: int, position: int, direction_index: int) -> SplitStatus:
    """Take the bytes of a range from a position on.

    Returns:
        DONE; AGAIN if a chain begins here; ARENA_FULL, and nothing has changed.
    """
    state, directions = work.state, work.state.directions
    buffer = _buffer_for(work, direction_index)
    if buffer == ABSENT and work.row != ABSENT and position == 0:
        rows, row = state.pool.ranges, work.row
        if rows.starts_chain[row]:
            directions.mode[direction_index] = DirectionMode.CHAIN
            directions.verify[direction_index] = 1 - rows.is_judged[row]
            rows.starts_chain[row] = 0
            return SplitStatus.AGAIN
    is_new = buffer == ABSENT
    if is_new:
        buffer = framing_buffers.begin_buffer(work, direction_index)
    more = work.ranges.length[index] - position
    if not framing_buffers.reserve(state, buffer, more + directions.have[direction_index]):
        if is_new:
            framing_buffers.give_up(state, direction_index, directions.mode[direction_index])
        return SplitStatus.ARENA_FULL
    buffers = state.pool.buffers
    if buffers.resume_mode[buffer] != framing_buffers.SEARCHED:
        _go_on_waiting(work, index, position, direction_index)
        return SplitStatus.DONE
    if directions.mode[direction_index] == DirectionMode.CHAIN:
        _break_chain(work, index, position, direction_index)
    elif is_new and directions.mode[direction_index] == DirectionMode.HEAD:
        is_at_start = work.ranges.stream_offset[index] + position == 0
        is_known = is_at_start and state.connections.is_from_syn[direction_index >> 1] != 0
        buffers.at_start[buffer] = is_at_start
        buffers.is_known_start[buffer] = is_known
        buffers.follows_records[buffer] = not is_known
    framing_buffers.append_range(work, index, position, direction_index)
    searching.look_for_frames(work, index, direction_index, False)
    return SplitStatus.DONE


@kernel
def handle_gap(work: PassContext, index: int, direction_index: int) -> bool:
    """Take a gap; whether the direction's buffer has it: a chain may go on behind it."""
    state = work.state
    buffer = _buffer_for(work, direction_index)
    if buffer == ABSENT:
        return False
    if state.pool.buffers.resume_mode[buffer] != framing_buffers.SEARCHED:
        _go_on_waiting(work, index, 0, direction_index)
        return True
    framing_buffers.append_range(work, index, 0, direction_index)
    searching.look_for_frames(work, index, direction_index, False)
    return True


@kernel
def handle_fin(work: PassContext, index: int, direction_index: int) -> SplitStatus:
    """No byte follows in a direction without a chain: its search ends.

    A chain that does not tell the protocol waits: the other direction may.

    Returns:
        DONE if the buffer has the event; AGAIN if ranges come before it; else REPORTED.
    """
    state, directions = work.state, work.state.directions
    buffer = _buffer_for(work, direction_index)
    if buffer != ABSENT:
        buffers = state.pool.buffers
        if buffers.resume_mode[buffer] != framing_buffers.SEARCHED:
            _go_on_waiting(work, index, 0, direction_index)
            return SplitStatus.DONE
        is_open = state.connections.protocol[direction_index >> 1] == framing_state.UNDECIDED
        if is_open and searching.has_chain(work, direction_index):
            if searching.accept_what_tells(work, index, direction_index):
                return SplitStatus.AGAIN
            if not buffers.is_known_start[buffer]:
                framing_buffers.append_range(work, index, 0, direction_index)
                return SplitStatus.DONE
        if searching.finish_search(work, index, direction_index):
            return SplitStatus.AGAIN
    if directions.mode[direction_index] != DirectionMode.OPAQUE:
        directions.mode[direction_index] = DirectionMode.CHAIN
        directions.have[direction_index] = 0
        directions.skip[direction_index] = 0
    return SplitStatus.REPORTED


@kernel
def handle_close(work: PassContext, index: int, connection_index: int) -> SplitStatus:
    """The last chance of a connection's buffers, and of waiting frames, before its last row.

    Returns:
        DONE; AGAIN if ranges or frames come before it.
    """
    state, known, directions = work.state, work.state.connections, work.state.directions
    first = 2 * connection_index + known.client_endpoint[connection_index]
    if known.protocol[connection_index] == framing_state.UNDECIDED:
        for direction_index in (first, first ^ 1):
            if searching.accept_what_tells(work, index, direction_index):
                return SplitStatus.AGAIN
    for direction_index in (first, first ^ 1):
        if searching.is_searched(state, direction_index):
            if searching.finish_search(work, index, direction_index):
                return SplitStatus.AGAIN
            directions.mode[direction_index] = DirectionMode.OPAQUE
    for direction_index in (first, first ^ 1):
        if directions.buffer[direction_index] != ABSENT:
            framing_buffers.give_up(state, direction_index, DirectionMode.OPAQUE)
    is_seen = directions.is_seen[first] or directions.is_seen[first ^ 1]
    if known.protocol[connection_index] == framing_state.UNDECIDED and is_seen:
        known.protocol[connection_index] = framing_state.UNKNOWN
    if known.waiting[connection_index] > 0:
        decide_role_at_last(state, connection_index, work.ranges.release_packet[index])
        return SplitStatus.AGAIN
    return SplitStatus.DONE


@kernel
def decide_largest(work: PassContext, order: Int64Array, most: int) -> int:
    """Large buffers hold too much: the chains of the largest go out, or these are given up if they
    do not tell their protocol.

    Args:
        order: directions, the one that holds most first; most: bytes that they may hold then.

    Returns:
        How many of them were handled; fewer than are to be only where notices have no room.
    """
    state = work.state
    for at in range(len(order)):
        direction_index = order[at]
        is_full = not has_room(state.notices, _CHAIN_NOTICES)
        is_full |= state.pool.free_buffers.free[0] <= 1
        if is_full or state.pool.counts[LARGE_HELD] <= most:
            return at
        if not searching.may_be_accepted(state, direction_index):
            continue
        protocol, is_live = searching.certain_protocol(work, direction_index, 0)
        if protocol != searching.NO_PROTOCOL:
            searching.accept(work, 0, direction_index, protocol)
        elif is_live:
            size = state.pool.buffers.size[state.directions.buffer[direction_index]]
            searching.refuse(work, 0, direction_index, size)
    return len(order)


# -- waiting for the other direction


@inlined
def _go_on_waiting(work: PassContext, index: int, position: int, direction_index: int) -> None:
    """A direction waits for the other one's search, but not for ever."""
    pool, buffer = work.state.pool, work.state.directions.buffer[direction_index]
    framing_buffers.append_range(work, index, position, direction_index)
    began = pool.ranges.ts_ns[pool.buffers.first[buffer]]
    is_too_much = pool.buffers.size[buffer] > MAX_WAIT_BYTES
    if is_too_much or work.ranges.ts_ns[index] - began > HOLD_NS:
        _end_wait(work, index, direction_index)


@kernel
def _end_wait(work: PassContext, index: int, direction_index: int) -> None:
    """A direction waited long enough: the other one's chain goes out, or is not waited for."""
    state, peer = work.state, direction_index ^ 1
    protocol = state.connections.protocol[direction_index >> 1]
    if searching.is_searched(state, peer):
        if has_some(framing_buffers.searched(state, peer, protocol), 1):
            searching.accept(work, index, peer, protocol)
            return
        buffer = state.directions.buffer[peer]
        state.pool.buffers.peer_waits[buffer] = 0
        state.pool.buffers.peer_timed_out[buffer] = 1
    framing_buffers.resume(work, index, direction_index)


# -- what begins a buffer


@inlined
def _buffer_for(work: PassContext, direction_index: int) -> int:
    """The buffer of a direction; it gets one where it has to wait for the other direction."""
    state = work.state
    buffer, peer = (
        state.directions.buffer[direction_index],
        state.directions.buffer[direction_index ^ 1],
    )
    if buffer == ABSENT and peer != ABSENT and state.pool.buffers.peer_waits[peer]:
        return framing_buffers.wait_for_peer(work, direction_index)
    return int(buffer)


@inlined
def _break_chain(work: PassContext, index: int, position: int, direction_index: int) -> None:
    """A header that cannot be one: what is gathered of it and what follows is searched."""
    state, directions, rows = work.state, work.state.directions, work.state.pool.ranges
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    have, at = directions.have[direction_index], directions.arena_at[direction_index]
    offset = work.ranges.stream_offset[index] + position - have
    note(work, index, direction_index, _DESYNC, offset, NULL)
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
    rows.order[row] = framing_buffers.next_order(work)
    for each in range(have):
        state.arena[buffers.at[buffer] + each] = state.arena[at + each]
        state.marks[buffers.at[buffer] + each] = 0
    buffers.size[buffer] = have
