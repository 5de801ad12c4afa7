"""Copies that the tap made, told apart from what a sender sent again.

A mirror of two ports, or a capture on all interfaces, shows one packet several times within
milliseconds, with another MAC, VLAN or hop limit. A retransmission is a new packet: another IP
identification, later time stamps, hardly ever the same acknowledgement and window. So two packets
are copies when sequence, acknowledgement, flags, window, IP identification, time stamps, length
and the first and last eight payload bytes are equal, within DUPLICATE_WINDOW_MS.

Hashes of the last 65,536 packets of all connections are kept in buckets of four (one cache line);
the oldest of a bucket makes room. Where that forgets a packet, its copy counts as sent again.
Without an IP identification (IPv6, or 0) a repeated acknowledgement without data cannot be told
from a copy: it counts as one only where the connection has shown a copy with data before.
"""

from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte, le64
from dissector.jit import inlined, kernel
from dissector.limits import DUPLICATE_WINDOW_MS
from dissector.stream.segment import Segment
from dissector.stream.sequence import mix

BUCKETS: Final = 1 << 14
_BUCKET_CELLS: Final = 8  # four pairs of hash and time
DUPLICATE_CELLS: Final = BUCKETS * _BUCKET_CELLS
_WINDOW_NS: Final = DUPLICATE_WINDOW_MS * 1_000_000


@inlined
def signature(segment: Segment, way: int, data: ByteArray) -> int:
    """A hash of what copies of a packet have in common, never 0. way: connection_id * 2 + side."""
    value = mix(way, segment.sequence)
    value = mix(value, segment.acknowledgement | (segment.flags << 33))
    value = mix(value, segment.wire_bytes | (segment.window << 32))
    value = mix(value, segment.tsval ^ (segment.ip_id << 34))
    length = segment.captured_bytes
    if length >= 8:
        value = mix(value, le64(data, segment.offset))
        value = mix(value, le64(data, segment.offset + length - 8))
    else:
        for index in range(length):
            value = mix(value, byte(data, segment.offset + index))
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
    """Keep a signature in place of the oldest of its bucket."""
    start = _bucket(value)
    oldest = start
    for place in range(start + 2, start + _BUCKET_CELLS, 2):
        if signatures[place + 1] < signatures[oldest + 1]:
            oldest = place
    signatures[oldest] = value
    signatures[oldest + 1] = ts_ns
