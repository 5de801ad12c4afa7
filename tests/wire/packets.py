"""Bytes of packets, layer by layer: link headers, IP and TCP with right lengths and checksums.

Every function returns the bytes of a layer around its payload. `segment` returns a whole Ethernet
packet.
"""

import ipaddress
import struct
from collections.abc import Sequence

FIN, SYN, RST, PSH, ACK, URG = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20

ETHERTYPE_IPV4 = 0x0800
ETHERTYPE_IPV6 = 0x86DD
PROTOCOL_TCP = 6

CLIENT = "10.0.0.1"
BROKER = "10.0.0.2"
CLIENT_PORT = 40000
BROKER_PORT = 6650


def internet_checksum(data: bytes) -> int:
    """The 16-bit ones' complement checksum of IP and TCP."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def time_stamps(value: int, echo: int) -> bytes:
    """The TCP time stamp option, padded to 12 bytes."""
    return struct.pack(">BBBBII", 1, 1, 8, 10, value & 0xFFFFFFFF, echo & 0xFFFFFFFF)


def tcp(
    payload: bytes = b"",
    *,
    source_port: int = CLIENT_PORT,
    destination_port: int = BROKER_PORT,
    sequence: int = 0,
    acknowledgement: int = 0,
    flags: int = ACK,
    window: int = 65535,
    options: bytes = b"",
    addresses: tuple[str, str] | None = (CLIENT, BROKER),
    urgent: int = 0,
) -> bytes:
    """A TCP segment; addresses (source, destination) are for its checksum, None leaves it 0."""
    options += b"\0" * (-len(options) % 4)
    header_bytes = 20 + len(options)
    head = struct.pack(
        ">HHIIHHHH",
        source_port,
        destination_port,
        sequence & 0xFFFFFFFF,
        acknowledgement & 0xFFFFFFFF,
        (header_bytes // 4) << 12 | flags,
        window,
        0,
        urgent,
    )
    whole = head + options + payload
    if addresses is None:
        return whole
    packed = b"".join(ipaddress.ip_address(address).packed for address in addresses)
    pseudo = packed + struct.pack(">II", len(whole), PROTOCOL_TCP)
    if len(packed) == 8:
        pseudo = packed + struct.pack(">BBH", 0, PROTOCOL_TCP, len(whole) & 0xFFFF)
    checksum = internet_checksum(pseudo + whole)
    return whole[:16] + struct.pack(">H", checksum) + whole[18:]


def udp(payload: bytes, source_port: int, destination_port: int) -> bytes:
    """A UDP datagram without checksum."""
    return struct.pack(">HHHH", source_port, destination_port, 8 + len(payload), 0) + payload


def ipv4(
    payload: bytes,
    *,
    source: str = CLIENT,
    destination: str = BROKER,
    protocol: int = PROTOCOL_TCP,
    identification: int = 1,
    fragment: int = 0x4000,
    hop_limit: int = 64,
    options: bytes = b"",
    total_bytes: int | None = None,
) -> bytes:
    """An IPv4 packet. fragment: flags and offset; total_bytes: another length than the right."""
    options += b"\0" * (-len(options) % 4)
    header_bytes = 20 + len(options)
    length = header_bytes + len(payload) if total_bytes is None else total_bytes
    head = struct.pack(
        ">BBHHHBBH4s4s",
        0x40 | header_bytes // 4,
        0,
        length,
        identification,
        fragment,
        hop_limit,
        protocol,
        0,
        ipaddress.IPv4Address(source).packed,
        ipaddress.IPv4Address(destination).packed,
    )
    checksum = internet_checksum(head + options)
    return head[:10] + struct.pack(">H", checksum) + head[12:] + options + payload


def ipv6(
    payload: bytes,
    *,
    source: str = "fd00::1",
    destination: str = "fd00::2",
    next_header: int = PROTOCOL_TCP,
    hop_limit: int = 64,
    payload_bytes: int | None = None,
) -> bytes:
    """An IPv6 packet; extension headers are part of the payload (`extension`)."""
    length = len(payload) if payload_bytes is None else payload_bytes
    return (
        struct.pack(">IHBB", 6 << 28, length, next_header, hop_limit)
        + ipaddress.IPv6Address(source).packed
        + ipaddress.IPv6Address(destination).packed
        + payload
    )


def extension(next_header: int, payload: bytes, words: int = 0) -> bytes:
    """An IPv6 extension header of 8 * (words + 1) bytes before a payload."""
    return bytes([next_header, words]) + b"\0" * (6 + 8 * words) + payload


def fragment_header(next_header: int, payload: bytes, offset: int = 0, more: int = 0) -> bytes:
    """An IPv6 fragment header before a payload; offset in units of 8 bytes."""
    return struct.pack(">BBHI", next_header, 0, offset << 3 | more, 7) + payload


def vlan_tags(tags: Sequence[int], ethertype: int, protocol: int = 0x8100) -> bytes:
    """The bytes from the ethertype on: VLAN tags, outermost first, then the ethertype inside."""
    out = b"".join(struct.pack(">HH", protocol, tag) for tag in tags)
    return out + struct.pack(">H", ethertype)


def ethernet(payload: bytes, ethertype: int = ETHERTYPE_IPV4, vlans: Sequence[int] = ()) -> bytes:
    """An Ethernet frame without trailer."""
    return bytes(range(12)) + vlan_tags(vlans, ethertype) + payload


def linux_sll(payload: bytes, ethertype: int = ETHERTYPE_IPV4) -> bytes:
    """A packet of Linux's cooked capture, version 1."""
    return struct.pack(">HHH8sH", 0, 1, 6, bytes(8), ethertype) + payload


def linux_sll2(payload: bytes, ethertype: int = ETHERTYPE_IPV4, interface: int = 3) -> bytes:
    """A packet of Linux's cooked capture, version 2."""
    return struct.pack(">HHIHBB8s", ethertype, 0, interface, 1, 0, 6, bytes(8)) + payload


def segment(
    payload: bytes = b"",
    *,
    to_broker: bool = True,
    client: tuple[str, int] = (CLIENT, CLIENT_PORT),
    broker: tuple[str, int] = (BROKER, BROKER_PORT),
    sequence: int = 0,
    acknowledgement: int = 0,
    flags: int = ACK,
    window: int = 65535,
    options: bytes = b"",
    identification: int = 1,
    hop_limit: int = 64,
    vlans: Sequence[int] = (),
) -> bytes:
    """A whole Ethernet packet of a connection between a client and a broker, IPv4 or IPv6."""
    source, destination = (client, broker) if to_broker else (broker, client)
    inner = tcp(
        payload,
        source_port=source[1],
        destination_port=destination[1],
        sequence=sequence,
        acknowledgement=acknowledgement,
        flags=flags,
        window=window,
        options=options,
        addresses=(source[0], destination[0]),
    )
    if ":" in source[0]:
        packet = ipv6(inner, source=source[0], destination=destination[0], hop_limit=hop_limit)
        return ethernet(packet, ETHERTYPE_IPV6, vlans)
    packet = ipv4(
        inner,
        source=source[0],
        destination=destination[0],
        identification=identification,
        hop_limit=hop_limit,
    )
    return ethernet(packet, ETHERTYPE_IPV4, vlans)
