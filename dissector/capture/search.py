"""Search for the next position after damage from which records follow one another.

pcap records have no magic number, nor do pcapng blocks other than section headers. But random bytes
are rarely a credible header, and a length leads to the next header. A position is accepted if
several consecutive headers are credible, or fewer that lead exactly to the end of the file. The
result does not depend on buffer sizes: an undecided position waits for more bytes.
"""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.capture import pcapng
from dissector.capture.columns import load32
from dissector.capture.pcap import LONGEST_WITHOUT_SNAPLEN, LengthOrder, PcapLayout
from dissector.capture.pcapng import BlockType
from dissector.codecs.integers import be32, le64
from dissector.jit import inlined, kernel
from dissector.limits import NULL

# Results of a search.
NOT_HERE: Final = 0
HERE: Final = 1
UNDECIDED: Final = 2  # more bytes are needed

_CONFIRMING: Final = 4  # consecutive credible records, each with a header of 16 bytes
_DAY_SECONDS: Final = 86_400  # larger time differences of neighbours are not credible
_CONFIRMING_BLOCKS: Final = 3
_LONGEST_BLOCK: Final = LONGEST_WITHOUT_SNAPLEN + 4096  # longest credible block
_SWAPPED_ORDER_MAGIC: Final = 0x4D3C2B1A
_PACKET_KINDS: Final = (BlockType.OLD_PACKET, BlockType.SIMPLE_PACKET, BlockType.ENHANCED_PACKET)


class SearchResult(NamedTuple):
    """position: of the records, or from which bytes are still needed; answer: see above."""

    position: int
    answer: int


@inlined
def _record_bytes(
    data: ByteArray, position: int, layout: PcapLayout, last_seconds: int
) -> tuple[int, int]:
    """Return the size of the record at a position, header included (-1: not credible), and its
    time in s."""
    order = layout.is_big_endian
    seconds = load32(data, position, order)
    fraction = load32(data, position + 4, order)
    captured = load32(data, position + 8, order)
    wire = load32(data, position + 12, order)
    if layout.lengths != LengthOrder.IN_ORDER and (
        layout.lengths == LengthOrder.SWAPPED or captured > wire
    ):
        captured, wire = wire, captured
    if captured > wire or wire == 0 or wire > LONGEST_WITHOUT_SNAPLEN:
        return -1, 0
    if fraction * layout.unit_ns >= 1_000_000_000:
        return -1, 0
    if last_seconds != NULL and abs(seconds - last_seconds) > _DAY_SECONDS:
        return -1, 0
    return layout.record_header_bytes + captured, seconds


@inlined
def _records_here(
    data: ByteArray, bounds: tuple[int, int], layout: PcapLayout, last_seconds: int, is_last: int
) -> int:
    """Whether records follow one another from bounds[0] on."""
    position, end = bounds
    enough = 2 if last_seconds == NULL else 1
    for count in range(_CONFIRMING):
        left = end - position
        if left == 0 and is_last:
            return HERE if count >= enough else NOT_HERE
        if left < layout.record_header_bytes:
            if not is_last:
                return UNDECIDED
            return HERE if count > enough else NOT_HERE
        size, last_seconds = _record_bytes(data, position, layout, last_seconds)
        if size < 0:
            return NOT_HERE
        if size > left:
            if not is_last:
                return UNDECIDED
            return HERE if count > enough else NOT_HERE
        position += size
    return HERE


@kernel
def find_records(
    data: ByteArray, bounds: tuple[int, int], layout: PcapLayout, last_seconds: int, is_last: int
) -> SearchResult:
    """Find the first position in data from which pcap records follow one another.

    Args:
        bounds: start and end in data; is_last: 1 = the file ends there.
        last_seconds: time of the last good record, NULL if there was none.
    """
    position, end = bounds
    while position < end:
        # A record of wire length 0 is not credible: skip zeros.
        while end - position >= 24 and le64(data, position + 8) | le64(data, position + 16) == 0:
            position += 8
        answer = _records_here(data, (position, end), layout, last_seconds, is_last)
        if answer != NOT_HERE:
            return SearchResult(position, answer)
        position += 1
    return SearchResult(end, NOT_HERE)


@inlined
def _block_bytes(data: ByteArray, position: int, left: int, order: int) -> int:
    """Return the size of the block at a position, 0 if undecided, -1 if not credible."""
    if left < 8:
        return 0
    if load32(data, position, order) == BlockType.SECTION_HEADER:
        if left < 12:
            return 0
        magic = be32(data, position + 8)
        if magic not in (pcapng.BYTE_ORDER_MAGIC, _SWAPPED_ORDER_MAGIC):
            return -1
        order = 1 if magic == pcapng.BYTE_ORDER_MAGIC else 0
        if load32(data, position + 4, order) < pcapng.SHORTEST_SECTION_BYTES:
            return -1
    size = load32(data, position + 4, order)
    if size < pcapng.BLOCK_OVERHEAD_BYTES or size > _LONGEST_BLOCK or size & 3 != 0:
        return -1
    if size > left:
        return 0
    return size if load32(data, position + size - 4, order) == size else -1


@inlined
def _blocks_here(data: ByteArray, bounds: tuple[int, int], order: int, is_last: int) -> int:
    """Whether blocks follow one another from bounds[0] on, with a packet or a section header."""
    position, end = bounds
    has_packet = 0
    for _ in range(_CONFIRMING_BLOCKS):
        if position == end and is_last:
            break
        size = _block_bytes(data, position, end - position, order)
        if size == 0 and not is_last:
            return UNDECIDED
        if size == 0:
            break
        if size < 0:
            return NOT_HERE
        kind = load32(data, position, order)
        if kind == BlockType.SECTION_HEADER:
            return HERE
        if kind in _PACKET_KINDS:
            has_packet = 1
        position += size
    return HERE if has_packet else NOT_HERE


@kernel
def find_blocks(data: ByteArray, bounds: tuple[int, int], order: int, is_last: int) -> SearchResult:
    """Find the first position in data of a section header, or of blocks of the current section.

    Args:
        bounds: start and end in data; is_last: 1 = the file ends there.
        order: 1 if the current section is big-endian, 0 if little-endian, -1 without a section:
            then only a section header is accepted.
    """
    position, end = bounds
    while position < end:
        # A block of size 0 is not credible either: skip zeros.
        while end - position >= 16 and le64(data, position) | le64(data, position + 8) == 0:
            position += 8
        is_section = end - position < 4 or load32(data, position, 0) == BlockType.SECTION_HEADER
        if is_section or order >= 0:
            answer = _blocks_here(data, (position, end), max(order, 0), is_last)
            if answer != NOT_HERE:
                return SearchResult(position, answer)
        position += 1
    return SearchResult(end, NOT_HERE)
