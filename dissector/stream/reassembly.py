"""Segments to streams: the bytes of each direction in order, each once, and what is missing.

Theory. A side of a connection has an offset `released`: everything before it has left, as data, as
a gap that was never captured (GAP_LOST) or as one that the snap length cut off (GAP_CUT). Segments
beyond it wait in a sorted list without overlaps (out_of_order.py). FIN is a member of that list, so
the end of a stream is reached when everything before it was.

Clock. Decisions depend on the processing clock only: the largest capture time so far, looked at
with every packet. A packet is brought in first and timers are looked at then, so bytes in hand are
never given up. Nothing depends on how the input was cut into blocks.

A hole opens when something behind `released` arrives. It is given up
 - a reorder window after it opened (or after data last came at its front), if the peer has
   acknowledged all of it: the peer had the bytes, the tap did not. An acknowledgement that comes
   only after that window starts a window of its own, because the retransmission that it answers may
   be captured just after it (multi-queue taps show acknowledgements before data);
 - equally if no packet of the peer was captured: nobody can acknowledge;
 - else, as a retransmission is due, only after `unacked_hole_ms`;
 - when too many bytes wait (notice held_bytes_limit; the oldest hole of the connection, or the
   holes due first of all), when its connection ends, at the end of the capture.
That the other side talks proves nothing. Acknowledged bytes behind everything seen are a hole
without data behind it: given up a window after the acknowledgement, once their sender's own numbers
say that it sent them, and at the end unless these deny it. A single byte is not, for it may be a
FIN that was not captured. A hole of more than 64 MiB with a single segment behind it and no
acknowledgement is not believed: that segment is dropped. A hole beyond every window is none at all
(numbering.py).

Order. A range is ordered by the largest packet number of it and all earlier ranges of its side; by
that both sides leave merged. What is missing was sent before the first segment behind it, nobody
knows when: a hole has that one's place, behind all that its bytes may answer, and a missing end is
last. While one side has a hole, the other's ranges wait if their number is
not below that of the first segment behind the hole, so that an answer never passes a question that
waits; at most one reorder window after the hole opened.

Beginnings. Offset 0 is the byte after the SYN, also where that is only known from the peer's
acknowledgement of it. A side seen from the middle on has its first sequence number as offset 0;
for one reorder window nothing of it leaves, so that overtaken first packets find their place
(negative offsets).

Copies by the tap change nothing but their counter (duplicates.py). Bytes seen before are counted
as retransmitted and compared only while they wait (out_of_order.py). Damaged segments wait for a
better copy (checksums.py). A range is marked as sent again by what was known when it left: a frame
that is out is out, so a copy that comes later is in the counters of its connection only. What waits
for nothing but its start is marked no more than if it had left: a boundary marks no frames.

Bounds: waiting bytes, in all and per connection, every waiting segment charged in addition; live
connections, the least recently used going first; SYN-only and closed connections apart and lower.
What a packet costs does not grow with what waits, beyond a logarithm, nor with the numbers in it:
lists whose length the input decides count their steps, and tests hold the count.

The fast path takes what almost all packets are: data exactly at `released`, or a bare
acknowledgement, on a connection where nothing waits. Its range points into the input; nothing is
copied.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel
from dissector.limits import CLOCK_LEAP_MS, NULL, TAG_REACH_BYTES
from dissector.notice_rows import has_room
from dissector.notices import NOTICE_NUMBER
from dissector.packet.columns import PacketBuffers, SegmentColumns
from dissector.stream import columns, records
from dissector.stream import connections as stream_connections
from dissector.stream.arrival import note_raw_ack, receive_segment
from dissector.stream.checksums import ChecksumState, checksum_of, looks_damaged
from dissector.stream.columns import RangeKind, RangeSource
from dissector.stream.connections import ConnectionKey
from dissector.stream.duplicates import note_ip_id, remember, remembered, signature
from dissector.stream.handshake import Belonging, classify_syn
from dissector.stream.history import LETTER_ACK, LETTER_DATA, has_letter
from dissector.stream.numbering import in_first_numbering
from dissector.stream.output import Range, note_direction, put_range
from dissector.stream.release import await_missing_end, fire_timers, release, relieve
from dissector.stream.segment import Segment, segment_at
from dissector.stream.sequence import distance, offset_near, sequence_at
from dissector.stream.state import StreamState, StreamStatus
from dissector.stream.tags import find_tagged, inherit_tags, keep_tag

_LEAP_NS: Final = CLOCK_LEAP_MS * 1_000_000
_PORT_REUSED: Final = NOTICE_NUMBER["port_reused"]
_SPARE_NODES: Final = 8
_SPARE_NOTICES: Final = 16  # more than one packet can cause before anything is released


@inlined
def _check_capacity(state: StreamState, segment: Segment) -> StreamStatus:
    """DONE if a whole segment fits, or the status that stops the kernel."""
    counters = state.counters
    if not has_room(state.notices, _SPARE_NOTICES):
        return StreamStatus.FULL
    if counters.heap_used[0] + segment.captured_bytes > len(state.heap):
        return StreamStatus.NEED_HEAP
    free = state.free_nodes.free[0]
    # One node per waiting node that the segment can touch; those for its ends, cut and FIN.
    waiting = len(state.free_nodes.rows) - free
    if free < min(segment.wire_bytes, waiting) + _SPARE_NODES:
        return StreamStatus.NEED_NODES
    if state.free_connections.free[0] < 1:
        return StreamStatus.NEED_ROWS
    return StreamStatus.DONE


@inlined
def _classify(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray
) -> Belonging:
    """Classify a SYN on a known address pair; one that no sender sent as it is, is a stray."""
    addresses = state.connections.address_sum[direction_index >> 1]
    if segment.flags & records.TCP_RST or looks_damaged(
        state.directions, state.counters, direction_index, addresses, segment, data
    ):
        return Belonging.STRAY
    return classify_syn(state, direction_index, segment, data)


@inlined
def _inherit_isn(state: StreamState, connection: int, before: int, key: ConnectionKey) -> None:
    """Keep the number of an unanswered SYN: the next answer may acknowledge it."""
    connections = state.connections
    isn = state.directions.isn[stream_connections.direction_of(connections, before, key.is_upper)]
    state.directions.other_isn[
        stream_connections.direction_of(connections, connection, key.is_upper)
    ] = isn


@kernel
def _connection_of(
    state: StreamState, key: ConnectionKey, segment: Segment, data: ByteArray
) -> tuple[int, bool]:
    """The row of a segment's connection; closes and opens connections as needed.

    Returns:
        The row, and whether the segment is a SYN that says nothing about the connection.
    """
    connections = state.connections
    row = find_tagged(state, key, segment, data)
    before = -1
    is_stray = False
    is_lone_syn = False
    if row >= 0:
        direction_index = stream_connections.direction_of(connections, row, key.is_upper)
        last = connections.last_ts_ns[row]
        if last != NULL and segment.ts_ns > last + state.settings.idle_timeout_ns[0]:
            stream_connections.close_now(state, row, columns.ENDED_IDLE)
            before, row = row, -1
        elif segment.flags & records.TCP_SYN:
            syn = _classify(state, direction_index, segment, data)
            is_stray = syn == Belonging.STRAY
            if syn == Belonging.REUSE:
                is_lone_syn = connections.lru_list[row] == records.LRU_SYN_ONLY
                note_direction(state, direction_index, _PORT_REUSED, NULL, NULL)
                stream_connections.close_now(state, row, columns.ENDED_REUSED)
                before, row = row, -1
    if row < 0:
        row = stream_connections.open_connection(state, key, segment)
        inherit_tags(state, row, before, key)
        if is_lone_syn:
            _inherit_isn(state, row, before, key)
    keep_tag(state, row, key)
    return row, is_stray


@inlined
def _note_place(
    state: StreamState, segments: SegmentColumns, row: int, direction_index: int, sequence: int
) -> None:
    """Write the stream and offset of a segment's payload to its row, if notes_places is set."""
    if not state.settings.notes_places[0]:
        return
    directions = state.directions
    origin = directions.origin[direction_index]
    connection_id = state.connections.connection_id[direction_index >> 1]
    is_known = directions.has_origin[direction_index] != 0
    segments.stream[row] = connection_id * 2 + (direction_index & 1) if is_known else -1
    segments.stream_offset[row] = offset_near(
        sequence, origin, directions.released[direction_index]
    )
    segments.origin[row] = origin


@kernel
def _receive_slow(
    state: StreamState, segments: SegmentColumns, row: int, buffers: PacketBuffers
) -> StreamStatus:
    """Process one segment, for `release` to emit what can leave; DONE or the status that stops."""
    counters = state.counters
    segment = segment_at(segments, row)
    stop = _check_capacity(state, segment)
    if stop != StreamStatus.DONE:
        return stop
    counters.packet[0] = segment.packet
    counters.hop_limit[0] = segments.hop_limit[row]
    second = counters.second[0]
    stream_connections.set_clock(counters, segment.ts_ns, _LEAP_NS)
    if counters.second[0] != second:
        stream_connections.expire(state)
    key = stream_connections.key_at(segments, row, state.secret)
    data = buffers.block if segment.source == 0 else buffers.assembled
    known = stream_connections.find_connection(state, key)
    if known >= 0:
        direction_index = stream_connections.direction_of(state.connections, known, key.is_upper)
        segment = in_first_numbering(state, direction_index, segment, data)
    connection, is_stray = _connection_of(state, key, segment, data)
    direction_index = stream_connections.direction_of(state.connections, connection, key.is_upper)
    receive_segment(state, direction_index, segment, data, is_stray)
    is_syn = int(segment.flags & records.TCP_SYN != 0)
    _note_place(state, segments, row, direction_index, segment.sequence + is_syn)
    stream_connections.make_ready(state, connection)
    fire_timers(state)
    return StreamStatus.DONE


@inlined
def _is_plain(state: StreamState, direction_index: int, segment: Segment) -> bool:
    """Whether the fast path can handle a segment, by its fields, its connection and the clock."""
    connections = state.connections
    directions = state.directions
    counters = state.counters
    timers = state.timers
    connection = direction_index >> 1
    ts_ns = segment.ts_ns
    clock = max(ts_ns, counters.clock[0])
    return (
        connections.is_slow[connection] == 0
        and segment.flags == records.TCP_ACK
        and segment.window != 0
        and segment.captured_bytes == segment.wire_bytes
        and segment.sequence
        == sequence_at(directions.origin[direction_index], directions.released[direction_index])
        and directions.has_origin[direction_index] != 0
        and ts_ns <= connections.last_ts_ns[connection] + state.settings.idle_timeout_ns[0]
        and clock < counters.second_end[0]
        and connections.last_second[connection] == counters.second[0]
        and (timers.size[0] == 0 or timers.entries.key[1] > clock)
    )


@inlined
def _acknowledge(state: StreamState, direction_index: int, segment: Segment) -> bool:
    """Apply an acknowledgement on the fast path; False: it needs the slow path, nothing changed."""
    directions = state.directions
    peer = direction_index ^ 1
    if not directions.has_origin[peer]:
        note_raw_ack(directions, peer, segment.acknowledgement)
        return True
    before = directions.acked[peer]
    gain = distance(segment.acknowledgement, sequence_at(directions.origin[peer], before))
    target, highest = before + gain, directions.highest[peer]
    if segment.wire_bytes and target > highest + 1:
        return False  # it may have to wait for the bytes that it answers
    if gain > 0:
        if target > highest + TAG_REACH_BYTES:
            return False
        directions.acked[peer] = target
        if target > highest:
            directions.acked_since[peer] = state.counters.clock[0]
            if directions.sent[peer] > highest and directions.timer_position[peer] == 0:
                await_missing_end(state, peer)
    return True


@inlined
def _receive_fast(
    state: StreamState, segments: SegmentColumns, row: int, buffers: PacketBuffers
) -> bool:
    """Process a segment in order, of a connection where nothing waits; False: it is none."""
    connections = state.connections
    directions = state.directions
    counters = state.counters
    segment = segment_at(segments, row)
    key = stream_connections.key_at(segments, row, state.secret)
    connection = stream_connections.find_connection(state, key)
    if connection < 0:
        return False
    direction_index = stream_connections.direction_of(connections, connection, key.is_upper)
    if not _is_plain(state, direction_index, segment):
        return False
    length = segment.wire_bytes
    data = buffers.block if segment.source == 0 else buffers.assembled
    direction = connections.connection_id[connection] * 2 + (direction_index & 1)
    value = signature(segment, direction, data)
    if not has_letter(connections, direction_index, LETTER_DATA if length > 0 else LETTER_ACK):
        return False
    if length == 0 and remembered(state.signatures, value, segment.ts_ns) != NULL:
        return False
    # If no checksum of a side was right so far, none is computed.
    if directions.right_checksums[direction_index] > 0:
        if checksum_of(connections.address_sum[connection], segment, data) == ChecksumState.WRONG:
            return False
        directions.right_checksums[direction_index] += 1
    counters.clock[0] = max(counters.clock[0], segment.ts_ns)
    counters.leap_ts_ns[0] = -records.NEVER
    if not _acknowledge(state, direction_index, segment):
        return False
    remember(state.signatures, value, segment.ts_ns)
    counters.packet[0] = segment.packet
    directions.packets[direction_index] += 1
    directions.last_tsval[direction_index] = segment.tsval
    note_ip_id(directions, direction_index, segment.ip_id)
    connections.last_packet[connection] = segment.packet
    connections.last_ts_ns[connection] = max(connections.last_ts_ns[connection], segment.ts_ns)
    if directions.acked[direction_index] > directions.released[direction_index]:
        directions.denied_at[direction_index] = counters.clock[0]
    _note_place(state, segments, row, direction_index, segment.sequence)
    if length > 0:
        _pass_through(state, direction_index, segment)
    return True


@inlined
def _pass_through(state: StreamState, direction_index: int, segment: Segment) -> None:
    """Emit the payload of a plain segment as a range of the input buffer."""
    directions = state.directions
    length = segment.wire_bytes
    start = directions.released[direction_index]
    source = RangeSource.BLOCK if segment.source == 0 else RangeSource.SIDE
    packet = segment.packet
    ts_ns = segment.ts_ns
    flags = columns.STARTS_PACKET | columns.ENDS_PACKET
    whole = Range(RangeKind.DATA, start, length, source, segment.offset, packet, ts_ns, flags, 0)
    put_range(state, direction_index, whole)
    directions.released[direction_index] = start + length
    directions.highest[direction_index] = start + length
    directions.released_packet[direction_index] = max(
        directions.released_packet[direction_index], packet
    )
    directions.range_packet[direction_index] = packet
    directions.range_ts_ns[direction_index] = ts_ns
    directions.payload_bytes[direction_index] += length
    directions.stream_bytes[direction_index] += length
    directions.has_released[direction_index] = 1
    if directions.acked[direction_index] > start + length:
        directions.progress_at[direction_index] = state.counters.clock[0]


@kernel
def advance(
    state: StreamState, segments: SegmentColumns, rows: int, buffers: PacketBuffers
) -> StreamStatus:
    """Process segments from row counters.row on and emit ranges that may leave.

    Returns:
        DONE: all rows are processed; FULL: empty the ranges and notices first; NEED_*: grow.
    """
    counters = state.counters
    row = counters.row[0]
    width = len(state.ranges.packet)
    status = StreamStatus.DONE
    while True:
        if state.ready.size[0] > 0:
            status = release(state)
            if status != StreamStatus.DONE:
                break
        if counters.held_bytes[0] > state.settings.held_bytes[0] and relieve(state) > 0:
            continue
        if row >= rows:
            break
        if counters.ranges[0] >= width:
            status = StreamStatus.FULL
            break
        if not _receive_fast(state, segments, row, buffers):
            status = _receive_slow(state, segments, row, buffers)
            if status != StreamStatus.DONE:
                break
        row += 1
    counters.row[0] = row
    return status


@kernel
def end_all(state: StreamState) -> None:
    """End the capture: close all connections, retire the closed ones."""
    for _ in range(state.lru.length[records.LRU_LINGERING]):
        stream_connections.retire(state, state.lru.first[records.LRU_LINGERING])
    for kind in range(records.LRU_LINGERING):
        connection = state.lru.first[kind]
        for _ in range(state.lru.length[kind]):
            after = state.connections.next[connection]
            stream_connections.close_now(state, connection, columns.ENDED_CAPTURE_END)
            connection = after
