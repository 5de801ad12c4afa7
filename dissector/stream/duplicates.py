"""Distinguish copies that the tap made from retransmissions.

A mirror of two ports, or a capture on all interfaces, shows one packet several times within
milliseconds, with another MAC, VLAN or hop limit. A retransmission is a new packet: another IP
identification, later time stamps, hardly ever the same acknowledgement and window. So two packets
are copies when sequence, acknowledgement, flags, window, IP identification, time stamps, length and
the first and last eight payload bytes are equal, within DUPLICATE_WINDOW_MS. Of a packet that was
cut (by the snap length: inside a tunnel earlier than beside it) the payload is not compared.

Further apart they are copies if the packet itself shows that it is old: its sender numbers packets,
each with another IP identification, and this one repeats; or its time stamp is older than one that
the sender has used since. So two taps whose clocks differ do not turn every packet into a
retransmission; the notice `two_clocks` says by how much they differ.

Hashes of the last 65,536 packets of all connections are kept in buckets of four (one cache line);
the first of a bucket makes room. Where that forgets a packet, its copy counts as sent again.
Without an IP identification (IPv6, or 0) a repeated acknowledgement without data cannot be told
from a copy: it counts as one only where the connection has shown a copy with data before.
"""

from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Records
from dissector.codecs.integers import byte, le64
from dissector.codecs.wrapping import product
from dissector.jit import inlined, kernel
from dissector.limits import DUPLICATE_WINDOW_MS, NULL
from dissector.stream.records import TCP_ACK, Directions
from dissector.stream.segment import Segment
from dissector.stream.sequence import distance, mix

BUCKETS: Final = 1 << 14
BUCKET_ROWS: Final = 4
SIGNATURES: Final = BUCKETS * BUCKET_ROWS
WINDOW_NS: Final = DUPLICATE_WINDOW_MS * 1_000_000

# Odd multipliers without structure, one per part of a packet.
_DIRECTION: Final = 0x1C69_B3F7_4AC4_AE35
_SEQUENCE: Final = 0x5851_F42D_4C95_7F2D
_ACKNOWLEDGEMENT: Final = 0x27BB_2EE6_87B0_B0FD
_TIME: Final = 0x369D_EA0F_31A5_3F85
_IP_ID: Final = 0x7C9A_1D0B_93E2_46C7
_HEAD: Final = 0x4CF5_AD43_2745_937F
_TAIL: Final = 0x52DC_E729_38AE_BCA9
# The lowest bits of a signature are of the payload, 0: it was cut; the others of the header.
_PAYLOAD_BITS: Final = 12
_PAYLOAD_MASK: Final = (1 << _PAYLOAD_BITS) - 1


class Signatures(Records):
    """Signatures of recent packets, 0: none, and when they were captured; a bucket is four rows."""

    hash: Int64Array
    ts_ns: Int64Array


class FirstPackets(Records):
    """Hashes of the first packets of connections, 0: none, when they were captured, connection_id
    and hop limit; a bucket is four rows, the latest first."""

    hash: Int64Array
    ts_ns: Int64Array
    connection_id: Int64Array
    hop_limit: Int64Array


@inlined
def signature(segment: Segment, direction: int, data: ByteArray) -> int:
    """A hash of what copies of a packet have in common, see `_are_copies`.

    direction: connection_id * 2 + endpoint_index, or one number for all.
    """
    value = product(direction, _DIRECTION)
    value ^= product(segment.sequence | (segment.flags << 33), _SEQUENCE)
    acknowledged = segment.acknowledgement if segment.flags & TCP_ACK else 0
    value ^= product(acknowledged | (segment.window << 33), _ACKNOWLEDGEMENT)
    value ^= product(segment.tsval ^ (segment.wire_bytes << 33), _TIME)
    value ^= product(segment.ip_id, _IP_ID)
    return mix(value) & ~_PAYLOAD_MASK | _payload(segment, data)


@inlined
def _payload(segment: Segment, data: ByteArray) -> int:
    """The bits of a signature that are of the payload."""
    length = segment.captured_bytes
    if length < segment.wire_bytes:
        return 0
    value = 0
    if length >= 8:
        value = product(le64(data, segment.offset), _HEAD)
        value ^= product(le64(data, segment.offset + length - 8), _TAIL)
    else:
        for index in range(length):
            value = mix(value ^ byte(data, segment.offset + index))
    value = mix(value) & _PAYLOAD_MASK
    return value if value != 0 else 1


@inlined
def _are_copies(one: int, other: int) -> bool:
    """Whether two signatures may be of one packet."""
    differing = one ^ other
    if differing & ~_PAYLOAD_MASK != 0:
        return False
    is_cut = one & _PAYLOAD_MASK == 0 or other & _PAYLOAD_MASK == 0
    return is_cut or differing == 0


@inlined
def bucket_start(value: int, buckets: int) -> int:
    """The first row of a signature's bucket; buckets: how many there are, a power of two."""
    return ((value >> 17) & (buckets - 1)) * BUCKET_ROWS


@kernel
def remembered(signatures: Signatures, value: int, ts_ns: int) -> int:
    """The time in ns to the nearest packet of this signature; NULL if there is none."""
    start = bucket_start(value, BUCKETS)
    nearest = NULL
    for row in range(start, start + BUCKET_ROWS):
        if _are_copies(signatures.hash[row], value):
            apart = abs(ts_ns - signatures.ts_ns[row])
            if nearest == NULL or apart < nearest:
                nearest = apart
    return int(nearest)


@inlined
def is_old_packet(directions: Directions, direction_index: int, segment: Segment) -> bool:
    """Whether a packet that is equal to an earlier one of its side cannot have been sent anew."""
    if segment.ip_id > 0 and not directions.ip_ids_repeat[direction_index]:
        others = (
            directions.packets[direction_index] - directions.duplicate_packets[direction_index] > 2
        )
        return bool(others or segment.ip_id != directions.last_ip_id[direction_index])
    latest = directions.last_tsval[direction_index]
    return bool(segment.tsval >= 0 and latest >= 0 and distance(segment.tsval, latest) < 0)


@inlined
def note_ip_id(directions: Directions, direction_index: int, ip_id: int) -> None:
    """Note whether a side gives every packet an IP identification of its own."""
    if ip_id > 0 and ip_id == directions.last_ip_id[direction_index]:
        directions.ip_ids_repeat[direction_index] = 1
    directions.last_ip_id[direction_index] = ip_id


@inlined
def remember(signatures: Signatures, value: int, ts_ns: int) -> None:
    """Store a signature; it replaces the oldest one of its bucket."""
    start = bucket_start(value, BUCKETS)
    # Moved along instead of searched for the oldest: a search costs a mispredicted branch.
    for row in range(start + BUCKET_ROWS - 1, start, -1):
        signatures.hash[row] = signatures.hash[row - 1]
        signatures.ts_ns[row] = signatures.ts_ns[row - 1]
    signatures.hash[start] = value
    signatures.ts_ns[start] = ts_ns
