"""Rewrites a capture with other ids of producers, consumers and requests, of the same lengths."""

import random
import struct
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tests.anycut import ways_of
from tests.dissector.observed import Tables
from tests.wire.pulsar import classes
from tests.wire.recut import Streams, Way, headers, records

IDS: Final = ("producer_id", "consumer_id", "request_id")
_LONGEST: Final = 4  # bytes of an id that is changed: brokers put -1 where there is none


class Id(NamedTuple):
    """An id in a frame. place: way, offset in the stream and bytes of its varint."""

    frame_no: int
    connection: int
    is_to_broker: bool
    name: str
    value: int
    place: tuple[Way, int, int]

    @property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest number of its length."""
        size = self.place[2]
        return 0 if size == 1 else 1 << 7 * (size - 1), (1 << 7 * size) - 1


Choice = Callable[[list[Id]], list[int]]


def _varint(data: bytearray, at: int) -> tuple[int, int]:
    """A number and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def _ids(data: bytearray, start: int, end: int, kind: Any) -> list[tuple[str, int, int, int]]:
    """Name, place, bytes and value of each id in a command's protobuf."""
    found = []
    at = start
    while at < end:
        key, at = _varint(data, at)
        field = kind.fields_by_number.get(key >> 3)
        value, after = _varint(data, at)
        if key & 7 == 0:
            if field is not None and field.name in IDS and after - at <= _LONGEST:
                found.append((field.name, at, after - at, value))
        elif key & 7 == 2:
            if field is not None and field.containing_type.name == "BaseCommand":
                found += _ids(data, after, after + value, field.message_type)
            after += value
        else:
            after = at + (8 if key & 7 == 1 else 4)
        at = after
    return found


def _streams(capture: bytes, link_type: int) -> dict[Way, bytearray]:
    found: dict[Way, bytearray] = defaultdict(bytearray)
    streams = Streams()
    for _, data, _ in records(capture):
        at = headers(data, link_type)
        if at is not None and len(data) >= at.end:
            part = streams.segment(data, at)
            if part.at >= 0 and part.payload:
                stream, end = found[part.way], part.at + len(part.payload)
                stream.extend(bytes(max(0, end - len(stream))))
                stream[part.at : end] = part.payload
    return found


def _found(streams: dict[Way, bytearray], tables: Tables) -> list[Id]:
    """The ids of all whole frames of Pulsar, in their order."""
    base = classes()["BaseCommand"].DESCRIPTOR
    ways, found = ways_of(tables), []
    for row in tables["frames"]:
        if row["status"] == "complete" and row["protocol"] == "pulsar":
            is_to_broker = row["direction"] == "to_broker"
            way = ways[row["connection_id"], row["direction"]]
            data, at = streams[way], row["stream_offset"] + 8
            (size,) = struct.unpack_from(">I", data, at - 4)
            found += [
                Id(row["frame_no"], row["connection_id"], is_to_broker, name, value,
                   (way, place, length))
                for name, place, length, value in _ids(data, at, at + size, base)
            ]  # fmt: skip
    return found


class Renamed(NamedTuple):
    """A capture, and by frame and name of an id what became of it."""

    capture: bytes
    ids: dict[tuple[int, str], int]


def renamed(capture: bytes, tables: Tables, choose: Choice) -> Renamed:
    """A pcap file with other ids. tables: its rows; choose: gives a number of the same length for
    each id, in the order of their frames. Checksums of TCP are left to the network card."""
    (link_type,) = struct.unpack_from("<I", capture, 20)
    streams = _streams(capture, link_type)
    ids = _found(streams, tables)
    chosen = choose(ids)
    for each, number in zip(ids, chosen, strict=True):
        way, at, size = each.place
        for place in range(size):
            more = 0x80 if place < size - 1 else 0
            streams[way][at + place] = number >> 7 * place & 0x7F | more
    out = [capture[:24]]
    places = Streams()
    for time, data, wire in records(capture):
        at_ = headers(data, link_type)
        if at_ is not None and len(data) >= at_.end:
            part = places.segment(data, at_)
            if part.at >= 0 and part.payload:
                said = bytes(streams[part.way][part.at : part.at + len(part.payload)])
                head = data[: at_.tcp + 16] + bytes(2) + data[at_.tcp + 18 : at_.payload]
                data = head + said + data[at_.end :]
        out.append(time + struct.pack("<II", len(data), wire) + data)
    named = {(each.frame_no, each.name): new for each, new in zip(ids, chosen, strict=True)}
    return Renamed(b"".join(out), named)


def drawn(seed: str) -> Choice:
    """Any numbers: one for each id of a client, which it keeps on its next connection."""

    def choose(ids: list[Id]) -> list[int]:
        chance = random.Random(seed)
        known: dict[Any, int] = {}
        taken = set()
        for each in ids:
            key = each.name, each.value
            while key not in known:
                number = chance.randint(*each.bounds)
                if (each.name, number) not in taken:
                    taken.add((each.name, number))
                    known[key] = number
        return [known[each.name, each.value] for each in ids]

    return choose


def lowest(ids: list[Id]) -> list[int]:
    """The lowest numbers, from the same one on for producers, consumers and requests of all
    connections."""
    known: dict[Any, dict[int, int]] = defaultdict(dict)
    found = []
    for each in ids:
        numbers = known[each.connection, each.name, each.place[2]]
        found.append(numbers.setdefault(each.value, each.bounds[0] + len(numbers)))
    return found


def free(ids: list[Id]) -> list[int]:
    """For each request the lowest number with which no other one waits."""
    waiting: dict[int, dict[int, int]] = defaultdict(dict)
    found = lowest(ids)
    for index, each in enumerate(ids):
        if each.name == "request_id":
            numbers = waiting[each.connection]
            if each.is_to_broker:
                taken = {*numbers.values()}
                fits = (number for number in range(each.bounds[0], each.bounds[1] + 1)
                        if number not in taken)  # fmt: skip
                found[index] = numbers.setdefault(each.value, next(fits))
            else:
                found[index] = numbers.pop(each.value, each.value)
    return found
