"""How the buffer of a direction is searched, and how a search ends.

A buffer is recognised or searched until a chain of frames can be believed; then it goes through the
splitting kernel again, from the chain on (`accept`), with the other direction's if this has frames
or waits. Without a chain it is dropped as far as no frame begins in it, or given up.
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

# Bytes before a chain are worth dropping where they are many, and most of the buffer.
_DROPPED_BYTES: Final = limits.RESYNC_HOLD_BYTES // 16
NO_PROTOCOL: Final = -1  # no protocol
_WAITS: Final = -2  # the next bytes tell whether the connection begins with a frame
_MIDSTREAM_START: Final = NOTICE_NUMBER["midstream_start"]
_NOT_RECOGNISED: Final = NOTICE_NUMBER["not_recognised"]
_RESYNC: Final = NOTICE_NUMBER["resync"]
_RESYNC_UNCONFIRMED: Final = NOTICE_NUMBER["resync_unconfirmed"]


# -- what there is


@inlined
def is_searched(state: FramingState, direction_index: int) -> bool:
    """Whether a direction has a buffer that does not only wait."""
    buffer = state.directions.buffer[direction_index]
    return bool(
        buffer != ABSENT and state.pool.buffers.resume_mode[buffer] == framing_buffers.SEARCHED
    )


@inlined
def _protocols(work: PassContext, direction_index: int) -> tuple[int, int]:
    """The protocols of which a direction may have frames: the first, and behind the last."""
    protocol = work.state.connections.protocol[direction_index >> 1]
    if protocol == UNDECIDED:
        return 0, len(work.calls.check)
    return protocol, min(protocol + 1, len(work.calls.check))


@inlined
def has_chain(work: PassContext, direction_index: int) -> bool:
    """Whether some search of a direction's buffer has a chain."""
    state, has_any = work.state, False
    buffer = state.directions.buffer[direction_index]
    for protocol in range(len(work.calls.check)):
        has_any |= state.pool.searches[framing_buffers.search_of(state, buffer, protocol), AT] >= 0
    return has_any


@inlined
def _resume_offset(work: PassContext, direction_index: int) -> int:
    """The byte of a buffer before which no frame begins of any protocol that was looked for."""
    state = work.state
    buffer = state.directions.buffer[direction_index]
    offset = state.pool.buffers.size[buffer]
    for protocol in range(len(work.calls.check)):
        row = framing_buffers.search_of(state, buffer, protocol)
        if state.pool.searches[row, IS_BEGUN]:
            offset = min(offset, state.pool.searches[row, RESUME])
    return int(offset)


@inlined
def _must_begin_with_frame(state: FramingState, direction_index: int) -> bool:
    """Whether a buffer holds the first bytes of a connection, which begin with a frame or are no
    protocol's."""
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    is_open = state.connections.protocol[direction_index >> 1] == UNDECIDED
    is_whole = buffers.first_gap[buffer] == ABSENT
    return bool(buffers.is_known_start[buffer] and is_open and is_whole)


@inlined
def may_be_accepted(state: FramingState, direction_index: int) -> bool:
    """Whether a chain of a direction counts where it must be decided."""
    if not is_searched(state, direction_index):
        return False
    return not _must_begin_with_frame(state, direction_index)


@kernel
def certain_protocol(work: PassContext, direction_index: int, is_end: int) -> tuple[int, bool]:
    """The protocol of which a chain leaves no doubt, or NO_PROTOCOL; whether there is any chain.

    Args:
        is_end: no byte of it follows.
    """
    is_live = False
    first, stop = _protocols(work, direction_index)
    for protocol in range(first, stop):
        contents = framing_buffers.searched(work.state, direction_index, protocol)
        if contents.search[AT] >= 0:
            is_live = True
            if resync.tells_protocol(
                contents, framing_buffers.rule_of(work, direction_index, protocol, is_end), is_end
            ):
                return protocol, True
    return NO_PROTOCOL, is_live


# -- looking for frames


@kernel
def look_for_frames(work: PassContext, index: int, direction_index: int, is_final: bool) -> bool:
    """Recognise or search the buffer of a direction; True if it ended and its ranges come next."""
    state = work.state
    known, connection_index = state.connections, direction_index >> 1
    if known.protocol[connection_index] == UNDECIDED and recognise(work, direction_index, is_final):
        return False
    if known.protocol[connection_index] >= len(work.calls.check):
        framing_buffers.give_up(state, direction_index, DirectionMode.OPAQUE)
        return False
    protocol = _search(work, direction_index, work.ranges.ts_ns[index], is_final)
    if protocol >= 0:
        accept(work, index, direction_index, protocol)
        return True
    if is_final or protocol == _WAITS:
        return False
    has_events = state.pool.buffers.has_events[state.directions.buffer[direction_index]]
    if has_events and not has_chain(work, direction_index):
        # No frame before the gap: the gap is reported, and the other direction ends as well.
        _abandon(work, index, direction_index, _resume_offset(work, direction_index))
        return True
    _keep_within_bounds(work, index, direction_index)
    return False


@inlined
def _begins_with_frame(work: PassContext, direction_index: int, protocol: int) -> int:
    """Whether a buffer begins behind a SYN, and there with a frame: then that is its chain.

    A strict header is proof enough there, and any header once the other direction has shown the
    protocol.

    Returns:
        1 if so, 0 if more bytes will tell, -1 if not.
    """
    state = work.state
    buffers, buffer = state.pool.buffers, state.directions.buffer[direction_index]
    if not (buffers.is_known_start[buffer] and buffers.at_start[buffer]):
        return -1
    gap, end = buffers.first_gap[buffer], buffers.size[buffer]
    if gap != ABSENT:
        end = state.pool.ranges.begin[gap] - buffers.base[buffer]
    at, limit = buffers.at[buffer], state.directions.limit[direction_index]
    is_open = state.connections.protocol[direction_index >> 1] == UNDECIDED
    judged = work.calls.check[protocol](state.arena, at, at + end, 2, limit, int(is_open))
    if judged <= 0:
        return 0 if judged == 0 and gap == ABSENT else -1
    contents = framing_buffers.searched(state, direction_index, protocol)
    contents.search[AT] = 0
    state.pool.ranges.is_judged[resync.range_at(contents, 0).row] = 1
    buffers.is_confirmed[buffer] = 1
    return 1


@kernel
def _search(work: PassContext, direction_index: int, ts_ns: int, is_final: bool) -> int:
    """The first protocol whose chain in a buffer can be believed; else NO_PROTOCOL, or _WAITS."""
    state, buffers = work.state, work.state.pool.buffers
    buffer = state.directions.buffer[direction_index]
    first, stop = _protocols(work, direction_index)
    for protocol in range(first, stop):
        begins = _begins_with_frame(work, direction_index, protocol)
        if begins > 0:
            return protocol
        if begins == 0 and not is_final and buffers.size[buffer] < HEADER_WINDOW:
            return _WAITS
        contents = framing_buffers.searched(state, direction_index, protocol)
        rule = framing_buffers.rule_of(work, direction_index, protocol, int(is_final))
        status = resync.find_chain(contents, rule)
        if _must_begin_with_frame(state, direction_index):
            continue
        if resync.is_believed(contents, rule, status, ts_ns):
            buffers.is_confirmed[buffer] = resync.is_confirmed_by_packets(contents)
            return protocol
    return NO_PROTOCOL


@inlined
def _skip(work: PassContext, direction_index: int, count: int) -> None:
    """The first bytes of a buffer belong to no frame."""
    state = work.state
    state.directions.skipped[direction_index] += count
    if count > 0:
        state.pool.buffers.is_known_start[state.directions.buffer[direction_index]] = 0
    framing_buffers.drop_bytes(work, direction_index, count)


@kernel
def _keep_within_bounds(work: PassContext, index: int, direction_index: int) -> None:
    """Drop what can hold no frame of a buffer, or give the direction up."""
    state, directions = work.state, work.state.directions
    buffers, buffer, peer = (
        state.pool.buffers,
        directions.buffer[direction_index],
        direction_index ^ 1,
    )
    connection_index = direction_index >> 1
    is_live = has_chain(work, direction_index)
    is_open = state.connections.protocol[connection_index] == UNDECIDED
    size = resume_at = buffers.size[buffer]
    first, stop = _protocols(work, direction_index)
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
        refuse(work, index, direction_index, limits.REFUSED_BYTES)
    elif is_open and not is_live and directions.skipped[direction_index] + size > most:
        refuse(work, index, direction_index, most)
    elif not is_live and buffers.peer_waits[buffer]:
        _abandon(work, index, direction_index, _resume_offset(work, direction_index))
    else:
        is_worth_it = not is_live or 2 * resume_at > max(size, _DROPPED_BYTES)
        if is_worth_it and not is_start:
            _skip(work, direction_index, resume_at)
        if is_live and not is_open and not buffers.peer_timed_out[buffer]:
            _let_peer_wait(work, direction_index)


@inlined
def _let_peer_wait(work: PassContext, direction_index: int) -> None:
    """The other direction waits for a chain of this one, so that frames come as they arrived."""
    directions, peer = work.state.directions, direction_index ^ 1
    buffers, buffer = work.state.pool.buffers, directions.buffer[direction_index]
    if buffers.peer_waits[buffer] == 0:
        buffers.peer_waits[buffer] = 1
        if directions.buffer[peer] == ABSENT and directions.mode[peer] != DirectionMode.OPAQUE:
            framing_buffers.wait_for_peer(work, peer)


# -- how a search ends


@kernel
def accept(work: PassContext, index: int, direction_index: int, protocol: int) -> None:
    """Frames start at an offset of a buffer: the kernel takes it from there.

    If that decides the protocol, the buffer of the other direction may hold frames as well: both
    go through the kernel together, as they arrived.
    """
    state, directions = work.state, work.state.directions
    connection_index, peer = direction_index >> 1, direction_index ^ 1
    was_open = state.connections.protocol[connection_index] == UNDECIDED
    state.connections.protocol[connection_index] = protocol
    _start_chain(work, index, direction_index, protocol)
    peer_too = False
    if was_open and directions.mode[peer] == DirectionMode.OPAQUE:
        directions.mode[peer] = DirectionMode.SEARCH
    if was_open and directions.buffer[peer] != ABSENT:
        is_found = _search(work, peer, work.ranges.ts_ns[index], False) >= 0
        peer_too = is_found or resync.has_some(
            framing_buffers.searched(state, peer, protocol), resync.SURE_FRAMES
        )
        if peer_too:
            _start_chain(work, index, peer, protocol)
    is_live = was_open and directions.buffer[peer] != ABSENT and has_chain(work, peer)
    framing_buffers.pass_again(work, index, direction_index, peer_too)
    if is_live and not peer_too:
        _keep_within_bounds(work, index, peer)


@inlined
def _start_chain(work: PassContext, index: int, direction_index: int, protocol: int) -> None:
    """A direction's buffer begins with a chain, behind bytes that are skipped; says so if there are
    such bytes, or doubts."""
    state, directions = work.state, work.state.directions
    buffer = directions.buffer[direction_index]
    _skip(
        work, direction_index, framing_buffers.searched(state, direction_index, protocol).search[AT]
    )
    row = resync.range_at(framing_buffers.searched(state, direction_index, protocol), 0).row
    state.pool.ranges.starts_chain[row] = 1 + directions.skipped[direction_index]
    directions.mode[direction_index] = DirectionMode.SEARCH
    offset, skipped = state.pool.ranges.stream_offset[row], directions.skipped[direction_index]
    if skipped > 0:
        kind = _MIDSTREAM_START if directions.is_first[direction_index] else _RESYNC
        note(work, index, direction_index, kind, offset, skipped)
    if not state.pool.buffers.is_confirmed[buffer]:
        note(work, index, direction_index, _RESYNC_UNCONFIRMED, offset, skipped)
    directions.skipped[direction_index] = 0


@inlined
def _abandon(work: PassContext, index: int, direction_index: int, count: int) -> None:
    """A buffer without a chain: its gaps, what is behind its first bytes and the other direction go
    on."""
    _skip(work, direction_index, count)
    framing_buffers.pass_again(work, index, direction_index, False)


@inlined
def refuse(work: PassContext, index: int, direction_index: int, looked_for: int) -> None:
    """Look no further for frames of a direction: if there is none of the other one, either, the
    protocol stays unknown.

    Args:
        looked_for: bytes in which none were found.
    """
    state, directions, peer = work.state, work.state.directions, direction_index ^ 1
    framing_buffers.give_up(state, direction_index, DirectionMode.OPAQUE)
    if directions.mode[peer] == DirectionMode.OPAQUE or not directions.is_seen[peer]:
        note(work, index, direction_index, _NOT_RECOGNISED, NULL, looked_for)
        state.connections.protocol[direction_index >> 1] = UNKNOWN
        framing_buffers.give_up(state, peer, DirectionMode.OPAQUE)


@inlined
def accept_what_tells(work: PassContext, index: int, direction_index: int) -> bool:
    """Accept a chain of a direction that ends if it tells its protocol; whether one does."""
    state = work.state
    if not may_be_accepted(state, direction_index):
        return False
    protocol, _ = certain_protocol(work, direction_index, 1)
    if protocol == NO_PROTOCOL:
        return False
    buffer, contents = (
        state.directions.buffer[direction_index],
        framing_buffers.searched(state, direction_index, protocol),
    )
    state.pool.buffers.is_confirmed[buffer] = resync.is_confirmed_by_packets(contents)
    accept(work, index, direction_index, protocol)
    return True


@kernel
def finish_search(work: PassContext, index: int, direction_index: int) -> bool:
    """The last chance of a buffer; True if something of it goes through the kernel first."""
    state, directions = work.state, work.state.directions
    if look_for_frames(work, index, direction_index, True):
        return True
    buffer, peer = directions.buffer[direction_index], directions.buffer[direction_index ^ 1]
    if buffer == ABSENT:
        return False
    buffers = state.pool.buffers
    is_awaited = peer != ABSENT and buffers.resume_mode[peer] != framing_buffers.SEARCHED
    if buffers.has_events[buffer] or is_awaited:
        first, stop = _protocols(work, direction_index)
        for protocol in range(first, stop):
            search = state.pool.searches[framing_buffers.search_of(state, buffer, protocol)]
            search[RESUME], search[IS_BEGUN] = buffers.size[buffer], 1
        _abandon(work, index, direction_index, _resume_offset(work, direction_index))
        return True
    framing_buffers.give_up(state, direction_index, directions.mode[direction_index])
    return False
