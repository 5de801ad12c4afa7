"""Known faults on the way to a consumer, or of one: named one by one, and nothing else."""

from typing import Any

import pytest

from tests.dissector.test_injected import SUBSCRIPTION, Talk, faults, report_of
from tests.hard.tape import TOPIC


def test_a_consumer_and_a_producer_that_are_refused_are_errors_alone(tmp_path: Any) -> None:
    """As while a topic is unloaded: refused, asked for again, then there."""
    talk = Talk(permits=None)
    talk.has_consumer = True
    why = {"error": "ServiceNotReady", "message": "Topic is temporarily unavailable"}
    talk.ask("PRODUCER", "ERROR", why, topic=TOPIC, producer_id=2)
    talk.ask("SUBSCRIBE", "ERROR", why, topic=TOPIC, subscription=SUBSCRIPTION, consumer_id=1)
    talk.subscribe(1000)
    for number in range(5):
        talk.usual(number)
    report = report_of(talk.end(), tmp_path)
    assert faults(report) == {"errors": ["ServiceNotReady"] * 2, "requests": {"error": 2}}
    permits = report["permit_utilization"]
    assert permits["total"]["consumers"] == len(permits["by_consumer"]) == 1
    assert not any(permits["total"]["not_evaluated_by_reason"].values())


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_messages_that_were_lost_behind_the_tap_are_named(tmp_path: Any, is_open: bool) -> None:
    """The client never gets them and takes those behind; what it has just got is none of these."""
    talk = Talk()
    for number in range(12):
        if number not in (4, 5, 8, 11):
            talk.usual(number)
            continue
        talk.send(number)
        talk.receive(number)
        talk.deliver(number)
    report = report_of(talk.tape if is_open else talk.end(), tmp_path)
    outcome = "unacked_at_end" if is_open else "consumer_closed"
    assert faults(report) == {"deliveries": {outcome: 4}, "left_behind": [4, 5, 8]}
    assert report["ack_latency"]["total"]["passed_over"] == 3
    assert all(row["packet"] and row["frame_no"] for row in report["ack_latency"]["passed_over"])


def test_where_nothing_but_refusals_is_there_is_no_consumer(tmp_path: Any) -> None:
    talk = Talk(permits=None)
    talk.ask("SUBSCRIBE", "ERROR", {"error": "ConsumerBusy", "message": "taken"}, topic=TOPIC,
             subscription=SUBSCRIPTION, consumer_id=1)  # fmt: skip
    report = report_of(talk.end(), tmp_path)
    assert faults(report) == {"errors": ["ConsumerBusy"], "requests": {"error": 1}}
    assert report["permit_utilization"]["total"]["consumers"] == 0
