"""Rewrites a capture with other sequence numbers: each direction's begin elsewhere."""

import struct
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from tests.wire.packets import ACK, internet_checksum
from tests.wire.recut import Packet, Way, headers, records, seen

_TCP = 6


class Numbered(NamedTuple):
    """A packet's sequence number, payload bytes on the wire and TCP flags."""

    sequence: int
    size: int
    flags: int


def _way(data: bytes, at: Packet) -> Way:
    first, size = (at.ip + 12, 4) if data[at.ip] >> 4 == 4 else (at.ip + 8, 16)
    source, target = (
        data[first + side * size :][:size] + data[at.tcp + 2 * side :][:2] for side in (0, 1)
    )
    return source, target


def numbers_of(capture: bytes) -> dict[Way, list[Numbered]]:
    """The TCP packets of each direction, in their order."""
    (link_type,) = struct.unpack_from("<I", capture, 20)
    found = defaultdict(list)
    for _, data, _ in records(capture):
        at = headers(data, link_type)
        if at is not None:
            (sequence,) = struct.unpack_from(">I", data, at.tcp + 4)
            size = at.end - at.payload
            found[_way(data, at)].append(Numbered(sequence, size, data[at.tcp + 13]))
    return found


def renumbered(capture: bytes, shift_of: Callable[[Way], int]) -> bytes:
    """A pcap file whose sequence numbers are greater by what its direction tells.

    Checksums are as right as they were, or left to the network card as they were.
    """
    return seen(capture, lambda data, at: [_moved(data, at, shift_of)])


def _moved(data: bytes, at: Packet, shift_of: Callable[[Way], int]) -> bytes:
    source, target = _way(data, at)
    before = data[at.tcp + 4 : at.tcp + 12]
    sequence, acknowledgement = struct.unpack(">II", before)
    sequence = (sequence + shift_of((source, target))) & 0xFFFFFFFF
    if data[at.tcp + 13] & ACK:
        acknowledgement = (acknowledgement + shift_of((target, source))) & 0xFFFFFFFF
    after = struct.pack(">II", sequence, acknowledgement)
    (stored,) = struct.unpack_from(">H", data, at.tcp + 16)
    size = struct.pack(">II", _TCP, at.end - at.tcp)
    left_to_card = internet_checksum(source[:-2] + target[:-2] + size) ^ 0xFFFF
    if stored not in (0, left_to_card):
        without = bytes(each ^ 0xFF for each in before)
        stored = internet_checksum(struct.pack(">H", ~stored & 0xFFFF) + without + after)
    head = data[: at.tcp + 4] + after + data[at.tcp + 12 : at.tcp + 16]
    return head + struct.pack(">H", stored) + data[at.tcp + 18 :]


_TIME_STAMPS = b"\x08\x0a"


def restamped(capture: bytes, add_of: Callable[[Way], int]) -> bytes:
    """A pcap file whose TCP time stamps are greater by what their sender's direction tells."""
    return seen(capture, lambda data, at: [_restamped(data, at, add_of)])


def _restamped(data: bytes, at: Packet, add_of: Callable[[Way], int]) -> bytes:
    """A packet whose checksum, if it has one, is left to the network card where they change."""
    place = data.find(_TIME_STAMPS, at.tcp + 20, at.payload - 8) + 2
    if place < 2:
        return data
    source, target = _way(data, at)
    value, echo = struct.unpack_from(">II", data, place)
    value = (value + add_of((source, target))) & 0xFFFFFFFF
    echo = (echo + add_of((target, source))) & 0xFFFFFFFF if echo else 0
    head = data[: at.tcp + 16] + bytes(2) + data[at.tcp + 18 : place]
    return head + struct.pack(">II", value, echo) + data[place + 8 :]
