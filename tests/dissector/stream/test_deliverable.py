"""A hole is given up on evidence, never by chance, and at a time that the packets tell."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.limits import MAX_UNCONFIRMED_HOLE
from dissector.stream.columns import RangeKind
from tests.wire.segments import SMALL, Packet, StreamRange, handshake, streamed

WINDOW_MS = SMALL.reorder_window_ms
UNACKED_MS = SMALL.unacked_hole_ms


def hole(at: float = 10) -> list[Packet]:
    """A handshake, three bytes, and six bytes behind a hole of three."""
    return [
        *handshake(),
        Packet(at, 0, 1001, b"abc", 5001),
        Packet(at, 0, 1007, b"ghijkl", 5001),
    ]


def gap_at(packets: list[Packet]) -> float | None:
    """The time of the packet that let the only gap of side 0 out; None: the end of the capture."""
    released = streamed(packets)
    assert released.stream_ranges(0, 0) == [
        StreamRange("data", 0, 3, b"abc"), StreamRange("lost", 3, 3),
        StreamRange("data", 6, 6, b"ghijkl")
    ]  # fmt: skip
    times = released.times(RangeKind.GAP_LOST)
    before = streamed(packets, is_finished=False).times(RangeKind.GAP_LOST)
    assert len(times) == 1 and before in ([], times)
    return packets[times[0] - 1].ms if before else None


def ticks(start: float, end: float, step: float = 20) -> list[Packet]:
    """Packets of another connection that only move the clock."""
    times = [start + step * number for number in range(int((end - start) / step) + 1)]
    return [Packet(ms, 0, 1, b"", 1, port=50000) for ms in times]


def test_an_acknowledged_hole_is_given_up_a_window_after_it_opened() -> None:
    packets = [*hole(), Packet(12, 1, 5001, b"", 1013), *ticks(15, 1000)]
    at = gap_at(packets)
    assert at is not None and 10 + WINDOW_MS <= at < 10 + WINDOW_MS + 20


def test_an_acknowledgement_of_less_than_the_hole_is_no_evidence() -> None:
    packets = [*hole(), Packet(12, 1, 5001, b"", 1006), *ticks(15, 5000)]
    assert gap_at(packets) is None


def test_an_acknowledgement_that_comes_late_starts_a_window_of_its_own() -> None:
    packets = [*hole(), *ticks(15, 1500), Packet(1510, 1, 5001, b"", 1013), *ticks(1515, 3000)]
    at = gap_at(packets)
    assert at is not None and 1510 + WINDOW_MS <= at < 1510 + WINDOW_MS + 25


def test_the_other_side_talking_is_no_evidence() -> None:
    talk = [Packet(20 + 20 * number, 1, 5001 + number, b"x", 1004) for number in range(100)]
    assert gap_at([*hole(), *talk]) is None


def test_an_unacknowledged_hole_is_given_up_after_its_longer_bound() -> None:
    at = gap_at([*hole(), *ticks(15, UNACKED_MS + 2000, 1000)])
    assert at is not None and 10 + UNACKED_MS <= at <= 10 + UNACKED_MS + 1010


def test_where_the_peer_was_not_captured_nobody_can_acknowledge() -> None:
    packets = [packet for packet in hole() if packet.endpoint_index == 0] + ticks(15, 1000)
    at = gap_at(packets)
    assert at is not None and 10 + WINDOW_MS <= at < 10 + WINDOW_MS + 25


def test_data_that_fills_a_part_of_the_hole_gives_it_more_time() -> None:
    packets = [
        *hole(),
        Packet(12, 1, 5001, b"", 1013),
        *ticks(15, 150),
        Packet(160, 0, 1004, b"d", 5001),
        *ticks(165, 1000, 5),
    ]
    released = streamed(packets)
    assert released.stream_ranges(0, 0) == [
        StreamRange("data", 0, 4, b"abcd"), StreamRange("lost", 4, 2),
        StreamRange("data", 6, 6, b"ghijkl")
    ]  # fmt: skip
    at = packets[released.times(RangeKind.GAP_LOST)[0] - 1].ms
    assert 160 + WINDOW_MS <= at <= 165 + WINDOW_MS


def test_the_packet_in_hand_is_never_given_up() -> None:
    """The missing bytes come with the very packet that would end the wait."""
    packets = [*hole(), Packet(12, 1, 5001, b"", 1013), Packet(5000, 0, 1004, b"def", 5001)]
    released = streamed(packets)
    assert released.stream_ranges(0, 0) == [StreamRange("data", 0, 12, b"abcdefghijkl")]
    assert released.counted(0, 0) == {"out_of_order": 1}


def test_bytes_that_come_after_their_hole_was_given_up_do_not_come_out() -> None:
    packets = [
        *hole(),
        Packet(12, 1, 5001, b"", 1013),
        *ticks(15, 1000),
        Packet(1001, 0, 1004, b"def", 5001),
    ]
    released = streamed(packets)
    assert [piece.kind for piece in released.stream_ranges(0, 0)] == ["data", "lost", "data"]
    assert released.counted(0, 0) == {"out_of_order": 1}


def test_acknowledged_bytes_behind_everything_seen_are_a_gap() -> None:
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 1, 5001, b"", 1104),
        Packet(12, 0, 1104, b"", 5001),
        *ticks(15, 1000, 5),
    ]
    released = streamed(packets)
    assert released.stream_ranges(0, 0) == [
        StreamRange("data", 0, 3, b"abc"),
        StreamRange("lost", 3, 100),
    ]
    at = packets[released.times(RangeKind.GAP_LOST)[0] - 1].ms
    assert 11 + WINDOW_MS <= at <= 16 + WINDOW_MS


@pytest.mark.parametrize("data", [b"", b"def"], ids=["bare", "data"])
def test_bytes_that_nobody_sent_are_not_lost(data: bytes) -> None:
    """The sender goes on where it was: what its peer acknowledged beyond that it never sent."""
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 1, 5001, b"", 1104),
        *ticks(15, 1000, 50),
        Packet(1000, 0, 1004, data, 5001),
        Packet(1001, 1, 5001, b"", 1004 + len(data)),
    ]
    assert streamed(packets).stream_ranges(0, 0) == [
        StreamRange("data", 0, 3 + len(data), b"abc" + data)
    ]


def test_the_last_bytes_that_were_acknowledged_are_lost_at_the_end() -> None:
    packets = [*handshake(), Packet(10, 0, 1001, b"abc", 5001), Packet(11, 1, 5001, b"", 1104)]
    assert streamed(packets).stream_ranges(0, 0) == [
        StreamRange("data", 0, 3, b"abc"),
        StreamRange("lost", 3, 100),
    ]


def test_one_acknowledged_byte_more_may_be_a_fin() -> None:
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 1, 5001, b"", 1005),
        *ticks(15, 1000),
    ]
    assert streamed(packets).stream_ranges(0, 0) == [StreamRange("data", 0, 3, b"abc")]


def test_acknowledgements_seen_before_their_data_are_no_loss() -> None:
    packets = list(handshake())
    for number in range(50):
        at = 10 + 30 * number
        packets.append(Packet(at, 1, 5001, b"", 1001 + 10 * number + 10))
        packets.append(Packet(at + 25, 0, 1001 + 10 * number, bytes(10), 5001))
    released = streamed(packets)
    assert released.stream_ranges(0, 0) == [StreamRange("data", 0, 500, bytes(500))]
    assert released.codes() == []


def test_a_byte_that_opens_a_capture_is_that_of_a_keep_alive() -> None:
    """Unless something stands before it, or it is sent again with more behind it."""
    opening = Packet(1, 0, 9000, b"x", 1)
    later = Packet(300, 0, 9001, b"frames", 1)
    released = streamed([opening, later])
    assert released.stream_ranges() == [StreamRange("data", 1, 6, b"frames")]
    assert released.counted() == {"keepalive": 1}
    assert streamed([opening]).stream_ranges() == []
    before = Packet(2, 0, 8998, b"ab", 1)
    assert streamed([opening, before, later]).data() == b"abxframes"
    again = Packet(300, 0, 9000, b"xframes", 1)
    assert streamed([opening, again]).data() == b"xframes"


def test_at_the_end_of_the_capture_every_hole_is_given_up() -> None:
    assert gap_at(hole()) is None


@pytest.mark.parametrize("late_ms", [0, 50, 190])
def test_an_answer_waits_while_the_other_direction_has_a_hole(late_ms: float) -> None:
    packets = [
        *handshake(),
        Packet(11, 0, 1004, b"def", 5001),
        Packet(12, 1, 5001, b"answer", 1007),
        Packet(12 + late_ms, 0, 1001, b"abc", 5001),
    ]
    released = streamed(packets)
    order = [
        (row["endpoint_index"], row["data"], row["release_packet"])
        for row in released.ranges
        if row["kind"] == RangeKind.DATA
    ]
    # By turn: the question is whole only with the packet that came after the answer.
    assert order == [(1, b"answer", 6), (0, b"abc", 6), (0, b"def", 6)]


def test_the_other_direction_waits_no_longer_than_a_window() -> None:
    packets = [*hole()]
    packets += [Packet(20 + 20 * n, 1, 5001 + n, b"x", 1004) for n in range(50)]
    output = streamed(packets)
    released = output.times(RangeKind.DATA, endpoint_index=1)
    waits = [packets[at - 1].ms - (20 + 20 * n) for n, at in enumerate(released[:50])]
    assert max(waits) <= WINDOW_MS + 20
    assert waits[-1] == 0


def test_a_lone_segment_far_ahead_is_not_believed() -> None:
    far = 1004 + MAX_UNCONFIRMED_HOLE + 10
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 0, far, b"zzz", 5001),
        *ticks(15, UNACKED_MS + 2000, 1000),
        Packet(UNACKED_MS + 3000, 0, 1004, b"def", 5001),
    ]
    released = streamed(packets)
    assert released.stream_ranges(0, 0) == [StreamRange("data", 0, 6, b"abcdef")]
    assert released.codes() == ["sequence_jump"]
    assert released.counted(0, 0) == {"stray": 1}


def test_a_long_hole_is_believed_when_it_is_acknowledged_or_goes_on() -> None:
    far = 1004 + MAX_UNCONFIRMED_HOLE + 10
    packets = [*handshake(), Packet(10, 0, 1001, b"abc", 5001)]
    packets += [Packet(11 + n, 0, far + 3 * n, b"xyz", 5001) for n in range(4)]
    packets += ticks(20, UNACKED_MS + 2000, 1000)
    pieces = streamed(packets).stream_ranges(0, 0)
    assert [(piece.kind, piece.length) for piece in pieces] == [
        ("data", 3), ("lost", MAX_UNCONFIRMED_HOLE + 10), ("data", 12)
    ]  # fmt: skip


def order(packets: list[Packet]) -> list[tuple[int, str, int, int]]:
    """Side, kind, start and length of what leaves, in order."""
    kinds = {RangeKind.DATA: "data", RangeKind.GAP_LOST: "lost"}
    return [
        (row["endpoint_index"], kinds[row["kind"]], row["stream_offset"], row["length"])
        for row in streamed(packets).ranges
        if row["kind"] in kinds
    ]


def test_what_is_missing_stands_before_what_answers_it() -> None:
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(12, 1, 5001, b"answer", 1007),  # of three bytes more than were captured
        Packet(13, 0, 1007, b"ghi", 5007),
        *ticks(15, 1000),
    ]
    assert order(packets) == [
        (0, "data", 0, 3), (0, "lost", 3, 3), (1, "data", 0, 6), (0, "data", 6, 3),
    ]  # fmt: skip


@pytest.mark.parametrize("acked_ms", [(), (11,)], ids=["by it", "before it"])
def test_also_where_nothing_was_captured_behind_it(acked_ms: tuple[float, ...]) -> None:
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        *(Packet(ms, 1, 5001, b"", 1007) for ms in acked_ms),
        Packet(12, 1, 5001, b"answer", 1007),
        Packet(13, 0, 1007, b"", 5007),
        *ticks(15, 1000),
    ]
    assert order(packets) == [(0, "data", 0, 3), (0, "lost", 3, 3), (1, "data", 0, 6)]


def test_what_may_have_been_sent_behind_an_answer_stands_behind_it() -> None:
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(12, 1, 5001, b"answer", 1007),
        Packet(13, 0, 1017, b"xyz", 5007),
        Packet(14, 1, 5007, b"", 1020),
        *ticks(15, 1000),
    ]
    assert order(packets) == [
        (0, "data", 0, 3), (0, "lost", 3, 3), (1, "data", 0, 6),
        (0, "lost", 6, 10), (0, "data", 16, 3),
    ]  # fmt: skip


def test_a_hole_stands_behind_what_came_before_the_first_bytes_behind_it() -> None:
    """Also where all of it leaves at once, because another hole was waited for."""
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 1, 5004, b"second", 1004),  # three bytes before are missing
        Packet(12, 0, 1004, b"def", 5001),
        Packet(13, 1, 5010, b"third", 1007),
        Packet(14, 0, 1010, b"jkl", 5001),  # three bytes before are missing
        Packet(15, 1, 5015, b"", 1013),
        Packet(16, 0, 1013, b"", 5015),
        *ticks(20, 1000),
    ]
    sides = [(side, start) for side, kind, start, _ in order(packets) if kind == "data"]
    assert sides == [(0, 0), (1, 3), (0, 3), (1, 9), (0, 9)]
    assert order(packets).index((0, "lost", 6, 3)) > order(packets).index((1, "data", 9, 5))


def test_an_answer_to_what_nobody_proves_waits_no_longer_than_a_window() -> None:
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(12, 1, 5001, b"answer", 1007),
        *ticks(15, 1000, 5),
    ]
    output = streamed(packets)
    (at,) = output.times(RangeKind.DATA, endpoint_index=1)
    assert 12 + WINDOW_MS <= packets[at - 1].ms <= 12 + WINDOW_MS + 5
    assert order(packets) == [(0, "data", 0, 3), (1, "data", 0, 6), (0, "lost", 3, 3)]


@given(st.lists(st.tuples(
    st.floats(0, 50), st.integers(0, 1), st.integers(0, 80), st.integers(0, 40),
    st.integers(0, 160),
), max_size=60), st.integers(200, 2000))  # fmt: skip
def test_whatever_is_acknowledged_and_missing_an_end_is_reached(
    sent: list[tuple[float, int, int, int, int]], held_bytes: int
) -> None:
    """Also where the bounds hold next to nothing. Times, sides, offsets, bytes and numbers that are
    acknowledged are those of no honest host."""
    at, packets = 10.0, [*handshake()]
    for pause, side, offset, size, acknowledged in sent:
        at += pause
        number = (1001, 5001)[side] + offset
        packets.append(Packet(at, side, number, bytes(size), (5001, 1001)[side] + acknowledged))
    options = SMALL._replace(held_bytes_per_connection=held_bytes, held_bytes=2 * held_bytes)
    released = streamed(packets, options)
    assert len(released.connections) == 1
    for side in (0, 1):
        for one, next_one in pairwise(released.stream_ranges(0, side)):
            assert one.start + one.length == next_one.start
