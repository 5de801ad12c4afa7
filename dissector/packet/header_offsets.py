"""Finds the offsets of address headers in packets, and of the bytes after the last known header.

Used for rewriting packets in place. The walk of `unwrap` finds all headers that lead to a segment,
also in tunnels.
"""

from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle, Records
from dissector.codecs.integers import byte
from dissector.jit import inlined, kernel
from dissector.limits import MAX_UNWRAP_STEPS
from dissector.packet import walk as packet_walk
from dissector.packet.columns import PacketColumns
from dissector.packet.ip import UDP_PROTOCOL
from dissector.packet.link import ETHERNET, ETHERTYPE_IPV4, ETHERTYPE_IPV6, LINUX_SLL, LINUX_SLL2
from dissector.packet.reasons import ICMP, IP_CUT, IP_MALFORMED, TUNNEL_DEPTH
from dissector.packet.unwrap import begin, step_on
from dissector.packet.walk import HeaderWalk, Layer

# Kinds of headers.
MACS: Final = 0  # two hardware addresses of six bytes
MAC: Final = 1  # one, six bytes
IP4: Final = 2
IP6: Final = 3
UDP_HEADER: Final = 4
REST: Final = 5  # not a header: from here on, a packet without a segment
SEGMENT: Final = 6  # a TCP header
PIECE: Final = 7  # the IP header of a fragment

# Of a header that cannot be read its addresses go, too: they begin here, at the earliest.
_BEFORE_ADDRESSES: Final = 8
HEADERS_OF_PACKET: Final = 2 * MAX_UNWRAP_STEPS + 2


class Headers(Bundle):
    """Headers in order; int64[headers] each.

    row: of the packet.
    offset: in the data.
    """

    row: Int64Array
    kind: Int64Array
    offset: Int64Array

    def first(self, count: int) -> "Headers":
        """A copy of the first of them."""
        return Headers(self.matrix[:, :count].copy())


class PacketsLeft(Records):
    """Packets still to be gone over, one record.

    row: of the next one.
    rows: how many there are.
    """

    row: Int64Array
    rows: Int64Array

    @classmethod
    def all_of(cls, rows: int) -> "PacketsLeft":
        """So many packets, from the first on."""
        return cls(np.array([[0, rows]], np.int64))


@kernel
def _hardware_addresses(data: ByteArray, walk: HeaderWalk, end: int) -> tuple[int, int]:
    """Kind and offset of the hardware addresses of a link header, -1 if it has none."""
    position = walk.position
    offset = position.offset[0]
    if position.kind[0] == ETHERNET and offset + 12 <= end:
        return MACS, offset
    if position.kind[0] == LINUX_SLL and offset + 14 <= end and byte(data, offset + 5) == 6:
        return MAC, offset + 6
    if position.kind[0] == LINUX_SLL2 and offset + 18 <= end and byte(data, offset + 11) == 6:
        return MAC, offset + 12
    return -1, 0


@kernel
def _header_here(data: ByteArray, walk: HeaderWalk, end: int) -> tuple[int, int]:
    """Kind and offset of the header that the walk stands at, -1 if it has no address."""
    position = walk.position
    layer = position.layer[0]
    offset = position.offset[0]
    if layer == Layer.LINK:
        return _hardware_addresses(data, walk, end)
    if layer == Layer.ETHERNET and offset + 12 <= end:
        return MACS, offset
    is_ip = layer == Layer.IP or (
        layer == Layer.TYPE and position.kind[0] in (ETHERTYPE_IPV4, ETHERTYPE_IPV6)
    )
    if is_ip and offset < end:
        version = byte(data, offset) >> 4
        if version == 4 and offset + 20 <= end:
            return IP4, offset
        if version == 6 and offset + 40 <= end:
            return IP6, offset
    if layer == Layer.PROTOCOL and position.kind[0] == UDP_PROTOCOL and offset + 8 <= end:
        return UDP_HEADER, offset
    return -1, 0


@kernel
def _header_at_end(walk: HeaderWalk, step: int) -> tuple[int, int]:
    """Kind and offset of what the walk ended with."""
    offset = walk.position.offset[0]
    if step == packet_walk.REACHED_TCP:
        return SEGMENT, offset
    if step == packet_walk.REACHED_FRAGMENT:
        return PIECE, offset
    if step in (IP_CUT, IP_MALFORMED):
        return REST, offset + _BEFORE_ADDRESSES
    if step == ICMP:
        return REST, offset + 1
    return REST, offset


@inlined
def _add(headers: Headers, count: int, row: int, kind: int, offset: int) -> int:
    headers.row[count] = row
    headers.kind[count] = kind
    headers.offset[count] = offset
    return count + 1


@kernel
def find_headers(
    data: ByteArray, packets: PacketColumns, left: PacketsLeft, link_types: Int64Array,
    walk: HeaderWalk, headers: Headers,
) -> int:  # fmt: skip
    """Fill headers, from the first on.

    Args:
        left: moves on. link_types: by interface.

    Returns:
        How many headers there are; the caller goes on while packets are left.
    """
    count = 0
    capacity = len(headers.row) - HEADERS_OF_PACKET
    while left.row[0] < left.rows[0] and count <= capacity:
        row = left.row[0]
        left.row[0] += 1
        start = packets.offset[row]
        end = start + packets.captured_bytes[row]
        interface = packets.interface[row]
        if interface < 0:
            count = _add(headers, count, row, REST, start)
            continue
        step = TUNNEL_DEPTH
        begin(walk, packets, row, link_types[interface])
        for _ in range(MAX_UNWRAP_STEPS):
            kind, offset = _header_here(data, walk, end)
            if kind >= 0:
                count = _add(headers, count, row, kind, offset)
            step = step_on(data, walk)
            if step != packet_walk.GO_ON:
                break
        kind, offset = _header_at_end(walk, step)
        count = _add(headers, count, row, kind, offset)
    return count
