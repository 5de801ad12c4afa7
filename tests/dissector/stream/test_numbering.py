"""Which numbers belong to a stream: windows, other streams of its addresses, two numberings."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import LEAST_REACH_BYTES, NULL
from dissector.stream.numbering import NO_SCALE, window_scale
from dissector.stream.segment import Segment
from tests.dissector.stream.traffic import Shape, conversation
from tests.wire.packets import RST, SYN
from tests.wire.segments import SYN_ACK, Packet, StreamRange, handshake, streamed

ABC = Packet(10, 0, 1001, b"abc", 5001)
NUMBERS = st.one_of(
    st.sampled_from([1, -1, 1000, -1000, 123_456_789, (1 << 31) - 1, -(1 << 31)]),
    st.integers(-(1 << 31), (1 << 31) - 1),
)


@pytest.mark.parametrize(
    ("options", "scale"),
    [(b"", NO_SCALE), (b"\3\3\7\0", 7), (b"\1\1\3\3\x0e\0\0\0", 14), (b"\3\3\xff\0", 14),
     (b"\2\4\5\xb4\3\3\0\0", 0), (b"\0\3\3\7", NO_SCALE), (b"\3\0\0\0", NO_SCALE),
     (b"\3\x09\1\1", NO_SCALE)],
)  # fmt: skip
def test_the_scale_of_windows_is_read(options: bytes, scale: int) -> None:
    data = np.frombuffer(bytes(20) + options, np.uint8).copy()
    segment = Segment(1, 0, 0, len(data), 0, 0, 0, 0, SYN, 0, 0, 0, len(data))
    assert window_scale(segment, data) == scale
    assert window_scale(segment._replace(header_bytes=0), data) == NULL


def opened(scale: int | None = None, other: int | None = None) -> list[Packet]:
    """A handshake whose SYNs name scales."""
    syn, answer, last = (each._replace(checksum="right") for each in handshake())
    return [syn._replace(scale=scale), answer._replace(scale=other), last]


@pytest.mark.parametrize(
    ("scales", "reach"),
    [((None, None), LEAST_REACH_BYTES), ((7, None), LEAST_REACH_BYTES), ((2, 9), 65535 << 9),
     ((9, 2), LEAST_REACH_BYTES), ((0, 14), 65535 << 14)],
)  # fmt: skip
def test_payload_beyond_every_window_is_another_stream(
    scales: tuple[int | None, int | None], reach: int
) -> None:
    """The scale that counts is that of the host that announces the windows."""
    inside = Packet(11, 0, 1004 + reach, b"xyz", 5001)
    last = Packet(12, 1, 5001, b"", 1007 + reach)
    released = streamed([*opened(*scales), ABC, inside, last])
    assert len(released.connections) == 1
    released = streamed([*opened(*scales), ABC, inside._replace(sequence=1005 + reach), last])
    assert released.stream_ranges(0) == [StreamRange("data", 0, 3, b"abc")]
    assert released.stream_ranges(1) == [StreamRange("data", 0, 3, b"xyz")]
    assert released.codes() == ["renumbered"]


def test_without_its_syns_a_stream_may_reach_as_far_as_any_window() -> None:
    middle = [Packet(0, 0, 1001, b"abc", 5001), Packet(1, 1, 5001, b"", 1004)]
    far = Packet(300, 0, 1004 + (65535 << 14), b"xyz", 5001)
    assert len(streamed([*middle, far]).connections) == 1
    assert len(streamed([*middle, far._replace(sequence=far.sequence + 1)]).connections) == 2


def test_both_directions_of_another_stream_find_each_other() -> None:
    by, back = 1_500_000_000, -1_600_000_000
    other = [
        Packet(20 + n, n % 2, (1001 + by, 5001 + back)[n % 2] + 3 * (n // 2), b"xyz",
               (5001 + back, 1001 + by)[n % 2] + 3 * ((n + 1) // 2))
        for n in range(8)
    ]  # fmt: skip
    mine = [Packet(30, 1, 5001, b"def", 1004), Packet(31, 0, 1004, b"ghi", 5004)]
    released = streamed([*handshake(), ABC, *other, *mine])
    assert len(released.connections) == 2
    assert (released.data(0, 0), released.data(0, 1)) == (b"abcghi", b"def")
    assert (released.data(1, 0), released.data(1, 1)) == (b"xyz" * 4, b"xyz" * 4)
    assert released.codes() == ["renumbered"]


@settings(max_examples=150, derandomize=True, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(
        st.tuples(
            st.sampled_from(["ack", "answer", "syn", "reset", "reset without"]),
            st.integers(0, 1), NUMBERS, NUMBERS,
        ),
        min_size=1, max_size=6,
    ),
    st.booleans(),
)  # fmt: skip
def test_packets_before_the_handshake_change_no_byte(
    seed: int, before: list[tuple[str, int, int, int]], has_syn: bool
) -> None:
    """Whatever their numbers are, whoever sent them, and whether the SYN stands before them too."""
    made = conversation(random.Random(seed), Shape(steps=12))
    mine, theirs = (packet.sequence for packet in made.packets[:2])
    flags = {"ack": 16, "answer": SYN_ACK, "syn": SYN, "reset": RST | 16, "reset without": RST}
    lead = [made.packets[0]._replace(ms=-100, ip_id=9000)] if has_syn else []
    for n, (kind, endpoint_index, by, acked) in enumerate(before):
        numbers = (
            (mine + by, theirs + acked) if endpoint_index == 0 else (theirs + by, mine + acked)
        )
        packet = Packet(-90 + 10 * n, endpoint_index, numbers[0], b"", numbers[1], flags[kind])
        lead.append(packet._replace(ip_id=9001 + n, port=made.packets[0].port))
    released = streamed([*lead, *made.packets])
    last = max(released.connections)
    swapped = released.connections[last]["ports"][0] == 6650
    pieces = [released.stream_ranges(last, endpoint_index ^ swapped) for endpoint_index in (0, 1)]
    assert [b"".join(piece.data for piece in each) for each in pieces] == [*made.sent]
    assert all(piece.kind != "lost" for each in pieces for piece in each)
    assert all(
        each["gap_bytes"] == 0 for row in released.connections.values() for each in row["sides"]
    )


@settings(max_examples=60, derandomize=True, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(5_000_000, (1 << 32) - 5_000_000),
    st.integers(5_000_000, (1 << 32) - 5_000_000),
    st.integers(0, 20),
)
def test_both_numberings_of_a_box_give_every_byte_once(
    seed: int, by: int, back: int, start: int
) -> None:
    """Also where the capture begins within."""
    made = conversation(random.Random(seed), Shape(steps=30, wraps=0))
    packets = [packet._replace(ip_id=77 + n) for n, packet in enumerate(made.packets)][start:]
    shifts = (by, back)
    both: list[Packet] = []
    for packet in packets:
        acknowledged = (
            packet.acknowledgement + shifts[1 - packet.endpoint_index] if packet.flags & 16 else 0
        )
        copy = packet._replace(
            ms=packet.ms + 0.02, sequence=packet.sequence + shifts[packet.endpoint_index],
            acknowledgement=acknowledged,
        )  # fmt: skip
        both += [packet, copy]
    whole = streamed(packets)
    released = streamed(both)
    assert len(released.connections) == len(whole.connections)
    for endpoint_index in (0, 1):
        assert released.data(0, endpoint_index) == whole.data(0, endpoint_index)
        assert (
            released.direction(0, endpoint_index)["gap_bytes"]
            == whole.direction(0, endpoint_index)["gap_bytes"]
        )
    assert released.codes().count("two_numberings") == 1
