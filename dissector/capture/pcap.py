"""Scans the records of a pcap file: µs or ns, either byte order, also modified headers."""

import enum
import struct
from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.capture import columns
from dissector.capture.columns import ScanProgress, ScanState
from dissector.jit import kernel
from dissector.limits import MAX_RECORD_BYTES
from dissector.packet.columns import PacketColumns

HEADER_BYTES: Final = 24  # of the file, in all formats but Ixia's
_IXIA_HEADER_BYTES: Final = 28  # its last field is the length of all records

# Largest credible packet even if the snap length is lower: writers with large receive offload
# exceed their own snap length, but not by more than this.
LONGEST_WITHOUT_SNAPLEN: Final = 1 << 20


class PcapLayout(NamedTuple):
    """Record format of one file.

    is_big_endian: 0 or 1.
    unit_ns: 1 or 1000, of the time fraction.
    record_header_bytes: 16, or 24 in the modified format of old Linux distributions.
    longest_bytes: longest credible packet.
    interface: index of the file's only interface.
    lengths: one of IN_ORDER, SWAPPED, LESSER_FIRST.
    """

    is_big_endian: int
    unit_ns: int
    record_header_bytes: int
    longest_bytes: int
    interface: int
    lengths: int


class LengthOrder(enum.IntEnum):
    """Which of a record's two lengths is the captured length. The first versions of the format had
    the lengths swapped; programs wrote version 2.3 in either order."""

    IN_ORDER = 0
    SWAPPED = 1
    LESSER_FIRST = 2


_SWAPPED_BEFORE: Final = (2, 3)
_EITHER_ORDER: Final = (2, 3)
_DG_UX: Final = 543  # the major version that the tcpdump of DG/UX writes, lengths swapped


class _Variant(NamedTuple):
    """The format that a magic number identifies."""

    is_big_endian: int
    unit_ns: int
    record_header_bytes: int
    header_bytes: int = HEADER_BYTES


# By the magic number as read big-endian.
_MAGICS: Final = {
    0xA1B2C3D4: _Variant(1, 1000, 16),
    0xD4C3B2A1: _Variant(0, 1000, 16),
    0xA1B23C4D: _Variant(1, 1, 16),
    0x4D3CB2A1: _Variant(0, 1, 16),
    0xA1B2CD34: _Variant(1, 1000, 24),
    0x34CDB2A1: _Variant(0, 1000, 24),
    # Ixia's, of its hardware and of its software.
    0x1C0001AC: _Variant(1, 1, 16, _IXIA_HEADER_BYTES),
    0xAC01001C: _Variant(0, 1, 16, _IXIA_HEADER_BYTES),
    0x1C0001AB: _Variant(1, 1000, 16, _IXIA_HEADER_BYTES),
    0xAB01001C: _Variant(0, 1000, 16, _IXIA_HEADER_BYTES),
}
_MAGIC_NUMBERS: Final = tuple(_MAGICS)


def is_pcap(magic: int) -> bool:
    """Whether the first four bytes of a file, read big-endian, are those of a pcap file."""
    return magic in _MAGICS


def header_bytes(magic: int) -> int:
    """Return the header length of a file with this magic number."""
    return _MAGICS[magic].header_bytes


class PcapHeader(NamedTuple):
    """A parsed file header.

    link_type: the whole field, flags included.
    snaplen: 0 = none.
    layout: of the records; the caller sets its interface.
    """

    link_type: int
    snaplen: int
    layout: PcapLayout


def read_header(head: bytes) -> PcapHeader:
    """Parse a file header. head: at least HEADER_BYTES of a file that `is_pcap`."""
    variant = _MAGICS[int.from_bytes(head[:4], "big")]
    order = ">" if variant.is_big_endian else "<"
    major, minor, _, _, snaplen, link_type = struct.unpack_from(f"{order}HHIIII", head, 4)
    lengths = LengthOrder.IN_ORDER
    if (major, minor) < _SWAPPED_BEFORE or major == _DG_UX:
        lengths = LengthOrder.SWAPPED
    elif (major, minor) == _EITHER_ORDER:
        lengths = LengthOrder.LESSER_FIRST
    longest = min(max(snaplen, LONGEST_WITHOUT_SNAPLEN), MAX_RECORD_BYTES)
    if snaplen == 0:
        longest = MAX_RECORD_BYTES
    layout = PcapLayout(
        variant.is_big_endian, variant.unit_ns, variant.record_header_bytes, longest, 0, lengths
    )
    return PcapHeader(link_type, snaplen, layout)


@kernel
def scan_pcap(
    data: ByteArray,
    start: int,
    end: int,
    layout: PcapLayout,
    packets: PacketColumns,
    state: ScanState,
) -> ScanProgress:
    """Write the whole records in data[start:end] to packets.

    A record that is too long, or whose header is all zeros (a file that was preallocated or lost
    its end in a crash), is damaged: the caller must search for the next record. An empty record
    with a magic number as its time is the header of an appended file (`cat a.pcap b.pcap`).

    Args:
        packets: written from row 0.

    Returns:
        Rows, the position of the first record not consumed, and FULL, CORRUPT, NEED_DATA, or BLOCK
        at a file header.
    """
    order = layout.is_big_endian
    header_bytes = layout.record_header_bytes
    row = 0
    position = start
    status = columns.NEED_DATA
    last_ts_ns = state.last_ts_ns[0]
    while True:
        if row == len(packets.offset):
            status = columns.FULL
            break
        if end - position < header_bytes:
            break
        seconds = columns.load32(data, position, order)
        fraction = columns.load32(data, position + 4, order)
        captured = columns.load32(data, position + 8, order)
        wire = columns.load32(data, position + 12, order)
        if layout.lengths != LengthOrder.IN_ORDER and (
            layout.lengths == LengthOrder.SWAPPED or captured > wire
        ):
            captured, wire = wire, captured
        if captured > layout.longest_bytes or (seconds | fraction | captured | wire) == 0:
            status = columns.CORRUPT
            break
        if (captured | wire) == 0 and seconds in _MAGIC_NUMBERS:
            status = columns.BLOCK
            break
        if captured > end - position - header_bytes:
            break
        if captured > wire:
            columns.count_oddity(state, columns.CAPTURED_LONGER, row)
            wire = captured
        if fraction * layout.unit_ns >= 1_000_000_000:
            columns.count_oddity(state, columns.LONG_FRACTIONS, row)
        last_ts_ns = seconds * 1_000_000_000 + fraction * layout.unit_ns
        packets.offset[row] = position + header_bytes
        packets.captured_bytes[row] = captured
        packets.wire_bytes[row] = wire
        packets.ts_ns[row] = last_ts_ns
        packets.interface[row] = layout.interface
        row += 1
        position += header_bytes + captured
    state.last_ts_ns[0] = last_ts_ns
    return ScanProgress(row, position, status)
