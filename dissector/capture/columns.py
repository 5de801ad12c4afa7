"""What both record scans share: interfaces, their state, how far a scan came."""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle, Records
from dissector.codecs.integers import be32, le32
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.states import State

# Why a scan came back.
NEED_DATA: Final = 0  # what is left is no whole record
FULL: Final = 1  # the packet columns are full
CORRUPT: Final = 2  # `consumed` is the first byte of a damaged record
BLOCK: Final = 3  # pcapng: `consumed` is the first byte of a block that describes, not a packet

# Numbers in PacketColumns.interface for packets whose interface is not known.
NO_INTERFACE: Final = -1  # never described in its section
INTERFACE_LIMIT: Final = -2  # described after limits.MAX_INTERFACES others

# Oddities of packets, by number; their notices.
CAPTURED_LONGER: Final = 0  # claim more captured bytes than the wire had
UNUSABLE_TIMES: Final = 1  # of the years beyond those that 64-bit nanoseconds can say
LONG_FRACTIONS: Final = 2  # the fraction of a second is a second or more
UNTIMED: Final = 3  # of a kind without a time stamp
ODDITY_CODES: Final = ("captured_longer", "unusable_time", "long_fraction", "untimed_packets")


class Oddities(Records):
    """What was odd about packets, a record per oddity: how many, and the number of the first."""

    packets: Int64Array
    first_packet: Int64Array


class ScanState(State):
    """What scans know of a capture; int64[1] each.

    next_packet: number of the packet of row 0.
    last_ts_ns: of the last packet with a time stamp, NULL before.
    packet_drops: counted in packet blocks of the old kind.
    """

    next_packet: Int64Array
    last_ts_ns: Int64Array
    packet_drops: Int64Array
    oddities: Oddities


class ScanProgress(NamedTuple):
    """How far a scan came.

    rows: packets found.
    consumed: position after them.
    status: above.
    """

    rows: int
    consumed: int
    status: int


class InterfaceColumns(Bundle):
    """The interfaces of a capture, int64[rows] each.

    link_type: number of the link layer.
    snaplen: 0 = no limit. A time of u units is `offset_ns + u * multiplier // divisor` ns, or with
        a shift (units of 2^-shift s) the exact whole nanoseconds of `u * 10^9 / 2^shift`;
        multiplier 0: no usable time.
    """

    link_type: Int64Array
    snaplen: Int64Array
    multiplier: Int64Array
    divisor: Int64Array
    shift: Int64Array
    offset_ns: Int64Array


def new_scan_state() -> ScanState:
    """The state before the first packet of a capture."""
    return ScanState(
        next_packet=np.ones(1, np.int64),
        last_ts_ns=np.full(1, NULL, np.int64),
        packet_drops=np.zeros(1, np.int64),
        oddities=Oddities.new(len(ODDITY_CODES)),
    )


@inlined
def count_oddity(state: ScanState, oddity: int, row: int) -> None:
    """One more odd packet; the number of the first is kept."""
    oddities = state.oddities
    if oddities.packets[oddity] == 0:
        oddities.first_packet[oddity] = state.next_packet[0] + row
    oddities.packets[oddity] += 1


@inlined
def load32(data: ByteArray, offset: int, is_big_endian: int) -> int:
    """Four bytes in the byte order of the file, 0 to 2^32-1."""
    if is_big_endian:
        return be32(data, offset)
    return le32(data, offset)
