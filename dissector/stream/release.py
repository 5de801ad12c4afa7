"""What leaves, when, and in which order: the end of the way of a stream byte.

What a side has to give is said in offer.py, the theory in reassembly.py.

A connection is looked at when a packet of it, or a timer, asks for it. All connections that one
packet made ready are gone through in order of connection_id, before the next packet. A look can
stop at any row for want of room and goes on exactly there.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.stream import layout
from dissector.stream.columns import (
    CLOSE,
    DATA,
    ENDED_CAPTURE_END,
    ENDED_FIN,
    FIN,
    GAP_CUT,
    GAP_LOST,
    OPEN,
    RETRANSMITTED,
)
from dissector.stream.connections import join_list, retire, side_at
from dissector.stream.history import add_letter
from dissector.stream.layout import (
    ACKED,
    BITS,
    CLOCK,
    CLOSE_DUE,
    CLOSING,
    CONNECTION_ID,
    DONE,
    FULL,
    HEAD,
    HELD,
    NEVER,
    NEXT,
    NODE_DOUBTFUL,
    NODE_KIND,
    NODE_LENGTH,
    NODE_OFFSET,
    NODE_OPENED,
    NODE_PACKET,
    NODE_TS,
    NODES,
    SIDE_BITS,
    SIDE_FIN_OUT,
    SIDE_GIVE_UP,
    SIDE_RELEASED,
    SIDE_RESYNC,
    SIDE_START_OPEN,
    SLOW,
    TIMER,
    TOP,
    TURN,
    WINDOW_NS,
)
from dissector.stream.offer import (
    HOLE,
    MISSING_END,
    NODE,
    NOTHING,
    UNBELIEVED,
    missing_end,
    offer_of,
)
from dissector.stream.output import Piece, note, put_range
from dissector.stream.pending import drop_first
from dissector.stream.queue import queue_put, queue_remove
from dissector.stream.state import StreamState

_GAP_LOST: Final = NOTICE_NUMBER["gap_lost"]
_HELD_BYTES_LIMIT: Final = NOTICE_NUMBER["held_bytes_limit"]
_SEQUENCE_JUMP: Final = NOTICE_NUMBER["sequence_jump"]


@kernel
def _put_node(state: StreamState, base: int, side_no: int) -> None:
    """Let the first node of a side leave."""
    cells = state.cells
    nodes = state.nodes
    side = side_at(base, side_no)
    head = cells[side + HEAD]
    kind = nodes[head + NODE_KIND]
    length = nodes[head + NODE_LENGTH]
    packet = nodes[head + NODE_PACKET]
    flags = nodes[head + layout.NODE_FLAGS]
    if packet < cells[side + TURN] and kind != FIN:
        flags |= RETRANSMITTED  # it came before a byte that stands before it
    at = max(0, nodes[head + layout.NODE_AT])
    offset = nodes[head + NODE_OFFSET]
    source = 1 if kind == DATA else 0
    ts_ns = nodes[head + NODE_TS]
    put_range(
        state, base, Piece(side_no, kind, offset, length, source, at, packet, ts_ns, flags, 0)
    )
    is_doubtful = nodes[head + NODE_DOUBTFUL] != 0
    drop_first(state, side)
    cells[side + NEXT] = offset + length
    cells[side + TURN] = max(cells[side + TURN], packet)
    cells[side + layout.RANGE_PACKET] = packet
    cells[side + layout.RANGE_TS] = ts_ns
    cells[side + layout.STREAM_BYTES] += length
    cells[side + SIDE_BITS] |= SIDE_RELEASED
    if is_doubtful:
        cells[side + SIDE_BITS] &= ~SIDE_GIVE_UP
    if kind == GAP_CUT:
        cells[side + layout.SNAPLEN_CUT_BYTES] += length
    if kind == FIN:
        cells[side + SIDE_BITS] |= SIDE_FIN_OUT
        _drop_rest(state, side)


@inlined
def _drop_rest(state: StreamState, side: int) -> None:
    """Data beyond the end of its stream is counted and forgotten."""
    cells = state.cells
    while cells[side + HEAD] >= 0:
        cells[side + layout.LATE_PACKETS] += 1
        cells[side + layout.LATE_BYTES] += state.nodes[cells[side + HEAD] + NODE_LENGTH]
        drop_first(state, side)


@kernel
def _put_gap(state: StreamState, base: int, side_no: int, end: int) -> None:
    """Give up everything of a side before an offset."""
    cells = state.cells
    side = side_at(base, side_no)
    start = cells[side + NEXT]
    length = end - start
    put_range(
        state,
        base,
        Piece(
            side_no,
            GAP_LOST,
            start,
            length,
            0,
            0,
            cells[side + layout.RANGE_PACKET],
            cells[side + layout.RANGE_TS],
            0,
            0,
        ),
    )
    note(state, base, _GAP_LOST, side_no, start, length)
    add_letter(cells, base, layout.LETTER_GAP, side_no)
    cells[side + NEXT] = end
    cells[side + TOP] = max(cells[side + TOP], end)
    cells[side + layout.GAP_START] = start
    cells[side + layout.GAP_END] = end
    cells[side + layout.STREAM_BYTES] += length
    cells[side + layout.GAPS] += 1
    cells[side + layout.GAP_BYTES] += length
    cells[side + SIDE_BITS] |= SIDE_RELEASED
    cells[side + SIDE_BITS] &= ~SIDE_GIVE_UP


@kernel
def _take_offer(state: StreamState, base: int, side_no: int, what: int) -> None:
    """Let a side give what it offered."""
    cells = state.cells
    side = side_at(base, side_no)
    if what == NODE:
        _put_node(state, base, side_no)
    elif what == HOLE:
        _put_gap(state, base, side_no, state.nodes[cells[side + HEAD] + NODE_OFFSET])
    elif what == MISSING_END:
        _put_gap(state, base, side_no, cells[side + ACKED])
    else:
        note(state, base, _SEQUENCE_JUMP, side_no, NULL, NULL)
        cells[side + layout.STRAY_PACKETS] += 1
        cells[side + SIDE_BITS] &= ~SIDE_GIVE_UP
        drop_first(state, side)
    if cells[side + HEAD] < 0:
        cells[side + SIDE_BITS] &= ~SIDE_RESYNC
        if what == UNBELIEVED:
            cells[side + TOP] = cells[side + NEXT]


@inlined
def _put_open(state: StreamState, base: int) -> None:
    cells = state.cells
    cells[base + BITS] |= layout.CONNECTION_OPENED
    side_no = 0 if cells[side_at(base, 0) + layout.PACKETS] > 0 else 1
    from_syn = 1 if cells[base + BITS] & layout.CONNECTION_FROM_SYN else 0
    packet = cells[base + layout.FIRST_PACKET]
    ts_ns = cells[base + layout.FIRST_TS]
    put_range(state, base, Piece(side_no, OPEN, 0, 0, 0, 0, packet, ts_ns, 0, from_syn))


@kernel
def _put_close(state: StreamState, base: int) -> None:
    """The connection is over: its last row; it lingers unless its addresses are taken already."""
    cells = state.cells
    last_ts = cells[base + layout.LAST_TS]
    for side_no in range(2):
        side = side_at(base, side_no)
        since = cells[side + layout.ZERO_SINCE]
        if since != NULL and last_ts > since:
            cells[side + layout.ZERO_WINDOW_NS] += last_ts - since
        cells[side + layout.ZERO_SINCE] = NULL
        queue_remove(state.timers, cells, side + TIMER)
    cells[base + BITS] |= layout.CONNECTION_CLOSED
    side_no = max(0, cells[base + layout.CLOSED_FIRST])
    packet = cells[base + layout.LAST_PACKET]
    cause = cells[base + CLOSING] - 1
    put_range(state, base, Piece(side_no, CLOSE, 0, 0, 0, 0, packet, last_ts, 0, cause))
    if cells[base + BITS] & layout.CONNECTION_DETACHED:
        retire(state, base)
    else:
        join_list(cells, state.registers, base, layout.LIST_LINGERING)


@inlined
def _is_all_there(cells: Int64Array, side: int) -> bool:
    """Whether a side of a reset connection has nothing left to wait for."""
    return (
        cells[side + HEAD] < 0
        and not cells[side + SIDE_BITS] & SIDE_START_OPEN
        and missing_end(cells, side) == 0
        and cells[side + NEXT] + 1 >= cells[side + layout.RESET_OFFSET]
    )


@inlined
def _can_close(cells: Int64Array, base: int, is_over: bool) -> bool:
    """Whether nothing keeps a connection from its CLOSE."""
    one = side_at(base, 0)
    other = side_at(base, 1)
    if cells[one + HEAD] >= 0 or cells[other + HEAD] >= 0:
        return False
    if cells[one + SIDE_BITS] & cells[other + SIDE_BITS] & SIDE_FIN_OUT:
        # The end of the capture may only have let out the FINs that waited behind a hole.
        if cells[base + CLOSING] in (0, ENDED_CAPTURE_END + 1):
            cells[base + CLOSING] = ENDED_FIN + 1
        return True
    if is_over:
        return True
    return cells[base + CLOSING] != 0 and _is_all_there(cells, one) and _is_all_there(cells, other)


@inlined
def _arm(state: StreamState, base: int, side_no: int, due: int) -> None:
    """Let a side be looked at again when the clock reaches `due`, or before."""
    if due < NEVER:
        cells = state.cells
        tie = cells[base + CONNECTION_ID] * 2 + side_no
        queue_put(state.timers, cells, side_at(base, side_no) + TIMER, due, tie)


@kernel
def arm_missing_end(state: StreamState, base: int, side_no: int) -> None:
    """The peer acknowledged bytes not seen yet: look again after the reorder window."""
    due = state.registers[CLOCK] + state.registers[WINDOW_NS]
    _arm(state, base, side_no, due)


@kernel
def give_up_oldest(state: StreamState, base: int) -> bool:
    """Too many bytes wait: mark the oldest hole of a connection to be given up now.

    Returns:
        Whether there is one; the start of a mid-stream side counts as one but is no loss.
    """
    cells = state.cells
    nodes = state.nodes
    best = -1
    oldest = NEVER
    for side_no in range(2):
        side = side_at(base, side_no)
        head = cells[side + HEAD]
        since = NEVER
        if cells[side + SIDE_BITS] & SIDE_START_OPEN:
            since = cells[side + layout.START_SINCE]
        elif head >= 0 and (
            nodes[head + NODE_OFFSET] > cells[side + NEXT] or nodes[head + NODE_DOUBTFUL]
        ):
            since = nodes[head + NODE_OPENED]
        if since < oldest:
            oldest = since
            best = side_no
    if best < 0:
        return False
    side = side_at(base, best)
    if not cells[side + SIDE_BITS] & (SIDE_START_OPEN | SIDE_GIVE_UP):
        note(state, base, _HELD_BYTES_LIMIT, best, cells[side + NEXT], NULL)
    cells[side + SIDE_BITS] |= SIDE_GIVE_UP
    return True


@inlined
def _refresh_slow(cells: Int64Array, base: int) -> None:
    """Whether the fast path may take the next packet of a connection."""
    one = side_at(base, 0)
    other = side_at(base, 1)
    slow = 0
    if cells[one + NODES] + cells[other + NODES] > 0:
        slow |= layout.SLOW_PENDING
    bits = cells[one + SIDE_BITS] | cells[other + SIDE_BITS]
    if bits & SIDE_START_OPEN or cells[base + layout.LIST] == layout.LIST_SYN_ONLY:
        slow |= layout.SLOW_START
    if cells[base + BITS] & layout.CONNECTION_RTT_PENDING:
        slow |= layout.SLOW_START
    if bits & layout.SIDE_FIN_SEEN or cells[base + CLOSING] != 0:
        slow |= layout.SLOW_ENDING
    if cells[base + BITS] & layout.CONNECTION_CLOSED:
        slow |= layout.SLOW_CLOSED
    if cells[one + layout.ZERO_SINCE] != NULL or cells[other + layout.ZERO_SINCE] != NULL:
        slow |= layout.SLOW_ZERO_WINDOW
    cells[base + SLOW] = slow


@inlined
def _has_room(state: StreamState) -> bool:
    """Whether two more ranges and four more notices fit."""
    return bool(
        state.registers[layout.ROWS_OUT] + 2 <= len(state.ranges.packet)
        and state.registers[layout.NOTICES_OUT] + 4 <= len(state.notices.packet)
    )


@kernel
def _look_at(state: StreamState, base: int) -> int:
    """Let everything of a connection leave that may leave now; DONE or FULL."""
    cells = state.cells
    one = side_at(base, 0)
    other = side_at(base, 1)
    limit = state.registers[layout.HELD_LIMIT_CONNECTION]
    while True:
        if not _has_room(state):
            return FULL
        if not cells[base + BITS] & layout.CONNECTION_OPENED:
            _put_open(state, base)
            continue
        if cells[base + BITS] & layout.CONNECTION_CLOSED:
            break
        is_over = cells[base + CLOSING] != 0 and state.registers[CLOCK] >= cells[base + CLOSE_DUE]
        first = offer_of(state, one, other, is_over)
        second = offer_of(state, other, one, is_over)
        if first.what != NOTHING and first.turn <= second.bound:
            _take_offer(state, base, 0, first.what)
        elif second.what != NOTHING and second.turn <= first.bound:
            _take_offer(state, base, 1, second.what)
        elif _can_close(cells, base, is_over):
            _put_close(state, base)
            break
        elif cells[one + HELD] + cells[other + HELD] <= limit or not give_up_oldest(state, base):
            due = cells[base + CLOSE_DUE] if cells[base + CLOSING] != 0 else NEVER
            _arm(state, base, 0, min(first.due, due))
            _arm(state, base, 1, second.due)
            break
    _refresh_slow(cells, base)
    return DONE


@kernel
def release(state: StreamState) -> int:
    """Go through all connections that are ready, lowest connection_id first; DONE or FULL."""
    ready = state.ready
    while ready[0] > 0:
        where = ready[5]
        if _look_at(state, where - layout.READY) == FULL:
            return FULL
        queue_remove(ready, state.cells, where)
    return DONE


@kernel
def fire_timers(state: StreamState) -> None:
    """Make ready every connection whose time has come."""
    timers = state.timers
    while timers[0] > 0 and timers[3] <= state.registers[CLOCK]:
        where = timers[5]
        queue_remove(timers, state.cells, where)
        base = where // layout.ROW_CELLS * layout.ROW_CELLS
        queue_put(
            state.ready, state.cells, base + layout.READY, state.cells[base + CONNECTION_ID], 0
        )


@kernel
def relieve(state: StreamState) -> int:
    """Too many bytes wait in all: give up the holes that are due first until an eighth is free.

    Goes through the timers in the order of their queue, which starts with the earliest; every
    connection with waiting bytes has one.

    Returns:
        How many connections have something to give now.
    """
    cells = state.cells
    timers = state.timers
    found = 0
    excess = state.registers[layout.HELD_TOTAL] - state.registers[layout.HELD_LIMIT] * 7 // 8
    place = 1
    while place <= timers[0] and excess > 0:
        state.registers[layout.STEPS] += 1
        base = timers[3 * place + 2] // layout.ROW_CELLS * layout.ROW_CELLS
        held = cells[side_at(base, 0) + HELD] + cells[side_at(base, 1) + HELD]
        if held > 0 and cells[base + layout.READY] == 0:
            if state.registers[layout.NOTICES_OUT] + 2 > len(state.notices.packet):
                break
            if give_up_oldest(state, base):
                found += 1
                excess -= held
                queue_put(state.ready, cells, base + layout.READY, cells[base + CONNECTION_ID], 0)
        place += 1
    return found
