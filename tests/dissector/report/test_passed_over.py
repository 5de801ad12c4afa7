"""Sends and deliveries that were left behind although later ones of the same kind were settled."""

import pytest

from dissector.report import passed_over
from dissector.report.frame_rows import PacketMemory
from dissector.report.rows import Rows
from tests.dissector.report import made


def found_of(rows: list[made.Row], at_once: int = 100) -> list[int]:
    found = passed_over.PassedOver(PacketMemory())
    for start in range(0, len(rows), at_once):
        found.add(Rows(made.batch("exchanges", rows[start : start + at_once]), "c"))
    return [row["request_frame_no"] for row in found.table().to_pylist()]


def send(frame_no: int, outcome: str, **more: object) -> made.Row:
    latency = 5 if outcome == "ok" else None
    return made.publish(request_frame_no=frame_no, outcome=outcome, latency_ns=latency,
                        response_frame_no=100 + frame_no if latency else None, **more)  # fmt: skip


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_only_a_later_receipt_of_the_same_producer_passes_a_send_over(at_once: int) -> None:
    rows = [
        send(1, "unanswered_at_end"),
        send(2, "ok"),
        send(3, "conn_closed"),
        send(4, "lost_in_gap"),
        send(5, "ok"),
        send(6, "unanswered_at_end"),  # the capture ended first
        send(7, "error"),  # a refusal overtakes receipts
        send(8, "unanswered_at_end", producer_id=9),  # of another producer
        send(9, "ok", connection_id=4),
        made.publish(kind="request", request_frame_no=1, outcome="unanswered_at_end",
                     latency_ns=None),
    ]  # fmt: skip
    assert found_of(rows, at_once) == [1, 3]
    assert found_of(rows[::-1], at_once) == [3, 1]


def test_its_bound_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_over, "MAX_PASSED", 1)
    found = passed_over.PassedOver(PacketMemory())
    rows = [send(1, "conn_closed"), send(2, "conn_closed"), send(3, "ok")]
    found.add(Rows(made.batch("exchanges", rows), "c"))
    assert found.table().num_rows == 1 and found.left_out == 1


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_a_delivery_is_passed_over_by_a_later_ack_of_its_consumer(at_once: int) -> None:
    said = [
        (1, 0, "acked"), (2, 0, "consumer_closed"), (3, 0, "redelivery_requested"),
        (4, 1, "unacked_at_end"), (5, 0, "acked"), (6, 0, "conn_closed"), (7, 0, "discarded"),
        (8, 1, "unacked_at_end"),
    ]  # fmt: skip
    rows = [{"connection_id": 0, "consumer_id": consumer, "incarnation": 0, "frame_no": frame_no,
             "outcome": outcome} for frame_no, consumer, outcome in said]  # fmt: skip
    found = passed_over.PassedOver(PacketMemory(), passed_over.DELIVERIES)
    for start in range(0, len(rows), at_once):
        found.add(Rows(made.batch("deliveries", rows[start : start + at_once]), "c"))
    assert sorted(found.table().column("frame_no").to_pylist()) == [2, 7]
