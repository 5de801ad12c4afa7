"""Rewrites a capture with its TCP segments cut elsewhere: the same bytes at the same times.

The parts of a segment are adjacent packets with the time and acknowledgement of the original one,
so that the order of both directions does not change.
"""

import random
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice, pairwise
from typing import NamedTuple

from tests.wire.captures import ETHERNET, LINUX_SLL, LINUX_SLL2, NULL, RAW
from tests.wire.packets import internet_checksum

_LINK_BYTES = {ETHERNET: 14, LINUX_SLL: 16, LINUX_SLL2: 20, RAW: 0, NULL: 4}
_PROTOCOL_TCP = 6
_FIN_PSH = 0x09
_SYN = 0x02
_SHIFTS = (0x1234_5678, 0x0BAD_CAFE)  # of the numbers of a client and a broker behind a balancer

# Sender's and receiver's address and port.
Way = tuple[bytes, bytes]


class Segment(NamedTuple):
    """A TCP segment with data. way: sender and receiver; at: stream offset of its first byte."""

    way: Way
    at: int
    payload: bytes


Places = Callable[[Segment], Collection[int]]


class Packet(NamedTuple):
    """The offsets of the headers in a captured packet."""

    ip: int
    tcp: int
    payload: int
    end: int


def headers(data: bytes, link_type: int) -> Packet | None:
    ip = _LINK_BYTES[link_type]
    if link_type == ETHERNET:
        while data[ip - 2 : ip] in (b"\x81\x00", b"\x88\xa8"):
            ip += 4
    if len(data) < ip + 40:
        return None
    if data[ip] >> 4 == 4 and data[ip + 9] == _PROTOCOL_TCP:
        tcp = ip + 4 * (data[ip] & 15)
        end = ip + struct.unpack_from(">H", data, ip + 2)[0]
    elif data[ip] >> 4 == 6 and data[ip + 6] == _PROTOCOL_TCP:
        tcp = ip + 40
        end = tcp + struct.unpack_from(">H", data, ip + 4)[0]
    else:
        return None
    if len(data) < tcp + 20:
        return None
    return Packet(ip, tcp, tcp + 4 * (data[tcp + 12] >> 4), end)


def _sums(packet: bytes | bytearray, at: Packet, end: int) -> tuple[int, int]:
    """The checksum over a TCP segment, 0 where the one in it is right, and that of no segment."""
    is_v4 = packet[at.ip] >> 4 == 4
    ends = packet[at.ip + 12 : at.ip + 20] if is_v4 else packet[at.ip + 8 : at.ip + 40]
    pseudo = bytes(ends) + struct.pack(">II", _PROTOCOL_TCP, end - at.tcp)
    return internet_checksum(pseudo + bytes(packet[at.tcp : end])), internet_checksum(pseudo)


def _piece(data: bytes, at: Packet, start: int, stop: int) -> bytes:
    """A packet with a part of its payload alone; its checksum is right if the whole one's is.

    If the network card was to compute the whole one's, it is 0, which is not judged.
    """
    size = at.end - at.payload
    head = bytearray(data[: at.payload])
    ip_at, less = (at.ip + 2, 0) if data[at.ip] >> 4 == 4 else (at.ip + 4, 40)
    struct.pack_into(">H", head, ip_at, at.payload - at.ip - less + stop - start)
    sequence = struct.unpack_from(">I", head, at.tcp + 4)[0]
    struct.pack_into(">I", head, at.tcp + 4, (sequence + start) & 0xFFFFFFFF)
    if stop < size:
        head[at.tcp + 13] &= ~_FIN_PSH
    piece = head + data[at.payload + start : at.payload + stop]
    struct.pack_into(">H", piece, at.tcp + 16, 0)
    damage, of_no_segment = _sums(data, at, at.end)
    (before,) = struct.unpack_from(">H", data, at.tcp + 16)
    if before not in (0, of_no_segment ^ 0xFFFF):
        right = _sums(piece, at, len(piece))[0] or 0xFFFF
        struct.pack_into(">H", piece, at.tcp + 16, right ^ 0x0100 if damage else right)
    return bytes(piece)


class Streams:
    """The stream offsets of segments: 0 is the byte after the SYN, or the first one seen."""

    def __init__(self) -> None:
        self._first: dict[Way, int] = {}

    def segment(self, data: bytes, at: Packet) -> Segment:
        half = (at.tcp - at.ip - 40) // 2 + 16 if data[at.ip] >> 4 == 6 else 4
        ends = at.ip + (8 if half == 16 else 12)
        sender = data[ends : ends + half] + data[at.tcp : at.tcp + 2]
        receiver = data[ends + half : ends + 2 * half] + data[at.tcp + 2 : at.tcp + 4]
        way = sender, receiver
        (sequence,) = struct.unpack_from(">I", data, at.tcp + 4)
        payload = data[at.payload : at.end]
        if data[at.tcp + 13] & _SYN:
            self._first[way] = sequence + 1
        elif payload:
            self._first.setdefault(way, sequence)
        place = (sequence - self._first.get(way, sequence)) & 0xFFFFFFFF
        return Segment(way, place - (1 << 32) if place >> 31 else place, payload)


def records(capture: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Header and bytes of each record of a little-endian pcap file, and its length on the wire."""
    at = 24
    while at + 16 <= len(capture):
        size, wire = struct.unpack_from("<II", capture, at + 8)
        yield capture[at : at + 8], capture[at + 16 : at + 16 + size], wire
        at += 16 + size


def is_pcap(capture: bytes) -> bool:
    """Whether the bytes are a little-endian pcap file, which is the only kind that is cut."""
    return capture[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")


def recut(capture: bytes, places: Places) -> bytes:
    """The capture, with each segment that was captured whole cut at the places in its payload."""
    assert is_pcap(capture)
    (link_type,) = struct.unpack_from("<I", capture, 20)
    streams = Streams()
    out = [capture[:24]]
    for time, data, wire in records(capture):
        pieces = [(data, wire)]
        at = headers(data, link_type)
        if at is not None and len(data) >= at.end:
            segment = streams.segment(data, at)
            size = len(segment.payload)
            edges = [0, *sorted({place for place in places(segment) if 0 < place < size}), size]
            if len(edges) > 2:
                cut = [_piece(data, at, start, stop) for start, stop in pairwise(edges)]
                pieces = [(piece, len(piece)) for piece in cut]
        for piece, length in pieces:
            out.append(time + struct.pack("<II", len(piece), length) + piece)
    return b"".join(out)


def out_of_order(capture: bytes, drawn: random.Random) -> bytes:
    """The capture with packets of one time and way changing places, and some of them twice."""
    (link_type,) = struct.unpack_from("<I", capture, 20)
    streams = Streams()
    out: list[tuple[bytes, bytes, int]] = []
    before: tuple[bytes, Way] | None = None
    for record in records(capture):
        at = headers(record[1], link_type)
        segment = None if at is None else streams.segment(record[1], at)
        mark = (record[0], segment.way) if segment is not None and segment.payload else None
        if mark is not None and mark == before and drawn.random() < 0.3:
            out.insert(len(out) - 1, record)
        else:
            out.append(record)
        if mark is not None and drawn.random() < 0.1:
            out.append(record)
        before = mark
    return capture[:24] + b"".join(
        time + struct.pack("<II", len(data), wire) + data for time, data, wire in out
    )


def with_losses(capture: bytes, rate: float, seed: str) -> bytes:
    """A pcap file without some of its packets, as a tap that does not keep up makes it."""
    drawn = random.Random(seed)
    return capture[:24] + b"".join(
        time + struct.pack("<II", len(data), size) + data
        for time, data, size in records(capture)
        if drawn.random() >= rate
    )


def cut_short(capture: bytes, snap_length: int) -> bytes:
    """A pcap file with so many bytes of each packet at most, as `tcpdump -s` writes it."""
    head = capture[:16] + struct.pack("<I", snap_length) + capture[20:24]
    return head + b"".join(
        time + struct.pack("<II", min(len(data), snap_length), size) + data[:snap_length]
        for time, data, size in records(capture)
    )


def beginning_at(capture: bytes, left_out: int) -> bytes:
    """A pcap file without its first packets."""
    return _between(capture, left_out, None)


def ending_at(capture: bytes, kept: int) -> bytes:
    """The first packets of a pcap file."""
    return _between(capture, 0, kept)


def _between(capture: bytes, start: int, stop: int | None) -> bytes:
    return capture[:24] + b"".join(
        time + struct.pack("<II", len(data), size) + data
        for time, data, size in islice(records(capture), start, stop)
    )


# An address and a port.
End = tuple[bytes, int]


def filtered(capture: bytes, is_kept: Callable[[End, End], bool]) -> bytes:
    """A pcap file without some of its TCP packets, as a filter of the tap leaves it.

    is_kept: of a packet's source and target.
    """
    (link_type,) = struct.unpack_from("<I", capture, 20)
    packets = [capture[:24]]
    for time, data, size in records(capture):
        at = headers(data, link_type)
        if at is not None:
            first, length = (12, 4) if data[at.ip] >> 4 == 4 else (8, 16)
            addresses = (data[at.ip + first + n * length :][:length] for n in (0, 1))
            source, target = zip(addresses, struct.unpack_from(">HH", data, at.tcp), strict=True)
            if not is_kept(source, target):
                continue
        packets.append(time + struct.pack("<II", len(data), size) + data)
    return b"".join(packets)


def _forwarded(data: bytes, at: Packet) -> bytes:
    """A packet one hop further on; its IP header's checksum is not read."""
    limit = at.ip + (8 if data[at.ip] >> 4 == 4 else 7)
    return data[:limit] + bytes([data[limit] - 1]) + data[limit + 1 :]


def _readdressed(data: bytes, at: Packet, addresses: Mapping[bytes, bytes]) -> bytes:
    """A packet with other addresses. Its TCP checksum changes as a router's does: a right one stays
    right, one that the network card is to compute is left to it."""
    first, length = (at.ip + 12, 4) if data[at.ip] >> 4 == 4 else (at.ip + 8, 16)
    packet = bytearray(data)
    before = data[first : first + 2 * length]
    ends = [before[:length], before[length:]]
    packet[first : first + 2 * length] = b"".join(addresses.get(end, end) for end in ends)
    after = bytes(packet[first : first + 2 * length])
    (stored,) = struct.unpack_from(">H", data, at.tcp + 16)
    is_left_to_card = stored in (0, _sums(data, at, at.end)[1] ^ 0xFFFF)
    if is_left_to_card:
        new = stored and _sums(packet, at, at.end)[1] ^ 0xFFFF
    else:
        kept = struct.pack(">HH", ~stored & 0xFFFF, internet_checksum(before))
        new = internet_checksum(kept + after)
    struct.pack_into(">H", packet, at.tcp + 16, new)
    return bytes(packet)


def translated(capture: bytes, addresses: Mapping[bytes, bytes]) -> bytes:
    """A pcap file that shows each TCP packet twice, as a node of a cluster does: before and behind
    the translation of the addresses of brokers.

    addresses: by an address of a broker as its clients know it, its own.
    """

    def views(data: bytes, at: Packet) -> list[bytes]:
        other = _readdressed(data, at, addresses)
        target = at.ip + (16 if data[at.ip] >> 4 == 4 else 24)
        to_broker = any(data[target:].startswith(address) for address in addresses)
        one, two = (data, other) if to_broker else (other, data)
        return [one, _forwarded(two, at)]

    return seen(capture, views)


def seen(capture: bytes, views: Callable[[bytes, Packet], list[bytes]]) -> bytes:
    """A pcap file with each TCP packet as often as it is seen, at its time and of its size."""
    (link_type,) = struct.unpack_from("<I", capture, 20)
    packets = [capture[:24]]
    for time, data, size in records(capture):
        at = headers(data, link_type)
        head = time + struct.pack("<II", len(data), size)
        packets += [head + view for view in ([data] if at is None else views(data, at))]
    return b"".join(packets)


def _relayed(data: bytes, at: Packet, ends: tuple[bytes, bytes], ports: tuple[int, int]) -> bytes:
    """The packet in which a balancer sends the same bytes on another connection: other addresses,
    ports and numbers. Its checksum is left to the network card."""
    first = at.ip + (12 if data[at.ip] >> 4 == 4 else 8)
    packet = bytearray(data)
    packet[first : first + 2 * len(ends[0])] = b"".join(ends)
    sequence, acknowledgement = struct.unpack_from(">II", data, at.tcp + 4)
    to_client = ports[0] < ports[1]
    shifts = (_SHIFTS[to_client], _SHIFTS[not to_client])
    numbers = (sequence + shifts[0], acknowledgement + shifts[1] if data[at.tcp + 13] & 16 else 0)
    struct.pack_into(">HHII", packet, at.tcp, *ports, *(each & 0xFFFFFFFF for each in numbers))
    struct.pack_into(">H", packet, at.tcp + 16, 0)
    return bytes(packet)


def balanced(capture: bytes, brokers: Mapping[bytes, bytes]) -> bytes:
    """A pcap file that shows each connection twice, around a balancer that forwards its bytes: to
    the address that its clients know, and from that address to a broker.

    brokers: by the address of a balancer, that of its broker.
    """

    def views(data: bytes, at: Packet) -> list[bytes]:
        first, length = (at.ip + 12, 4) if data[at.ip] >> 4 == 4 else (at.ip + 8, 16)
        source, target = data[first : first + length], data[first + length :][:length]
        ports = struct.unpack_from(">HH", data, at.tcp)
        own, other = ports if ports[0] > ports[1] else ports[::-1]
        relay = own ^ 0x4000 | 0x2000
        if ports[0] > ports[1]:
            return [data, _relayed(data, at, (target, brokers[target]), (relay, other))]
        return [_relayed(data, at, (brokers[source], source), (other, relay)), data]

    return seen(capture, views)
