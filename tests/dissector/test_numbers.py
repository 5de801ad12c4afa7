"""Sequence numbers that leap: whatever comes before the handshake that counts, all is read."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.dissection import Dissection, Options
from dissector.sources.account import Account
from tests.anycut import at_random, bytes_of, rows_of
from tests.dissector.observed import CAPTURES, Row, Tables
from tests.wire.numbers import HalfOpen, through_a_box, with_attempt
from tests.wire.recut import recut

NAME = "pulsar-apache/java-j12_nack.pcap"
# A conversation may be the second connection, and a copy may come before the packet itself.
OF_COPIES = {"connection_id", "ts", "first_ts_ns", "last_ts_ns"}
NEAR, FAR, HALF = 1000, 123_456_789, 1_500_000_000
NUMBERS = st.one_of(
    st.sampled_from([1, -1, NEAR, -NEAR, FAR, HALF, -HALF, (1 << 31) - 1, -(1 << 31)]),
    st.integers(-(1 << 31), (1 << 31) - 1),
)


@cache
def whole() -> tuple[bytes, list[Row]]:
    capture = bytes_of(CAPTURES / NAME)
    return capture, frames(rows_of(capture))


def frames(tables: Tables) -> list[Row]:
    """All frames, whatever number their connection has, and when copies of them came."""
    return [
        {name: cell for name, cell in row.items() if name not in OF_COPIES}
        for row in tables["frames"]
    ]


def last_line(capture: bytes) -> Account:
    """What a run says of a capture."""
    data = np.frombuffer(bytearray(capture), np.uint8)
    dissection = Dissection(Options())
    account = Account()
    dissection.start_file()
    for block in dissection.feed(data, 0, len(data), True)[1]:
        account.add(block)
    dissection.end_file()
    for block in dissection.finish():
        account.add(block)
    return account


def assert_whole(capture: bytes) -> Tables:
    tables = rows_of(capture)
    assert frames(tables) == whole()[1]
    for row in tables["connections"]:
        assert row["gap_bytes_to_broker"] == row["gap_bytes_to_client"] == 0
    assert "nothing lost" in last_line(capture).sentence()
    return tables


@pytest.mark.parametrize("kind", ["challenge", "answer"])
@pytest.mark.parametrize("by", [NEAR, FAR, HALF, -HALF, -1])
@pytest.mark.parametrize("resets", [True, False])
def test_an_older_connection_of_the_broker_does_not_hide_the_new_one(
    kind: str, by: int, resets: bool
) -> None:
    assert_whole(with_attempt(whole()[0], HalfOpen(kind, by, resets=resets)))


@settings(max_examples=25, derandomize=True, deadline=None)
@given(
    st.sampled_from(["challenge", "answer"]), NUMBERS, NUMBERS, st.booleans(), st.integers(0, 99)
)
def test_whatever_numbers_come_before_the_handshake(
    kind: str, by: int, acked: int, resets: bool, seed: int
) -> None:
    """Also with all segments cut elsewhere."""
    capture = with_attempt(whole()[0], HalfOpen(kind, by, acked, resets))
    assert_whole(recut(capture, at_random(seed)) if seed else capture)


@settings(max_examples=10, derandomize=True, deadline=None)
@given(NUMBERS, st.integers(70_000_000, (1 << 32) - 70_000_000), st.booleans())
def test_payload_of_an_older_connection_is_no_part_of_the_new_one(
    by: int, acked: int, resets: bool
) -> None:
    capture = with_attempt(whole()[0], HalfOpen("data", by, acked, resets))
    tables = rows_of(capture)
    found = [
        [row["connection_id"] for row in tables["frames"]].count(connection["connection_id"])
        for connection in tables["connections"]
        if connection["started"] == "syn" and connection["gap_bytes_to_client"] == 0
    ]
    assert len(whole()[1]) in found


@pytest.mark.parametrize("broker_by", [987_654_321, -987_654_321, 5_000_000, 0])
@pytest.mark.parametrize("client_by", [0, 1_234_567_890])
@pytest.mark.parametrize("first", [False, True])
def test_both_sides_of_a_box_that_rewrites_numbers_are_one_conversation(
    broker_by: int, client_by: int, first: bool
) -> None:
    tables = assert_whole(through_a_box(whole()[0], broker_by, client_by, first=first))
    codes = [row["code"] for row in tables["notices"]]
    assert ("two_numberings" in codes) == (broker_by != 0 or client_by != 0)


@settings(max_examples=8, derandomize=True, deadline=None)
@given(
    st.integers(4_300_000, (1 << 32) - 4_300_000),
    st.integers(4_300_000, (1 << 32) - 4_300_000),
    st.booleans(),
)
def test_any_two_numberings(broker_by: int, client_by: int, first: bool) -> None:
    assert_whole(through_a_box(whole()[0], broker_by, client_by, first=first))
