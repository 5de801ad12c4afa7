"""Segments whose TCP checksum is wrong where their sender's checksums are right.

A host that leaves checksums to its network card shows wrong ones at its own tap: none of them means
anything, and nearly all captures of clients and brokers are like that. Where a sender's checksums
are right, though, a wrong one means that the packet was damaged: its receiver dropped it, and what
it carried comes again.

So the checksum of a segment is judged by those before it of its side. Of a damaged segment only
the payload is used, and it waits: for a copy with a right checksum, which replaces it whatever the
overlap policy; or for proof that the receiver took it, that is, its acknowledgement. Without either
it is used in the end, as late as a hole would be given up, because damaged bytes are worth more
than none.

Not judged are segments that were not captured whole; checksums of 0; and those that hold the sum of
the pseudo header alone, which is what a driver leaves for the card to complete.
"""

import enum
from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16
from dissector.codecs.ones_sum import folded, ones_sum
from dissector.jit import inlined, kernel
from dissector.packet.tcp import CHECKSUM_AT, HEADER_BYTES
from dissector.stream.records import TCP_FIN, TCP_RST, TCP_SYN, Counters, Directions
from dissector.stream.segment import Segment


class ChecksumState(enum.IntEnum):
    """The state of a segment's checksum; UNKNOWN: not checked."""

    UNKNOWN = 0
    RIGHT = 1
    WRONG = 2


_GOOD_PER_BAD: Final = 8  # a card that joins segments leaves stale checksums among right ones
_GOOD_PER_BAD_OF_ALL: Final = 64  # some hosts of a capture may have none that is right
_LEAST_GOOD_OF_ALL: Final = 8
_OPENS_OR_ENDS: Final = TCP_SYN | TCP_FIN | TCP_RST


@kernel
def checksum_of(addresses: int, segment: Segment, data: ByteArray) -> int:
    """Whether a segment's checksum is RIGHT, WRONG or UNKNOWN. addresses: see address_sum."""
    start = segment.offset - segment.header_bytes
    if (
        segment.header_bytes < HEADER_BYTES
        or segment.captured_bytes < segment.wire_bytes
        or start < 0
    ):
        return ChecksumState.UNKNOWN
    size = segment.header_bytes + segment.wire_bytes
    pseudo = folded(addresses + (size & 0xFFFF) + (size >> 16))
    field = be16(data, start + CHECKSUM_AT)
    if field == 0 or field == pseudo or field == folded(addresses):
        return ChecksumState.UNKNOWN
    return (
        ChecksumState.RIGHT
        if folded(pseudo + ones_sum(data, start, start + size)) == 0xFFFF
        else ChecksumState.WRONG
    )


@inlined
def _means_damage(
    directions: Directions, counters: Counters, direction_index: int, segment: Segment
) -> bool:
    """Whether a wrong checksum of a side means damage.

    Judged by those before of the side; of a first packet that would open or end a connection by
    those of the whole capture.
    """
    good = directions.right_checksums[direction_index]
    if good > 0:
        return bool(directions.wrong_checksums[direction_index] <= good // _GOOD_PER_BAD)
    good = counters.right_checksums[0]
    needs_slow_path = counters.wrong_checksums[0] <= good // _GOOD_PER_BAD_OF_ALL
    return bool(segment.flags & _OPENS_OR_ENDS and good >= _LEAST_GOOD_OF_ALL and needs_slow_path)


@kernel
def looks_damaged(
    directions: Directions,
    counters: Counters,
    direction_index: int,
    addresses: int,
    segment: Segment,
    data: ByteArray,
) -> bool:
    """Whether a segment was damaged, see `is_damaged`; counts nothing."""
    if checksum_of(addresses, segment, data) != ChecksumState.WRONG:
        return False
    return _means_damage(directions, counters, direction_index, segment)


@inlined
def is_damaged(
    directions: Directions,
    counters: Counters,
    direction_index: int,
    addresses: int,
    segment: Segment,
    data: ByteArray,
) -> bool:
    """Whether a segment was damaged, judged by all checksums before; counts this one.

    addresses: see address_sum.
    """
    verdict = checksum_of(addresses, segment, data)
    if verdict == ChecksumState.RIGHT:
        directions.right_checksums[direction_index] += 1
        counters.right_checksums[0] += 1
    if verdict != ChecksumState.WRONG:
        return False
    is_bad = _means_damage(directions, counters, direction_index, segment)
    directions.wrong_checksums[direction_index] += 1
    counters.wrong_checksums[0] += 1
    return is_bad
