"""SYN and the beginnings of streams: which connection a SYN belongs to, where offset 0 lies.

SYN and FIN are positions in sequence space, not events: a SYN that was captured late still says
where its stream begins. A SYN on a known address pair is one of four things:

- the same SYN again (equal initial sequence number), also long after a FIN or RST;
- the SYN of this connection, captured after other packets of it;
- a new connection: the old one is closed, or never answered, or its number lies outside everything
  the old stream has used; a SYN-ACK counts likewise, so that a lost SYN does not hide the reuse;
- a stray: its time stamp is older than the sender's last, or its number lies inside the stream.

A SYN-ACK that acknowledges the opener's SYN says where its direction begins, whatever packets of
that side came before: a host that still has an older connection of these addresses sends such. Of
several, that one counts which the opener acknowledges.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel
from dissector.limits import MAX_MOVED_SEGMENTS, MAX_START_BACK, NULL
from dissector.stream.duplicates import remembered, signature
from dissector.stream.history import LETTER_SYN, LETTER_SYN_ACK, has_letter
from dissector.stream.numbering import ack_reach, acknowledges_syn, is_beyond, window_scale
from dissector.stream.out_of_order import drop_first, shift_offsets
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


@kernel
def classify_syn(state: StreamState, side: int, segment: Segment, data: ByteArray) -> int:
    """Which of OURS, REUSE, STRAY a SYN or SYN-ACK on a known address pair is.

    data: of its packet.
    """
    connections = state.connections
    sides = state.sides
    connection = side >> 1
    peer = side ^ 1
    isn = sides.isn[side]
    # After a reset a SYN is no late packet that the reorder window waits for.
    is_over = connections.closing[connection] >= 0
    has_ended = is_over or connections.ended_packet[connection] != NULL
    if isn == segment.sequence:
        return REUSE if has_ended and _tries_again(state, side, segment, data) else OURS
    is_answer = _is_answer(sides, side, segment)
    last_tsval = sides.last_tsval[side]
    is_old = last_tsval >= 0 and segment.tsval >= 0 and distance(segment.tsval, last_tsval) < 0
    if is_old and not is_answer and (isn != NULL or sides.has_released[side]):
        return STRAY
    if has_ended:
        return REUSE
    if segment.flags & TCP_ACK and sides.isn[peer] != NULL and not is_answer:
        # It answers another SYN than the one that this side has to answer.
        is_open = sides.is_isn_acked[side] != 0 or sides.has_released[side] != 0
        if not is_open or sides.packets[side] == 0:
            return STRAY
    if isn == NULL:
        # A side that answered a SYN with a bare acknowledgement of any number may open after it (a
        # split handshake).
        is_plain = segment.flags & TCP_ACK == 0
        is_split = sides.isn[peer] != NULL and sides.highest[side] == 0 and is_plain
        is_start = is_answer and sides.has_released[side] == 0
        is_ours = is_split or is_start or _can_begin(sides, side, segment)
        return OURS if is_ours else REUSE
    if is_answer:
        # A second answer with another number, as some load balancers give.
        is_late = sides.is_isn_acked[side] != 0 or sides.has_released[side] != 0
        return STRAY if is_late or sides.pending[side] > MAX_MOVED_SEGMENTS else OURS
    is_acked = sides.is_isn_acked[side] != 0 or sides.is_isn_acked[peer] != 0
    is_half_open = _is_unused(sides, side) and not is_acked
    if connections.lru_list[connection] == LRU_SYN_ONLY or is_half_open:
        return REUSE
    at = offset_near(segment.sequence, sides.origin[side], sides.highest[side])
    return STRAY if -1 <= at <= sides.highest[side] else REUSE


@inlined
def _has_syn(connections: Connections, side: int) -> bool:
    """Whether a SYN of a side was captured, with or without ACK."""
    is_answer = has_letter(connections, side, LETTER_SYN_ACK)
    return is_answer or has_letter(connections, side, LETTER_SYN)


@inlined
def _is_answer(sides: Sides, side: int, segment: Segment) -> bool:
    """Whether a SYN-ACK acknowledges the SYN of its peer, maybe with data that came with it."""
    peer = side ^ 1
    if segment.flags & TCP_ACK == 0 or sides.isn[peer] == NULL:
        return False
    other = sides.other_isn[peer]
    is_other = other != NULL and segment.acknowledgement == sequence_at(other, 1)
    return bool(is_other or acknowledges_syn(sides, peer, segment.acknowledgement))


@inlined
def _is_unused(sides: Sides, side: int) -> bool:
    """Whether no side of a connection has shown data."""
    return bool(sides.highest[side] == 0 and sides.highest[side ^ 1] == 0)


@inlined
def _tries_again(state: StreamState, side: int, segment: Segment, data: ByteArray) -> bool:
    """Whether a SYN whose number is known opens anew what was reset before it was open.

    It may be a copy of the first one, too, which a tap shows late.
    """
    if segment.flags & TCP_ACK or not _is_unused(state.sides, side):
        return False
    direction = state.connections.connection_id[side >> 1] * 2 + (side & 1)
    value = signature(segment, direction, data)
    return remembered(state.signatures, value, segment.ts_ns) == NULL


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
def _believed(sides: Sides, side: int, acked: int) -> int:
    """An acknowledged offset, if nothing forbids that a side sent so much; else 0."""
    return acked if 0 < acked <= ack_reach(sides, side) else 0


@inlined
def set_origin(sides: Sides, side: int, origin: int, clock: int) -> None:
    """Set where stream offset 0 of a side lies, for the first time."""
    acked = 0
    if sides.has_raw_ack[side]:
        acked = _believed(sides, side, distance(sides.acked[side], origin))
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
    sides.fin_offset[side] += by
    # What was acknowledged of another numbering says nothing of this one.
    is_first = sides.isn[side] == NULL
    sides.acked[side] = _believed(sides, side, sides.acked[side] + by) if is_first else 0
    sides.highest[side] = 0
    sides.sent[side] = 0
    head = state.heads[side, 0]
    tail = state.tails[side, 0]
    if head >= 0:
        at = state.nodes.offset[tail]
        if state.nodes.offset[head] < 0 or is_beyond(sides, side, at, at):
            _drop_waiting(state, side)
        else:
            sides.highest[side] = at + state.nodes.length[tail]
    sides.start_is_open[side] = 0
    sides.started_empty[side] = 0


@kernel
def _drop_waiting(state: StreamState, side: int) -> None:
    """Drop all that waits of a side: it is of a stream before this one."""
    for _ in range(len(state.nodes.length)):
        if state.heads[side, 0] < 0:
            break
        state.sides.dropped_bytes[side] += state.nodes.length[state.heads[side, 0]]
        drop_first(state, side)
    state.sides.fin_seen[side] = 0


@kernel
def _begin(state: StreamState, side: int, isn: int) -> None:
    """Begin a side's stream at its initial sequence number, which became known."""
    sides = state.sides
    origin = sequence_at(isn, 1)
    if sides.isn[side] != NULL and isn != sides.isn[side]:
        sides.other_isn[side] = sides.isn[side]
        sides.is_isn_acked[side] = 0
    if not sides.has_origin[side]:
        set_origin(sides, side, origin, state.registers.clock[0])
    elif not sides.has_released[side]:
        _move_origin(state, side, origin)
    sides.isn[side] = isn


@kernel
def receive_syn(state: StreamState, side: int, segment: Segment, data: ByteArray) -> None:
    """Receive a SYN or SYN-ACK that belongs to the connection. data: of its packet."""
    connections = state.connections
    sides = state.sides
    connection = side >> 1
    peer = side ^ 1
    sides.scale[side] = max(sides.scale[side], window_scale(segment, data))
    if sides.isn[side] == segment.sequence and sides.packets[side] > 1:
        sides.retransmitted_packets[side] += 1
        if not segment.flags & TCP_ACK and sides.packets[peer] == 0:
            connections.syn_ts_ns[connection] = segment.ts_ns
    else:
        _begin(state, side, segment.sequence)
        if not segment.flags & TCP_ACK:
            sides.is_isn_acked[peer] = 0  # acknowledged before there was anything to answer
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
        return
    if not acknowledges_syn(sides, peer, segment.acknowledgement) and _is_answer(
        sides, side, segment
    ):
        _begin(state, peer, sides.other_isn[peer])
    if (
        connections.syn_ts_ns[connection] != NULL
        and connections.handshake_rtt_ns[connection] == NULL
    ):
        connections.rtt_pending[connection] = 1


@kernel
def confirm_start(state: StreamState, side: int, segment: Segment) -> None:
    """Let an acknowledgement say which initial number of its peer counts."""
    sides = state.sides
    peer = side ^ 1
    isn = sides.isn[peer]
    if isn == NULL or sides.is_isn_acked[peer] or not _has_syn(state.connections, peer):
        return
    ahead = distance(segment.acknowledgement, sequence_at(isn, 1))
    if 0 <= ahead <= sides.highest[peer]:
        sides.is_isn_acked[peer] = 1
        return
    if sides.has_released[peer]:
        return
    other = sides.other_isn[peer]
    if other != NULL and segment.acknowledgement == sequence_at(other, 1):
        _begin(state, peer, other)
        sides.is_isn_acked[peer] = 1
    elif (
        not 0 <= ahead <= ack_reach(sides, peer)
        and sides.pending[peer] == 0
        and sides.isn[side] != NULL
        and segment.sequence == sequence_at(sides.isn[side], 1)
    ):
        _begin(state, peer, sequence_at(segment.acknowledgement, -1))  # its SYN was not captured


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
