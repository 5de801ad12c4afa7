"""Counting rows however they come: messages, and what a protocol has not."""

from typing import Any

import pytest

from tests.dissector.report import made
from tests.numbers import Numbers


def summed(tables: made.Tables, rows_at_once: int, is_coded: bool = True) -> dict[str, Any]:
    numbers = Numbers()
    for name in sorted(tables, reverse=True):
        rows = tables[name]
        for start in range(0, len(rows), rows_at_once):
            part = made.batch(name, rows[start : start + rows_at_once], is_coded=is_coded)
            numbers.add(name, part, "c-one")
    return numbers.result()


@pytest.mark.parametrize(("size", "rows_at_once", "is_coded"), [(40, 1, True), (200, 37, False)])
def test_numbers_do_not_depend_on_how_rows_come(
    size: int, rows_at_once: int, is_coded: bool
) -> None:
    tables = made.RandomCapture(11, size, size).tables
    assert summed(tables, rows_at_once, is_coded) == summed(tables, 10**6)


def test_sends_without_a_sequence_id_count_each() -> None:
    counts = {7: (2, 2), 9: (1,), None: (1, 1, 3, None)}
    rows = [
        made.publish(connection_id=0, sequence_id=number, message_count=count, outcome="ok",
                     topic="t", producer_name="p")
        for number, found in counts.items()
        for count in found
    ]  # fmt: skip
    latency = summed({"exchanges": rows}, 3)["send_latency"]
    assert latency["total"]["messages"] == 2 + 1 + 5
    assert [row["messages"] for row in latency["by_topic"]] == [8]


def test_producers_that_number_each_partition_are_counted_by_first_attempts() -> None:
    sends = [(1, 1, 50), (1, 1, 50), (51, 1, 50), (51, 2, 50), (1, None, 4)]
    rows = [
        made.publish(connection_id=0, producer_id=None, sequence_id=first, attempt=attempt,
                     message_count=count)
        for first, attempt, count in sends
    ]  # fmt: skip
    assert summed({"exchanges": rows}, 2)["send_latency"]["total"]["messages"] == 154


def test_what_cursus_lacks_is_not_applicable_instead_of_zero() -> None:
    legs = [{"connection_id": 0, "protocol": "cursus", "packets_to_broker": 1},
            {"connection_id": 1, "protocol": "tls"}]  # fmt: skip
    alone = summed({"connections": legs}, 9)
    for section, reason in (
        ("permit_utilization", "consumers of Cursus grant no permits"),
        ("checksum_failures", "frames of Cursus carry no checksum"),
    ):
        total = dict(alone[section]["total"])
        assert total.pop("not_applicable") == reason
        assert numbers_in(total) == []
        assert alone[section]["about"] == f"Not applicable: {reason}."
    legs.append({"connection_id": 2, "protocol": "pulsar"})
    both = summed({"connections": legs}, 9)
    assert both["checksum_failures"]["total"]["mismatch"] == 0
    assert both["permit_utilization"]["total"]["not_applicable"] is None


def numbers_in(value: Any) -> list[Any]:
    """Whatever is known somewhere in nested rows."""
    if isinstance(value, dict):
        return [found for each in value.values() for found in numbers_in(each)]
    return [] if value is None else [value]
