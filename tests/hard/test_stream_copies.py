"""Bytes that come more than once: copies of taps, retransmissions, conflicts, cuts."""

import pytest

from dissector.schemas.quantities import duration_text
from tests.hard import copy_cases as made
from tests.hard.stream_cases import a_talk
from tests.hard.tape import capture, codes, dissected, talk
from tests.hard.whole import (
    assert_accounts_close,
    assert_whole,
    counters,
    rows_of,
)


def test_b25_a_good_copy_takes_the_place_of_a_damaged_one() -> None:
    tables = assert_whole(made.damaged_and_sent_again())
    assert codes(tables).count("wrong_checksum") == 2
    assert tables["connections"][0]["conflict_bytes_to_broker"] == 2
    assert counters(tables, 0) == {"retransmitted": 2}


@pytest.mark.parametrize("overlap", ["first", "last", "linux", "windows"])
def test_b25_whatever_the_policy_the_good_copy_counts(overlap: str) -> None:
    tables = assert_whole(made.damaged_while_a_hole_is_open(), overlap=overlap)
    assert tables["connections"][0]["conflict_bytes_to_broker"] == 1


def test_b25_verified_checksums_leave_the_damaged_packets_out() -> None:
    tables = assert_whole(made.damaged_and_sent_again(), verify_checksums=True)
    (file,) = tables["capture_files"]
    assert dict(file["packets_ignored_by_reason"]) == {"bad_tcp_checksum": 2}


@pytest.mark.parametrize("make", [made.copies_back_to_back, made.copies_of_two_ports])
def test_b27_copies_of_the_tap_are_no_retransmissions(make) -> None:
    tape = a_talk()
    tables = assert_whole(tape, make())
    for side in (0, 1):
        packets = sum(each.to_broker == (side == 0) for each in tape.packets)
        assert counters(tables, side) == {"duplicate": packets}
    assert codes(tables) == []
    assert not any(row["retransmitted"] for row in tables["frames"])


@pytest.mark.parametrize("make", [made.true_retransmissions, made.retransmissions_by_time_stamp])
def test_b28_retransmissions_are_no_copies(make) -> None:
    tape = make()
    large = sum(len(each.payload) >= 1448 and each.to_broker for each in tape.packets)
    tables = assert_whole(tape)
    assert counters(tables, 0) == {"retransmitted": large // 2}


def test_b29_equal_headers_without_identification_are_no_copies() -> None:
    tables = assert_whole(made.identification_zero())
    assert counters(tables, 0) == counters(tables, 1) == {}


@pytest.mark.parametrize("policy", ["first", "last", "linux", "windows"])
@pytest.mark.parametrize(("bounds", "winners"), made.OVERLAPS.values(), ids=made.OVERLAPS)
def test_b37_which_of_two_copies_counts(bounds: tuple[int, int], winners: str, policy: str) -> None:
    tape = made.overlapping((80, 100), bounds)
    tables = dissected(capture(tape.records()), overlap=policy)
    (row,) = [row for row in rows_of(tables, 0) if row["command"] == "SEND"]
    assert row["checksum"] == ("mismatch" if policy in winners.split() else "ok")
    (connection,) = tables["connections"]
    both = min(100, bounds[1]) - max(80, bounds[0])
    assert connection["conflict_bytes_to_broker"] == both
    (conflict,) = [row for row in tables["notices"] if row["code"] == "overlap_conflict"]
    assert conflict["bytes"] == both
    assert conflict["stream_offset"] == row["stream_offset"] + max(80, bounds[0])
    assert_accounts_close(tables)


@pytest.mark.parametrize(
    ("make", "apart_ns"),
    [(made.two_hosts_with_different_clocks, 7 * made.SECOND),
     (made.two_hosts_with_clocks_close_by, 80 * made.MS)],
)  # fmt: skip
def test_b55_two_taps_with_different_clocks_are_one_flow(make, apart_ns: int) -> None:
    tape = a_talk()
    tables = assert_whole(tape, make())
    for side in (0, 1):
        packets = sum(each.to_broker == (side == 0) for each in tape.packets)
        assert counters(tables, side) == {"duplicate": packets}
    (notice,) = tables["notices"]
    assert notice["code"] == "two_clocks"
    assert f" {duration_text(apart_ns / 1_000_000)} apart" in notice["text"]


def test_b56_what_is_seen_behind_a_translation_is_a_copy() -> None:
    tables = dissected(made.before_and_behind_a_translation())
    inside, outside = tables["connections"]
    assert [row["leg"] for row in (inside, outside)] == ["client", "broker"]
    assert [row["twin_connection_id"] for row in (inside, outside)] == [1, 0]
    assert "translated_copy" in codes(tables)
    assert {row["attempt"] for row in tables["exchanges"]} <= {None, 1}
    tape = talk(6, seed=9)
    assert {inside["client_ip"], outside["client_ip"]} == {"10.0.0.1", "192.0.2.7"}
    for row in (inside, outside):
        assert row["decoded_bytes_to_broker"] == len(tape.sent[0])
        assert row["decoded_bytes_to_client"] == len(tape.sent[1])
    # What shows that they are the same: equal numbers, time stamps and bytes.
    assert inside["isn_to_broker"] == outside["isn_to_broker"] == 3_141_592_653
    assert_accounts_close(tables)
