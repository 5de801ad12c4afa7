"""Packets inside packets: tunnels, labels and tags around an Ethernet frame or an IP packet.

Each function returns the bytes of its layer with the inner one at the end.
"""

import ipaddress
import random
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.wire.packets import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ethernet,
    extension,
    ipv4,
    ipv6,
    udp,
    vlan_tags,
)

OUTER = ("192.0.2.1", "192.0.2.2")
OUTER_6 = ("2001:db8::1", "2001:db8::2")
TEB = 0x6558


def over_udp(payload: bytes, port: int, ends: tuple[str, str] = OUTER) -> bytes:
    """An IP packet with a UDP datagram."""
    return over_ip(udp(payload, 54321, port), 17, ends)


def over_ip(payload: bytes, protocol: int, ends: tuple[str, str] = OUTER) -> bytes:
    """An IP packet of either version."""
    if ":" in ends[0]:
        return ipv6(payload, source=ends[0], destination=ends[1], next_header=protocol)
    return ipv4(payload, source=ends[0], destination=ends[1], protocol=protocol)


def vxlan(
    frame: bytes, number: int = 5, flags: int = 0x08, reserved: int = 0, last: int = 0
) -> bytes:
    """A VXLAN header; reserved: the three bytes after the flags; last: the one after the id."""
    return struct.pack(">II", flags << 24 | reserved, number << 8 | last) + frame


def geneve(inner: bytes, number: int = 6, protocol: int = TEB, options: bytes = b"") -> bytes:
    """A Geneve header; options: a multiple of four bytes."""
    return struct.pack(">BBHI", len(options) // 4, 0, protocol, number << 8) + options + inner


def gre(
    inner: bytes,
    protocol: int = TEB,
    *,
    key: int | None = None,
    sequence: int | None = None,
    has_checksum: bool = False,
    routes: bytes | None = None,
) -> bytes:
    """A GRE header of version 0; routes: source routes without the empty one that ends them."""
    flags = 0x8000 * has_checksum | 0x4000 * (routes is not None)
    flags |= 0x2000 * (key is not None) | 0x1000 * (sequence is not None)
    head = struct.pack(">HH", flags, protocol)
    if has_checksum or routes is not None:
        head += b"\x12\x34\0\0"
    for number in (key, sequence):
        if number is not None:
            head += struct.pack(">I", number)
    if routes is not None:
        head += routes + bytes(4)
    return head + inner


def pptp(packet: bytes, call: int = 9, acknowledgement: int | None = None) -> bytes:
    """GRE version 1 with PPP."""
    flags = 0x3001 | 0x80 * (acknowledgement is not None)
    inner = b"\xff\x03\0" + (b"\x21" if packet[0] >> 4 == 4 else b"\x57") + packet
    head = struct.pack(">HHHHI", flags, 0x880B, len(inner), call, 77)
    return head + (b"" if acknowledgement is None else struct.pack(">I", acknowledgement)) + inner


def erspan_1(frame: bytes) -> bytes:
    """GRE with ERSPAN type I, which has no header."""
    return gre(frame, 0x88BE)


def erspan_2(frame: bytes, session: int = 3, vlan: int = 0) -> bytes:
    """GRE with ERSPAN type II."""
    return gre(struct.pack(">II", 1 << 28 | vlan << 16 | session, 0) + frame, 0x88BE, sequence=1)


def erspan_3(frame: bytes, session: int = 3, vlan: int = 0, has_platform: bool = False) -> bytes:
    """GRE with ERSPAN type III."""
    head = struct.pack(">IIHH", 2 << 28 | vlan << 16 | session, 99, 0, int(has_platform))
    return gre(head + bytes(8 * has_platform) + frame, 0x22EB, sequence=1)


def mpls(inner: bytes, labels: Sequence[int] = (100,)) -> bytes:
    """A label stack."""
    words = [label << 12 | 64 for label in labels]
    words[-1] |= 0x100
    return struct.pack(f">{len(words)}I", *words) + inner


def pppoe(packet: bytes, session: int = 17) -> bytes:
    """A PPPoE session packet."""
    inner = (b"\0\x21" if packet[0] >> 4 == 4 else b"\0\x57") + packet
    return struct.pack(">BBHH", 0x11, 0, session, len(inner)) + inner


def backbone(frame: bytes, service: int = 70_000) -> bytes:
    """The tag of provider backbone bridges (802.1ah) before a whole frame."""
    return struct.pack(">I", service) + frame


def nsh(inner: bytes, protocol: int = 3, context: int = 4) -> bytes:
    """A network service header; context: words of metadata."""
    return struct.pack(">HBBI", 63 << 6 | 2 + context, 1, protocol, 8) + bytes(4 * context) + inner


def gtp(packet: bytes, number: int = 8, extensions: Sequence[bytes] = ()) -> bytes:
    """GTP-U; extensions: contents of headers, two bytes less than a multiple of four each."""
    more = b""
    if extensions:
        more = b"\0\0\0\x85"
        for place, content in enumerate(extensions):
            following = b"\x85" if place < len(extensions) - 1 else b"\0"
            more += bytes([(len(content) + 2) // 4]) + content + following
    head = struct.pack(">BBHI", 0x34 if extensions else 0x30, 0xFF, len(more) + len(packet), number)
    return head + more + packet


class Wrapped(NamedTuple):
    """An IP packet on its way outwards. tunnels: names so far, outermost first; vlans: ids."""

    packet: bytes
    tunnels: tuple[str, ...] = ()
    vlans: tuple[int, ...] = ()

    @property
    def ethertype(self) -> int:
        """Of its packet."""
        return ETHERTYPE_IPV4 if self.packet[0] >> 4 == 4 else ETHERTYPE_IPV6


def _framed(inner: Wrapped, chance: random.Random) -> tuple[bytes, Wrapped]:
    """An Ethernet frame around a packet, perhaps with tags."""
    tags = [chance.randrange(1, 4095) for _ in range(chance.choice((0, 0, 0, 1, 2)))]
    frame = ethernet(inner.packet, inner.ethertype, tags) + bytes(chance.choice((0, 0, 7)))
    return frame, inner._replace(vlans=(*tags, *inner.vlans)[:4])


def _name(kind: str, number: int | None, ends: tuple[str, str]) -> str:
    if number is not None:
        return f"{kind}:{number}"
    lower, upper = sorted(ends, key=lambda end: ipaddress.ip_address(end).packed)
    return f"{kind}:{lower}-{upper}"


def wrapped(inner: Wrapped, chance: random.Random) -> Wrapped:
    """A packet inside one more tunnel, drawn from all kinds."""
    ends = chance.choice((OUTER, OUTER_6, OUTER[::-1]))
    number = chance.randrange(1, 1 << 24)
    kind = chance.choice(list(_WRAPS))
    packet, name, around = _WRAPS[kind](inner, chance, number, ends)
    return Wrapped(packet, (name, *around.tunnels), around.vlans)


Wrap = Callable[[Wrapped, random.Random, int, tuple[str, str]], tuple[bytes, str, Wrapped]]


def _by_vxlan(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    frame, around = _framed(inner, chance)
    head = vxlan(frame, number, chance.choice((0x08, 0x88, 0xC8)), chance.randrange(1 << 24), 7)
    return over_udp(head, chance.choice((4789, 8472)), ends), f"vxlan:{number}", around


def _by_gpe(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    frame, around = _framed(inner, chance)
    content, protocol, said = chance.choice(
        (
            (frame, 3, around),
            (inner.packet, 1 if inner.ethertype == ETHERTYPE_IPV4 else 2, inner),
            (nsh(frame, 3, chance.randrange(6)), 4, around),
        )
    )
    packet = over_udp(vxlan(content, number, 0x0C, protocol), 4790, ends)
    return packet, f"vxlan:{number}", said


def _by_geneve(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    options = chance.randbytes(4 * chance.randrange(16))
    if chance.random() < 0.5:
        packet = geneve(inner.packet, number, inner.ethertype, options)
        return over_udp(packet, 6081, ends), f"geneve:{number}", inner
    frame, around = _framed(inner, chance)
    return over_udp(geneve(frame, number, TEB, options), 6081, ends), f"geneve:{number}", around


def _by_gre(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    key = chance.choice((None, number))
    frame, around = _framed(inner, chance)
    content, protocol, said = chance.choice(
        ((frame, TEB, around), (inner.packet, inner.ethertype, inner))
    )
    packet = gre(
        content,
        protocol,
        key=key,
        sequence=chance.choice((None, 5)),
        has_checksum=chance.random() < 0.5,
        routes=chance.choice((None, b"", b"\x08\0\0\x04abcd")),
    )
    return over_ip(packet, 47, ends), _name("gre", key, ends), said


def _by_erspan(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    frame, around = _framed(inner, chance)
    session = number & 0x3FF
    packet, name = chance.choice(
        (
            (erspan_1(frame), _name("erspan", None, ends)),
            (erspan_2(frame, session), f"erspan:{session}"),
            (erspan_3(frame, session, 0, chance.random() < 0.5), f"erspan:{session}"),
        )
    )
    return over_ip(packet, 47, ends), name, around


def _by_ip(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    protocol = 4 if inner.ethertype == ETHERTYPE_IPV4 else 41
    if ":" in ends[0] and chance.random() < 0.3:
        content = extension(protocol, inner.packet, chance.randrange(3))
        return over_ip(content, 60, ends), _name("ip", None, ends), inner
    return over_ip(inner.packet, protocol, ends), _name("ip", None, ends), inner


def _by_gtp(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    extensions = [chance.randbytes(chance.choice((2, 6))) for _ in range(chance.randrange(3))]
    return over_udp(gtp(inner.packet, number, extensions), 2152, ends), "gtp", inner


def _by_pptp(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    packet = pptp(inner.packet, number & 0xFFFF, chance.choice((None, 4)))
    return over_ip(packet, 47, ends), "pptp", inner


def _by_labels(
    inner: Wrapped, chance: random.Random, number: int, ends: tuple[str, str]
) -> tuple[bytes, str, Wrapped]:
    stack = [chance.randrange(16, 1 << 20) for _ in range(chance.randrange(1, 5))]
    labelled = mpls(inner.packet, stack)
    if chance.random() < 0.5:
        return over_udp(labelled, 6635, ends), "mpls", inner
    return over_ip(labelled, 137, ends), "mpls", inner


_WRAPS: dict[str, Wrap] = {
    "vxlan": _by_vxlan,
    "gpe": _by_gpe,
    "geneve": _by_geneve,
    "gre": _by_gre,
    "erspan": _by_erspan,
    "ip": _by_ip,
    "gtp": _by_gtp,
    "pptp": _by_pptp,
    "labels": _by_labels,
}


def on_wire(inner: Wrapped, chance: random.Random) -> Wrapped:
    """An Ethernet frame around a packet, with tags, labels or a PPPoE session."""
    tags = [chance.randrange(4096) for _ in range(chance.choice((0, 1, 2, 4)))]
    around = inner._replace(vlans=(*tags, *inner.vlans)[:4])
    head = bytes(range(12))
    drawn = chance.randrange(8)
    if drawn == 0:
        frame = head + vlan_tags(tags, 0x8847, 0x88A8) + mpls(inner.packet, (16, 17))
        return around._replace(packet=frame, tunnels=("mpls", *inner.tunnels))
    if drawn == 1:
        inside = ethernet(inner.packet, inner.ethertype)
        frame = head + vlan_tags(tags, 0x8847) + mpls(chance.choice((b"", bytes(4))) + inside)
        return around._replace(packet=frame, tunnels=("mpls", *inner.tunnels))
    if drawn == 2:
        frame = head + vlan_tags(tags, 0x8864) + pppoe(inner.packet)
        return around._replace(packet=frame, tunnels=("pppoe:17", *inner.tunnels))
    if drawn == 3:
        frame = head + vlan_tags(tags, 0x88E7) + backbone(ethernet(inner.packet, inner.ethertype))
        return around._replace(packet=frame, tunnels=("pbb:70000", *inner.tunnels))
    if drawn == 4:
        size = {0x8926: 4, 0x893F: 6}
        ethertype = chance.choice(list(size))
        frame = head + vlan_tags(tags, ethertype) + bytes(size[ethertype])
        return around._replace(packet=frame + struct.pack(">H", inner.ethertype) + inner.packet)
    return around._replace(packet=ethernet(inner.packet, inner.ethertype, tags))
