"""Where in packets addresses lie, and where begins what nobody reads: places for who changes them.

The walk is that of `unwrap`, so every header that leads to a segment is found, in tunnels too.
"""

from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte
from dissector.jit import kernel
from dissector.packet.columns import PacketColumns
from dissector.packet.link import ETHERNET, ETHERTYPE_IPV4, ETHERTYPE_IPV6, LINUX_SLL, LINUX_SLL2
from dissector.packet.reasons import ICMP, IP_CUT, IP_MALFORMED, TUNNEL_DEPTH
from dissector.packet.unwrap import MAX_STEPS, begin, step_on
from dissector.packet.walk import (
    AT_ETHERNET,
    AT_IP,
    AT_LINK,
    AT_PROTOCOL,
    AT_TYPE,
    FOUND_FRAGMENT,
    FOUND_TCP,
    GO_ON,
    Walk,
)

# Kinds of places.
MACS: Final = 0  # two hardware addresses of six bytes
MAC: Final = 1  # one, six bytes
IP4: Final = 2  # a header
IP6: Final = 3
UDP_HEADER: Final = 4
REST: Final = 5  # of a packet without a segment: from here on
SEGMENT: Final = 6  # a TCP header
PIECE: Final = 7  # the IP header of a fragment

# Columns of places.
PACKET_ROW: Final = 0
KIND: Final = 1
AT: Final = 2
CELLS: Final = 3

_UDP_PROTOCOL: Final = 17
# Of a header that cannot be read its addresses go, too: they begin here, at the earliest.
_BEFORE_ADDRESSES: Final = 8
PLACES_OF_PACKET: Final = 2 * MAX_STEPS + 2


@kernel
def _link_place(data: ByteArray, walk: Walk, end: int) -> tuple[int, int]:
    """Kind and place of the hardware addresses of a link header, -1 if it has none."""
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
def _place(data: ByteArray, walk: Walk, end: int) -> tuple[int, int]:
    """Kind and place of what the walk stands at, -1 if it has no address."""
    position = walk.position
    layer = position.layer[0]
    offset = position.offset[0]
    if layer == AT_LINK:
        return _link_place(data, walk, end)
    if layer == AT_ETHERNET and offset + 12 <= end:
        return MACS, offset
    is_ip = layer == AT_IP or (
        layer == AT_TYPE and position.kind[0] in (ETHERTYPE_IPV4, ETHERTYPE_IPV6)
    )
    if is_ip and offset < end:
        version = byte(data, offset) >> 4
        if version == 4 and offset + 20 <= end:
            return IP4, offset
        if version == 6 and offset + 40 <= end:
            return IP6, offset
    if layer == AT_PROTOCOL and position.kind[0] == _UDP_PROTOCOL and offset + 8 <= end:
        return UDP_HEADER, offset
    return -1, 0


@kernel
def _end_place(walk: Walk, said: int) -> tuple[int, int]:
    """Kind and place of what the walk ended with."""
    offset = walk.position.offset[0]
    if said == FOUND_TCP:
        return SEGMENT, offset
    if said == FOUND_FRAGMENT:
        return PIECE, offset
    if said in (IP_CUT, IP_MALFORMED):
        return REST, offset + _BEFORE_ADDRESSES
    if said == ICMP:
        return REST, offset + 1
    return REST, offset


@kernel
def find_places(
    data: ByteArray, packets: PacketColumns, bounds: Int64Array, link_types: Int64Array,
    walk: Walk, places: Int64Array,
) -> int:  # fmt: skip
    """Fill places: int64[rows, CELLS].

    Args:
        bounds: int64[2], the next packet, which moves on, and how many there are. link_types: by
            interface.

    Returns:
        How many places there are; the caller goes on while packets are left.
    """
    count = 0
    while bounds[0] < bounds[1] and count + PLACES_OF_PACKET <= len(places):
        row = bounds[0]
        bounds[0] += 1
        offset = packets.offset[row]
        end = offset + packets.captured_bytes[row]
        interface = packets.interface[row]
        said = TUNNEL_DEPTH
        if interface < 0:
            places[count, PACKET_ROW], places[count, KIND], places[count, AT] = row, REST, offset
            count += 1
            continue
        begin(walk, packets, row, link_types[interface])
        for _ in range(MAX_STEPS):
            kind, at = _place(data, walk, end)
            if kind >= 0:
                places[count, PACKET_ROW], places[count, KIND], places[count, AT] = row, kind, at
                count += 1
            said = step_on(data, walk)
            if said != GO_ON:
                break
        kind, at = _end_place(walk, said)
        places[count, PACKET_ROW], places[count, KIND], places[count, AT] = row, kind, at
        count += 1
    return count
