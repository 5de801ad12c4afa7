"""Captures whose packets are wrapped: link types, tags, labels, tunnels, padding; seen twice."""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.hard.cases import case
from tests.hard.tape import Packet, Tape, capture, talk
from tests.wire import tunnels
from tests.wire.captures import ETHERNET, LINUX_SLL, LINUX_SLL2, LOOP, NULL, RAW, Record
from tests.wire.packets import (
    FIN,
    RST,
    SYN,
    ethernet,
    internet_checksum,
    linux_sll,
    linux_sll2,
    vlan_tags,
)

SENDS = 6
SIX: dict[str, Any] = {"client": ("fd00::1", 40000), "broker": ("fd00::2", 6650)}
Wrap = Callable[[bytes, Packet], bytes]


def conversation(**fields: Any) -> Tape:
    """What all captures of this module hold, each in its own way."""
    return talk(SENDS, seed=4, sizes=(5, 400, 3000), **fields)


class Layer(NamedTuple):
    """A way to carry an IP packet. tunnel, vlans: what the connection's row says of it."""

    wrap: Callable[[bytes], bytes]
    link_type: int = ETHERNET
    tunnel: str | None = None
    vlans: tuple[int, ...] = ()


def kind(packet: bytes) -> int:
    """The ethertype of an IP packet."""
    return 0x0800 if packet[0] >> 4 == 4 else 0x86DD


def framed(packet: bytes) -> bytes:
    """An Ethernet frame of other stations."""
    return ethernet(packet, kind(packet))


def tagged(protocol: int, *tags: int) -> Layer:
    """VLAN tags of one protocol; ids without the priority bits."""
    return Layer(
        lambda packet: bytes(12) + vlan_tags(tags, kind(packet), protocol) + packet,
        vlans=tuple(tag & 0xFFF for tag in tags),
    )


def typed(ethertype: int, head: Callable[[bytes], bytes], tunnel: str | None = None) -> Layer:
    """An ethertype of its own in Ethernet, and what follows it."""
    return Layer(lambda packet: ethernet(head(packet), ethertype), tunnel=tunnel)


def over_udp(port: int, head: Callable[[bytes], bytes], tunnel: str, is_v6: bool = False) -> Layer:
    """A tunnel over UDP."""
    ends = tunnels.OUTER_6 if is_v6 else tunnels.OUTER
    return Layer(lambda packet: framed(tunnels.over_udp(head(packet), port, ends)), tunnel=tunnel)


def over_ip(protocol: int, head: Callable[[bytes], bytes], tunnel: str) -> Layer:
    """A tunnel over IP."""
    return Layer(lambda packet: framed(tunnels.over_ip(head(packet), protocol)), tunnel=tunnel)


def ppp(packet: bytes) -> bytes:
    """A PPP protocol number before a packet."""
    return (b"\0\x21" if kind(packet) == 0x0800 else b"\0\x57") + packet


def family(order: str, packet: bytes) -> bytes:
    """An address family in some byte order."""
    return struct.pack(f"{order}I", 2 if kind(packet) == 0x0800 else 30)


def logged(packet: bytes) -> bytes:
    """A record of the netfilter log."""
    prefix = struct.pack("<HH", 4 + 6, 10) + b"INPUT\0" + bytes(2)
    return b"\x02\0\0\x07" + prefix + struct.pack("<HH", 4 + len(packet), 9) + packet


ENDS = "192.0.2.1-192.0.2.2"
TAGS = {
    "one": tagged(0x8100, 7),
    "two": tagged(0x88A8, 100, 200),
    "three": tagged(0x9100, 1, 2, 3),
    "four": tagged(0x9200, 1, 2, 3, 4),
    "priority": tagged(0x8100, 0xE000),
    "id_0_inside": tagged(0x8100, 5, 0),
}
LABELS = {
    "mpls": typed(0x8847, lambda packet: tunnels.mpls(packet, (100, 200, 3)), "mpls"),
    "mpls_in_vlan": Layer(
        lambda packet: ethernet(tunnels.mpls(packet), 0x8847, [7]), tunnel="mpls", vlans=(7,)
    ),
    "mpls_pseudo_wire": typed(0x8847, lambda packet: tunnels.mpls(framed(packet)), "mpls"),
    "mpls_control_word": typed(
        0x8847, lambda packet: tunnels.mpls(bytes(4) + framed(packet)), "mpls"
    ),
    "pppoe": typed(0x8864, tunnels.pppoe, "pppoe:17"),
    "pppoe_over_qinq": Layer(
        lambda packet: ethernet(tunnels.pppoe(packet), 0x8864, [100, 200]),
        tunnel="pppoe:17",
        vlans=(100, 200),
    ),
    "vn_tag": typed(0x8926, lambda packet: bytes(4) + b"\x08\0" + packet),
    "e_tag": typed(0x893F, lambda packet: bytes(6) + b"\x08\0" + packet),
    "snap": Layer(
        lambda packet: (
            bytes(12) + struct.pack(">H", len(packet) + 8) + b"\xaa\xaa\x03\0\0\0\x08\0" + packet
        )
    ),
    "backbone": typed(0x88E7, lambda packet: tunnels.backbone(framed(packet)), "pbb:70000"),
    "cisco_metadata": typed(0x8909, lambda packet: b"\x01\x01\0\x01\0\x05\x08\0" + packet),
    "fabric_path": typed(0x8903, lambda packet: b"\0\x40" + framed(packet)),
}
LINKS = {
    "sll": Layer(linux_sll, LINUX_SLL),
    "sll2": Layer(linux_sll2, LINUX_SLL2),
    "sll2_vlan": Layer(
        lambda packet: linux_sll2(b"\0\x07\x08\0" + packet, 0x8100), LINUX_SLL2, vlans=(7,)
    ),
    "null_little": Layer(lambda packet: family("<", packet) + packet, NULL),
    "null_big": Layer(lambda packet: family(">", packet) + packet, NULL),
    "loop": Layer(lambda packet: family(">", packet) + packet, LOOP),
    "raw": Layer(bytes, RAW),
    "ipv4": Layer(bytes, 228),
    "ppp": Layer(ppp, 9),
    "ppp_hdlc": Layer(lambda packet: b"\xff\x03" + ppp(packet), 50),
    "ppp_with_direction": Layer(lambda packet: b"\0" + ppp(packet), 204),
    "ppp_cisco": Layer(lambda packet: b"\x0f\0" + struct.pack(">H", kind(packet)) + packet, 9),
    "ppp_cisco_to_all": Layer(
        lambda packet: b"\x8f\0" + struct.pack(">H", kind(packet)) + packet, 50
    ),
    "ppp_labels": Layer(lambda packet: b"\x02\x81" + tunnels.mpls(packet), 9, "mpls"),
    "ppp_ether": Layer(tunnels.pppoe, 51, "pppoe:17"),
    "c_hdlc": Layer(lambda packet: b"\x0f\0\x08\0" + packet, 104),
    "nflog": Layer(logged, 239),
    "ppi": Layer(lambda packet: struct.pack("<BBHI", 0, 0, 8, 1) + framed(packet), 192),
    "mpls": Layer(tunnels.mpls, 219, "mpls"),
}
MIRRORS = {
    "erspan_1": over_ip(47, lambda p: tunnels.erspan_1(framed(p)), f"erspan:{ENDS}"),
    "erspan_2": over_ip(47, lambda p: tunnels.erspan_2(framed(p), 5), "erspan:5"),
    "erspan_2_vlan": over_ip(47, lambda p: tunnels.erspan_2(framed(p), 5, 9), "erspan:5")._replace(
        vlans=(9,)
    ),
    "erspan_3": over_ip(47, lambda p: tunnels.erspan_3(framed(p), 5), "erspan:5"),
    "erspan_3_platform": over_ip(47, lambda p: tunnels.erspan_3(framed(p), 5, 0, True), "erspan:5"),
    "erspan_3_dot1q": over_ip(
        47, lambda p: tunnels.erspan_3(ethernet(p, kind(p), [9]), 5, 9), "erspan:5"
    )._replace(vlans=(9,)),
    "erspan_in_vxlan": over_udp(
        4789,
        lambda p: tunnels.vxlan(framed(tunnels.over_ip(tunnels.erspan_2(framed(p), 5), 47))),
        "vxlan:5/erspan:5",
    ),
}
GRE = {
    "plain": over_ip(47, lambda p: tunnels.gre(p, kind(p)), f"gre:{ENDS}"),
    "all_fields": over_ip(
        47,
        lambda p: tunnels.gre(
            p, kind(p), key=9, sequence=1, has_checksum=True, routes=b"\x08\0\0\x04abcd"
        ),
        "gre:9",
    ),
    "bridged": over_ip(47, lambda p: tunnels.gre(framed(p), key=9), "gre:9"),
    "pptp": over_ip(47, tunnels.pptp, "pptp"),
    "gre_in_gre": over_ip(
        47,
        lambda p: tunnels.gre(tunnels.over_ip(tunnels.gre(p, kind(p), key=2), 47), 0x0800, key=1),
        "gre:1/gre:2",
    ),
    "ip_in_ip": over_ip(4, bytes, f"ip:{ENDS}"),
}
VXLAN = {
    "port_4789": over_udp(4789, lambda p: tunnels.vxlan(framed(p)), "vxlan:5"),
    "port_8472": over_udp(8472, lambda p: tunnels.vxlan(framed(p)), "vxlan:5"),
    "reserved_bits": over_udp(
        4789, lambda p: tunnels.vxlan(framed(p), 5, 0x88, 0xABCDEF, 0x77), "vxlan:5"
    ),
    "gpe": over_udp(4790, lambda p: tunnels.vxlan(p, 5, 0x0C, 1), "vxlan:5"),
    "service_header": over_udp(
        4790, lambda p: tunnels.vxlan(tunnels.nsh(framed(p)), 5, 0x0C, 4), "vxlan:5"
    ),
    "ipv6_underlay": over_udp(4789, lambda p: tunnels.vxlan(framed(p)), "vxlan:5", True),
}
GENEVE = {
    "plain": over_udp(6081, lambda p: tunnels.geneve(framed(p)), "geneve:6"),
    "options": over_udp(
        6081, lambda p: tunnels.geneve(framed(p), 6, options=bytes(range(60))), "geneve:6"
    ),
    "ip_inside": over_udp(6081, lambda p: tunnels.geneve(p, 6, kind(p), bytes(32)), "geneve:6"),
    "around_vxlan": over_udp(
        6081,
        lambda p: tunnels.geneve(framed(tunnels.over_udp(tunnels.vxlan(framed(p)), 4789)), 6),
        "geneve:6/vxlan:5",
    ),
}


def carried(layer: Layer) -> bytes:
    """The conversation in one way of carrying it."""
    tape = conversation()
    return capture(tape.records(lambda packet, _: layer.wrap(packet)), layer.link_type)


def _register(id: str, prefix: str, layers: dict[str, Layer]) -> None:
    for words, layer in layers.items():

        def make(layer: Layer = layer) -> bytes:
            return carried(layer)

        make.__name__ = f"{prefix}_{words}"
        case(id)(make)


LAYERS = {
    "B01": ("vlan", TAGS),
    "B04": ("label", LABELS),
    "B05": ("link", LINKS),
    "B18": ("mirror", MIRRORS),
    "B19": ("gre", GRE),
    "B20": ("vxlan", VXLAN),
    "B21": ("geneve", GENEVE),
}
for _id, (_prefix, _layers) in LAYERS.items():
    _register(_id, _prefix, _layers)


@case("B02")
def tag_to_broker_only() -> bytes:
    """A mirror that tags one direction."""
    tape = conversation()
    return capture(
        tape.records(lambda packet, each: ethernet(packet, vlans=[7] if each.to_broker else []))
    )


@case("B02")
def labels_differ_by_direction() -> bytes:
    """Labels are chosen by who receives."""
    tape = conversation()
    return capture(
        tape.records(
            lambda packet, each: ethernet(tunnels.mpls(packet, (100 + each.to_broker,)), 0x8847)
        )
    )


def tenants() -> tuple[Tape, Tape]:
    """Two conversations of equal addresses and ports at the same time."""
    other = talk(SENDS, seed=5, isn=(77_000_000, 99_000_000), start_ns=1_700_000_000_000_300_000)
    return conversation(), other


def in_order(*parts: list[Record]) -> bytes:
    """Captured packets of several places, by time."""
    return capture(sorted((each for part in parts for each in part), key=lambda each: each.ts_ns))


@case("B03")
def tenants_in_two_vlans() -> bytes:
    """The same four-tuple in VLAN 1 and VLAN 2."""
    one, other = tenants()
    return in_order(
        one.records(lambda packet, _: ethernet(packet, vlans=[1])),
        other.records(lambda packet, _: ethernet(packet, vlans=[2])),
    )


@case("B03")
def tenants_in_two_networks() -> bytes:
    """The same four-tuple in two overlay networks."""
    one, other = tenants()
    layers = [
        over_udp(4789, lambda p, n=number: tunnels.vxlan(framed(p), n), "") for number in (1, 2)
    ]
    return in_order(
        one.records(lambda packet, _: layers[0].wrap(packet)),
        other.records(lambda packet, _: layers[1].wrap(packet)),
    )


def shown_twice(first: Wrap, second: Wrap, link_type: int = ETHERNET) -> bytes:
    """Every packet twice, a few microseconds apart, each time in its own way."""
    tape = conversation()
    records = []
    for one, two in zip(tape.records(first), tape.records(second), strict=True):
        records += [one, two._replace(ts_ns=two.ts_ns + 7_000)]
    return capture(records, link_type)


@case("B06")
def every_interface_twice() -> bytes:
    """A capture on all interfaces: a veth and the bridge behind it."""
    return shown_twice(
        lambda packet, _: linux_sll2(packet, interface=3),
        lambda packet, _: linux_sll2(packet, interface=8),
        LINUX_SLL2,
    )


@case("B06")
def every_interface_twice_with_vlan() -> bytes:
    """A VLAN interface and the one below it."""
    return shown_twice(
        lambda packet, _: linux_sll2(b"\0\x07\x08\0" + packet, 0x8100, interface=2),
        lambda packet, _: linux_sll2(packet, interface=9),
        LINUX_SLL2,
    )


@case("B22")
def tunnel_and_inside() -> bytes:
    """A mirror of the tunnel and of the host behind it."""
    return shown_twice(
        lambda packet, _: VXLAN["port_4789"].wrap(packet), lambda packet, _: ethernet(packet)
    )


@case("B22")
def two_tunnels() -> bytes:
    """Both hosts mirror into tunnels of their own."""
    return shown_twice(
        lambda packet, _: VXLAN["port_4789"].wrap(packet),
        lambda packet, _: GENEVE["plain"].wrap(packet),
    )


@case("B07")
def padding() -> bytes:
    """Short frames are filled up to 60 bytes, here not with zeros."""
    tape = conversation()
    return capture(tape.records(lambda packet, _: ethernet(packet).ljust(60, b"\x55")))


def counting_padding(packet: bytes) -> bytes:
    """An IPv4 packet whose own length counts six zeros behind it."""
    head = packet[:2] + struct.pack(">H", len(packet) + 6) + packet[4:10] + b"\0\0" + packet[12:20]
    return head[:10] + struct.pack(">H", internet_checksum(head)) + head[12:] + packet[20:]


def _bare(packet: Packet) -> bool:
    return not packet.payload and not packet.flags & (SYN | FIN | RST)


@case("B07")
def padding_in_the_ip_length() -> bytes:
    """Bare acknowledgements whose IP length counts padding; that of PPPoE around it does not."""

    def wrapped(packet: bytes, about: Packet) -> bytes:
        inner = tunnels.pppoe(packet)
        if _bare(about):
            inner = inner[:8] + counting_padding(packet)
        return ethernet(inner, 0x8864) + bytes(6)

    return capture(conversation().records(wrapped))


@case("B08")
def trailers() -> bytes:
    """A frame checksum, and a card's time stamp, behind each packet."""
    tape = conversation()
    return capture(
        tape.records(lambda packet, _: ethernet(packet) + b"\x01\x02\x03\x04" + b"trailer!" * 2)
    )
