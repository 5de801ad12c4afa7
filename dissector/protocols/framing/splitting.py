"""Cut in-order stream ranges into length-prefixed frames.

Theory. A flow, one direction of a connection, is in one of five modes (`state`). CHAIN is the rule:
where a frame ends the next begins. A frame that lies in one range is taken where it lies; one that
straddles ranges is put together in the arena, which grows with the bytes that arrive, never by the
length announced. A gap inside a frame whose length is known leaves the chain intact: the frame's
end is known in sequence space, the frame comes out with what is known of it, and the next header is
checked strictly. A gap over a header, or a header that cannot be one, ends the chain: SEARCH. First
bytes that decide nothing are kept (`openings`). What is rare (other first bytes, SEARCH, frames
that wait for the role) is not done here: the kernel returns ATTENTION or ROLE_WAIT and `assembly`
does it.

A protocol takes part with four callbacks, see `protocols.interface`.
"""

from dissector.blocks import ByteArray
from dissector.codecs.integers import be32
from dissector.jit import inlined, kernel
from dissector.limits import MAX_ROWS_AHEAD
from dissector.protocols.columns import (
    COMPLETE,
    CUT_BY_END,
    CUT_BY_GAP,
    CUT_BY_SNAPLEN,
    EVENT_CLOSE,
    EVENT_FIN,
    EVENT_GAP,
    FrameColumns,
)
from dissector.protocols.framing.connection_table import allocate_slot, find_slot
from dissector.protocols.framing.openings import end_openings, keep_opening
from dissector.protocols.framing.others import keep_head
from dissector.protocols.framing.replays import DUE, GATHERED, PIECE_BYTES
from dissector.protocols.framing.resync import HEADER_EVIDENCE, STRICTEST
from dissector.protocols.framing.row_output import (
    HANDSHAKE_FRAMES,
    Callbacks,
    Splitting,
    Step,
    append_bytes,
    decide_role,
    direction_of,
    emit_event,
    emit_frame,
    finish_frame,
    learn_limit,
    make_room,
    start_frame,
    touch_frame,
)
from dissector.protocols.framing.state import (
    ARENA_FULL,
    ATTENTION,
    CHAIN,
    CHAIN_FOUND,
    COUNTER_CURSOR,
    COUNTER_FRAME_LIMIT,
    COUNTER_GATHERED,
    COUNTER_IS_ASKED,
    COUNTER_POSITION,
    COUNTER_SLOT,
    DONE,
    FULL,
    HEAD,
    HEADS,
    HELD,
    OPAQUE,
    ROLE_DECIDED,
    ROLE_WAIT,
    SEARCH,
    SLOTS_FULL,
    UNDECIDED,
    UNKNOWN,
    FramingState,
)
from dissector.protocols.interface import HEADER_WINDOW
from dissector.stream.columns import CLOSE, DATA, FIN, GAP_CUT, GAP_LOST, RangeColumns
from dissector.tables import ABSENT


@inlined
def _check_header(
    state: FramingState, flow: int, data: ByteArray, at: int, end: int, calls: Callbacks
) -> int:
    """Judge the header with which a frame of a flow begins: its bytes, 0 more needed, -1 no."""
    check = calls.check[state.connections.protocol[flow >> 1]]
    direction = direction_of(state, flow >> 1, flow & 1)
    return int(check(data, at, end, direction, state.flows.limit[flow], state.flows.verify[flow]))


@inlined
def _skip_broken(work: Splitting, index: int, position: int, flow: int, filled: int) -> Step:
    """Pass over the rest of a frame that has a gap; its end is known in sequence space."""
    flows = work.state.flows
    count = min(work.ranges.length[index] - position, flows.skip[flow])
    flows.skip[flow] -= count
    touch_frame(work.state, flow, work.ranges, index)
    if flows.skip[flow] > 0:
        return Step(position + count, filled, DONE)
    status = finish_frame(work, filled, index, flow, flows.broken[flow])
    return Step(position + count, filled + 1, status)


@inlined
def _fill_frame(
    work: Splitting, index: int, position: int, flow: int, data: ByteArray, filled: int
) -> Step:
    """Add bytes to the unfinished frame in the arena; emit it when it is whole."""
    state, ranges = work.state, work.ranges
    flows = state.flows
    had = flows.have[flow]
    total = flows.total[flow]
    count = min(ranges.length[index] - position, HEADER_WINDOW - had if total == 0 else total - had)
    if not make_room(state, flow, had + count):
        return Step(position, filled, ARENA_FULL)
    append_bytes(state, flow, data, ranges.offset[index] + position, count)
    if total == 0:
        at = flows.arena_at[flow]
        total = _check_header(state, flow, state.arena, at, at + had + count, work.calls)
        if total < 0 or (total == 0 and had + count >= HEADER_WINDOW):
            flows.have[flow] = had
            return Step(position, filled, ATTENTION)
        flows.total[flow] = total
        if 0 < total < had + count:
            count = total - had
            flows.have[flow] = total
    touch_frame(state, flow, ranges, index)
    position += count
    if total == 0 or flows.have[flow] < total:
        return Step(position, filled, DONE)
    status = finish_frame(work, filled, index, flow, COMPLETE)
    return Step(position, filled + 1, status)


@inlined
def _new_frame(
    work: Splitting, index: int, position: int, flow: int, data: ByteArray, filled: int
) -> Step:
    """A frame starts here: take it where it lies if it is whole, else begin to gather it."""
    state, ranges, out = work.state, work.ranges, work.out
    flows = state.flows
    left = ranges.length[index] - position
    at = ranges.offset[index] + position
    total = _check_header(state, flow, data, at, at + left, work.calls)
    if total < 0 or (total == 0 and left >= HEADER_WINDOW):
        return Step(position, filled, ATTENTION)
    start_frame(state, flow, ranges, index, position)
    if total == 0 or total > left:
        if not make_room(state, flow, left):
            return Step(position, filled, ARENA_FULL)
        append_bytes(state, flow, data, at, left)
        flows.total[flow] = total
        return Step(position + left, filled, DONE)
    emit_frame(state, out, filled, flow, total, COMPLETE)
    out.release_packet[filled] = ranges.release_packet[index]
    out.source[filled] = ranges.source[index]
    out.data_offset[filled] = at
    out.data_bytes[filled] = total
    flows.verify[flow] = 0
    status = DONE
    if state.connections.role[flow >> 1] != ROLE_DECIDED:
        status = decide_role(state, flow, data, at, at + total, work.calls)
        out.direction[filled] = direction_of(state, flow >> 1, flow & 1)
    if flows.frames[flow] <= HANDSHAKE_FRAMES:
        learn_limit(state, flow, data, at, total, work.calls)
    return Step(position + total, filled + 1, status)


@kernel
def _handle_data(
    work: Splitting, index: int, position: int, flow: int, data: ByteArray, filled: int
) -> Step:
    """Take the bytes of one DATA range of a flow in CHAIN, from a position on."""
    flows = work.state.flows
    while position < work.ranges.length[index]:
        if filled >= len(work.out.command):
            return Step(position, filled, FULL)
        if flows.skip[flow] > 0:
            step = _skip_broken(work, index, position, flow, filled)
        elif flows.have[flow] > 0:
            step = _fill_frame(work, index, position, flow, data, filled)
        else:
            step = _new_frame(work, index, position, flow, data, filled)
        position = step.position
        filled = step.filled
        if step.status != DONE:
            return Step(position, filled, step.status)
    return Step(position, filled, DONE)


@inlined
def _announced_total(state: FramingState, flow: int) -> int:
    """The length of an unfinished frame by its first four bytes, 0 if they are not there or odd."""
    flows = state.flows
    if flows.total[flow] > 0 or flows.have[flow] < 4:
        return int(flows.total[flow])
    announced = be32(state.arena, flows.arena_at[flow])
    if announced < 4 or announced + 4 > flows.limit[flow]:
        return 0
    return announced + 4


@kernel
def _handle_gap(work: Splitting, index: int, flow: int, filled: int) -> Step:
    """Take a gap in a flow in CHAIN: an event row, and at most one cut frame before it."""
    state, ranges = work.state, work.ranges
    flows = state.flows
    length = ranges.length[index]
    is_cut = ranges.kind[index] == GAP_CUT
    status = CUT_BY_SNAPLEN if is_cut else CUT_BY_GAP
    settled = DONE
    is_inside = False
    if flows.have[flow] == 0 and flows.skip[flow] == 0:
        flows.mode[flow] = SEARCH
    else:
        if flows.broken[flow] == 0:
            flows.total[flow] = _announced_total(state, flow)
            flows.broken[flow] = status
            flows.skip[flow] = flows.total[flow] - flows.have[flow]
        if flows.total[flow] == 0:
            # One to three bytes of a header, or no header: no frame, only bytes.
            flows.have[flow] = 0
            flows.broken[flow] = 0
            flows.skip[flow] = 0
            flows.mode[flow] = SEARCH
        else:
            if is_cut:
                touch_frame(state, flow, ranges, index)
            remaining = flows.skip[flow]
            is_inside = length <= remaining
            if length < remaining:
                flows.skip[flow] = remaining - length
            else:
                settled = finish_frame(work, filled, index, flow, flows.broken[flow])
                filled += 1
                if length > remaining:
                    flows.mode[flow] = SEARCH
    if settled == ROLE_WAIT:
        # The gap's own event comes when the kernel is called again for this range.
        return Step(-1, filled, ROLE_WAIT)
    emit_event(work, filled, index, flow >> 1, EVENT_GAP)
    work.out.frames_missing[filled] = 0 if is_inside else 1
    return Step(0, filled + 1, DONE)


@kernel
def _handle_close(work: Splitting, index: int, slot: int, filled: int) -> Step:
    """End a connection: its unfinished frames as cut_by_end, then the event."""
    state = work.state
    flows = state.flows
    first = state.connections.client_side[slot]
    for turn in range(2):
        flow = 2 * slot + (first if turn == 0 else 1 - first)
        if flows.mode[flow] == CHAIN and flows.have[flow] > 0:
            total = _announced_total(state, flow)
            status = flows.broken[flow] if flows.broken[flow] > 0 else CUT_BY_END
            flows.mode[flow] = OPAQUE
            if total > 0:
                flows.total[flow] = total
                settled = finish_frame(work, filled, index, flow, status)
                filled += 1
                if settled == ROLE_WAIT:
                    return Step(-1, filled, ROLE_WAIT)
    if state.connections.waiting[slot] > 0:
        return Step(-1, filled, ATTENTION)
    emit_event(work, filled, index, slot, EVENT_CLOSE)
    return Step(0, filled + 1, DONE)


@inlined
def _begin_chain(work: Splitting, index: int, flow: int, data: ByteArray) -> bool:
    """Whether the first bytes of a flow start a chain at once: no doubt, no slow path.

    So it is where the connection was seen from its SYN and its first bytes are a strict header, or
    any header where the other direction has shown the protocol.
    """
    state, ranges, calls = work.state, work.ranges, work.calls
    known = state.connections
    slot = flow >> 1
    limit = state.flows.limit[flow]
    if known.is_from_syn[slot] == 0 or ranges.stream_offset[index] != 0 or known.is_slow[slot]:
        return False
    base = ranges.offset[index]
    end = base + ranges.length[index]
    protocol = known.protocol[slot]
    if protocol >= len(calls.check):
        return False
    if protocol != UNDECIDED:
        return bool(calls.check[protocol](data, base, end, 2, limit, 0) > 0)
    if state.counters[COUNTER_IS_ASKED]:
        return False
    for candidate in range(len(calls.check)):
        judged = calls.check[candidate](data, base, end, 2, limit, 1)
        if judged > 0:
            known.protocol[slot] = candidate
        if judged >= 0:
            return bool(judged > 0)  # what needs more bytes comes before what would do with these
    return False


@kernel
def _is_vain(work: Splitting, index: int, rows: int, flow: int, data: ByteArray) -> bool:
    """Whether a range of a direction whose frames are searched lies between holes, and no frame
    begins in it, as a search would find: it needs none.

    What follows in other calls is not known here: then it is searched, to the same end.
    """
    ranges, state, calls = work.ranges, work.state, work.calls
    protocol = state.connections.protocol[flow >> 1]
    if protocol < 0 or protocol >= len(calls.check) or ranges.length[index] > HEADER_WINDOW:
        return False
    is_before_hole = False
    for row in range(index + 1, min(rows, index + 1 + MAX_ROWS_AHEAD)):
        is_same = ranges.connection[row] == ranges.connection[index]
        if is_same and ranges.side[row] == ranges.side[index]:
            kind = ranges.kind[row]
            is_before_hole = kind in (GAP_LOST, GAP_CUT) and ranges.length[row] > 0
            break
    if not is_before_hole:
        return False
    check, limit = calls.check[protocol], state.flows.limit[flow]
    direction = direction_of(state, flow >> 1, flow & 1)
    end = ranges.offset[index] + ranges.length[index]
    for at in range(ranges.offset[index], end):
        total = check(data, at, end, direction, limit, STRICTEST)
        if total > 0 or (total == 0 and end - at >= HEADER_EVIDENCE):
            return False
    return True


@kernel
def split(
    state: FramingState,
    ranges: RangeColumns,
    rows: int,
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray],
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> tuple[int, int]:
    """Turn ranges into frames from the cursor on (state.counters).

    Args:
        sources: input buffer, stream heap, side buffer, arena; chosen by ranges.source.
        out: rows from `filled` on are written.

    Returns:
        rows filled in all, and a status: DONE, FULL, ARENA_FULL, SLOTS_FULL, OPENINGS_FULL,
        CHAIN_FOUND, ATTENTION, ROLE_WAIT.
    """
    work = Splitting(state, ranges, out, calls)
    index = state.counters[COUNTER_CURSOR]
    position = state.counters[COUNTER_POSITION]
    status = DONE
    slot = ABSENT
    limit = len(out.command) - 4
    while index < rows and status == DONE:
        if filled >= limit:
            status = FULL
            break
        kind = ranges.kind[index]
        if kind == GATHERED:
            state.counters[COUNTER_GATHERED] += ranges.length[index] + PIECE_BYTES
            index += 1
            continue
        connection = ranges.connection[index]
        slot = find_slot(state, connection)
        if slot == ABSENT and kind == CLOSE:
            index += 1  # it never had a byte
            continue
        if slot == ABSENT:
            longest = state.counters[COUNTER_FRAME_LIMIT]
            slot = allocate_slot(state, connection, ranges.opener[index], longest)
            if slot == ABSENT:
                status = SLOTS_FULL
                break
        flow = 2 * slot + ranges.side[index]
        mode = state.flows.mode[flow]
        is_slow = state.connections.is_slow[slot] != 0
        step = Step(0, filled, DONE)
        if kind == DATA and state.flows.head_bytes[flow] < HEADS:
            keep_head(state.flows, ranges, index, flow, sources[ranges.source[index]])
        if kind == DUE:
            status = ATTENTION
            break
        if kind == CLOSE:
            if is_slow and not end_openings(work, 2 * slot, 2 * slot + 2, OPAQUE):
                status = ATTENTION
                break
            if is_slow and state.connections.protocol[slot] == UNDECIDED:
                state.connections.protocol[slot] = UNKNOWN
            step = _handle_close(work, index, slot, filled)
        elif kind == FIN:
            is_open = is_slow and mode != CHAIN and mode != OPAQUE
            if is_open and not end_openings(work, flow, flow + 1, CHAIN):
                status = ATTENTION
                break
            emit_event(work, filled, index, slot, EVENT_FIN)
            step = Step(0, filled + 1, DONE)
        elif mode == OPAQUE:
            pass
        elif kind == DATA:
            data = sources[ranges.source[index]]
            state.flows.is_seen[flow] = 1
            if mode == HEAD and _begin_chain(work, index, flow, data):
                state.flows.mode[flow] = CHAIN
                mode = CHAIN
            if mode == CHAIN:
                step = _handle_data(work, index, position, flow, data, filled)
            elif mode in (HEAD, HELD):
                step = Step(0, filled, keep_opening(work, index, flow, data))
            elif (
                mode == SEARCH
                and not is_slow
                and position == 0
                and _is_vain(work, index, rows, flow, data)
            ):
                state.flows.skipped[flow] += ranges.length[index]
            else:
                status = ATTENTION
                break
        elif mode == CHAIN and position == 0:
            step = _handle_gap(work, index, flow, filled)
        elif mode == CHAIN or (
            mode == SEARCH and not is_slow and state.connections.protocol[slot] != UNDECIDED
        ):
            emit_event(work, filled, index, slot, EVENT_GAP)
            work.out.frames_missing[filled] = 1
            step = Step(0, filled + 1, DONE)
        else:
            status = ATTENTION
            break
        filled = step.filled
        status = step.status
        position = step.position
        if status in (DONE, CHAIN_FOUND):
            position = 0
            index += 1
    state.counters[COUNTER_CURSOR] = index
    state.counters[COUNTER_POSITION] = position
    state.counters[COUNTER_SLOT] = slot
    return filled, status
