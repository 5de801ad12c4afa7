"""Rewrites a capture with its packets in tunnels, on a node of an overlay network, or as IPv6."""

import ipaddress
import struct
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from tests.wire import tunnels
from tests.wire.captures import ETHERNET, LINUX_SLL
from tests.wire.packets import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ethernet,
    extension,
    fragment_header,
    internet_checksum,
    ipv4,
    ipv6,
)
from tests.wire.recut import records
from tests.wire.tunnels import OUTER, OUTER_6, over_ip, over_udp

_TYPES_AT: Final = {ETHERNET: 12, LINUX_SLL: 14}
_TAGS: Final = (b"\x81\x00", b"\x88\xa8")
_LONGEST: Final = 65_000  # of packets that the network card divides; around them is no header
_NAT64: Final = b"\x20\x01\x0d\xb8" + bytes(8)  # before an IPv4 address
_PART_OF_FRAGMENTED: Final = 200


class Held(NamedTuple):
    """An IP packet of a record. before: of its link header, without the ethertype; packet: with
    zeros for what was not captured, `cut` bytes."""

    before: bytes
    ethertype: int
    packet: bytes
    cut: int


def held(data: bytes, wire: int, link_type: int) -> Held | None:
    """What a record holds; None: no IP."""
    at = _TYPES_AT[link_type]
    while data[at : at + 2] in _TAGS:
        at += 4
    ethertype = int.from_bytes(data[at : at + 2], "big")
    if ethertype not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6) or wire > _LONGEST:
        return None
    return Held(data[:at], ethertype, data[at + 2 :] + bytes(wire - len(data)), wire - len(data))


Layers = tuple[int, bytes]  # an ethertype and what it announces


def _typed(packet: bytes) -> Layers:
    return ETHERTYPE_IPV4 if packet[0] >> 4 == 4 else ETHERTYPE_IPV6, packet


def _framed(packet: bytes) -> bytes:
    return ethernet(packet, _typed(packet)[0])


def _tagged(*head: int) -> Callable[[bytes], bytes]:
    return lambda packet: struct.pack(f">{len(head)}H", *head) + _bare(packet)


def _bare(packet: bytes) -> bytes:
    return struct.pack(">H", _typed(packet)[0]) + packet


# What is around a packet of IP, by name: an ethertype, or 0, and what follows.
_AROUND: Final[dict[str, tuple[int, Callable[[bytes], bytes]]]] = {
    "vxlan": (0, lambda p: over_udp(tunnels.vxlan(_framed(p)), 4789)),
    "vxlan in IPv6": (0, lambda p: over_udp(tunnels.vxlan(_framed(p)), 8472, OUTER_6)),
    "vxlan gpe": (0, lambda p: over_udp(tunnels.vxlan(p, 7, 12, 1 + (p[0] >> 4 == 6)), 4790)),
    "nsh": (0, lambda p: over_udp(tunnels.vxlan(tunnels.nsh(_framed(p)), 7, 12, 4), 4790)),
    "geneve": (0, lambda p: over_udp(tunnels.geneve(_framed(p)), 6081)),
    "geneve of IP": (0, lambda p: over_udp(tunnels.geneve(p, 7, _typed(p)[0], bytes(8)), 6081)),
    "gre": (0, lambda p: over_ip(tunnels.gre(p, _typed(p)[0], key=5), 47, OUTER_6)),
    "gre of Ethernet": (0, lambda p: over_ip(tunnels.gre(_framed(p)), 47)),
    "erspan 1": (0, lambda p: over_ip(tunnels.erspan_1(_framed(p)), 47)),
    "erspan 2": (0, lambda p: over_ip(tunnels.erspan_2(_framed(p)), 47)),
    "erspan 3": (0, lambda p: over_ip(tunnels.erspan_3(_framed(p)), 47)),
    "ip": (0, lambda p: over_ip(p, 4 if p[0] >> 4 == 4 else 41)),
    "ip in IPv6": (0, lambda p: over_ip(p, 4 if p[0] >> 4 == 4 else 41, OUTER_6)),
    "gtp": (0, lambda p: over_udp(tunnels.gtp(p), 2152)),
    "pptp": (0, lambda p: over_ip(tunnels.pptp(p), 47)),
    "mpls in UDP": (0, lambda p: over_udp(tunnels.mpls(p), 6635)),
    "mpls in IP": (0, lambda p: over_ip(tunnels.mpls(p), 137)),
    "mpls": (0x8847, lambda p: tunnels.mpls(p, (16, 17))),
    "pseudo-wire": (0x8847, lambda p: tunnels.mpls(bytes(4) + _framed(p))),
    "pppoe": (0x8864, tunnels.pppoe),
    "backbone": (0x88E7, lambda p: tunnels.backbone(_framed(p))),
    "qinq": (0x88A8, _tagged(7, 0x8100, 9)),
    "vn-tag": (0x8926, _tagged(0, 0)),
    "e-tag": (0x893F, _tagged(0, 0, 0)),
}  # fmt: skip
KINDS: Final = tuple(_AROUND)


def _around(kind: str, packet: bytes) -> Layers:
    ethertype, wrap = _AROUND[kind]
    return (ethertype, wrap(packet)) if ethertype else _typed(wrap(packet))


def _record(head: bytes, data: bytes, wire: int) -> bytes:
    return head + struct.pack("<II", len(data), wire) + data


def _written(held: Held, layers: Layers) -> tuple[bytes, int]:
    """A packet without what of the original was not captured, and its length on the wire."""
    whole = held.before + struct.pack(">H", layers[0]) + layers[1]
    return whole[: len(whole) - held.cut], len(whole)


def _rewritten(capture: bytes, views: Callable[[Held], Iterator[tuple[bytes, int]]]) -> bytes:
    """A pcap file with each IP packet in all its views, at one time."""
    (link_type,) = struct.unpack_from("<I", capture, 20)
    out = [capture[:24]]
    for time, data, wire in records(capture):
        inner = held(data, wire, link_type)
        packets = iter([(data, wire)]) if inner is None else views(inner)
        out += [_record(time, *packet) for packet in packets]
    return b"".join(out)


def carried(capture: bytes, kind_of: Callable[[bytes], str]) -> bytes:
    """A pcap file whose packets are in tunnels. kind_of: by the packet, one of KINDS."""
    return _rewritten(
        capture, lambda one: iter([_written(one, _around(kind_of(one.packet), one.packet))])
    )


def _forwarded(packet: bytes) -> bytes:
    limit = 8 if packet[0] >> 4 == 4 else 7
    return packet[:limit] + bytes([packet[limit] - 1]) + packet[limit + 1 :]


def _fragments(packet: bytes) -> list[bytes]:
    """An IPv4 packet without options in two parts."""
    half = len(packet) // 16 * 8
    identification = internet_checksum(packet[20:])
    return [
        ipv4(
            packet[20 + start : 20 + stop], source=OUTER[0], destination=OUTER[1],
            protocol=packet[9], identification=identification, fragment=flags | start // 8,
        )
        for start, stop, flags in ((0, half, 0x2000), (half, len(packet), 0))
    ]  # fmt: skip


def on_a_node(
    capture: bytes, kind: str, *, is_bare_first: bool = True, is_fragmented: bool = False
) -> bytes:
    """A pcap file as a node of an overlay network makes it, of all its interfaces: each packet is
    there bare, and one hop further on in a tunnel.

    is_fragmented: the tunnel's packets are, if they are not small. They must be IPv4.
    """

    def views(one: Held) -> Iterator[tuple[bytes, int]]:
        bare = [_written(one, (one.ethertype, one.packet))]
        ethertype, packet = _around(kind, _forwarded(one.packet))
        is_divided = is_fragmented and not one.cut and len(packet) > _PART_OF_FRAGMENTED
        parts = _fragments(packet) if is_divided else [packet]
        tunnelled = [_written(one, (ethertype, part)) for part in parts]
        return iter(bare + tunnelled if is_bare_first else tunnelled + bare)

    return _rewritten(capture, views)


_SIX: Final = {0: 2, 43: 0, 60: 1, 135: 0}  # extension headers, and words in them


def _as_ipv6(packet: bytes, headers: tuple[int, ...]) -> bytes:
    """An IPv4 packet as IPv6, with extension headers, innermost first. Its TCP checksum is as right
    as it was, or left to the network card as it was."""
    start = 4 * (packet[0] & 15)
    end = int.from_bytes(packet[2:4], "big")
    payload, protocol = packet[start:end], packet[9]
    ends = [_NAT64 + packet[12:16], _NAT64 + packet[16:20]]
    sized = struct.pack(">II", len(payload), protocol)
    before, after = packet[12:20] + sized, b"".join(ends) + sized
    (stored,) = struct.unpack_from(">H", payload, 16)
    if protocol == 6 and stored:
        new = internet_checksum(after) ^ 0xFFFF
        if stored != internet_checksum(before) ^ 0xFFFF:
            without = bytes(each ^ 0xFF for each in before)
            new = internet_checksum(struct.pack(">H", ~stored & 0xFFFF) + without + after)
        payload = payload[:16] + struct.pack(">H", new) + payload[18:]
    for header in headers:
        if header == 44:
            payload = fragment_header(protocol, payload)
        else:
            payload = extension(protocol, payload, _SIX[header])
        protocol = header
    source, target = (str(ipaddress.IPv6Address(end)) for end in ends)
    inner = ipv6(
        payload, source=source, destination=target, next_header=protocol, hop_limit=packet[8]
    )
    return inner + packet[end:]


def as_ipv6(capture: bytes, headers: tuple[int, ...] = ()) -> bytes:
    """A pcap file whose IPv4 packets are IPv6."""
    return _rewritten(
        capture,
        lambda one: iter([_written(one, _typed(one.packet if one.packet[0] >> 4 == 6 else
                                               _as_ipv6(one.packet, headers)))]),
    )  # fmt: skip


def as_ipv4(address: str) -> str:
    """The address of which `as_ipv6` made this one."""
    packed = ipaddress.ip_address(address).packed
    return str(ipaddress.ip_address(packed[12:])) if packed[:12] == _NAT64 else address
