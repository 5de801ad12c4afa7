"""Segments to streams: the bytes of each direction in order, each once, and what is missing.

Theory. A side of a connection has a position NEXT: everything before it has left, as data, as a gap
that was never captured (GAP_LOST) or as one that the snap length cut off (GAP_CUT). Segments beyond
NEXT wait in a sorted list without overlaps (pending.py). FIN is a member of that list, so the end
of a stream is reached when everything before it was.

Clock. Decisions depend on the processing clock only: the largest capture time so far, looked at
with every packet. A packet is taken in first and timers are looked at then, so bytes in hand are
never given up. Nothing depends on how the input was cut into blocks.

A hole opens when something behind NEXT+1 arrives. It is given up
 - a reorder window after it opened (or after data last came at its front), if the peer has
   acknowledged all of it: the peer had the bytes, the tap did not. An acknowledgement that comes
   only after that window starts a window of its own, because the retransmission that it answers may
   be captured just after it (multi-queue taps show acknowledgements before data);
 - equally if no packet of the peer was captured: nobody can acknowledge;
 - else, as a retransmission is due, only after `unacked_hole_ms`;
 - when too many bytes wait (notice held_bytes_limit; the oldest hole of the connection, or the
   holes due first of all), when its connection ends, at the end of the capture.
That the other side talks proves nothing. Acknowledged bytes behind everything seen are a hole
without data behind it and are given up a window after the acknowledgement; a single byte is not,
for it may be a FIN that was not captured. A hole of more than 64 MiB with a single segment behind
it and no acknowledgement is not believed: that segment is dropped.

Turns. The turn of a range is the largest packet number of it and all earlier ranges of its side.
Both sides leave merged by turn. While one side has a hole, the other's ranges wait if their turn is
not below that of the first segment behind the hole, so that an answer never passes a question that
waits; at most one reorder window after the hole opened.

Beginnings. Offset 0 is the byte after the SYN, also where that is only known from the peer's
acknowledgement of it. A side seen from the middle on has its first sequence number as offset 0;
for one reorder window nothing of it leaves, so that overtaken first packets find their place
(negative offsets).

Copies by the tap change nothing but their counter (duplicates.py). Bytes seen before are counted
as retransmitted and compared only while they wait (pending.py). Damaged segments wait for a better
copy (doubt.py). A range is marked as sent again by what was known when it left: a frame that is out
is out, so a copy that comes later is in the counters of its connection only.

Bounds: waiting bytes, in all and per connection, every waiting segment charged in addition; live
connections, the least recently used going first; SYN-only and closed connections apart and lower.
What a packet costs does not grow with what waits, beyond a logarithm, nor with the numbers in it:
lists whose length the input decides count their steps, and tests hold the count.

The fast path takes what almost all packets are: data exactly at NEXT, or a bare acknowledgement,
on a connection where nothing waits. Its range points into the input; nothing is copied.
"""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import CLOCK_LEAP_MS, MAX_ACK_REACH, NULL
from dissector.notices import NOTICE_NUMBER
from dissector.packet.columns import PacketBuffers, SegmentColumns
from dissector.stream import layout
from dissector.stream.arrival import note_early, take_packet
from dissector.stream.columns import (
    DATA,
    ENDED_CAPTURE_END,
    ENDED_IDLE,
    ENDED_REUSED,
    ENDS_PACKET,
    STARTS_PACKET,
)
from dissector.stream.connections import (
    Key,
    close_now,
    expire,
    find_connection,
    key_at,
    make_ready,
    open_connection,
    retire,
    set_clock,
    side_at,
)
from dissector.stream.doubt import WRONG, checksum_of
from dissector.stream.duplicates import note_identification, remember, remembered, signature
from dissector.stream.handshake import OURS, REUSE, judge_syn
from dissector.stream.layout import (
    ACKED,
    BITS,
    CLOCK,
    DONE,
    FULL,
    LAST_TS,
    NEED_HEAP,
    NEED_NODES,
    NEED_ROWS,
    NEXT,
    NODE_CELLS,
    ORIGIN,
    PACKETS,
    ROWS_OUT,
    SIDE_BITS,
    SIDE_HAS_ORIGIN,
    TCP_ACK,
    TCP_SYN,
    TOP,
    VERDICT,
)
from dissector.stream.output import Piece, note, put_range
from dissector.stream.release import arm_missing_end, fire_timers, release, relieve
from dissector.stream.segment import Segment, segment_at
from dissector.stream.sequence import distance, sequence_at
from dissector.stream.state import StreamState
from dissector.stream.tags import find_tagged, inherit_tags, keep_tag

_LEAP_NS: Final = CLOCK_LEAP_MS * 1_000_000
_PORT_REUSED: Final = NOTICE_NUMBER["port_reused"]
_SPARE_NODES: Final = 8
_NOTICE_ROOM: Final = 16  # more than one packet can cause before anything is released


@inlined
def _room_for(state: StreamState, segment: Segment) -> int:
    """Whether a segment can be taken in whole; else what stops it."""
    registers = state.registers
    if registers[layout.NOTICES_OUT] + _NOTICE_ROOM > len(state.notices.packet):
        return FULL
    if registers[layout.HEAP_USED] + segment.captured_bytes > len(state.heap):
        return NEED_HEAP
    free = registers[layout.FREE_NODES]
    # One node per waiting node that the segment can touch; those for its ends, cut and FIN.
    waiting = len(state.nodes) // NODE_CELLS - free
    if free < min(segment.wire_bytes, waiting) + _SPARE_NODES:
        return NEED_NODES
    if registers[layout.FREE_ROWS] < 1:
        return NEED_ROWS
    return DONE


@inlined
def _connection_of(state: StreamState, key: Key, segment: Segment) -> int:
    """The row of the connection that a segment belongs to; closes and opens ones as needed."""
    cells = state.cells
    registers = state.registers
    registers[VERDICT] = OURS
    base = find_tagged(state, key, segment)
    before = -1
    if base >= 0:
        last = cells[base + LAST_TS]
        if last != NULL and segment.ts_ns > last + registers[layout.IDLE_NS]:
            close_now(state, base, ENDED_IDLE)
            before, base = base, -1
        elif segment.flags & TCP_SYN:
            side_no = key.is_upper ^ (cells[base + BITS] & 1)
            registers[VERDICT] = judge_syn(cells, base, side_no, segment)
            if registers[VERDICT] == REUSE:
                note(state, base, _PORT_REUSED, side_no, NULL, NULL)
                close_now(state, base, ENDED_REUSED)
                before, base = base, -1
    if base < 0:
        registers[VERDICT] = OURS
        base = open_connection(state, key, segment)
        inherit_tags(state, base, before, key)
    keep_tag(cells, base, key)
    return base


@kernel
def _take_slowly(
    state: StreamState, segments: SegmentColumns, row: int, buffers: PacketBuffers
) -> int:
    """Take one segment in; what it lets out is released afterwards. DONE or what stops it."""
    registers = state.registers
    segment = segment_at(segments, row)
    stop = _room_for(state, segment)
    if stop != DONE:
        return stop
    registers[layout.PACKET] = segment.packet
    second = registers[layout.CLOCK_TICK]
    set_clock(state, segment.ts_ns, _LEAP_NS)
    if registers[layout.CLOCK_TICK] != second:
        expire(state)
    key = key_at(segments, row)
    base = _connection_of(state, key, segment)
    side_no = key.is_upper ^ (state.cells[base + BITS] & 1)
    if segment.source == 0:
        take_packet(state, base, side_no, segment, buffers.block)
    else:
        take_packet(state, base, side_no, segment, buffers.side)
    make_ready(state, base)
    fire_timers(state)
    return DONE


@inlined
def _is_plain(state: StreamState, base: int, side: int, segment: Segment) -> bool:
    """Whether the fast path may take a segment: nothing odd about it, its connection, the time."""
    cells = state.cells
    registers = state.registers
    ts_ns = segment.ts_ns
    clock = max(ts_ns, registers[CLOCK])
    return (
        cells[base + layout.SLOW] == 0
        and segment.flags == TCP_ACK
        and segment.window != 0
        and segment.captured_bytes == segment.wire_bytes
        and segment.sequence == sequence_at(cells[side + ORIGIN], cells[side + NEXT])
        and cells[side + SIDE_BITS] & SIDE_HAS_ORIGIN != 0
        and ts_ns <= cells[base + LAST_TS] + registers[layout.IDLE_NS]
        and clock < registers[layout.TICK_END]
        and cells[base + layout.TICK] == registers[layout.CLOCK_TICK]
        and (state.timers[0] == 0 or state.timers[3] > clock)
    )


@inlined
def _acknowledge(state: StreamState, base: int, side_no: int, segment: Segment) -> bool:
    """The fast path's share of an acknowledgement; False: it is odd, nothing was changed."""
    cells = state.cells
    peer = side_at(base, 1 - side_no)
    if not cells[peer + SIDE_BITS] & SIDE_HAS_ORIGIN:
        note_early(cells, peer, segment.acknowledgement)
        return True
    before = cells[peer + ACKED]
    gain = distance(segment.acknowledgement, sequence_at(cells[peer + ORIGIN], before))
    if gain > 0:
        target = before + gain
        top = cells[peer + TOP]
        if target > top + MAX_ACK_REACH:
            return False
        cells[peer + ACKED] = target
        if before <= top < target:
            cells[peer + layout.ACK_SINCE] = state.registers[CLOCK]
            if cells[peer + layout.TIMER] == 0:
                arm_missing_end(state, base, 1 - side_no)
    return True


@inlined
def _take_fast(
    state: StreamState, segments: SegmentColumns, row: int, buffers: PacketBuffers
) -> bool:
    """Take a plain segment: in order, of a connection where nothing waits; False: not plain."""
    cells = state.cells
    registers = state.registers
    segment = segment_at(segments, row)
    key = key_at(segments, row)
    base = find_connection(cells, state.index, key)
    if base < 0:
        return False
    side_no = key.is_upper ^ (cells[base + BITS] & 1)
    side = side_at(base, side_no)
    if not _is_plain(state, base, side, segment):
        return False
    way = cells[base + layout.CONNECTION_ID] * 2 + side_no
    length = segment.wire_bytes
    data = buffers.block if segment.source == 0 else buffers.side
    value = signature(segment, way, data)
    letter = layout.LETTER_DATA if length > 0 else layout.LETTER_ACK
    if not cells[base + layout.HISTORY_SEEN] >> (letter + 9 * side_no) & 1:
        return False
    if length == 0 and remembered(state.signatures, value, segment.ts_ns) != NULL:
        return False
    # Where a side's checksums say nothing, no packet is read for them.
    if cells[side + layout.GOOD_CHECKSUMS] > 0:
        if checksum_of(cells[base + layout.ADDRESS_SUM], segment, data) == WRONG:
            return False
        cells[side + layout.GOOD_CHECKSUMS] += 1
    registers[CLOCK] = max(registers[CLOCK], segment.ts_ns)
    registers[layout.LEAP_TS] = -layout.NEVER
    if not _acknowledge(state, base, side_no, segment):
        return False
    remember(state.signatures, value, segment.ts_ns)
    registers[layout.PACKET] = segment.packet
    cells[side + PACKETS] += 1
    cells[side + layout.LAST_TSVAL] = segment.tsval
    note_identification(cells, side, segment.ip_id)
    cells[base + layout.LAST_PACKET] = segment.packet
    cells[base + LAST_TS] = max(cells[base + LAST_TS], segment.ts_ns)
    if length > 0:
        _pass_through(state, base, side_no, segment)
    return True


@inlined
def _pass_through(state: StreamState, base: int, side_no: int, segment: Segment) -> None:
    """The payload of a plain segment leaves as it came, where it lies."""
    cells = state.cells
    side = side_at(base, side_no)
    length = segment.wire_bytes
    start = cells[side + NEXT]
    put_range(
        state,
        base,
        Piece(
            side_no,
            DATA,
            start,
            length,
            0 if segment.source == 0 else 2,
            segment.offset,
            segment.packet,
            segment.ts_ns,
            STARTS_PACKET | ENDS_PACKET,
            0,
        ),
    )
    cells[side + NEXT] = start + length
    cells[side + TOP] = start + length
    cells[side + layout.TURN] = max(cells[side + layout.TURN], segment.packet)
    cells[side + layout.RANGE_PACKET] = segment.packet
    cells[side + layout.RANGE_TS] = segment.ts_ns
    cells[side + layout.PAYLOAD_BYTES] += length
    cells[side + layout.STREAM_BYTES] += length
    cells[side + SIDE_BITS] |= layout.SIDE_RELEASED
    if cells[side + ACKED] > start + length:
        cells[side + layout.ACK_SINCE] = state.registers[CLOCK]


@kernel
def advance(state: StreamState, segments: SegmentColumns, rows: int, buffers: PacketBuffers) -> int:
    """Take segments in from row registers[ROW] on and let out what may leave.

    Returns:
        DONE: all rows are through; FULL: take ranges and notices away first; NEED_*: make room.
    """
    registers = state.registers
    row = registers[layout.ROW]
    width = len(state.ranges.packet)
    status = DONE
    while True:
        if state.ready[0] > 0:
            status = release(state)
            if status != DONE:
                break
        if registers[layout.HELD_TOTAL] > registers[layout.HELD_LIMIT] and relieve(state) > 0:
            continue
        if row >= rows:
            break
        if registers[ROWS_OUT] >= width:
            status = FULL
            break
        if not _take_fast(state, segments, row, buffers):
            status = _take_slowly(state, segments, row, buffers)
            if status != DONE:
                break
        row += 1
    registers[layout.ROW] = row
    return status


@kernel
def end_all(state: StreamState) -> None:
    """The capture ends: nothing more is waited for; what is closed may be written."""
    cells = state.cells
    base = state.registers[layout.LIST_HEAD + layout.LIST_LINGERING]
    while base >= 0:
        retire(state, base)
        base = state.registers[layout.LIST_HEAD + layout.LIST_LINGERING]
    for kind in range(layout.LIST_LINGERING):
        base = state.registers[layout.LIST_HEAD + kind]
        while base >= 0:
            following = cells[base + layout.FOLLOWING]
            close_now(state, base, ENDED_CAPTURE_END)
            base = following
