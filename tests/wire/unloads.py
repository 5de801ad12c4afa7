"""A capture that begins anywhere, at the end of which the topics of its clients are unloaded.

Packets in front of a place are left out, as if the capture had begun there. Behind the last packet
the broker closes producers and consumers, and clients open them again under their names: in each
of the orders in which frames on their way and an unload may cross.
"""

import ipaddress
import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tests.wire import pulsar
from tests.wire.recut import Packet, Streams, Way, headers, records

_FIN_RST = 0x05
_SYN = 0x02
_ACK_PSH = 0x18
_BROKERS_OWN = -1  # the request id of a close that the broker decides on
_NAMELESS = "unload"


class Opened(NamedTuple):
    """A producer or consumer of a capture; client, broker: address and port."""

    client: bytes
    broker: bytes
    is_producer: bool
    number: int
    topic: str
    name: str


class _Last(NamedTuple):
    """The last packet of a way, and the sequence number behind it."""

    head: bytes
    at: Packet
    following: int


def opened_in(tables: dict[str, list[dict[str, Any]]]) -> list[Opened]:
    """The producers and consumers of a capture's rows, each id of a connection once."""
    ends = {}
    for row in tables["connections"]:
        ends[row["connection_id"]] = tuple(
            ipaddress.ip_address(row[f"{end}_ip"]).packed + row[f"{end}_port"].to_bytes(2, "big")
            for end in ("client", "broker")
        )
    bundles = {}
    for table, number in (("producers", "producer_id"), ("consumers", "consumer_id")):
        for row in tables.get(table, []):
            if row[number] is None:  # of Cursus, which names its producers alone
                continue
            client, broker = ends[row["connection_id"]]
            topic, name = row["topic"] or "persistent://a/b/c", row["name"] or _NAMELESS
            one = Opened(client, broker, table == "producers", row[number], topic, name)
            bundles[one[:4]] = one
    return list(bundles.values())


def _frames(one: Opened, turn: int) -> list[tuple[bool, bytes]]:
    """What both sides say: direction (to the broker) and frame, in one of three orders."""

    def simple(name: str, **fields: Any) -> bytes:
        return pulsar.simple(pulsar.command(name, **fields))

    request = 1_000_000 + one.number % 1000
    if one.is_producer:
        about = {"producer_id": one.number}
        opens = {**about, "topic": one.topic, "request_id": request, "producer_name": one.name}
        named = {"producer_name": one.name, "sequence_id": 7}
        use = (True, pulsar.send(metadata_fields=named, sequence_id=7, **about))
        close = (False, simple("CLOSE_PRODUCER", request_id=_BROKERS_OWN, **about))
        open_again = (True, simple("PRODUCER", **opens))
        answer = simple("PRODUCER_SUCCESS", request_id=request, producer_name=one.name)
    else:
        about = {"consumer_id": one.number}
        opens = {**about, "topic": one.topic, "request_id": request, "consumer_name": one.name}
        place = {"ledgerId": 7, "entryId": 1}
        message = pulsar.command("MESSAGE", message_id=place, **about)
        use = (False, pulsar.entry(message, pulsar.metadata(), b"hi"))
        close = (False, simple("CLOSE_CONSUMER", request_id=_BROKERS_OWN, **about))
        open_again = (True, simple("SUBSCRIBE", subscription="s", subType="Shared", **opens))
        answer = simple("SUCCESS", request_id=request)
    connect = (True, simple("CONNECT", client_version="x", protocol_version=21))
    before = ([close, use], [use, close], [connect, use])[turn % 3]
    return [*before, open_again, (False, answer), use]


def _packet(last: _Last, payload: bytes) -> bytes:
    """A packet of the same way behind the last one; without a checksum, as a card fills it in."""
    head, at = bytearray(last.head), last.at
    is_v4 = head[at.ip] >> 4 == 4
    size = at.payload - at.ip + len(payload)
    struct.pack_into(">H", head, at.ip + (2 if is_v4 else 4), size if is_v4 else size - 40)
    struct.pack_into(">I", head, at.tcp + 4, last.following)
    head[at.tcp + 13] = _ACK_PSH
    struct.pack_into(">H", head, at.tcp + 16, 0)
    return bytes(head) + payload


def packet_count(capture: bytes) -> int:
    """How many packets a little-endian pcap file holds."""
    return sum(1 for _ in records(capture))


def unloaded(
    capture: bytes,
    opened: Sequence[Opened],
    first: int,
    stop: int,
    turns: Iterable[int] = (0, 1, 2),
) -> bytes:
    """Packets from the first to before the stop of a little-endian pcap file, then the unload.

    Those that end a connection are left out: one that is over reads nothing more.
    """
    (link_type,) = struct.unpack_from("<I", capture, 20)
    streams = Streams()
    kept = []
    last: dict[Way, _Last] = {}
    for time, data, wire in list(records(capture))[first:stop]:
        at = headers(data, link_type)
        if at is not None and len(data) >= at.payload:
            flags = data[at.tcp + 13]
            if flags & _FIN_RST:
                continue
            (sequence,) = struct.unpack_from(">I", data, at.tcp + 4)
            following = sequence + max(at.end - at.payload, 0) + (flags & _SYN > 0)
            way = streams.segment(data, at).way
            last[way] = _Last(data[: at.payload], at, following & 0xFFFFFFFF)
        kept.append((time, data, wire))
    out = [capture[:24]]
    out += [time + struct.pack("<II", len(data), wire) + data for time, data, wire in kept]
    for turn in turns if kept else ():
        for number, one in enumerate(opened):
            for to_broker, frame in _frames(one, turn + number):
                way = (one.client, one.broker) if to_broker else (one.broker, one.client)
                if way in last:
                    data = _packet(last[way], frame)
                    following = (last[way].following + len(frame)) & 0xFFFFFFFF
                    last[way] = last[way]._replace(following=following)
                    out.append(kept[-1][0] + struct.pack("<II", len(data), len(data)) + data)
    return b"".join(out)


def small(capture: bytes, opened: Sequence[Opened], most_bytes: int) -> bytes:
    """A beginning anywhere and an unload in few bytes, for a fuzzer."""
    count = packet_count(capture)
    first, kept = count // 3, 40
    while True:
        made = unloaded(capture, opened[:2], first, first + kept, (0,))
        if len(made) <= most_bytes or kept == 1:
            return made
        kept //= 2
