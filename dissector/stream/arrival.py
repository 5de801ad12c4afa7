"""The slow path of a segment: it changes its connection and inserts its bytes; nothing leaves here.

The fast path handles none of these: first packets, SYN, FIN, RST, anything out of order or seen
before, zero windows, closed connections. Data is always inserted among the waiting nodes;
release.py emits it in the same step if nothing is missing before it.
"""

from typing import Final

from dissector import limits
from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.stream import duplicates, handshake, history, records
from dissector.stream.checksums import is_damaged
from dissector.stream.columns import RangeKind
from dissector.stream.connections import join_list, touch
from dissector.stream.numbering import ack_reach, is_beyond, is_no_answer
from dissector.stream.out_of_order import Inserted, SegmentSpan, insert
from dissector.stream.output import note_direction
from dissector.stream.records import Directions
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, offset_near, sequence_at
from dissector.stream.state import StreamState
from dissector.stream.teardown import receive_fin, receive_rst
from dissector.stream.translations import LOOKS, look_for_original

_OVERLAP_CONFLICT: Final = NOTICE_NUMBER["overlap_conflict"]
_TWO_CLOCKS: Final = NOTICE_NUMBER["two_clocks"]
_URGENT_DATA: Final = NOTICE_NUMBER["urgent_data"]
_WRONG_CHECKSUM: Final = NOTICE_NUMBER["wrong_checksum"]
_SEQUENCE_JUMP: Final = NOTICE_NUMBER["sequence_jump"]


@kernel
def _count_packet(state: StreamState, direction_index: int, segment: Segment) -> None:
    """Update the counters and the history that every packet changes."""
    connections = state.connections
    directions = state.directions
    connection = direction_index >> 1
    touch(state, connection)
    directions.packets[direction_index] += 1
    directions.payload_bytes[direction_index] += segment.wire_bytes
    connections.last_packet[connection] = segment.packet
    connections.last_ts_ns[connection] = max(connections.last_ts_ns[connection], segment.ts_ns)
    if directions.first_seq[direction_index] == NULL:
        directions.first_seq[direction_index] = segment.sequence
        directions.range_packet[direction_index] = segment.packet
        directions.range_ts_ns[direction_index] = segment.ts_ns
    flags = segment.flags
    if flags & records.TCP_SYN:
        history.add_letter(
            connections,
            direction_index,
            history.LETTER_SYN_ACK if flags & records.TCP_ACK else history.LETTER_SYN,
        )
    elif (
        flags & records.TCP_ACK
        and segment.wire_bytes == 0
        and not flags & (records.TCP_FIN | records.TCP_RST)
    ):
        history.add_letter(connections, direction_index, history.LETTER_ACK)
    if segment.wire_bytes > 0:
        history.add_letter(connections, direction_index, history.LETTER_DATA)
    if flags & records.TCP_FIN:
        history.add_letter(connections, direction_index, history.LETTER_FIN)
    if flags & records.TCP_RST:
        history.add_letter(connections, direction_index, history.LETTER_RST)


@kernel
def _is_copy(state: StreamState, direction_index: int, segment: Segment, data: ByteArray) -> bool:
    """Whether the tap has shown this packet before; remembers it if not."""
    connections = state.connections
    connection = direction_index >> 1
    value = duplicates.signature(
        segment, connections.connection_id[connection] * 2 + (direction_index & 1), data
    )
    apart = duplicates.remembered(state.signatures, value, segment.ts_ns)
    is_copy = False
    if 0 <= apart <= duplicates.WINDOW_NS:
        is_bare = segment.wire_bytes == 0 and not segment.flags & (
            records.TCP_SYN | records.TCP_FIN | records.TCP_RST
        )
        has_id = not (is_bare and segment.ip_id <= 0)
        is_copy = has_id or connections.has_copies[connection] != 0
    elif apart >= 0 and duplicates.is_old_packet(state.directions, direction_index, segment):
        is_copy = True
        if not connections.has_two_clocks[connection]:
            connections.has_two_clocks[connection] = 1
            note_direction(state, direction_index, _TWO_CLOCKS, NULL, apart)
    if not is_copy:
        duplicates.remember(state.signatures, value, segment.ts_ns)
        return False
    if segment.wire_bytes > 0:
        connections.has_copies[connection] = 1
    state.directions.duplicate_packets[direction_index] += 1
    return True


@kernel
def receive_segment(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray, is_stray: bool
) -> None:
    """Apply a segment to its connection.

    data: the buffer that holds its payload; is_stray: it is a SYN that belongs to no stream.
    """
    connections = state.connections
    directions = state.directions
    connection = direction_index >> 1
    _count_packet(state, direction_index, segment)
    if _is_copy(state, direction_index, segment, data):
        return
    if connections.looks[connection] < LOOKS:
        look_for_original(state, connection, segment, data)
    if connections.ended_packet[connection] != NULL:
        _count_late(directions, direction_index, segment)
        return
    if is_stray:
        _drop(directions, direction_index, segment)
        return
    state.counters.answers[0] = -records.NEVER
    duplicates.note_ip_id(directions, direction_index, segment.ip_id)
    addresses = connections.address_sum[connection]
    if is_damaged(directions, state.counters, direction_index, addresses, segment, data):
        _receive_damaged(state, direction_index, segment, data)
        return
    if not segment.flags & records.TCP_SYN and is_no_answer(directions, direction_index, segment):
        _drop(directions, direction_index, segment)
        return
    state.counters.is_damaged[0] = 0
    directions.last_tsval[direction_index] = segment.tsval
    is_plain_syn = segment.flags & (records.TCP_SYN | records.TCP_ACK) == records.TCP_SYN
    if connections.lru_list[connection] == records.LRU_SYN_ONLY and not is_plain_syn:
        join_list(state, connection, records.LRU_OPEN)
    if segment.flags & records.TCP_SYN:
        handshake.receive_syn(state, direction_index, segment, data)
    elif not directions.has_origin[direction_index]:
        handshake.start_midstream(state, direction_index, segment)
    if not segment.flags & records.TCP_SYN:
        handshake.measure_handshake(connections, direction_index, segment)
    if segment.flags & records.TCP_ACK:
        _receive_acknowledgement(state, direction_index, segment)
    if not segment.flags & (records.TCP_SYN | records.TCP_RST):
        _measure_zero_window(state, direction_index, segment)
    if segment.flags & records.TCP_RST:
        directions.dropped_bytes[direction_index] += segment.wire_bytes
        receive_rst(state, direction_index, segment)
        return
    start = segment.sequence + (1 if segment.flags & records.TCP_SYN else 0)
    offset = offset_near(
        start, directions.origin[direction_index], directions.released[direction_index]
    )
    if segment.flags & records.TCP_URG and not directions.has_urgent[direction_index]:
        directions.has_urgent[direction_index] = 1
        note_direction(state, direction_index, _URGENT_DATA, offset, segment.wire_bytes)
    _note_own_number(state, direction_index, offset)
    if segment.wire_bytes > 0 or segment.flags & records.TCP_FIN:
        _receive_payload(state, direction_index, segment, data, offset)
    elif (
        _is_last_number(directions, direction_index, offset) and not segment.flags & records.TCP_SYN
    ):
        directions.keepalive_packets[direction_index] += 1


@kernel
def _receive_damaged(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray
) -> None:
    """Insert the payload of a damaged segment to wait for a better copy; ignore its header."""
    directions = state.directions
    offset = offset_near(
        segment.sequence, directions.origin[direction_index], directions.released[direction_index]
    )
    note_direction(state, direction_index, _WRONG_CHECKSUM, offset, segment.wire_bytes)
    if (
        segment.wire_bytes == 0
        or segment.flags & (records.TCP_SYN | records.TCP_RST)
        or not directions.has_origin[direction_index]
        or abs(offset - directions.highest[direction_index]) > limits.RST_REACH_BYTES
    ):
        _drop(directions, direction_index, segment)
        return
    state.counters.is_damaged[0] = 1
    _receive_payload(state, direction_index, segment, data, offset)


@inlined
def _drop(directions: Directions, direction_index: int, segment: Segment) -> None:
    """Count a packet whose numbers do not belong to its stream."""
    directions.stray_packets[direction_index] += 1
    directions.dropped_bytes[direction_index] += segment.wire_bytes


@inlined
def _note_own_number(state: StreamState, direction_index: int, offset: int) -> None:
    """Note what a packet's own number says of bytes that its peer acknowledged beyond all seen."""
    directions = state.directions
    highest = directions.highest[direction_index]
    if highest < offset <= highest + ack_reach(directions, direction_index):
        directions.sent[direction_index] = max(directions.sent[direction_index], offset)
    elif offset == highest < directions.acked[direction_index]:
        directions.denied_at[direction_index] = state.counters.clock[0]


@inlined
def _is_last_number(directions: Directions, direction_index: int, offset: int) -> bool:
    """Whether an offset is that of the last sequence number used, as in keep-alives.

    A FIN has a number too: after one that overtook it, the last byte is data, not a keep-alive.
    """
    return bool(
        offset
        == directions.highest[direction_index] - (0 if directions.fin_seen[direction_index] else 1)
    )


@inlined
def _count_late(directions: Directions, direction_index: int, segment: Segment) -> None:
    """Count a packet of a closed connection: its bytes belong to no stream."""
    if segment.wire_bytes == 0:
        return
    start = offset_near(
        segment.sequence, directions.origin[direction_index], directions.released[direction_index]
    )
    if start + segment.wire_bytes <= directions.highest[direction_index]:
        directions.retransmitted_packets[direction_index] += 1
    else:
        directions.late_packets[direction_index] += 1
        directions.late_bytes[direction_index] += segment.wire_bytes
        directions.dropped_bytes[direction_index] += segment.wire_bytes


@inlined
def note_raw_ack(directions: Directions, peer: int, number: int) -> None:
    """Keep the highest acknowledgement of a side of which no packet was captured yet."""
    is_first = not directions.has_raw_ack[peer]
    if is_first or distance(number, directions.acked[peer]) > 0:
        directions.acked[peer] = number
        directions.has_raw_ack[peer] = 1


@kernel
def _receive_acknowledgement(state: StreamState, direction_index: int, segment: Segment) -> None:
    """Note what the sender of a segment has received from its peer."""
    directions = state.directions
    clock = state.counters.clock[0]
    peer = direction_index ^ 1
    number = segment.acknowledgement
    if not directions.has_origin[peer]:
        isn = directions.isn[direction_index]
        if (
            isn != NULL
            and segment.sequence == sequence_at(isn, 1)
            and directions.packets[peer] == 0
        ):
            # The opener's first acknowledgement is that of a SYN-ACK which was not captured, unless
            # it overtook the first: so earlier bytes are welcome for a reorder window.
            directions.isn[peer] = sequence_at(number, -1)
            handshake.set_origin(directions, peer, number, clock)
            directions.start_is_open[peer] = 1
            directions.start_since[peer] = clock
        else:
            note_raw_ack(directions, peer, number)
        return
    if not segment.flags & (records.TCP_SYN | records.TCP_RST):
        handshake.confirm_start(state, direction_index, segment)
    before = directions.acked[peer]
    gain = distance(number, sequence_at(directions.origin[peer], before))
    target = before + gain
    highest = directions.highest[peer]
    if gain > 0 and target > highest + ack_reach(directions, peer):
        directions.stray_packets[direction_index] += 1
        return
    state.counters.answers[0] = target
    if gain <= 0:
        return
    head = state.heads[peer, 0]
    if head >= 0 and before < state.nodes.offset[head] <= target:
        directions.covered_at[peer] = clock
    directions.acked[peer] = target
    if target > highest:
        directions.acked_since[peer] = clock


@inlined
def _measure_zero_window(state: StreamState, direction_index: int, segment: Segment) -> None:
    """Add up the time in which a side announces a zero window."""
    directions = state.directions
    since = directions.zero_window_since[direction_index]
    if segment.window == 0:
        if since == NULL:
            directions.zero_window_since[direction_index] = segment.ts_ns
            history.add_letter(state.connections, direction_index, history.LETTER_ZERO_WINDOW)
    elif since != NULL:
        directions.zero_window_ns[direction_index] += max(0, segment.ts_ns - since)
        directions.zero_window_since[direction_index] = NULL


@kernel
def _receive_payload(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray, offset: int
) -> None:
    """Insert the payload and the FIN of a segment. offset: of its first byte in the stream."""
    directions = state.directions
    end = offset + segment.wire_bytes
    if is_beyond(directions, direction_index, offset, end):
        _drop(directions, direction_index, segment)
        note_direction(state, direction_index, _SEQUENCE_JUMP, NULL, NULL)
        return
    is_probe = segment.wire_bytes <= 1 and not segment.flags & (records.TCP_FIN | records.TCP_SYN)
    if is_probe and _is_last_number(directions, direction_index, offset):
        # A keep-alive repeats the last sequence number, with no byte or a made-up one.
        directions.keepalive_packets[direction_index] += 1
        return
    if segment.wire_bytes > 0:
        _receive_data(state, direction_index, segment, data, offset)
    if segment.flags & records.TCP_FIN and not state.counters.is_damaged[0]:
        receive_fin(state, direction_index, segment, end)


@inlined
def _first_useful(directions: Directions, direction_index: int, offset: int, end: int) -> int:
    """The offset before which bytes of a segment are old.

    Of a side seen from the middle on, and as long as nothing left, earlier bytes are welcome: any
    within reach while its start is open, later only those that join what is there.
    """
    edge = directions.released[direction_index]
    if directions.has_released[direction_index]:
        return int(edge)
    if directions.start_is_open[direction_index]:
        return int(min(edge, -limits.MAX_START_BACK))
    if directions.isn[direction_index] != NULL:
        return int(edge)
    if -limits.MAX_START_BACK <= offset < edge <= end:
        directions.released[direction_index] = offset
        return offset
    return int(edge)


@kernel
def _receive_data(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray, offset: int
) -> None:
    """Insert the bytes of a segment; count it as data, retransmission or stray."""
    directions = state.directions
    clock = state.counters.clock[0]
    end = offset + segment.wire_bytes
    limit = end
    if directions.fin_seen[direction_index]:
        limit = max(offset, min(end, directions.fin_offset[direction_index]))
    first = max(offset, _first_useful(directions, direction_index, offset, limit))
    highest = directions.highest[direction_index]
    fresh = 0
    again = min(limit, first) - offset
    # What left begins where it ends less all that left; nothing before that was ever used.
    start = directions.released[direction_index] - directions.stream_bytes[direction_index]
    directions.dropped_bytes[direction_index] += max(0, min(limit, first, start) - offset)
    if first < limit:
        inserted = _queue_bytes(state, direction_index, segment, data, (offset, first, limit))
        fresh = inserted.fresh
        again += inserted.again
        directions.highest[direction_index] = max(highest, limit)
        if first <= directions.released[direction_index]:
            directions.progress_at[direction_index] = clock
    if end > limit:
        directions.late_packets[direction_index] += 1
        directions.late_bytes[direction_index] += end - limit
        directions.dropped_bytes[direction_index] += end - limit
    was_given_up = (
        directions.gap_start[direction_index] <= offset < directions.gap_end[direction_index]
    )
    if again > 0 and (fresh > 0 or not was_given_up):
        directions.retransmitted_packets[direction_index] += 1
        history.add_letter(state.connections, direction_index, history.LETTER_RETRANSMISSION)
    elif again > 0 or (fresh > 0 and offset < highest):
        directions.out_of_order_packets[direction_index] += 1


@kernel
def _queue_bytes(
    state: StreamState,
    direction_index: int,
    segment: Segment,
    data: ByteArray,
    offsets: tuple[int, int, int],
) -> Inserted:
    """Insert the new bytes of a segment among the waiting nodes.

    offsets: in the stream, of the segment's first byte, its first useful one, and the end.
    """
    counters = state.counters
    offset, first, limit = offsets
    end = offset + segment.wire_bytes
    captured_end = min(limit, offset + segment.captured_bytes)
    packet = segment.packet
    ts_ns = segment.ts_ns
    fresh = 0
    again = 0
    if first < captured_end:
        at = segment.offset + first - offset
        is_damaged = counters.is_damaged[0]
        span = SegmentSpan(
            RangeKind.DATA, first, captured_end, at, offset, end, packet, ts_ns, is_damaged
        )
        inserted = insert(state, direction_index, span, data)
        fresh += inserted.fresh
        again += inserted.again
        if inserted.conflicts > 0:
            state.directions.conflict_bytes[direction_index] += inserted.conflicts
            at = counters.conflict_at[0]
            note_direction(state, direction_index, _OVERLAP_CONFLICT, at, inserted.conflicts)
    first = max(first, captured_end)
    if first < limit:
        span = SegmentSpan(RangeKind.GAP_CUT, first, limit, 0, offset, end, packet, ts_ns, 0)
        inserted = insert(state, direction_index, span, data)
        fresh += inserted.fresh
        again += inserted.again
    return Inserted(fresh, again, 0)
