"""The search of a direction's buffer, and its end.

A buffer is recognised or searched until a chain of frames is believed. Then its ranges are requeued
from the chain on (`accept`), with the peer's if that has frames or waits. Without a chain the bytes
in which no frame can begin are dropped, or the buffer is given up.
"""

from typing import Final

from dissector import limits
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.framing import buffers as framing_buffers
from dissector.protocols.framing import resync
from dissector.protocols.framing.recognition import has_broker_port, recognise
from dissector.protocols.framing.row_output import PassContext, note
from dissector.protocols.framing.search_state import AT, IS_BEGUN, RESUME
from dissector.protocols.framing.state import UNDECIDED, UNKNOWN, DirectionMode, FramingState
from dissector.protocols.interface import HEADER_WINDOW
from dissector.tables import ABSENT

# Bytes before a chain are dropped only if they are many, and more than half of the buffer.
_DROPPED_BYTES: Final = limits.RESYNC_HOLD_BYTES // 16
NO_PROTOCOL: Final = -1
_WAITS: Final = -2  # the next bytes decide whether the connection begins with a frame
_MIDSTREAM_START: Final = NOTICE_NUMBER["midstream_start"]
_NOT_RECOGNISED: Final = NOTICE_NUMBER["not_recognised"]
_RESYNC: Final = NOTICE_NUMBER["resync"]
_RESYNC_UNCONFIRMED: Final = NOTICE_NUMBER["resync_unconfirmed"]


# -- questions about a buffer


@inlined
def is_searched(state: FramingState, direction_index: int) -> bool:
    """Whether a direction has a buffer that is searched, and does not only wait for its peer."""
    buffer = state.directions.buffer[direction_index]
    return bool(
        buffer != ABSENT and state.pool.buffers.resume_mode[buffer] == framing_buffers.SEARCHED
    )


@inlined
def _protocols(context: PassContext, direction_index: int) -> tuple[int, int]:
    """The possible protocols of a direction as a range of indexes: start and exclusive end."""
    protocol = context.state.connections.protocol[direction_index >> 1]
    if protocol == UNDECIDED:
        return 0, len(context.calls.check)
    return protocol, min(protocol + 1, len(context.calls.check))


@inlined
def has_chain(context: PassContext, direction_index: int) -> bool:
    """Whether any search of a direction's buffer has a chain."""
    state, has_any = context.state, False
    buffer = state.directions.buffer[direction_index]
    for protocol in range(len(context.calls.check)):
        has_any |= state.pool.searches[framing_buffers.search_of(state, buffer, protocol), AT] >= 0
    return has_any


@inlined
def _resume_offset(context: PassContext, direction_index: int) -> int:
    """The offset in a buffer below which no frame of any searched protocol begins."""
    state = context.state
    buffer = state.directions.buffer[direction_index]
    offset = state.pool.buffers.size[buffer]
    for protocol in range(len(context.calls.check)):
        row = framing_buffers.search_of(state, buffer, protocol)
        if state.pool.searches[row, IS_BEGUN]:
            offset = min(offset, state.pool.searches[row, RESUME])
    return int(offset)


@inlined
def _must_begin_with_frame(state: FramingState, direction_index: int) -> bool:
    """Whether a buffer holds a connection's first bytes, without a gap: they must begin with a
    frame."""
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    is_open = state.connections.protocol[direction_index >> 1] == UNDECIDED
    is_whole = buffers.first_gap[buffer] == ABSENT
    return bool(buffers.is_known_start[buffer] and is_open and is_whole)


@inlined
def may_be_accepted(state: FramingState, direction_index: int) -> bool:
    """Whether a chain in a direction's buffer may be accepted before it is believed."""
    if not is_searched(state, direction_index):
        return False
    return not _must_begin_with_frame(state, direction_index)


@kernel
def certain_protocol(context: PassContext, direction_index: int, is_end: int) -> tuple[int, bool]:
    """The protocol that a chain identifies, or NO_PROTOCOL; and whether there is any chain.

    Args:
        is_end: no byte of the direction will follow.
    """
    is_live = False
    first, stop = _protocols(context, direction_index)
    for protocol in range(first, stop):
        view = framing_buffers.search_view(context.state, direction_index, protocol)
        if view.search[AT] >= 0:
            is_live = True
            if resync.tells_protocol(
                view, framing_buffers.rule_of(context, direction_index, protocol, is_end), is_end
            ):
                return protocol, True
    return NO_PROTOCOL, is_live


# -- the search


@kernel
def look_for_frames(context: PassContext, index: int, direction_index: int, is_final: bool) -> bool:
    """Recognise or search the buffer of a direction; True if it ended and was requeued."""
    state = context.state
    connections, connection_index = state.connections, direction_index >> 1
    if connections.protocol[connection_index] == UNDECIDED and recognise(
        context, direction_index, is_final
    ):
        return False
    if connections.protocol[connection_index] >= len(context.calls.check):
        framing_buffers.give_up(state, direction_index, DirectionMode.OPAQUE)
        return False
    protocol = _search(context, direction_index, context.ranges.ts_ns[index], is_final)
    if protocol >= 0:
        accept(context, index, direction_index, protocol)
        return True
    if is_final or protocol == _WAITS:
        return False
    has_events = state.pool.buffers.has_events[state.directions.buffer[direction_index]]
    if has_events and not has_chain(context, direction_index):
        # No frame before the gap: requeue, so that the gap is reported and the peer goes on.
        _abandon(context, index, direction_index, _resume_offset(context, direction_index))
        return True
    _keep_within_bounds(context, index, direction_index)
    return False


@inlined
def _begins_with_frame(context: PassContext, direction_index: int, protocol: int) -> int:
    """Whether a buffer begins right behind a SYN and with a frame: then that is its chain.

    There a strict header is proof enough; any header is, once the peer has shown the protocol.

    Returns:
        1 if so, 0 if more bytes will decide, -1 if not.
    """
    state = context.state
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    if not (buffers.is_known_start[buffer] and buffers.at_start[buffer]):
        return -1
    gap, end = buffers.first_gap[buffer], buffers.size[buffer]
    if gap != ABSENT:
        end = state.pool.ranges.begin[gap] - buffers.base[buffer]
    at, limit = buffers.at[buffer], state.directions.limit[direction_index]
    is_open = state.connections.protocol[direction_index >> 1] == UNDECIDED
    verdict = context.calls.check[protocol](state.arena, at, at + end, 2, limit, int(is_open))
    if verdict <= 0:
        return 0 if verdict == 0 and gap == ABSENT else -1
    view = framing_buffers.search_view(state, direction_index, protocol)
    view.search[AT] = 0
    state.pool.ranges.header_ok[resync.range_at(view, 0).row] = 1
    buffers.is_confirmed[buffer] = 1
    return 1


@kernel
def _search(context: PassContext, direction_index: int, ts_ns: int, is_final: bool) -> int:
    """The first protocol whose chain in a buffer is believed; else NO_PROTOCOL, or _WAITS."""
    state, buffers = context.state, context.state.pool.buffers
    buffer = state.directions.buffer[direction_index]
    first, stop = _protocols(context, direction_index)
    for protocol in range(first, stop):
        begins = _begins_with_frame(context, direction_index, protocol)
        if begins > 0:
            return protocol
        if begins == 0 and not is_final and buffers.size[buffer] < HEADER_WINDOW:
            return _WAITS
        view = framing_buffers.search_view(state, direction_index, protocol)
        rule = framing_buffers.rule_of(context, direction_index, protocol, int(is_final))
        status = resync.find_chain(view, rule)
        if _must_begin_with_frame(state, direction_index):
            continue
        if resync.is_believed(view, rule, status, ts_ns):
            buffers.is_confirmed[buffer] = resync.is_confirmed_by_packets(view)
            return protocol
    return NO_PROTOCOL


@inlined
def _skip(context: PassContext, direction_index: int, count: int) -> None:
    """Drop the first `count` bytes of a buffer, which belong to no frame, and count them."""
    state = context.state
    state.directions.skipped[direction_index] += count
    if count > 0:
        state.pool.buffers.is_known_start[state.directions.buffer[direction_index]] = 0
    framing_buffers.drop_bytes(context, direction_index, count)


@kernel
def _keep_within_bounds(context: PassContext, index: int, direction_index: int) -> None:
    """Drop the bytes of a buffer in which no frame can begin, or give the direction up."""
    state, directions = context.state, context.state.directions
    buffers, buffer, peer = (
        state.pool.buffers,
        directions.buffer[direction_index],
        direction_index ^ 1,
    )
    connection_index = direction_index >> 1
    is_live = has_chain(context, direction_index)
    is_open = state.connections.protocol[connection_index] == UNDECIDED
    size = resume_at = buffers.size[buffer]
    first, stop = _protocols(context, direction_index)
    for protocol in range(first, stop):
        row = framing_buffers.search_of(state, buffer, protocol)
        resume_at = min(resume_at, state.pool.searches[row, RESUME])
    is_start = buffers.is_known_start[buffer] != 0 and is_open
    is_refused = is_start and resume_at > 0 and size > limits.REFUSED_BYTES
    most = (
        limits.MAX_SEARCH_BYTES
        if has_broker_port(state, connection_index)
        else limits.MAX_HEAD_BYTES
    )
    if is_refused:
        framing_buffers.give_up(state, peer, DirectionMode.OPAQUE)
        refuse(context, index, direction_index, limits.REFUSED_BYTES)
    elif is_open and not is_live and directions.skipped[direction_index] + size > most:
        refuse(context, index, direction_index, most)
    elif not is_live and buffers.peer_waits[buffer]:
        _abandon(context, index, direction_index, _resume_offset(context, direction_index))
    else:
        is_worth_it = not is_live or 2 * resume_at > max(size, _DROPPED_BYTES)
        if is_worth_it and not is_start:
            _skip(context, direction_index, resume_at)
        if is_live and not is_open and not buffers.peer_timed_out[buffer]:
            _let_peer_wait(context, direction_index)


@inlined
def _let_peer_wait(context: PassContext, direction_index: int) -> None:
    """Make the peer wait for this direction's chain, so that frames are emitted as they arrived."""
    directions, peer = context.state.directions, direction_index ^ 1
    buffers, buffer = context.state.pool.buffers, directions.buffer[direction_index]
    if buffers.peer_waits[buffer] == 0:
        buffers.peer_waits[buffer] = 1
        if directions.buffer[peer] == ABSENT and directions.mode[peer] != DirectionMode.OPAQUE:
            framing_buffers.wait_for_peer(context, peer)


# -- how a search ends


@kernel
def accept(context: PassContext, index: int, direction_index: int, protocol: int) -> None:
    """Accept the chain in a direction's buffer: set the protocol, requeue the ranges from there.

    If that decides the protocol, the peer's buffer may hold frames as well: then both are requeued,
    merged in order of arrival.
    """
    state, directions = context.state, context.state.directions
    connection_index, peer = direction_index >> 1, direction_index ^ 1
    was_open = state.connections.protocol[connection_index] == UNDECIDED
    state.connections.protocol[connection_index] = protocol
    _start_chain(context, index, direction_index, protocol)
    peer_too = False
    if was_open and directions.mode[peer] == DirectionMode.OPAQUE:
        directions.mode[peer] = DirectionMode.SEARCH
    if was_open and directions.buffer[peer] != ABSENT:
        is_found = _search(context, peer, context.ranges.ts_ns[index], False) >= 0
        peer_too = is_found or resync.has_some(
            framing_buffers.search_view(state, peer, protocol), resync.SURE_FRAMES
        )
        if peer_too:
            _start_chain(context, index, peer, protocol)
    is_live = was_open and directions.buffer[peer] != ABSENT and has_chain(context, peer)
    framing_buffers.requeue(context, index, direction_index, peer_too)
    if is_live and not peer_too:
        _keep_within_bounds(context, index, peer)


@inlined
def _start_chain(context: PassContext, index: int, direction_index: int, protocol: int) -> None:
    """Skip the bytes before the chain in a direction's buffer; add notices if there are any, or if
    the chain is not confirmed."""
    state, directions = context.state, context.state.directions
    buffer = directions.buffer[direction_index]
    _skip(
        context,
        direction_index,
        framing_buffers.search_view(state, direction_index, protocol).search[AT],
    )
    row = resync.range_at(framing_buffers.search_view(state, direction_index, protocol), 0).row
    state.pool.ranges.starts_chain[row] = 1 + directions.skipped[direction_index]
    directions.mode[direction_index] = DirectionMode.SEARCH
    offset, skipped = state.pool.ranges.stream_offset[row], directions.skipped[direction_index]
    if skipped > 0:
        kind = _MIDSTREAM_START if directions.is_first[direction_index] else _RESYNC
        note(context, index, direction_index, kind, offset, skipped)
    if not state.pool.buffers.is_confirmed[buffer]:
        note(context, index, direction_index, _RESYNC_UNCONFIRMED, offset, skipped)
    directions.skipped[direction_index] = 0


@inlined
def _abandon(context: PassContext, index: int, direction_index: int, count: int) -> None:
    """End a search without a chain: skip the first `count` bytes and requeue the other ranges, with
    those of a waiting peer."""
    _skip(context, direction_index, count)
    framing_buffers.requeue(context, index, direction_index, False)


@inlined
def refuse(context: PassContext, index: int, direction_index: int, looked_for: int) -> None:
    """Give up the search of a direction; if its peer has no frames either, the protocol of the
    connection is unknown.

    Args:
        looked_for: searched bytes, for the notice.
    """
    state, directions, peer = context.state, context.state.directions, direction_index ^ 1
    framing_buffers.give_up(state, direction_index, DirectionMode.OPAQUE)
    if directions.mode[peer] == DirectionMode.OPAQUE or not directions.is_seen[peer]:
        note(context, index, direction_index, _NOT_RECOGNISED, NULL, looked_for)
        state.connections.protocol[direction_index >> 1] = UNKNOWN
        framing_buffers.give_up(state, peer, DirectionMode.OPAQUE)


@inlined
def accept_what_tells(context: PassContext, index: int, direction_index: int) -> bool:
    """Accept the chain of a direction that ends if it identifies the protocol; True if it does."""
    state = context.state
    if not may_be_accepted(state, direction_index):
        return False
    protocol, _ = certain_protocol(context, direction_index, 1)
    if protocol == NO_PROTOCOL:
        return False
    buffer = state.directions.buffer[direction_index]
    view = framing_buffers.search_view(state, direction_index, protocol)
    state.pool.buffers.is_confirmed[buffer] = resync.is_confirmed_by_packets(view)
    accept(context, index, direction_index, protocol)
    return True


@kernel
def finish_search(context: PassContext, index: int, direction_index: int) -> bool:
    """Search a buffer for the last time and end it; True if some of its ranges were requeued."""
    state, directions = context.state, context.state.directions
    if look_for_frames(context, index, direction_index, True):
        return True
    buffer, peer = directions.buffer[direction_index], directions.buffer[direction_index ^ 1]
    if buffer == ABSENT:
        return False
    buffers = state.pool.buffers
    is_awaited = peer != ABSENT and buffers.resume_mode[peer] != framing_buffers.SEARCHED
    if buffers.has_events[buffer] or is_awaited:
        first, stop = _protocols(context, direction_index)
        for protocol in range(first, stop):
            search = state.pool.searches[framing_buffers.search_of(state, buffer, protocol)]
            search[RESUME], search[IS_BEGUN] = buffers.size[buffer], 1
        _abandon(context, index, direction_index, _resume_offset(context, direction_index))
        return True
    framing_buffers.give_up(state, direction_index, directions.mode[direction_index])
    return False
