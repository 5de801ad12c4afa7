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

from dissector.jit import inlined, kernel
from dissector.limits import MAX_START_BACK, NULL
from dissector.stream.out_of_order import shift_offsets
from dissector.stream.records import (
    LRU_SYN_ONLY,
    TCP_ACK,
    TCP_RST,
    Connections,
    Sides,
)
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, offset_near, sequence_at
from dissector.stream.state import StreamState

OURS: Final = 0  # belongs to the connection
REUSE: Final = 1  # opens another one
STRAY: Final = 2  # belongs to it, says nothing about it
_MOST_MOVED: Final = 256  # waiting segments that every further answer to a SYN may move


@kernel
def classify_syn(state: StreamState, side: int, segment: Segment) -> int:
    """Which of OURS, REUSE, STRAY a SYN or SYN-ACK on a known address pair is."""
    connections = state.connections
    sides = state.sides
    connection = side >> 1
    peer = side ^ 1
    isn = sides.isn[side]
    if isn == segment.sequence:
        return OURS
    last_tsval = sides.last_tsval[side]
    if last_tsval >= 0 and segment.tsval >= 0 and distance(segment.tsval, last_tsval) < 0:
        return STRAY
    if connections.ended_packet[connection] != NULL:
        return REUSE
    is_answer = False
    if segment.flags & TCP_ACK and sides.isn[peer] != NULL:
        # It may acknowledge data that came with the SYN.
        reach = distance(segment.acknowledgement, sequence_at(sides.isn[peer], 1))
        is_answer = 0 <= reach <= max(0, sides.highest[peer])
        if not is_answer and sides.packets[side] == 0:
            return STRAY
    if isn == NULL:
        # A side that answered a SYN with a bare acknowledgement of any number may open after it (a
        # split handshake).
        is_plain = segment.flags & TCP_ACK == 0
        if sides.isn[peer] != NULL and sides.highest[side] == 0 and (is_plain or is_answer):
            return OURS
        return OURS if _can_begin(sides, side, segment) else REUSE
    if is_answer:
        # A second answer with another number, as some load balancers give.
        is_late = sides.has_released[side] != 0
        return STRAY if is_late or sides.pending[side] > _MOST_MOVED else OURS
    if connections.lru_list[connection] == LRU_SYN_ONLY:
        return REUSE
    at = offset_near(segment.sequence, sides.origin[side], sides.highest[side])
    return STRAY if -1 <= at <= sides.highest[side] else REUSE


@inlined
def _can_begin(sides: Sides, side: int, segment: Segment) -> bool:
    """Whether a SYN can be the missing beginning of a side seen without it."""
    start = sequence_at(segment.sequence, 1)
    if not sides.has_origin[side]:
        # Of what the peer acknowledged only the furthest number is known.
        ahead = distance(sides.acked[side], start)
        return not sides.has_raw_ack[side] or 0 <= ahead <= MAX_START_BACK
    back = distance(start, sides.origin[side])
    if sides.has_released[side]:
        return back == 0
    return -MAX_START_BACK <= back <= 0


@inlined
def set_origin(sides: Sides, side: int, origin: int, clock: int) -> None:
    """Set where stream offset 0 of a side lies, for the first time."""
    acked = 0
    if sides.has_raw_ack[side]:
        acked = max(0, distance(sides.acked[side], origin))
    sides.origin[side] = origin
    sides.released[side] = 0
    sides.highest[side] = 0
    sides.acked[side] = acked
    sides.acked_since[side] = clock
    sides.has_origin[side] = 1


@kernel
def _move_origin(state: StreamState, side: int, origin: int) -> None:
    """Set where offset 0 lies after packets without a SYN were seen; nothing has left yet."""
    sides = state.sides
    by = -distance(origin, sides.origin[side])
    shift_offsets(state, side, by)
    sides.origin[side] = origin
    sides.released[side] = 0
    sides.highest[side] = max(0, sides.highest[side] + by)
    sides.acked[side] = max(0, sides.acked[side] + by)
    sides.fin_offset[side] += by
    sides.start_is_open[side] = 0
    sides.started_empty[side] = 0


@kernel
def _begin(state: StreamState, side: int, isn: int) -> None:
    """Begin a side's stream at its initial sequence number, which became known."""
    sides = state.sides
    origin = sequence_at(isn, 1)
    if not sides.has_origin[side]:
        set_origin(sides, side, origin, state.registers.clock[0])
    elif not sides.has_released[side]:
        _move_origin(state, side, origin)
    sides.isn[side] = isn


@kernel
def receive_syn(state: StreamState, side: int, segment: Segment) -> None:
    """Receive a SYN or SYN-ACK that belongs to the connection."""
    connections = state.connections
    sides = state.sides
    connection = side >> 1
    peer = side ^ 1
    if sides.isn[side] == segment.sequence and sides.packets[side] > 1:
        sides.retransmitted_packets[side] += 1
        if not segment.flags & TCP_ACK and sides.packets[peer] == 0:
            connections.syn_ts_ns[connection] = segment.ts_ns
    else:
        _begin(state, side, segment.sequence)
    if not segment.flags & TCP_ACK:
        if connections.opener[connection] < 0:
            connections.opener[connection] = side & 1
            connections.syn_ts_ns[connection] = segment.ts_ns
        return
    if connections.opener[connection] < 0:
        connections.opener[connection] = peer & 1
    if sides.isn[peer] == NULL:
        start = segment.acknowledgement
        back = distance(start, sides.origin[peer])
        if not sides.has_origin[peer] or (
            sides.start_is_open[peer] and -MAX_START_BACK <= back <= 0
        ):
            _begin(state, peer, sequence_at(start, -1))
    elif (
        connections.syn_ts_ns[connection] != NULL
        and connections.handshake_rtt_ns[connection] == NULL
    ):
        connections.rtt_pending[connection] = 1


@inlined
def measure_handshake(connections: Connections, side: int, segment: Segment) -> None:
    """Measure the handshake if this is the opener's first packet after the SYN-ACK, its end."""
    connection = side >> 1
    if not connections.rtt_pending[connection]:
        return
    if connections.opener[connection] == side & 1 and segment.flags & TCP_ACK:
        connections.rtt_pending[connection] = 0
        elapsed = segment.ts_ns - connections.syn_ts_ns[connection]
        if segment.ts_ns != NULL and elapsed >= 0:
            connections.handshake_rtt_ns[connection] = elapsed


@kernel
def start_midstream(state: StreamState, side: int, segment: Segment) -> None:
    """Begin the stream of a side whose first packet is no SYN: offset 0 is its sequence number.

    Earlier bytes may have been overtaken on the way to the tap, so the start stays open for the
    reorder window: nothing leaves, and bytes before offset 0 are welcome.
    """
    sides = state.sides
    clock = state.registers.clock[0]
    set_origin(sides, side, segment.sequence, clock)
    if segment.flags & TCP_RST:
        return
    sides.start_is_open[side] = 1
    sides.start_since[side] = clock
    if segment.wire_bytes <= 1:
        sides.started_empty[side] = 1
        if sides.acked[side] == 1:
            # The peer has the byte at this number already: a keep-alive, one byte back.
            sides.released[side] = 1
            sides.highest[side] = 1
