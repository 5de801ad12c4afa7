"""How streams and connections end: FIN is a position, RST needs a place in the window."""

import pytest

from dissector.limits import LINGER_MS, RST_REACH_BYTES
from dissector.stream.columns import RangeKind
from tests.wire.packets import RST
from tests.wire.segments import FIN_ACK, RST_ACK, SMALL, Packet, StreamRange, handshake, streamed

ABC = Packet(10, 0, 1001, b"abc", 5001)
XYZ = Packet(11, 1, 5001, b"xyz", 1004)
FIN_0 = Packet(20, 0, 1004, b"", 5004, FIN_ACK)
FIN_1 = Packet(21, 1, 5004, b"", 1005, FIN_ACK)


def test_two_fins_close_at_once() -> None:
    released = streamed([*handshake(), ABC, XYZ, FIN_0, FIN_1, Packet(22, 0, 1005, b"", 5005)])
    row = released.connections[0]
    assert (row["ended"], row["closed_first"], row["history"]) == ("fin", 0, "ShADdFf")
    assert released.times(RangeKind.CLOSE) == [7]
    assert released.times(RangeKind.FIN) == [6] and released.times(
        RangeKind.FIN, endpoint_index=1
    ) == [7]
    assert row["last_packet"] == 8


def test_the_reset_after_two_fins_changes_nothing() -> None:
    """So ends a Java client."""
    released = streamed([*handshake(), ABC, XYZ, FIN_0, FIN_1, Packet(22, 0, 1005, b"", 0, RST)])
    row = released.connections[0]
    assert (row["ended"], row["history"]) == ("fin", "ShADdFfR")
    assert released.counted() == {} and released.counted(0, 1) == {}


def test_a_fin_waits_for_the_bytes_before_it() -> None:
    released = streamed(
        [*handshake(), FIN_0, FIN_1, Packet(22, 1, 5001, b"xyz", 1005), ABC._replace(ms=30)]
    )
    assert released.data(0, 0) == b"abc" and released.data(0, 1) == b"xyz"
    assert released.times(RangeKind.CLOSE) == [7]
    assert released.connections[0]["ended"] == "fin"


def test_a_fin_may_carry_data() -> None:
    released = streamed([*handshake(), Packet(10, 0, 1001, b"abc", 5001, FIN_ACK)])
    assert released.stream_ranges() == [StreamRange("data", 0, 3, b"abc")]
    assert released.times(RangeKind.FIN) == [4]


def test_one_side_may_go_on_after_the_fin_of_the_other() -> None:
    released = streamed([*handshake(), ABC, FIN_0, XYZ._replace(ms=500), FIN_1._replace(ms=900)])
    assert released.data(0, 1) == b"xyz"
    assert released.connections[0]["ended"] == "fin"


def test_a_repeated_fin_is_sent_again() -> None:
    fin = FIN_0._replace(acknowledgement=5001)
    released = streamed([*handshake(), ABC, fin, fin._replace(ms=300), fin._replace(ms=700)])
    assert released.counted() == {"retransmitted": 2}
    assert released.times(RangeKind.FIN) == [5]


def test_a_fin_below_what_left_is_a_stray() -> None:
    released = streamed([*handshake(), ABC, Packet(20, 0, 1002, b"", 5001, FIN_ACK)])
    assert released.counted() == {"stray": 1}
    assert released.times(RangeKind.FIN) == []
    assert released.connections[0]["ended"] == "capture_end"


def test_data_after_both_fins_belongs_to_no_stream() -> None:
    packets = [*handshake(), ABC, XYZ, FIN_0, FIN_1]
    released = streamed([*packets, ABC._replace(ms=300), Packet(301, 0, 1004, b"late", 5004)])
    assert released.data() == b"abc"
    assert released.counted() == {"retransmitted": 1, "late": 1}
    assert released.direction()["late_bytes"] == 4


def test_a_reset_in_the_window_closes() -> None:
    released = streamed([*handshake(), ABC, XYZ, Packet(20, 1, 5004, b"", 1004, RST_ACK)])
    row = released.connections[0]
    assert (row["ended"], row["closed_first"]) == ("rst", 1)
    assert released.times(RangeKind.CLOSE, endpoint_index=1) == [6]


@pytest.mark.parametrize(
    "sequence", [1004 + RST_REACH_BYTES + 100, 1, 1000], ids=["ahead", "behind", "acknowledged"]
)
def test_a_reset_outside_the_window_is_counted_and_ends_nothing(sequence: int) -> None:
    released = streamed(
        [
            *handshake(),
            ABC,
            XYZ,
            Packet(20, 0, sequence, b"", 0, RST),
            Packet(21, 0, 1004, b"def", 5004),
        ]
    )
    assert released.data() == b"abcdef"
    assert released.counted() == {"stray": 1}
    assert released.connections[0]["ended"] == "capture_end"


def test_the_payload_of_a_reset_is_no_stream() -> None:
    released = streamed([*handshake(), ABC, Packet(20, 0, 1004, b"go away", 5001, RST_ACK)])
    assert released.data() == b"abc"
    assert released.connections[0]["ended"] == "rst"


def test_data_that_a_reset_overtook_has_a_window_to_come() -> None:
    packets = [*handshake(), ABC, Packet(20, 0, 1007, b"", 5001, RST_ACK)]
    released = streamed([*packets, Packet(25, 0, 1004, b"def", 5001)])
    assert released.data() == b"abcdef"
    assert released.times(RangeKind.CLOSE) == [6]
    clock = Packet(20 + SMALL.reorder_window_ms + 1, 0, 1, b"", 1, port=50000)
    released = streamed([*packets, clock, Packet(400, 0, 1004, b"def", 5001)])
    assert released.stream_ranges() == [StreamRange("data", 0, 3, b"abc")]
    assert released.counted() == {"late": 1}


def test_data_after_a_reset_is_late() -> None:
    released = streamed(
        [
            *handshake(),
            ABC,
            Packet(20, 0, 1004, b"", 5001, RST_ACK),
            Packet(21, 0, 1004, b"de", 5001),
        ]
    )
    assert released.data() == b"abc"
    assert (released.counted(), released.direction()["late_bytes"]) == ({"late": 1}, 2)


def test_a_hole_before_a_fin_is_a_gap_when_the_peer_has_it() -> None:
    packets = [*handshake(), FIN_0, Packet(21, 1, 5001, b"", 1005, FIN_ACK)]
    released = streamed([*packets, Packet(500, 0, 1, b"", 1, port=50000)])
    assert released.stream_ranges() == [StreamRange("lost", 0, 3)]
    assert released.connections[0]["ended"] == "fin"
    assert released.times(RangeKind.CLOSE) == [6]


def test_a_closed_connection_lingers_and_then_its_packets_open_another() -> None:
    packets = [*handshake(), ABC, XYZ, FIN_0, FIN_1]
    soon = Packet(1000, 0, 1005, b"", 5005)
    assert len(streamed([*packets, soon]).connections) == 1
    late = Packet(LINGER_MS + 3000, 0, 1005, b"", 5005)
    released = streamed([*packets, late])
    assert [row["ended"] for row in released.connections.values()] == ["fin", "capture_end"]


def test_fins_that_wait_behind_a_late_start_are_the_end() -> None:
    """A side seen from its middle on waits for earlier bytes; the capture may end within that."""
    packets = [
        Packet(0, 0, 1001, b"question", 5001),
        Packet(1, 1, 5001, b"answer", 1009),
        Packet(2, 0, 1009, b"", 5007, flags=FIN_ACK),
        Packet(3, 1, 5007, b"", 1010, flags=FIN_ACK),
        Packet(4, 0, 1010, b"", 5008),
    ]
    released = streamed(packets)
    assert released.connections[0]["ended"] == "fin"
    assert (released.data(0, 0), released.data(0, 1)) == (b"question", b"answer")


@pytest.mark.parametrize(
    ("acknowledgement", "flags"), [(1000, RST_ACK), (0, RST), (77, RST_ACK), (1002, RST_ACK)]
)
def test_a_reset_that_does_not_cover_the_syn_ends_nothing(acknowledgement: int, flags: int) -> None:
    syn, *rest = handshake()
    reset = Packet(0.5, 1, 0, b"", acknowledgement, flags)
    released = streamed([syn, reset, *rest, ABC, XYZ])
    assert (released.data(0, 0), released.data(0, 1)) == (b"abc", b"xyz")
    assert released.connections[0]["ended"] == "capture_end"
    assert released.counted(0, 1) == {"stray": 1}


def test_a_syn_of_a_connection_that_was_reset_before_it_was_open_tries_again() -> None:
    """Also with all numbers of the first attempt."""
    first = [*handshake()[:2], Packet(2, 0, 1001, b"", 0, RST)]
    released = streamed([*first, *handshake(ms=5), ABC, XYZ])
    assert [row["ended"] for row in released.connections.values()] == ["rst", "capture_end"]
    assert (released.data(1, 0), released.data(1, 1)) == (b"abc", b"xyz")


def test_payload_behind_the_end_and_of_a_reset_is_counted_as_dropped() -> None:
    packets = [*handshake(), ABC, Packet(20, 0, 1004, b"go away", 5001, RST_ACK)]
    released = streamed([*packets, Packet(21, 0, 1004, b"de", 5001)])
    assert released.direction()["dropped_bytes"] == 9
