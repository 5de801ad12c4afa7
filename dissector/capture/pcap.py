"""The records of a pcap file: microseconds or nanoseconds, either byte order, long headers too."""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.capture.columns import (
    CAPTURED_LONGER,
    CORRUPT,
    FULL,
    LAST_TS_NS,
    NEED_DATA,
    ScanProgress,
    load32,
)
from dissector.jit import kernel
from dissector.limits import MAX_RECORD_BYTES
from dissector.packet.columns import PacketColumns

HEADER_BYTES: Final = 24  # of the file

# What a file may claim for one packet whatever its snap length says: writers with large receive
# offload exceed their own snap length, but not by more than this.
LONGEST_WITHOUT_SNAPLEN: Final = 1 << 20


class PcapLayout(NamedTuple):
    """How the records of one file read.

    is_big_endian: 0 or 1; unit_ns: 1 or 1000, of the time fraction; record_header_bytes: 16, or 24
    in the modified format of old Linux distributions; longest_bytes: longest credible packet;
    interface: index of the file's only interface.
    """

    is_big_endian: int
    unit_ns: int
    record_header_bytes: int
    longest_bytes: int
    interface: int


# Magic number as read big-endian: byte order, unit of the fraction, bytes of a record header.
_MAGICS: Final = {
    0xA1B2C3D4: (1, 1000, 16),
    0xD4C3B2A1: (0, 1000, 16),
    0xA1B23C4D: (1, 1, 16),
    0x4D3CB2A1: (0, 1, 16),
    0xA1B2CD34: (1, 1000, 24),
    0x34CDB2A1: (0, 1000, 24),
}


def is_pcap(magic: int) -> bool:
    """Whether the first four bytes of a file, read big-endian, are those of a pcap file."""
    return magic in _MAGICS


def byte_order(magic: int) -> str:
    """ "big" or "little", as int.from_bytes wants it."""
    return "big" if _MAGICS[magic][0] else "little"


def pcap_layout(magic: int, snaplen: int, interface: int) -> PcapLayout:
    """How the records of a file with this magic number and snap length (0 = none) read."""
    is_big_endian, unit_ns, record_header_bytes = _MAGICS[magic]
    longest = min(max(snaplen, LONGEST_WITHOUT_SNAPLEN), MAX_RECORD_BYTES)
    if snaplen == 0:
        longest = MAX_RECORD_BYTES
    return PcapLayout(is_big_endian, unit_ns, record_header_bytes, longest, interface)


@kernel
def scan_pcap(
    data: ByteArray,
    start: int,
    end: int,
    layout: PcapLayout,
    packets: PacketColumns,
    state: Int64Array,
) -> ScanProgress:
    """Find whole records in data[start:end].

    A record that is too long, or whose header is all zeros (a file that was preallocated or lost
    its end in a crash), is damaged: nothing after it can be trusted, as records have no mark.

    Args:
        packets: written from row 0. state: scan state, updated.

    Returns:
        Rows, the position of the first record not taken, and FULL, CORRUPT or NEED_DATA.
    """
    order = layout.is_big_endian
    header_bytes = layout.record_header_bytes
    row = 0
    position = start
    status = NEED_DATA
    last_ts_ns = state[LAST_TS_NS]
    while True:
        if row == len(packets.offset):
            status = FULL
            break
        if end - position < header_bytes:
            break
        seconds = load32(data, position, order)
        fraction = load32(data, position + 4, order)
        captured = load32(data, position + 8, order)
        wire = load32(data, position + 12, order)
        if captured > layout.longest_bytes or (seconds | fraction | captured | wire) == 0:
            status = CORRUPT
            break
        if captured > end - position - header_bytes:
            break
        if captured > wire:
            state[CAPTURED_LONGER] += 1
            wire = captured
        last_ts_ns = seconds * 1_000_000_000 + fraction * layout.unit_ns
        packets.offset[row] = position + header_bytes
        packets.captured_bytes[row] = captured
        packets.wire_bytes[row] = wire
        packets.ts_ns[row] = last_ts_ns
        packets.interface[row] = layout.interface
        row += 1
        position += header_bytes + captured
    state[LAST_TS_NS] = last_ts_ns
    return ScanProgress(row, position, status)
