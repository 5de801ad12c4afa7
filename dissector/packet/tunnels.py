"""Parses tunnels over IP: packets inside the payload of another packet."""

from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16, be32, byte
from dissector.jit import kernel
from dissector.limits import MAX_EXTENSION_HEADERS
from dissector.packet import reasons
from dissector.packet import walk as packet_walk
from dissector.packet.ip import UDP_PROTOCOL
from dissector.packet.link import MPLS_TYPE, VLAN_COUNT_SHIFT, VLAN_TAGS
from dissector.packet.unread import IN_IP, IP_PROTOCOLS, UDP_PORTS
from dissector.packet.walk import HeaderWalk, Layer

_SERVICE_HEADER: Final = 0x894F

_VXLAN_PORTS: Final = (4789, 8472)
_VXLAN_GPE_PORT: Final = 4790
_GENEVE_PORT: Final = 6081
_GTP_PORT: Final = 2152
_MPLS_PORT: Final = 6635
_GRE_PORT: Final = 4754
_L2TP_PORT: Final = 1701
_CAPWAP_PORTS: Final = (5246, 5247)
_TZSP_PORT: Final = 37008
_WIREGUARD_PORT: Final = 51820
_ENCAPSULATION_PORTS: Final = tuple(UDP_PORTS)
_ENCAPSULATIONS: Final = tuple(IP_PROTOCOLS)
_VXLAN_HAS_ID: Final = 0x08
_VXLAN_HAS_PROTOCOL: Final = 0x04
_GTP_PACKET: Final = 0xFF

_GRE_CHECKSUM: Final = 0x8000
_GRE_ROUTING: Final = 0x4000
_GRE_KEY: Final = 0x2000
_GRE_SEQUENCE: Final = 0x1000
_GRE_ACKNOWLEDGEMENT: Final = 0x0080
_GRE_VERSION: Final = 7
_PPP: Final = 0x880B
_ERSPAN: Final = 0x88BE  # types I and II
_ERSPAN_3: Final = 0x22EB
_REDIRECTED: Final = 0x883E  # by WCCP, whose second version has a header of 4 bytes


@kernel
def _enter_at(walk: HeaderWalk, kind: int, number: int, layer: int, offset: int) -> int:
    """A tunnel, and what begins in it."""
    reason = packet_walk.enter(walk, kind, number)
    return reason if reason != packet_walk.GO_ON else packet_walk.step(walk, layer, offset)


@kernel
def service_header(data: ByteArray, walk: HeaderWalk) -> int:
    """A network service header (NSH): it says its own length and what follows."""
    position = walk.position
    offset = position.offset[0]
    if offset + 8 > position.end[0]:
        return reasons.TUNNEL_CUT
    words = be16(data, offset) & 0x3F
    if words < 2 or byte(data, offset) >> 6 != 0:
        return reasons.NSH
    return _numbered(walk, byte(data, offset + 3), offset + 4 * words, reasons.NSH)


@kernel
def _numbered(walk: HeaderWalk, protocol: int, offset: int, otherwise: int) -> int:
    """What a protocol number of VXLAN-GPE or NSH announces."""
    if protocol in (1, 2):
        return packet_walk.step(walk, Layer.IP, offset)
    if protocol == 3:
        return packet_walk.step(walk, Layer.ETHERNET, offset)
    if protocol == 4:
        return packet_walk.step_type(walk, _SERVICE_HEADER, offset)
    return packet_walk.step_type(walk, MPLS_TYPE, offset) if protocol == 5 else otherwise


@kernel
def _vxlan(data: ByteArray, walk: HeaderWalk, port: int) -> int:
    """VXLAN: reserved bits are what senders make of them; a protocol number only if it is right."""
    position = walk.position
    offset = position.offset[0]
    if offset + 8 > position.end[0]:
        return reasons.TUNNEL_CUT
    bits = byte(data, offset)
    if not bits & _VXLAN_HAS_ID:
        return reasons.VXLAN
    reason = packet_walk.enter(walk, packet_walk.VXLAN_KIND, be32(data, offset + 4) >> 8)
    if reason != packet_walk.GO_ON:
        return reason
    inner = offset + 8
    if port == _VXLAN_GPE_PORT:
        return _numbered(walk, byte(data, offset + 3), inner, reasons.VXLAN)
    if bits & _VXLAN_HAS_PROTOCOL and inner < position.end[0]:
        protocol = byte(data, offset + 3)
        first = byte(data, inner)
        if (protocol == 1 and first >> 4 == 4) or (protocol == 2 and first >> 4 == 6):
            return packet_walk.step(walk, Layer.IP, inner)
        if protocol == 4 and first >> 6 == 0:
            return packet_walk.step_type(walk, _SERVICE_HEADER, inner)
    return packet_walk.step(walk, Layer.ETHERNET, inner)


@kernel
def _geneve(data: ByteArray, walk: HeaderWalk) -> int:
    """Geneve: options are skipped by their length."""
    position = walk.position
    offset = position.offset[0]
    if offset + 8 > position.end[0]:
        return reasons.TUNNEL_CUT
    first = byte(data, offset)
    if first >> 6 != 0:
        return reasons.GENEVE
    reason = packet_walk.enter(walk, packet_walk.GENEVE_KIND, be32(data, offset + 4) >> 8)
    if reason != packet_walk.GO_ON:
        return reason
    return packet_walk.step_type(walk, be16(data, offset + 2), offset + 8 + 4 * (first & 0x3F))


@kernel
def _gtp(data: ByteArray, walk: HeaderWalk) -> int:
    """GTP-U version 1: user packets, after optional fields and extension headers."""
    position = walk.position
    offset = position.offset[0]
    end = position.end[0]
    if offset + 8 > end:
        return reasons.TUNNEL_CUT
    bits = byte(data, offset)
    if bits >> 4 != 3 or byte(data, offset + 1) != _GTP_PACKET:
        return reasons.GTP
    number = be32(data, offset + 4)
    length = be16(data, offset + 2)
    offset += 8
    packet_walk.state_length(walk, offset, length)
    if bits & 7:
        if offset + 4 > end:
            return reasons.TUNNEL_CUT
        following = byte(data, offset + 3) if bits & 4 else 0
        offset += 4
        for _ in range(MAX_EXTENSION_HEADERS):
            if following == 0:
                break
            if offset >= end:
                return reasons.TUNNEL_CUT
            size = 4 * byte(data, offset)
            if size == 0:
                return reasons.GTP
            if offset + size > end:
                return reasons.TUNNEL_CUT
            offset += size
            following = byte(data, offset - 1)
        if following != 0:
            return reasons.GTP
    return _enter_at(walk, packet_walk.GTP_KIND, number, Layer.IP, offset)


@kernel
def _udp(data: ByteArray, walk: HeaderWalk) -> int:
    """Tunnels have well-known ports of destination; the length field says nothing that IP does not,
    and giant packets not yet cut have a wrong one."""
    position = walk.position
    offset = position.offset[0]
    if offset + 8 > position.end[0]:
        return reasons.UDP
    port = be16(data, offset + 2)
    position.offset[0] = offset + 8
    if port in _VXLAN_PORTS or port == _VXLAN_GPE_PORT:
        return _vxlan(data, walk, port)
    if port == _GENEVE_PORT:
        return _geneve(data, walk)
    if port == _GTP_PORT:
        return _gtp(data, walk)
    if port == _GRE_PORT:
        return _gre(data, walk)
    if port == _MPLS_PORT:
        return packet_walk.step_type(walk, MPLS_TYPE, offset + 8)
    if _is_encapsulation(data, port, offset + 8, position.end[0]):
        position.detail[0] = port
    elif _is_encapsulation(data, be16(data, offset), offset + 8, position.end[0]):
        position.detail[0] = be16(data, offset)
    return reasons.UDP


@kernel
def _is_encapsulation(data: ByteArray, port: int, offset: int, end: int) -> bool:
    """Whether a datagram of a port carries packets in a way that is not read.

    A client's own port may be one of these by chance: the first bytes have to be of that kind.
    """
    if port not in _ENCAPSULATION_PORTS or offset + 8 > end:
        return False
    head = be32(data, offset)
    if port == _L2TP_PORT:
        return (head >> 16) & 0x0F in (2, 3)
    if port in _CAPWAP_PORTS:
        return head >> 24 in (0, 1)
    if port == _TZSP_PORT:
        return head >> 24 == 1 and (head >> 16) & 0xFF <= 5
    if port == _WIREGUARD_PORT:
        return head in (0x0100_0000, 0x0200_0000, 0x0300_0000, 0x0400_0000)
    return True


@kernel
def _routes(data: ByteArray, offset: int, end: int) -> int:
    """The position after the source routes of a GRE header, -1 if they are not all there."""
    for _ in range(MAX_EXTENSION_HEADERS):
        if offset + 4 > end:
            return -1
        size = byte(data, offset + 3)
        if size == 0 and be16(data, offset) == 0:
            return offset + 4
        offset += 4 + size
    return -1


@kernel
def _gre(data: ByteArray, walk: HeaderWalk) -> int:
    """GRE of both versions, with whatever its flags announce."""
    position = walk.position
    offset = position.offset[0]
    end = position.end[0]
    if offset + 4 > end:
        return reasons.TUNNEL_CUT
    flags = be16(data, offset)
    protocol = be16(data, offset + 2)
    offset += 4
    version = flags & _GRE_VERSION
    if version > 1:
        return reasons.GRE
    if version == 0 and flags & (_GRE_CHECKSUM | _GRE_ROUTING):
        offset += 4
    key = packet_walk.NO_ID
    if flags & _GRE_KEY:
        if offset + 4 > end:
            return reasons.TUNNEL_CUT
        key = be32(data, offset)
        offset += 4
    if flags & _GRE_SEQUENCE:
        offset += 4
    if version == 1:
        if flags & _GRE_ACKNOWLEDGEMENT:
            offset += 4
        if protocol != _PPP or not flags & _GRE_SEQUENCE:
            return reasons.GRE  # an acknowledgement without packet
        packet_walk.state_length(walk, offset, key >> 16)
        return _enter_at(walk, packet_walk.PPTP_KIND, key & 0xFFFF, Layer.PPP, offset)
    if flags & _GRE_ROUTING:
        offset = _routes(data, offset, end)
        if offset < 0:
            return reasons.TUNNEL_CUT
    if offset >= end:
        return reasons.TUNNEL_CUT
    if protocol in (_ERSPAN, _ERSPAN_3):
        return _erspan(data, walk, offset, flags & _GRE_SEQUENCE)
    reason = packet_walk.enter(walk, packet_walk.GRE_KIND, key)
    if reason != packet_walk.GO_ON:
        return reason
    if protocol == _REDIRECTED:
        return packet_walk.step(
            walk, Layer.IP, offset if byte(data, offset) >> 4 == 4 else offset + 4
        )
    return reasons.GRE if protocol == 0 else packet_walk.step_type(walk, protocol, offset)


@kernel
def _erspan(data: ByteArray, walk: HeaderWalk, offset: int, has_sequence: int) -> int:
    """ERSPAN: a mirrored frame, its VLAN and the number of the mirror session.

    Type I has no header and, unlike the others, no GRE sequence number.
    """
    position = walk.position
    if not has_sequence:
        return _enter_at(walk, packet_walk.ERSPAN_KIND, packet_walk.NO_ID, Layer.ETHERNET, offset)
    if offset + 8 > position.end[0]:
        return reasons.TUNNEL_CUT
    head = be32(data, offset)
    version = head >> 28
    if version not in (1, 2):
        return reasons.GRE
    reason = packet_walk.enter(walk, packet_walk.ERSPAN_KIND, head & 0x3FF)
    if reason != packet_walk.GO_ON:
        return reason
    vlan = (head >> 16) & 0xFFF
    size = 8
    layer = Layer.ETHERNET
    if version == 2:
        size = 12
        if offset + size > position.end[0]:
            return reasons.TUNNEL_CUT
        last = be16(data, offset + 10)
        if last & 1:
            size += 8  # a header of the platform
        if (last >> 10) & 0x1F == 2:
            layer = Layer.IP
    inner = offset + size
    # A frame that still has its tag says it itself.
    has_tag = inner + 14 <= position.end[0] and be16(data, inner + 12) in VLAN_TAGS
    if vlan != 0 and not has_tag:
        packet_walk.add_vlans(walk, vlan | (1 << VLAN_COUNT_SHIFT))
    return packet_walk.step(walk, layer, inner)


@kernel
def protocol_step(data: ByteArray, walk: HeaderWalk) -> int:
    """What an IP packet carries, if not TCP."""
    position = walk.position
    protocol = position.kind[0]
    offset = position.offset[0]
    if protocol == UDP_PROTOCOL:
        return _udp(data, walk)
    if protocol in (4, 41):
        return _enter_at(walk, packet_walk.IP_KIND, packet_walk.NO_ID, Layer.IP, offset)
    if protocol == 47:
        return _gre(data, walk)
    if protocol in (1, 58):
        return reasons.ICMP
    if protocol == 50:
        return reasons.ESP
    if protocol == 97:
        if offset + 2 > position.end[0]:
            return reasons.TUNNEL_CUT
        return _enter_at(
            walk, packet_walk.ETHERIP_KIND, packet_walk.NO_ID, Layer.ETHERNET, offset + 2
        )
    if protocol == 137:
        return packet_walk.step_type(walk, MPLS_TYPE, offset)
    if protocol in _ENCAPSULATIONS:
        position.detail[0] = IN_IP | protocol
    return reasons.OTHER_TRANSPORT
