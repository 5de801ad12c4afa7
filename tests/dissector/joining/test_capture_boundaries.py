"""Frames that two captures have, and what a cut delivery costs, on hand-made rows."""

from typing import Any

import pytest

from dissector.joining import capture_boundaries, links
from tests.dissector.joining.test_links import after, row

GIVEN = {"stream_bytes_to_broker": 1000, "stream_bytes_to_client": 400}


def overlap(**then: Any) -> tuple[links.JoinPlan, list[capture_boundaries.Overlap]]:
    rows = [row("a", **GIVEN), after("b", stream_bytes_to_client=600, **then)]
    plan = links.plan(rows, {"a": (0, 10), "b": (10, 20)})
    return plan, capture_boundaries.overlaps(plan.handovers, rows)


def frame(capture: str, number: int, offset: int, status: str = "complete") -> links.Row:
    return {
        "capture": capture, "connection_id": 0, "direction": "to_broker", "frame_no": number,
        "stream_offset": offset, "status": status, "frame_bytes": 40,
    }  # fmt: skip


def test_captures_that_meet_have_nothing_in_common() -> None:
    assert overlap(stream_bytes_to_broker=1000)[1] == []


@pytest.mark.parametrize("first", [1900, 2000], ids=["first", "behind an acknowledgement"])
def test_a_packet_that_was_sent_again_is_in_both(first: int) -> None:
    """100 bytes of the end of the first capture begin the second; in the other case its first
    packet came behind them, and their offsets are negative."""
    base = first - 1900
    plan, found = overlap(first_seq_to_broker=first, stream_bytes_to_broker=1100)
    assert {each.direction: each.missing for each in plan.handovers}["to_broker"] == -100
    (one,) = found
    assert (one.in_before, one.in_after) == ((900, 1000), (-base, 100 - base))
    assert one.shift == 900 + base
    frames = [
        frame("a", 7, 900), frame("a", 8, 940), frame("a", 9, 980, "cut_by_end"),
        frame("b", 1, -base), frame("b", 2, 40 - base), frame("b", 3, 80 - base),
        frame("b", 4, 130 - base),
    ]  # fmt: skip
    assert capture_boundaries.repeated(found, frames) == [
        ("a", 0, 9, "to_broker", 20), ("b", 0, 1, "to_broker", 40), ("b", 0, 2, "to_broker", 40),
    ]  # fmt: skip


def test_bytes_that_came_late_are_in_the_second_capture_alone() -> None:
    _, found = overlap(first_seq_to_broker=1900, stream_bytes_to_broker=1100)
    assert capture_boundaries.repeated(found, [frame("a", 7, 950), frame("b", 1, 0)]) == []


def test_long_streams_keep_their_offsets() -> None:
    assert capture_boundaries._unwrapped(10, (1 << 32) + 12) == (1 << 32) + 10
    assert capture_boundaries._unwrapped((1 << 32) - 5, 3) == -5


def send(**given: Any) -> links.Row:
    keys = ("ledger_id", "entry_id", "producer_id", "sequence_id", "message_count")
    return {"chain": 1, **dict.fromkeys(keys)} | given


def test_what_a_cut_delivery_costs_is_what_was_published() -> None:
    cut = {"ledger_id": 5, "entry_id": 1, "capture": "a", "frame_no": 4}
    whole = send(ledger_id=5, entry_id=1, producer_id=2, sequence_id=9, message_count=30)
    assert [each["message_count"] for each in capture_boundaries.counts([cut], [whole], [])] == [30]
    # The send in one capture, its receipt in the other.
    apart = [send(producer_id=2, sequence_id=9, message_count=30),
             send(producer_id=2, sequence_id=9, ledger_id=5, entry_id=1)]  # fmt: skip
    assert [each["message_count"] for each in capture_boundaries.counts([cut], apart, [])] == [30]
    # Another delivery of it; and two clusters that number their ledgers alike.
    other = {**cut, "message_count": 7}
    assert [each["message_count"] for each in capture_boundaries.counts([cut], [], [other])] == [7]
    assert capture_boundaries.counts([cut], [whole], [other]) == []
    assert capture_boundaries.counts([cut], [], []) == []
