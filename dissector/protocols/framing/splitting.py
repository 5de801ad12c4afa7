"""Cut in-order stream ranges into length-prefixed frames.

Theory. A direction of a connection is in one of five modes (`state`). CHAIN is the rule:
where a frame ends the next begins. A frame that lies in one range is taken where it lies; one that
straddles ranges is put together in the arena, which grows with the bytes that arrive, never by the
length announced. A gap inside a frame whose length is known leaves the chain intact: the frame's
end is known in sequence space, the frame comes out with what is known of it, and the next header is
checked strictly. A gap over a header, or a header that cannot be one, ends the chain: SEARCH.

Bytes of directions in other modes are held (`unsynchronised`) until a chain is found or given up.
Then their ranges come again, before any other: the loop of `split` takes what waits for it first,
frames whose role is decided, then ranges that come again, then the next range of the block. It
returns only for want of room.

A protocol takes part with four callbacks, see `protocols.interface`.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import be32
from dissector.jit import inlined, kernel
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns
from dissector.protocols.framing import roles, row_output, unsynchronised
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.buffers import has_buffer, take_row
from dissector.protocols.framing.connection_table import allocate_connection, find_slot
from dissector.protocols.framing.other_protocols import keep_head
from dissector.protocols.framing.range_pool import LARGE_HELD, LARGE_LIMIT
from dissector.protocols.framing.row_output import Callbacks, PassContext, Step
from dissector.protocols.framing.state import FramingState
from dissector.protocols.interface import HEADER_WINDOW
from dissector.stream.columns import CLOSE, DATA, FIN, GAP_CUT, RangeColumns
from dissector.tables import ABSENT, give_row

_TAKEN: Final = 5  # kind of a range that came again and is handled


@inlined
def _check_header(
    state: FramingState, flow: int, data: ByteArray, at: int, end: int, calls: Callbacks
) -> int:
    """Judge the header with which a frame of a direction begins: its bytes, 0 more needed, -1
    no.
    """
    check = calls.check[state.connections.protocol[flow >> 1]]
    direction = row_output.direction_of(state, flow >> 1, flow & 1)
    return int(
        check(data, at, end, direction, state.directions.limit[flow], state.directions.verify[flow])
    )


@inlined
def _skip_broken(work: PassContext, index: int, position: int, flow: int, filled: int) -> Step:
    """Pass over the rest of a frame that has a gap; its end is known in sequence space."""
    flows = work.state.directions
    count = min(work.ranges.length[index] - position, flows.skip[flow])
    flows.skip[flow] -= count
    row_output.touch_frame(work.state, flow, work.ranges, index)
    if flows.skip[flow] > 0:
        return Step(position + count, filled, framing_state.DONE)
    status = row_output.finish_frame(work, filled, index, flow, flows.broken[flow])
    return Step(position + count, filled + 1, status)


@inlined
def _fill_frame(
    work: PassContext, index: int, position: int, flow: int, data: ByteArray, filled: int
) -> Step:
    """Add bytes to the unfinished frame in the arena; emit it when it is whole."""
    state, ranges = work.state, work.ranges
    flows = state.directions
    had = flows.have[flow]
    total = flows.total[flow]
    count = min(ranges.length[index] - position, HEADER_WINDOW - had if total == 0 else total - had)
    if not row_output.reserve(state, flow, had + count):
        return Step(position, filled, framing_state.ARENA_FULL)
    row_output.append_bytes(state, flow, data, ranges.offset[index] + position, count)
    if total == 0:
        at = flows.arena_at[flow]
        total = _check_header(state, flow, state.arena, at, at + had + count, work.calls)
        if total < 0 or (total == 0 and had + count >= HEADER_WINDOW):
            flows.have[flow] = had
            return Step(position, filled, framing_state.BROKEN)
        flows.total[flow] = total
        if 0 < total < had + count:
            count = total - had
            flows.have[flow] = total
    row_output.touch_frame(state, flow, ranges, index)
    position += count
    if total == 0 or flows.have[flow] < total:
        return Step(position, filled, framing_state.DONE)
    status = row_output.finish_frame(work, filled, index, flow, columns.COMPLETE)
    return Step(position, filled + 1, status)


@inlined
def _new_frame(
    work: PassContext, index: int, position: int, flow: int, data: ByteArray, filled: int
) -> Step:
    """A frame starts here: take it where it lies if it is whole, else begin to gather it."""
    state, ranges, out = work.state, work.ranges, work.out
    flows = state.directions
    left = ranges.length[index] - position
    at = ranges.offset[index] + position
    total = _check_header(state, flow, data, at, at + left, work.calls)
    if total < 0 or (total == 0 and left >= HEADER_WINDOW):
        return Step(position, filled, framing_state.BROKEN)
    if not roles.may_wait(state, flow >> 1, ranges.source[index], total):
        state.counters[framing_state.COUNTER_ARENA_NEEDED] = total
        return Step(position, filled, framing_state.ARENA_FULL)
    row_output.start_frame(state, flow, ranges, index, position)
    if total == 0 or total > left:
        if not row_output.reserve(state, flow, left):
            return Step(position, filled, framing_state.ARENA_FULL)
        row_output.append_bytes(state, flow, data, at, left)
        flows.total[flow] = total
        return Step(position + left, filled, framing_state.DONE)
    row_output.emit_frame(state, out, filled, flow, total, columns.COMPLETE)
    out.release_packet[filled] = ranges.release_packet[index]
    out.source[filled] = ranges.source[index]
    out.data_offset[filled] = at
    out.data_bytes[filled] = total
    flows.verify[flow] = 0
    status = framing_state.DONE
    if state.connections.role[flow >> 1] != framing_state.ROLE_DECIDED:
        status = row_output.decide_role(state, flow, data, at, at + total, work.calls)
        out.direction[filled] = row_output.direction_of(state, flow >> 1, flow & 1)
    if flows.frames[flow] <= row_output.HANDSHAKE_FRAMES:
        row_output.learn_limit(state, flow, data, at, total, work.calls)
    return Step(position + total, filled + 1, status)


@kernel
def _handle_data(
    work: PassContext, index: int, position: int, flow: int, data: ByteArray, filled: int
) -> Step:
    """Take the bytes of one DATA range of a direction in CHAIN, from a position on."""
    flows = work.state.directions
    while position < work.ranges.length[index]:
        if filled >= len(work.out.command):
            return Step(position, filled, framing_state.FULL)
        if flows.skip[flow] > 0:
            step = _skip_broken(work, index, position, flow, filled)
        elif flows.have[flow] > 0:
            step = _fill_frame(work, index, position, flow, data, filled)
        else:
            step = _new_frame(work, index, position, flow, data, filled)
        position = step.position
        filled = step.filled
        if step.status != framing_state.DONE:
            return Step(position, filled, step.status)
    return Step(position, filled, framing_state.DONE)


@inlined
def _announced_total(state: FramingState, flow: int) -> int:
    """The length of an unfinished frame by its first four bytes, 0 if they are not there or odd."""
    flows = state.directions
    if flows.total[flow] > 0 or flows.have[flow] < 4:
        return int(flows.total[flow])
    announced = be32(state.arena, flows.arena_at[flow])
    if announced < 4 or announced + 4 > flows.limit[flow]:
        return 0
    return announced + 4


@inlined
def _emit_gap(work: PassContext, index: int, flow: int, filled: int) -> Step:
    """Write the event of a gap; frames may be missing with it where the chain does not go on."""
    row_output.emit_event(work, filled, index, flow >> 1, columns.EVENT_GAP)
    work.out.frames_missing[filled] = int(work.state.directions.mode[flow] != framing_state.CHAIN)
    return Step(0, filled + 1, framing_state.DONE)


@kernel
def _handle_gap(work: PassContext, index: int, flow: int, filled: int) -> Step:
    """Take a gap in a direction in CHAIN: an event row, and at most one cut frame before it."""
    state, ranges = work.state, work.ranges
    flows = state.directions
    length = ranges.length[index]
    is_cut = ranges.kind[index] == GAP_CUT
    status = columns.CUT_BY_SNAPLEN if is_cut else columns.CUT_BY_GAP
    settled = framing_state.DONE
    if flows.have[flow] == 0 and flows.skip[flow] == 0:
        flows.mode[flow] = framing_state.SEARCH
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
            flows.mode[flow] = framing_state.SEARCH
        else:
            if is_cut:
                row_output.touch_frame(state, flow, ranges, index)
            remaining = flows.skip[flow]
            if length < remaining:
                flows.skip[flow] = remaining - length
            else:
                settled = row_output.finish_frame(work, filled, index, flow, flows.broken[flow])
                filled += 1
                if length > remaining:
                    flows.mode[flow] = framing_state.SEARCH
    if settled == framing_state.ROLE_WAIT:
        # The gap's own event comes when the kernel is called again for this range.
        return Step(-1, filled, framing_state.ROLE_WAIT)
    return _emit_gap(work, index, flow, filled)


@kernel
def _handle_close(work: PassContext, index: int, slot: int, filled: int) -> Step:
    """End a connection: its unfinished frames as cut_by_end, then the event."""
    state = work.state
    flows = state.directions
    first = state.connections.client_endpoint[slot]
    for turn in range(2):
        flow = 2 * slot + (first if turn == 0 else 1 - first)
        if flows.mode[flow] == framing_state.CHAIN and flows.have[flow] > 0:
            total = _announced_total(state, flow)
            status = flows.broken[flow] if flows.broken[flow] > 0 else columns.CUT_BY_END
            flows.mode[flow] = framing_state.OPAQUE
            if total > 0:
                flows.total[flow] = total
                settled = row_output.finish_frame(work, filled, index, flow, status)
                filled += 1
                if settled == framing_state.ROLE_WAIT:
                    return Step(0, filled, framing_state.ROLE_WAIT)
    if state.connections.waiting[slot] > 0:
        roles.decide_role_at_last(state, slot, work.ranges.release_packet[index])
        return Step(0, filled, framing_state.AGAIN)
    row_output.emit_event(work, filled, index, slot, columns.EVENT_CLOSE)
    return Step(0, filled + 1, framing_state.DONE)


@inlined
def _begin_chain(work: PassContext, index: int, flow: int, data: ByteArray) -> bool:
    """Whether the first bytes of a direction start a chain at once: there is no doubt.

    So it is where the connection was seen from its SYN and its first bytes are a strict header, or
    any header where the other direction has shown the protocol.
    """
    state, ranges, calls = work.state, work.ranges, work.calls
    known = state.connections
    slot = flow >> 1
    limit = state.directions.limit[flow]
    if known.is_from_syn[slot] == 0 or ranges.stream_offset[index] != 0 or has_buffer(state, slot):
        return False
    base = ranges.offset[index]
    end = base + ranges.length[index]
    protocol = known.protocol[slot]
    if protocol >= len(calls.check):
        return False
    if protocol != framing_state.UNDECIDED:
        return bool(calls.check[protocol](data, base, end, 2, limit, 0) > 0)
    if state.counters[framing_state.COUNTER_IS_ASKED]:
        return False
    for candidate in range(len(calls.check)):
        judged = calls.check[candidate](data, base, end, 2, limit, 1)
        if judged > 0:
            known.protocol[slot] = candidate
        if judged >= 0:
            return bool(judged > 0)  # what needs more bytes comes before what would do with these
    return False


@inlined
def _handle_bytes(work: PassContext, index: int, position: int, flow: int, filled: int) -> Step:
    """Take the bytes of one DATA range, from a position on."""
    flows = work.state.directions
    data = work.sources[work.ranges.source[index]]
    if flows.head_bytes[flow] < framing_state.HEADS:
        keep_head(flows, work.ranges, index, flow, data)
    mode = flows.mode[flow]
    if mode == framing_state.OPAQUE:
        return Step(0, filled, framing_state.DONE)
    flows.is_seen[flow] = 1
    if mode == framing_state.HEAD and _begin_chain(work, index, flow, data):
        flows.mode[flow] = mode = framing_state.CHAIN
    if mode == framing_state.CHAIN:
        step = _handle_data(work, index, position, flow, data, filled)
        if step.status != framing_state.BROKEN:
            return step
        position, filled = step.position, step.filled
    return Step(position, filled, unsynchronised.handle_bytes(work, index, position, flow))


@inlined
def _handle_event(work: PassContext, index: int, position: int, flow: int, filled: int) -> Step:
    """Take a gap or the end of a direction."""
    state, flows, slot = work.state, work.state.directions, flow >> 1
    mode, is_buffered = flows.mode[flow], has_buffer(work.state, slot)
    if work.ranges.kind[index] == FIN:
        if is_buffered and mode != framing_state.CHAIN and mode != framing_state.OPAQUE:
            status = unsynchronised.handle_fin(work, index, flow)
            if status >= 0:
                return Step(0, filled, status)
        row_output.emit_event(work, filled, index, slot, columns.EVENT_FIN)
        return Step(0, filled + 1, framing_state.DONE)
    if mode == framing_state.OPAQUE:
        return Step(0, filled, framing_state.DONE)
    if position < 0:  # the frame that it cuts is out
        return _emit_gap(work, index, flow, filled)
    if mode == framing_state.CHAIN:
        return _handle_gap(work, index, flow, filled)
    if is_buffered and unsynchronised.handle_gap(work, index, flow):
        return Step(0, filled, framing_state.DONE)
    if state.connections.protocol[slot] == framing_state.UNDECIDED:
        return Step(0, filled, framing_state.DONE)
    flows.mode[flow] = framing_state.SEARCH
    return _emit_gap(work, index, flow, filled)


@kernel
def _handle_range(work: PassContext, index: int, position: int, slot: int, filled: int) -> Step:
    """Take one range of a connection, from a position on; DONE if that is all of it."""
    kind = work.ranges.kind[index]
    flow = 2 * slot + work.ranges.endpoint_index[index]
    if kind == DATA:
        return _handle_bytes(work, index, position, flow, filled)
    if kind != CLOSE:
        return _handle_event(work, index, position, flow, filled)
    if has_buffer(work.state, slot):
        status = unsynchronised.handle_close(work, index, slot)
        if status != framing_state.DONE:
            return Step(0, filled, status)
    return _handle_close(work, index, slot, filled)


@kernel
def _split_again(work: PassContext, position: int, filled: int) -> Step:
    """Take the first of the ranges that come again, from a position on, unless it is taken."""
    state, row = work.state, work.state.counters[framing_state.COUNTER_AGAIN]
    rows = state.pool.ranges
    if rows.kind[row] == _TAKEN:
        state.counters[framing_state.COUNTER_AGAIN] = rows.next[row]
        give_row(state.pool.free_ranges, row)
        return Step(0, filled, framing_state.DONE)
    take_row(state, row)
    again = PassContext(state, state.again, work.sources, work.out, work.calls, row)
    slot = rows.direction_index[row] >> 1
    state.counters[framing_state.COUNTER_CONNECTION] = slot
    step = _handle_range(again, 0, position, slot, filled)
    if step.status == framing_state.ROLE_WAIT:
        stays = roles.settle_role(again, slot, step.filled - 1)
        return Step(step.position, step.filled - (0 if stays else 1), framing_state.AGAIN)
    if step.status == framing_state.DONE:
        rows.kind[row] = _TAKEN
        return Step(0, step.filled, framing_state.DONE)
    return step


@inlined
def _slot_of(work: PassContext, index: int) -> int:
    """The row of a range's connection, new if it has none; ABSENT if there is no room."""
    state, ranges = work.state, work.ranges
    connection = ranges.connection[index]
    slot = find_slot(state, connection)
    if slot == ABSENT and ranges.kind[index] != CLOSE:
        longest = state.counters[framing_state.COUNTER_FRAME_LIMIT]
        slot = allocate_connection(
            state, connection, ranges.opener[index], ranges.ports[index], longest
        )
    return slot


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
        rows filled in all, and a status: DONE, FULL, ARENA_FULL, CONNECTIONS_FULL, POOLS_FULL,
        BUFFERS_FULL.
    """
    work = PassContext(state, ranges, sources, out, calls, ABSENT)
    counters, limit = state.counters, len(out.command) - 4
    index, position, status = (
        counters[framing_state.COUNTER_CURSOR],
        counters[framing_state.COUNTER_POSITION],
        framing_state.DONE,
    )
    while status == framing_state.DONE:
        if counters[framing_state.COUNTER_RELEASED] != ABSENT:
            filled = roles.release_frames(work, filled, limit)
        if filled >= limit:
            status = framing_state.FULL
        elif not framing_state.has_rows(state):
            status = framing_state.POOLS_FULL
        elif counters[framing_state.COUNTER_AGAIN] != ABSENT:
            step = _split_again(work, position, filled)
            position, filled = step.position, step.filled
            status = framing_state.DONE if step.status == framing_state.AGAIN else step.status
            if (
                status == framing_state.DONE
                and state.pool.counts[LARGE_HELD] > state.pool.counts[LARGE_LIMIT]
            ):
                status = framing_state.BUFFERS_FULL
        elif index >= rows:
            break
        else:
            slot = _slot_of(work, index)
            if slot == ABSENT and ranges.kind[index] != CLOSE:
                status = framing_state.CONNECTIONS_FULL
                break
            if slot == ABSENT:
                index += 1  # it never had a byte
                continue
            counters[framing_state.COUNTER_CONNECTION] = slot
            step = _handle_range(work, index, position, slot, filled)
            position, filled = step.position, step.filled
            if step.status == framing_state.ROLE_WAIT:
                filled -= 0 if roles.settle_role(work, slot, filled - 1) else 1
            elif step.status == framing_state.DONE:
                position = 0
                index += 1
                if state.pool.counts[LARGE_HELD] > state.pool.counts[LARGE_LIMIT]:
                    for column in range(ranges.matrix.shape[0]):
                        state.again.matrix[column, 0] = ranges.matrix[column, index - 1]
                    status = framing_state.BUFFERS_FULL
            elif step.status != framing_state.AGAIN:
                status = step.status
    counters[framing_state.COUNTER_CURSOR] = index
    counters[framing_state.COUNTER_POSITION] = position
    return filled, status
