"""What single packets count as, and what their bytes become."""

import pytest

from dissector.limits import MAX_ACK_REACH, MAX_START_BACK
from dissector.stream.columns import RangeKind
from tests.wire.packets import FIN, PSH, URG
from tests.wire.segments import FIN_ACK, SMALL, Packet, StreamRange, handshake, streamed


def after_handshake(*packets: Packet, overlap: str = "first"):
    """A handshake with side 0 at 1001, side 1 at 5001, and what comes then."""
    return streamed([*handshake(), *packets], SMALL._replace(overlap=overlap))


def test_a_retransmission_is_counted_and_gives_no_byte_twice() -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abcdef", 5001), Packet(210, 0, 1001, b"abcdef", 5001)
    )
    assert released.data() == b"abcdef"
    assert released.counted() == {"retransmitted": 1}
    assert released.connections[0]["history"] == "ShADT"
    assert released.direction()["payload_bytes"] == 12


@pytest.mark.parametrize(
    ("start", "payload"),
    [(1001, b"ab"), (1003, b"cd"), (1005, b"ef"), (1001, b"abcdef"), (1003, b"cdefgh"),
     (1001, b"abcdefgh")],
    ids=["front", "middle", "end", "whole", "beyond", "longer"],
)  # fmt: skip
def test_a_retransmission_may_have_other_bounds(start: int, payload: bytes) -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abcdef", 5001), Packet(210, 0, start, payload, 5001)
    )
    assert released.data() == (b"abcdefgh" if payload.endswith(b"h") else b"abcdef")
    assert released.counted() == {"retransmitted": 1}


def test_a_copy_of_the_tap_is_no_retransmission() -> None:
    once = Packet(10, 0, 1001, b"abcdef", 5001, ip_id=7)
    released = after_handshake(once, once._replace(ms=10.1), once._replace(ms=40))
    assert released.data() == b"abcdef"
    assert released.counted() == {"duplicate": 2}
    assert released.direction()["packets"] == 5


def test_out_of_order_is_no_retransmission() -> None:
    released = after_handshake(Packet(10, 0, 1004, b"def", 5001), Packet(11, 0, 1001, b"abc", 5001))
    assert released.data() == b"abcdef"
    assert released.counted() == {"out_of_order": 1}


def test_a_segment_that_fills_a_hole_and_repeats_bytes_was_sent_again() -> None:
    released = after_handshake(
        Packet(10, 0, 1004, b"def", 5001), Packet(80, 0, 1001, b"abcd", 5001)
    )
    assert released.data() == b"abcdef"
    assert released.counted() == {"retransmitted": 1}


@pytest.mark.parametrize("payload", [b"", b"\0", b"f"], ids=["empty", "made up", "true"])
def test_a_keep_alive_is_counted_and_its_byte_means_nothing(payload: bytes) -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abcdef", 5001), Packet(8000, 0, 1006, payload, 5001),
        Packet(9000, 0, 1007, b"ghi", 5001),
    )  # fmt: skip
    assert released.data() == b"abcdefghi"
    assert released.counted() == {"keepalive": 1}
    assert released.codes() == []


def test_a_keep_alive_before_any_data() -> None:
    released = after_handshake(
        Packet(8000, 0, 1000, b"\0", 5001), Packet(9000, 0, 1001, b"abc", 5001)
    )
    assert released.stream_ranges() == [StreamRange("data", 0, 3, b"abc")]
    assert released.counted() == {"keepalive": 1}


@pytest.mark.parametrize("last", [b"f", b"ef"], ids=["one byte", "two bytes"])
def test_the_last_byte_may_be_overtaken_by_its_fin(last: bytes) -> None:
    start = b"abcdef"[: -len(last)]
    released = after_handshake(
        Packet(10, 0, 1001, start, 5001),
        Packet(11, 0, 1007, b"", 5001, FIN_ACK),
        Packet(12, 0, 1007 - len(last), last, 5001),
    )
    assert released.stream_ranges() == [StreamRange("data", 0, 6, b"abcdef")]
    assert released.counted() == {"out_of_order": 1}


def test_a_keep_alive_after_a_fin_has_the_number_of_the_fin() -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 0, 1004, b"", 5001, FIN_ACK),
        Packet(8000, 0, 1004, b"", 5001),
    )
    assert released.data() == b"abc"
    assert released.counted() == {"keepalive": 1}


def test_a_window_probe_takes_the_next_byte_and_no_byte_comes_twice() -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 1, 5001, b"", 1004, window=0),
        Packet(300, 0, 1004, b"d", 5001),
        Packet(301, 1, 5001, b"", 1004, window=0),
        Packet(800, 0, 1004, b"d", 5001),
        Packet(801, 1, 5001, b"", 1004, window=500),
        Packet(802, 0, 1004, b"defgh", 5001),
    )
    assert released.data() == b"abcdefgh"
    assert released.direction(0, 1)["zero_window_ns"] == 790_000_000
    assert released.direction(0, 0)["zero_window_ns"] == 0
    assert released.counted() == {"keepalive": 1, "retransmitted": 1}
    assert released.connections[0]["history"] == "ShADawT"


def test_a_zero_window_ends_with_any_later_window() -> None:
    released = after_handshake(
        Packet(10, 1, 5001, b"", 1001, window=0),
        Packet(20, 1, 5001, b"xyz", 1001, window=10),
        Packet(30, 1, 5004, b"", 1001, window=0),
        Packet(31, 1, 5004, b"", 1001, window=0),
        Packet(36, 1, 5004, b"", 1001, window=9),
    )
    assert released.direction(0, 1)["zero_window_ns"] == 16_000_000


def test_a_cut_payload_is_no_loss_and_no_reordering() -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"a" * 100, 5001, captured=30),
        Packet(11, 0, 1101, b"b" * 100, 5001, captured=0),
        Packet(12, 0, 1201, b"c" * 10, 5001),
    )
    assert released.stream_ranges() == [
        StreamRange("data", 0, 30, b"a" * 30), StreamRange("cut", 30, 170),
        StreamRange("data", 200, 10, b"c" * 10)
    ]  # fmt: skip
    assert released.counted() == {}
    assert released.direction()["snaplen_cut_bytes"] == 170
    cut = [row for row in released.ranges if row["kind"] == RangeKind.GAP_CUT]
    assert [(row["packet"], row["length"]) for row in cut] == [(4, 70), (5, 100)]


def test_a_cut_payload_waits_like_any_other() -> None:
    released = after_handshake(
        Packet(11, 0, 1101, b"b" * 100, 5001, captured=40),
        Packet(12, 0, 1001, b"a" * 100, 5001, captured=10),
    )
    assert released.stream_ranges() == [
        StreamRange("data", 0, 10, b"a" * 10), StreamRange("cut", 10, 90),
        StreamRange("data", 100, 40, b"b" * 40), StreamRange("cut", 140, 60),
    ]  # fmt: skip
    assert released.counted() == {"out_of_order": 1}


@pytest.mark.parametrize("by", [(1 << 30) + 10, -(1 << 30) - 10, 1 << 31])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_segments_far_away_are_a_stream_of_their_own(by: int, count: int) -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abc", 5001),
        *(Packet(11 + n, 0, 1004 + by + 3 * n, b"xyz", 5001) for n in range(count)),
        Packet(20, 0, 1004, b"def", 5001),
    )
    assert released.stream_ranges() == [StreamRange("data", 0, 6, b"abcdef")]
    assert released.stream_ranges(1) == [StreamRange("data", 0, 3 * count, b"xyz" * count)]
    assert released.counted() == {} and released.counted(1) == {}
    assert released.codes() == ["renumbered"]


def test_an_acknowledgement_far_beyond_the_stream_is_not_believed() -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(11, 1, 5001, b"", 1004 + MAX_ACK_REACH + 10),
        Packet(900, 0, 1004, b"def", 5001),
    )
    assert released.stream_ranges() == [StreamRange("data", 0, 6, b"abcdef")]
    assert released.counted(0, 1) == {"stray": 1}


def test_an_old_acknowledgement_says_nothing() -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abcdef", 5001),
        Packet(11, 1, 5001, b"", 1007),
        Packet(12, 1, 5001, b"", 1004),
        Packet(13, 0, 1007, b"ghi", 5001),
    )
    assert released.data() == b"abcdefghi"
    assert released.counted(0, 1) == {}


@pytest.mark.parametrize("flags", [PSH, URG, PSH | URG, 0x40, 0x80, 0x100])
def test_other_flags_change_nothing(flags: int) -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abc", 5001, 0x10 | flags), Packet(11, 0, 1004, b"def", 5001)
    )
    assert released.stream_ranges() == [StreamRange("data", 0, 6, b"abcdef")]


def test_data_behind_the_end_of_its_stream_is_late() -> None:
    released = after_handshake(
        Packet(10, 0, 1001, b"abc", 5001, FIN_ACK), Packet(11, 0, 1004, b"defg", 5001)
    )
    assert released.stream_ranges() == [StreamRange("data", 0, 3, b"abc")]
    assert released.counted() == {"late": 1}
    assert released.direction()["late_bytes"] == 4


def test_data_that_waits_behind_a_fin_found_later_is_late() -> None:
    released = after_handshake(
        Packet(10, 0, 1005, b"efg", 5001), Packet(11, 0, 1001, b"abc", 5001, FIN | 16)
    )
    assert released.stream_ranges() == [StreamRange("data", 0, 3, b"abc")]
    assert released.direction()["late_bytes"] == 3


def test_a_conflict_is_counted_in_bytes_and_said() -> None:
    released = after_handshake(
        Packet(10, 0, 1004, b"def", 5001),
        Packet(11, 0, 1004, b"dXX", 5001),
        Packet(12, 0, 1001, b"abc", 5001),
    )
    assert released.data() == b"abcdef"
    assert released.direction()["conflict_bytes"] == 2
    assert released.codes() == ["overlap_conflict"]
    assert (released.notices[0]["stream_offset"], released.notices[0]["value"]) == (4, 2)


def test_earlier_bytes_of_a_midstream_side_are_welcome_within_reach() -> None:
    packets = [
        Packet(1, 0, 9000, b"jkl", 1),
        Packet(2, 0, 8997, b"ghi", 1),
        Packet(3, 0, 9000 - MAX_START_BACK - 10, b"far", 1),
        Packet(500, 0, 9003, b"mno", 1),
    ]
    released = streamed(packets)
    assert released.stream_ranges() == [StreamRange("data", -3, 9, b"ghijklmno")]


def test_earlier_bytes_come_too_late_once_something_left() -> None:
    packets = [
        Packet(1, 0, 9000, b"jkl", 1),
        Packet(500, 0, 9003, b"mno", 1),
        Packet(501, 0, 8997, b"ghi", 1),
    ]
    released = streamed(packets)
    assert released.stream_ranges() == [StreamRange("data", 0, 6, b"jklmno")]
    assert released.counted() == {"retransmitted": 1}
    assert released.direction()["dropped_bytes"] == 3
