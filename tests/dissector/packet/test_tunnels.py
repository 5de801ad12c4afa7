"""Each kind of tunnel: what its header may say, and what is not read."""

import struct

import pytest

from tests.dissector.capture.reading import Segment
from tests.dissector.packet.decoding import decode
from tests.dissector.packet.test_unwrap import FRAME, V4, V6, same
from tests.wire.captures import RAW
from tests.wire.packets import ethernet, ipv4, ipv6, tcp, udp
from tests.wire.tunnels import (
    OUTER_6,
    erspan_1,
    erspan_2,
    erspan_3,
    geneve,
    gre,
    gtp,
    mpls,
    nsh,
    over_ip,
    over_udp,
    pptp,
    vxlan,
)


def segment_of(packet: bytes) -> Segment:
    segment = decode(packet, RAW)
    same(segment, decode(V6 if isinstance(segment, Segment) and ":" in segment.source else V4, RAW))
    assert isinstance(segment, Segment)
    return segment


ENDS = "192.0.2.1-192.0.2.2"
NAMES = {
    "vxlan": (over_udp(vxlan(FRAME, 5), 4789), "vxlan:5"),
    "vxlan of linux": (over_udp(vxlan(FRAME, 5), 8472), "vxlan:5"),
    "vxlan over ipv6": (over_udp(vxlan(FRAME, 5), 4789, OUTER_6), "vxlan:5"),
    "vxlan, all reserved bits": (
        over_udp(vxlan(FRAME, (1 << 24) - 1, 0xFF, 0xFFFFFF, 0xFF), 4789),
        "vxlan:16777215",
    ),
    "vxlan with a protocol on the old port": (
        over_udp(vxlan(V4, 5, 0x0C, 1), 4789),
        "vxlan:5",
    ),
    "vxlan with a service header on the old port": (
        over_udp(vxlan(nsh(FRAME), 5, 0x0C, 4), 4789),
        "vxlan:5",
    ),
    "vxlan-gpe": (over_udp(vxlan(V6, 5, 0x0C, 2), 4790), "vxlan:5"),
    "vxlan-gpe with a service header": (over_udp(vxlan(nsh(FRAME), 5, 0x0C, 4), 4790), "vxlan:5"),
    "vxlan-gpe with labels": (over_udp(vxlan(mpls(V4), 5, 0x0C, 5), 4790), "vxlan:5/mpls"),
    "geneve": (over_udp(geneve(FRAME, 6), 6081), "geneve:6"),
    "geneve, all options": (over_udp(geneve(FRAME, 6, options=bytes(252)), 6081), "geneve:6"),
    "geneve around vxlan": (
        over_udp(geneve(ethernet(over_udp(vxlan(FRAME, 5), 4789)), 6), 6081),
        "geneve:6/vxlan:5",
    ),
    "vxlan around geneve": (
        over_udp(vxlan(ethernet(over_udp(geneve(FRAME, 6), 6081)), 5), 4789),
        "vxlan:5/geneve:6",
    ),
    "gre": (over_ip(gre(V4, 0x0800), 47), f"gre:{ENDS}"),
    "gre, backwards": (
        over_ip(gre(V4, 0x0800), 47, ("192.0.2.2", "192.0.2.1")),
        f"gre:{ENDS}",
    ),
    "gre with a key": (over_ip(gre(V6, 0x86DD, key=1 << 31), 47), "gre:2147483648"),
    "gre over ipv6": (over_ip(gre(FRAME), 47, OUTER_6), "gre:2001:db8::1-2001:db8::2"),
    "gre in gre": (
        over_ip(gre(over_ip(gre(V4, 0x0800, key=2), 47), 0x0800, key=1), 47),
        "gre:1/gre:2",
    ),
    "gre with labels": (over_ip(gre(mpls(V4), 0x8847, key=1), 47), "gre:1/mpls"),
    "gre with source routes": (
        over_ip(gre(V4, 0x0800, key=1, routes=b"\x08\0\0\x04abcd" * 3), 47),
        "gre:1",
    ),
    "gre in udp": (over_udp(gre(V4, 0x0800, key=1), 4754), "gre:1"),
    "gre of a web cache": (over_ip(gre(V4, 0x883E, key=1), 47), "gre:1"),
    "gre of a newer web cache": (over_ip(gre(bytes(4) + V4, 0x883E, key=1), 47), "gre:1"),
    "pptp": (over_ip(pptp(V4, acknowledgement=3), 47), "pptp"),
    "erspan 1": (over_ip(erspan_1(FRAME), 47), f"erspan:{ENDS}"),
    "erspan 2": (over_ip(erspan_2(FRAME, 1023), 47), "erspan:1023"),
    "erspan 3": (over_ip(erspan_3(FRAME, 7), 47), "erspan:7"),
    "erspan 3, platform": (over_ip(erspan_3(FRAME, 7, 0, True), 47), "erspan:7"),
    "erspan in vxlan": (
        over_udp(vxlan(ethernet(over_ip(erspan_2(FRAME, 7), 47)), 5), 4789),
        "vxlan:5/erspan:7",
    ),
    "ip in ip": (over_ip(V4, 4), f"ip:{ENDS}"),
    "6in4": (over_ip(V6, 41), f"ip:{ENDS}"),
    "4in6": (over_ip(V4, 4, OUTER_6), "ip:2001:db8::1-2001:db8::2"),
    "ethernet in ip": (over_ip(b"\x30\0" + FRAME, 97), f"etherip:{ENDS}"),
    "labels in ip": (over_ip(mpls(V4), 137), "mpls"),
    "labels in udp": (over_udp(mpls(V4), 6635), "mpls"),
    "gtp": (over_udp(gtp(V4, 1), 2152), "gtp"),
    "gtp with extensions": (over_udp(gtp(V4, 1, [bytes(2), bytes(6)]), 2152), "gtp"),
    "gtp with a sequence number": (
        over_udp(b"\x32\xff" + struct.pack(">HI", 4 + len(V4), 1) + bytes(4) + V4, 2152),
        "gtp",
    ),
}


@pytest.mark.parametrize(("packet", "name"), NAMES.values(), ids=NAMES)
def test_every_tunnel_gives_its_packet_and_has_a_name(packet, name):
    assert segment_of(packet).tunnel == name


def test_the_vlan_of_a_mirrored_frame_is_kept_once():
    tagged = ethernet(V4, vlans=[9])
    for mirror in (erspan_2, erspan_3):
        assert segment_of(over_ip(mirror(FRAME, 1, 9), 47)).vlans == (9,)
        assert segment_of(over_ip(mirror(tagged, 1, 9), 47)).vlans == (9,)
        assert segment_of(over_ip(mirror(tagged, 1, 0), 47)).vlans == (9,)
    outer = ethernet(over_ip(erspan_2(FRAME, 1, 9), 47), vlans=[4])
    assert decode(outer).vlans == (4, 9)


def test_mirrored_ip_packets_without_frame():
    whole = over_ip(erspan_3(V4, 7), 47)
    at = 20 + 8 + 10
    assert (
        segment_of(whole[:at] + struct.pack(">H", 2 << 10) + whole[at + 2 :]).tunnel == "erspan:7"
    )


def test_the_inner_packet_may_be_cut_by_the_mirror():
    # A mirror that shortens packets makes a right outer packet; the inner one says how long it was.
    inner = ethernet(ipv4(tcp(b"x" * 2000)))
    for kept in (54 + 100, 54, 60):
        segment = decode(ethernet(over_udp(vxlan(inner[:kept]), 4789)))
        assert (segment.wire_bytes, len(segment.payload)) == (2000, kept - 54)
    assert decode(ethernet(over_udp(vxlan(inner[:33]), 4789))) == "ip_header_cut"


def test_giants_not_yet_cut_by_the_card_inside_a_tunnel():
    big = ipv4(tcp(b"x" * 70_000), total_bytes=0)
    inner = udp(b"", 1, 4789) + vxlan(ethernet(big))
    outer = ipv4(inner, protocol=17, total_bytes=0)
    assert decode(ethernet(outer)).wire_bytes == 70_000
    six = ipv6(tcp(b"x" * 70_000, addresses=("fd00::1", "fd00::2")), payload_bytes=0)
    outer = ipv6(udp(b"", 1, 4789) + vxlan(ethernet(six, 0x86DD)), next_header=17, payload_bytes=0)
    assert decode(ethernet(outer, 0x86DD)).wire_bytes == 70_000


def test_trailers_of_the_outer_frame_are_no_payload():
    whole = ethernet(over_udp(vxlan(FRAME), 4789)) + b"trailer"
    assert decode(whole).payload == b"payload"
    # Even if an inner length would reach into it.
    assert decode(ethernet(over_ip(V4[:-3], 4)) + b"trailer").payload == b"payl"


ODD = {
    "vxlan without id": (over_udp(vxlan(FRAME, 5, 0), 4789), "vxlan"),
    "vxlan-gpe of another protocol": (over_udp(vxlan(FRAME, 5, 0x0C, 9), 4790), "vxlan"),
    "vxlan around arp": (over_udp(vxlan(ethernet(bytes(28), 0x0806)), 4789), "not_ip"),
    "vxlan around udp": (over_udp(vxlan(ethernet(over_udp(b"", 53))), 4789), "udp"),
    "vxlan, cut": (over_udp(bytes(7), 4789), "tunnel_header_cut"),
    "geneve of another version": (over_udp(b"\x40" + geneve(FRAME)[1:], 6081), "geneve"),
    "geneve of another protocol": (over_udp(geneve(FRAME, 1, 0x1234), 6081), "unsupported_l2"),
    "geneve, cut": (over_udp(bytes(7), 6081), "tunnel_header_cut"),
    "geneve, cut in options": (
        over_udp(geneve(b"", options=bytes(8))[:12], 6081),
        "link_header_cut",
    ),
    "gtp, an echo": (over_udp(b"\x30\x01" + bytes(10), 2152), "gtp"),
    "gtp of the old version": (over_udp(b"\x10" + gtp(V4)[1:], 2152), "gtp"),
    "gtp, cut": (over_udp(gtp(b"")[:7], 2152), "tunnel_header_cut"),
    "gtp, cut in extensions": (over_udp(gtp(b"", 1, [bytes(2)])[:11], 2152), "tunnel_header_cut"),
    "gtp, extension of no length": (
        over_udp(gtp(b"", 1, [bytes(2)])[:12] + bytes(9), 2152),
        "gtp",
    ),
    "gre of another version": (over_ip(b"\0\x02" + bytes(20), 47), "gre"),
    "gre of no protocol": (over_ip(gre(b"alive", 0), 47), "gre"),
    "gre of another protocol": (over_ip(gre(V4, 0x1234), 47), "unsupported_l2"),
    "gre, cut": (over_ip(b"\0\0\x08", 47), "tunnel_header_cut"),
    "gre, nothing inside": (over_ip(gre(b"", 0x0800), 47), "tunnel_header_cut"),
    "gre, endless routes": (
        over_ip(gre(V4, 0x0800, routes=b"\x08\0\0\0" * 99), 47),
        "tunnel_header_cut",
    ),
    "pptp acknowledgement": (over_ip(b"\x20\x81\x88\x0b\0\0\0\x09\0\0\0\x01", 47), "gre"),
    "pptp, compressed": (
        over_ip(b"\x30\x01\x88\x0b\0\x20\0\x09\0\0\0\x01\xfd" + bytes(31), 47),
        "not_ip",
    ),
    "erspan of another version": (over_ip(gre(bytes(60), 0x88BE, sequence=1), 47), "gre"),
    "erspan, cut": (over_ip(gre(b"\x10" + bytes(6), 0x88BE, sequence=1), 47), "tunnel_header_cut"),
    "ethernet in ip, cut": (over_ip(b"\x30", 97), "tunnel_header_cut"),
    "ip in ip, nothing inside": (over_ip(b"", 4), "ip_header_cut"),
    "ip in ip, another version": (over_ip(b"\x55" + bytes(40), 4), "not_ip"),
}


@pytest.mark.parametrize(("packet", "reason"), ODD.values(), ids=ODD)
def test_what_carries_no_segment_has_its_reason(packet, reason):
    assert decode(packet, RAW) == reason
