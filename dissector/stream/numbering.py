"""Which sequence numbers belong to a stream, and how all others are handled.

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

from dissector import limits
from dissector.blocks import ByteArray
from dissector.codecs.integers import byte
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.packet.tcp import HEADER_BYTES, find_option
from dissector.stream.duplicates import WINDOW_NS, remembered, signature
from dissector.stream.output import note_direction
from dissector.stream.records import TCP_ACK, TCP_RST, TCP_SYN, Directions
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
def reach_of(directions: Directions, direction_index: int) -> int:
    """How many bytes a side may send beyond what was acknowledged: its peer's largest window."""
    scale = directions.scale[direction_index ^ 1]
    if NO_SCALE in (scale, directions.scale[direction_index]):
        return _WINDOW
    return int(_WINDOW << (_MAX_SCALE if scale == NULL else scale))


@inlined
def ack_reach(directions: Directions, direction_index: int) -> int:
    """How far beyond all bytes seen of a side an acknowledgement of them is believed."""
    return min(reach_of(directions, direction_index), limits.MAX_ACK_REACH)


@inlined
def is_beyond(directions: Directions, direction_index: int, offset: int, end: int) -> bool:
    """Whether bytes at such offsets lie beyond every window of a side, ahead or behind."""
    reach = reach_of(directions, direction_index)
    ahead = offset - max(directions.highest[direction_index], directions.acked[direction_index])
    back = directions.released[direction_index] - end
    return bool(
        ahead > max(reach, limits.LEAST_REACH_BYTES) or back > max(reach, limits.MAX_REACH_BACK)
    )


@inlined
def acknowledges_syn(directions: Directions, direction_index: int, number: int) -> bool:
    """Whether a number acknowledges the SYN of a side, and no more than was seen behind it."""
    isn = directions.isn[direction_index]
    if isn == NULL:
        return False
    return bool(
        0 <= distance(number, sequence_at(isn, 1)) <= max(0, directions.highest[direction_index])
    )


@inlined
def is_no_answer(directions: Directions, direction_index: int, segment: Segment) -> bool:
    """Whether a packet of a side without a start cannot belong to the answer to its peer's SYN.

    Such are what a host sends that still has an older connection: a challenge ACK, old data. A
    reset has to acknowledge the SYN; before other packets the tap may have missed some.
    """
    peer = direction_index ^ 1
    if (
        directions.isn[peer] == NULL
        or directions.isn[direction_index] != NULL
        or directions.has_origin[direction_index]
    ):
        return False
    if segment.flags & TCP_RST:
        is_acked = acknowledges_syn(directions, peer, segment.acknowledgement)
        return segment.flags & TCP_ACK == 0 or not is_acked
    ahead = distance(segment.acknowledgement, sequence_at(directions.isn[peer], 1))
    return (
        segment.flags & TCP_ACK != 0
        and not 0 <= ahead <= directions.highest[peer] + limits.TAG_REACH_BYTES
    )


@kernel
def is_of_another_stream(directions: Directions, direction_index: int, segment: Segment) -> bool:
    """Whether the payload of a segment belongs to another stream of the same addresses."""
    if segment.flags & (TCP_SYN | TCP_RST) or segment.wire_bytes == 0:
        return False
    if not directions.has_origin[direction_index]:
        return is_no_answer(directions, direction_index, segment)
    offset = offset_near(
        segment.sequence, directions.origin[direction_index], directions.released[direction_index]
    )
    if not is_beyond(directions, direction_index, offset, offset + segment.wire_bytes):
        return False
    # Behind its stream it may also be an old packet that a second tap shows late.
    latest = directions.last_tsval[direction_index]
    is_old = segment.tsval >= 0 and latest >= 0 and distance(segment.tsval, latest) < 0
    return bool(offset > directions.released[direction_index] or not is_old)


@kernel
def acknowledges_another_stream(
    directions: Directions, direction_index: int, segment: Segment
) -> bool:
    """Whether a segment acknowledges numbers that its peer's stream does not have."""
    peer = direction_index ^ 1
    if segment.flags & (TCP_SYN | TCP_ACK) != TCP_ACK:
        return False
    if directions.has_origin[peer]:
        end = sequence_at(
            directions.origin[peer], max(directions.highest[peer], directions.acked[peer])
        )
    elif directions.has_raw_ack[peer]:
        end = directions.acked[peer]
    else:
        return False
    ahead = distance(segment.acknowledgement, end)
    most_back = max(reach_of(directions, peer), limits.MAX_REACH_BACK)
    return bool(ahead > ack_reach(directions, peer) or -ahead > most_back)


@inlined
def end_of(directions: Directions, direction_index: int) -> int:
    """The sequence number behind all known bytes of a side; NULL if there are none."""
    if directions.has_origin[direction_index]:
        return sequence_at(directions.origin[direction_index], directions.highest[direction_index])
    return (
        int(directions.acked[direction_index]) if directions.has_raw_ack[direction_index] else NULL
    )


@inlined
def _renumbered(segment: Segment, sequence: int, acknowledgement: int) -> Segment:
    return Segment(
        segment.packet, segment.ts_ns, segment.source, segment.offset, segment.captured_bytes,
        segment.wire_bytes, sequence, acknowledgement, segment.flags, segment.window,
        segment.ip_id, segment.tsval, segment.header_bytes,
    )  # fmt: skip


@kernel
def _find_shift(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray
) -> None:
    """Note by how much numbers differ if the packet before was the same one in other numbers."""
    directions = state.directions
    peer = direction_index ^ 1
    sequence = directions.isn[direction_index]
    if segment.flags & TCP_SYN == 0 and directions.has_origin[direction_index]:
        sequence = sequence_at(end_of(directions, direction_index), -segment.wire_bytes)
    acknowledgement = segment.acknowledgement
    if segment.flags & TCP_ACK:
        acknowledgement = directions.acked[peer] if directions.has_raw_ack[peer] else NULL
        if directions.has_origin[peer]:
            acknowledgement = sequence_at(directions.origin[peer], directions.acked[peer])
    if NULL in (sequence, acknowledgement):
        return
    more = distance(segment.sequence, sequence)
    further = distance(segment.acknowledgement, acknowledgement)
    if max(abs(more), abs(further)) <= limits.TAG_REACH_BYTES:
        return
    direction = state.connections.connection_id[direction_index >> 1] * 2 + (direction_index & 1)
    value = signature(_renumbered(segment, sequence, acknowledgement), direction, data)
    if not 0 <= remembered(state.signatures, value, segment.ts_ns) <= WINDOW_NS:
        return
    if directions.shift[direction_index] == 0 and directions.shift[peer] == 0:
        note_direction(state, direction_index, _TWO_NUMBERINGS, NULL, NULL)
    if directions.shift[direction_index] == 0:
        directions.shift[direction_index] = more
    if directions.shift[peer] == 0:
        directions.shift[peer] = further


@inlined
def _put_back(directions: Directions, direction_index: int, number: int) -> int:
    """A number of either numbering of a side in its first one, which is the nearer of the two."""
    end = end_of(directions, direction_index)
    if directions.shift[direction_index] == 0 or end == NULL:
        return number
    other = sequence_at(number, -directions.shift[direction_index])
    return other if abs(distance(other, end)) < abs(distance(number, end)) else number


@inlined
def _put_back_both(directions: Directions, direction_index: int, segment: Segment) -> Segment:
    acknowledgement = segment.acknowledgement
    if segment.flags & TCP_ACK:
        acknowledgement = _put_back(directions, direction_index ^ 1, acknowledgement)
    return _renumbered(
        segment, _put_back(directions, direction_index, segment.sequence), acknowledgement
    )


@kernel
def in_first_numbering(
    state: StreamState, direction_index: int, segment: Segment, data: ByteArray
) -> Segment:
    """A segment with the numbers that its packet has in the first numbering of its connection."""
    directions = state.directions
    segment = _put_back_both(directions, direction_index, segment)
    is_repeated = segment.ip_id > 0 and segment.ip_id == directions.last_ip_id[direction_index]
    if not is_repeated or directions.ip_ids_repeat[direction_index]:
        return segment
    _find_shift(state, direction_index, segment, data)
    return _put_back_both(directions, direction_index, segment)
