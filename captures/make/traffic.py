"""Make large captures of plausible Pulsar traffic, deterministic, for measuring speed.

    python captures/make/traffic.py small 300 small.pcap

A producer connection and a consumer connection for each of four topics: SENDs in full segments,
receipts and MESSAGEs coalesced as a busy broker does, grouped acks, a FLOW for each half queue.
Mixes: `small` (100 B messages), `kib` (1 KiB messages), `batch` (batches of 100 messages of 100 B),
`lz4` (the same batches under LZ4). The bytes depend on the mix and the size alone.
"""

import argparse
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import crc32c
import lz4.block

SEGMENT_BYTES = 1448
TOPICS = 4
QUEUE = 1000
ACK_GROUP = 100
START_NS = 1_700_000_000_000_000_000
LEDGER = 7


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return varint(field << 3) + varint(value)


def text(field: int, value: bytes) -> bytes:
    """A length-delimited field."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def command(kind: int, body: bytes) -> bytes:
    """A BaseCommand: its type, and the message in the field of the same number."""
    return number(1, kind) + text(kind, body)


def simple(kind: int, body: bytes) -> bytes:
    """A whole frame of a command without payload."""
    said = command(kind, body)
    return struct.pack(">II", len(said) + 4, len(said)) + said


def with_payload(kind: int, body: bytes, entry: bytes) -> bytes:
    """A whole frame of SEND or MESSAGE; entry: magic, checksum, metadata and payload."""
    said = command(kind, body)
    return struct.pack(">II", len(said) + 4 + len(entry), len(said)) + said + entry


def entry(metadata: bytes, payload: bytes) -> bytes:
    """What a broker stores: checksummed metadata and payload."""
    covered = struct.pack(">I", len(metadata)) + metadata + payload
    return b"\x0e\x01" + struct.pack(">I", crc32c.crc32c(covered)) + covered


class Mix(NamedTuple):
    """One kind of traffic. make: (topic, sequence) -> entry; messages: in each entry."""

    make: Callable[[int, int], bytes]
    messages: int


def _payload(topic: int, sequence: int, size: int) -> bytes:
    """Readable bytes that differ from message to message and compress about as JSON does."""
    head = b'{"topic":%d,"sequence":%d,"text":"' % (topic, sequence)
    words = b"the quick broker delivers %08x of them " % (sequence * 2654435761 & 0xFFFFFFFF)
    return (head + words * (size // len(words) + 1))[:size]


def _metadata(topic: int, sequence: int, more: bytes = b"") -> bytes:
    published = START_NS // 1_000_000 + sequence // 10
    return text(1, b"standalone-%d-0" % topic) + number(2, sequence) + number(3, published) + more


def _single(size: int) -> Callable[[int, int], bytes]:
    def make(topic: int, sequence: int) -> bytes:
        return entry(_metadata(topic, sequence), _payload(topic, sequence, size))

    return make


def _batch(size: int, count: int, is_compressed: bool) -> Callable[[int, int], bytes]:
    def make(topic: int, sequence: int) -> bytes:
        items = []
        for index in range(count):
            single = number(3, size) + number(8, sequence * count + index)
            items.append(struct.pack(">I", len(single)) + single)
            items.append(_payload(topic, sequence * count + index, size))
        payload = b"".join(items)
        more = number(9, len(payload)) + number(11, count)
        if is_compressed:
            more = number(8, 1) + more
            payload = lz4.block.compress(payload, store_size=False)
        return entry(_metadata(topic, sequence * count, more), payload)

    return make


MIXES = {
    "small": Mix(_single(100), 1),
    "kib": Mix(_single(1024), 1),
    "batch": Mix(_batch(100, 100, False), 100),
    "lz4": Mix(_batch(100, 100, True), 100),
}


class Direction:
    """One direction of a connection: bytes in, TCP packets out."""

    def __init__(self, source: tuple[int, int], destination: tuple[int, int]) -> None:
        self._source = source
        self._destination = destination
        self.sequence = 1000
        self._waiting = bytearray()

    def packet(self, payload: bytes, acknowledged: int, flags: int = 0x18) -> bytes:
        """An Ethernet packet with time stamp option; checksums are left to the (absent) card."""
        size = 52 + len(payload)
        ip = struct.pack(
            ">BBHHHBBHII",
            0x45, 0, size, self.sequence & 0xFFFF, 0x4000, 64, 6, 0,
            self._source[0], self._destination[0],
        )  # fmt: skip
        tcp = struct.pack(
            ">HHIIBBHHHBBBBII",
            self._source[1], self._destination[1],
            self.sequence & 0xFFFFFFFF, acknowledged & 0xFFFFFFFF,
            0x80, flags, 4096, 0, 0, 1, 1, 8, 10, 1, 1,
        )  # fmt: skip
        self.sequence += len(payload) + (flags & 2 > 0) + (flags & 1)
        return b"\2\0\0\0\0\1\2\0\0\0\0\2\x08\0" + ip + tcp + payload

    def write(self, data: bytes) -> None:
        """Queue bytes of the stream."""
        self._waiting += data

    def flush(self, acknowledged: int, is_final: bool = True) -> Iterator[bytes]:
        """Packets of the queued bytes; without is_final only full segments."""
        waiting = self._waiting
        while len(waiting) >= SEGMENT_BYTES or (waiting and is_final):
            yield self.packet(bytes(waiting[:SEGMENT_BYTES]), acknowledged)
            del waiting[:SEGMENT_BYTES]


class Connection:
    """Both directions, and the handshake that opens them."""

    def __init__(self, index: int, port: int = 6650) -> None:
        client = (0x0A000001 + index, 40000 + index)
        broker = (0x0A0000FE, port)
        self.to_broker = Direction(client, broker)
        self.to_client = Direction(broker, client)

    def open(self) -> Iterator[bytes]:
        """SYN, SYN-ACK, ACK."""
        yield self.to_broker.packet(b"", 0, 0x02)
        yield self.to_client.packet(b"", self.to_broker.sequence, 0x12)
        yield self.to_broker.packet(b"", self.to_client.sequence, 0x10)

    def say(self, data: bytes) -> Iterator[bytes]:
        """Bytes to the broker, at once."""
        self.to_broker.write(data)
        yield from self.to_broker.flush(self.to_client.sequence)

    def answer(self, data: bytes) -> Iterator[bytes]:
        """Bytes to the client, at once."""
        self.to_client.write(data)
        yield from self.to_client.flush(self.to_broker.sequence)

    def handshake(self) -> Iterator[bytes]:
        """CONNECT and CONNECTED."""
        yield from self.open()
        yield from self.say(simple(2, text(1, b"Pulsar-Java-v4.0.6") + number(4, 21)))
        yield from self.answer(
            simple(3, text(1, b"Pulsar Server4.0.6") + number(2, 21) + number(3, 5242880))
        )


def _topic(index: int) -> bytes:
    return b"persistent://public/default/bench-%d" % index


def _begin(producers: list[Connection], consumers: list[Connection]) -> Iterator[bytes]:
    for index, (producer, consumer) in enumerate(zip(producers, consumers, strict=True)):
        yield from producer.handshake()
        yield from producer.say(simple(5, text(1, _topic(index)) + number(2, 1) + number(3, 1)))
        name = text(2, b"standalone-%d-0" % index)
        yield from producer.answer(simple(17, number(1, 1) + name))
        yield from consumer.handshake()
        asked = text(1, _topic(index)) + text(2, b"bench") + number(3, 1)
        yield from consumer.say(simple(4, asked + number(4, 1) + number(5, 1)))
        yield from consumer.answer(simple(13, number(1, 1)))
        yield from consumer.say(simple(11, number(1, 1) + number(2, QUEUE)))


def packets(mix: Mix) -> Iterator[bytes]:
    """The packets of a capture without end."""
    producers = [Connection(2 * index) for index in range(TOPICS)]
    consumers = [Connection(2 * index + 1) for index in range(TOPICS)]
    yield from _begin(producers, consumers)
    sequence = 0
    group = max(1, ACK_GROUP // mix.messages)
    while True:
        for topic in range(TOPICS):
            yield from _round(mix, topic, producers[topic], consumers[topic], sequence, group)
        sequence += group


def _round(
    mix: Mix, topic: int, producer: Connection, consumer: Connection, first: int, count: int
) -> Iterator[bytes]:
    """One group of entries: published, stored, delivered, acknowledged, permitted."""
    entries = [mix.make(topic, first + index) for index in range(count)]
    batched = number(3, mix.messages) if mix.messages > 1 else b""
    for index, each in enumerate(entries):
        said = number(1, 1) + number(2, (first + index) * mix.messages) + batched
        producer.to_broker.write(with_payload(6, said, each))
    yield from producer.to_broker.flush(producer.to_client.sequence)
    for index in range(count):
        place = number(1, LEDGER + topic) + number(2, first + index)
        receipt = number(1, 1) + number(2, (first + index) * mix.messages) + text(3, place)
        producer.to_client.write(simple(7, receipt + number(4, 2**64 - 1)))
    yield from producer.to_client.flush(producer.to_broker.sequence)
    acked = []
    for index, each in enumerate(entries):
        place = number(1, LEDGER + topic) + number(2, first + index)
        consumer.to_client.write(
            with_payload(9, number(1, 1) + text(2, place + number(3, 2**64 - 1)), each)
        )
        acked.append(text(3, place))
    yield from consumer.to_client.flush(consumer.to_broker.sequence)
    yield from consumer.say(simple(10, number(1, 1) + number(2, 0) + b"".join(acked)))
    done = (first + count) * mix.messages
    if done % (QUEUE // 2) < count * mix.messages:
        yield from consumer.say(simple(11, number(1, 1) + number(2, QUEUE // 2)))


def write_capture(path: Path, mix: str, size: int) -> int:
    """Write a capture of about `size` bytes; returns the packets in it."""
    return write_packets(path, packets(MIXES[mix]), size)


def write_packets(path: Path, found: Iterator[bytes], size: int | None) -> int:
    """Write packets until a capture has about `size` bytes, or all; returns how many."""
    written = 0
    count = 0
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262144, 1))
        clock = START_NS
        for packet in found:
            clock += 1_000 + 8 * len(packet)
            seconds, rest = divmod(clock, 1_000_000_000)
            file.write(struct.pack("<IIII", seconds, rest, len(packet), len(packet)) + packet)
            written += 16 + len(packet)
            count += 1
            if size is not None and written >= size:
                return count
    assert size is None, "the traffic never ends"
    return count


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mix", choices=sorted(MIXES))
    parser.add_argument("megabytes", type=int)
    parser.add_argument("path", type=Path)
    chosen = parser.parse_args()
    count = write_capture(chosen.path, chosen.mix, chosen.megabytes * 1_000_000)
    print(f"{chosen.path}: {count} packets")


if __name__ == "__main__":
    main()
