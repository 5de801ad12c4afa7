"""Types that the pcap and pcapng scans share: interfaces, scan state, progress."""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle, Records
from dissector.codecs.integers import be32, le32
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.states import State

# Why a scan returned.
NEED_DATA: Final = 0  # the remaining bytes are not a whole record
FULL: Final = 1  # the packet columns are full
CORRUPT: Final = 2  # `consumed` is the first byte of a damaged record
BLOCK: Final = 3  # `consumed` is the first byte of a block without a packet, or of a file header

# Numbers in PacketColumns.interface for packets whose interface is not known.
NO_INTERFACE: Final = -1  # never described in its section
INTERFACE_LIMIT: Final = -2  # described after limits.MAX_INTERFACES others

# Oddities of packets, by number; their notices.
CAPTURED_LONGER: Final = 0  # captured length above wire length
UNUSABLE_TIMES: Final = 1  # outside the range of 64-bit nanoseconds
LONG_FRACTIONS: Final = 2  # the fraction of a second is a second or more
WITHOUT_TIMESTAMP: Final = 3  # of a block type without timestamp
ODDITY_CODES: Final = (
    "captured_longer",
    "unusable_time",
    "long_fraction",
    "packets_without_timestamp",
)


class Oddities(Records):
    """A record per oddity: number of packets, and the packet number of the first."""

    packets: Int64Array
    first_packet: Int64Array


class ScanState(State):
    """State of the scans of a capture; int64[1] each.

    next_packet: number of the packet of row 0.
    last_ts_ns: of the last packet with a timestamp, NULL before the first.
    packet_drops: sum of the drop counts of old packet blocks.
    """

    next_packet: Int64Array
    last_ts_ns: Int64Array
    packet_drops: Int64Array
    oddities: Oddities


class ScanProgress(NamedTuple):
    """Progress of a scan.

    rows: packets written.
    consumed: position after them.
    status: why it returned.
    """

    rows: int
    consumed: int
    status: int


class InterfaceColumns(Bundle):
    """The interfaces of a capture, int64[rows] each.

    link_type: number of the link layer.
    snaplen: 0 = no limit. A time of u units is `offset_ns + u * multiplier // divisor` ns, or with
        a shift (units of 2^-shift s) `u * 10^9 / 2^shift` rounded down; multiplier 0: no usable
        time.
    """

    link_type: Int64Array
    snaplen: Int64Array
    multiplier: Int64Array
    divisor: Int64Array
    shift: Int64Array
    offset_ns: Int64Array


def new_scan_state() -> ScanState:
    """Return the state before the first packet of a capture."""
    return ScanState(
        next_packet=np.ones(1, np.int64),
        last_ts_ns=np.full(1, NULL, np.int64),
        packet_drops=np.zeros(1, np.int64),
        oddities=Oddities.new(len(ODDITY_CODES)),
    )


@inlined
def count_oddity(state: ScanState, oddity: int, row: int) -> None:
    """Count an odd packet; records the number of the first."""
    oddities = state.oddities
    if oddities.packets[oddity] == 0:
        oddities.first_packet[oddity] = state.next_packet[0] + row
    oddities.packets[oddity] += 1


@inlined
def load32(data: ByteArray, offset: int, is_big_endian: int) -> int:
    """Load four bytes in the byte order of the file, 0 to 2^32-1."""
    if is_big_endian:
        return be32(data, offset)
    return le32(data, offset)
