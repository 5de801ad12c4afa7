"""Parses link layers: offset of the IP packet, and VLAN tags before it."""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16, be32, byte
from dissector.jit import inlined
from dissector.limits import MAX_VLAN_TAGS
from dissector.packet import reasons

# Numbers of link types (LINKTYPE_ and the DLT_RAW numbers that some systems put in files) and the
# names that users see: first those that `link_layer` reads, then those that `unwrap` reads.
NULL_LOOPBACK: Final = 0
ETHERNET: Final = 1
PPP: Final = 9
RAW_OPENBSD: Final = 14
RAW_BSD: Final = 12
PPP_HDLC: Final = 50
RAW: Final = 101
CISCO_HDLC: Final = 104
LOOP: Final = 108
LINUX_SLL: Final = 113
PPP_WITH_DIRECTION: Final = 204
IPV4: Final = 228
IPV6: Final = 229
LINUX_SLL2: Final = 276
PPP_ETHER: Final = 51
ENC: Final = 109
PFLOG: Final = 117
PPI: Final = 192
MPLS_LABELS: Final = 219
NFLOG: Final = 239

LINK_TYPE_NAMES: Final = {
    NULL_LOOPBACK: "NULL",
    ETHERNET: "ETHERNET",
    PPP: "PPP",
    RAW_BSD: "RAW",
    RAW_OPENBSD: "RAW",
    PPP_HDLC: "PPP_HDLC",
    RAW: "RAW",
    CISCO_HDLC: "C_HDLC",
    LOOP: "LOOP",
    LINUX_SLL: "LINUX_SLL",
    PPP_WITH_DIRECTION: "PPP_WITH_DIR",
    IPV4: "IPV4",
    IPV6: "IPV6",
    LINUX_SLL2: "LINUX_SLL2",
    PPP_ETHER: "PPP_ETHER",
    ENC: "ENC",
    PFLOG: "PFLOG",
    PPI: "PPI",
    MPLS_LABELS: "MPLS",
    NFLOG: "NFLOG",
    # -- not read
    6: "IEEE802_5",
    7: "ARCNET_BSD",
    8: "SLIP",
    10: "FDDI",
    100: "ATM_RFC1483",
    105: "IEEE802_11",
    107: "FRELAY",
    119: "IEEE802_11_PRISM",
    122: "IP_OVER_FC",
    127: "IEEE802_11_RADIOTAP",
    138: "APPLE_IP_OVER_IEEE1394",
    147: "USER0",
    163: "IEEE802_11_AVS",
    166: "PPP_PPPD",
    178: "JUNIPER_ETHER",
    187: "BLUETOOTH_HCI_H4",
    189: "USB_LINUX",
    195: "IEEE802_15_4_WITHFCS",
    201: "BLUETOOTH_HCI_H4_WITH_PHDR",
    220: "USB_LINUX_MMAPPED",
    227: "CAN_SOCKETCAN",
    231: "DBUS",
    240: "NETANALYZER",
    247: "INFINIBAND",
    249: "USBPCAP",
    251: "BLUETOOTH_LE_LL",
    252: "WIRESHARK_UPPER_PDU",
    253: "NETLINK",
    254: "BLUETOOTH_LINUX_MONITOR",
    256: "BLUETOOTH_LE_LL_WITH_PHDR",
    258: "PKTAP",
    272: "NORDIC_BLE",
    274: "ETHERNET_MPACKET",
    283: "IEEE802_15_4_TAP",
}

ETHERTYPE_IPV4: Final = 0x0800
ETHERTYPE_IPV6: Final = 0x86DD
MPLS_TYPE: Final = 0x8847
SMALLEST_ETHERTYPE: Final = 0x0600  # below it the field is the length of an 802.3 frame
VLAN_TAGS: Final = (0x8100, 0x88A8, 0x9100, 0x9200)

_PPP_IPV4: Final = 0x0021
_PPP_IPV6: Final = 0x0057
_PPP_LABELS: Final = (0x0281, 0x0283)
# What compresses, encrypts or divides packets, which are not read then.
_PPP_UNREAD: Final = (0x002D, 0x002F, 0x003D, 0x0053, 0x00FB, 0x00FD)
PPP_TYPES: Final = 2 << 16  # with a protocol of PPP: not an ethertype
_PPP_ADDRESS_CONTROL: Final = 0xFF03
# Address and control of Cisco's HDLC, to one station and to all, which serial lines show as PPP.
_CISCO_HEADERS: Final = (0x0F00, 0x8F00)
_LONGEST_FAMILY: Final = 0xFFFF  # an address family read in the right byte order is below

NO_ETHERTYPE: Final = -1  # no link layer of this module
VLAN_ID_BITS: Final = 12
VLAN_COUNT_SHIFT: Final = 48


class Link(NamedTuple):
    """A parsed link layer.

    reason: USED = an IP packet follows, LOOK_CLOSER = something else, else why the packet is not
        read.
    ethertype: what follows.
    offset: first byte of that.
    vlans: as in SegmentColumns.
    """

    reason: int
    offset: int
    ethertype: int
    vlans: int


def link_type_name(number: int) -> str:
    """The name of a link type, `LINKTYPE_n` for one without a name here."""
    return LINK_TYPE_NAMES.get(number, f"LINKTYPE_{number}")


@inlined
def after_type(data: ByteArray, offset: int, end: int) -> Link:
    """Read on from the ethertype at offset: VLAN tags up to the limit, IP."""
    vlans = 0
    count = 0
    while offset + 2 <= end:
        ethertype = be16(data, offset)
        offset += 2
        if ethertype in VLAN_TAGS:
            if offset + 2 > end:
                break
            if count == MAX_VLAN_TAGS:
                return Link(reasons.VLAN_DEPTH, offset, 0, 0)
            vlans |= (be16(data, offset) & 0xFFF) << (VLAN_ID_BITS * count)
            count += 1
            offset += 2
            continue
        reason = (
            reasons.USED if ethertype in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) else reasons.LOOK_CLOSER
        )
        return Link(reason, offset, ethertype, vlans | (count << VLAN_COUNT_SHIFT))
    return Link(reasons.LINK_CUT, offset, 0, 0)


@inlined
def _by_version(data: ByteArray, offset: int, end: int) -> Link:
    """An IP packet without link header: its own version says which."""
    if offset >= end:
        return Link(reasons.LINK_CUT, offset, 0, 0)
    version = byte(data, offset) >> 4
    if version == 4:
        return Link(reasons.USED, offset, ETHERTYPE_IPV4, 0)
    if version == 6:
        return Link(reasons.USED, offset, ETHERTYPE_IPV6, 0)
    return Link(reasons.NOT_IP, offset, 0, 0)


@inlined
def loopback(data: ByteArray, offset: int, end: int) -> Link:
    """A 4-byte address family in the byte order of whichever machine captured.

    IPv4 is 2 everywhere, IPv6 is 10, 23, 24, 28 or 30: the packet's own version decides instead.
    """
    if offset + 4 > end:
        return Link(reasons.LINK_CUT, offset, 0, 0)
    family = be32(data, offset)
    if family > _LONGEST_FAMILY:
        family = ((family >> 24) & 0xFF) | ((family >> 8) & 0xFF00)
    if family in (2, 10, 23, 24, 28, 30):
        return _by_version(data, offset + 4, end)
    return Link(reasons.NOT_IP, offset, 0, 0)


@inlined
def ppp(data: ByteArray, offset: int, end: int) -> Link:
    """PPP with or without address and control bytes; the protocol has one or two bytes.

    A serial line that speaks Cisco's HDLC has an ethertype behind these two bytes. No protocol of
    PPP is written with the byte 0F or 8F alone.
    """
    if offset + 2 <= end:
        first = be16(data, offset)
        if first in _CISCO_HEADERS:
            return after_type(data, offset + 2, end)
        if first == _PPP_ADDRESS_CONTROL:
            offset += 2
    if offset + 2 > end:
        return Link(reasons.LINK_CUT, offset, 0, 0)
    protocol = byte(data, offset)
    offset += 1
    if protocol & 1 == 0:
        protocol = protocol << 8 | byte(data, offset)
        offset += 1
    if protocol in (_PPP_IPV4, _PPP_IPV6):
        return _by_version(data, offset, end)
    if protocol in _PPP_LABELS:
        return Link(reasons.LOOK_CLOSER, offset, MPLS_TYPE, 0)
    if protocol in _PPP_UNREAD:
        return Link(reasons.LOOK_CLOSER, offset, PPP_TYPES | protocol, 0)
    return Link(reasons.NOT_IP, offset, 0, 0)


@inlined
def link_layer(data: ByteArray, offset: int, end: int, link_type: int) -> Link:
    """Find the IP packet in data[offset:end], a captured packet of the given link type."""
    if link_type == ETHERNET:
        return after_type(data, offset + 12, end)
    if link_type == LINUX_SLL:
        return after_type(data, offset + 14, end)
    if link_type == LINUX_SLL2:
        # The ethertype comes first here; a VLAN tag, if any, still follows the 20 bytes of header.
        if offset + 20 > end:
            return Link(reasons.LINK_CUT, offset, 0, 0)
        ethertype = be16(data, offset)
        if ethertype in VLAN_TAGS:
            if offset + 24 > end:
                return Link(reasons.LINK_CUT, offset, 0, 0)
            inner = after_type(data, offset + 22, end)
            first = be16(data, offset + 20) & 0xFFF
            count = (inner.vlans >> VLAN_COUNT_SHIFT) + 1
            if count > MAX_VLAN_TAGS:
                return Link(reasons.VLAN_DEPTH, offset, 0, 0)
            rest = inner.vlans & ((1 << (VLAN_ID_BITS * (MAX_VLAN_TAGS - 1))) - 1)
            vlans = first | (rest << VLAN_ID_BITS) | (count << VLAN_COUNT_SHIFT)
            return Link(inner.reason, inner.offset, inner.ethertype, vlans)
        reason = (
            reasons.USED if ethertype in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) else reasons.LOOK_CLOSER
        )
        return Link(reason, offset + 20, ethertype, 0)
    if link_type in (RAW, RAW_BSD, RAW_OPENBSD, IPV4, IPV6):
        return _by_version(data, offset, end)
    if link_type in (NULL_LOOPBACK, LOOP):
        return loopback(data, offset, end)
    if link_type in (PPP, PPP_HDLC):
        return ppp(data, offset, end)
    if link_type == PPP_WITH_DIRECTION:
        return ppp(data, offset + 1, end)
    if link_type == CISCO_HDLC:
        return after_type(data, offset + 2, end)
    return Link(reasons.LOOK_CLOSER, offset, NO_ETHERTYPE, 0)
