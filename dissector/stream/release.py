"""What leaves, when, and in which order: the last step of a stream byte.

What a side can deliver is decided in deliverable.py; the theory is in reassembly.py.

A connection is looked at when a packet of it, or a timer, asks for it. All connections that one
packet made ready are gone through in order of connection_id, before the next packet. A look can
stop at any row for want of room and goes on exactly there.
"""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.stream.columns import (
    CLOSE,
    DATA,
    ENDED_CAPTURE_END,
    ENDED_FIN,
    FIN,
    GAP_CUT,
    GAP_LOST,
    RETRANSMITTED,
    SOURCE_BLOCK,
    SOURCE_HEAP,
)
from dissector.stream.connections import join_list, make_ready, retire
from dissector.stream.deliverable import (
    HOLE,
    MISSING_END,
    NOTHING,
    SEGMENT,
    missing_end,
    next_deliverable,
)
from dissector.stream.history import LETTER_GAP, add_letter
from dissector.stream.out_of_order import drop_first
from dissector.stream.output import Range, note_side, put_range
from dissector.stream.queue import queue_put, queue_remove
from dissector.stream.records import LRU_LINGERING, LRU_SYN_ONLY, NEVER, Sides, side_at
from dissector.stream.state import DONE, FULL, StreamState

_GAP_LOST: Final = NOTICE_NUMBER["gap_lost"]
_HELD_BYTES_LIMIT: Final = NOTICE_NUMBER["held_bytes_limit"]
_SEQUENCE_JUMP: Final = NOTICE_NUMBER["sequence_jump"]


@kernel
def _put_segment(state: StreamState, side: int) -> None:
    """Let the first node of a side leave."""
    sides = state.sides
    nodes = state.nodes
    head = state.heads[side, 0]
    kind = nodes.kind[head]
    length = nodes.length[head]
    packet = nodes.packet[head]
    flags = nodes.flags[head]
    if packet < sides.released_packet[side] and kind != FIN:
        flags |= RETRANSMITTED  # it came before a byte that stands before it
    at = max(0, nodes.heap_at[head])
    offset = nodes.offset[head]
    source = SOURCE_HEAP if kind == DATA else SOURCE_BLOCK
    ts_ns = nodes.ts_ns[head]
    put_range(state, side, Range(kind, offset, length, source, at, packet, ts_ns, flags, 0))
    if nodes.is_damaged[head]:
        sides.gives_up[side] = 0
    drop_first(state, side)
    sides.released[side] = offset + length
    sides.released_packet[side] = max(sides.released_packet[side], packet)
    sides.range_packet[side] = packet
    sides.range_ts_ns[side] = ts_ns
    sides.stream_bytes[side] += length
    sides.has_released[side] = 1
    if kind == GAP_CUT:
        sides.snaplen_cut_bytes[side] += length
    if kind == FIN:
        sides.fin_packet[side] = packet
        _drop_rest(state, side)


@inlined
def _drop_rest(state: StreamState, side: int) -> None:
    """Count and forget data beyond the end of its stream."""
    for _ in range(len(state.nodes.offset)):
        if state.heads[side, 0] < 0:
            return
        state.sides.late_packets[side] += 1
        state.sides.late_bytes[side] += state.nodes.length[state.heads[side, 0]]
        state.sides.dropped_bytes[side] += state.nodes.length[state.heads[side, 0]]
        drop_first(state, side)


@kernel
def _put_gap(state: StreamState, side: int, end: int) -> None:
    """Give up everything of a side before an offset."""
    sides = state.sides
    start = sides.released[side]
    length = end - start
    packet = sides.range_packet[side]
    ts_ns = sides.range_ts_ns[side]
    put_range(state, side, Range(GAP_LOST, start, length, SOURCE_BLOCK, 0, packet, ts_ns, 0, 0))
    note_side(state, side, _GAP_LOST, start, length)
    add_letter(state.connections, side, LETTER_GAP)
    sides.released[side] = end
    sides.highest[side] = max(sides.highest[side], end)
    sides.gap_start[side] = start
    sides.gap_end[side] = end
    sides.stream_bytes[side] += length
    sides.gaps[side] += 1
    sides.gap_bytes[side] += length
    sides.has_released[side] = 1
    sides.gives_up[side] = 0


@kernel
def _deliver(state: StreamState, side: int, kind: int) -> None:
    """Let what a side can deliver leave. kind: of its Deliverable."""
    sides = state.sides
    if kind == SEGMENT:
        _put_segment(state, side)
    elif kind == HOLE:
        _put_gap(state, side, state.nodes.offset[state.heads[side, 0]])
    elif kind == MISSING_END:
        _put_gap(state, side, sides.acked[side])
    else:
        note_side(state, side, _SEQUENCE_JUMP, NULL, NULL)
        sides.stray_packets[side] += 1
        sides.dropped_bytes[side] += state.nodes.length[state.heads[side, 0]]
        sides.gives_up[side] = 0
        drop_first(state, side)
        if state.heads[side, 0] < 0:
            sides.highest[side] = sides.released[side]


@kernel
def _put_close(state: StreamState, connection: int) -> None:
    """Put the last row of a connection; it lingers unless its addresses are in use already."""
    connections = state.connections
    sides = state.sides
    last_ts_ns = connections.last_ts_ns[connection]
    for side_no in range(2):
        side = side_at(connection, side_no)
        since = sides.zero_window_since[side]
        if since != NULL and last_ts_ns > since:
            sides.zero_window_ns[side] += last_ts_ns - since
        sides.zero_window_since[side] = NULL
        queue_remove(state.timers, sides.timer_position, side)
    side_no = max(0, connections.closed_first[connection])
    packet = connections.last_packet[connection]
    connections.ended_packet[connection] = packet
    cause = connections.closing[connection]
    closed = Range(CLOSE, 0, 0, SOURCE_BLOCK, 0, packet, last_ts_ns, 0, cause)
    put_range(state, side_at(connection, side_no), closed)
    if connections.is_detached[connection]:
        retire(state, connection)
    else:
        join_list(state, connection, LRU_LINGERING)


@inlined
def _is_complete(state: StreamState, side: int) -> bool:
    """Whether a side of a reset connection has nothing left to wait for."""
    sides = state.sides
    return (
        state.heads[side, 0] < 0
        and not sides.start_is_open[side]
        and missing_end(sides, side, state.settings.reorder_window_ns[0]) == 0
        and sides.released[side] + 1 >= sides.reset_offset[side]
    )


@inlined
def _can_close(state: StreamState, connection: int, is_over: bool) -> bool:
    """Whether nothing keeps a connection from its CLOSE."""
    closing = state.connections.closing
    fin_packet = state.sides.fin_packet
    one = side_at(connection, 0)
    other = side_at(connection, 1)
    if state.heads[one, 0] >= 0 or state.heads[other, 0] >= 0:
        return False
    if fin_packet[one] != NULL and fin_packet[other] != NULL:
        # The end of the capture may only have let out the FINs that waited behind a hole.
        if closing[connection] < 0 or closing[connection] == ENDED_CAPTURE_END:
            closing[connection] = ENDED_FIN
        return True
    if is_over:
        return True
    return closing[connection] >= 0 and _is_complete(state, one) and _is_complete(state, other)


@inlined
def _set_timer(state: StreamState, side: int, due: int) -> None:
    """Let a side be looked at again when the clock reaches `due`, or before."""
    if due < NEVER:
        tie = state.connections.connection_id[side >> 1] * 2 + (side & 1)
        queue_put(state.timers, state.sides.timer_position, side, due, tie)


@kernel
def await_missing_end(state: StreamState, side: int) -> None:
    """Look again after the reorder window: the peer acknowledged bytes not seen yet."""
    _set_timer(state, side, state.registers.clock[0] + state.settings.reorder_window_ns[0])


@kernel
def give_up_oldest(state: StreamState, connection: int) -> bool:
    """Mark the oldest hole of a connection to be given up now: too many bytes wait.

    Returns:
        Whether there is one; the start of a mid-stream side counts as one but is no loss.
    """
    sides = state.sides
    nodes = state.nodes
    best = -1
    oldest = NEVER
    for side_no in range(2):
        side = side_at(connection, side_no)
        head = state.heads[side, 0]
        since = NEVER
        if sides.start_is_open[side]:
            since = sides.start_since[side]
        elif head >= 0 and (nodes.offset[head] > sides.released[side] or nodes.is_damaged[head]):
            since = nodes.opened[head]
        if since < oldest:
            oldest = since
            best = side
    if best < 0:
        return False
    if not sides.start_is_open[best] and not sides.gives_up[best]:
        note_side(state, best, _HELD_BYTES_LIMIT, sides.released[best], NULL)
    sides.gives_up[best] = 1
    return True


@inlined
def _is_side_slow(sides: Sides, side: int) -> bool:
    return bool(
        sides.pending[side] > 0
        or sides.start_is_open[side] != 0
        or sides.fin_seen[side] != 0
        or sides.zero_window_since[side] != NULL
        or (
            # The next acknowledgement may say which of its initial numbers counts.
            sides.isn[side] != NULL
            and sides.packets[side] > 0
            and sides.is_isn_acked[side] == 0
            and sides.has_released[side] == 0
        )
    )


@inlined
def _is_slow(state: StreamState, connection: int) -> bool:
    """Whether the next packet of a connection needs more than the fast path."""
    connections = state.connections
    return bool(
        _is_side_slow(state.sides, side_at(connection, 0))
        or _is_side_slow(state.sides, side_at(connection, 1))
        or connections.lru_list[connection] == LRU_SYN_ONLY
        or connections.rtt_pending[connection] != 0
        or connections.closing[connection] >= 0
        or connections.ended_packet[connection] != NULL
    )


@inlined
def _has_room(state: StreamState) -> bool:
    """Whether two more ranges and four more notices fit."""
    return bool(
        state.registers.ranges[0] + 2 <= len(state.ranges.packet)
        and state.registers.notices[0] + 4 <= len(state.notices.packet)
    )


@kernel
def _release_connection(state: StreamState, connection: int) -> int:
    """Let everything of a connection leave that may leave now; DONE or FULL."""
    connections = state.connections
    sides = state.sides
    one = side_at(connection, 0)
    other = side_at(connection, 1)
    limit = state.settings.held_bytes_per_connection[0]
    while True:
        if not _has_room(state):
            return FULL
        if connections.ended_packet[connection] != NULL:
            break
        close_due = connections.close_due[connection]
        if connections.closing[connection] < 0:
            close_due = NEVER
        is_over = state.registers.clock[0] >= close_due
        first = next_deliverable(state, one, is_over)
        second = next_deliverable(state, other, is_over)
        if first.kind != NOTHING and first.packet <= second.bound:
            _deliver(state, one, first.kind)
        elif second.kind != NOTHING and second.packet <= first.bound:
            _deliver(state, other, second.kind)
        elif _can_close(state, connection, is_over):
            _put_close(state, connection)
            break
        elif sides.held_bytes[one] + sides.held_bytes[other] <= limit or not give_up_oldest(
            state, connection
        ):
            _set_timer(state, one, min(first.due, close_due))
            _set_timer(state, other, second.due)
            break
    connections.is_slow[connection] = 1 if _is_slow(state, connection) else 0
    return DONE


@kernel
def release(state: StreamState) -> int:
    """Go through all connections that are ready, lowest connection_id first; DONE or FULL."""
    ready = state.ready
    while ready.size[0] > 0:
        connection = ready.entries.row[1]
        if _release_connection(state, connection) == FULL:
            return FULL
        queue_remove(ready, state.connections.ready_position, connection)
    return DONE


@kernel
def fire_timers(state: StreamState) -> None:
    """Make ready every connection whose time has come."""
    timers = state.timers
    while timers.size[0] > 0 and timers.entries.key[1] <= state.registers.clock[0]:
        side = timers.entries.row[1]
        queue_remove(timers, state.sides.timer_position, side)
        make_ready(state, side >> 1)


@kernel
def relieve(state: StreamState) -> int:
    """Give up the holes that are due first until an eighth of the room for bytes is free.

    Goes through the timers in the order of their queue, which starts with the earliest; every
    connection with waiting bytes has one.

    Returns:
        How many connections can deliver something now.
    """
    registers = state.registers
    sides = state.sides
    timers = state.timers
    found = 0
    excess = registers.held_bytes[0] - state.settings.held_bytes[0] * 7 // 8
    position = 1
    while position <= timers.size[0] and excess > 0:
        registers.steps[0] += 1
        side = timers.entries.row[position]
        connection = side >> 1
        held = sides.held_bytes[side] + sides.held_bytes[side ^ 1]
        if held > 0 and state.connections.ready_position[connection] == 0:
            if registers.notices[0] + 2 > len(state.notices.packet):
                break
            if give_up_oldest(state, connection):
                found += 1
                excess -= held
                make_ready(state, connection)
        position += 1
    return found
