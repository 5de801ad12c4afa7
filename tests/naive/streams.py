"""Streams reassembled offline, byte by byte in dictionaries: slow, plain, obviously right.

It knows the whole capture at once, so it never has to decide when to give up a gap: a byte that is
in no packet is missing. The result equals the reassembly's if no packet exceeds the reorder window.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, groupby, repeat
from typing import NamedTuple

FIN, SYN, RST, ACK = 1, 2, 4, 16
_HALF = 1 << 31
_LOST = -1  # the value of a byte that no packet brought


class Seen(NamedTuple):
    """A TCP packet. pair: its connection's addresses, in any form; payload: the captured bytes."""

    pair: object
    endpoint_index: int
    sequence: int
    acknowledgement: int
    flags: int
    payload: bytes
    wire_bytes: int


class Part(NamedTuple):
    """A range of a stream. kind: data, lost or cut; length: bytes; data: their values."""

    kind: str
    start: int
    length: int
    data: bytes = b""


@dataclass
class NaiveSide:
    """One direction. origin: sequence number of offset 0, unwrapped; bytes: value by offset, None
    where the snap length cut it; end: offset after the last byte sent (a FIN's place), if known;
    early: numbers that the peer acknowledged before anything of this direction was captured."""

    origin: int | None = None
    has_syn: bool = False
    top: int = 0
    acknowledged: int = 0
    end: int | None = None
    bytes: dict[int, int | None] = field(default_factory=dict)
    packets: int = 0
    early: list[int] = field(default_factory=list)

    def offset(self, sequence: int) -> int:
        """The offset of a sequence number that lies nearest to the highest one seen."""
        assert self.origin is not None
        near = self.origin + self.top
        return self.top + (sequence - near + _HALF) % (1 << 32) - _HALF

    def parts(self) -> list[Part]:
        """The stream with its gaps."""
        end = self.top if self.end is None else self.end
        # One acknowledged byte more may be a FIN that was not captured.
        if self.end is None and self.packets and self.acknowledged > end + 1:
            end = self.acknowledged
        start = min([0, *self.bytes]) if not self.has_syn else 0
        parts: list[Part] = []
        at = start
        values = [self.bytes.get(offset, _LOST) for offset in range(start, end)]
        for kind, run in groupby(values, _kind):
            found = [*run]
            data = bytes(found) if kind == "data" else b""
            parts.append(Part(kind, at, len(found), data))
            at += len(found)
        return parts


def _kind(value: int | None) -> str:
    """The kind of a byte, by its value."""
    return "cut" if value is None else "lost" if value < 0 else "data"


@dataclass
class NaiveConnection:
    """Both directions of one incarnation of an address pair."""

    isn: list[int | None] = field(default_factory=lambda: [None, None])
    sides: tuple[NaiveSide, NaiveSide] = field(default_factory=lambda: (NaiveSide(), NaiveSide()))


def reassemble(packets: Iterable[Seen], overlap: str = "first") -> list[NaiveConnection]:
    """All connections in the order of their first packets.

    A SYN with another initial number than the connection's opens a new one. overlap: `first` or
    `last`, which of two differing copies of a byte counts.
    """
    connections: list[NaiveConnection] = []
    current: dict[object, NaiveConnection] = {}
    for packet in packets:
        connection = current.get(packet.pair)
        if connection is None or _opens_another(connection, packet):
            connection = current[packet.pair] = NaiveConnection()
            connections.append(connection)
        _take(connection, packet, overlap)
    return connections


def _opens_another(connection: NaiveConnection, packet: Seen) -> bool:
    known = connection.isn[packet.endpoint_index]
    return packet.flags & (SYN | ACK) == SYN and known is not None and known != packet.sequence


def _take(connection: NaiveConnection, packet: Seen, overlap: str) -> None:
    endpoint_index, peer = (
        connection.sides[packet.endpoint_index],
        connection.sides[1 - packet.endpoint_index],
    )
    endpoint_index.packets += 1
    start = packet.sequence
    if packet.flags & SYN:
        start += 1
        connection.isn[packet.endpoint_index] = packet.sequence
        _begin(endpoint_index, start)
    elif endpoint_index.origin is None:
        endpoint_index.origin = start
        endpoint_index.acknowledged = max([0, *map(endpoint_index.offset, endpoint_index.early)])
    if packet.flags & ACK:
        if peer.origin is not None:
            peer.acknowledged = max(peer.acknowledged, peer.offset(packet.acknowledgement))
        elif packet.flags & SYN:
            _begin(peer, packet.acknowledgement)
        else:
            peer.early.append(packet.acknowledgement)
    if packet.flags & RST:
        return
    first = endpoint_index.offset(start)
    if (
        packet.wire_bytes == 1
        and first == endpoint_index.top - 1
        and not packet.flags & (SYN | FIN)
    ):
        return  # a keep-alive, whose byte means nothing
    places = range(first, first + packet.wire_bytes)
    said = dict(zip(places, chain(packet.payload, repeat(None)), strict=False))
    if overlap == "last":
        endpoint_index.bytes.update(said)
    else:
        known = endpoint_index.bytes
        known.update({place: value for place, value in said.items() if place not in known})
    if packet.wire_bytes:
        endpoint_index.top = max(endpoint_index.top, first + packet.wire_bytes)
    if packet.flags & FIN:
        endpoint_index.end = first + packet.wire_bytes


def _begin(endpoint_index: NaiveSide, origin: int) -> None:
    """Set offset 0; offsets counted from another origin are corrected."""
    if endpoint_index.has_syn:
        return
    if endpoint_index.origin is not None:
        by = -((origin - endpoint_index.origin + _HALF) % (1 << 32) - _HALF)
        endpoint_index.bytes = {
            offset + by: value for offset, value in endpoint_index.bytes.items()
        }
        endpoint_index.top += by
        endpoint_index.acknowledged += by
        endpoint_index.end = None if endpoint_index.end is None else endpoint_index.end + by
    endpoint_index.origin = origin
    endpoint_index.has_syn = True
