"""Streams under random damage against the plain reassembler that knows the whole capture.

Whatever is done to the packets within the reorder window: the same ranges come out, and no byte
that was not sent. `streamed` sees to it that pieces follow on each other and sums agree.
"""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dissector.stream.traffic import Made, Shape, assert_like_naive, conversation
from tests.wire.packets import ACK, BROKER_PORT
from tests.wire.segments import Packet, Released, streamed

CHANCE = st.integers(0, 1 << 32).map(random.Random)
SHAPE = Shape(least=4, steps=30, pause_ms=3)
WRAP = 1 << 32
Damage = Callable[[random.Random, Made, list[Packet]], list[Packet]]


def _is_data(packet: Packet) -> bool:
    return packet.flags == ACK and len(packet.payload) >= 4


def _new_id(generator: random.Random) -> int:
    return generator.randrange(20_000, 60_000)


def reorder(generator: random.Random, _made: Made, packets: list[Packet]) -> list[Packet]:
    """Each packet is captured up to 60 ms after it was sent."""
    return [packet._replace(ms=packet.ms + generator.uniform(0, 60)) for packet in packets]


def duplicate(generator: random.Random, _made: Made, packets: list[Packet]) -> list[Packet]:
    """The tap shows packets again, up to 30 ms later."""
    copies = [packet for packet in packets if generator.random() < 0.3]
    return packets + [each._replace(ms=each.ms + generator.uniform(0, 30)) for each in copies]


def drop(generator: random.Random, _made: Made, packets: list[Packet]) -> list[Packet]:
    """Packets with data are not captured."""
    return [each for each in packets if not (_is_data(each) and generator.random() < 0.15)]


def resegment(generator: random.Random, _made: Made, packets: list[Packet]) -> list[Packet]:
    """Segments come in two parts, in either order."""
    segments: list[Packet] = []
    for packet in packets:
        if not _is_data(packet) or generator.random() < 0.5:
            segments.append(packet)
            continue
        at = generator.randrange(2, len(packet.payload) - 1)
        front = packet._replace(payload=packet.payload[:at])
        back = packet._replace(
            payload=packet.payload[at:], sequence=packet.sequence + at, ip_id=_new_id(generator)
        )
        segments += [front, back] if generator.random() < 0.5 else [back, front]
    return segments


def overlap(generator: random.Random, made: Made, packets: list[Packet]) -> list[Packet]:
    """Segments begin earlier and end later than they did: true bytes, sent again in part."""
    isn = {
        packet.endpoint_index: packet.sequence for packet in reversed(packets) if packet.flags & 2
    }
    overlapping = []
    for packet in packets:
        if _is_data(packet) and generator.random() < 0.4:
            sent = made.sent[packet.endpoint_index]
            start = (packet.sequence - isn[packet.endpoint_index] - 1) % WRAP
            end = start + len(packet.payload)
            first = max(0, start - generator.randrange(60))
            last = min(len(sent), end + generator.randrange(10))
            # Bytes not sent yet when this left may not be acknowledged too early: none are lost.
            packet = packet._replace(
                sequence=packet.sequence - (start - first), payload=sent[first:last]
            )
        overlapping.append(packet)
    return overlapping


def snaplen(generator: random.Random, _made: Made, packets: list[Packet]) -> list[Packet]:
    """No packet has more than some bytes of its payload."""
    length = generator.randrange(0, 40)
    return [each._replace(captured=min(length, len(each.payload))) for each in packets]


DAMAGES: dict[str, Damage] = {
    each.__name__: each for each in (reorder, duplicate, drop, resegment, overlap, snaplen)
}


def damaged(generator: random.Random, made: Made, names: list[str]) -> list[Packet]:
    """A conversation's packets with damage upon damage, in the order of their capture."""
    packets = made.packets
    for name in names:
        packets = DAMAGES[name](generator, made, packets)
    return sorted(packets, key=lambda packet: packet.ms)


def first_side(released: Released) -> int:
    """1 if the broker's packets were taken for side 0: they came before the client's SYN."""
    return int(released.connections[0]["ports"][0] == BROKER_PORT)


def assert_sent(made: Made, packets: list[Packet]) -> None:
    """What comes out is what the plain reassembler says, and was sent."""
    released = streamed(packets)
    assert_like_naive(released, packets)
    first = first_side(released)
    for endpoint_index in (0, 1):
        for piece in released.stream_ranges(0, endpoint_index ^ first):
            if piece.kind == "data":
                assert (
                    piece.data
                    == made.sent[endpoint_index][piece.start : piece.start + piece.length]
                )


@pytest.mark.parametrize("name", DAMAGES)
@settings(max_examples=60)
@given(generator=CHANCE)
def test_one_kind_of_damage(name: str, generator: random.Random) -> None:
    made = conversation(generator, SHAPE)
    assert_sent(made, damaged(generator, made, [name]))


@settings(max_examples=250)
@given(CHANCE, st.lists(st.sampled_from(sorted(DAMAGES)), min_size=2, max_size=6, unique=True))
def test_damage_upon_damage(generator: random.Random, names: list[str]) -> None:
    made = conversation(generator, SHAPE)
    assert_sent(made, damaged(generator, made, names))


@settings(max_examples=80)
@given(CHANCE)
def test_without_loss_every_byte_comes_out(generator: random.Random) -> None:
    made = conversation(generator, SHAPE)
    packets = damaged(generator, made, ["resegment", "overlap", "duplicate", "reorder"])
    released = streamed(packets)
    first = first_side(released)
    for endpoint_index in (0, 1):
        assert released.data(0, endpoint_index ^ first) == made.sent[endpoint_index]
        assert released.direction(0, endpoint_index ^ first)["gap_bytes"] == 0
