"""The slow path through a packet, header by header: labels, tags and tunnels, in any order.

Every step parses one header and sets the next layer in the walk, or ends the walk with a reason. A
header is parsed only if it was captured completely, and every step advances by at least a byte or
ends; so a packet needs no more steps than it has headers. MAX_TUNNEL_DEPTH bounds tunnels.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16, be32, byte, le16, le32
from dissector.codecs.wrapping import product, total
from dissector.jit import inlined, kernel
from dissector.limits import MAX_UNWRAP_STEPS
from dissector.packet.columns import PacketColumns
from dissector.packet.ip import Network, ip_layer
from dissector.packet.link import (
    ENC,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    MPLS_LABELS,
    MPLS_TYPE,
    NFLOG,
    NO_ETHERTYPE,
    PFLOG,
    PPI,
    PPP_ETHER,
    PPP_TYPES,
    SMALLEST_ETHERTYPE,
    VLAN_TAGS,
    Link,
    after_type,
    link_layer,
    ppp,
)
from dissector.packet.reasons import (
    FRAGMENT,
    IP_CUT,
    LINK_CUT,
    LLC,
    LOOK_CLOSER,
    MACSEC,
    MPLS,
    NOT_IP,
    PPPOE,
    TUNNEL_DEPTH,
    UNKNOWN_LINK_TYPE,
    UNSUPPORTED_L2,
    USED,
)
from dissector.packet.tcp import HEADER_BYTES
from dissector.packet.tunnels import protocol_step, service_header
from dissector.packet.walk import (
    GO_ON,
    MPLS_KIND,
    NO_END,
    PBB_KIND,
    PPPOE_KIND,
    REACHED_FRAGMENT,
    REACHED_TCP,
    HeaderWalk,
    Layer,
    add_vlans,
    enter,
    state_length,
    step,
    step_type,
)

_MPLS_TYPES: Final = (MPLS_TYPE, 0x8848)
_PPPOE_SESSION: Final = 0x8864
_BACKBONE: Final = 0x88E7
_VN_TAG: Final = 0x8926
_E_TAG: Final = 0x893F
_CISCO_METADATA: Final = 0x8909
_FABRIC_PATH: Final = 0x8903
_MACSEC: Final = 0x88E5
_ETHERNET_BRIDGED: Final = 0x6558
_PPP: Final = 0x880B
_SERVICE_HEADER: Final = 0x894F
# Known protocols that carry no IP packets: ARP, RARP, LLDP, 802.1X, slow protocols, PPPoE
# discovery, CFM, PTP, loop-back test, wake-on-LAN, FCoE and its set-up, RoCE, PROFINET, EtherCAT,
# AppleTalk and its ARP, IPX, DECnet.
_NOT_IP_TYPES: Final = (
    *(0x0806, 0x8035, 0x88CC, 0x888E, 0x8809, 0x8863, 0x8902, 0x88F7, 0x9000, 0x0842, 0x8906),
    *(0x8914, 0x8915, 0x8892, 0x88A4, 0x809B, 0x80F3, 0x8137, 0x6002, 0x6003, 0x6004),
)
_LABELS: Final = 16  # of an MPLS stack; nobody has more
_LABEL_BITS: Final = 20
_BOTTOM: Final = 0x100
_LLC_IP: Final = 0x0606
_SNAP: Final = 0xAAAA_0300  # LLC header of SNAP and the first byte of its vendor, 0
_LABEL_HASH: Final = 0x0DE1_8F9C_4B6A_73D5
_POSITIVE: Final = (1 << 62) - 1
_PAYLOAD_ATTRIBUTE: Final = 9  # of a record of the Linux netfilter log
_LEGIBLE_MACSEC: Final = 0x0C  # bits of encrypted or changed text
_CHANNEL_MACSEC: Final = 0x20


@kernel
def begin(walk: HeaderWalk, packets: PacketColumns, row: int, link_type: int) -> None:
    """Start the walk at the first byte of a packet."""
    position = walk.position
    offset = packets.offset[row]
    position.layer[0] = Layer.LINK
    position.kind[0] = link_type
    position.offset[0] = offset
    position.end[0] = offset + packets.captured_bytes[row]
    position.wire_end[0] = offset + packets.wire_bytes[row]
    position.packet_end[0] = position.wire_end[0]
    position.stated_end[0] = NO_END
    position.ts_ns[0] = packets.ts_ns[row]
    position.source[0] = 0
    position.vlans[0] = 0
    position.detail[0] = 0
    position.depth[0] = 0
    position.tunnel_hash[0] = 0
    position.source_high[0] = 0
    position.source_low[0] = 0
    position.destination_high[0] = 0
    position.destination_low[0] = 0


@kernel
def _log_record(data: ByteArray, walk: HeaderWalk) -> int:
    """The netfilter log: a head of 4 bytes, then attributes in the byte order of their machine."""
    position = walk.position
    end = position.end[0]
    offset = position.offset[0] + 4
    while offset + 4 <= end:
        size = le16(data, offset)
        kind = le16(data, offset + 2)
        if kind > 0xFF:  # all kinds are small numbers: the other byte order
            size = be16(data, offset)
            kind = be16(data, offset + 2)
        if size < 4:
            break
        if kind & 0x7FFF == _PAYLOAD_ATTRIBUTE:
            position.end[0] = min(end, offset + size)
            return step(walk, Layer.IP, offset + 4)
        offset += (size + 3) & ~3
    return LINK_CUT


@kernel
def _other_link(data: ByteArray, walk: HeaderWalk) -> int:
    """Read a link type that is too rare for the short way."""
    position = walk.position
    link_type = position.kind[0]
    offset = position.offset[0]
    end = position.end[0]
    if offset + 12 > end:
        return LINK_CUT
    if link_type == NFLOG:
        return _log_record(data, walk)
    if link_type == PPI:
        size = le16(data, offset + 2)
        position.kind[0] = le32(data, offset + 4)
        return LINK_CUT if size < 8 else step(walk, Layer.LINK, offset + size)
    if link_type == PPP_ETHER:
        return step_type(walk, _PPPOE_SESSION, offset)
    if link_type == MPLS_LABELS:
        return step_type(walk, _MPLS_TYPES[0], offset)
    if link_type == ENC:
        return step(walk, Layer.IP, offset + 12)
    if link_type == PFLOG:
        return step(walk, Layer.IP, offset + ((byte(data, offset) + 3) & ~3))
    position.detail[0] = link_type
    return UNKNOWN_LINK_TYPE


@inlined
def _behind_link(walk: HeaderWalk, link: Link) -> int:
    if link.reason not in (USED, LOOK_CLOSER):
        return link.reason
    add_vlans(walk, link.vlans)
    return step_type(walk, link.ethertype, link.offset)


@kernel
def _link_step(data: ByteArray, walk: HeaderWalk) -> int:
    position = walk.position
    link = link_layer(data, position.offset[0], position.end[0], position.kind[0])
    if link.ethertype == NO_ETHERTYPE:
        return _other_link(data, walk)
    return _behind_link(walk, link)


@kernel
def _ethernet_step(data: ByteArray, walk: HeaderWalk, offset: int) -> int:
    """From an ethertype at offset on."""
    return _behind_link(walk, after_type(data, offset, walk.position.end[0]))


@kernel
def _ppp_step(data: ByteArray, walk: HeaderWalk) -> int:
    position = walk.position
    return _behind_link(walk, ppp(data, position.offset[0], position.end[0]))


@inlined
def _is_header(data: ByteArray, offset: int) -> bool:
    """Whether the checksum of the IPv4 header at offset is right; all of it is there."""
    size = (byte(data, offset) & 15) * 4
    value = 0
    for index in range(0, size, 2):
        value += be16(data, offset + index)
    value = (value & 0xFFFF) + (value >> 16)
    value = (value & 0xFFFF) + (value >> 16)
    return value == 0xFFFF


@inlined
def _is_ethernet(data: ByteArray, offset: int, end: int) -> bool:
    """Whether the bytes at offset may be an Ethernet header: its type is one that we know."""
    if offset + 14 > end:
        return False
    ethertype = be16(data, offset + 12)
    return (
        ethertype in (ETHERTYPE_IPV4, ETHERTYPE_IPV6)
        or ethertype in VLAN_TAGS
        or ethertype in _MPLS_TYPES
        or ethertype in (_PPPOE_SESSION, _NOT_IP_TYPES[0])
    )


@kernel
def _below_labels(data: ByteArray, walk: HeaderWalk, offset: int) -> int:
    """What labels carry is said nowhere: IP by its version, else Ethernet.

    A pseudo-wire may put a control word before its frame, whose first four bits are 0; without
    one, an address may begin with the bits of an IP version.
    """
    position = walk.position
    end = position.end[0]
    if offset >= end:
        return LINK_CUT
    version = byte(data, offset) >> 4
    is_frame = _is_ethernet(data, offset, end)
    if version == 4:
        size = (byte(data, offset) & 15) * 4
        if is_frame and (offset + max(size, 20) > end or size < 20 or not _is_header(data, offset)):
            return step(walk, Layer.ETHERNET, offset)
        return step(walk, Layer.IP, offset)
    if version == 6:
        fits = offset + 40 <= end and offset + 40 + be16(data, offset + 4) <= position.wire_end[0]
        return step(walk, Layer.ETHERNET if is_frame and not fits else Layer.IP, offset)
    has_word = version == 0 and _is_ethernet(data, offset + 4, end)
    if is_frame and not (has_word and be32(data, offset) == 0):
        return step(walk, Layer.ETHERNET, offset)
    return step(walk, Layer.ETHERNET, offset + 4) if has_word else MPLS


@kernel
def _labels(data: ByteArray, walk: HeaderWalk) -> int:
    """An MPLS stack; its id is the label, or a hash of several."""
    position = walk.position
    offset = position.offset[0]
    number = 0
    for _ in range(_LABELS):
        if offset + 4 > position.end[0]:
            return LINK_CUT
        word = be32(data, offset)
        offset += 4
        number = total(product(number, _LABEL_HASH), word >> (32 - _LABEL_BITS)) & _POSITIVE
        if word & _BOTTOM:
            reason = enter(walk, MPLS_KIND, number)
            return reason if reason != GO_ON else _below_labels(data, walk, offset)
    return MPLS


@kernel
def _tagged(data: ByteArray, walk: HeaderWalk, ethertype: int, offset: int) -> int:
    """Headers of fixed size between an ethertype and the next."""
    left = walk.position.end[0] - offset
    if ethertype == _VN_TAG:
        return LINK_CUT if left < 6 else _ethernet_step(data, walk, offset + 4)
    if ethertype == _E_TAG:
        return LINK_CUT if left < 8 else _ethernet_step(data, walk, offset + 6)
    if ethertype == _CISCO_METADATA:
        if left < 8:
            return LINK_CUT
        return _ethernet_step(data, walk, offset + 2 + 4 * byte(data, offset + 1))
    if ethertype == _FABRIC_PATH:
        return step(walk, Layer.ETHERNET, offset + 2)
    if left < 6:
        return LINK_CUT
    if ethertype == _BACKBONE:
        reason = enter(walk, PBB_KIND, be32(data, offset) & 0xFF_FFFF)
        return reason if reason != GO_ON else step(walk, Layer.ETHERNET, offset + 4)
    if ethertype == _PPPOE_SESSION:
        if byte(data, offset + 1) != 0:
            return PPPOE
        state_length(walk, offset + 6, be16(data, offset + 4))
        reason = enter(walk, PPPOE_KIND, be16(data, offset + 2))
        return reason if reason != GO_ON else step(walk, Layer.PPP, offset + 6)
    # MACsec: with neither encryption nor change the frame is legible.
    bits = byte(data, offset)
    if bits & _LEGIBLE_MACSEC:
        return MACSEC
    inner = offset + 6 + (8 if bits & _CHANNEL_MACSEC else 0)
    state_length(walk, inner, byte(data, offset + 1))  # 0 where no link layer pads
    return _ethernet_step(data, walk, inner)


@kernel
def _llc_step(data: ByteArray, walk: HeaderWalk, size: int, offset: int) -> int:
    """Behind the length of an 802.3 frame: SNAP with an ethertype, or IP itself."""
    end = walk.position.end[0]
    if offset + 8 <= end and be32(data, offset) == _SNAP and be16(data, offset + 4) == 0:
        state_length(walk, offset + 8, size - 8)
        return step_type(walk, be16(data, offset + 6), offset + 8)
    if offset + 3 <= end and be16(data, offset) == _LLC_IP:
        state_length(walk, offset + 3, size - 3)
        return step(walk, Layer.IP, offset + 3)
    return LLC


@kernel
def _type_step(data: ByteArray, walk: HeaderWalk) -> int:
    """What an ethertype announces."""
    position = walk.position
    ethertype = position.kind[0]
    offset = position.offset[0]
    if ethertype in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
        return _ip_step(data, walk, ethertype)
    if ethertype in VLAN_TAGS:
        return _ethernet_step(data, walk, offset - 2)
    if ethertype in _MPLS_TYPES:
        return _labels(data, walk)
    if ethertype in (_VN_TAG, _E_TAG, _CISCO_METADATA, _FABRIC_PATH, _BACKBONE, _MACSEC):
        return _tagged(data, walk, ethertype, offset)
    if ethertype == _PPPOE_SESSION:
        return _tagged(data, walk, ethertype, offset)
    if ethertype == _ETHERNET_BRIDGED:
        return step(walk, Layer.ETHERNET, offset)
    if ethertype == _PPP:
        return step(walk, Layer.PPP, offset)
    if ethertype == _SERVICE_HEADER:
        return service_header(data, walk)
    if ethertype < SMALLEST_ETHERTYPE:
        return _llc_step(data, walk, ethertype, offset)
    if ethertype in _NOT_IP_TYPES:
        return NOT_IP
    position.detail[0] = ethertype
    if ethertype >= PPP_TYPES:
        return NOT_IP
    return UNSUPPORTED_L2


@kernel
def _ip_step(data: ByteArray, walk: HeaderWalk, ethertype: int) -> int:
    """An IP header: what it carries begins, its addresses are the innermost so far."""
    position = walk.position
    network = ip_layer(data, position.offset[0], position.end[0], position.wire_end[0], ethertype)
    if network.reason == FRAGMENT:
        position.kind[0] = ethertype
        position.layer[0] = Layer.IP
        return REACHED_FRAGMENT
    if network.reason not in (USED, LOOK_CLOSER):
        return network.reason
    wire_end = network.wire_end
    needed = HEADER_BYTES if network.reason == USED else 0
    # A header around this one may say less: an IP length that padding is part of is too long. What
    # leaves no room for the headers is not valid.
    if network.offset + needed <= position.stated_end[0] < wire_end:
        wire_end = position.stated_end[0]
    position.stated_end[0] = wire_end
    position.ip_version[0] = network.version
    position.source_high[0] = network.source_high
    position.source_low[0] = network.source_low
    position.destination_high[0] = network.destination_high
    position.destination_low[0] = network.destination_low
    position.ip_id[0] = network.ip_id
    position.hop_limit[0] = network.hop_limit
    position.wire_end[0] = wire_end
    position.end[0] = min(position.end[0], wire_end)
    position.offset[0] = network.offset
    position.kind[0] = network.protocol
    position.layer[0] = Layer.PROTOCOL
    return REACHED_TCP if network.reason == USED else GO_ON


@kernel
def _version_step(data: ByteArray, walk: HeaderWalk) -> int:
    """An IP header that nothing announced: its version says which."""
    position = walk.position
    if position.offset[0] >= position.end[0]:
        return IP_CUT
    version = byte(data, position.offset[0]) >> 4
    if version not in (4, 6):
        return NOT_IP
    return _ip_step(data, walk, ETHERTYPE_IPV4 if version == 4 else ETHERTYPE_IPV6)


@kernel
def step_on(data: ByteArray, walk: HeaderWalk) -> int:
    """Read the header that the walk stands at; returns as `unwrap`, or GO_ON."""
    position = walk.position
    layer = position.layer[0]
    if layer == Layer.IP:
        return int(_version_step(data, walk))
    if layer == Layer.TYPE:
        return int(_type_step(data, walk))
    if layer == Layer.ETHERNET:
        return int(_ethernet_step(data, walk, position.offset[0] + 12))
    if layer == Layer.PROTOCOL:
        return int(protocol_step(data, walk))
    if layer == Layer.PPP:
        return int(_ppp_step(data, walk))
    return int(_link_step(data, walk))


@kernel
def unwrap(data: ByteArray, walk: HeaderWalk) -> int:
    """Read header after header from where the walk stands.

    Returns:
        REACHED_TCP: a TCP header begins at OFFSET; REACHED_FRAGMENT: a fragment's IP header does;
        else the reason why the packet is not read.
    """
    for _ in range(MAX_UNWRAP_STEPS):
        step = step_on(data, walk)
        if step != GO_ON:
            return step
    return TUNNEL_DEPTH


@inlined
def network_of(walk: HeaderWalk) -> Network:
    """The innermost IP header of a walk that found TCP."""
    position = walk.position
    return Network(
        USED,
        position.kind[0],
        position.offset[0],
        position.wire_end[0],
        position.ip_version[0],
        position.source_high[0],
        position.source_low[0],
        position.destination_high[0],
        position.destination_low[0],
        position.ip_id[0],
        position.hop_limit[0],
    )
