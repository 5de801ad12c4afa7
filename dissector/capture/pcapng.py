"""Scans the packet blocks of one pcapng section, with any time resolution.

The scan parses packet blocks and skips names, custom and unknown blocks. It returns at section
headers, interface descriptions, interface statistics and decryption secrets. These are few;
`dissector.capture.interfaces` parses them.
"""

import enum
from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.capture import columns
from dissector.capture.columns import InterfaceColumns, ScanProgress, ScanState
from dissector.codecs.integers import be16, le16
from dissector.jit import inlined, kernel
from dissector.limits import MAX_INTERFACES, MAX_RECORD_BYTES, NULL
from dissector.packet.columns import PacketColumns


class BlockType(enum.IntEnum):
    """Types of blocks."""

    SECTION_HEADER = 0x0A0D0D0A  # reads the same in both byte orders
    INTERFACE_DESCRIPTION = 1
    OLD_PACKET = 2
    SIMPLE_PACKET = 3
    INTERFACE_STATISTICS = 5
    ENHANCED_PACKET = 6
    DECRYPTION_SECRETS = 10


BYTE_ORDER_MAGIC: Final = 0x1A2B3C4D
SHORTEST_SECTION_BYTES: Final = 28  # of a section header block
TLS_KEY_LOG: Final = 0x544C534B  # a kind of decryption secrets
PACKET_OFFSET: Final = 28  # of the bytes of a packet in its block, enhanced or old
BLOCK_OVERHEAD_BYTES: Final = 12  # type and length before the body, length again after it


class OptionCode(enum.IntEnum):
    """Option codes, with the block type that has them."""

    END = 0
    COMMENT = 1  # any
    NAME = 2  # interface description
    APPLICATION = 4  # section header
    DROPPED = 5  # interface statistics: by the interface
    OS_DROPPED = 7  # interface statistics: by the operating system
    RESOLUTION = 9  # interface description
    FILTER = 11  # interface description
    OFFSET = 14  # interface description


_LARGEST: Final = 0x7FFF_FFFF_FFFF_FFFF
_LARGEST_TIME_NS: Final = 1 << 62  # from 1823 to 2116: differences of such times fit in 64 bits
_NO_DROP_COUNT: Final = 0xFFFF


class PcapngSection(NamedTuple):
    """A section, for the scan.

    is_big_endian: 0 or 1.
    is_skipped: 1 = its version is unknown, so its packets are skipped.
    first_interface: index of its first interface.
    interfaces: number described so far.
    """

    is_big_endian: int
    is_skipped: int
    first_interface: int
    interfaces: int


class _Packet(NamedTuple):
    """One packet block. data_offset: from the block's start; units_high: -1 without timestamp."""

    interface_id: int
    units_high: int
    units_low: int
    data_offset: int
    captured: int
    wire: int


@inlined
def _enhanced(data: ByteArray, position: int, order: int) -> _Packet:
    return _Packet(
        columns.load32(data, position + 8, order),
        columns.load32(data, position + 12, order),
        columns.load32(data, position + 16, order),
        PACKET_OFFSET,
        columns.load32(data, position + 20, order),
        columns.load32(data, position + 24, order),
    )


@inlined
def _old(data: ByteArray, position: int, order: int, state: ScanState) -> _Packet:
    if order:
        interface_id = be16(data, position + 8)
        drops = be16(data, position + 10)
    else:
        interface_id = le16(data, position + 8)
        drops = le16(data, position + 10)
    if drops != _NO_DROP_COUNT:
        state.packet_drops[0] += drops
    return _Packet(
        interface_id,
        columns.load32(data, position + 12, order),
        columns.load32(data, position + 16, order),
        PACKET_OFFSET,
        columns.load32(data, position + 20, order),
        columns.load32(data, position + 24, order),
    )


@inlined
def _simple(
    data: ByteArray, position: int, size: int, section: PcapngSection, interfaces: InterfaceColumns
) -> _Packet:
    """Parse a simple packet: without timestamp and captured length, of interface 0."""
    wire = columns.load32(data, position + 8, section.is_big_endian)
    captured = min(wire, size - 16)
    if section.interfaces > 0 and section.first_interface < MAX_INTERFACES:
        snaplen = interfaces.snaplen[section.first_interface]
        if snaplen > 0:
            captured = min(captured, snaplen)
    return _Packet(0, -1, 0, 12, captured, wire)


@kernel
def time_ns(high: int, low: int, interfaces: InterfaceColumns, interface: int) -> int:
    """Convert a time in units since 1970, in two 32-bit halves, to ns; NULL on overflow."""
    multiplier: int = interfaces.multiplier[interface]
    if high >= 1 << 31 or multiplier == 0:
        return NULL
    units = (high << 32) | low
    shift: int = interfaces.shift[interface]
    if shift > 0:
        seconds = units >> shift
        if seconds > _LARGEST // 1_000_000_000 - 1:
            return NULL
        # The fraction has up to 63 bits: its upper 32 and the lower rest are scaled separately, so
        # that no product exceeds 63 bits. Rounding down in each step is exact here.
        fraction = units - (seconds << shift)
        if shift > 32:
            rest = shift - 32
            upper = fraction >> rest
            lower = fraction - (upper << rest)
            scaled = (upper * 1_000_000_000 + ((lower * 1_000_000_000) >> rest)) >> 32
        else:
            scaled = (fraction * 1_000_000_000) >> shift
        ns = seconds * 1_000_000_000 + scaled
    else:
        if units > _LARGEST // multiplier:
            return NULL
        divisor: int = interfaces.divisor[interface]
        ns = units * multiplier // divisor
    offset_ns: int = interfaces.offset_ns[interface]
    if offset_ns > 0 and ns > _LARGEST - offset_ns:
        return NULL
    ns += offset_ns
    return ns if -_LARGEST_TIME_NS <= ns <= _LARGEST_TIME_NS else NULL


@inlined
def _put_packet(
    packet: _Packet,
    section: PcapngSection,
    interfaces: InterfaceColumns,
    packets: PacketColumns,
    row: int,
    state: ScanState,
) -> None:
    """Write interface, time and lengths of one packet; ts_ns is NULL without a time."""
    interface = section.first_interface + packet.interface_id
    if packet.interface_id >= section.interfaces:
        interface = columns.NO_INTERFACE
    elif interface >= MAX_INTERFACES:
        interface = columns.INTERFACE_LIMIT
    ts_ns = NULL
    if packet.units_high >= 0:
        if interface >= 0:
            ts_ns = time_ns(packet.units_high, packet.units_low, interfaces, interface)
        if ts_ns == NULL:
            columns.count_oddity(state, columns.UNUSABLE_TIMES, row)
    else:
        columns.count_oddity(state, columns.WITHOUT_TIMESTAMP, row)
    if ts_ns != NULL:
        state.last_ts_ns[0] = ts_ns
    if packet.captured > packet.wire:
        columns.count_oddity(state, columns.CAPTURED_LONGER, row)
    packets.interface[row] = interface
    packets.ts_ns[row] = ts_ns
    packets.captured_bytes[row] = packet.captured
    packets.wire_bytes[row] = max(packet.captured, packet.wire)


@kernel
def scan_pcapng(
    data: ByteArray,
    bounds: tuple[int, int],
    section: PcapngSection,
    interfaces: InterfaceColumns,
    packets: PacketColumns,
    state: ScanState,
) -> ScanProgress:
    """Write the whole packet blocks in data to packets; skips unknown block types.

    Args:
        bounds: start and end in data.
        packets: written from row 0.

    Returns:
        Rows, the position of the first block not consumed, and FULL, CORRUPT, NEED_DATA or BLOCK.
    """
    order = section.is_big_endian
    row = 0
    position, end = bounds
    while row < len(packets.offset):
        if end - position < BLOCK_OVERHEAD_BYTES:
            return ScanProgress(row, position, columns.NEED_DATA)
        kind = columns.load32(data, position, order)
        if kind == BlockType.SECTION_HEADER:
            return ScanProgress(row, position, columns.BLOCK)
        size = columns.load32(data, position + 4, order)
        if size < BLOCK_OVERHEAD_BYTES or size > MAX_RECORD_BYTES or size & 3 != 0:
            return ScanProgress(row, position, columns.CORRUPT)
        if size > end - position:
            return ScanProgress(row, position, columns.NEED_DATA)
        if columns.load32(data, position + size - 4, order) != size:
            return ScanProgress(row, position, columns.CORRUPT)
        if section.is_skipped:
            position += size
            continue
        if kind == BlockType.ENHANCED_PACKET and size >= 32:
            packet = _enhanced(data, position, order)
        elif kind == BlockType.OLD_PACKET and size >= 32:
            packet = _old(data, position, order, state)
        elif kind == BlockType.SIMPLE_PACKET and size >= 16:
            packet = _simple(data, position, size, section, interfaces)
        elif kind in (
            BlockType.INTERFACE_DESCRIPTION,
            BlockType.INTERFACE_STATISTICS,
            BlockType.DECRYPTION_SECRETS,
        ):
            return ScanProgress(row, position, columns.BLOCK)
        elif kind in (BlockType.ENHANCED_PACKET, BlockType.OLD_PACKET, BlockType.SIMPLE_PACKET):
            return ScanProgress(row, position, columns.CORRUPT)
        else:
            position += size
            continue
        if packet.captured > size - 4 - packet.data_offset:
            return ScanProgress(row, position, columns.CORRUPT)
        packets.offset[row] = position + packet.data_offset
        _put_packet(packet, section, interfaces, packets, row, state)
        row += 1
        position += size
    return ScanProgress(row, position, columns.FULL)
