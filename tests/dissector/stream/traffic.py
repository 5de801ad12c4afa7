"""Connections made by chance, as a tap would see them, with the bytes that were really sent."""

import random
from dataclasses import dataclass, field

from tests.naive.streams import NaiveConnection, Seen, reassemble
from tests.wire.packets import ACK, BROKER_PORT, FIN, RST, SYN
from tests.wire.segments import FIN_ACK, RST_ACK, SYN_ACK, Packet, Released, StreamRange

RECENT_MS = 50  # how long ago bytes were sent that are sent again
WRAP = 1 << 32


@dataclass(frozen=True)
class Shape:
    """What may happen, as chances per segment. jitter_ms: how much later the tap may see a packet
    than it was sent; steps: segments; wraps: chance that sequence numbers start anew soon; ending:
    `fin`, `rst` or none; least: bytes of the shortest segment."""

    least: int = 1
    steps: int = 30
    jitter_ms: float = 0
    again: float = 0
    copied: float = 0
    lost: float = 0
    cut: float = 0
    conflicting: float = 0
    keepalives: float = 0
    pause_ms: float = 5
    wraps: float = 0.5
    ending: str = "fin"
    one_way: bool = False


@dataclass
class Made:
    """Packets in the order of the tap, and what each side really sent."""

    packets: list[Packet]
    sent: tuple[bytes, bytes]


@dataclass
class _Sender:
    generator: random.Random
    shape: Shape
    port: int
    at: float
    isn: list[int]
    sent: list[bytearray] = field(default_factory=lambda: [bytearray(), bytearray()])
    recent: list[tuple[float, int, int, int]] = field(default_factory=list)
    seen: list[tuple[float, Packet]] = field(default_factory=list)
    serial: int = 0

    def put(self, endpoint_index: int, offset: int, payload: bytes, flags: int = ACK) -> None:
        """One packet of a side on its way past the tap."""
        shape, chance = self.shape, self.generator.random
        self.serial += 1
        packet = Packet(
            0,
            endpoint_index,
            self.isn[endpoint_index] + 1 + offset,
            payload,
            self.isn[1 - endpoint_index] + 1 + len(self.sent[1 - endpoint_index]),
            flags,
            ip_id=self.serial * 2 + endpoint_index,
            port=self.port,
        )
        is_plain = flags == ACK and payload
        if is_plain and chance() < shape.cut:
            packet = packet._replace(captured=self.generator.randrange(len(payload)))
        if shape.one_way and endpoint_index == 1:
            return
        if is_plain and chance() < shape.lost:
            return
        arrival = self.at + self.generator.uniform(0, shape.jitter_ms)
        self.seen.append((arrival, packet))
        while payload and chance() < shape.copied:
            self.seen.append((arrival + self.generator.uniform(0, 20), packet))

    def send(self) -> None:
        """A segment of new bytes, and perhaps old ones once more."""
        endpoint_index = self.generator.randrange(2)
        payload = self.generator.randbytes(self.generator.randint(self.shape.least, 40))
        start = len(self.sent[endpoint_index])
        self.put(endpoint_index, start, payload)
        self.sent[endpoint_index] += payload
        self.recent.append((self.at, endpoint_index, start, start + len(payload)))
        if self.generator.random() < self.shape.again:
            self.send_again()
        if self.generator.random() < 0.3:
            self.put(1 - endpoint_index, len(self.sent[1 - endpoint_index]), b"")

    def send_again(self) -> None:
        """Bytes sent a moment ago, in segments of other bounds."""
        self.recent = [each for each in self.recent if each[0] > self.at - RECENT_MS]
        if not self.recent:
            return
        _, endpoint_index, first, _ = self.generator.choice(self.recent)
        last = max(end for _, other, _, end in self.recent if other == endpoint_index)
        least = self.shape.least
        start = self.generator.randrange(first, max(first + 1, last - least + 1))
        end = min(last, start + self.generator.randint(least, 80))
        payload = bytes(self.sent[endpoint_index][start:end])
        if self.generator.random() < self.shape.conflicting:
            payload = bytes(value ^ 0x55 for value in payload)
        self.put(endpoint_index, start, payload)

    def keep_alive(self) -> None:
        """A probe of an idle connection: the last byte's number, no byte or a made-up one."""
        endpoint_index = self.generator.randrange(2)
        self.at += 150
        self.put(
            endpoint_index,
            len(self.sent[endpoint_index]) - 1,
            self.generator.choice([b"", b"\0"]),
            ACK,
        )
        self.at += 150


def conversation(
    generator: random.Random, shape: Shape, *, port: int = 40000, ms: float = 0
) -> Made:
    """A connection from its SYN to its end."""
    isn = [
        WRAP - generator.randint(1, 400)
        if generator.random() < shape.wraps
        else generator.randrange(WRAP)
        for _ in range(2)
    ]
    sender = _Sender(generator, shape, port, ms, isn)
    for endpoint_index, flags in ((0, SYN), (1, SYN_ACK)):
        acknowledgement = isn[0] + 1 if endpoint_index else 0
        packet = Packet(
            0,
            endpoint_index,
            isn[endpoint_index],
            b"",
            acknowledgement,
            flags,
            port=port,
            ip_id=endpoint_index,
        )
        if not (shape.one_way and endpoint_index):
            sender.seen.append((sender.at, packet))
        sender.at += 1
    sender.put(0, 0, b"")
    for _ in range(shape.steps):
        sender.at += generator.uniform(0, shape.pause_ms)
        sender.send()
        if generator.random() < shape.keepalives:
            sender.keep_alive()
    if shape.ending == "fin":
        sender.put(0, len(sender.sent[0]), b"", FIN_ACK)
        sender.put(1, len(sender.sent[1]), b"", FIN_ACK)
    elif shape.ending == "rst":
        sender.at += 100
        sender.put(0, len(sender.sent[0]), b"", RST_ACK)
    sender.seen.sort(key=lambda entry: entry[0])
    packets = [packet._replace(ms=arrival) for arrival, packet in sender.seen]
    return Made(packets, (bytes(sender.sent[0]), bytes(sender.sent[1])))


def naive(packets: list[Packet], overlap: str = "first") -> list[NaiveConnection]:
    """The same packets put together offline."""
    seen = [
        Seen(
            packet.port,
            packet.endpoint_index,
            packet.sequence % WRAP,
            packet.acknowledgement % WRAP,
            packet.flags & (SYN | FIN | ACK | RST),
            packet.payload[: packet.captured],
            len(packet.payload),
        )
        for packet in packets
    ]
    return reassemble(seen, overlap)


def assert_like_naive(
    released: Released, packets: list[Packet], overlap: str = "first"
) -> list[NaiveConnection]:
    """Every stream of every connection equals the one put together offline."""
    connections = naive(packets, overlap)
    assert len(released.connections) == len(connections)
    for number, connection in enumerate(connections):
        # Without a SYN the first speaker is side 0.
        first = int(released.connections[number]["ports"][0] == BROKER_PORT)
        for endpoint_index in (0, 1):
            expected = [StreamRange(*part) for part in connection.sides[endpoint_index].parts()]
            assert released.stream_ranges(number, endpoint_index ^ first) == expected
    return connections
