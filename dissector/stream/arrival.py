"""What one segment does to its connection: the slow, complete way; nothing leaves here.

Everything that the fast path does not know comes through here: first packets, SYN, FIN, RST,
anything out of order or seen before, zero windows, closed connections. Data is always put among the
waiting nodes; release.py lets it out in the same step if nothing is missing before it.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel
from dissector.limits import (
    MAX_START_BACK,
    NULL,
    RST_REACH_BYTES,
)
from dissector.notices import NOTICE_NUMBER
from dissector.stream.checksums import is_damaged
from dissector.stream.columns import DATA, GAP_CUT
from dissector.stream.connections import join_list, touch
from dissector.stream.duplicates import (
    WINDOW_NS,
    is_old_packet,
    note_ip_id,
    remember,
    remembered,
    signature,
)
from dissector.stream.handshake import (
    confirm_start,
    measure_handshake,
    receive_syn,
    set_origin,
    start_midstream,
)
from dissector.stream.history import (
    LETTER_ACK,
    LETTER_DATA,
    LETTER_FIN,
    LETTER_RETRANSMISSION,
    LETTER_RST,
    LETTER_SYN,
    LETTER_SYN_ACK,
    LETTER_ZERO_WINDOW,
    add_letter,
)
from dissector.stream.numbering import ack_reach, is_beyond, is_no_answer
from dissector.stream.out_of_order import Inserted, Span, insert
from dissector.stream.output import note_side
from dissector.stream.records import (
    LRU_OPEN,
    LRU_SYN_ONLY,
    TCP_ACK,
    TCP_FIN,
    TCP_RST,
    TCP_SYN,
    TCP_URG,
    Sides,
)
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, offset_near, sequence_at
from dissector.stream.state import StreamState
from dissector.stream.teardown import receive_fin, receive_rst

_OVERLAP_CONFLICT: Final = NOTICE_NUMBER["overlap_conflict"]
_TWO_CLOCKS: Final = NOTICE_NUMBER["two_clocks"]
_URGENT_DATA: Final = NOTICE_NUMBER["urgent_data"]
_WRONG_CHECKSUM: Final = NOTICE_NUMBER["wrong_checksum"]
_SEQUENCE_JUMP: Final = NOTICE_NUMBER["sequence_jump"]


@kernel
def _count_packet(state: StreamState, side: int, segment: Segment) -> None:
    """Count what every packet adds to its connection, whatever it is."""
    connections = state.connections
    sides = state.sides
    connection = side >> 1
    touch(state, connection)
    sides.packets[side] += 1
    sides.payload_bytes[side] += segment.wire_bytes
    connections.last_packet[connection] = segment.packet
    connections.last_ts_ns[connection] = max(connections.last_ts_ns[connection], segment.ts_ns)
    if sides.first_seq[side] == NULL:
        sides.first_seq[side] = segment.sequence
        sides.range_packet[side] = segment.packet
        sides.range_ts_ns[side] = segment.ts_ns
    flags = segment.flags
    if flags & TCP_SYN:
        add_letter(connections, side, LETTER_SYN_ACK if flags & TCP_ACK else LETTER_SYN)
    elif flags & TCP_ACK and segment.wire_bytes == 0 and not flags & (TCP_FIN | TCP_RST):
        add_letter(connections, side, LETTER_ACK)
    if segment.wire_bytes > 0:
        add_letter(connections, side, LETTER_DATA)
    if flags & TCP_FIN:
        add_letter(connections, side, LETTER_FIN)
    if flags & TCP_RST:
        add_letter(connections, side, LETTER_RST)


@kernel
def _is_copy(state: StreamState, side: int, segment: Segment, data: ByteArray) -> bool:
    """Whether the tap has shown this packet before; remembers it if not."""
    connections = state.connections
    connection = side >> 1
    value = signature(segment, connections.connection_id[connection] * 2 + (side & 1), data)
    apart = remembered(state.signatures, value, segment.ts_ns)
    is_copy = False
    if 0 <= apart <= WINDOW_NS:
        is_bare = segment.wire_bytes == 0 and not segment.flags & (TCP_SYN | TCP_FIN | TCP_RST)
        has_id = not (is_bare and segment.ip_id <= 0)
        is_copy = has_id or connections.has_copies[connection] != 0
    elif apart >= 0 and is_old_packet(state.sides, side, segment):
        is_copy = True
        if not connections.has_two_clocks[connection]:
            connections.has_two_clocks[connection] = 1
            note_side(state, side, _TWO_CLOCKS, NULL, apart)
    if not is_copy:
        remember(state.signatures, value, segment.ts_ns)
        return False
    if segment.wire_bytes > 0:
        connections.has_copies[connection] = 1
    state.sides.duplicate_packets[side] += 1
    return True


@kernel
def receive_segment(
    state: StreamState, side: int, segment: Segment, data: ByteArray, is_stray: bool
) -> None:
    """Bring a segment into its connection.

    data: the buffer that holds its payload; is_stray: it is a SYN that belongs to no stream.
    """
    connections = state.connections
    sides = state.sides
    connection = side >> 1
    _count_packet(state, side, segment)
    if _is_copy(state, side, segment, data):
        return
    if connections.ended_packet[connection] != NULL:
        _count_late(sides, side, segment)
        return
    if is_stray:
        _drop(sides, side, segment)
        return
    note_ip_id(sides, side, segment.ip_id)
    addresses = connections.address_sum[connection]
    if is_damaged(sides, state.registers, side, addresses, segment, data):
        _receive_damaged(state, side, segment, data)
        return
    if not segment.flags & TCP_SYN and is_no_answer(sides, side, segment):
        _drop(sides, side, segment)
        return
    state.registers.is_damaged[0] = 0
    sides.last_tsval[side] = segment.tsval
    is_plain_syn = segment.flags & (TCP_SYN | TCP_ACK) == TCP_SYN
    if connections.lru_list[connection] == LRU_SYN_ONLY and not is_plain_syn:
        join_list(state, connection, LRU_OPEN)
    if segment.flags & TCP_SYN:
        receive_syn(state, side, segment, data)
    elif not sides.has_origin[side]:
        start_midstream(state, side, segment)
    if not segment.flags & TCP_SYN:
        measure_handshake(connections, side, segment)
    if segment.flags & TCP_ACK:
        _receive_acknowledgement(state, side, segment)
    if not segment.flags & (TCP_SYN | TCP_RST):
        _measure_zero_window(state, side, segment)
    if segment.flags & TCP_RST:
        sides.dropped_bytes[side] += segment.wire_bytes
        receive_rst(state, side, segment)
        return
    start = segment.sequence + (1 if segment.flags & TCP_SYN else 0)
    offset = offset_near(start, sides.origin[side], sides.released[side])
    if segment.flags & TCP_URG and not sides.has_urgent[side]:
        sides.has_urgent[side] = 1
        note_side(state, side, _URGENT_DATA, offset, segment.wire_bytes)
    _note_own_number(state, side, offset)
    if segment.wire_bytes > 0 or segment.flags & TCP_FIN:
        _receive_payload(state, side, segment, data, offset)
    elif _is_last_number(sides, side, offset) and not segment.flags & TCP_SYN:
        sides.keepalive_packets[side] += 1


@kernel
def _receive_damaged(state: StreamState, side: int, segment: Segment, data: ByteArray) -> None:
    """Let the payload of a damaged segment wait for a better copy; nothing else of it counts."""
    sides = state.sides
    offset = offset_near(segment.sequence, sides.origin[side], sides.released[side])
    note_side(state, side, _WRONG_CHECKSUM, offset, segment.wire_bytes)
    if (
        segment.wire_bytes == 0
        or segment.flags & (TCP_SYN | TCP_RST)
        or not sides.has_origin[side]
        or abs(offset - sides.highest[side]) > RST_REACH_BYTES
    ):
        _drop(sides, side, segment)
        return
    state.registers.is_damaged[0] = 1
    _receive_payload(state, side, segment, data, offset)


@inlined
def _drop(sides: Sides, side: int, segment: Segment) -> None:
    """Count a packet that fits no place of its stream."""
    sides.stray_packets[side] += 1
    sides.dropped_bytes[side] += segment.wire_bytes


@inlined
def _note_own_number(state: StreamState, side: int, offset: int) -> None:
    """Note what a packet's own number says of bytes that its peer acknowledged beyond all seen."""
    sides = state.sides
    highest = sides.highest[side]
    if highest < offset <= highest + ack_reach(sides, side):
        sides.sent[side] = max(sides.sent[side], offset)
    elif offset == highest < sides.acked[side]:
        sides.denied_at[side] = state.registers.clock[0]


@inlined
def _is_last_number(sides: Sides, side: int, offset: int) -> bool:
    """Whether an offset is that of the last sequence number used, as in keep-alives.

    A FIN has a number too: after one that overtook it, the last byte is data, not a keep-alive.
    """
    return bool(offset == sides.highest[side] - (0 if sides.fin_seen[side] else 1))


@inlined
def _count_late(sides: Sides, side: int, segment: Segment) -> None:
    """Count a packet of a closed connection: its bytes belong to no stream."""
    if segment.wire_bytes == 0:
        return
    start = offset_near(segment.sequence, sides.origin[side], sides.released[side])
    if start + segment.wire_bytes <= sides.highest[side]:
        sides.retransmitted_packets[side] += 1
    else:
        sides.late_packets[side] += 1
        sides.late_bytes[side] += segment.wire_bytes
        sides.dropped_bytes[side] += segment.wire_bytes


@inlined
def note_raw_ack(sides: Sides, peer: int, number: int) -> None:
    """Keep the furthest of what is acknowledged before anything of that side was captured."""
    is_first = not sides.has_raw_ack[peer]
    if is_first or distance(number, sides.acked[peer]) > 0:
        sides.acked[peer] = number
        sides.has_raw_ack[peer] = 1


@kernel
def _receive_acknowledgement(state: StreamState, side: int, segment: Segment) -> None:
    """Note what the sender of a segment has received from its peer."""
    sides = state.sides
    clock = state.registers.clock[0]
    peer = side ^ 1
    number = segment.acknowledgement
    if not sides.has_origin[peer]:
        isn = sides.isn[side]
        if isn != NULL and segment.sequence == sequence_at(isn, 1) and sides.packets[peer] == 0:
            # The opener's first acknowledgement is that of a SYN-ACK which was not captured, unless
            # it overtook the first: so earlier bytes are welcome for a reorder window.
            sides.isn[peer] = sequence_at(number, -1)
            set_origin(sides, peer, number, clock)
            sides.start_is_open[peer] = 1
            sides.start_since[peer] = clock
        else:
            note_raw_ack(sides, peer, number)
        return
    if not segment.flags & (TCP_SYN | TCP_RST):
        confirm_start(state, side, segment)
    before = sides.acked[peer]
    gain = distance(number, sequence_at(sides.origin[peer], before))
    if gain <= 0:
        return
    target = before + gain
    highest = sides.highest[peer]
    if target > highest + ack_reach(sides, peer):
        sides.stray_packets[side] += 1
        return
    head = state.heads[peer, 0]
    if head >= 0 and before < state.nodes.offset[head] <= target:
        sides.covered_at[peer] = clock
    sides.acked[peer] = target
    if target > highest:
        sides.acked_since[peer] = clock


@inlined
def _measure_zero_window(state: StreamState, side: int, segment: Segment) -> None:
    """Measure how long a side tells its peer to send nothing."""
    sides = state.sides
    since = sides.zero_window_since[side]
    if segment.window == 0:
        if since == NULL:
            sides.zero_window_since[side] = segment.ts_ns
            add_letter(state.connections, side, LETTER_ZERO_WINDOW)
    elif since != NULL:
        sides.zero_window_ns[side] += max(0, segment.ts_ns - since)
        sides.zero_window_since[side] = NULL


@kernel
def _receive_payload(
    state: StreamState, side: int, segment: Segment, data: ByteArray, offset: int
) -> None:
    """Bring in the payload and the FIN of a segment. offset: of its first byte in the stream."""
    sides = state.sides
    end = offset + segment.wire_bytes
    if is_beyond(sides, side, offset, end):
        _drop(sides, side, segment)
        note_side(state, side, _SEQUENCE_JUMP, NULL, NULL)
        return
    is_probe = segment.wire_bytes <= 1 and not segment.flags & (TCP_FIN | TCP_SYN)
    if is_probe and _is_last_number(sides, side, offset):
        # A keep-alive repeats the last sequence number, with no byte or a made-up one.
        sides.keepalive_packets[side] += 1
        return
    if segment.wire_bytes > 0:
        _receive_data(state, side, segment, data, offset)
    if segment.flags & TCP_FIN and not state.registers.is_damaged[0]:
        receive_fin(state, side, segment, end)


@inlined
def _first_useful(sides: Sides, side: int, offset: int, end: int) -> int:
    """The offset before which bytes of a segment are old.

    Of a side seen from the middle on, and as long as nothing left, earlier bytes are welcome: any
    within reach while its start is open, later only those that join what is there.
    """
    edge = sides.released[side]
    if sides.has_released[side]:
        return int(edge)
    if sides.start_is_open[side]:
        return int(min(edge, -MAX_START_BACK))
    if sides.isn[side] != NULL:
        return int(edge)
    if -MAX_START_BACK <= offset < edge <= end:
        sides.released[side] = offset
        return offset
    return int(edge)


@kernel
def _receive_data(
    state: StreamState, side: int, segment: Segment, data: ByteArray, offset: int
) -> None:
    """Bring in the bytes of a segment, count what it was."""
    sides = state.sides
    clock = state.registers.clock[0]
    end = offset + segment.wire_bytes
    limit = end
    if sides.fin_seen[side]:
        limit = max(offset, min(end, sides.fin_offset[side]))
    first = max(offset, _first_useful(sides, side, offset, limit))
    highest = sides.highest[side]
    fresh = 0
    again = min(limit, first) - offset
    # What left begins where it ends less all that left; nothing before that was ever used.
    start = sides.released[side] - sides.stream_bytes[side]
    sides.dropped_bytes[side] += max(0, min(limit, first, start) - offset)
    if first < limit:
        inserted = _queue_bytes(state, side, segment, data, (offset, first, limit))
        fresh = inserted.fresh
        again += inserted.again
        sides.highest[side] = max(highest, limit)
        if first <= sides.released[side]:
            sides.progress_at[side] = clock
    if end > limit:
        sides.late_packets[side] += 1
        sides.late_bytes[side] += end - limit
        sides.dropped_bytes[side] += end - limit
    was_given_up = sides.gap_start[side] <= offset < sides.gap_end[side]
    if again > 0 and (fresh > 0 or not was_given_up):
        sides.retransmitted_packets[side] += 1
        add_letter(state.connections, side, LETTER_RETRANSMISSION)
    elif again > 0 or (fresh > 0 and offset < highest):
        sides.out_of_order_packets[side] += 1


@kernel
def _queue_bytes(
    state: StreamState,
    side: int,
    segment: Segment,
    data: ByteArray,
    offsets: tuple[int, int, int],
) -> Inserted:
    """Put the useful bytes of a segment among the waiting ones.

    offsets: in the stream, of the segment's first byte, its first useful one, and the end.
    """
    registers = state.registers
    offset, first, limit = offsets
    end = offset + segment.wire_bytes
    captured_end = min(limit, offset + segment.captured_bytes)
    packet = segment.packet
    ts_ns = segment.ts_ns
    fresh = 0
    again = 0
    if first < captured_end:
        at = segment.offset + first - offset
        is_damaged = registers.is_damaged[0]
        span = Span(DATA, first, captured_end, at, offset, end, packet, ts_ns, is_damaged)
        inserted = insert(state, side, span, data)
        fresh += inserted.fresh
        again += inserted.again
        if inserted.conflicts > 0:
            state.sides.conflict_bytes[side] += inserted.conflicts
            at = registers.conflict_at[0]
            note_side(state, side, _OVERLAP_CONFLICT, at, inserted.conflicts)
    first = max(first, captured_end)
    if first < limit:
        span = Span(GAP_CUT, first, limit, 0, offset, end, packet, ts_ns, 0)
        inserted = insert(state, side, span, data)
        fresh += inserted.fresh
        again += inserted.again
    return Inserted(fresh, again, 0)
