"""Copies that the tap made, told apart from what a sender sent again.

A mirror of two ports, or a capture on all interfaces, shows one packet several times within
milliseconds, with another MAC, VLAN or hop limit. A retransmission is a new packet: another IP
identification, later time stamps, hardly ever the same acknowledgement and window. So two packets
are copies when sequence, acknowledgement, flags, window, IP identification, time stamps, length
and the first and last eight payload bytes are equal, within DUPLICATE_WINDOW_MS.

Hashes of the last 65,536 packets of all connections are kept in buckets of four (one cache line);
the first of a bucket makes room. Where that forgets a packet, its copy counts as sent again.
Without an IP identification (IPv6, or 0) a repeated acknowledgement without data cannot be told
from a copy: it counts as one only where the connection has shown a copy with data before.
"""

from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte, le64
from dissector.jit import inlined, kernel
from dissector.limits import DUPLICATE_WINDOW_MS
from dissector.stream.segment import Segment
from dissector.stream.sequence import mix, scatter

BUCKETS: Final = 1 << 14
_BUCKET_CELLS: Final = 8  # four pairs of hash and time
DUPLICATE_CELLS: Final = BUCKETS * _BUCKET_CELLS
_WINDOW_NS: Final = DUPLICATE_WINDOW_MS * 1_000_000

# Odd multipliers without structure, one per part of a packet.
_WAY: Final = 0x1C69_B3F7_4AC4_AE35
_SEQUENCE: Final = 0x5851_F42D_4C95_7F2D
_ACKNOWLEDGEMENT: Final = 0x27BB_2EE6_87B0_B0FD
_TIME: Final = 0x369D_EA0F_31A5_3F85
_IP_ID: Final = 0x7C9A_1D0B_93E2_46C7
_HEAD: Final = 0x4CF5_AD43_2745_937F
_TAIL: Final = 0x52DC_E729_38AE_BCA9


@inlined
def signature(segment: Segment, way: int, data: ByteArray) -> int:
    """A hash of what copies of a packet have in common, never 0. way: connection_id * 2 + side."""
    value = scatter(way, _WAY)
    value ^= scatter(segment.sequence | (segment.flags << 33), _SEQUENCE)
    value ^= scatter(segment.acknowledgement | (segment.window << 33), _ACKNOWLEDGEMENT)
    value ^= scatter(segment.tsval ^ (segment.wire_bytes << 33), _TIME)
    value ^= scatter(segment.ip_id, _IP_ID)
    length = segment.captured_bytes
    if length >= 8:
        value ^= scatter(le64(data, segment.offset), _HEAD)
        value ^= scatter(le64(data, segment.offset + length - 8), _TAIL)
    else:
        for index in range(length):
            value = mix(value ^ byte(data, segment.offset + index))
    value = mix(value)
    return value if value != 0 else 1


@inlined
def _bucket(value: int) -> int:
    return ((value >> 17) & (BUCKETS - 1)) * _BUCKET_CELLS


@kernel
def is_remembered(signatures: Int64Array, value: int, ts_ns: int) -> bool:
    """Whether a packet of this signature was captured less than the window before or after."""
    start = _bucket(value)
    for place in range(start, start + _BUCKET_CELLS, 2):
        if signatures[place] == value:
            seen = signatures[place + 1]
            if seen - _WINDOW_NS <= ts_ns <= seen + _WINDOW_NS:
                return True
    return False


@inlined
def remember(signatures: Int64Array, value: int, ts_ns: int) -> None:
    """Keep a signature; the one that came first into its bucket goes."""
    start = _bucket(value)
    # Moved along instead of searched for the oldest: a search costs a mispredicted branch.
    for place in range(_BUCKET_CELLS - 1, 1, -1):
        signatures[start + place] = signatures[start + place - 2]
    signatures[start] = value
    signatures[start + 1] = ts_ns
