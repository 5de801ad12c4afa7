"""Floods in the packets themselves: fragments and tunnels whose numbers change with each packet.

Made with whole arrays, as those of `floods`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from tests.hard.floods import START_NS
from tests.wire.captures import pcap_header
from tests.wire.packets import SYN, ethernet, extension, ipv4, ipv6, segment
from tests.wire.tunnels import over_udp, vxlan

_RECORD = 16  # bytes of a record's header
_IP = 14  # where the IP header begins in a frame
_IDENTIFICATION, _OFFSET, _SOURCE = _IP + 4, _IP + 6, _IP + 12
_MORE = 0x2000
_HEADER_PART = b"\x9c\x40\x19\xfa\x50\x10\xff\xff"  # twice, it is the beginning of a TCP header


class Field(NamedTuple):
    """Bytes of a packet that differ from packet to packet, big-endian."""

    at: int
    size: int
    values: Int64Array


def repeated(packet: bytes, count: int, *fields: Field) -> bytes:
    """A capture of one packet again and again, a microsecond apart, with other fields each time."""
    records = np.zeros((count, _RECORD + len(packet)), np.uint8)
    times = START_NS + 1000 * np.arange(count)
    for at, numbers in ((0, times // 10**9), (4, times % 10**9)):
        records[:, at : at + 4] = numbers.astype("<u4").view(np.uint8).reshape(count, 4)
    for at in (8, 12):
        records[:, at : at + 4] = np.frombuffer(len(packet).to_bytes(4, "little"), np.uint8)
    records[:, _RECORD:] = np.frombuffer(packet, np.uint8)
    for at, size, values in fields:
        shown = values.astype(">u8").view(np.uint8).reshape(count, 8)
        records[:, _RECORD + at : _RECORD + at + size] = shown[:, 8 - size :]
    return pcap_header() + records.tobytes()


def _numbers(count: int) -> Int64Array:
    return np.arange(count, dtype=np.int64)


def _each_of_its_own(count: int) -> tuple[Field, Field]:
    """Identification and source of IPv4 that no packet shares with another one."""
    numbers = _numbers(count)
    return Field(_IDENTIFICATION, 2, numbers & 0xFFFF), Field(
        _SOURCE, 4, 0x0A00_0000 + numbers // 7
    )


def endless_fragments(count: int) -> bytes:
    """First fragments of packets whose others never come."""
    return repeated(ethernet(ipv4(bytes(400), fragment=_MORE)), count, *_each_of_its_own(count))


def far_fragments(count: int) -> bytes:
    """Fragments from the end of packets whose others never come."""
    packet = ethernet(ipv4(bytes(8), fragment=_MORE | 8000))
    return repeated(packet, count, *_each_of_its_own(count))


def completed_fragments(count: int) -> bytes:
    """Two fragments of each packet, the first one and the last one."""
    numbers = _numbers(count)
    flags = np.where(numbers % 2, 50, _MORE)
    return repeated(
        ethernet(ipv4(_HEADER_PART * 50)), count,
        Field(_IDENTIFICATION, 2, numbers // 2 & 0xFFFF), Field(_OFFSET, 2, flags),
    )  # fmt: skip


def endless_fragments_of_ipv6(count: int) -> bytes:
    """As the first ones, of IPv6."""
    packet = ethernet(ipv6(extension(6, bytes(400)), next_header=44), 0x86DD)
    return repeated(packet, count, Field(_IP + 42, 2, np.ones(count, np.int64)),
                    Field(_IP + 44, 4, _numbers(count)))  # fmt: skip


def tiny_fragments(count: int) -> bytes:
    """Packets of 1,400 bytes in fragments of eight."""
    of_packet = 175
    numbers = _numbers(count)
    place, number = numbers % of_packet, numbers // of_packet
    flags = np.where(place < of_packet - 1, _MORE, 0)
    return repeated(
        ethernet(ipv4(_HEADER_PART)), count,
        Field(_IDENTIFICATION, 2, number & 0xFFFF), Field(_OFFSET, 2, flags | place),
    )  # fmt: skip


def overlapping_fragments(count: int) -> bytes:
    """Fragments of 1,400 bytes, each eight bytes further than the one before."""
    numbers = _numbers(count)
    return repeated(
        ethernet(ipv4(bytes(1400))), count,
        Field(_IDENTIFICATION, 2, numbers // 7900), Field(_OFFSET, 2, _MORE | numbers % 7900),
    )  # fmt: skip


def tunnel_ids(count: int) -> bytes:
    """SYNs of the same addresses and ports, each in another overlay network."""
    outer = ethernet(over_udp(vxlan(segment(b"", flags=SYN), 0), 4789))
    number = _IP + 20 + 8 + 4
    sequence = len(outer) - 20 + 4
    numbers = _numbers(count)
    return repeated(outer, count, Field(number, 3, numbers & 0xFF_FFFF),
                    Field(sequence, 4, numbers * 0x9E37_79B1 & 0xFFFF_FFFF))  # fmt: skip


PACKET_FLOODS: dict[str, Callable[[int], bytes]] = {
    each.__name__.replace("_", " "): each
    for each in (
        endless_fragments, far_fragments, endless_fragments_of_ipv6, tiny_fragments,
        overlapping_fragments, completed_fragments, tunnel_ids,
    )
}  # fmt: skip
