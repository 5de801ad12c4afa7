"""Rows that rest on packets without a time say none."""

from collections.abc import Sequence

import pytest

from tests.choosing import covering
from tests.dissector.observed import CAPTURES
from tests.fuzz.targets import summarise
from tests.hard.damage import Tap
from tests.hard.source_cases import records
from tests.hard.tape import dissected
from tests.wire.captures import enhanced_packet, interface, section, simple_packet


def each_at_least_once(shares: Sequence[int], others: Sequence[object]) -> list[str]:
    """Pairs of a share of packets and something else; at night all of them."""
    return covering(
        {f"{share} {other}": {share, str(other)} for share in shares for other in others}
    )


def capture_without(*without_timestamp: int) -> bytes:
    """The conversation, these packets (from 1) being without a time."""
    out = section() + interface(resolution=9)
    for number, each in enumerate(records(), start=1):
        lacks_timestamp = number in without_timestamp
        out += (
            simple_packet(each.data) if lacks_timestamp else enhanced_packet(each.ts_ns, each.data)
        )
    return out


def tables_without(*without_timestamp: int) -> dict:
    """The rows of that capture."""
    return dissected(capture_without(*without_timestamp))


def test_only_what_rests_on_a_packet_without_time_is_null() -> None:
    whole = tables_without()
    send = next(row for row in whole["frames"] if row["first_packet"] < row["last_packet"])
    assert send["command"] == "SEND"
    tables = tables_without(send["last_packet"])
    number = send["frame_no"]
    for mine, right in zip(tables["frames"], whole["frames"], strict=True):
        if mine["frame_no"] == number:
            expected = right | {"last_ts_ns": None, "ts": None}
            assert mine == expected
        else:
            assert mine == right
    (publish,) = [row for row in tables["exchanges"] if row["request_frame_no"] == number]
    names = ("request_first_ns", "request_last_ns", "transmit_ns", "latency_ns", "ts")
    assert all(publish[name] is None for name in names)
    assert publish["response_last_ns"] is not None
    assert publish["latency_bucket"] is None and publish["outcome"] == "ok"
    assert [row["ts"] for row in tables["messages"] if row["frame_no"] == number] == [None]
    others = [row for row in tables["exchanges"] if row["request_frame_no"] != number]
    assert others == [row for row in whole["exchanges"] if row["request_frame_no"] != number]
    assert tables["capture_files"][0]["clock_steps"] == 0


def test_before_the_first_time_there_is_none() -> None:
    tables = tables_without(1, 2, 3, 4, 5)
    (connection,) = tables["connections"]
    assert connection["first_ts_ns"] is None
    assert connection["last_ts_ns"] == records()[-1].ts_ns
    assert tables["frames"][0]["ts"] is None
    assert tables["frames"][-1]["ts"] is not None
    (file,) = tables["capture_files"]
    assert file["first_ts_ns"] == records()[5].ts_ns
    assert file["clock_steps"] == 0


@pytest.mark.parametrize("case", each_at_least_once([1, 2, 3, 5], [0, 1]))
def test_reports_do_without_the_times(case: str) -> None:
    share, first = map(int, case.split())
    count = len(records())
    summarise(capture_without(*range(1 + first, count + 1, share)))


@pytest.mark.parametrize(
    "case", each_at_least_once([2, 3, 7], ["java-j16_dlq_retry.pcap", "java-j24_unload.pcap"])
)
def test_examples_with_and_without_a_time_stand_in_one_list(case: str) -> None:
    """Redeliveries, and deliveries passed over, are listed by time: some have none."""
    share, name = int(case.partition(" ")[0]), case.partition(" ")[2]
    tap = Tap.read((CAPTURES / "pulsar-apache" / name).read_bytes())
    out = section() + interface(resolution=9)
    for number, each in enumerate(tap.records):
        micros = each.seconds * 1_000_000 + each.fraction
        lacks_timestamp = number % share == 1
        out += (
            simple_packet(each.data)
            if lacks_timestamp
            else enhanced_packet(1000 * micros, each.data)
        )
    summarise(out)
