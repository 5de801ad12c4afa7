"""Packets in any stack of tunnels, tags and labels: the same segment as without them."""

import random
import struct
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import MAX_TUNNEL_DEPTH
from tests.dissector.capture.reading import Segment, read_capture
from tests.dissector.packet.decoding import decode
from tests.wire.captures import RAW, Record, pcap
from tests.wire.packets import ETHERTYPE_IPV6, ethernet, ipv4, ipv6, segment, tcp, time_stamps
from tests.wire.tunnels import (
    Wrapped,
    backbone,
    gtp,
    mpls,
    nsh,
    on_wire,
    over_ip,
    over_udp,
    pppoe,
    pptp,
    vxlan,
    wrapped,
)

V4 = ipv4(tcp(b"payload", sequence=77, options=time_stamps(5, 6)), identification=99)
V6 = ipv6(tcp(b"payload", sequence=77, addresses=("fd00::1", "fd00::2")))
ARP = bytes(28)


def same(found: Segment | str, expected: Segment | str) -> None:
    """All but what was around the packet."""
    assert isinstance(found, Segment) and isinstance(expected, Segment), found
    assert found._replace(vlans=(), tunnel=None) == expected._replace(vlans=(), tunnel=None)


@given(seed=st.integers(0, 1 << 32), depth=st.integers(0, 4), is_v6=st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_stack_of_tunnels_gives_the_inner_segment(seed, depth, is_v6):
    chance = random.Random(seed)
    packet = V6 if is_v6 else V4
    whole = Wrapped(packet)
    for _ in range(depth):
        whole = wrapped(whole, chance)
    whole = on_wire(whole, chance)
    segment = decode(whole.packet)
    same(segment, decode(packet, RAW))
    assert isinstance(segment, Segment)
    assert segment.tunnel == ("/".join(whole.tunnels) or None)
    assert segment.vlans == whole.vlans


@given(seed=st.integers(0, 1 << 32), depth=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_a_packet_cut_anywhere_is_counted_once(seed, depth):
    chance = random.Random(seed)
    whole = Wrapped(V4)
    for _ in range(depth):
        whole = wrapped(whole, chance)
    packet = on_wire(whole, chance).packet
    records = [Record(n, packet[:n], len(packet)) for n in range(len(packet) + 1)]
    reading = read_capture([pcap(records)])
    ((used, ignored),) = reading.counts
    assert used + sum(ignored.values()) == len(records)
    assert reading.reasons[-1] == "used"
    # Once its header is there a packet is used, and its length is what the inner header says.
    first = reading.reasons.index("used")
    assert set(reading.reasons[first:]) == {"used"}
    assert {each.wire_bytes for each in reading.segments} == {7}
    assert all(b"payload".startswith(each.payload) for each in reading.segments)


@given(packet=st.binary(max_size=120), seed=st.integers(0, 1 << 32), kind=st.integers(0, 12))
@settings(max_examples=300, deadline=None)
def test_no_bytes_inside_a_tunnel_do_harm(packet, seed, kind):
    chance = random.Random(seed)
    if kind < 12:
        ethertypes = (0x8847, 0x8864, 0x88E7, 0x8926, 0x893F, 0x88E5, 0x8909, 0x8903, 0x894F)
        ethertypes += (0x6558, 0x880B, 0x0006)
        whole = ethernet(packet, ethertypes[kind])
    else:
        whole = ethernet(over_ip(packet, chance.choice((4, 17, 41, 47, 97, 137))))
    segment = decode(whole)
    assert isinstance(segment, (Segment, str))


def test_deeper_tunnels_are_counted():
    packet = V4
    for _ in range(MAX_TUNNEL_DEPTH):
        packet = over_ip(packet, 4)
    assert decode(packet, RAW).payload == b"payload"
    reading = read_capture([pcap([Record(1, over_ip(packet, 4))], link_type=RAW)])
    assert reading.counts == [(0, {"tunnel_depth": 1})]
    assert [(n.code, n.packet, n.value) for n in reading.notices] == [("nesting_limit", 1, 1)]


FRAME = ethernet(V4)
ODD_FRAME = b"\x45\0" + FRAME[2:]  # begins like IPv4
SIX_FRAME = b"\x60\0" + FRAME[2:]  # begins like IPv6
LABELLED = {
    "ip": (V4, True),
    "ip 6": (V6, True),
    "control word": (bytes(4) + FRAME, True),
    "no control word": (FRAME, True),
    "no control word, address like IPv4": (ODD_FRAME, True),
    "no control word, address like IPv6": (SIX_FRAME, True),
    "control word, ARP": (bytes(4) + ethernet(ARP, 0x0806), "not_ip"),
    "associated channel": (b"\x10\0\0\x21" + bytes(40), "mpls"),
    "nothing known": (bytes(60), "mpls"),
    "nothing": (b"", "link_header_cut"),
}


@pytest.mark.parametrize(("inner", "said"), LABELLED.values(), ids=LABELLED)
def test_what_labels_carry_is_found_out(inner, said):
    for labels in ((100,), (16, 17, 3), range(1, 17)):
        segment = decode(ethernet(mpls(inner, labels), 0x8847))
        if said is True:
            assert (segment.payload, segment.tunnel) == (b"payload", "mpls")
        else:
            assert segment == said
    assert decode(ethernet(mpls(V4, range(17)), 0x8848)) == "mpls"


def tagged(ethertype: int, head: bytes) -> bytes:
    return ethernet(head + b"\x08\0" + V4, ethertype)


HEADERS = {
    "vn-tag": tagged(0x8926, bytes(4)),
    "e-tag": tagged(0x893F, bytes(6)),
    "cisco metadata": tagged(0x8909, b"\x01\x01\0\x01\0\x05"),
    "fabric path": ethernet(b"\0\x40" + FRAME, 0x8903),
    "macsec, legible": tagged(0x88E5, b"\x20\0" + bytes(4) + bytes(8)) + bytes(16),
    "macsec, without channel": tagged(0x88E5, bytes(6)) + bytes(16),
    "bridged": ethernet(FRAME, 0x6558),
    "service header": ethernet(nsh(FRAME), 0x894F),
    "backbone": ethernet(backbone(FRAME), 0x88E7),
    "backbone over vlan": ethernet(backbone(FRAME), 0x88E7, [9]),
    "pppoe over qinq": ethernet(pppoe(V4), 0x8864, [100, 200]),
    "mpls in vlan": ethernet(mpls(V4), 0x8847, [9]),
    "llc": ethernet(b"\x06\x06\x03" + V4, len(V4) + 3),
    "vn-tag, then vlan": ethernet(bytes(4) + b"\x81\0\0\x07\x08\0" + V4, 0x8926),
}


@pytest.mark.parametrize("packet", HEADERS.values(), ids=HEADERS)
def test_headers_between_ethernet_and_ip(packet):
    same(decode(packet), decode(V4, RAW))


ZEROS = bytes(6)
LONG_V4 = ipv4(tcp(b"payload", sequence=77) + ZEROS)  # its length counts what follows the segment
LONG_V6 = ipv6(tcp(b"payload", sequence=77, addresses=("fd00::1", "fd00::2")) + ZEROS)


def stated(head: Callable[[bytes], bytes], packet: bytes) -> bytes:
    """A header that states the length of the packet without the zeros, and all of the packet."""
    return head(packet[: -len(ZEROS)]) + ZEROS


def snap(packet: bytes) -> bytes:
    kind = b"\x08\0" if packet[0] >> 4 == 4 else b"\x86\xdd"
    return struct.pack(">H", 8 + len(packet)) + b"\xaa\xaa\x03\0\0\0" + kind + packet


LENGTHS = {
    "pppoe": (1, lambda packet: ethernet(stated(pppoe, packet), 0x8864)),
    "pppoe as link type": (51, lambda packet: stated(pppoe, packet)),
    "pppoe in a mirror": (
        RAW,
        lambda packet: over_udp(vxlan(ethernet(stated(pppoe, packet), 0x8864)), 4789),
    ),
    "pppoe around an ip tunnel": (
        1,
        lambda packet: ethernet(stated(pppoe, over_ip(packet, 4 if packet[0] >> 4 == 4 else 41)),
                                0x8864),
    ),
    "snap": (1, lambda packet: bytes(12) + stated(snap, packet)),
    "gtp": (RAW, lambda packet: over_udp(stated(gtp, packet), 2152)),
    "gtp with extensions": (
        RAW,
        lambda packet: over_udp(stated(lambda p: gtp(p, 8, [bytes(2)]), packet), 2152),
    ),
    "pptp": (RAW, lambda packet: over_ip(stated(pptp, packet), 47)),
    "ip": (RAW, lambda packet: over_ip(packet[:-6], 4 if packet[0] >> 4 == 4 else 41) + ZEROS),
}  # fmt: skip


@pytest.mark.parametrize("packet", [LONG_V4, LONG_V6], ids=["v4", "v6"])
@pytest.mark.parametrize(("link_type", "wrap"), LENGTHS.values(), ids=LENGTHS)
def test_of_nested_lengths_the_shortest_counts(link_type, wrap, packet):
    segment = decode(wrap(packet), link_type)
    assert isinstance(segment, Segment)
    assert (segment.payload, segment.wire_bytes) == (b"payload", 7)


def with_length(length: int, packet: bytes = V4) -> bytes:
    """A PPPoE session packet that states so many bytes."""
    whole = pppoe(packet)
    return ethernet(whole[:4] + struct.pack(">H", length) + whole[6:], 0x8864)


@pytest.mark.parametrize("length", [0, 1, 2, 22, 41, len(V4) + 3, 65535])
def test_a_length_that_cannot_be_is_not_used(length):
    same(decode(with_length(length)), decode(V4, RAW))


def test_what_a_mirror_inside_a_session_cut_off_is_missing():
    frame = ethernet(ipv4(tcp(b"x" * 900)))[: 54 + 100]
    segment = decode(with_length(2 + 20 + 8 + 8 + len(frame), over_udp(vxlan(frame), 4789)))
    assert (segment.wire_bytes, len(segment.payload)) == (900, 100)


ODD = {
    "pppoe discovery": (ethernet(bytes(40), 0x8863), "not_ip"),
    "pppoe, not a session packet": (ethernet(b"\x11\x09" + bytes(40), 0x8864), "pppoe"),
    "pppoe, link control": (ethernet(b"\x11\0\0\x01\0\x20\xc0\x21" + bytes(40), 0x8864), "not_ip"),
    "macsec": (ethernet(b"\x0c" + bytes(60), 0x88E5), "macsec"),
    "service header of another version": (ethernet(b"\x80" + bytes(60), 0x894F), "nsh"),
    "service header of no length": (ethernet(bytes(60), 0x894F), "nsh"),
    "deep vlans in a tunnel": (
        ethernet(bytes(4) + ethernet(V4, vlans=range(5)), 0x88E7),
        "vlan_depth",
    ),
}


@pytest.mark.parametrize(("packet", "reason"), ODD.values(), ids=ODD)
def test_what_carries_no_packet_has_its_reason(packet, reason):
    assert decode(packet) == reason


def attribute(kind: int, content: bytes, order: str) -> bytes:
    size = 4 + len(content)
    return struct.pack(f"{order}HH", size, kind) + content + bytes(-size % 4)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("packet", [V4, V6], ids=["v4", "v6"])
def test_the_netfilter_log(order, packet):
    head = bytes([2 if packet is V4 else 10, 0]) + struct.pack(">H", 7)
    before = attribute(1, bytes(4), order) + attribute(10, b"prefix\0", order)
    whole = head + before + attribute(9, packet, order) + attribute(3, bytes(4), order)
    same(decode(whole, 239), decode(packet, RAW))
    for captured in range(len(head + before)):
        assert decode(whole, 239, captured=captured) in ("link_header_cut", "ip_header_cut")
    assert decode(head + before, 239) == "link_header_cut"
    assert decode(head + bytes(40), 239) == "link_header_cut"


def ppi(link_type: int, packet: bytes) -> bytes:
    return struct.pack("<BBHI", 0, 0, 12, link_type) + b"more" + packet


RARE = {
    "ppi": (192, ppi(1, FRAME)),
    "ppp over ethernet": (51, pppoe(V4)),
    "labels": (219, mpls(V4)),
    "enc": (109, struct.pack("<I", 2) + bytes(8) + V4),
    "pflog": (117, b"\x3d\x02" + bytes(62) + V4),
}


@pytest.mark.parametrize(("link_type", "packet"), RARE.values(), ids=RARE)
def test_rare_link_types(link_type, packet):
    same(decode(packet, link_type), decode(V4, RAW))
    for captured in range(len(packet)):
        decode(packet, link_type, captured=captured)


def test_a_link_type_inside_another_that_is_not_read_is_named():
    reading = read_capture([pcap([Record(1, ppi(105, FRAME))], link_type=192)])
    assert reading.counts == [(0, {"unknown_link_type": 1})]
    assert [(n.code, n.value, n.value2) for n in reading.notices] == [("unknown_link_type", 105, 1)]


def test_ethertypes_that_nobody_reads_are_named():
    packets = [ethernet(bytes(50), kind) for kind in (0x1234, 0x0806, 0x22F3, 0x1234)]
    packets.append(ethernet(bytes(4) + ethernet(bytes(50), 0x1234), 0x88E7))
    reading = read_capture([pcap([Record(n, packet) for n, packet in enumerate(packets)])])
    assert reading.counts == [(0, {"unsupported_l2": 4, "not_ip": 1})]
    assert [(n.code, n.packet, n.value, n.value2) for n in reading.notices] == [
        ("unknown_ethertype", 1, 0x1234, 3),
        ("unknown_ethertype", 3, 0x22F3, 1),
    ]


def test_a_segment_with_ipv6_addresses_in_a_frame_with_tags():
    whole = segment(b"x", client=("fd00::1", 1), broker=("fd00::2", 2), vlans=[5])
    assert decode(ethernet(mpls(whole), 0x8847)).vlans == (5,)
    assert decode(ethernet(mpls(V6), 0x8847)).source == "fd00::1"
    assert decode(ethernet(pppoe(V6), 0x8864)).source == "fd00::1"
    assert ETHERTYPE_IPV6 == 0x86DD
