"""Beginnings and ends of connections."""

import pytest

from tests.hard import end_cases as made
from tests.hard.stream_cases import a_talk
from tests.hard.tape import capture, codes, commands, dissected, talk
from tests.hard.whole import DIRECTIONS, assert_accounts_close, assert_whole, came, counters, said
from tests.wire.packets import RST


def test_b42_a_reset_inside_the_window_ends_a_connection() -> None:
    tables = assert_whole(made.reset_inside_the_window())
    (connection,) = tables["connections"]
    assert (connection["ended"], connection["closed_first_by"]) == ("rst", "client")


def test_b42_a_reset_outside_the_window_ends_nothing() -> None:
    tables = assert_whole(made.reset_outside_the_window())
    (connection,) = tables["connections"]
    assert connection["ended"] == "fin"
    assert commands(tables, "to_broker").count("SEND") == 2


def test_b42_what_comes_with_and_after_a_reset_is_no_stream() -> None:
    tape = made.reset_with_data_and_data_after_it()
    tables = assert_whole(tape)
    (connection,) = tables["connections"]
    assert connection["ended"] == "rst"
    last = tape.packets[-1]
    assert last.payload and not last.flags & RST
    # It is counted as payload all the same.
    mine = sum(len(each.payload) for each in tape.packets if each.to_broker)
    assert connection["payload_bytes_to_broker"] == mine


def test_b43_fin_fin_reset_is_closed_and_not_reset() -> None:
    tables = assert_whole(made.closed_as_pulsar_closes())
    (connection,) = tables["connections"]
    assert (connection["ended"], connection["closed_first_by"]) == ("fin", "client")
    assert codes(tables) == []


def test_b44_a_fin_waits_for_the_bytes_before_it() -> None:
    tables = assert_whole(made.fin_before_its_data())
    assert tables["connections"][0]["ended"] == "fin"
    assert counters(tables, 0)["out_of_order"] == 5


def test_b45_half_closed_until_the_end_of_the_capture() -> None:
    tables = assert_whole(made.half_closed())
    (connection,) = tables["connections"]
    assert connection["ended"] == "capture_end"
    assert commands(tables, "to_client").count("PING") == 6


def test_b45_an_idle_connection_is_ended_by_capture_time() -> None:
    tables = dissected(made.idle_until_another_talk())
    assert sorted(row["ended"] for row in tables["connections"]) == ["fin", "idle"]
    assert_accounts_close(tables)


@pytest.mark.parametrize(
    ("make", "ended", "noticed"),
    [(made.ports_used_again_after_the_end, "fin", 1),
     (made.ports_used_again_without_an_end, "reused", 1),
     (made.ports_used_again_without_a_syn, "reused", 1)],
)  # fmt: skip
def test_b46_a_new_connection_of_the_same_ports(make, ended: str, noticed: int) -> None:
    first, second = made.reuse(is_closed=ended == "fin")
    tables = dissected(make())
    one, two = sorted(tables["connections"], key=lambda row: row["connection_id"])
    assert (one["ended"], two["ended"]) == (ended, "fin")
    assert codes(tables).count("port_reused") == noticed
    for row, tape in ((one, first), (two, second)):
        for side, direction in enumerate(DIRECTIONS):
            assert row[f"decoded_bytes_{direction}"] == len(tape.sent[side])
            assert row[f"frames_{direction}"] == len(tape.frames[side])
    assert_accounts_close(tables)


def test_b47_an_old_syn_opens_nothing() -> None:
    tables = assert_whole(made.an_old_syn_after_the_end())
    assert len(tables["connections"]) == 1
    assert "port_reused" not in codes(tables)


@pytest.mark.parametrize(
    "make",
    [made.a_syn_with_data, made.both_sides_open, made.a_split_handshake, made.no_syn,
     made.no_syn_ack, made.the_handshake_out_of_order],
)  # fmt: skip
def test_b48_the_first_byte_is_right_whatever_the_handshake(make) -> None:
    tables = assert_whole(make())
    (connection,) = tables["connections"]
    assert connection["client_port"] == 40000
    assert connection["isn_to_broker"] == 1000


def test_b48_a_syn_with_another_number_opens_a_connection_of_its_own() -> None:
    tape = made.a_syn_with_another_number()
    tables = dissected(capture(tape.records()))
    unanswered, answered = sorted(tables["connections"], key=lambda row: row["connection_id"])
    assert unanswered["ended"] == "reused"
    assert unanswered["stream_bytes_to_broker"] == 0
    assert answered["decoded_bytes_to_broker"] == len(tape.sent[0])
    for side in (0, 1):
        assert came(tables, side) == said(tape, side)
    assert_accounts_close(tables)


def test_b51_urgent_data_stays_where_it_stands() -> None:
    tape = a_talk()
    tables = assert_whole(tape, made.urgent_data())
    assert codes(tables) == ["urgent_data"]
    place = made.data_at(tape, 0, 600)[0]
    (notice,) = tables["notices"]
    assert notice["stream_offset"] == tape.packets[place].sequence - 1001
    assert notice["direction"] == "to_broker"


def test_b59_a_scan_costs_a_row_each_and_hides_nothing() -> None:
    tape = talk(4)
    tables = dissected(made.a_scan_around_a_talk())
    assert len(tables["connections"]) == 3001
    for side in (0, 1):
        assert came(tables, side) == said(tape, side)
    assert_accounts_close(tables)
