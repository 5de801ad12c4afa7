"""Link layers and VLAN tags, whole and cut."""

import struct

import pytest

from dissector.packet.link import link_type_name
from tests.dissector.packet.decoding import decode
from tests.wire.captures import ETHERNET, LINUX_SLL, LINUX_SLL2, LOOP, NULL, RAW
from tests.wire.packets import (
    ETHERTYPE_IPV6,
    ethernet,
    ipv4,
    ipv6,
    linux_sll,
    linux_sll2,
    segment,
    tcp,
    vlan_tags,
)
from tests.wire.tunnels import mpls

V4 = ipv4(tcp(b"payload"))
V6 = ipv6(tcp(b"payload", addresses=("fd00::1", "fd00::2")))
SNAP = b"\xaa\xaa\x03\0\0\0"
HDLC = b"\x0f\0"

LAYERS = {
    "ethernet": (ETHERNET, ethernet(V4)),
    "ethernet v6": (ETHERNET, ethernet(V6, ETHERTYPE_IPV6)),
    "snap": (ETHERNET, bytes(12) + struct.pack(">H", len(V4) + 8) + SNAP + b"\x08\0" + V4),
    "sll": (LINUX_SLL, linux_sll(V4)),
    "sll v6": (LINUX_SLL, linux_sll(V6, ETHERTYPE_IPV6)),
    "sll2": (LINUX_SLL2, linux_sll2(V4)),
    "sll2 v6": (LINUX_SLL2, linux_sll2(V6, ETHERTYPE_IPV6)),
    "raw": (RAW, V4),
    "raw v6": (RAW, V6),
    "raw bsd": (12, V4),
    "raw openbsd": (14, V4),
    "ipv4": (228, V4),
    "ipv6": (229, V6),
    "null little": (NULL, struct.pack("<I", 2) + V4),
    "null big": (NULL, struct.pack(">I", 2) + V4),
    "null linux v6": (NULL, struct.pack("<I", 10) + V6),
    "null macos v6": (NULL, struct.pack("<I", 30) + V6),
    "loop freebsd v6": (LOOP, struct.pack(">I", 28) + V6),
    "ppp": (9, b"\0\x21" + V4),
    "ppp short protocol": (9, b"\x21" + V4),
    "ppp v6": (9, b"\0\x57" + V6),
    "ppp hdlc": (50, b"\xff\x03\0\x21" + V4),
    "ppp with direction": (204, b"\0\xff\x03\0\x21" + V4),
    "cisco hdlc": (104, HDLC + b"\x08\0" + V4),
    "ppp, cisco hdlc": (9, HDLC + b"\x08\0" + V4),
    "ppp, cisco hdlc to all": (50, b"\x8f\0\x86\xdd" + V6),
    "ppp with direction, cisco hdlc": (204, b"\0" + HDLC + b"\x08\0" + V4),
    "ppp, labels": (9, b"\x02\x81" + mpls(V4)),
    "ppp, labels behind address": (50, b"\xff\x03\x02\x83" + mpls(V6)),
}


@pytest.mark.parametrize(("link_type", "data"), LAYERS.values(), ids=LAYERS.keys())
def test_every_link_layer_gives_the_segment(link_type, data):
    segment = decode(data, link_type)
    assert segment.payload == b"payload"
    assert segment.source in ("10.0.0.1", "fd00::1")


@pytest.mark.parametrize(("link_type", "data"), LAYERS.values(), ids=LAYERS.keys())
def test_every_link_layer_cut_short_gives_a_reason(link_type, data):
    inner = len(V6 if decode(data, link_type).source == "fd00::1" else V4)
    for captured in range(len(data) - inner + 1):
        assert decode(data, link_type, captured=captured) in (
            "link_header_cut",
            "ip_header_cut",
            "llc",
        )


@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("protocol", [0x8100, 0x88A8, 0x9100, 0x9200], ids=hex)
def test_vlan_ids_are_kept_outermost_first(count, protocol):
    ids = [0, 4095, 7, 9][:count]
    tags = [number | 0xE000 for number in ids]  # priority bits are no part of the id
    for head, link_type in ((bytes(12), ETHERNET), (bytes(14), LINUX_SLL)):
        segment = decode(head + vlan_tags(tags, 0x0800, protocol) + V4, link_type)
        assert segment.vlans == tuple(ids)
    whole = vlan_tags(tags, 0x0800, protocol)
    cooked = whole[:2] + bytes(18) + whole[2:]
    assert decode(cooked + V4, LINUX_SLL2).vlans == tuple(ids)


@pytest.mark.parametrize("link_type", [ETHERNET, LINUX_SLL2], ids=["ethernet", "sll2"])
def test_a_deeper_vlan_stack_is_counted(link_type):
    whole = vlan_tags([1, 2, 3, 4, 5], 0x0800)
    data = bytes(12) + whole if link_type == ETHERNET else whole[:2] + bytes(18) + whole[2:]
    assert decode(data + V4, link_type) == "vlan_depth"


OTHERS = {
    0x0806: "not_ip",
    0x88CC: "not_ip",
    0x8863: "not_ip",
    0x22F3: "unsupported_l2",
    0x1234: "unsupported_l2",
    0x0026: "llc",
}


@pytest.mark.parametrize(("ethertype", "reason"), OTHERS.items(), ids=map(hex, OTHERS))
def test_other_ethertypes_have_their_reason(ethertype, reason):
    assert decode(ethernet(bytes(60), ethertype)) == reason
    assert decode(ethernet(bytes(60), ethertype, vlans=[5])) == reason


def test_what_no_loopback_or_ppp_knows_is_not_ip():
    assert decode(struct.pack("<I", 7) + V4, NULL) == "not_ip"
    assert decode(b"\xc0\x21" + bytes(50), 9) == "not_ip"
    assert decode(b"\x55" + V4, RAW) == "not_ip"


def test_an_unknown_link_type_has_its_reason_and_a_name():
    assert decode(segment(b"x"), 147) == "unknown_link_type"
    assert link_type_name(1) == "ETHERNET"
    assert link_type_name(9999) == "LINKTYPE_9999"


def test_frame_checksum_bits_in_the_header_are_no_link_type():
    assert decode(segment(b"x"), 0x2400_0001).payload == b"x"
