"""Where streams begin: SYNs on time, late, lost, repeated, old, with data, from both sides."""

import pytest

from dissector.limits import NULL
from tests.wire.packets import ACK, RST, SYN
from tests.wire.segments import FIN_ACK, SYN_ACK, Packet, StreamRange, handshake, streamed

ABC = Packet(10, 0, 1001, b"abc", 5001)
XYZ = Packet(11, 1, 5001, b"xyz", 1004)


def test_the_opener_is_side_0_and_the_handshake_is_measured() -> None:
    released = streamed([*handshake(), ABC, XYZ])
    row = released.connections[0]
    assert (row["ports"], row["opener"]) == ([40000, 6650], 0)
    assert row["handshake_rtt_ns"] == 2_000_000
    assert [endpoint_index["isn"] for endpoint_index in row["sides"]] == [1000, 5000]
    assert [endpoint_index["first_seq"] for endpoint_index in row["sides"]] == [1000, 5000]
    assert [endpoint_index["last_seq"] for endpoint_index in row["sides"]] == [1004, 5004]
    assert row["history"] == "ShADd"


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (2, 1, 0), (1, 2, 0), (0, 2, 1)])
def test_handshakes_out_of_order(order: tuple[int, ...]) -> None:
    parts = handshake()
    packets = [parts[place]._replace(ms=ms) for ms, place in enumerate(order)]
    released = streamed([*packets, ABC, XYZ])
    assert len(released.connections) == 1
    assert released.stream_ranges(0, 0) == [StreamRange("data", 0, 3, b"abc")]
    assert released.stream_ranges(0, 1) == [StreamRange("data", 0, 3, b"xyz")]
    row = released.connections[0]
    assert (row["ports"], row["opener"]) == ([40000, 6650], 0)


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_any_one_packet_of_the_handshake_may_be_missing(lost: int) -> None:
    packets = handshake()
    del packets[lost]
    released = streamed([*packets, ABC, XYZ])
    assert released.stream_ranges(0, 0) == [StreamRange("data", 0, 3, b"abc")]
    assert released.stream_ranges(0, 1) == [StreamRange("data", 0, 3, b"xyz")]
    row = released.connections[0]
    assert (row["ports"], row["opener"]) == ([40000, 6650], 0)
    assert [endpoint_index["isn"] for endpoint_index in row["sides"]] == [1000, 5000]
    assert row["handshake_rtt_ns"] == NULL  # the first data says when there was some


def test_a_lost_start_behind_a_syn_is_a_gap() -> None:
    released = streamed(
        [*handshake(), Packet(10, 0, 1004, b"def", 5001), Packet(11, 1, 5001, b"", 1007)]
    )
    assert released.stream_ranges() == [
        StreamRange("lost", 0, 3),
        StreamRange("data", 3, 3, b"def"),
    ]


def test_a_syn_may_carry_data() -> None:
    packets = [
        Packet(0, 0, 1000, b"early", flags=SYN),
        Packet(1, 1, 5000, b"hello", 1006, SYN_ACK),
        Packet(2, 0, 1006, b"more", 5006),
    ]
    released = streamed(packets)
    assert released.stream_ranges(0, 0) == [StreamRange("data", 0, 9, b"earlymore")]
    assert released.stream_ranges(0, 1) == [StreamRange("data", 0, 5, b"hello")]


def test_data_of_a_syn_that_was_not_accepted_is_sent_again() -> None:
    packets = [
        Packet(0, 0, 1000, b"early", flags=SYN),
        Packet(1, 1, 5000, b"", 1001, SYN_ACK),
        Packet(2, 0, 1001, b"early", 5001),
        Packet(3, 0, 1006, b"more", 5001),
    ]
    released = streamed(packets)
    assert released.stream_ranges(0, 0) == [StreamRange("data", 0, 9, b"earlymore")]
    assert released.counted() == {"retransmitted": 1}


def test_both_sides_may_open() -> None:
    packets = [
        Packet(0, 0, 1000, flags=SYN),
        Packet(0.5, 1, 5000, flags=SYN),
        Packet(1, 1, 5000, b"", 1001, SYN_ACK),
        Packet(1.5, 0, 1000, b"", 5001, SYN_ACK),
        ABC,
        XYZ,
    ]
    released = streamed(packets)
    assert len(released.connections) == 1
    assert released.data(0, 0) == b"abc" and released.data(0, 1) == b"xyz"


def test_a_split_handshake_is_one_connection() -> None:
    """The broker answers with an ACK and a SYN of its own."""
    packets = [
        Packet(0, 0, 1000, flags=SYN),
        Packet(1, 1, 4999, b"", 1001),
        Packet(2, 1, 5000, flags=SYN),
        Packet(3, 0, 1000, b"", 5001, SYN_ACK),
        ABC,
        XYZ,
    ]
    released = streamed(packets)
    assert len(released.connections) == 1
    assert released.data(0, 0) == b"abc" and released.data(0, 1) == b"xyz"


def test_a_repeated_syn_is_sent_again_and_opens_nothing() -> None:
    again = Packet(1000, 0, 1000, flags=SYN)
    released = streamed([handshake()[0], again, *handshake(ms=1100)[1:], ABC._replace(ms=1200)])
    assert released.counted() == {"retransmitted": 1}
    assert len(released.connections) == 1
    assert released.data() == b"abc"
    # The round trip counts from the SYN that was answered.
    assert released.connections[0]["handshake_rtt_ns"] == 102_000_000


def test_an_unanswered_syn_may_be_followed_by_one_of_another_number() -> None:
    released = streamed([Packet(0, 0, 77, flags=SYN), *handshake(ms=100), ABC._replace(ms=200)])
    assert len(released.connections) == 2
    assert released.data(1, 0) == b"abc"
    assert released.connections[0]["ended"] == "reused"


def test_an_old_syn_after_the_end_is_no_reuse() -> None:
    packets = [
        *handshake(),
        ABC,
        Packet(20, 0, 1004, b"", 5001, FIN_ACK),
        Packet(21, 1, 5001, b"", 1005, FIN_ACK),
        Packet(300, 0, 1000, flags=SYN),
    ]
    released = streamed(packets)
    assert len(released.connections) == 1
    assert released.connections[0]["ended"] == "fin"


def test_an_old_syn_by_its_time_stamp_is_no_reuse() -> None:
    packets = [packet._replace(tsval=1000) for packet in handshake()]
    packets += [
        ABC._replace(tsval=1010),
        Packet(20, 0, 777_777, flags=SYN, tsval=900),
        Packet(30, 0, 1004, b"def", 5001, tsval=1020),
    ]
    released = streamed(packets)
    assert len(released.connections) == 1
    assert released.data() == b"abcdef"
    assert released.counted() == {"stray": 1}


@pytest.mark.parametrize("end", [FIN_ACK, RST])
def test_after_the_end_the_clock_of_another_host_may_show_less(end: int) -> None:
    """Behind a gateway that gives its clients one address, the next one has the same port."""
    packets = [packet._replace(tsval=1000) for packet in handshake()]
    packets.append(Packet(20, 0, 1001, b"", 5001, end, tsval=1000))
    packets.append(Packet(21, 1, 5001, b"", 1002, end, tsval=1000))
    # The second attempt is refused.
    packets.append(Packet(300, 0, 900_000, flags=SYN, tsval=7))
    packets.append(Packet(301, 1, 0, b"", 900_001, RST | ACK))
    released = streamed(packets)
    assert [row["history"][0] for row in released.connections.values()] == ["S", "S"]
    assert released.connections[1]["ended"] == "rst"
    assert released.codes() == ["port_reused"]


def test_a_syn_inside_the_stream_is_a_stray() -> None:
    packets = [*handshake(), Packet(10, 0, 1001, bytes(1000), 5001)]
    released = streamed([*packets, Packet(11, 0, 1500, flags=SYN), Packet(12, 0, 2001, b"x", 5001)])
    assert len(released.connections) == 1
    assert released.counted() == {"stray": 1}
    assert released.direction()["stream_bytes"] == 1001


def test_a_new_syn_outside_the_stream_opens_another_connection() -> None:
    again = handshake(isn=900_000, answer=70_000, ms=100)
    data = [Packet(110, 0, 900_001, b"new", 70_001), Packet(111, 1, 70_001, b"NEW", 900_004)]
    released = streamed([*handshake(), ABC, XYZ, *again, *data])
    assert [row["ended"] for row in released.connections.values()] == ["reused", "capture_end"]
    assert (released.data(0, 0), released.data(0, 1)) == (b"abc", b"xyz")
    assert (released.data(1, 0), released.data(1, 1)) == (b"new", b"NEW")
    assert released.codes() == ["port_reused"]


def test_a_syn_ack_of_a_lost_new_syn_opens_another_connection() -> None:
    again = handshake(isn=900_000, answer=70_000, ms=100)[1:]
    released = streamed([*handshake(), ABC, XYZ, *again, Packet(110, 0, 900_001, b"new", 70_001)])
    # Without its SYN nothing says that this answer is not an old one of the same addresses.
    assert len(released.connections) in (1, 2)
    assert released.data(0, 0).startswith(b"abc")


def test_who_speaks_first_is_side_0_without_a_syn() -> None:
    released = streamed([XYZ, ABC._replace(ms=12)])
    row = released.connections[0]
    assert (row["ports"], row["opener"]) == ([6650, 40000], -1)
    assert row["history"] == "Dd"
    assert released.data(0, 0) == b"xyz" and released.data(0, 1) == b"abc"


def test_an_answered_syn_names_the_opener_when_only_the_broker_was_captured() -> None:
    packets = [handshake()[1], XYZ, Packet(12, 1, 5004, b"uvw", 1004)]
    released = streamed(packets)
    row = released.connections[0]
    assert (row["ports"], row["opener"]) == ([40000, 6650], 0)
    assert released.data(0, 1) == b"xyzuvw"
    assert released.ranges[0]["endpoint_index"] == 1
    assert all(row["opener"] == 0 for row in released.ranges)
    assert released.stream_ranges(0, 0) == []


def test_a_refused_connection() -> None:
    released = streamed([handshake()[0], Packet(1, 1, 0, b"", 1001, RST | 16)])
    row = released.connections[0]
    assert (row["ended"], row["history"], row["closed_first"]) == ("rst", "Sr", 1)
    assert row["handshake_rtt_ns"] == NULL


@pytest.mark.parametrize("payload", [b"", b"\0"], ids=["empty", "made up"])
def test_a_keep_alive_may_be_the_first_packet_of_a_capture(payload: bytes) -> None:
    packets = [
        Packet(0, 1, 5001, b"", 1004),
        Packet(1, 0, 1003, payload, 5001),
        Packet(500, 0, 1004, b"def", 5001),
    ]
    released = streamed(packets)
    assert released.data(0, 1) == b"def"
    assert released.codes() == []
