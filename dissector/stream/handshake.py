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

import enum

from dissector.blocks import ByteArray
from dissector.jit import inlined, kernel
from dissector.limits import MAX_MOVED_SEGMENTS, MAX_START_BACK, NULL
from dissector.stream import records
from dissector.stream.duplicates import remembered, signature
from dissector.stream.history import LETTER_SYN, LETTER_SYN_ACK, has_letter
from dissector.stream.numbering import ack_reach, acknowledges_syn, is_beyond, window_scale
from dissector.stream.out_of_order import drop_first, shift_offsets
from dissector.stream.records import Connections, Directions
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, offset_near, sequence_at
from dissector.stream.state import StreamState


class Belonging(enum.IntEnum):
    """How a packet with SYN belongs to a known connection."""

    OURS = 0  # belongs to the connection
    REUSE = 1  # opens another one
    STRAY = 2  # belongs to it, says nothing about it


@kernel
def classify_syn(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray
) -> Belonging:
    """Which of OURS, REUSE, STRAY a SYN or SYN-ACK on a known address pair is.

    data: of its packet.
    """
    connections = state.connections
    directions = state.directions
    connection = direction_index >> 1
    peer = direction_index ^ 1
    isn = directions.isn[direction_index]
    # After a reset a SYN is no late packet that the reorder window waits for.
    is_over = connections.closing[connection] >= 0
    has_ended = is_over or connections.ended_packet[connection] != NULL
    if isn == segment.sequence:
        is_again = has_ended and _tries_again(state, direction_index, segment, data)
        return Belonging.REUSE if is_again else Belonging.OURS
    if has_ended:
        return Belonging.REUSE
    is_answer = _is_answer(directions, direction_index, segment)
    last_tsval = directions.last_tsval[direction_index]
    is_old = last_tsval >= 0 and segment.tsval >= 0 and distance(segment.tsval, last_tsval) < 0
    # Behind its FIN a side opens anew; another host, whose clock shows less, may have its address.
    is_old = is_old and not directions.fin_seen[direction_index]
    if is_old and not is_answer and (isn != NULL or directions.has_released[direction_index]):
        return Belonging.STRAY
    if segment.flags & records.TCP_ACK and directions.isn[peer] != NULL and not is_answer:
        # It answers another SYN than the one that this side has to answer.
        is_open = (
            directions.is_isn_acked[direction_index] != 0
            or directions.has_released[direction_index] != 0
        )
        if not is_open or directions.packets[direction_index] == 0:
            return Belonging.STRAY
    if isn == NULL:
        # A side that answered a SYN with a bare acknowledgement of any number may open after it (a
        # split handshake).
        is_plain = segment.flags & records.TCP_ACK == 0
        is_split = (
            directions.isn[peer] != NULL and directions.highest[direction_index] == 0 and is_plain
        )
        is_start = is_answer and directions.has_released[direction_index] == 0
        is_ours = is_split or is_start or _can_begin(directions, direction_index, segment)
        return Belonging.OURS if is_ours else Belonging.REUSE
    if is_answer:
        # A second answer with another number, as some load balancers give.
        is_late = (
            directions.is_isn_acked[direction_index] != 0
            or directions.has_released[direction_index] != 0
        )
        is_late = is_late or directions.pending[direction_index] > MAX_MOVED_SEGMENTS
        return Belonging.STRAY if is_late else Belonging.OURS
    is_acked = directions.is_isn_acked[direction_index] != 0 or directions.is_isn_acked[peer] != 0
    is_half_open = _is_unused(directions, direction_index) and not is_acked
    if connections.lru_list[connection] == records.LRU_SYN_ONLY or is_half_open:
        return Belonging.REUSE
    at = offset_near(
        segment.sequence, directions.origin[direction_index], directions.highest[direction_index]
    )
    return Belonging.STRAY if -1 <= at <= directions.highest[direction_index] else Belonging.REUSE


@inlined
def _has_syn(connections: Connections, direction_index: int) -> bool:
    """Whether a SYN of a side was captured, with or without ACK."""
    is_answer = has_letter(connections, direction_index, LETTER_SYN_ACK)
    return is_answer or has_letter(connections, direction_index, LETTER_SYN)


@inlined
def _is_answer(directions: Directions, direction_index: int, segment: Segment) -> bool:
    """Whether a SYN-ACK acknowledges the SYN of its peer, maybe with data that came with it."""
    peer = direction_index ^ 1
    if segment.flags & records.TCP_ACK == 0 or directions.isn[peer] == NULL:
        return False
    other = directions.other_isn[peer]
    is_other = other != NULL and segment.acknowledgement == sequence_at(other, 1)
    return bool(is_other or acknowledges_syn(directions, peer, segment.acknowledgement))


@inlined
def _is_unused(directions: Directions, direction_index: int) -> bool:
    """Whether no data of either side was captured."""
    return bool(
        directions.highest[direction_index] == 0 and directions.highest[direction_index ^ 1] == 0
    )


@inlined
def _tries_again(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray
) -> bool:
    """Whether a SYN whose number is known opens anew what was reset before it was open.

    It may be a copy of the first one, too, which a tap shows late.
    """
    if segment.flags & records.TCP_ACK or not _is_unused(state.directions, direction_index):
        return False
    direction = state.connections.connection_id[direction_index >> 1] * 2 + (direction_index & 1)
    value = signature(segment, direction, data)
    return remembered(state.signatures, value, segment.ts_ns) == NULL


@inlined
def _can_begin(directions: Directions, direction_index: int, segment: Segment) -> bool:
    """Whether a SYN can be the missing beginning of a side seen without it."""
    start = sequence_at(segment.sequence, 1)
    if not directions.has_origin[direction_index]:
        # Of what the peer acknowledged only the furthest number is known.
        ahead = distance(directions.acked[direction_index], start)
        return not directions.has_raw_ack[direction_index] or 0 <= ahead <= MAX_START_BACK
    back = distance(start, directions.origin[direction_index])
    if directions.has_released[direction_index]:
        return back == 0
    return -MAX_START_BACK <= back <= 0


@inlined
def _believed(directions: Directions, direction_index: int, acked: int) -> int:
    """An acknowledged offset, or 0 if the side cannot have sent so much."""
    return acked if 0 < acked <= ack_reach(directions, direction_index) else 0


@inlined
def set_origin(directions: Directions, direction_index: int, origin: int, clock: int) -> None:
    """Set the sequence number of a side's offset 0 for the first time."""
    acked = 0
    if directions.has_raw_ack[direction_index]:
        acked = _believed(
            directions, direction_index, distance(directions.acked[direction_index], origin)
        )
    directions.origin[direction_index] = origin
    directions.released[direction_index] = 0
    directions.highest[direction_index] = 0
    directions.acked[direction_index] = acked
    directions.acked_since[direction_index] = clock
    directions.has_origin[direction_index] = 1


@kernel
def _move_origin(state: StreamState, direction_index: int, origin: int) -> None:
    """Set offset 0 after packets without a SYN were seen; nothing has left yet."""
    directions = state.directions
    by = -distance(origin, directions.origin[direction_index])
    shift_offsets(state, direction_index, by)
    directions.origin[direction_index] = origin
    directions.released[direction_index] = 0
    directions.fin_offset[direction_index] += by
    # What was acknowledged of another numbering says nothing of this one.
    is_first = directions.isn[direction_index] == NULL
    directions.acked[direction_index] = (
        _believed(directions, direction_index, directions.acked[direction_index] + by)
        if is_first
        else 0
    )
    directions.highest[direction_index] = 0
    directions.sent[direction_index] = 0
    head = state.heads[direction_index, 0]
    tail = state.tails[direction_index, 0]
    if head >= 0:
        at = state.nodes.offset[tail]
        if state.nodes.offset[head] < 0 or is_beyond(directions, direction_index, at, at):
            _drop_waiting(state, direction_index)
        else:
            directions.highest[direction_index] = at + state.nodes.length[tail]
    directions.start_is_open[direction_index] = 0
    directions.started_empty[direction_index] = 0


@kernel
def _drop_waiting(state: StreamState, direction_index: int) -> None:
    """Drop all waiting segments of a side: they belong to an earlier stream."""
    for _ in range(len(state.nodes.length)):
        if state.heads[direction_index, 0] < 0:
            break
        state.directions.dropped_bytes[direction_index] += state.nodes.length[
            state.heads[direction_index, 0]
        ]
        drop_first(state, direction_index)
    state.directions.fin_seen[direction_index] = 0


@kernel
def _begin(state: StreamState, direction_index: int, isn: int) -> None:
    """Begin a side's stream at its initial sequence number, which became known."""
    directions = state.directions
    origin = sequence_at(isn, 1)
    if directions.isn[direction_index] != NULL and isn != directions.isn[direction_index]:
        directions.other_isn[direction_index] = directions.isn[direction_index]
        directions.is_isn_acked[direction_index] = 0
    if not directions.has_origin[direction_index]:
        set_origin(directions, direction_index, origin, state.counters.clock[0])
    elif not directions.has_released[direction_index]:
        _move_origin(state, direction_index, origin)
    directions.isn[direction_index] = isn


@kernel
def receive_syn(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray
) -> None:
    """Receive a SYN or SYN-ACK that belongs to the connection. data: of its packet."""
    connections = state.connections
    directions = state.directions
    connection = direction_index >> 1
    peer = direction_index ^ 1
    directions.scale[direction_index] = max(
        directions.scale[direction_index], window_scale(segment, data)
    )
    if (
        directions.isn[direction_index] == segment.sequence
        and directions.packets[direction_index] > 1
    ):
        directions.retransmitted_packets[direction_index] += 1
        if not segment.flags & records.TCP_ACK and directions.packets[peer] == 0:
            connections.syn_ts_ns[connection] = segment.ts_ns
    else:
        _begin(state, direction_index, segment.sequence)
        if not segment.flags & records.TCP_ACK:
            directions.is_isn_acked[peer] = 0  # acknowledged before there was anything to answer
    if not segment.flags & records.TCP_ACK:
        if connections.opener[connection] < 0:
            connections.opener[connection] = direction_index & 1
            connections.syn_ts_ns[connection] = segment.ts_ns
        return
    if connections.opener[connection] < 0:
        connections.opener[connection] = peer & 1
    if directions.isn[peer] == NULL:
        start = segment.acknowledgement
        back = distance(start, directions.origin[peer])
        if not directions.has_origin[peer] or (
            directions.start_is_open[peer] and -MAX_START_BACK <= back <= 0
        ):
            _begin(state, peer, sequence_at(start, -1))
        return
    if not acknowledges_syn(directions, peer, segment.acknowledgement) and _is_answer(
        directions, direction_index, segment
    ):
        _begin(state, peer, directions.other_isn[peer])
    if (
        connections.syn_ts_ns[connection] != NULL
        and connections.handshake_rtt_ns[connection] == NULL
    ):
        connections.rtt_pending[connection] = 1


@kernel
def confirm_start(state: StreamState, direction_index: int, segment: Segment) -> None:
    """Choose the peer's initial number that an acknowledgement confirms."""
    directions = state.directions
    peer = direction_index ^ 1
    isn = directions.isn[peer]
    if isn == NULL or directions.is_isn_acked[peer] or not _has_syn(state.connections, peer):
        return
    ahead = distance(segment.acknowledgement, sequence_at(isn, 1))
    if 0 <= ahead <= directions.highest[peer]:
        directions.is_isn_acked[peer] = 1
        return
    if directions.has_released[peer]:
        return
    other = directions.other_isn[peer]
    if other != NULL and segment.acknowledgement == sequence_at(other, 1):
        _begin(state, peer, other)
        directions.is_isn_acked[peer] = 1
    elif (
        not 0 <= ahead <= ack_reach(directions, peer)
        and directions.pending[peer] == 0
        and directions.isn[direction_index] != NULL
        and segment.sequence == sequence_at(directions.isn[direction_index], 1)
    ):
        _begin(state, peer, sequence_at(segment.acknowledgement, -1))  # its SYN was not captured


@inlined
def measure_handshake(connections: Connections, direction_index: int, segment: Segment) -> None:
    """Measure the handshake if this is the opener's first packet after the SYN-ACK, its end.

    One with data came when there was something to send: its handshake's own is not in the capture,
    or was held back for it (Linux sends none where a write is pending).
    """
    connection = direction_index >> 1
    if not connections.rtt_pending[connection]:
        return
    if connections.opener[connection] == direction_index & 1 and segment.flags & records.TCP_ACK:
        connections.rtt_pending[connection] = 0
        elapsed = segment.ts_ns - connections.syn_ts_ns[connection]
        if segment.ts_ns != NULL and elapsed >= 0 and segment.wire_bytes == 0:
            connections.handshake_rtt_ns[connection] = elapsed


@kernel
def start_midstream(state: StreamState, direction_index: int, segment: Segment) -> None:
    """Begin the stream of a side whose first packet is no SYN: offset 0 is its sequence number.

    Earlier bytes may have been overtaken on the way to the tap, so the start stays open for the
    reorder window: nothing leaves, and bytes before offset 0 are welcome.
    """
    directions = state.directions
    clock = state.counters.clock[0]
    set_origin(directions, direction_index, segment.sequence, clock)
    if segment.flags & records.TCP_RST:
        return
    directions.start_is_open[direction_index] = 1
    directions.start_since[direction_index] = clock
    if segment.wire_bytes <= 1:
        directions.started_empty[direction_index] = 1
        if directions.acked[direction_index] == 1:
            # The peer has the byte at this number already: a keep-alive, one byte back.
            directions.released[direction_index] = 1
            directions.highest[direction_index] = 1
