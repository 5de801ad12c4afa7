"""Whatever a tap shows, streams are what was sent: against a naive twin and against the truth."""

import random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.dissector.stream.traffic import Shape, assert_like_naive, conversation
from tests.wire.segments import SMALL, Packet, handshake, streamed

# Chances are drawn from a seed: thousands of single draws would make examples slow.
CHANCE = st.integers(0, 1 << 32).map(random.Random)
SHAPES = {
    "in order": Shape(),
    "reordered": Shape(jitter_ms=90),
    "sent again": Shape(jitter_ms=40, again=0.4),
    "copied by the tap": Shape(jitter_ms=20, copied=0.3),
    "lost": Shape(lost=0.2),
    "lost and sent again": Shape(jitter_ms=40, lost=0.2, again=0.5),
    "cut by the snap length": Shape(cut=0.3, jitter_ms=30),
    "conflicting": Shape(jitter_ms=60, again=0.6, conflicting=0.5),
    "idle": Shape(keepalives=0.2),
    "everything": Shape(
        steps=50, jitter_ms=60, again=0.3, copied=0.2, lost=0.1, cut=0.1, conflicting=0.2
    ),
    "reset": Shape(jitter_ms=50, again=0.3, ending="rst"),
    "never ended": Shape(jitter_ms=50, lost=0.2, ending=""),
    "one direction": Shape(jitter_ms=50, lost=0.2, again=0.2, one_way=True),
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@settings(max_examples=60)
@given(generator=CHANCE)
def test_streams_equal_those_put_together_offline(shape: Shape, generator: random.Random) -> None:
    made = conversation(generator, shape)
    released = streamed(made.packets)
    assert_like_naive(released, made.packets)
    for endpoint_index in (0, 1):
        if shape.lost == shape.cut == shape.conflicting == 0:
            assert released.data(0, endpoint_index) == made.sent[endpoint_index]
        for piece in released.stream_ranges(0, endpoint_index):
            if piece.kind == "data" and not shape.conflicting:
                assert (
                    piece.data
                    == made.sent[endpoint_index][piece.start : piece.start + piece.length]
                )


@pytest.mark.parametrize("seed", range(40))
def test_long_connections_equal_those_put_together_offline(seed: int) -> None:
    generator = random.Random(seed)
    shape = Shape(
        steps=600, jitter_ms=generator.choice([0, 5, 80]), again=0.2, copied=0.1, lost=0.05,
        cut=0.05, conflicting=0.1, pause_ms=generator.choice([0.1, 5, 100]),
    )  # fmt: skip
    made = conversation(generator, shape)
    assert_like_naive(streamed(made.packets), made.packets)


@settings(max_examples=60)
@given(CHANCE, st.lists(st.integers(1, 200), max_size=30))
def test_rows_are_the_same_however_the_input_is_cut(
    generator: random.Random, cuts: list[int]
) -> None:
    shape = Shape(steps=60, jitter_ms=60, again=0.3, copied=0.1, lost=0.1, cut=0.1, pause_ms=30)
    packets = conversation(generator, shape).packets
    whole = streamed(packets)
    for edges in (cuts, range(len(packets))):
        parts = streamed(packets, cuts=edges)
        assert _comparable(parts) == _comparable(whole)
        assert parts.connections == whole.connections
        assert parts.notices == whole.notices


def _comparable(released) -> list[dict]:
    """Ranges without the places of their bytes in buffers."""
    return [
        {name: value for name, value in row.items() if name not in ("offset", "source")}
        for row in released.ranges
    ]


@settings(max_examples=60)
@given(CHANCE)
def test_connections_do_not_mix(generator: random.Random) -> None:
    shape = Shape(steps=20, jitter_ms=60, again=0.3, lost=0.1)
    made = [
        conversation(generator, shape, port=40000 + number, ms=generator.uniform(0, 100))
        for number in range(5)
    ]
    packets = sorted((packet for each in made for packet in each.packets), key=lambda p: p.ms)
    assert_like_naive(streamed(packets), packets)


@settings(max_examples=60)
@given(CHANCE, st.sampled_from([0, 10, 1500]))
def test_ports_are_used_again(generator: random.Random, pause_ms: int) -> None:
    # A number inside the old stream would be taken for an old SYN.
    shape = Shape(steps=10, again=0.2, lost=0.1, jitter_ms=5, pause_ms=1, wraps=0)
    packets: list[Packet] = []
    for _ in range(4):
        ms = packets[-1].ms + 10 + pause_ms if packets else 0
        ending = generator.choice(["fin", "rst", ""])
        made = conversation(generator, _with(shape, ending=ending), ms=ms)
        packets += made.packets
    isns = [packet.sequence for packet in packets if packet.flags == 2]
    assert len(set(isns)) == 4
    released = streamed(packets)
    assert len(assert_like_naive(released, packets)) == 4
    assert all(row["opener"] >= 0 for row in released.connections.values())


def _with(shape: Shape, **values: object) -> Shape:
    return Shape(**{**vars(shape), **values})


@settings(max_examples=60)
@given(CHANCE, st.integers(3, 60))
def test_a_capture_that_begins_in_the_middle(generator: random.Random, skipped: int) -> None:
    """Without segments of one byte, and without empty ones a byte before a side's first data: with
    nothing before it, such a one may be a keep-alive."""
    shape = Shape(least=2, steps=40, jitter_ms=60, again=0.3, copied=0.1)
    packets = conversation(generator, shape).packets[skipped:]
    assume(all(len(packet.payload) != 1 for packet in packets))  # what is sent again is cut anew
    starts = {
        (
            endpoint_index,
            min(
                each.sequence
                for each in packets
                if each.endpoint_index == endpoint_index and each.payload
            )
            - 1,
        )
        for endpoint_index in {packet.endpoint_index for packet in packets if packet.payload}
    }
    assume(
        all(each.payload or (each.endpoint_index, each.sequence) not in starts for each in packets)
    )
    assert_like_naive(streamed(packets), packets)


@settings(max_examples=60)
@given(CHANCE)
def test_the_last_copy_wins_where_it_was_asked_for_and_nothing_left_yet(
    generator: random.Random,
) -> None:
    shape = Shape(steps=30, jitter_ms=50, again=0.6, conflicting=0.5, pause_ms=3)
    made = conversation(generator, shape)
    start = [packet.sequence + 1 for packet in made.packets[:2]]
    waiting = []
    for packet in made.packets:
        if packet.payload and packet.sequence == start[packet.endpoint_index]:
            # The first byte of either side comes last, so that everything else waits,
            packet = packet._replace(sequence=packet.sequence + 1, payload=packet.payload[1:])
        if packet.payload:
            # and without acknowledgements no hole is given up before.
            waiting.append(packet._replace(acknowledgement=start[1 - packet.endpoint_index]))
    last_ms = waiting[-1].ms
    firsts = [
        Packet(
            last_ms,
            endpoint_index,
            start[endpoint_index],
            made.sent[endpoint_index][:1],
            start[1 - endpoint_index],
        )
        for endpoint_index in (0, 1)
    ]
    packets = [*made.packets[:2], *waiting, *firsts]
    assert_like_naive(streamed(packets, SMALL._replace(overlap="last")), packets, "last")
    assert_like_naive(streamed(packets, SMALL._replace(overlap="first")), packets, "first")


def test_more_than_four_gigabytes_keep_counting() -> None:
    """Offsets go on past 2^32 although sequence numbers begin anew."""
    packets = handshake(isn=0)
    step = 60 << 20  # most of each is never captured, but acknowledged
    numbers = range(100)
    for number in numbers:
        at = 1 + step * number
        packets.append(Packet(10 + 500 * number, 0, at, bytes([number]), 5001))
        packets.append(Packet(11 + 500 * number, 1, 5001, b"", at + step))
    released = streamed(packets)
    pieces = released.stream_ranges(0, 0)
    assert [piece.start for piece in pieces if piece.kind == "data"] == [
        step * number for number in numbers
    ]
    assert released.data(0, 0) == bytes(numbers)
    assert sum(piece.length for piece in pieces) == 100 * step > 1 << 32
