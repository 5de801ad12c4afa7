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
from dissector.protocols.columns import FrameColumns, FrameEvent
from dissector.protocols.framing import roles, row_output, unsynchronised
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.buffers import has_buffer, take_row
from dissector.protocols.framing.connection_table import allocate_connection, find_connection
from dissector.protocols.framing.other_protocols import keep_head
from dissector.protocols.framing.range_pool import LARGE_HELD, LARGE_LIMIT
from dissector.protocols.framing.row_output import Callbacks, PassContext, Step
from dissector.protocols.framing.state import DirectionMode, FramingState, RoleState, SplitStatus
from dissector.protocols.interface import HEADER_WINDOW
from dissector.stream.columns import GOES_ON, RangeColumns, RangeKind
from dissector.tables import ABSENT, give_row

_TAKEN: Final = 5  # kind of a range that came again and is handled


@inlined
def _check_header(
    state: FramingState, direction_index: int, data: ByteArray, at: int, end: int, calls: Callbacks
) -> int:
    """Judge the header with which a frame of a direction begins: its bytes, 0 more needed, -1
    no.
    """
    check = calls.check[state.connections.protocol[direction_index >> 1]]
    direction = row_output.direction_of(state, direction_index >> 1, direction_index & 1)
    return int(
        check(
            data,
            at,
            end,
            direction,
            state.directions.limit[direction_index],
            state.directions.verify[direction_index],
        )
    )


@inlined
def _skip_broken(
    work: PassContext, index: int, position: int, direction_index: int, filled: int
) -> Step:
    """Pass over the rest of a frame that has a gap; its end is known in sequence space."""
    directions = work.state.directions
    count = min(work.ranges.length[index] - position, directions.skip[direction_index])
    directions.skip[direction_index] -= count
    row_output.touch_frame(work.state, direction_index, work.ranges, index)
    if directions.skip[direction_index] > 0:
        return Step(position + count, filled, SplitStatus.DONE)
    status = row_output.finish_frame(
        work, filled, index, direction_index, directions.broken[direction_index]
    )
    return Step(position + count, filled + 1, status)


@inlined
def _fill_frame(
    work: PassContext, index: int, position: int, direction_index: int, data: ByteArray, filled: int
) -> Step:
    """Add bytes to the unfinished frame in the arena; emit it when it is whole."""
    state, ranges = work.state, work.ranges
    directions = state.directions
    had = directions.have[direction_index]
    total = directions.total[direction_index]
    count = min(ranges.length[index] - position, HEADER_WINDOW - had if total == 0 else total - had)
    if not row_output.reserve(state, direction_index, had + count):
        return Step(position, filled, SplitStatus.ARENA_FULL)
    row_output.append_bytes(state, direction_index, data, ranges.offset[index] + position, count)
    if total == 0:
        at = directions.arena_at[direction_index]
        total = _check_header(state, direction_index, state.arena, at, at + had + count, work.calls)
        if total < 0 or (total == 0 and had + count >= HEADER_WINDOW):
            directions.have[direction_index] = had
            return Step(position, filled, SplitStatus.BROKEN)
        directions.total[direction_index] = total
        if 0 < total < had + count:
            count = total - had
            directions.have[direction_index] = total
    row_output.touch_frame(state, direction_index, ranges, index)
    position += count
    if total == 0 or directions.have[direction_index] < total:
        return Step(position, filled, SplitStatus.DONE)
    status = row_output.finish_frame(work, filled, index, direction_index, columns.COMPLETE)
    return Step(position, filled + 1, status)


@inlined
def _new_frame(
    work: PassContext, index: int, position: int, direction_index: int, data: ByteArray, filled: int
) -> Step:
    """A frame starts here: take it where it lies if it is whole, else begin to gather it."""
    state, ranges, out = work.state, work.ranges, work.out
    directions = state.directions
    left = ranges.length[index] - position
    at = ranges.offset[index] + position
    total = _check_header(state, direction_index, data, at, at + left, work.calls)
    if total < 0 or (total == 0 and left >= HEADER_WINDOW):
        return Step(position, filled, SplitStatus.BROKEN)
    if not roles.may_wait(state, direction_index >> 1, ranges.source[index], total):
        state.counters[framing_state.COUNTER_ARENA_NEEDED] = total
        return Step(position, filled, SplitStatus.ARENA_FULL)
    row_output.start_frame(state, direction_index, ranges, index, position)
    if total == 0 or total > left:
        if not row_output.reserve(state, direction_index, left):
            return Step(position, filled, SplitStatus.ARENA_FULL)
        row_output.append_bytes(state, direction_index, data, at, left)
        directions.total[direction_index] = total
        return Step(position + left, filled, SplitStatus.DONE)
    row_output.emit_frame(state, out, filled, direction_index, total, columns.COMPLETE)
    out.release_packet[filled] = ranges.release_packet[index]
    out.source[filled] = ranges.source[index]
    out.data_offset[filled] = at
    out.data_bytes[filled] = total
    directions.verify[direction_index] = 0
    status = SplitStatus.DONE
    if state.connections.role[direction_index >> 1] != RoleState.DECIDED:
        status = row_output.decide_role(state, direction_index, data, at, at + total, work.calls)
        out.direction[filled] = row_output.direction_of(
            state, direction_index >> 1, direction_index & 1
        )
    if directions.frames[direction_index] <= row_output.HANDSHAKE_FRAMES:
        row_output.learn_limit(state, direction_index, data, at, total, work.calls)
    return Step(position + total, filled + 1, status)


@kernel
def _handle_data(
    work: PassContext, index: int, position: int, direction_index: int, data: ByteArray, filled: int
) -> Step:
    """Take the bytes of one DATA range of a direction in CHAIN, from a position on."""
    directions = work.state.directions
    while position < work.ranges.length[index]:
        if filled >= len(work.out.command):
            return Step(position, filled, SplitStatus.FULL)
        if directions.skip[direction_index] > 0:
            step = _skip_broken(work, index, position, direction_index, filled)
        elif directions.have[direction_index] > 0:
            step = _fill_frame(work, index, position, direction_index, data, filled)
        else:
            step = _new_frame(work, index, position, direction_index, data, filled)
        position = step.position
        filled = step.filled
        if step.status != SplitStatus.DONE:
            return Step(position, filled, step.status)
    return Step(position, filled, SplitStatus.DONE)


@inlined
def _announced_total(state: FramingState, direction_index: int) -> int:
    """The length of an unfinished frame by its first four bytes, 0 if they are not there or odd."""
    directions = state.directions
    if directions.total[direction_index] > 0 or directions.have[direction_index] < 4:
        return int(directions.total[direction_index])
    announced = be32(state.arena, directions.arena_at[direction_index])
    if announced < 4 or announced + 4 > directions.limit[direction_index]:
        return 0
    return announced + 4


@inlined
def _emit_gap(work: PassContext, index: int, direction_index: int, filled: int) -> Step:
    """Write the event of a gap; frames may be missing with it where the chain does not go on."""
    row_output.emit_event(work, filled, index, direction_index >> 1, FrameEvent.GAP)
    work.out.frames_missing[filled] = int(
        work.state.directions.mode[direction_index] != DirectionMode.CHAIN
        or work.ranges.flags[index] & GOES_ON != 0
    )
    return Step(0, roles.settle_event(work, direction_index >> 1, filled), SplitStatus.DONE)


@kernel
def _handle_gap(work: PassContext, index: int, direction_index: int, filled: int) -> Step:
    """Take a gap in a direction in CHAIN: an event row, and at most one cut frame before it."""
    state, ranges = work.state, work.ranges
    directions = state.directions
    length = ranges.length[index]
    is_cut = ranges.kind[index] == RangeKind.GAP_CUT
    status = columns.CUT_BY_SNAPLEN if is_cut else columns.CUT_BY_GAP
    settled = SplitStatus.DONE
    if directions.have[direction_index] == 0 and directions.skip[direction_index] == 0:
        directions.mode[direction_index] = DirectionMode.SEARCH
    else:
        if directions.broken[direction_index] == 0:
            directions.total[direction_index] = _announced_total(state, direction_index)
            directions.broken[direction_index] = status
            directions.skip[direction_index] = (
                directions.total[direction_index] - directions.have[direction_index]
            )
        if directions.total[direction_index] == 0:
            # One to three bytes of a header, or no header: no frame, only bytes.
            directions.have[direction_index] = 0
            directions.broken[direction_index] = 0
            directions.skip[direction_index] = 0
            directions.mode[direction_index] = DirectionMode.SEARCH
        else:
            if is_cut:
                row_output.touch_frame(state, direction_index, ranges, index)
            remaining = directions.skip[direction_index]
            if length < remaining:
                directions.skip[direction_index] = remaining - length
            else:
                settled = row_output.finish_frame(
                    work, filled, index, direction_index, directions.broken[direction_index]
                )
                filled += 1
                if length > remaining:
                    directions.mode[direction_index] = DirectionMode.SEARCH
    if settled == SplitStatus.ROLE_WAIT:
        # The gap's own event comes when the kernel is called again for this range.
        return Step(-1, filled, SplitStatus.ROLE_WAIT)
    return _emit_gap(work, index, direction_index, filled)


@kernel
def _handle_close(work: PassContext, index: int, connection_index: int, filled: int) -> Step:
    """End a connection: its unfinished frames as cut_by_end, then the event."""
    state = work.state
    directions = state.directions
    first = state.connections.client_endpoint[connection_index]
    for turn in range(2):
        direction_index = 2 * connection_index + (first if turn == 0 else 1 - first)
        if (
            directions.mode[direction_index] == DirectionMode.CHAIN
            and directions.have[direction_index] > 0
        ):
            total = _announced_total(state, direction_index)
            status = (
                directions.broken[direction_index]
                if directions.broken[direction_index] > 0
                else columns.CUT_BY_END
            )
            directions.mode[direction_index] = DirectionMode.OPAQUE
            if total > 0:
                directions.total[direction_index] = total
                settled = row_output.finish_frame(work, filled, index, direction_index, status)
                filled += 1
                if settled == SplitStatus.ROLE_WAIT:
                    return Step(0, filled, SplitStatus.ROLE_WAIT)
    if state.connections.waiting[connection_index] > 0:
        roles.decide_role_at_last(state, connection_index, work.ranges.release_packet[index])
        return Step(0, filled, SplitStatus.AGAIN)
    row_output.emit_event(work, filled, index, connection_index, FrameEvent.CLOSE)
    return Step(0, filled + 1, SplitStatus.DONE)


@inlined
def _begin_chain(work: PassContext, index: int, direction_index: int, data: ByteArray) -> bool:
    """Whether the first bytes of a direction start a chain at once: there is no doubt.

    So it is where the connection was seen from its SYN and its first bytes are a strict header, or
    any header where the other direction has shown the protocol.
    """
    state, ranges, calls = work.state, work.ranges, work.calls
    known = state.connections
    connection_index = direction_index >> 1
    limit = state.directions.limit[direction_index]
    if (
        known.is_from_syn[connection_index] == 0
        or ranges.stream_offset[index] != 0
        or has_buffer(state, connection_index)
    ):
        return False
    base = ranges.offset[index]
    end = base + ranges.length[index]
    protocol = known.protocol[connection_index]
    if protocol >= len(calls.check):
        return False
    if protocol != framing_state.UNDECIDED:
        return bool(calls.check[protocol](data, base, end, 2, limit, 0) > 0)
    if state.counters[framing_state.COUNTER_IS_ASKED]:
        return False
    for candidate in range(len(calls.check)):
        judged = calls.check[candidate](data, base, end, 2, limit, 1)
        if judged > 0:
            known.protocol[connection_index] = candidate
        if judged >= 0:
            return bool(judged > 0)  # what needs more bytes comes before what would do with these
    return False


@inlined
def _handle_bytes(
    work: PassContext, index: int, position: int, direction_index: int, filled: int
) -> Step:
    """Take the bytes of one DATA range, from a position on."""
    directions = work.state.directions
    data = work.sources[work.ranges.source[index]]
    if directions.head_bytes[direction_index] < framing_state.HEADS:
        keep_head(directions, work.ranges, index, direction_index, data)
    mode = directions.mode[direction_index]
    if mode == DirectionMode.OPAQUE:
        return Step(0, filled, SplitStatus.DONE)
    directions.is_seen[direction_index] = 1
    if mode == DirectionMode.HEAD and _begin_chain(work, index, direction_index, data):
        directions.mode[direction_index] = mode = DirectionMode.CHAIN
    if mode == DirectionMode.CHAIN:
        step = _handle_data(work, index, position, direction_index, data, filled)
        if step.status != SplitStatus.BROKEN:
            return step
        position, filled = step.position, step.filled
    is_again = work.row != ABSENT and position == 0
    skipped = work.state.pool.ranges.starts_chain[work.row] - 1 if is_again else 0
    status = unsynchronised.handle_bytes(work, index, position, direction_index)
    if status == SplitStatus.AGAIN and skipped > 0:
        row_output.emit_event(work, filled, index, direction_index >> 1, FrameEvent.SKIPPED)
        work.out.frame_bytes[filled] = skipped
        work.out.frames_missing[filled] = 1
        filled = roles.settle_event(work, direction_index >> 1, filled)
    return Step(position, filled, status)


@inlined
def _handle_event(
    work: PassContext, index: int, position: int, direction_index: int, filled: int
) -> Step:
    """Take a gap or the end of a direction."""
    state, directions, connection_index = work.state, work.state.directions, direction_index >> 1
    mode, is_buffered = directions.mode[direction_index], has_buffer(work.state, connection_index)
    if work.ranges.kind[index] == RangeKind.FIN:
        if is_buffered and mode != DirectionMode.CHAIN and mode != DirectionMode.OPAQUE:
            status = unsynchronised.handle_fin(work, index, direction_index)
            if status != SplitStatus.REPORTED:
                return Step(0, filled, status)
        row_output.emit_event(work, filled, index, connection_index, FrameEvent.FIN)
        return Step(0, roles.settle_event(work, connection_index, filled), SplitStatus.DONE)
    if mode == DirectionMode.OPAQUE:
        return Step(0, filled, SplitStatus.DONE)
    if position < 0:  # the frame that it cuts is out
        return _emit_gap(work, index, direction_index, filled)
    if mode == DirectionMode.CHAIN:
        return _handle_gap(work, index, direction_index, filled)
    if is_buffered and unsynchronised.handle_gap(work, index, direction_index):
        return Step(0, filled, SplitStatus.DONE)
    if state.connections.protocol[connection_index] == framing_state.UNDECIDED:
        return Step(0, filled, SplitStatus.DONE)
    directions.mode[direction_index] = DirectionMode.SEARCH
    return _emit_gap(work, index, direction_index, filled)


@kernel
def _handle_range(
    work: PassContext, index: int, position: int, connection_index: int, filled: int
) -> Step:
    """Take one range of a connection, from a position on; DONE if that is all of it."""
    kind = work.ranges.kind[index]
    direction_index = 2 * connection_index + work.ranges.endpoint_index[index]
    if kind == RangeKind.DATA:
        return _handle_bytes(work, index, position, direction_index, filled)
    if kind != RangeKind.CLOSE:
        return _handle_event(work, index, position, direction_index, filled)
    if has_buffer(work.state, connection_index):
        status = unsynchronised.handle_close(work, index, connection_index)
        if status != SplitStatus.DONE:
            return Step(0, filled, status)
    return _handle_close(work, index, connection_index, filled)


@kernel
def _split_again(work: PassContext, position: int, filled: int) -> Step:
    """Take the first of the ranges that come again, from a position on, unless it is taken."""
    state, row = work.state, work.state.counters[framing_state.COUNTER_AGAIN]
    rows = state.pool.ranges
    if rows.kind[row] == _TAKEN:
        state.counters[framing_state.COUNTER_AGAIN] = rows.next[row]
        give_row(state.pool.free_ranges, row)
        return Step(0, filled, SplitStatus.DONE)
    take_row(state, row)
    again = PassContext(state, state.again, work.sources, work.out, work.calls, row)
    connection_index = rows.direction_index[row] >> 1
    state.counters[framing_state.COUNTER_CONNECTION] = connection_index
    step = _handle_range(again, 0, position, connection_index, filled)
    if step.status == SplitStatus.ROLE_WAIT:
        stays = roles.settle_role(again, connection_index, step.filled - 1)
        return Step(step.position, step.filled - (0 if stays else 1), SplitStatus.AGAIN)
    if step.status == SplitStatus.DONE:
        rows.kind[row] = _TAKEN
        return Step(0, step.filled, SplitStatus.DONE)
    return step


@inlined
def _connection_of(work: PassContext, index: int) -> int:
    """The row of a range's connection, new if it has none; ABSENT if there is no room."""
    state, ranges = work.state, work.ranges
    connection = ranges.connection[index]
    connection_index = find_connection(state, connection)
    if connection_index == ABSENT and ranges.kind[index] != RangeKind.CLOSE:
        longest = state.counters[framing_state.COUNTER_FRAME_LIMIT]
        connection_index = allocate_connection(
            state, connection, ranges.opener[index], ranges.ports[index], longest
        )
    return connection_index


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
        SplitStatus.DONE,
    )
    while status == SplitStatus.DONE:
        if counters[framing_state.COUNTER_RELEASED] != ABSENT:
            filled = roles.release_frames(work, filled, limit)
        if filled >= limit:
            status = SplitStatus.FULL
        elif not framing_state.has_rows(state):
            status = SplitStatus.POOLS_FULL
        elif counters[framing_state.COUNTER_AGAIN] != ABSENT:
            step = _split_again(work, position, filled)
            position, filled = step.position, step.filled
            status = SplitStatus.DONE if step.status == SplitStatus.AGAIN else step.status
            if (
                status == SplitStatus.DONE
                and state.pool.counts[LARGE_HELD] > state.pool.counts[LARGE_LIMIT]
            ):
                status = SplitStatus.BUFFERS_FULL
        elif index >= rows:
            break
        else:
            connection_index = _connection_of(work, index)
            if connection_index == ABSENT and ranges.kind[index] != RangeKind.CLOSE:
                status = SplitStatus.CONNECTIONS_FULL
                break
            if connection_index == ABSENT:
                index += 1  # it never had a byte
                continue
            counters[framing_state.COUNTER_CONNECTION] = connection_index
            step = _handle_range(work, index, position, connection_index, filled)
            position, filled = step.position, step.filled
            if step.status == SplitStatus.ROLE_WAIT:
                filled -= 0 if roles.settle_role(work, connection_index, filled - 1) else 1
            elif step.status == SplitStatus.DONE:
                position = 0
                index += 1
                if state.pool.counts[LARGE_HELD] > state.pool.counts[LARGE_LIMIT]:
                    for column in range(ranges.matrix.shape[0]):
                        state.again.matrix[column, 0] = ranges.matrix[column, index - 1]
                    status = SplitStatus.BUFFERS_FULL
            elif step.status != SplitStatus.AGAIN:
                status = step.status
    counters[framing_state.COUNTER_CURSOR] = index
    counters[framing_state.COUNTER_POSITION] = position
    return filled, status
