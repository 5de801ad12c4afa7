"""Release: emit ranges in order, give up holes, close connections.

What a side can deliver is decided in deliverable.py; the theory is in reassembly.py.

A packet or a timer of a connection makes it ready. All connections that one packet made ready are
released in order of connection_id, before the next packet. A release can stop at any row if an
array is full, and continues exactly there.
"""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notice_rows import has_room
from dissector.notices import NOTICE_NUMBER
from dissector.stream import columns, deliverable
from dissector.stream.columns import RangeKind, RangeSource
from dissector.stream.connections import join_list, make_ready, retire
from dissector.stream.history import LETTER_GAP, add_letter
from dissector.stream.out_of_order import drop_first
from dissector.stream.output import Range, note_direction, put_range
from dissector.stream.queue import queue_put, queue_remove
from dissector.stream.records import LRU_LINGERING, LRU_SYN_ONLY, NEVER, Directions, direction_at
from dissector.stream.state import StreamState, StreamStatus
from dissector.stream.translations import LOOKS

_GAP_LOST: Final = NOTICE_NUMBER["gap_lost"]
_HELD_BYTES_LIMIT: Final = NOTICE_NUMBER["held_bytes_limit"]
_SEQUENCE_JUMP: Final = NOTICE_NUMBER["sequence_jump"]


@kernel
def _put_segment(state: StreamState, direction_index: int) -> None:
    """Emit the first node of a side."""
    directions = state.directions
    nodes = state.nodes
    head = state.heads[direction_index, 0]
    kind = nodes.kind[head]
    length = nodes.length[head]
    packet = nodes.packet[head]
    flags = nodes.flags[head]
    if packet < directions.released_packet[direction_index] and kind != RangeKind.FIN:
        flags |= columns.RETRANSMITTED  # it came before a byte that stands before it
    at = max(0, nodes.heap_at[head])
    offset = nodes.offset[head]
    source = RangeSource.HEAP if kind == RangeKind.DATA else RangeSource.BLOCK
    ts_ns = nodes.ts_ns[head]
    put_range(
        state, direction_index, Range(kind, offset, length, source, at, packet, ts_ns, flags, 0)
    )
    directions.gives_up[direction_index] = 0
    drop_first(state, direction_index)
    directions.released[direction_index] = offset + length
    directions.released_packet[direction_index] = max(
        directions.released_packet[direction_index], packet
    )
    directions.range_packet[direction_index] = packet
    directions.range_ts_ns[direction_index] = ts_ns
    directions.stream_bytes[direction_index] += length
    directions.has_released[direction_index] = 1
    if kind == RangeKind.GAP_CUT:
        directions.snaplen_cut_bytes[direction_index] += length
    if kind == RangeKind.FIN:
        directions.fin_packet[direction_index] = packet
        _drop_rest(state, direction_index)


@inlined
def _drop_rest(state: StreamState, direction_index: int) -> None:
    """Count and drop data beyond the end of its stream."""
    for _ in range(len(state.nodes.offset)):
        if state.heads[direction_index, 0] < 0:
            return
        state.directions.late_packets[direction_index] += 1
        state.directions.late_bytes[direction_index] += state.nodes.length[
            state.heads[direction_index, 0]
        ]
        state.directions.dropped_bytes[direction_index] += state.nodes.length[
            state.heads[direction_index, 0]
        ]
        drop_first(state, direction_index)


@kernel
def _put_gap(state: StreamState, direction_index: int, end: int) -> None:
    """Give up everything of a side before an offset."""
    directions = state.directions
    start = directions.released[direction_index]
    length = end - start
    packet = directions.range_packet[direction_index]
    ts_ns = directions.range_ts_ns[direction_index]
    put_range(
        state,
        direction_index,
        Range(RangeKind.GAP_LOST, start, length, RangeSource.BLOCK, 0, packet, ts_ns, 0, 0),
    )
    note_direction(state, direction_index, _GAP_LOST, start, length)
    add_letter(state.connections, direction_index, LETTER_GAP)
    directions.released[direction_index] = end
    directions.highest[direction_index] = max(directions.highest[direction_index], end)
    directions.gap_start[direction_index] = start
    directions.gap_end[direction_index] = end
    directions.stream_bytes[direction_index] += length
    directions.gaps[direction_index] += 1
    directions.gap_bytes[direction_index] += length
    directions.has_released[direction_index] = 1
    directions.gives_up[direction_index] = 0


@kernel
def _deliver(state: StreamState, direction_index: int, kind: int) -> None:
    """Emit what a side can deliver. kind: of its Deliverable."""
    directions = state.directions
    if kind == deliverable.SEGMENT:
        _put_segment(state, direction_index)
    elif kind == deliverable.HOLE:
        end = state.nodes.offset[state.heads[direction_index, 0]]
        _put_gap(state, direction_index, deliverable.hole_end(state, direction_index, end))
    elif kind == deliverable.MISSING_END:
        end = directions.acked[direction_index]
        _put_gap(state, direction_index, deliverable.hole_end(state, direction_index, end))
    else:
        note_direction(state, direction_index, _SEQUENCE_JUMP, NULL, NULL)
        directions.stray_packets[direction_index] += 1
        directions.dropped_bytes[direction_index] += state.nodes.length[
            state.heads[direction_index, 0]
        ]
        directions.gives_up[direction_index] = 0
        drop_first(state, direction_index)
        if state.heads[direction_index, 0] < 0:
            directions.highest[direction_index] = directions.released[direction_index]


@kernel
def _put_close(state: StreamState, connection: int) -> None:
    """Emit the last row of a connection; it lingers unless its addresses are reused already."""
    connections = state.connections
    directions = state.directions
    last_ts_ns = connections.last_ts_ns[connection]
    for endpoint_index in range(2):
        direction_index = direction_at(connection, endpoint_index)
        since = directions.zero_window_since[direction_index]
        if since != NULL and last_ts_ns > since:
            directions.zero_window_ns[direction_index] += last_ts_ns - since
        directions.zero_window_since[direction_index] = NULL
        queue_remove(state.timers, directions.timer_position, direction_index)
    endpoint_index = max(0, connections.closed_first[connection])
    packet = connections.last_packet[connection]
    connections.ended_packet[connection] = packet
    cause = connections.closing[connection]
    closed = Range(RangeKind.CLOSE, 0, 0, RangeSource.BLOCK, 0, packet, last_ts_ns, 0, cause)
    put_range(state, direction_at(connection, endpoint_index), closed)
    if connections.is_detached[connection]:
        retire(state, connection)
    else:
        join_list(state, connection, LRU_LINGERING)


@inlined
def _is_complete(state: StreamState, direction_index: int) -> bool:
    """Whether a side of a reset connection has nothing left to wait for."""
    directions = state.directions
    return (
        state.heads[direction_index, 0] < 0
        and not directions.start_is_open[direction_index]
        and deliverable.missing_end(
            directions, direction_index, state.settings.reorder_window_ns[0]
        )
        == 0
        and directions.released[direction_index] + 1 >= directions.reset_offset[direction_index]
    )


@inlined
def _can_close(state: StreamState, connection: int, is_over: bool) -> bool:
    """Whether the CLOSE of a connection can be emitted; sets the cause of a complete one."""
    closing = state.connections.closing
    fin_packet = state.directions.fin_packet
    one = direction_at(connection, 0)
    other = direction_at(connection, 1)
    if state.heads[one, 0] >= 0 or state.heads[other, 0] >= 0:
        return False
    if fin_packet[one] != NULL and fin_packet[other] != NULL:
        # The FINs may have waited behind a hole until the end of the capture.
        if closing[connection] < 0 or closing[connection] == columns.ENDED_CAPTURE_END:
            closing[connection] = columns.ENDED_FIN
        return True
    if is_over:
        return True
    return closing[connection] >= 0 and _is_complete(state, one) and _is_complete(state, other)


@inlined
def _set_timer(state: StreamState, direction_index: int, due: int) -> None:
    """Schedule a side's next release for the clock `due`, or earlier."""
    if due < NEVER:
        tie = state.connections.connection_id[direction_index >> 1] * 2 + (direction_index & 1)
        queue_put(state.timers, state.directions.timer_position, direction_index, due, tie)


@kernel
def await_missing_end(state: StreamState, direction_index: int) -> None:
    """Schedule a release after the reorder window: the peer acknowledged bytes not seen yet."""
    _set_timer(
        state, direction_index, state.counters.clock[0] + state.settings.reorder_window_ns[0]
    )


@kernel
def give_up_oldest(state: StreamState, connection: int) -> bool:
    """Mark the oldest hole of a connection to be given up now: too many bytes wait.

    Returns:
        Whether there is one; the start of a mid-stream side counts as one but is no loss, nor is
        what waits for its peer.
    """
    directions = state.directions
    nodes = state.nodes
    best = -1
    first = NEVER + 1
    is_loss = False
    for endpoint_index in range(2):
        direction_index = direction_at(connection, endpoint_index)
        head = state.heads[direction_index, 0]
        is_start = directions.start_is_open[direction_index] != 0
        is_hole = head >= 0 and (
            nodes.offset[head] > directions.released[direction_index] or nodes.is_damaged[head]
        )
        if head < 0 and not is_start:
            continue
        # What is no hole waits for its peer. The first by its packet can leave, whatever waits.
        packet = NEVER
        if is_start or is_hole:
            packet = deliverable.first_packet(state, direction_index)
        if packet < first:
            first = packet
            best = direction_index
            is_loss = is_hole and not is_start
    if best < 0:
        return False
    if is_loss and not directions.gives_up[best]:
        note_direction(state, best, _HELD_BYTES_LIMIT, directions.released[best], NULL)
    directions.gives_up[best] = 1
    return True


@inlined
def _is_direction_slow(directions: Directions, direction_index: int) -> bool:
    return bool(
        directions.pending[direction_index] > 0
        or directions.start_is_open[direction_index] != 0
        or directions.fin_seen[direction_index] != 0
        or directions.zero_window_since[direction_index] != NULL
        or (
            # The next acknowledgement may say which of its initial numbers counts.
            directions.isn[direction_index] != NULL
            and directions.packets[direction_index] > 0
            and directions.is_isn_acked[direction_index] == 0
            and directions.has_released[direction_index] == 0
        )
    )


@inlined
def _is_slow(state: StreamState, connection: int) -> bool:
    """Whether the next packet of a connection needs more than the fast path."""
    connections = state.connections
    return bool(
        _is_direction_slow(state.directions, direction_at(connection, 0))
        or _is_direction_slow(state.directions, direction_at(connection, 1))
        or connections.lru_list[connection] == LRU_SYN_ONLY
        or connections.rtt_pending[connection] != 0
        or connections.looks[connection] < LOOKS
        or connections.closing[connection] >= 0
        or connections.ended_packet[connection] != NULL
    )


@inlined
def _has_capacity(state: StreamState) -> bool:
    """Whether two more ranges and four more notices fit."""
    return bool(
        state.counters.ranges[0] + 2 <= len(state.ranges.packet) and has_room(state.notices, 4)
    )


@kernel
def _release_connection(state: StreamState, connection: int) -> int:
    """Emit all ranges of a connection that may leave now; DONE or FULL."""
    connections = state.connections
    directions = state.directions
    one = direction_at(connection, 0)
    other = direction_at(connection, 1)
    limit = state.settings.held_bytes_per_connection[0]
    while True:
        if not _has_capacity(state):
            return StreamStatus.FULL
        if connections.ended_packet[connection] != NULL:
            break
        close_due = connections.close_due[connection]
        if connections.closing[connection] < 0:
            close_due = NEVER
        is_over = state.counters.clock[0] >= close_due
        first = deliverable.next_deliverable(state, one, is_over)
        second = deliverable.next_deliverable(state, other, is_over)
        if first.kind != deliverable.NOTHING and first.packet <= second.bound:
            _deliver(state, one, first.kind)
        elif second.kind != deliverable.NOTHING and second.packet <= first.bound:
            _deliver(state, other, second.kind)
        elif _can_close(state, connection, is_over):
            _put_close(state, connection)
            break
        elif directions.held_bytes[one] + directions.held_bytes[
            other
        ] <= limit or not give_up_oldest(state, connection):
            _set_timer(state, one, min(first.due, close_due))
            _set_timer(state, other, second.due)
            break
    connections.is_slow[connection] = 1 if _is_slow(state, connection) else 0
    return StreamStatus.DONE


@kernel
def release(state: StreamState) -> StreamStatus:
    """Release all ready connections, lowest connection_id first; DONE or FULL."""
    ready = state.ready
    while ready.size[0] > 0:
        connection = ready.entries.row[1]
        if _release_connection(state, connection) == StreamStatus.FULL:
            return StreamStatus.FULL
        queue_remove(ready, state.connections.ready_position, connection)
    return StreamStatus.DONE


@kernel
def fire_timers(state: StreamState) -> None:
    """Make every connection ready whose timer is due."""
    timers = state.timers
    while timers.size[0] > 0 and timers.entries.key[1] <= state.counters.clock[0]:
        direction_index = timers.entries.row[1]
        queue_remove(timers, state.directions.timer_position, direction_index)
        make_ready(state, direction_index >> 1)


@kernel
def relieve(state: StreamState) -> int:
    """Give up the holes that are due first until an eighth of the room for bytes is free.

    Goes through the timers in the order of their queue, which starts with the earliest; every
    connection with waiting bytes has one.

    Returns:
        How many connections can deliver something now.
    """
    counters = state.counters
    directions = state.directions
    timers = state.timers
    ready_connections = 0
    excess = counters.held_bytes[0] - state.settings.held_bytes[0] * 7 // 8
    position = 1
    while position <= timers.size[0] and excess > 0:
        counters.steps[0] += 1
        direction_index = timers.entries.row[position]
        connection = direction_index >> 1
        held = directions.held_bytes[direction_index] + directions.held_bytes[direction_index ^ 1]
        if held > 0 and state.connections.ready_position[connection] == 0:
            if not has_room(state.notices, 2):
                break
            if give_up_oldest(state, connection):
                ready_connections += 1
                excess -= held
                make_ready(state, connection)
        position += 1
    return ready_connections
