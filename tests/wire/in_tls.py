"""Rewrites a capture with the streams of its connections in TLS: the same at the same times."""

import struct
from itertools import pairwise
from typing import Any, NamedTuple

from tests.wire import tls
from tests.wire.packets import ACK, FIN, SYN
from tests.wire.recut import Packet, Way, headers, records

_RECORD = 16_384  # bytes of plain text in a record
_SEGMENT = 60_000
_HELLO = b"\x16\x03"
_PSH = 8


class Told(NamedTuple):
    """Both captures have the packets of connections whose SYN was captured, and of these no bytes
    that came before or out of their order: they differ in TLS alone. keys: a key log."""

    plain: bytes
    in_tls: bytes
    keys: str


class _Talk:
    """A connection. places: by direction, of what was said, where it is on the wire."""

    def __init__(self, client: bytes, broker: bytes, number: int) -> None:
        self.ways: tuple[Way, Way] = (client, broker), (broker, client)
        self.number = number
        self.isn: dict[Way, int] = {}
        self.places: dict[Way, list[tuple[int, int]]] = {way: [(0, 0)] for way in self.ways}
        self.writers: tuple[Any, Any] | None = None
        self.is_left = False  # it is in TLS, or is none of the kind

    def at(self, way: Way, offset: int) -> int:
        """The sequence number on the wire of an offset in what was said."""
        known = self.places[way]
        _, wire = max(each for each in known if each[0] <= max(0, offset))
        behind_end = int(offset > known[-1][0])
        return self.isn[way] + 1 + wire + behind_end


def _sent(data: bytes, at: Packet, way: Way, numbers: tuple[int, int], content: bytes) -> bytes:
    """A packet like another one, with other ends, numbers and payload; the network card is left to
    compute its checksum."""
    is_v4 = data[at.ip] >> 4 == 4
    first, length_at, less = (12, 2, 0) if is_v4 else (8, 4, 40)
    head = bytearray(data[: at.payload])
    size = at.payload - at.ip - less + len(content)
    struct.pack_into(">H", head, at.ip + length_at, size)
    addresses = way[0][:-2] + way[1][:-2]
    head[at.ip + first : at.ip + first + len(addresses)] = addresses
    head[at.tcp : at.tcp + 4] = way[0][-2:] + way[1][-2:]
    struct.pack_into(">II", head, at.tcp + 4, *(number & 0xFFFFFFFF for number in numbers))
    struct.pack_into(">H", head, at.tcp + 16, 0)
    return bytes(head) + content


class _Teller:
    """Writes both captures, packet by packet. suite: a name of `tls.KINDS`."""

    def __init__(self, link_type: int, suite: str) -> None:
        self.link_type, self.suite = link_type, suite
        self.talks: dict[frozenset[bytes], _Talk] = {}
        self.plain: list[bytes] = []
        self.in_tls: list[bytes] = []
        self.keys = ""

    def tell(self, time: bytes, data: bytes) -> None:
        at = headers(data, self.link_type)
        if at is None or len(data) < at.end:
            return
        first, size = (12, 4) if data[at.ip] >> 4 == 4 else (8, 16)
        source, target = (
            data[at.ip + first + side * size :][:size] + data[at.tcp + 2 * side :][:2]
            for side in (0, 1)
        )
        way = source, target
        sequence, acknowledgement = struct.unpack_from(">II", data, at.tcp + 4)
        flags = data[at.tcp + 13]
        talk = self.talks.get(frozenset(way))
        if flags & (SYN | ACK) == SYN and (talk is None or talk.isn.get(way) != sequence):
            talk = _Talk(source, target, len(self.talks) + 1)
            self.talks[frozenset(way)] = talk
        if talk is None:
            return
        if flags & SYN:
            if way not in talk.isn:
                talk.isn[way] = sequence
                self._write(time, data, data)
            return
        if len(talk.isn) < 2:
            return
        offset = sequence - talk.isn[way] - 1
        content = data[at.payload : at.end]
        if offset % (1 << 32) != talk.places[way][-1][0]:
            return
        back = (acknowledgement - talk.isn[way[::-1]] - 1) % (1 << 32)
        if content and talk.writers is None and not talk.is_left:
            self._begin(time, data, at, talk, content)
        self._say(time, data, at, talk, (way, back))

    def _begin(self, time: bytes, data: bytes, at: Packet, talk: _Talk, content: bytes) -> None:
        if content.startswith(_HELLO):
            talk.is_left = True
            return
        begin = tls.begun_12 if "WITH" in self.suite else tls.begun_13
        written = begin(self.suite, talk.number)
        talk.writers = written.writers
        self.keys += written.keys
        sizes = [0, 0]
        for side, handshake in written.wire:
            way = talk.ways[side]
            numbers = tuple(talk.isn[each] + 1 + sizes[talk.ways.index(each)]
                            for each in (way, way[::-1]))  # fmt: skip
            self._write(time, None, _sent(data, at, way, (numbers[0], numbers[1]), handshake))
            sizes[side] += len(handshake)
        for side, way in enumerate(talk.ways):
            talk.places[way] = [(0, sizes[side])]

    def _say(
        self, time: bytes, data: bytes, at: Packet, talk: _Talk, placed: tuple[Way, int]
    ) -> None:
        way, back = placed
        content = data[at.payload : at.end]
        plain, wire = talk.places[way][-1]
        said = content
        if content and talk.writers is not None:
            parts = (content[start : start + _RECORD] for start in range(0, len(content), _RECORD))
            said = b"".join(map(talk.writers[talk.ways.index(way)].record, parts))
        answer = talk.at(way[::-1], back)
        edges = [*range(0, len(said), _SEGMENT), len(said)] if said else [0, 0]
        self._write(time, data, None)
        for start, stop in pairwise(edges):
            numbers = talk.isn[way] + 1 + wire + start, answer
            packet = bytearray(_sent(data, at, way, numbers, said[start:stop]))
            if stop < len(said):
                packet[at.tcp + 13] &= ~(FIN | _PSH)
            self._write(time, None, bytes(packet))
        if content:
            talk.places[way].append((plain + len(content), wire + len(said)))

    def _write(self, time: bytes, plain: bytes | None, in_tls: bytes | None) -> None:
        for out, packet in ((self.plain, plain), (self.in_tls, in_tls)):
            if packet is not None:
                out.append(time + struct.pack("<II", len(packet), len(packet)) + packet)


def told(capture: bytes, suite: str) -> Told:
    """A capture twice: without what is not in order, and the same in TLS."""
    (link_type,) = struct.unpack_from("<I", capture, 20)
    teller = _Teller(link_type, suite)
    for time, data, _ in records(capture):
        teller.tell(time, data)
    head = capture[:24]
    return Told(head + b"".join(teller.plain), head + b"".join(teller.in_tls), teller.keys)
