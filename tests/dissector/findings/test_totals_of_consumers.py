"""Rules over totals of consumers: every outcome of a delivery has its true words."""

from typing import Any

import pytest

from dissector.findings.totals import totals_rules
from dissector.report.descriptions import in_protocol_words
from dissector.report.headlines import Headline
from dissector.schemas.enums import CAUSES, DELIVERY_OUTCOMES
from tests.dissector.findings.judged import decoded, of


def delivered(outcomes: dict[str, int], **total: Any) -> Headline:
    report = decoded()
    report["ack_latency"]["total"] |= {
        "deliveries": 9, "acked": 9 - sum(outcomes.values()),
        "not_evaluated_by_reason": outcomes, **total
    }  # fmt: skip
    (headline,) = of(report, "ack_latency")
    return headline


@pytest.mark.parametrize("outcome", sorted(set(DELIVERY_OUTCOMES) - {"acked"}))
def test_every_outcome_of_deliveries_has_its_words(outcome: str) -> None:
    headline = delivered({outcome: 4})
    assert headline.text.startswith("9 deliveries: 5 acknowledged, 4 ")
    assert "_" not in headline.text and headline.word == "note"


def test_what_a_consumer_discarded_is_not_called_unacknowledged() -> None:
    headline = delivered(
        {"discarded": 4}, passed_over=4, passed_over_by_outcome={"discarded": 4},
        validation_errors={"ChecksumMismatch": 4},
    )  # fmt: skip
    assert headline.word == "note"
    assert "4 discarded by the consumer as unreadable" in headline.text
    assert "discarded with ChecksumMismatch: applications never got these" in headline.text
    assert "left open" not in headline.text
    assert headline.next_step.endswith("-Y 'validation_error != null'")


def test_what_was_left_open_leads_to_the_first_of_it() -> None:
    headline = delivered({"conn_closed": 4}, passed_over_by_outcome={"conn_closed": 1})
    assert headline.next_step and "1 was left open though later ones" in headline.text
    assert not delivered({"unacked_at_end": 4}).next_step


def test_an_ack_that_did_not_count_acknowledges_nothing() -> None:
    refused = delivered({"ack_refused": 4})
    assert refused.text == (
        "9 deliveries: 5 acknowledged, 4 refused by the broker when acknowledged."
    )
    assert refused.next_step.endswith("error_code != null'")
    assert delivered({"ack_rolled_back": 9}).text == (
        "9 deliveries: 0 acknowledged, 9 rolled back with a transaction."
    )
    assert "4 part of a transaction that was still open" in delivered({"ack_uncommitted": 4}).text


def test_messages_that_were_put_aside_are_told_where_nothing_came_again() -> None:
    report = decoded()
    report["redelivery"]["total"] |= {"deliveries": 9, "messages": 9, "by_cause": {}}
    report["redelivery"]["total"] |= {"retry_publishes": 6, "dead_letter_publishes": 1}
    (headline,) = of(report, "redelivery")
    assert headline.text == (
        "9 deliveries: nothing was delivered again. 6 messages were published to retry topics. "
        "1 message was published to dead letter topics."
    )


def test_parts_of_batches_that_were_acknowledged_are_told() -> None:
    assert delivered({"redelivery_requested": 2}, acked_in_part=16).text.endswith(
        "Of batches not acknowledged as a whole, 16 messages were."
    )
    assert "1 message was." in delivered({"redelivery_requested": 2}, acked_in_part=1).text


def test_none_and_one_and_all_read_right() -> None:
    assert delivered({"conn_closed": 9}).text == (
        "9 deliveries: 0 acknowledged, 9 open when the connection ended."
    )
    one = delivered({"conn_closed": 1}, deliveries=1, acked=0)
    assert one.text == "1 delivery: 0 acknowledged, 1 open when the connection ended."
    assert delivered({}).text == "9 deliveries: 9 acknowledged." and delivered({}).word == "ok"
    assert delivered({"unknown": 9}).text == "9 deliveries: 0 acknowledged, 9 of unknown outcome."


def test_answers_to_a_poll_that_were_empty_are_not_called_unknown() -> None:
    report = decoded()
    report["checksum_failures"]["total"]["not_applicable"] = "frames of Cursus carry no checksum"
    report["coverage"]["total"]["connections_by_protocol"] = {"cursus": 1}
    report["ack_latency"]["total"] |= {
        "deliveries": 16, "acked": 2, "not_evaluated_by_reason": {"unknown": 14}
    }  # fmt: skip
    (headline,) = of(report, "ack_latency")
    assert in_protocol_words(report, headline.text) == (
        "16 deliveries: 2 committed, 14 empty, read without a group, or not readable."
    )


def test_what_a_seek_left_open_is_not_the_fault_of_the_application() -> None:
    report = decoded()
    report["ack_latency"]["total"] |= {
        "deliveries": 9, "acked": 7, "not_evaluated_by_reason": {"consumer_closed": 2},
        "passed_over_by_outcome": {"consumer_closed": 1},
    }  # fmt: skip
    assert of(report, "ack_latency")[0].next_step
    report["requests"]["by_command"] = [
        {"kind": "request", "request_command": "SEEK", "requests": 1, "outcomes": {"ok": 1}}
    ]
    (headline,) = of(report, "ack_latency")
    assert not headline.next_step and headline.text.endswith("acknowledged, as a seek leaves them.")


def test_a_balance_that_was_known_for_a_moment_is_no_evidence() -> None:
    report = decoded()
    total = report["permit_utilization"]["total"]
    total |= {"consumers": 1, "observed_ms": 104.0}
    total["not_evaluated_by_reason"] = dict.fromkeys(
        ("baseline_unknown", "delivered_without_known_balance", "baseline_known_partly"), 0
    )
    total["stalls"] |= {"count": 0, "confirmed": {"count": 0}, "open_at_end": {"count": 0}}
    assert of(report, "permit_utilization")[0].word == "ok"
    total["not_evaluated_by_reason"] |= {"baseline_known_partly": 1}
    (headline,) = of(report, "permit_utilization")
    assert headline.word == "note" and "while its balance was known: 104 ms" in headline.text


def test_every_cause_has_its_words_and_what_to_do() -> None:
    (rule,) = (one for one in totals_rules().rules.values() if one.number == "V10")
    assert {*rule.names} == {*CAUSES} <= {*rule.words}
    for cause in CAUSES:
        report = decoded()
        total = {"deliveries": 9, "messages": 9, "redelivered": 2, "by_cause": {cause: 2}}
        report["redelivery"]["total"] |= total
        (headline,) = of(report, "redelivery")
        assert headline.text == f"2 of 9 deliveries were repeats: {rule.names[cause]}."
        assert headline.next_step and "_" not in headline.text


@pytest.mark.parametrize(
    ("closed_first_by", "is_refused", "step"),
    [
        (None, None, "See why connections were lost"),
        ("client", False, "See the client's log: it closed"),
        ("client", True, "See why the broker refused a send: the client closed"),
        ("broker", None, "See the broker's log: it closed"),
    ],
)
def test_what_to_do_depends_on_why_it_was_delivered_again(
    closed_first_by: str | None, is_refused: bool | None, step: str
) -> None:
    report = decoded()
    report["redelivery"]["total"] |= {
        "deliveries": 9, "messages": 9, "redelivered": 4, "by_cause": {"seek": 1, "reconnect": 3}
    }  # fmt: skip
    report["redelivery"]["examples"] = [
        {
            "capture": None, "frame_no": number, "previous_frame_no": None,
            "redelivery_cause": cause, "closed_first_by": closed_first_by,
            "is_refused": is_refused, "packet": 3,
        }
        for number, cause in ((5, "seek"), (7, "reconnect"))
    ]  # fmt: skip
    (headline,) = of(report, "redelivery")
    words, command = headline.next_step.split("\n")
    assert step in words and command.endswith("'frame_no in (7)'")


def at_rest(**changes: dict[str, Any]) -> list[str]:
    """What is said of requests; a send and a delivery ended well ten seconds before the end."""
    report = decoded()
    report["coverage"]["total"]["last_ts"] = "2026-01-31T12:00:20.000000Z"
    report["send_latency"]["total"] |= {
        "sends": 1, "outcomes": {"ok": 1}, "last_message_ts": "2026-01-31T12:00:01.000000Z",
        "last_receipt_ts": "2026-01-31T12:00:02.500000Z",
    }  # fmt: skip
    report["permit_utilization"]["total"] |= {"last_delivery_ts": "2026-01-31T12:00:10.000000Z"}
    report["ack_latency"]["total"] |= {"deliveries": 1, "acked": 1}
    for section, more in changes.items():
        report[section]["total"] |= more
    return [each.text for each in of(report, "requests") if "outstanding" in each.text]


def test_that_nothing_is_outstanding_is_said_with_since_when() -> None:
    since = "2026-01-31T12:00:10.000000Z"
    silent = f"no message was sent, delivered or acknowledged since {since}, for 10 s"
    assert at_rest() == [f"Nothing was outstanding at the end; {silent}."]
    assert at_rest(coverage={"last_ts": "2026-01-31T12:00:10.300000Z"}) == [
        "Nothing was outstanding at the end."
    ]
    came_thrice = {"ack_latency": {"deliveries": 3, "acked": 1}, "redelivery": {"redelivered": 2}}
    assert len(at_rest(**came_thrice)) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"send_latency": {"outcomes": {"unanswered_at_end": 1}}},
        {"send_latency": {"outcomes": {"conn_closed": 1}}},
        {"ack_latency": {"not_evaluated_by_reason": {"unacked_at_end": 1}}},
        {"ack_latency": {"deliveries": 40, "acked": 4, "refused": 36}},
        {"ack_latency": {"deliveries": 3, "acked": 0}, "redelivery": {"redelivered": 2}},
        {"redelivery": {"by_cause": {"seek": 1}}},
        {"requests": {"outcomes": {"unanswered_at_end": 1}}},
        {"publish_to_delivery": {"undelivered": 1}},
    ],
    ids=["send", "lost send", "delivery", "refused", "again", "sought", "request", "entry"],
)
def test_what_is_open_is_not_called_nothing(changes: dict[str, Any]) -> None:
    assert at_rest(**changes) == []
