"""What one segment does to its connection: the slow, complete way; nothing leaves here.

Everything that the fast path does not know comes through here: first packets, SYN, FIN, RST,
anything out of order or seen before, zero windows, closed connections. Data is always put among the
waiting nodes; release.py lets it out in the same step if nothing is missing before it.
"""

from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import (
    MAX_ACK_REACH,
    MAX_SEQUENCE_JUMP,
    MAX_START_BACK,
    NULL,
    RST_REACH_BYTES,
)
from dissector.notices import NOTICE_NUMBER
from dissector.stream import layout
from dissector.stream.columns import DATA, GAP_CUT
from dissector.stream.connections import join_list, side_at, touch
from dissector.stream.doubt import is_doubtful
from dissector.stream.duplicates import (
    WINDOW_NS,
    note_identification,
    remember,
    remembered,
    shows_its_age,
    signature,
)
from dissector.stream.ending import take_fin, take_reset
from dissector.stream.handshake import (
    STRAY,
    measure_handshake,
    set_origin,
    start_midstream,
    take_syn,
)
from dissector.stream.history import add_letter
from dissector.stream.layout import (
    ACK_SINCE,
    ACKED,
    BITS,
    CLOCK,
    FIN_OFFSET,
    HEAD,
    NEXT,
    NODE_OFFSET,
    ORIGIN,
    PACKETS,
    SIDE_BITS,
    SIDE_FIN_SEEN,
    SIDE_HAS_ORIGIN,
    SIDE_RELEASED,
    SIDE_START_OPEN,
    TCP_ACK,
    TCP_FIN,
    TCP_RST,
    TCP_SYN,
    TCP_URG,
    TOP,
)
from dissector.stream.output import note
from dissector.stream.pending import Span, Taken, insert
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, offset_near, sequence_at
from dissector.stream.state import StreamState

_OVERLAP_CONFLICT: Final = NOTICE_NUMBER["overlap_conflict"]
_TWO_CLOCKS: Final = NOTICE_NUMBER["two_clocks"]
_URGENT_DATA: Final = NOTICE_NUMBER["urgent_data"]
_WRONG_CHECKSUM: Final = NOTICE_NUMBER["wrong_checksum"]
_SEQUENCE_JUMP: Final = NOTICE_NUMBER["sequence_jump"]
_FAR_SEGMENTS: Final = 3  # that follow on each other move a stream to a place far away


@kernel
def _count_packet(state: StreamState, base: int, side_no: int, segment: Segment) -> None:
    """What every packet of a connection adds to, whatever it is."""
    cells = state.cells
    side = side_at(base, side_no)
    touch(state, base)
    cells[side + PACKETS] += 1
    cells[side + layout.PAYLOAD_BYTES] += segment.wire_bytes
    cells[base + layout.LAST_PACKET] = segment.packet
    cells[base + layout.LAST_TS] = max(cells[base + layout.LAST_TS], segment.ts_ns)
    if cells[side + layout.FIRST_SEQ] == NULL:
        cells[side + layout.FIRST_SEQ] = segment.sequence
        cells[side + layout.RANGE_PACKET] = segment.packet
        cells[side + layout.RANGE_TS] = segment.ts_ns
    flags = segment.flags
    if flags & TCP_SYN:
        answer = layout.LETTER_SYN_ACK if flags & TCP_ACK else layout.LETTER_SYN
        add_letter(cells, base, answer, side_no)
    elif flags & TCP_ACK and segment.wire_bytes == 0 and not flags & (TCP_FIN | TCP_RST):
        add_letter(cells, base, layout.LETTER_ACK, side_no)
    if segment.wire_bytes > 0:
        add_letter(cells, base, layout.LETTER_DATA, side_no)
    if flags & TCP_FIN:
        add_letter(cells, base, layout.LETTER_FIN, side_no)
    if flags & TCP_RST:
        add_letter(cells, base, layout.LETTER_RST, side_no)


@kernel
def _is_copy(
    state: StreamState, base: int, side_no: int, segment: Segment, data: ByteArray
) -> bool:
    """Whether the tap has shown this packet before; remembers it if not."""
    cells = state.cells
    way = cells[base + layout.CONNECTION_ID] * 2 + side_no
    side = side_at(base, side_no)
    value = signature(segment, way, data)
    apart = remembered(state.signatures, value, segment.ts_ns)
    is_copy = False
    if 0 <= apart <= WINDOW_NS:
        is_bare = segment.wire_bytes == 0 and not segment.flags & (TCP_SYN | TCP_FIN | TCP_RST)
        is_copy = (
            not (is_bare and segment.ip_id <= 0)
            or cells[base + BITS] & layout.CONNECTION_HAS_COPIES != 0
        )
    elif apart >= 0 and shows_its_age(cells, side, segment):
        is_copy = True
        if not cells[base + BITS] & layout.CONNECTION_TWO_CLOCKS:
            cells[base + BITS] |= layout.CONNECTION_TWO_CLOCKS
            note(state, base, _TWO_CLOCKS, side_no, NULL, apart)
    if not is_copy:
        remember(state.signatures, value, segment.ts_ns)
        return False
    if segment.wire_bytes > 0:
        cells[base + BITS] |= layout.CONNECTION_HAS_COPIES
    cells[side + layout.DUPLICATE_PACKETS] += 1
    return True


@kernel
def take_packet(
    state: StreamState, base: int, side_no: int, segment: Segment, data: ByteArray
) -> None:
    """Bring a segment into its connection. data: the buffer that holds its payload."""
    cells = state.cells
    side = side_at(base, side_no)
    _count_packet(state, base, side_no, segment)
    if _is_copy(state, base, side_no, segment, data):
        return
    if cells[base + BITS] & layout.CONNECTION_CLOSED:
        _take_late(cells, side, segment)
        return
    if state.registers[layout.VERDICT] == STRAY:
        cells[side + layout.STRAY_PACKETS] += 1
        return
    note_identification(cells, side, segment.ip_id)
    if is_doubtful(cells, base, side, segment, data):
        _take_doubtful(state, base, side_no, segment, data)
        return
    state.registers[layout.DOUBTFUL] = 0
    cells[side + layout.LAST_TSVAL] = segment.tsval
    is_plain_syn = segment.flags & (TCP_SYN | TCP_ACK) == TCP_SYN
    if cells[base + layout.LIST] == layout.LIST_SYN_ONLY and not is_plain_syn:
        join_list(cells, state.registers, base, layout.LIST_OPEN)
    if segment.flags & TCP_SYN:
        take_syn(state, base, side_no, segment)
    elif not cells[side + SIDE_BITS] & SIDE_HAS_ORIGIN:
        start_midstream(state, side, segment)
    if not segment.flags & TCP_SYN:
        measure_handshake(cells, base, side_no, segment)
    if segment.flags & TCP_ACK:
        take_acknowledgement(state, base, side_no, segment)
    if not segment.flags & (TCP_SYN | TCP_RST):
        _take_window(cells, base, side_no, segment)
    if segment.flags & TCP_RST:
        take_reset(state, base, side_no, segment)
        return
    start = segment.sequence + (1 if segment.flags & TCP_SYN else 0)
    offset = offset_near(start, cells[side + ORIGIN], cells[side + NEXT])
    if segment.flags & TCP_URG and not cells[side + SIDE_BITS] & layout.SIDE_URGENT:
        cells[side + SIDE_BITS] |= layout.SIDE_URGENT
        note(state, base, _URGENT_DATA, side_no, offset, segment.wire_bytes)
    if segment.wire_bytes > 0 or segment.flags & TCP_FIN:
        _take_payload(state, base, side_no, segment, data, offset)
    elif _is_last_number(cells, side, offset) and not segment.flags & TCP_SYN:
        cells[side + layout.KEEPALIVE_PACKETS] += 1


@kernel
def _take_doubtful(
    state: StreamState, base: int, side_no: int, segment: Segment, data: ByteArray
) -> None:
    """A damaged segment: its payload waits for a better copy, nothing else of it counts."""
    cells = state.cells
    side = side_at(base, side_no)
    offset = offset_near(segment.sequence, cells[side + ORIGIN], cells[side + NEXT])
    note(state, base, _WRONG_CHECKSUM, side_no, offset, segment.wire_bytes)
    if (
        segment.wire_bytes == 0
        or segment.flags & (TCP_SYN | TCP_RST)
        or not cells[side + SIDE_BITS] & SIDE_HAS_ORIGIN
        or abs(offset - cells[side + TOP]) > RST_REACH_BYTES
    ):
        cells[side + layout.STRAY_PACKETS] += 1
        return
    state.registers[layout.DOUBTFUL] = 1
    _take_payload(state, base, side_no, segment, data, offset)


@inlined
def _is_last_number(cells: Int64Array, side: int, offset: int) -> bool:
    """Whether an offset is that of the last sequence number used, as in keep-alives.

    A FIN has a number too: after one that overtook it, the last byte is data, not a keep-alive.
    """
    has_fin = cells[side + SIDE_BITS] & SIDE_FIN_SEEN
    return bool(offset == cells[side + TOP] - (0 if has_fin else 1))


@inlined
def _take_late(cells: Int64Array, side: int, segment: Segment) -> None:
    """A packet of a closed connection: its bytes belong to no stream."""
    if segment.wire_bytes == 0:
        return
    start = offset_near(segment.sequence, cells[side + ORIGIN], cells[side + NEXT])
    if start + segment.wire_bytes <= cells[side + TOP]:
        cells[side + layout.RETRANSMITTED_PACKETS] += 1
    else:
        cells[side + layout.LATE_PACKETS] += 1
        cells[side + layout.LATE_BYTES] += segment.wire_bytes


@inlined
def note_early(cells: Int64Array, peer: int, number: int) -> None:
    """Keep the furthest of what is acknowledged before anything of that side was captured."""
    is_first = not cells[peer + SIDE_BITS] & layout.SIDE_HAS_RAW_ACK
    if is_first or distance(number, cells[peer + ACKED]) > 0:
        cells[peer + ACKED] = number
        cells[peer + SIDE_BITS] |= layout.SIDE_HAS_RAW_ACK


@kernel
def take_acknowledgement(state: StreamState, base: int, side_no: int, segment: Segment) -> None:
    """Note what the sender of a segment has received from its peer."""
    cells = state.cells
    side = side_at(base, side_no)
    peer = side_at(base, 1 - side_no)
    number = segment.acknowledgement
    if not cells[peer + SIDE_BITS] & SIDE_HAS_ORIGIN:
        isn = cells[side + layout.ISN]
        if isn != NULL and segment.sequence == sequence_at(isn, 1) and cells[peer + PACKETS] == 0:
            # The opener's first acknowledgement is that of a SYN-ACK which was not captured, unless
            # it overtook the first: so earlier bytes are welcome for a reorder window.
            cells[peer + layout.ISN] = sequence_at(number, -1)
            set_origin(cells, peer, number, state.registers[CLOCK])
            cells[peer + SIDE_BITS] |= SIDE_START_OPEN
            cells[peer + layout.START_SINCE] = state.registers[CLOCK]
        else:
            note_early(cells, peer, number)
        return
    before = cells[peer + ACKED]
    gain = distance(number, sequence_at(cells[peer + ORIGIN], before))
    if gain <= 0:
        return
    target = before + gain
    top = cells[peer + TOP]
    if target > top + MAX_ACK_REACH:
        cells[side + layout.STRAY_PACKETS] += 1
        return
    head = cells[peer + HEAD]
    if head >= 0 and before < state.nodes[head + NODE_OFFSET] <= target:
        cells[peer + layout.COVERED] = state.registers[CLOCK]
    cells[peer + ACKED] = target
    if before <= top < target:
        cells[peer + ACK_SINCE] = state.registers[CLOCK]


@inlined
def _take_window(cells: Int64Array, base: int, side_no: int, segment: Segment) -> None:
    """Measure how long a side tells its peer to send nothing."""
    side = side_at(base, side_no)
    since = cells[side + layout.ZERO_SINCE]
    if segment.window == 0:
        if since == NULL:
            cells[side + layout.ZERO_SINCE] = segment.ts_ns
            add_letter(cells, base, layout.LETTER_ZERO_WINDOW, side_no)
    elif since != NULL:
        cells[side + layout.ZERO_WINDOW_NS] += max(0, segment.ts_ns - since)
        cells[side + layout.ZERO_SINCE] = NULL


@kernel
def _take_payload(
    state: StreamState, base: int, side_no: int, segment: Segment, data: ByteArray, offset: int
) -> None:
    """Bring in the payload and the FIN of a segment. offset: of its first byte in the stream."""
    cells = state.cells
    side = side_at(base, side_no)
    end = offset + segment.wire_bytes
    if (
        offset - cells[side + NEXT] > MAX_SEQUENCE_JUMP
        or cells[side + NEXT] - end > MAX_SEQUENCE_JUMP
    ):
        offset = _take_far(state, base, side_no, segment)
        if offset < 0:
            return
        end = offset + segment.wire_bytes
    is_probe = segment.wire_bytes <= 1 and not segment.flags & (TCP_FIN | TCP_SYN)
    if is_probe and _is_last_number(cells, side, offset):
        # A keep-alive repeats the last sequence number, with no byte or a made-up one.
        cells[side + layout.KEEPALIVE_PACKETS] += 1
        return
    if segment.wire_bytes > 0:
        _take_data(state, base, side_no, segment, data, offset)
    if segment.flags & TCP_FIN and not state.registers[layout.DOUBTFUL]:
        take_fin(state, base, side_no, segment, end)


@inlined
def _first_useful(cells: Int64Array, side: int, offset: int, end: int) -> int:
    """The offset before which bytes of a segment are old.

    Of a side seen from the middle on, and as long as nothing left, earlier bytes are welcome: any
    within reach while its start is open, later only those that join what is there.
    """
    edge = cells[side + NEXT]
    if cells[side + SIDE_BITS] & SIDE_RELEASED:
        return int(edge)
    if cells[side + SIDE_BITS] & SIDE_START_OPEN:
        return int(min(edge, -MAX_START_BACK))
    if cells[side + layout.ISN] != NULL:
        return int(edge)
    if -MAX_START_BACK <= offset < edge <= end:
        cells[side + NEXT] = offset
        return offset
    return int(edge)


@kernel
def _take_data(
    state: StreamState, base: int, side_no: int, segment: Segment, data: ByteArray, offset: int
) -> None:
    """Bring in the bytes of a segment, count what it was."""
    cells = state.cells
    side = side_at(base, side_no)
    end = offset + segment.wire_bytes
    limit = end
    if cells[side + SIDE_BITS] & SIDE_FIN_SEEN:
        limit = max(offset, min(end, cells[side + FIN_OFFSET]))
    useful = _first_useful(cells, side, offset, limit)
    first = max(offset, useful)
    top = cells[side + TOP]
    fresh = 0
    again = min(limit, first) - offset
    if first < limit:
        taken = _let_wait(state, base, side_no, segment, data, (offset, first, limit))
        fresh = taken.fresh
        again += taken.again
        cells[side + TOP] = max(top, limit)
        if first <= cells[side + NEXT]:
            cells[side + layout.PROGRESS] = state.registers[CLOCK]
        if cells[side + ACKED] > cells[side + TOP]:
            cells[side + ACK_SINCE] = state.registers[CLOCK]
    if end > limit:
        cells[side + layout.LATE_PACKETS] += 1
        cells[side + layout.LATE_BYTES] += end - limit
    was_given_up = cells[side + layout.GAP_START] <= offset < cells[side + layout.GAP_END]
    if again > 0 and (fresh > 0 or not was_given_up):
        cells[side + layout.RETRANSMITTED_PACKETS] += 1
        add_letter(cells, base, layout.LETTER_RETRANSMISSION, side_no)
    elif again > 0 or (fresh > 0 and offset < top):
        cells[side + layout.OUT_OF_ORDER_PACKETS] += 1


@kernel
def _let_wait(
    state: StreamState,
    base: int,
    side_no: int,
    segment: Segment,
    data: ByteArray,
    range_of: tuple[int, int, int],
) -> Taken:
    """Put the useful bytes of a segment among the waiting ones.

    range_of: stream offsets of the segment's first byte, its first useful one, and the end.
    """
    cells = state.cells
    offset, first, limit = range_of
    side = side_at(base, side_no)
    end = offset + segment.wire_bytes
    there = min(limit, offset + segment.captured_bytes)
    at = segment.offset + first - offset
    packet = segment.packet
    ts_ns = segment.ts_ns
    doubtful = state.registers[layout.DOUBTFUL]
    fresh = 0
    again = 0
    if first < there:
        taken = insert(
            state, side, Span(DATA, first, there, at, offset, end, packet, ts_ns, doubtful), data
        )
        fresh += taken.fresh
        again += taken.again
        if taken.conflicts > 0:
            cells[side + layout.CONFLICT_BYTES] += taken.conflicts
            place = state.registers[layout.CONFLICT_AT]
            note(state, base, _OVERLAP_CONFLICT, side_no, place, taken.conflicts)
    first = max(first, there)
    if first < limit:
        taken = insert(
            state, side, Span(GAP_CUT, first, limit, 0, offset, end, packet, ts_ns, 0), data
        )
        fresh += taken.fresh
        again += taken.again
    return Taken(fresh, again, 0)


@kernel
def _take_far(state: StreamState, base: int, side_no: int, segment: Segment) -> int:
    """A segment far away from its stream: damage, or the capture was interrupted for long.

    Segments that follow on each other there move the stream: everything between is a gap (counted
    forward, modulo 2^32). The first two of them are lost in it.

    Returns:
        The segment's stream offset, or -1: it is not used.
    """
    cells = state.cells
    side = side_at(base, side_no)
    follows = (
        cells[side + layout.FAR_COUNT] > 0 and cells[side + layout.FAR_NEXT] == segment.sequence
    )
    cells[side + layout.FAR_COUNT] = cells[side + layout.FAR_COUNT] + 1 if follows else 1
    cells[side + layout.FAR_NEXT] = sequence_at(segment.sequence, segment.wire_bytes)
    if cells[side + layout.FAR_COUNT] < _FAR_SEGMENTS:
        cells[side + layout.STRAY_PACKETS] += 1
        note(state, base, _SEQUENCE_JUMP, side_no, NULL, NULL)
        return -1
    cells[side + layout.FAR_COUNT] = 0
    top = cells[side + TOP]
    ahead = sequence_at(segment.sequence, -(cells[side + ORIGIN] + top))
    cells[side + ACKED] = top + ahead
    cells[side + SIDE_BITS] |= layout.SIDE_RESYNC
    return int(top + ahead)
