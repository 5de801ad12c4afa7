"""Cut in-order stream ranges into length-prefixed frames.

Theory. A direction is in one of four modes (framing_state). CHAIN is the rule: where a frame ends
the next begins. A frame that lies in one range is taken where it lies; one that straddles ranges is
put together in the arena, which grows with the bytes that arrive, never by the length announced.
A gap inside a frame whose length is known leaves the chain intact: the frame's end is known in
sequence space, the frame comes out with what is known of it, and the next header is checked
strictly. A gap over a header, or a header that cannot be one, ends the chain: SEARCH. What is rare
(the first bytes of a connection, SEARCH, frames that wait for the role) is not done here: the
kernel returns ATTENTION or ROLE_WAIT and `protocols.assembly` does it.

A protocol takes part with four callbacks, see `protocols.interface`.
"""

from dissector.blocks import ByteArray
from dissector.codecs.integers import be32
from dissector.jit import inlined, kernel
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
from dissector.protocols.framing.emission import (
    HANDSHAKE_FRAMES,
    HEADER_WINDOW,
    Callbacks,
    Step,
    append_bytes,
    direction_of,
    emit_event,
    emit_frame,
    finish_frame,
    learn_limit,
    make_room,
    settle_role,
    start_frame,
    touch_frame,
)
from dissector.protocols.framing.slots import find_slot, take_slot
from dissector.protocols.framing.state import (
    ARENA_FULL,
    ATTENTION,
    CHAIN,
    COUNTER_CURSOR,
    COUNTER_FRAME_LIMIT,
    COUNTER_IS_ASKED,
    COUNTER_POSITION,
    DONE,
    FULL,
    HEAD,
    OPAQUE,
    ROLE_DECIDED,
    ROLE_WAIT,
    SEARCH,
    SLOTS_FULL,
    UNDECIDED,
    FramingState,
)
from dissector.stream.columns import CLOSE, DATA, FIN, GAP_CUT, OPEN, RangeColumns


@inlined
def _skip_broken(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    position: int,
    way: int,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """Pass over the rest of a frame that has a gap; its end is known in sequence space."""
    ways = state.directions
    count = min(ranges.length[index] - position, ways.skip[way])
    ways.skip[way] -= count
    touch_frame(state, way, ranges, index)
    if ways.skip[way] > 0:
        return Step(position + count, filled, DONE)
    out.release_packet[filled] = ranges.release_packet[index]
    status = finish_frame(state, out, filled, way, ways.broken[way], calls)
    return Step(position + count, filled + 1, status)


@inlined
def _fill_frame(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    position: int,
    way: int,
    data: ByteArray,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """Add bytes to the unfinished frame in the arena; emit it when it is whole."""
    ways = state.directions
    had = ways.have[way]
    total = ways.total[way]
    count = min(ranges.length[index] - position, HEADER_WINDOW - had if total == 0 else total - had)
    if not make_room(state, way, had + count):
        return Step(position, filled, ARENA_FULL)
    append_bytes(state, way, data, ranges.offset[index] + position, count)
    if total == 0:
        at = ways.arena_at[way]
        total = calls.check[state.connections.protocol[way >> 1]](
            state.arena,
            at,
            at + had + count,
            direction_of(state, way >> 1, way & 1),
            ways.limit[way],
            ways.verify[way],
        )
        if total < 0 or (total == 0 and had + count >= HEADER_WINDOW):
            ways.have[way] = had
            return Step(position, filled, ATTENTION)
        ways.total[way] = total
        if 0 < total < had + count:
            count = total - had
            ways.have[way] = total
    touch_frame(state, way, ranges, index)
    position += count
    if total == 0 or ways.have[way] < total:
        return Step(position, filled, DONE)
    out.release_packet[filled] = ranges.release_packet[index]
    status = finish_frame(state, out, filled, way, COMPLETE, calls)
    return Step(position, filled + 1, status)


@inlined
def _new_frame(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    position: int,
    way: int,
    data: ByteArray,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """A frame starts here: take it where it lies if it is whole, else begin to gather it."""
    ways = state.directions
    slot = way >> 1
    left = ranges.length[index] - position
    at = ranges.offset[index] + position
    total = calls.check[state.connections.protocol[slot]](
        data,
        at,
        at + left,
        direction_of(state, slot, way & 1),
        ways.limit[way],
        ways.verify[way],
    )
    if total < 0 or (total == 0 and left >= HEADER_WINDOW):
        return Step(position, filled, ATTENTION)
    start_frame(state, way, ranges, index, position)
    if total == 0 or total > left:
        if not make_room(state, way, left):
            return Step(position, filled, ARENA_FULL)
        append_bytes(state, way, data, at, left)
        ways.total[way] = total
        return Step(position + left, filled, DONE)
    emit_frame(state, out, filled, way, total, COMPLETE)
    out.release_packet[filled] = ranges.release_packet[index]
    out.source[filled] = ranges.source[index]
    out.data_offset[filled] = at
    out.data_bytes[filled] = total
    ways.verify[way] = 0
    settled = DONE
    if state.connections.role[slot] != ROLE_DECIDED:
        settled = settle_role(state, way, data, at, at + total, calls)
        out.direction[filled] = direction_of(state, slot, way & 1)
    if ways.frames[way] <= HANDSHAKE_FRAMES:
        learn_limit(state, way, data, at, total, calls)
    return Step(position + total, filled + 1, settled)


@kernel
def _take_data(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    position: int,
    data: ByteArray,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """Take the bytes of one DATA range of a direction in CHAIN, from a position on."""
    ways = state.directions
    way = 2 * find_slot(state, ranges.connection[index]) + ranges.side[index]
    while position < ranges.length[index]:
        if filled >= len(out.command):
            return Step(position, filled, FULL)
        if ways.skip[way] > 0:
            step = _skip_broken(state, ranges, index, position, way, out, filled, calls)
        elif ways.have[way] > 0:
            step = _fill_frame(state, ranges, index, position, way, data, out, filled, calls)
        else:
            step = _new_frame(state, ranges, index, position, way, data, out, filled, calls)
        position = step.position
        filled = step.filled
        if step.status != DONE:
            return Step(position, filled, step.status)
    return Step(position, filled, DONE)


@inlined
def _announced_total(state: FramingState, way: int) -> int:
    """The length of an unfinished frame by its first four bytes, 0 if they are not there or odd."""
    ways = state.directions
    if ways.total[way] > 0 or ways.have[way] < 4:
        return int(ways.total[way])
    announced = be32(state.arena, ways.arena_at[way])
    if announced < 4 or announced + 4 > ways.limit[way]:
        return 0
    return announced + 4


@kernel
def _take_gap(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """Take a gap in a direction in CHAIN: an event row, and at most one cut frame before it."""
    ways = state.directions
    slot = find_slot(state, ranges.connection[index])
    way = 2 * slot + ranges.side[index]
    length = ranges.length[index]
    is_cut = ranges.kind[index] == GAP_CUT
    status = CUT_BY_SNAPLEN if is_cut else CUT_BY_GAP
    settled = DONE
    if ways.have[way] == 0 and ways.skip[way] == 0:
        ways.mode[way] = SEARCH
    else:
        if ways.broken[way] == 0:
            ways.total[way] = _announced_total(state, way)
            ways.broken[way] = status
            ways.skip[way] = ways.total[way] - ways.have[way]
        if ways.total[way] == 0:
            # One to three bytes of a header, or no header: no frame, only bytes.
            ways.have[way] = 0
            ways.broken[way] = 0
            ways.skip[way] = 0
            ways.mode[way] = SEARCH
        else:
            if is_cut:
                touch_frame(state, way, ranges, index)
            remaining = ways.skip[way]
            if length < remaining:
                ways.skip[way] = remaining - length
            else:
                out.release_packet[filled] = ranges.release_packet[index]
                settled = finish_frame(state, out, filled, way, ways.broken[way], calls)
                filled += 1
                if length > remaining:
                    ways.mode[way] = SEARCH
    if settled == ROLE_WAIT:
        # The gap's own event comes when the kernel is called again for this range.
        return Step(-1, filled, ROLE_WAIT)
    return Step(0, filled, DONE)


@kernel
def _take_close(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    out: FrameColumns,
    filled: int,
    calls: Callbacks,
) -> Step:
    """End a connection: its unfinished frames as cut_by_end, then the event."""
    ways = state.directions
    slot = find_slot(state, ranges.connection[index])
    first = state.connections.client_side[slot]
    for turn in range(2):
        way = 2 * slot + (first if turn == 0 else 1 - first)
        if ways.mode[way] == CHAIN and ways.have[way] > 0:
            total = _announced_total(state, way)
            status = ways.broken[way] if ways.broken[way] > 0 else CUT_BY_END
            ways.mode[way] = OPAQUE
            if total > 0:
                ways.total[way] = total
                out.release_packet[filled] = ranges.release_packet[index]
                settled = finish_frame(state, out, filled, way, status, calls)
                filled += 1
                if settled == ROLE_WAIT:
                    return Step(-1, filled, ROLE_WAIT)
    if state.connections.waiting[slot] > 0:
        return Step(-1, filled, ATTENTION)
    emit_event(state, out, filled, ranges, index, EVENT_CLOSE)
    return Step(0, filled + 1, DONE)


@inlined
def _begin_chain(
    state: FramingState,
    ranges: RangeColumns,
    index: int,
    data: ByteArray,
    slot: int,
    way: int,
    calls: Callbacks,
) -> bool:
    """Whether the first bytes of a direction start a chain at once: no doubt, no slow path.

    So it is where the connection was seen from its SYN and its first bytes are a strict header, or
    any header where the other direction has shown the protocol.
    """
    known = state.connections
    ways = state.directions
    if known.is_from_syn[slot] == 0 or ranges.stream_offset[index] != 0 or known.is_slow[slot]:
        return False
    base = ranges.offset[index]
    end = base + ranges.length[index]
    protocol = known.protocol[slot]
    if protocol >= len(calls.check):
        return False
    if protocol != UNDECIDED:
        return bool(calls.check[protocol](data, base, end, 2, ways.limit[way], 0) > 0)
    if state.counters[COUNTER_IS_ASKED]:
        return False
    for place in range(len(calls.check)):
        judged = calls.check[place](data, base, end, 2, ways.limit[way], 1)
        if judged > 0:
            known.protocol[slot] = place
        if judged >= 0:
            return bool(judged > 0)  # what needs more bytes comes before what would do with these
    return False


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
        rows filled in all, and a status: DONE, FULL, ARENA_FULL, SLOTS_FULL, ATTENTION, ROLE_WAIT.
    """
    index = state.counters[COUNTER_CURSOR]
    position = state.counters[COUNTER_POSITION]
    status = DONE
    limit = len(out.command) - 4
    while index < rows and status == DONE:
        if filled >= limit:
            status = FULL
            break
        kind = ranges.kind[index]
        slot = find_slot(state, ranges.connection[index])
        if slot < 0:
            slot = take_slot(
                state,
                ranges.connection[index],
                ranges.cause[index] & 1,
                state.counters[COUNTER_FRAME_LIMIT],
            )
            if slot < 0:
                status = SLOTS_FULL
                break
        if kind == OPEN:
            index += 1
            continue
        way = 2 * slot + ranges.side[index]
        mode = state.directions.mode[way]
        if kind == CLOSE:
            if state.connections.is_slow[slot]:
                status = ATTENTION
                break
            step = _take_close(state, ranges, index, out, filled, calls)
        elif kind == FIN and mode != CHAIN and mode != OPAQUE and state.connections.is_slow[slot]:
            status = ATTENTION
            break
        elif kind == FIN:
            emit_event(state, out, filled, ranges, index, EVENT_FIN)
            step = Step(0, filled + 1, DONE)
        elif mode == OPAQUE:
            step = Step(0, filled, DONE)
        elif kind == DATA:
            data = sources[ranges.source[index]]
            state.directions.is_seen[way] = 1
            if mode == HEAD and _begin_chain(state, ranges, index, data, slot, way, calls):
                state.directions.mode[way] = CHAIN
                mode = CHAIN
            if mode != CHAIN:
                status = ATTENTION
                break
            step = _take_data(state, ranges, index, position, data, out, filled, calls)
            if step.status == DONE:
                position = 0
        elif mode == CHAIN:
            step = Step(0, filled, DONE)
            if position == 0:
                step = _take_gap(state, ranges, index, out, filled, calls)
            if step.status == DONE:
                emit_event(state, out, step.filled, ranges, index, EVENT_GAP)
                step = Step(0, step.filled + 1, DONE)
        else:
            status = ATTENTION
            break
        filled = step.filled
        status = step.status
        position = step.position
        if status == DONE:
            position = 0
            index += 1
    state.counters[COUNTER_CURSOR] = index
    state.counters[COUNTER_POSITION] = position
    return filled, status
