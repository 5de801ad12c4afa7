"""Floods in the streams and frames, as captures: holes, connections from within, redirects, chunks.

Made with whole arrays, as those of `floods`.
"""

from collections.abc import Callable

import numpy as np

from captures.make.traffic import number, simple, text, with_payload
from dissector.blocks import Int64Array
from tests.hard.packet_floods import Field, repeated
from tests.wire.captures import pcap_header
from tests.wire.packets import ACK, PSH, SYN, segment

_TCP = 14 + 20  # where the TCP header begins in a frame
_SOURCE, _PORT, _SEQUENCE = 14 + 12, _TCP, _TCP + 4
_OTHER = ("10.0.0.9", 9999)  # no broker's port
_PULSAR = ("10.0.0.9", 6650)
_NAME = b"aaaaaaaa"  # each packet has another one there
_SHORT = 10  # bytes of a segment with a hole of as many before it
_SEND, _PING, _LOOKUP, _LOOKUP_RESPONSE = 6, 18, 23, 24
_NOISE = bytes(range(0x21, 0x85))


def _numbers(count: int) -> Int64Array:
    return np.arange(count, dtype=np.int64)


def _names(numbers: Int64Array) -> Int64Array:
    """Eight letters for each number."""
    nibbles = [((numbers >> 4 * place & 15) + 0x61) << 8 * place for place in range(8)]
    return np.bitwise_or.reduce(np.array(nibbles), axis=0)


def _varints(numbers: Int64Array) -> Int64Array:
    """Each number as a varint of four bytes."""
    parts = [
        (numbers >> 7 * place & 127 | (place < 3) << 7) << 8 * (3 - place) for place in range(4)
    ]
    return np.bitwise_or.reduce(np.array(parts), axis=0)


def _opened(connection: bytes) -> bytes:
    """A capture's head and a connection to a Pulsar broker from its SYN: its first frame."""
    syn = segment(flags=SYN, broker=_PULSAR, sequence=0)
    first = segment(connection, flags=ACK | PSH, broker=_PULSAR, sequence=1)
    records = [repeated(each, 1)[len(pcap_header()) :] for each in (syn, first)]
    return pcap_header() + b"".join(records)


def _holes(count: int, broker: tuple[str, int], start: int) -> bytes:
    packet = segment(b"\xff" * _SHORT, flags=ACK | PSH, broker=broker)
    sequences = start + _SHORT + 2 * _SHORT * _numbers(count)
    return repeated(packet, count, Field(_SEQUENCE, 4, sequences & 0xFFFF_FFFF))


def holes_of_pulsar(count: int) -> bytes:
    """Short segments of a connection that speaks Pulsar, each behind a hole."""
    connect = simple(2, text(1, b"bench") + number(4, 21))
    rest = _holes(count - 2, _PULSAR, 1 + len(connect))
    return _opened(connect) + rest[len(pcap_header()) :]


def holes_of_unknown(count: int) -> bytes:
    """Short segments of a connection whose protocol is not known, each behind a hole."""
    return _holes(count, _OTHER, 1)


def _from_within(count: int, payload: bytes, broker: tuple[str, int]) -> bytes:
    numbers = _numbers(count)
    return repeated(
        segment(payload, flags=ACK | PSH, broker=broker, sequence=1000), count,
        Field(_SOURCE, 4, 0x0B00_0000 + numbers // 20_000),
        Field(_PORT, 2, 20_000 + numbers % 20_000),
    )  # fmt: skip


def lone_frames(count: int) -> bytes:
    """Connections of one packet that began before the capture: a frame of Pulsar in each."""
    return _from_within(count, simple(_PING, b""), _PULSAR)


def lone_frames_elsewhere(count: int) -> bytes:
    """As these, to a port that is no broker's."""
    return _from_within(count, simple(_PING, b""), _OTHER)


def lone_packets(count: int) -> bytes:
    """Connections of one packet that began before the capture, of no known protocol."""
    return _from_within(count, _NOISE, _OTHER)


def redirects(count: int) -> bytes:
    """Lookups of ever new topics, each answered with a redirect to a new broker, by turns."""
    pairs = count // 2
    identifier = number(2, 1 << 21)[1:]
    asked = simple(_LOOKUP, text(1, b"persistent://public/default/" + _NAME) + number(2, 1 << 21))
    answered = simple(
        _LOOKUP_RESPONSE,
        text(1, b"pulsar://broker-" + _NAME + b".example:6650") + number(3, 0)
        + number(4, 1 << 21) + number(5, 1),
    )  # fmt: skip
    sides = []
    for payload, to_broker in ((asked, True), (answered, False)):
        packet = segment(payload, flags=ACK | PSH, broker=_PULSAR, to_broker=to_broker)
        sequences = 1000 + len(payload) * _numbers(pairs)
        found = repeated(
            packet, pairs,
            Field(_SEQUENCE, 4, sequences & 0xFFFF_FFFF),
            Field(packet.index(_NAME), 8, _names(_numbers(pairs))),
            Field(packet.rindex(identifier), 4, _varints(_numbers(pairs) + (1 << 21))),
        )  # fmt: skip
        records = np.frombuffer(found, np.uint8, offset=len(pcap_header()))
        sides.append(records.reshape(pairs, -1))
    return pcap_header() + np.hstack(sides).tobytes()


def endless_chunks(count: int) -> bytes:
    """First chunks of ever new messages, whose others never come, of a connection from within."""
    identifier = number(2, 1 << 21)[1:]
    metadata = text(1, b"bench-1") + number(2, 7) + number(3, 1_700_000_000_000)
    metadata += text(26, _NAME) + number(27, 2) + number(28, 90) + number(29, 0)
    entry = len(metadata).to_bytes(4, "big") + metadata + bytes(40)
    payload = with_payload(_SEND, number(1, 1) + number(2, 1 << 21), entry)
    packet = segment(payload, flags=ACK | PSH, broker=_PULSAR)
    numbers = _numbers(count)
    return repeated(
        packet, count,
        Field(_SEQUENCE, 4, 1000 + len(payload) * numbers & 0xFFFF_FFFF),
        Field(packet.index(_NAME), 8, _names(numbers)),
        Field(packet.index(identifier), 4, _varints(numbers + (1 << 21))),
    )  # fmt: skip


STREAM_FLOODS: dict[str, Callable[[int], bytes]] = {
    each.__name__.replace("_", " "): each
    for each in (
        holes_of_pulsar, holes_of_unknown, lone_frames, lone_frames_elsewhere, lone_packets,
        redirects, endless_chunks,
    )
}  # fmt: skip
