"""Cut in-order stream ranges into length-prefixed frames.

Theory. A direction of a connection is in one of five modes (`state`). CHAIN is the rule:
where a frame ends the next begins. A frame within one range is not copied; one that spans ranges is
assembled in the arena, which grows with the bytes that arrive, never by the announced length. A gap
inside a frame whose length is known leaves the chain intact: the frame's end is known in sequence
space, the frame is emitted with the bytes there are, and the next header is checked strictly. A gap
over a header, or an invalid header, ends the chain: SEARCH.

Bytes of directions in other modes are buffered (`unsynchronised`) until a chain is found or given
up. Then their ranges are requeued. The loop of `split` handles first the waiting frames whose role
is decided, then requeued ranges, then the next range of the block. It returns before the end of the
block only if an array is full.

A protocol is four callbacks, see `protocols.interface`.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import be32
from dissector.jit import inlined, kernel
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns, FrameEvent
from dissector.protocols.framing import roles, row_output, unsynchronised
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.buffers import has_buffer, load_requeued
from dissector.protocols.framing.connection_table import allocate_connection, find_connection
from dissector.protocols.framing.other_protocols import store_prefix
from dissector.protocols.framing.range_pool import LARGE_HELD, LARGE_LIMIT
from dissector.protocols.framing.row_output import Callbacks, PassContext, Step
from dissector.protocols.framing.state import DirectionMode, FramingState, RoleState, SplitStatus
from dissector.protocols.interface import HEADER_WINDOW
from dissector.stream.columns import GOES_ON, TWO_WAY, RangeColumns, RangeKind
from dissector.tables import ABSENT, give_row

_HANDLED: Final = 5  # kind of a requeued range that was handled; no RangeKind has the number


@inlined
def _check_header(
    state: FramingState, direction_index: int, data: ByteArray, at: int, end: int, calls: Callbacks
) -> int:
    """Check the header of a direction's frame: the frame's bytes, 0 more needed, -1 invalid."""
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
    context: PassContext, index: int, position: int, direction_index: int, row: int
) -> Step:
    """Skip the rest of a frame that has a gap; its end is known in sequence space."""
    directions = context.state.directions
    count = min(context.ranges.length[index] - position, directions.skip[direction_index])
    directions.skip[direction_index] -= count
    row_output.touch_frame(context.state, direction_index, context.ranges, index)
    if directions.skip[direction_index] > 0:
        return Step(position + count, row, SplitStatus.DONE)
    status = row_output.finish_frame(
        context, row, index, direction_index, directions.broken[direction_index]
    )
    return Step(position + count, row + 1, status)


@inlined
def _fill_frame(
    context: PassContext, index: int, position: int, direction_index: int, data: ByteArray, row: int
) -> Step:
    """Append bytes to the unfinished frame in the arena; emit it when it is whole."""
    state, ranges = context.state, context.ranges
    directions = state.directions
    had = directions.have[direction_index]
    total = directions.total[direction_index]
    count = min(ranges.length[index] - position, HEADER_WINDOW - had if total == 0 else total - had)
    if not row_output.reserve(state, direction_index, had + count):
        return Step(position, row, SplitStatus.ARENA_FULL)
    row_output.append_bytes(state, direction_index, data, ranges.offset[index] + position, count)
    if total == 0:
        at = directions.arena_at[direction_index]
        total = _check_header(
            state, direction_index, state.arena, at, at + had + count, context.calls
        )
        if total < 0 or (total == 0 and had + count >= HEADER_WINDOW):
            directions.have[direction_index] = had
            return Step(position, row, SplitStatus.BROKEN)
        directions.total[direction_index] = total
        if 0 < total < had + count:
            count = total - had
            directions.have[direction_index] = total
    row_output.touch_frame(state, direction_index, ranges, index)
    position += count
    if total == 0 or directions.have[direction_index] < total:
        return Step(position, row, SplitStatus.DONE)
    status = row_output.finish_frame(context, row, index, direction_index, columns.COMPLETE)
    return Step(position, row + 1, status)


@inlined
def _new_frame(
    context: PassContext, index: int, position: int, direction_index: int, data: ByteArray, row: int
) -> Step:
    """Begin a frame: emit it uncopied if it is whole, else start to assemble it in the arena."""
    state, ranges, out = context.state, context.ranges, context.out
    directions = state.directions
    available = ranges.length[index] - position
    at = ranges.offset[index] + position
    total = _check_header(state, direction_index, data, at, at + available, context.calls)
    if total < 0 or (total == 0 and available >= HEADER_WINDOW):
        return Step(position, row, SplitStatus.BROKEN)
    if not roles.may_wait(state, direction_index >> 1, ranges.source[index], total):
        state.counters[framing_state.COUNTER_ARENA_NEEDED] = total
        return Step(position, row, SplitStatus.ARENA_FULL)
    row_output.start_frame(state, direction_index, ranges, index, position)
    if total == 0 or total > available:
        if not row_output.reserve(state, direction_index, available):
            return Step(position, row, SplitStatus.ARENA_FULL)
        row_output.append_bytes(state, direction_index, data, at, available)
        directions.total[direction_index] = total
        return Step(position + available, row, SplitStatus.DONE)
    row_output.emit_frame(state, out, row, direction_index, total, columns.COMPLETE)
    out.release_packet[row] = ranges.release_packet[index]
    out.source[row] = ranges.source[index]
    out.data_offset[row] = at
    out.data_bytes[row] = total
    directions.verify[direction_index] = 0
    status = SplitStatus.DONE
    if state.connections.role[direction_index >> 1] != RoleState.DECIDED:
        status = row_output.decide_role(state, direction_index, data, at, at + total, context.calls)
        out.direction[row] = row_output.direction_of(
            state, direction_index >> 1, direction_index & 1
        )
    if directions.frames[direction_index] <= row_output.HANDSHAKE_FRAMES:
        row_output.learn_limit(state, direction_index, data, at, total, context.calls)
    return Step(position + total, row + 1, status)


@kernel
def _handle_data(
    context: PassContext, index: int, position: int, direction_index: int, data: ByteArray, row: int
) -> Step:
    """Split one DATA range of a direction in CHAIN into frames, from a position on."""
    directions = context.state.directions
    while position < context.ranges.length[index]:
        if row >= len(context.out.command):
            return Step(position, row, SplitStatus.FULL)
        if directions.skip[direction_index] > 0:
            step = _skip_broken(context, index, position, direction_index, row)
        elif directions.have[direction_index] > 0:
            step = _fill_frame(context, index, position, direction_index, data, row)
        else:
            step = _new_frame(context, index, position, direction_index, data, row)
        position = step.position
        row = step.filled
        if step.status != SplitStatus.DONE:
            return Step(position, row, step.status)
    return Step(position, row, SplitStatus.DONE)


@inlined
def _announced_total(state: FramingState, direction_index: int) -> int:
    """The length of an unfinished frame by its first four bytes, 0 if they are cut or invalid."""
    directions = state.directions
    if directions.total[direction_index] > 0 or directions.have[direction_index] < 4:
        return int(directions.total[direction_index])
    announced = be32(state.arena, directions.arena_at[direction_index])
    if announced < 4 or announced + 4 > directions.limit[direction_index]:
        return 0
    return announced + 4


@inlined
def _emit_gap(context: PassContext, index: int, direction_index: int, row: int) -> Step:
    """Write the event of a gap; frames may be missing with it unless the chain is intact."""
    row_output.emit_event(context, row, index, direction_index >> 1, FrameEvent.GAP)
    context.out.frames_missing[row] = int(
        context.state.directions.mode[direction_index] != DirectionMode.CHAIN
        or context.ranges.flags[index] & GOES_ON != 0
    )
    return Step(0, roles.order_event(context, direction_index >> 1, row), SplitStatus.DONE)


@kernel
def _handle_gap(context: PassContext, index: int, direction_index: int, row: int) -> Step:
    """Handle a gap in a direction in CHAIN: an event row, and at most one cut frame before it."""
    state, ranges = context.state, context.ranges
    directions = state.directions
    length = ranges.length[index]
    is_cut = ranges.kind[index] == RangeKind.GAP_CUT
    status = columns.CUT_BY_SNAPLEN if is_cut else columns.CUT_BY_GAP
    result = SplitStatus.DONE
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
            # One to three bytes of a header, or an invalid header: bytes without a frame.
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
                result = row_output.finish_frame(
                    context, row, index, direction_index, directions.broken[direction_index]
                )
                row += 1
                if length > remaining:
                    directions.mode[direction_index] = DirectionMode.SEARCH
    if result == SplitStatus.ROLE_WAIT:
        # The gap's own event is written when this range is handled again.
        return Step(-1, row, SplitStatus.ROLE_WAIT)
    return _emit_gap(context, index, direction_index, row)


@kernel
def _handle_close(context: PassContext, index: int, connection_index: int, row: int) -> Step:
    """End a connection: emit its unfinished frames as cut_by_end, then the event."""
    state = context.state
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
                result = row_output.finish_frame(context, row, index, direction_index, status)
                row += 1
                if result == SplitStatus.ROLE_WAIT:
                    return Step(0, row, SplitStatus.ROLE_WAIT)
    if state.connections.waiting[connection_index] > 0:
        roles.decide_role_at_last(state, connection_index, context.ranges.release_packet[index])
        return Step(0, row, SplitStatus.RETRY)
    row_output.emit_event(context, row, index, connection_index, FrameEvent.CLOSE)
    return Step(0, row + 1, SplitStatus.DONE)


@inlined
def _begin_chain(context: PassContext, index: int, direction_index: int, data: ByteArray) -> bool:
    """Whether a direction's first bytes start a chain without a search.

    They do if the SYN was seen and they are a strict header; any header is enough if the peer has
    shown the protocol.
    """
    state, ranges, calls = context.state, context.ranges, context.calls
    connections = state.connections
    connection_index = direction_index >> 1
    limit = state.directions.limit[direction_index]
    if (
        connections.is_from_syn[connection_index] == 0
        or ranges.stream_offset[index] != 0
        or has_buffer(state, connection_index)
    ):
        return False
    base = ranges.offset[index]
    end = base + ranges.length[index]
    protocol = connections.protocol[connection_index]
    if protocol >= len(calls.check):
        return False
    if protocol != framing_state.UNDECIDED:
        return bool(calls.check[protocol](data, base, end, 2, limit, 0) > 0)
    if state.counters[framing_state.COUNTER_IS_FORCED]:
        return False
    for candidate in range(len(calls.check)):
        verdict = calls.check[candidate](data, base, end, 2, limit, 1)
        if verdict > 0:
            connections.protocol[connection_index] = candidate
        if verdict >= 0:
            return bool(verdict > 0)  # if it needs more bytes, later protocols are not tried
    return False


@inlined
def _handle_bytes(
    context: PassContext, index: int, position: int, direction_index: int, row: int
) -> Step:
    """Handle the bytes of one DATA range, from a position on, in any mode."""
    directions = context.state.directions
    data = context.sources[context.ranges.source[index]]
    if directions.prefix_bytes[direction_index] < framing_state.PREFIX_BYTES:
        store_prefix(directions, context.ranges, index, direction_index, data)
    mode = directions.mode[direction_index]
    if mode == DirectionMode.OPAQUE:
        return Step(0, row, SplitStatus.DONE)
    directions.is_seen[direction_index] = 1
    if mode == DirectionMode.HEAD and _begin_chain(context, index, direction_index, data):
        directions.mode[direction_index] = mode = DirectionMode.CHAIN
    if mode == DirectionMode.CHAIN:
        step = _handle_data(context, index, position, direction_index, data, row)
        if step.status != SplitStatus.BROKEN:
            return step
        position, row = step.position, step.filled
    is_requeued = context.row != ABSENT and position == 0
    skipped = context.state.pool.ranges.starts_chain[context.row] - 1 if is_requeued else 0
    status = unsynchronised.handle_bytes(context, index, position, direction_index)
    if status == SplitStatus.RETRY and skipped > 0:
        row_output.emit_event(context, row, index, direction_index >> 1, FrameEvent.SKIPPED)
        context.out.frame_bytes[row] = skipped
        context.out.frames_missing[row] = 1
        row = roles.order_event(context, direction_index >> 1, row)
    return Step(position, row, status)


@inlined
def _handle_event(
    context: PassContext, index: int, position: int, direction_index: int, row: int
) -> Step:
    """Handle a gap or the end (FIN) of a direction."""
    state, directions = context.state, context.state.directions
    connection_index, mode = direction_index >> 1, directions.mode[direction_index]
    is_buffered = has_buffer(state, connection_index)
    if context.ranges.kind[index] == RangeKind.FIN:
        if is_buffered and mode != DirectionMode.CHAIN and mode != DirectionMode.OPAQUE:
            status = unsynchronised.handle_fin(context, index, direction_index)
            if status != SplitStatus.REPORTED:
                return Step(0, row, status)
        row_output.emit_event(context, row, index, connection_index, FrameEvent.FIN)
        return Step(0, roles.order_event(context, connection_index, row), SplitStatus.DONE)
    if mode == DirectionMode.OPAQUE:
        return Step(0, row, SplitStatus.DONE)
    if position < 0:  # the frame that it cuts has been emitted
        return _emit_gap(context, index, direction_index, row)
    if mode == DirectionMode.CHAIN:
        return _handle_gap(context, index, direction_index, row)
    if is_buffered and unsynchronised.handle_gap(context, index, direction_index):
        return Step(0, row, SplitStatus.DONE)
    if state.connections.protocol[connection_index] == framing_state.UNDECIDED:
        return Step(0, row, SplitStatus.DONE)
    directions.mode[direction_index] = DirectionMode.SEARCH
    return _emit_gap(context, index, direction_index, row)


@kernel
def _handle_range(
    context: PassContext, index: int, position: int, connection_index: int, row: int
) -> Step:
    """Handle one range of a connection, from a position on; DONE if it is handled to its end."""
    kind = context.ranges.kind[index]
    direction_index = 2 * connection_index + context.ranges.endpoint_index[index]
    if kind == RangeKind.DATA:
        return _handle_bytes(context, index, position, direction_index, row)
    if kind != RangeKind.CLOSE:
        return _handle_event(context, index, position, direction_index, row)
    if has_buffer(context.state, connection_index):
        status = unsynchronised.handle_close(context, index, connection_index)
        if status != SplitStatus.DONE:
            return Step(0, row, status)
    return _handle_close(context, index, connection_index, row)


@kernel
def _split_requeued(context: PassContext, position: int, filled: int) -> Step:
    """Handle the first requeued range from a position on; free its row if it was handled."""
    state, row = context.state, context.state.counters[framing_state.COUNTER_REQUEUED]
    rows = state.pool.ranges
    if rows.kind[row] == _HANDLED:
        state.counters[framing_state.COUNTER_REQUEUED] = rows.next[row]
        give_row(state.pool.free_ranges, row)
        return Step(0, filled, SplitStatus.DONE)
    load_requeued(state, row)
    requeued = PassContext(state, state.requeued, context.sources, context.out, context.calls, row)
    connection_index = rows.direction_index[row] >> 1
    state.counters[framing_state.COUNTER_CONNECTION] = connection_index
    step = _handle_range(requeued, 0, position, connection_index, filled)
    if step.status == SplitStatus.ROLE_WAIT:
        stays = roles.emit_or_wait(requeued, connection_index, step.filled - 1)
        return Step(step.position, step.filled - (0 if stays else 1), SplitStatus.RETRY)
    if step.status == SplitStatus.DONE:
        rows.kind[row] = _HANDLED
        return Step(0, step.filled, SplitStatus.DONE)
    return step


@inlined
def _connection_of(context: PassContext, index: int) -> int:
    """The row of a range's connection, allocated if it has none; ABSENT if the table is full, or
    for the CLOSE of an unknown connection. Notes that both directions were captured."""
    state, ranges = context.state, context.ranges
    connection = ranges.connection[index]
    connection_index = find_connection(state, connection)
    if connection_index == ABSENT and ranges.kind[index] != RangeKind.CLOSE:
        longest = state.counters[framing_state.COUNTER_FRAME_LIMIT]
        connection_index = allocate_connection(
            state, connection, ranges.opener[index], ranges.ports[index], longest
        )
        if connection_index != ABSENT:
            hashes = ranges.endpoint_hashes[index]
            state.connections.endpoint_hashes[connection_index] = hashes
    if connection_index != ABSENT and ranges.flags[index] & TWO_WAY != 0:
        state.connections.is_two_way[connection_index] = 1
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
    context = PassContext(state, ranges, sources, out, calls, ABSENT)
    counters, limit = state.counters, len(out.command) - 4
    index, position, status = (
        counters[framing_state.COUNTER_CURSOR],
        counters[framing_state.COUNTER_POSITION],
        SplitStatus.DONE,
    )
    while status == SplitStatus.DONE:
        if counters[framing_state.COUNTER_RELEASED] != ABSENT:
            filled = roles.release_frames(context, filled, limit)
        if filled >= limit:
            status = SplitStatus.FULL
        elif not framing_state.has_rows(state):
            status = SplitStatus.POOLS_FULL
        elif counters[framing_state.COUNTER_REQUEUED] != ABSENT:
            step = _split_requeued(context, position, filled)
            position, filled = step.position, step.filled
            status = SplitStatus.DONE if step.status == SplitStatus.RETRY else step.status
            if (
                status == SplitStatus.DONE
                and state.pool.counts[LARGE_HELD] > state.pool.counts[LARGE_LIMIT]
            ):
                status = SplitStatus.BUFFERS_FULL
        elif index >= rows:
            break
        else:
            connection_index = _connection_of(context, index)
            if connection_index == ABSENT and ranges.kind[index] != RangeKind.CLOSE:
                status = SplitStatus.CONNECTIONS_FULL
                break
            if connection_index == ABSENT:
                index += 1  # the connection had no data
                continue
            counters[framing_state.COUNTER_CONNECTION] = connection_index
            step = _handle_range(context, index, position, connection_index, filled)
            position, filled = step.position, step.filled
            if step.status == SplitStatus.ROLE_WAIT:
                filled -= 0 if roles.emit_or_wait(context, connection_index, filled - 1) else 1
            elif step.status == SplitStatus.DONE:
                position = 0
                index += 1
                if state.pool.counts[LARGE_HELD] > state.pool.counts[LARGE_LIMIT]:
                    for column in range(ranges.matrix.shape[0]):
                        state.requeued.matrix[column, 0] = ranges.matrix[column, index - 1]
                    status = SplitStatus.BUFFERS_FULL
            elif step.status != SplitStatus.RETRY:
                status = step.status
    counters[framing_state.COUNTER_CURSOR] = index
    counters[framing_state.COUNTER_POSITION] = position
    return filled, status
