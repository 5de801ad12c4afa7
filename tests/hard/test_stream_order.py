"""Order, loss, probes: what each byte needs to come out where it stands."""

import pytest

from tests.hard import stream_cases as made
from tests.hard.tape import capture, codes, commands, dissected
from tests.hard.whole import (
    assert_accounts_close,
    assert_whole,
    came,
    counters,
    rows_of,
    said,
)
from tests.wire.segments import Packet, handshake, streamed


def test_b30_swapped_packets_come_out_in_order() -> None:
    tables = assert_whole(made.swapped_within_the_window())
    assert counters(tables, 0).get("out_of_order", 0) > 3
    assert "retransmitted" not in counters(tables, 0)


def test_b30_more_than_256_packets_may_overtake_one() -> None:
    tables = assert_whole(made.four_hundred_packets_overtake_one())
    assert counters(tables, 0) == {"out_of_order": 1}


def test_b30_a_segment_is_waited_for_as_long_as_nobody_has_it() -> None:
    tables = assert_whole(made.a_segment_five_seconds_late())
    assert counters(tables, 0) == {"out_of_order": 1}
    assert codes(tables) == []


def test_b31_acknowledgements_before_their_data_are_no_loss() -> None:
    tape = made.acknowledgements_before_their_data()
    early = sum(
        not one.payload and two.payload != b"" and one.to_broker != two.to_broker
        and one.acknowledgement == two.sequence + len(two.payload)
        for one, two in zip(tape.packets[3:], tape.packets[4:], strict=False)
    )  # fmt: skip
    assert early > 20
    tables = assert_whole(tape)
    assert codes(tables) == []


def test_b32_a_hole_has_its_exact_length() -> None:
    tape = made.a_lost_segment_that_the_peer_has()
    tables = dissected(capture(tape.records()))
    (connection,) = tables["connections"]
    assert connection["gap_bytes_to_broker"] == 1448
    assert connection["gaps_to_broker"] == 1
    (gap,) = [row for row in tables["notices"] if row["code"] == "gap_lost"]
    (large,) = set(said(tape, 0)) - set(came(tables, 0))
    assert (gap["stream_offset"], gap["bytes"]) == (large[0], 1448)
    assert came(tables, 1) == said(tape, 1)
    assert_accounts_close(tables)


def test_b33_one_direction_does_not_wait_for_acknowledgements() -> None:
    tape = made.one_direction_with_a_hole()
    tables = dissected(capture(tape.records()))
    (connection,) = tables["connections"]
    assert (connection["gaps_to_broker"], connection["gap_bytes_to_broker"]) == (1, 1448)
    assert len(set(said(tape, 0)) - set(came(tables, 0))) == 1
    assert rows_of(tables, 1) == []
    assert_accounts_close(tables)


def test_b34_the_other_side_talking_gives_nothing_up() -> None:
    tables = assert_whole(made.the_broker_talks_while_a_segment_is_missing())
    assert commands(tables, "to_client").count("PING") == 50
    # And they did not wait for the hole longer than a window.
    pings = [row for row in rows_of(tables, 1) if row["command"] == "PING"]
    late = next(row for row in rows_of(tables, 0) if row["command"] == "SEND")
    assert sum(row["frame_no"] < late["frame_no"] for row in pings) > 40


@pytest.mark.parametrize("overlap", ["first", "last", "linux", "windows"])
def test_b38_other_bounds_bring_no_byte_twice(overlap: str) -> None:
    tape = made.retransmissions_with_other_bounds()
    tables = assert_whole(tape, overlap=overlap)
    assert counters(tables, 0)["retransmitted"] > 20
    assert codes(tables) == []


def test_b39_sequence_numbers_may_begin_anew() -> None:
    tape = made.sequence_numbers_begin_anew()
    assert max(p.sequence for p in tape.packets) > (1 << 32) - 400 > 400
    assert min(p.sequence for p in tape.packets if p.to_broker) < 10_000
    assert codes(assert_whole(tape)) == []


def test_b39_offsets_go_on_beyond_four_gibibytes() -> None:
    """Six gigabytes in steps of 60 MiB, of each of which the first byte was captured."""
    step, count = 60 << 20, 100
    packets = handshake(isn=(1 << 32) - 5)
    for number in range(count):
        at = (1 << 32) - 4 + step * number
        packets.append(Packet(10 + 500 * number, 0, at, bytes([number]), 5001))
        packets.append(Packet(11 + 500 * number, 1, 5001, b"", at + step))
    pieces = streamed(packets).stream_ranges()
    starts = [piece.start for piece in pieces if piece.kind == "data"]
    assert starts == [step * number for number in range(count)]
    assert pieces[-1].start + pieces[-1].length == step * count > 6_000_000_000


def test_b40_keep_alives_are_counted_and_give_no_byte() -> None:
    tables = assert_whole(made.keep_alives())
    assert counters(tables, 0) == counters(tables, 1) == {"keepalive": 3}
    assert codes(tables) == []


def test_b40_a_keep_alive_may_open_a_capture() -> None:
    tape = made.a_keep_alive_opens_the_capture()
    tables = dissected(capture(tape.records()))
    (connection,) = tables["connections"]
    captured = sum(len(p.payload) for p in tape.packets[1:] if p.to_broker)
    assert connection["stream_bytes_to_broker"] == captured
    assert connection["keepalive_packets_to_broker"] == 1
    assert connection["gap_bytes_to_broker"] == connection["unparsed_bytes_to_broker"] == 0
    assert commands(tables, "to_broker").count("SEND") == len(tape.frames[0]) - 3


def test_b41_a_closed_window_is_measured_and_its_probes_bring_no_byte_twice() -> None:
    tape = made.a_closed_window_is_probed()
    tables = assert_whole(tape)
    shut = [p.ts_ns for p in tape.packets if not p.to_broker and p.window == 0]
    opened = next(p.ts_ns for p in tape.packets if p.window == 5000)
    (connection,) = tables["connections"]
    assert connection["zero_window_ns_to_client"] == opened - shut[0] == 900_000_000
    assert connection["zero_window_ns_to_broker"] == 0
    assert "w" in connection["history"]
