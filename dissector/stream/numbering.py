"""Which sequence numbers belong to a stream, and what becomes of all others.

A host sends no further than its peer's window reaches: at most 65,535 bytes, times two to the power
of the scale that the peer's SYN names; 2^14 where no SYN tells. Payload further off than that does
not belong to the stream, whatever came before: it is a stream of its own, between the same
addresses (`tags.py` finds and opens it). So numbers that leap are never taken for a loss.

Boxes that rewrite sequence numbers, and taps on both of their sides, show each packet twice, with
two numbers. Two packets that follow on each other and are equal in all but their numbers, IP
identification included, tell by how much these differ. From then on the numbers of the second
numbering are put back into the first, so that its packets are what they are: copies by the tap.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import byte
from dissector.jit import inlined, kernel
from dissector.limits import (
    LEAST_REACH_BYTES,
    MAX_ACK_REACH,
    MAX_REACH_BACK,
    NULL,
    TAG_REACH_BYTES,
)
from dissector.notices import NOTICE_NUMBER
from dissector.packet.tcp import HEADER_BYTES, find_option
from dissector.stream.duplicates import WINDOW_NS, remembered, signature
from dissector.stream.output import note_side
from dissector.stream.records import TCP_ACK, TCP_RST, TCP_SYN, Sides
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, offset_near, sequence_at
from dissector.stream.state import StreamState

NO_SCALE: Final = -1
_MAX_SCALE: Final = 14
_WINDOW: Final = 65_535
_SCALE_OPTION: Final = 3
_SCALE_BYTES: Final = 3
_TWO_NUMBERINGS: Final = NOTICE_NUMBER["two_numberings"]


@kernel
def window_scale(segment: Segment, data: ByteArray) -> int:
    """The scale of windows that a SYN names, NO_SCALE without one, NULL if its header is cut."""
    if segment.header_bytes < HEADER_BYTES:
        return NULL
    start = segment.offset - segment.header_bytes + HEADER_BYTES
    at = find_option(data, start, segment.offset, _SCALE_OPTION, _SCALE_BYTES)
    return NO_SCALE if at < 0 else int(min(byte(data, at + 2), _MAX_SCALE))


@inlined
def reach_of(sides: Sides, side: int) -> int:
    """How many bytes a side may send beyond what was acknowledged: its peer's largest window."""
    scale = sides.scale[side ^ 1]
    if NO_SCALE in (scale, sides.scale[side]):
        return _WINDOW
    return int(_WINDOW << (_MAX_SCALE if scale == NULL else scale))


@inlined
def ack_reach(sides: Sides, side: int) -> int:
    """How far beyond all bytes seen of a side an acknowledgement of them is believed."""
    return min(reach_of(sides, side), MAX_ACK_REACH)


@inlined
def is_beyond(sides: Sides, side: int, offset: int, end: int) -> bool:
    """Whether bytes at such offsets lie beyond every window of a side, ahead or behind."""
    reach = reach_of(sides, side)
    ahead = offset - max(sides.highest[side], sides.acked[side])
    back = sides.released[side] - end
    return bool(ahead > max(reach, LEAST_REACH_BYTES) or back > max(reach, MAX_REACH_BACK))


@inlined
def acknowledges_syn(sides: Sides, side: int, number: int) -> bool:
    """Whether a number acknowledges the SYN of a side, and no more than was seen behind it."""
    isn = sides.isn[side]
    if isn == NULL:
        return False
    return bool(0 <= distance(number, sequence_at(isn, 1)) <= max(0, sides.highest[side]))


@inlined
def is_no_answer(sides: Sides, side: int, segment: Segment) -> bool:
    """Whether a packet of a side without a start cannot belong to the answer to its peer's SYN.

    Such are what a host sends that still has an older connection: a challenge ACK, old data. A
    reset has to acknowledge the SYN; before other packets the tap may have missed some.
    """
    peer = side ^ 1
    if sides.isn[peer] == NULL or sides.isn[side] != NULL or sides.has_origin[side]:
        return False
    if segment.flags & TCP_RST:
        is_acked = acknowledges_syn(sides, peer, segment.acknowledgement)
        return segment.flags & TCP_ACK == 0 or not is_acked
    ahead = distance(segment.acknowledgement, sequence_at(sides.isn[peer], 1))
    return segment.flags & TCP_ACK != 0 and not 0 <= ahead <= sides.highest[peer] + TAG_REACH_BYTES


@kernel
def is_of_another_stream(sides: Sides, side: int, segment: Segment) -> bool:
    """Whether the payload of a segment belongs to another stream of the same addresses."""
    if segment.flags & (TCP_SYN | TCP_RST) or segment.wire_bytes == 0:
        return False
    if not sides.has_origin[side]:
        return is_no_answer(sides, side, segment)
    offset = offset_near(segment.sequence, sides.origin[side], sides.released[side])
    if not is_beyond(sides, side, offset, offset + segment.wire_bytes):
        return False
    # Behind its stream it may also be an old packet that a second tap shows late.
    latest = sides.last_tsval[side]
    is_old = segment.tsval >= 0 and latest >= 0 and distance(segment.tsval, latest) < 0
    return bool(offset > sides.released[side] or not is_old)


@kernel
def acknowledges_another_stream(sides: Sides, side: int, segment: Segment) -> bool:
    """Whether a segment acknowledges numbers that its peer's stream does not have."""
    peer = side ^ 1
    if segment.flags & (TCP_SYN | TCP_ACK) != TCP_ACK:
        return False
    if sides.has_origin[peer]:
        end = sequence_at(sides.origin[peer], max(sides.highest[peer], sides.acked[peer]))
    elif sides.has_raw_ack[peer]:
        end = sides.acked[peer]
    else:
        return False
    ahead = distance(segment.acknowledgement, end)
    most_back = max(reach_of(sides, peer), MAX_REACH_BACK)
    return bool(ahead > ack_reach(sides, peer) or -ahead > most_back)


@inlined
def _end_of(sides: Sides, side: int) -> int:
    """The number behind all that is known of a side; NULL if nothing is."""
    if sides.has_origin[side]:
        return sequence_at(sides.origin[side], sides.highest[side])
    return int(sides.acked[side]) if sides.has_raw_ack[side] else NULL


@inlined
def _renumbered(segment: Segment, sequence: int, acknowledgement: int) -> Segment:
    return Segment(
        segment.packet, segment.ts_ns, segment.source, segment.offset, segment.captured_bytes,
        segment.wire_bytes, sequence, acknowledgement, segment.flags, segment.window,
        segment.ip_id, segment.tsval, segment.header_bytes,
    )  # fmt: skip


@kernel
def _find_shift(state: StreamState, side: int, segment: Segment, data: ByteArray) -> None:
    """Note by how much numbers differ if the packet before was the same one in other numbers."""
    sides = state.sides
    peer = side ^ 1
    sequence = sides.isn[side]
    if segment.flags & TCP_SYN == 0 and sides.has_origin[side]:
        sequence = sequence_at(_end_of(sides, side), -segment.wire_bytes)
    acknowledgement = segment.acknowledgement
    if segment.flags & TCP_ACK:
        acknowledgement = sides.acked[peer] if sides.has_raw_ack[peer] else NULL
        if sides.has_origin[peer]:
            acknowledgement = sequence_at(sides.origin[peer], sides.acked[peer])
    if NULL in (sequence, acknowledgement):
        return
    more = distance(segment.sequence, sequence)
    further = distance(segment.acknowledgement, acknowledgement)
    if max(abs(more), abs(further)) <= TAG_REACH_BYTES:
        return
    direction = state.connections.connection_id[side >> 1] * 2 + (side & 1)
    value = signature(_renumbered(segment, sequence, acknowledgement), direction, data)
    if not 0 <= remembered(state.signatures, value, segment.ts_ns) <= WINDOW_NS:
        return
    if sides.shift[side] == 0 and sides.shift[peer] == 0:
        note_side(state, side, _TWO_NUMBERINGS, NULL, NULL)
    if sides.shift[side] == 0:
        sides.shift[side] = more
    if sides.shift[peer] == 0:
        sides.shift[peer] = further


@inlined
def _put_back(sides: Sides, side: int, number: int) -> int:
    """A number of either numbering of a side in its first one, which is the nearer of the two."""
    end = _end_of(sides, side)
    if sides.shift[side] == 0 or end == NULL:
        return number
    other = sequence_at(number, -sides.shift[side])
    return other if abs(distance(other, end)) < abs(distance(number, end)) else number


@inlined
def _put_back_both(sides: Sides, side: int, segment: Segment) -> Segment:
    acknowledgement = segment.acknowledgement
    if segment.flags & TCP_ACK:
        acknowledgement = _put_back(sides, side ^ 1, acknowledgement)
    return _renumbered(segment, _put_back(sides, side, segment.sequence), acknowledgement)


@kernel
def in_first_numbering(state: StreamState, side: int, segment: Segment, data: ByteArray) -> Segment:
    """A segment with the numbers that its packet has in the first numbering of its connection."""
    sides = state.sides
    segment = _put_back_both(sides, side, segment)
    is_repeated = segment.ip_id > 0 and segment.ip_id == sides.last_ip_id[side]
    if not is_repeated or sides.ip_ids_repeat[side]:
        return segment
    _find_shift(state, side, segment, data)
    return _put_back_both(sides, side, segment)
