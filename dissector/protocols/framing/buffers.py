"""Operations on the buffers of directions: begin, append, drop, requeue, give up.

`range_pool` says what a buffer is. Callers check first that pools have rows (`state.has_rows`).
"""

from dissector.jit import inlined, kernel
from dissector.limits import SMALL_BUFFER_BYTES, SMALL_BUFFER_RANGES
from dissector.protocols.framing import range_pool, row_output, search_state
from dissector.protocols.framing.first_bytes import TlsRecords, follow_records
from dissector.protocols.framing.resync import BEGINS_PACKET, Rule, SearchView, begin_search
from dissector.protocols.framing.row_output import PassContext
from dissector.protocols.framing.state import (
    COUNTER_REQUEUED,
    UNDECIDED,
    DirectionMode,
    FramingState,
)
from dissector.protocols.interface import HEADER_WINDOW
from dissector.stream.columns import STARTS_PACKET, RangeKind
from dissector.tables import ABSENT, allocate_row, give_row

SEARCHED = -1  # resume_mode of a buffer that is searched


@inlined
def has_buffer(state: FramingState, connection_index: int) -> bool:
    """Whether a direction of a connection has a buffer."""
    buffer = state.directions.buffer
    return bool(
        buffer[2 * connection_index] != ABSENT or buffer[2 * connection_index + 1] != ABSENT
    )


@inlined
def search_of(state: FramingState, buffer: int, protocol: int) -> int:
    """The row of a buffer's search for a protocol's frames."""
    pool = state.pool
    return buffer * (len(pool.searches) // len(pool.buffers.first)) + protocol


@kernel
def begin_buffer(context: PassContext, direction_index: int) -> int:
    """Give a direction an empty buffer to search; return its row."""
    pool = context.state.pool
    buffer = allocate_row(pool.free_buffers)
    buffers = pool.buffers
    buffers.matrix[buffer, :] = 0
    buffers.first[buffer] = buffers.last[buffer] = ABSENT
    buffers.first_gap[buffer] = buffers.last_gap[buffer] = ABSENT
    buffers.resume_mode[buffer] = SEARCHED
    buffers.next_record[buffer] = -1
    for protocol in range(len(context.calls.check)):
        begin_search(pool.searches[search_of(context.state, buffer, protocol)])
    context.state.directions.buffer[direction_index] = buffer
    return buffer


@kernel
def wait_for_peer(context: PassContext, direction_index: int) -> int:
    """Begin a buffer for a direction that waits for its peer's frames; return its row."""
    directions = context.state.directions
    buffer = begin_buffer(context, direction_index)
    context.state.pool.buffers.resume_mode[buffer] = directions.mode[direction_index]
    directions.mode[direction_index] = DirectionMode.HELD
    return buffer


@inlined
def search_view(state: FramingState, direction_index: int, protocol: int) -> SearchView:
    """A direction's buffer as a search for a protocol's frames sees it."""
    pool, buffer = state.pool, state.directions.buffer[direction_index]
    buffers = pool.buffers
    at, size = buffers.at[buffer], buffers.size[buffer]
    return SearchView(
        state.arena[at : at + size],
        state.marks[at : at + size],
        pool.searches[search_of(state, buffer, protocol)],
        pool.ranges,
        buffers.first[buffer],
        buffers.ranges[buffer],
        buffers.first_gap[buffer],
        buffers.base[buffer],
    )


@inlined
def rule_of(context: PassContext, direction_index: int, protocol: int, is_final: int) -> Rule:
    """The rule for a direction's headers and frames. is_final: no byte of it will follow."""
    state, connection_index = context.state, direction_index >> 1
    return Rule(
        context.calls.check,
        context.calls.prove,
        protocol,
        row_output.direction_of(state, connection_index, direction_index & 1),
        state.directions.limit[direction_index],
        is_final,
        int(state.connections.protocol[connection_index] == UNDECIDED),
        state.directions.skipped[direction_index],
    )


@inlined
def _add_held_bytes(state: FramingState, buffer: int, count: int) -> None:
    """Add `count` bytes to the counter of held bytes that a buffer belongs to."""
    pool = state.pool
    pool.counts[
        range_pool.LARGE_HELD if pool.buffers.is_large[buffer] else range_pool.SMALL_HELD
    ] += count


@inlined
def _held_bytes(state: FramingState, buffer: int) -> int:
    """The bytes that a buffer is charged for: its data, and RANGE_BYTES for each range."""
    buffers = state.pool.buffers
    return int(buffers.size[buffer] + range_pool.RANGE_BYTES * buffers.ranges[buffer])


@inlined
def _promote(state: FramingState, buffer: int, length: int) -> None:
    """Mark a buffer as large if one more range of `length` bytes makes it so."""
    buffers, counts = state.pool.buffers, state.pool.counts
    if buffers.is_large[buffer]:
        return
    is_large = buffers.size[buffer] + length > SMALL_BUFFER_BYTES
    is_large |= buffers.ranges[buffer] >= SMALL_BUFFER_RANGES
    if (
        is_large
        or counts[range_pool.SMALL_HELD] + length + range_pool.RANGE_BYTES
        > counts[range_pool.SMALL_LIMIT]
    ):
        _add_held_bytes(state, buffer, -_held_bytes(state, buffer))
        buffers.is_large[buffer] = 1
        _add_held_bytes(state, buffer, _held_bytes(state, buffer))


@kernel
def reserve(state: FramingState, buffer: int, more: int) -> bool:
    """Reserve room for `more` bytes in a buffer; False if the arena is full."""
    buffers = state.pool.buffers
    at, size = buffers.at[buffer], buffers.size[buffer]
    if buffers.room[buffer] >= size + more:
        return True
    room = max(size + more, min(2 * size, size + (1 << 20)), HEADER_WINDOW)
    fresh = row_output.room_at(state, at, size, buffers.room[buffer], room)
    if fresh < 0:
        return False
    if fresh != at:
        for index in range(size):
            state.marks[fresh + index] = state.marks[at + index]
    buffers.at[buffer] = fresh
    buffers.room[buffer] = room
    return True


@kernel
def append_row(state: FramingState, direction_index: int, length: int) -> int:
    """Append a range of `length` bytes to a direction's buffer; the caller fills its fields."""
    pool, buffer = state.pool, state.directions.buffer[direction_index]
    buffers, ranges = pool.buffers, pool.ranges
    _promote(state, buffer, length)
    row = allocate_row(pool.free_ranges)
    ranges.matrix[row, :] = 0
    ranges.direction_index[row] = direction_index
    ranges.begin[row] = buffers.base[buffer] + buffers.size[buffer]
    ranges.next[row] = ranges.next_gap[row] = ABSENT
    if buffers.ranges[buffer] == 0:
        buffers.first[buffer] = row
    else:
        ranges.next[buffers.last[buffer]] = row
    buffers.last[buffer] = row
    buffers.ranges[buffer] += 1
    _add_held_bytes(state, buffer, length + range_pool.RANGE_BYTES)
    return row


@inlined
def next_order(context: PassContext) -> int:
    """The arrival number of the range that is being handled, for its column `order`."""
    if context.row != ABSENT:
        return int(context.state.pool.ranges.order[context.row])
    return int(context.state.pool.counts[range_pool.ARRIVALS]) + 1


@kernel
def append_range(context: PassContext, index: int, position: int, direction_index: int) -> None:
    """Append a range from a position on to a direction's buffer, which has room for its bytes."""
    state, ranges = context.state, context.ranges
    rows, buffers = state.pool.ranges, state.pool.buffers
    buffer = state.directions.buffer[direction_index]
    length = ranges.length[index] - position
    is_data = ranges.kind[index] == RangeKind.DATA
    row = append_row(state, direction_index, length if is_data else 0)
    rows.kind[row] = ranges.kind[index]
    rows.stream_offset[row] = ranges.stream_offset[index] + position
    rows.length[row] = length
    rows.packet[row] = ranges.packet[index]
    rows.ts_ns[row] = ranges.ts_ns[index]
    rows.cause[row] = ranges.cause[index]
    rows.flags[row] = ranges.flags[index] if position == 0 else ranges.flags[index] & ~STARTS_PACKET
    rows.order[row] = next_order(context)
    if context.row == ABSENT:
        state.pool.counts[range_pool.ARRIVALS] += 1
    elif position == 0:
        rows.starts_chain[row] = rows.starts_chain[context.row]
        rows.header_ok[row] = rows.header_ok[context.row]
    buffers.is_tls[buffer] = 0
    if is_data:
        _append_bytes(context, index, position, buffer)
        return
    buffers.has_events[buffer] = 1
    if length > 0:
        if buffers.first_gap[buffer] == ABSENT:
            buffers.first_gap[buffer] = row
        else:
            rows.next_gap[buffers.last_gap[buffer]] = row
        buffers.last_gap[buffer] = row


@inlined
def _append_bytes(context: PassContext, index: int, position: int, buffer: int) -> None:
    """Append the bytes of a range to a buffer, and follow TLS records in them."""
    state, ranges, buffers = context.state, context.ranges, context.state.pool.buffers
    data, length = context.sources[ranges.source[index]], ranges.length[index] - position
    source, at = ranges.offset[index] + position, buffers.at[buffer] + buffers.size[buffer]
    for each in range(length):
        state.arena[at + each] = data[source + each]
        state.marks[at + each] = 0
    buffers.size[buffer] += length
    starts_packet = position == 0 and ranges.flags[index] & STARTS_PACKET != 0
    if starts_packet and length > 0:
        state.marks[at] = BEGINS_PACKET
    if buffers.follows_records[buffer]:
        before = TlsRecords(buffers.next_record[buffer], buffers.records_in_a_row[buffer], False)
        offset = ranges.stream_offset[index] + position
        records = follow_records(before, state.arena, at, length, offset, starts_packet)
        buffers.next_record[buffer] = records.next
        buffers.records_in_a_row[buffer] = records.in_a_row
        buffers.is_tls[buffer] = records.is_tls


@kernel
def drop_bytes(context: PassContext, direction_index: int, count: int) -> None:
    """Drop the first `count` bytes of a buffer. The rows of gaps between them stay, as events."""
    if count == 0:
        return
    state, pool = context.state, context.state.pool
    buffers, ranges, buffer = pool.buffers, pool.ranges, state.directions.buffer[direction_index]
    _add_held_bytes(state, buffer, -_held_bytes(state, buffer))
    buffers.at[buffer] += count
    buffers.room[buffer] -= count
    buffers.size[buffer] -= count
    buffers.base[buffer] += count
    buffers.at_start[buffer] = 0
    base = buffers.base[buffer]
    for _ in range(buffers.ranges[buffer]):
        gap = buffers.first_gap[buffer]
        if gap == ABSENT or ranges.begin[gap] > base:
            break
        buffers.first_gap[buffer] = ranges.next_gap[gap]
    for protocol in range(len(context.calls.check)):
        search = pool.searches[search_of(state, buffer, protocol)]
        search[search_state.RESUME] = max(0, search[search_state.RESUME] - count)
        for cell in search_state.OFFSET_CELLS:
            search[cell] = max(-1, search[cell] - count)
        for cell in search_state.GAP_CELLS:
            if search[cell] != ABSENT and ranges.begin[search[cell]] <= base:
                search[cell] = ABSENT
        search[search_state.BEGAN_AT] = search[search_state.CONFIRMED_AT] = -1
    _drop_rows(state, buffer, count)
    _add_held_bytes(state, buffer, _held_bytes(state, buffer))


@inlined
def _drop_rows(state: FramingState, buffer: int, count: int) -> None:
    """Drop the ranges of a buffer's first `count` bytes; the last one may be shortened."""
    pool = state.pool
    buffers, ranges = pool.buffers, pool.ranges
    before, row = ABSENT, buffers.first[buffer]
    for _ in range(buffers.ranges[buffer]):
        following = ranges.next[row]
        if ranges.kind[row] != RangeKind.DATA:
            before = row
        elif count < ranges.length[row]:
            ranges.stream_offset[row] += count
            ranges.length[row] -= count
            ranges.begin[row] += count
            if count > 0:
                ranges.flags[row] &= ~STARTS_PACKET
            break
        else:
            count -= ranges.length[row]
            if before == ABSENT:
                buffers.first[buffer] = following
            else:
                ranges.next[before] = following
            if following == ABSENT:
                buffers.last[buffer] = before
            buffers.ranges[buffer] -= 1
            give_row(pool.free_ranges, row)
        row = following


@inlined
def _end_buffer(state: FramingState, direction_index: int) -> None:
    """Free a direction's buffer; the rows of its ranges stay allocated."""
    pool, buffer = state.pool, state.directions.buffer[direction_index]
    _add_held_bytes(state, buffer, -_held_bytes(state, buffer))
    give_row(pool.free_buffers, buffer)
    state.directions.buffer[direction_index] = ABSENT


@kernel
def give_up(state: FramingState, direction_index: int, mode: int) -> None:
    """Discard a direction's buffer, if any, count its bytes as skipped, and set the mode."""
    directions, pool = state.directions, state.pool
    buffer = directions.buffer[direction_index]
    if buffer != ABSENT:
        directions.skipped[direction_index] += pool.buffers.size[buffer]
        row = pool.buffers.first[buffer]
        for _ in range(pool.buffers.ranges[buffer]):
            following = pool.ranges.next[row]
            give_row(pool.free_ranges, row)
            row = following
        _end_buffer(state, direction_index)
    directions.mode[direction_index] = mode


@inlined
def _detach_rows(context: PassContext, index: int, direction_index: int) -> int:
    """Free a direction's buffer but keep its rows, which get the release packet of a range; return
    the first row, ABSENT if there is none."""
    pool, buffer = context.state.pool, context.state.directions.buffer[direction_index]
    ranges, buffers = pool.ranges, pool.buffers
    if buffer == ABSENT or buffers.ranges[buffer] == 0:
        first = ABSENT
    else:
        first = row = buffers.first[buffer]
        for _ in range(buffers.ranges[buffer]):
            ranges.at[row] = buffers.at[buffer] + ranges.begin[row] - buffers.base[buffer]
            ranges.release_packet[row] = context.ranges.release_packet[index]
            row = ranges.next[row]
    if buffer != ABSENT:
        _end_buffer(context.state, direction_index)
    return int(first)


@kernel
def requeue(context: PassContext, index: int, direction_index: int, peer_too: bool) -> None:
    """End a direction's buffer and put its ranges at the front of the requeued ranges.

    If the peer waits for this direction, or its frames are found as well, its ranges are requeued
    too, merged in order of arrival.

    Args:
        index: the range that releases them; peer_too: the peer's buffer ends as well.
    """
    state, directions, ranges = context.state, context.state.directions, context.state.pool.ranges
    peer = direction_index ^ 1
    peer_buffer = directions.buffer[peer]
    if peer_buffer != ABSENT and state.pool.buffers.resume_mode[peer_buffer] != SEARCHED:
        directions.mode[peer] = state.pool.buffers.resume_mode[peer_buffer]
        peer_too = True
    one = _detach_rows(context, index, direction_index)
    other = _detach_rows(context, index, peer) if peer_too else ABSENT
    first = last = ABSENT
    for _ in range(len(ranges.next)):
        if one == ABSENT and other == ABSENT:
            break
        if one == ABSENT or (other != ABSENT and ranges.order[other] < ranges.order[one]):
            row = other
            other = ranges.next[other]
        else:
            row = one
            one = ranges.next[one]
        if first == ABSENT:
            first = row
        else:
            ranges.next[last] = row
        last = row
    if first != ABSENT:
        ranges.next[last] = state.counters[COUNTER_REQUEUED]
        state.counters[COUNTER_REQUEUED] = first


@kernel
def resume(context: PassContext, index: int, direction_index: int) -> None:
    """End a direction's wait: restore its mode and requeue its ranges."""
    directions, buffers = context.state.directions, context.state.pool.buffers
    directions.mode[direction_index] = buffers.resume_mode[directions.buffer[direction_index]]
    requeue(context, index, direction_index, False)


@kernel
def load_requeued(state: FramingState, row: int) -> None:
    """Copy a row of the pool to `state.requeued`, the columns of the range being handled."""
    rows, ranges = state.pool.ranges, state.requeued
    direction_index = rows.direction_index[row]
    ranges.connection[0] = state.connections.connection_id[direction_index >> 1]
    ranges.endpoint_index[0] = direction_index & 1
    ranges.kind[0] = rows.kind[row]
    ranges.stream_offset[0] = rows.stream_offset[row]
    ranges.length[0] = rows.length[row]
    ranges.source[0] = row_output.SOURCE_ARENA
    ranges.offset[0] = rows.at[row]
    ranges.packet[0] = rows.packet[row]
    ranges.ts_ns[0] = rows.ts_ns[row]
    ranges.flags[0] = rows.flags[row]
    ranges.cause[0] = rows.cause[row]
    ranges.release_packet[0] = rows.release_packet[row]
