"""What becomes of the bytes of a direction whose frames are not known.

They are added to its buffer (`range_pool`), which is recognised or searched until a chain of frames
can be believed; then the buffer goes through the splitting kernel again, from the chain on. All of
it is decided at the range that decides it, within the kernel, whatever the range is: bytes, a hole,
the end of a direction or of the connection.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import (
    MAX_HEAD_BYTES,
    MAX_SEARCH_BYTES,
    MAX_WAIT_BYTES,
    NULL,
    REFUSED_BYTES,
    RESYNC_HOLD_BYTES,
)
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.framing.buffers import (
    SEARCHED,
    append_range,
    append_row,
    begin_buffer,
    drop_bytes,
    give_up,
    next_order,
    pass_again,
    reserve,
    resume,
    rule_of,
    search_of,
    searched,
    wait_for_peer,
)
from dissector.protocols.framing.range_pool import LARGE_HELD
from dissector.protocols.framing.recognition import has_broker_port, recognise
from dissector.protocols.framing.resync import (
    HOLD_NS,
    SURE_FRAMES,
    find_chain,
    has_some,
    is_believed,
    is_confirmed_by_packets,
    range_at,
    tells_protocol,
)
from dissector.protocols.framing.roles import decide_role_at_last
from dissector.protocols.framing.row_output import PassContext, note
from dissector.protocols.framing.search_state import AT, IS_BEGUN, RESUME
from dissector.protocols.framing.state import (
    AGAIN,
    ARENA_FULL,
    CHAIN,
    COUNTER_NOTICES,
    DONE,
    HEAD,
    OPAQUE,
    SEARCH,
    UNDECIDED,
    UNKNOWN,
    FramingState,
)
from dissector.protocols.interface import HEADER_WINDOW
from dissector.stream.columns import DATA
from dissector.tables import ABSENT

# Bytes before a chain are worth dropping where they are many, and most of the buffer.
_DROPPED_BYTES: Final = RESYNC_HOLD_BYTES // 16
_NOTHING: Final = -1  # no protocol
_WAITS: Final = -2  # the next bytes tell whether the connection begins with a frame
_DESYNC: Final = NOTICE_NUMBER["desync"]
_MIDSTREAM_START: Final = NOTICE_NUMBER["midstream_start"]
_NOT_RECOGNISED: Final = NOTICE_NUMBER["not_recognised"]
_RESYNC: Final = NOTICE_NUMBER["resync"]
_RESYNC_UNCONFIRMED: Final = NOTICE_NUMBER["resync_unconfirmed"]
_MOST_NOTICES: Final = 4  # of one chain that is accepted


# -- what a range does


@kernel
def handle_bytes(work: PassContext, index: int, position: int, direction_index: int) -> int:
    """Take the bytes of a range from a position on.

    Returns:
        DONE; AGAIN if a chain begins here; ARENA_FULL, and nothing has changed.
    """
    state, flows = work.state, work.state.flows
    buffer = _buffer_for(work, direction_index)
    if buffer == ABSENT and work.row != ABSENT and position == 0:
        rows, row = state.pool.ranges, work.row
        if rows.starts_chain[row]:
            flows.mode[direction_index] = CHAIN
            flows.verify[direction_index] = 1 - rows.is_judged[row]
            rows.starts_chain[row] = 0
            return AGAIN
    is_new = buffer == ABSENT
    if is_new:
        buffer = begin_buffer(work, direction_index)
    more = work.ranges.length[index] - position
    if not reserve(state, buffer, more + flows.have[direction_index]):
        if is_new:
            give_up(state, direction_index, flows.mode[direction_index])
        return ARENA_FULL
    buffers = state.pool.buffers
    if buffers.resume_mode[buffer] != SEARCHED:
        _go_on_waiting(work, index, position, direction_index)
        return DONE
    if flows.mode[direction_index] == CHAIN:
        _break_chain(work, index, position, direction_index)
    elif is_new and flows.mode[direction_index] == HEAD:
        is_at_start = work.ranges.stream_offset[index] + position == 0
        is_known = is_at_start and state.connections.is_from_syn[direction_index >> 1] != 0
        buffers.at_start[buffer] = is_at_start
        buffers.is_known_start[buffer] = is_known
        buffers.follows_records[buffer] = not is_known
    append_range(work, index, position, direction_index)
    _look_for_frames(work, index, direction_index, False)
    return DONE


@kernel
def handle_gap(work: PassContext, index: int, direction_index: int) -> bool:
    """Take a gap; whether the direction's buffer has it: a chain may go on behind it."""
    state = work.state
    buffer = _buffer_for(work, direction_index)
    if buffer == ABSENT:
        return False
    if state.pool.buffers.resume_mode[buffer] != SEARCHED:
        _go_on_waiting(work, index, 0, direction_index)
        return True
    append_range(work, index, 0, direction_index)
    _look_for_frames(work, index, direction_index, False)
    return True


@kernel
def handle_fin(work: PassContext, index: int, direction_index: int) -> int:
    """No byte follows in a direction without a chain: its search ends.

    A chain that does not tell the protocol waits: the other direction may.

    Returns:
        DONE if the buffer has the event; AGAIN if ranges come before it; else -1: it is reported.
    """
    state, flows = work.state, work.state.flows
    buffer = _buffer_for(work, direction_index)
    if buffer != ABSENT:
        buffers = state.pool.buffers
        if buffers.resume_mode[buffer] != SEARCHED:
            _go_on_waiting(work, index, 0, direction_index)
            return DONE
        is_open = state.connections.protocol[direction_index >> 1] == UNDECIDED
        if is_open and _is_live(work, direction_index):
            if _accept_what_tells(work, index, direction_index):
                return AGAIN
            if not buffers.is_known_start[buffer]:
                append_range(work, index, 0, direction_index)
                return DONE
        if _finish_search(work, index, direction_index):
            return AGAIN
    if flows.mode[direction_index] != OPAQUE:
        flows.mode[direction_index] = CHAIN
        flows.have[direction_index] = 0
        flows.skip[direction_index] = 0
    return -1


@kernel
def handle_close(work: PassContext, index: int, slot: int) -> int:
    """The last chance of a connection's buffers, and of waiting frames, before its last row.

    Returns:
        DONE; AGAIN if ranges or frames come before it.
    """
    state, known, flows = work.state, work.state.connections, work.state.flows
    first = 2 * slot + known.client_side[slot]
    if known.protocol[slot] == UNDECIDED:
        for direction_index in (first, first ^ 1):
            if _accept_what_tells(work, index, direction_index):
                return AGAIN
    for direction_index in (first, first ^ 1):
        if _is_searched(state, direction_index):
            if _finish_search(work, index, direction_index):
                return AGAIN
            flows.mode[direction_index] = OPAQUE
    for direction_index in (first, first ^ 1):
        if flows.buffer[direction_index] != ABSENT:
            give_up(state, direction_index, OPAQUE)
    is_seen = flows.is_seen[first] or flows.is_seen[first ^ 1]
    if known.protocol[slot] == UNDECIDED and is_seen:
        known.protocol[slot] = UNKNOWN
    if known.waiting[slot] > 0:
        decide_role_at_last(state, slot, work.ranges.release_packet[index])
        return AGAIN
    return DONE


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
        has_room = state.counters[COUNTER_NOTICES] + _MOST_NOTICES <= len(state.notices.kind)
        has_room &= state.pool.free_buffers.free[0] > 1
        if state.pool.counts[LARGE_HELD] <= most or not has_room:
            return at
        if not _may_be_accepted(state, direction_index):
            continue
        told, is_live = _told(work, direction_index, 0)
        if told != _NOTHING:
            _accept(work, 0, direction_index, told)
        elif is_live:
            size = state.pool.buffers.size[state.flows.buffer[direction_index]]
            _refuse(work, 0, direction_index, size)
    return len(order)


# -- what there is


@inlined
def _is_searched(state: FramingState, direction_index: int) -> bool:
    """Whether a direction has a buffer that does not only wait."""
    buffer = state.flows.buffer[direction_index]
    return bool(buffer != ABSENT and state.pool.buffers.resume_mode[buffer] == SEARCHED)


@inlined
def _buffer_for(work: PassContext, direction_index: int) -> int:
    """The buffer of a direction; it gets one where it has to wait for the other direction."""
    state = work.state
    buffer, peer = state.flows.buffer[direction_index], state.flows.buffer[direction_index ^ 1]
    if buffer == ABSENT and peer != ABSENT and state.pool.buffers.peer_waits[peer]:
        return wait_for_peer(work, direction_index)
    return int(buffer)


@inlined
def _protocols(work: PassContext, direction_index: int) -> tuple[int, int]:
    """The protocols of which a direction may have frames: the first, and behind the last."""
    protocol = work.state.connections.protocol[direction_index >> 1]
    if protocol == UNDECIDED:
        return 0, len(work.calls.check)
    return protocol, min(protocol + 1, len(work.calls.check))


@inlined
def _is_live(work: PassContext, direction_index: int) -> bool:
    """Whether some search of a direction's buffer has a chain."""
    state, found = work.state, False
    buffer = state.flows.buffer[direction_index]
    for protocol in range(len(work.calls.check)):
        found |= state.pool.searches[search_of(state, buffer, protocol), AT] >= 0
    return found


@inlined
def _resume_offset(work: PassContext, direction_index: int) -> int:
    """The byte of a buffer before which no frame begins of any protocol that was looked for."""
    state = work.state
    buffer = state.flows.buffer[direction_index]
    offset = state.pool.buffers.size[buffer]
    for protocol in range(len(work.calls.check)):
        row = search_of(state, buffer, protocol)
        if state.pool.searches[row, IS_BEGUN]:
            offset = min(offset, state.pool.searches[row, RESUME])
    return int(offset)


@inlined
def _must_begin_with_frame(state: FramingState, direction_index: int) -> bool:
    """Whether a buffer holds the first bytes of a connection, which begin with a frame or are no
    protocol's."""
    buffers, buffer = state.pool.buffers, state.flows.buffer[direction_index]
    is_open = state.connections.protocol[direction_index >> 1] == UNDECIDED
    is_whole = buffers.first_gap[buffer] == ABSENT
    return bool(buffers.is_known_start[buffer] and is_open and is_whole)


@inlined
def _may_be_accepted(state: FramingState, direction_index: int) -> bool:
    """Whether a chain of a direction counts where it must be decided."""
    is_searched = _is_searched(state, direction_index)
    return is_searched and not _must_begin_with_frame(state, direction_index)


@kernel
def _told(work: PassContext, direction_index: int, is_end: int) -> tuple[int, bool]:
    """The protocol that a chain of a direction tells, or _NOTHING; and whether there is any chain.

    Args:
        is_end: no byte of it follows.
    """
    is_live = False
    first, stop = _protocols(work, direction_index)
    for protocol in range(first, stop):
        run = searched(work.state, direction_index, protocol)
        if run.search[AT] >= 0:
            is_live = True
            if tells_protocol(run, rule_of(work, direction_index, protocol, is_end), is_end):
                return protocol, True
    return _NOTHING, is_live


# -- waiting for the other direction


@inlined
def _go_on_waiting(work: PassContext, index: int, position: int, direction_index: int) -> None:
    """A direction waits for the other one's search, but not for ever."""
    pool, buffer = work.state.pool, work.state.flows.buffer[direction_index]
    append_range(work, index, position, direction_index)
    began = pool.ranges.ts_ns[pool.buffers.first[buffer]]
    is_too_much = pool.buffers.size[buffer] > MAX_WAIT_BYTES
    if is_too_much or work.ranges.ts_ns[index] - began > HOLD_NS:
        _end_wait(work, index, direction_index)


@kernel
def _end_wait(work: PassContext, index: int, direction_index: int) -> None:
    """A direction waited long enough: the other one's chain goes out, or is not waited for."""
    state, peer = work.state, direction_index ^ 1
    protocol = state.connections.protocol[direction_index >> 1]
    if _is_searched(state, peer):
        if has_some(searched(state, peer, protocol), 1):
            _accept(work, index, peer, protocol)
            return
        buffer = state.flows.buffer[peer]
        state.pool.buffers.peer_waits[buffer] = 0
        state.pool.buffers.peer_timed_out[buffer] = 1
    resume(work, index, direction_index)


# -- looking for frames


@inlined
def _break_chain(work: PassContext, index: int, position: int, direction_index: int) -> None:
    """A header that cannot be one: what is gathered of it and what follows is searched."""
    state, flows, rows = work.state, work.state.flows, work.state.pool.ranges
    buffers, buffer = state.pool.buffers, state.flows.buffer[direction_index]
    have, at = flows.have[direction_index], flows.arena_at[direction_index]
    offset = work.ranges.stream_offset[index] + position - have
    note(work, index, direction_index, _DESYNC, offset, NULL)
    flows.mode[direction_index] = SEARCH
    flows.have[direction_index] = flows.total[direction_index] = 0
    search = state.pool.searches[
        search_of(state, buffer, state.connections.protocol[direction_index >> 1])
    ]
    search[RESUME] = search[IS_BEGUN] = 1  # the first byte is known to start no frame
    if have == 0:
        return
    row = append_row(state, direction_index, have)
    rows.kind[row] = DATA
    rows.stream_offset[row] = offset
    rows.length[row] = have
    rows.packet[row] = flows.first_packet[direction_index]
    rows.ts_ns[row] = flows.first_ts[direction_index]
    rows.order[row] = next_order(work)
    for each in range(have):
        state.arena[buffers.at[buffer] + each] = state.arena[at + each]
        state.marks[buffers.at[buffer] + each] = 0
    buffers.size[buffer] = have


@kernel
def _look_for_frames(work: PassContext, index: int, direction_index: int, is_final: bool) -> bool:
    """Recognise or search the buffer of a direction; True if it ended and its ranges come next."""
    state = work.state
    known, slot = state.connections, direction_index >> 1
    if known.protocol[slot] == UNDECIDED and recognise(work, direction_index, is_final):
        return False
    if known.protocol[slot] >= len(work.calls.check):
        give_up(state, direction_index, OPAQUE)
        return False
    protocol = _search(work, direction_index, work.ranges.ts_ns[index], is_final)
    if protocol >= 0:
        _accept(work, index, direction_index, protocol)
        return True
    if is_final or protocol == _WAITS:
        return False
    has_events = state.pool.buffers.has_events[state.flows.buffer[direction_index]]
    if has_events and not _is_live(work, direction_index):
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
    buffers, buffer = state.pool.buffers, state.flows.buffer[direction_index]
    if not (buffers.is_known_start[buffer] and buffers.at_start[buffer]):
        return -1
    gap, end = buffers.first_gap[buffer], buffers.size[buffer]
    if gap != ABSENT:
        end = state.pool.ranges.begin[gap] - buffers.base[buffer]
    at, limit = buffers.at[buffer], state.flows.limit[direction_index]
    is_open = state.connections.protocol[direction_index >> 1] == UNDECIDED
    judged = work.calls.check[protocol](state.arena, at, at + end, 2, limit, int(is_open))
    if judged <= 0:
        return 0 if judged == 0 and gap == ABSENT else -1
    run = searched(state, direction_index, protocol)
    run.search[AT] = 0
    state.pool.ranges.is_judged[range_at(run, 0).row] = 1
    buffers.is_confirmed[buffer] = 1
    return 1


@kernel
def _search(work: PassContext, direction_index: int, ts_ns: int, is_final: bool) -> int:
    """The first protocol whose chain in a buffer can be believed; else _NOTHING, or _WAITS."""
    state, buffers = work.state, work.state.pool.buffers
    buffer = state.flows.buffer[direction_index]
    first, stop = _protocols(work, direction_index)
    for protocol in range(first, stop):
        begins = _begins_with_frame(work, direction_index, protocol)
        if begins > 0:
            return protocol
        if begins == 0 and not is_final and buffers.size[buffer] < HEADER_WINDOW:
            return _WAITS
        run = searched(state, direction_index, protocol)
        rule = rule_of(work, direction_index, protocol, int(is_final))
        status = find_chain(run, rule)
        if _must_begin_with_frame(state, direction_index):
            continue
        if is_believed(run, rule, status, ts_ns):
            buffers.is_confirmed[buffer] = is_confirmed_by_packets(run)
            return protocol
    return _NOTHING


@inlined
def _skip(work: PassContext, direction_index: int, count: int) -> None:
    """The first bytes of a buffer belong to no frame."""
    state = work.state
    state.flows.skipped[direction_index] += count
    if count > 0:
        state.pool.buffers.is_known_start[state.flows.buffer[direction_index]] = 0
    drop_bytes(work, direction_index, count)


@kernel
def _keep_within_bounds(work: PassContext, index: int, direction_index: int) -> None:
    """Drop what can hold no frame of a buffer, or give the direction up."""
    state, flows = work.state, work.state.flows
    buffers, buffer, peer = state.pool.buffers, flows.buffer[direction_index], direction_index ^ 1
    slot = direction_index >> 1
    is_live = _is_live(work, direction_index)
    is_open = state.connections.protocol[slot] == UNDECIDED
    size = resume_at = buffers.size[buffer]
    first, stop = _protocols(work, direction_index)
    for protocol in range(first, stop):
        row = search_of(state, buffer, protocol)
        resume_at = min(resume_at, state.pool.searches[row, RESUME])
    is_start = buffers.is_known_start[buffer] != 0 and is_open
    is_refused = is_start and resume_at > 0 and size > REFUSED_BYTES
    most = MAX_SEARCH_BYTES if has_broker_port(state, slot) else MAX_HEAD_BYTES
    if is_refused:
        give_up(state, peer, OPAQUE)
        _refuse(work, index, direction_index, REFUSED_BYTES)
    elif is_open and not is_live and flows.skipped[direction_index] + size > most:
        _refuse(work, index, direction_index, most)
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
    flows, peer = work.state.flows, direction_index ^ 1
    buffers, buffer = work.state.pool.buffers, flows.buffer[direction_index]
    if buffers.peer_waits[buffer] == 0:
        buffers.peer_waits[buffer] = 1
        if flows.buffer[peer] == ABSENT and flows.mode[peer] != OPAQUE:
            wait_for_peer(work, peer)


# -- how a search ends


@kernel
def _accept(work: PassContext, index: int, direction_index: int, protocol: int) -> None:
    """Frames start at an offset of a buffer: the kernel takes it from there.

    If that decides the protocol, the buffer of the other direction may hold frames as well: both
    go through the kernel together, as they arrived.
    """
    state, flows = work.state, work.state.flows
    slot, peer = direction_index >> 1, direction_index ^ 1
    was_open = state.connections.protocol[slot] == UNDECIDED
    state.connections.protocol[slot] = protocol
    _start_chain(work, index, direction_index, protocol)
    peer_too = False
    if was_open and flows.mode[peer] == OPAQUE:
        flows.mode[peer] = SEARCH
    if was_open and flows.buffer[peer] != ABSENT:
        is_found = _search(work, peer, work.ranges.ts_ns[index], False) >= 0
        peer_too = is_found or has_some(searched(state, peer, protocol), SURE_FRAMES)
        if peer_too:
            _start_chain(work, index, peer, protocol)
    is_live = was_open and flows.buffer[peer] != ABSENT and _is_live(work, peer)
    pass_again(work, index, direction_index, peer_too)
    if is_live and not peer_too:
        _keep_within_bounds(work, index, peer)


@inlined
def _start_chain(work: PassContext, index: int, direction_index: int, protocol: int) -> None:
    """A direction's buffer begins with a chain, behind bytes that are skipped; says so if there are
    such bytes, or doubts."""
    state, flows = work.state, work.state.flows
    buffer = flows.buffer[direction_index]
    _skip(work, direction_index, searched(state, direction_index, protocol).search[AT])
    row = range_at(searched(state, direction_index, protocol), 0).row
    state.pool.ranges.starts_chain[row] = 1
    flows.mode[direction_index] = SEARCH
    offset, skipped = state.pool.ranges.stream_offset[row], flows.skipped[direction_index]
    if skipped > 0:
        kind = _MIDSTREAM_START if flows.is_first[direction_index] else _RESYNC
        note(work, index, direction_index, kind, offset, skipped)
    if not state.pool.buffers.is_confirmed[buffer]:
        note(work, index, direction_index, _RESYNC_UNCONFIRMED, offset, skipped)
    flows.skipped[direction_index] = 0


@inlined
def _abandon(work: PassContext, index: int, direction_index: int, count: int) -> None:
    """A buffer without a chain: its gaps, what is behind its first bytes and the other direction go
    on."""
    _skip(work, direction_index, count)
    pass_again(work, index, direction_index, False)


@inlined
def _refuse(work: PassContext, index: int, direction_index: int, looked_for: int) -> None:
    """Look no further for frames of a direction: if there is none of the other one, either, the
    protocol stays unknown.

    Args:
        looked_for: bytes in which none were found.
    """
    state, flows, peer = work.state, work.state.flows, direction_index ^ 1
    give_up(state, direction_index, OPAQUE)
    if flows.mode[peer] == OPAQUE or not flows.is_seen[peer]:
        note(work, index, direction_index, _NOT_RECOGNISED, NULL, looked_for)
        state.connections.protocol[direction_index >> 1] = UNKNOWN
        give_up(state, peer, OPAQUE)


@inlined
def _accept_what_tells(work: PassContext, index: int, direction_index: int) -> bool:
    """Accept a chain of a direction that ends if it tells its protocol; whether one does."""
    state = work.state
    if not _may_be_accepted(state, direction_index):
        return False
    protocol, _ = _told(work, direction_index, 1)
    if protocol == _NOTHING:
        return False
    buffer, run = state.flows.buffer[direction_index], searched(state, direction_index, protocol)
    state.pool.buffers.is_confirmed[buffer] = is_confirmed_by_packets(run)
    _accept(work, index, direction_index, protocol)
    return True


@kernel
def _finish_search(work: PassContext, index: int, direction_index: int) -> bool:
    """The last chance of a buffer; True if something of it goes through the kernel first."""
    state, flows = work.state, work.state.flows
    if _look_for_frames(work, index, direction_index, True):
        return True
    buffer, peer = flows.buffer[direction_index], flows.buffer[direction_index ^ 1]
    if buffer == ABSENT:
        return False
    buffers = state.pool.buffers
    is_awaited = peer != ABSENT and buffers.resume_mode[peer] != SEARCHED
    if buffers.has_events[buffer] or is_awaited:
        first, stop = _protocols(work, direction_index)
        for protocol in range(first, stop):
            search = state.pool.searches[search_of(state, buffer, protocol)]
            search[RESUME], search[IS_BEGUN] = buffers.size[buffer], 1
        _abandon(work, index, direction_index, _resume_offset(work, direction_index))
        return True
    give_up(state, direction_index, flows.mode[direction_index])
    return False
