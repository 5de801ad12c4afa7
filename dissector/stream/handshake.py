"""SYN and the beginnings of streams: which connection a SYN belongs to, where offset 0 lies.

SYN and FIN are positions in sequence space, not events: a SYN that was captured late still says
where its stream begins. A SYN on a known address pair is one of four things:

- the same SYN again (equal initial sequence number), also long after a FIN or RST;
- the SYN of this connection, captured after other packets of it;
- a new connection: the old one is closed, or never answered, or its number lies outside everything
  the old stream has used; a SYN-ACK counts likewise, so that a lost SYN does not hide the reuse;
- a stray: its time stamp is older than the sender's last, or its number lies inside the stream.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import MAX_START_BACK, NULL
from dissector.stream import layout
from dissector.stream.connections import side_at
from dissector.stream.layout import (
    ACKED,
    BITS,
    CLOCK,
    ISN,
    NEXT,
    ORIGIN,
    PACKETS,
    SIDE_BITS,
    SIDE_HAS_ORIGIN,
    SIDE_HAS_RAW_ACK,
    SIDE_RELEASED,
    SIDE_START_OPEN,
    TCP_ACK,
    TCP_RST,
    TOP,
)
from dissector.stream.pending import shift_offsets
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, offset_near, sequence_at
from dissector.stream.state import StreamState

OURS: Final = 0  # belongs to the connection
REUSE: Final = 1  # opens another one
STRAY: Final = 2  # belongs to it, says nothing about it
_MOST_MOVED: Final = 256  # waiting segments that every further answer to a SYN may move


@kernel
def judge_syn(cells: Int64Array, base: int, side_no: int, segment: Segment) -> int:
    """Which of OURS, REUSE, STRAY a SYN or SYN-ACK on a known address pair is."""
    side = side_at(base, side_no)
    peer = side_at(base, 1 - side_no)
    isn = cells[side + ISN]
    if isn == segment.sequence:
        return OURS
    last_tsval = cells[side + layout.LAST_TSVAL]
    if last_tsval >= 0 and segment.tsval >= 0 and distance(segment.tsval, last_tsval) < 0:
        return STRAY
    if cells[base + BITS] & layout.CONNECTION_CLOSED:
        return REUSE
    is_answer = False
    if segment.flags & TCP_ACK and cells[peer + ISN] != NULL:
        # It may acknowledge data that came with the SYN.
        reach = distance(segment.acknowledgement, sequence_at(cells[peer + ISN], 1))
        is_answer = 0 <= reach <= max(0, cells[peer + TOP])
        if not is_answer and cells[side + PACKETS] == 0:
            return STRAY
    if isn == NULL:
        # A side that answered a SYN with a bare acknowledgement of any number may open after it (a
        # split handshake).
        is_plain = segment.flags & TCP_ACK == 0
        if cells[peer + ISN] != NULL and cells[side + TOP] == 0 and (is_plain or is_answer):
            return OURS
        return OURS if _can_begin(cells, side, segment) else REUSE
    if is_answer:
        # A second answer with another number, as some load balancers give.
        is_late = cells[side + SIDE_BITS] & SIDE_RELEASED != 0
        return STRAY if is_late or cells[side + layout.NODES] > _MOST_MOVED else OURS
    if cells[base + layout.LIST] == layout.LIST_SYN_ONLY:
        return REUSE
    at = offset_near(segment.sequence, cells[side + ORIGIN], cells[side + TOP])
    return STRAY if -1 <= at <= cells[side + TOP] else REUSE


@inlined
def _can_begin(cells: Int64Array, side: int, segment: Segment) -> bool:
    """Whether a SYN can be the missing beginning of a side seen without it."""
    start = sequence_at(segment.sequence, 1)
    bits = cells[side + SIDE_BITS]
    if not bits & SIDE_HAS_ORIGIN:
        # Of what the peer acknowledged only the furthest number is known.
        ahead = distance(cells[side + ACKED], start)
        return not bits & SIDE_HAS_RAW_ACK or 0 <= ahead <= MAX_START_BACK
    back = distance(start, cells[side + ORIGIN])
    if bits & SIDE_RELEASED:
        return back == 0
    return -MAX_START_BACK <= back <= 0


@inlined
def set_origin(cells: Int64Array, side: int, origin: int, clock: int) -> None:
    """Say where stream offset 0 of a side lies, for the first time."""
    acked = 0
    if cells[side + SIDE_BITS] & SIDE_HAS_RAW_ACK:
        acked = max(0, distance(cells[side + ACKED], origin))
    cells[side + ORIGIN] = origin
    cells[side + NEXT] = 0
    cells[side + TOP] = 0
    cells[side + ACKED] = acked
    cells[side + layout.ACK_SINCE] = clock
    cells[side + SIDE_BITS] |= SIDE_HAS_ORIGIN


@kernel
def _move_origin(state: StreamState, side: int, origin: int) -> None:
    """Say where offset 0 lies after packets without a SYN were seen; nothing has left yet."""
    cells = state.cells
    by = -distance(origin, cells[side + ORIGIN])
    shift_offsets(state, side, by)
    cells[side + ORIGIN] = origin
    cells[side + NEXT] = 0
    cells[side + TOP] = max(0, cells[side + TOP] + by)
    cells[side + ACKED] = max(0, cells[side + ACKED] + by)
    cells[side + layout.FIN_OFFSET] += by
    cells[side + SIDE_BITS] &= ~(SIDE_START_OPEN | layout.SIDE_STARTED_EMPTY)


@kernel
def _begin(state: StreamState, side: int, isn: int) -> None:
    """A side's initial sequence number became known."""
    cells = state.cells
    origin = sequence_at(isn, 1)
    bits = cells[side + SIDE_BITS]
    if not bits & SIDE_HAS_ORIGIN:
        set_origin(cells, side, origin, state.registers[CLOCK])
    elif not bits & SIDE_RELEASED:
        _move_origin(state, side, origin)
    cells[side + ISN] = isn


@kernel
def take_syn(state: StreamState, base: int, side_no: int, segment: Segment) -> None:
    """A SYN or SYN-ACK that belongs to the connection."""
    cells = state.cells
    side = side_at(base, side_no)
    peer = side_at(base, 1 - side_no)
    cells[base + BITS] |= layout.CONNECTION_FROM_SYN
    if cells[side + ISN] == segment.sequence and cells[side + PACKETS] > 1:
        cells[side + layout.RETRANSMITTED_PACKETS] += 1
        if not segment.flags & TCP_ACK and cells[peer + PACKETS] == 0:
            cells[base + layout.SYN_TS] = segment.ts_ns
    else:
        _begin(state, side, segment.sequence)
    if not segment.flags & TCP_ACK:
        if cells[base + layout.OPENER] < 0:
            cells[base + layout.OPENER] = side_no
            cells[base + layout.SYN_TS] = segment.ts_ns
        return
    if cells[base + layout.OPENER] < 0:
        cells[base + layout.OPENER] = 1 - side_no
    if cells[peer + ISN] == NULL:
        start = segment.acknowledgement
        bits = cells[peer + SIDE_BITS]
        back = distance(start, cells[peer + ORIGIN])
        if not bits & SIDE_HAS_ORIGIN or (bits & SIDE_START_OPEN and -MAX_START_BACK <= back <= 0):
            _begin(state, peer, sequence_at(start, -1))
    elif cells[base + layout.SYN_TS] != NULL and cells[base + layout.HANDSHAKE_RTT] == NULL:
        cells[base + BITS] |= layout.CONNECTION_RTT_PENDING


@inlined
def measure_handshake(cells: Int64Array, base: int, side_no: int, segment: Segment) -> None:
    """The opener's first packet after the SYN-ACK ends the handshake."""
    if not cells[base + BITS] & layout.CONNECTION_RTT_PENDING:
        return
    if cells[base + layout.OPENER] == side_no and segment.flags & TCP_ACK:
        cells[base + BITS] &= ~layout.CONNECTION_RTT_PENDING
        elapsed = segment.ts_ns - cells[base + layout.SYN_TS]
        if segment.ts_ns != NULL and elapsed >= 0:
            cells[base + layout.HANDSHAKE_RTT] = elapsed


@kernel
def start_midstream(state: StreamState, side: int, segment: Segment) -> None:
    """The first packet of a side is no SYN: its sequence number is offset 0.

    Earlier bytes may have been overtaken on the way to the tap, so the start stays open for the
    reorder window: nothing leaves, and bytes before offset 0 are taken.
    """
    cells = state.cells
    clock = state.registers[CLOCK]
    set_origin(cells, side, segment.sequence, clock)
    if segment.flags & TCP_RST:
        return
    cells[side + SIDE_BITS] |= SIDE_START_OPEN
    cells[side + layout.START_SINCE] = clock
    if segment.wire_bytes <= 1:
        cells[side + SIDE_BITS] |= layout.SIDE_STARTED_EMPTY
        if cells[side + ACKED] == 1:
            # The peer has the byte at this number already: a keep-alive, one byte back.
            cells[side + NEXT] = 1
            cells[side + TOP] = 1
