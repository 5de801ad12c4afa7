"""Rules over totals of requests: every outcome of a send has its true words."""

from typing import Any

import pytest

from dissector.findings.totals import totals_rules
from dissector.report.headlines import Headline
from dissector.report.numbers import answered
from dissector.schemas.enums import OUTCOMES
from tests.dissector.findings.judged import decoded, headlines, of

NAMES = {rule.number: rule.names for rule in totals_rules().rules.values()}


def sent(outcomes: dict[str, int], **total: Any) -> Headline:
    """What is said of sends with these outcomes."""
    report = decoded()
    sends = sum(outcomes.values())
    report["send_latency"]["total"] |= {"sends": sends, "outcomes": outcomes, **total}
    (headline,) = of(report, "send_latency")
    return headline


@pytest.mark.parametrize(
    ("outcome", "stands_out", "words"),
    [
        ("error", True, "Not confirmed: 2 refused."),
        ("dropped_after_close", True,
         "Not confirmed: 2 unanswered when their producer was closed or opened again."),
        ("conn_closed", True, "Not confirmed: 2 unanswered when the connection ended."),
        ("unanswered_at_end", True, "Not confirmed: 2 unanswered when the capture ended."),
        ("lost_in_gap", False, "is not known: 2 whose answer may lie in bytes that are missing."),
        ("response_cut", False, "is not known: 2 whose answer is not whole in the capture."),
        ("other_side_not_captured", False, "is not known: 2 whose answers were not captured."),
        ("evicted", False, "is not known: 2 given up, since too many waited"),
        ("dup_or_dropped", False, "is not known: 2 with a receipt without a message id"),
        ("not_awaited", False, "is not known: 2 that wanted no answer."),
    ],
)  # fmt: skip
def test_every_outcome_of_sends_has_its_words(outcome: str, stands_out: bool, words: str) -> None:
    headline = sent({"ok": 3, outcome: 2}, published=5, stored=3)
    assert headline.word == "note" and words in headline.text
    assert bool(headline.next_step) == stands_out


def test_no_outcome_is_forgotten() -> None:
    assert {"ok", "orphan_response", *NAMES["V08"]} == set(OUTCOMES)
    assert sent({"ok": 3}, published=3, stored=3).word == "ok"
    assert sent({"ok": 3, "orphan_response": 2}, published=3, stored=3).word == "ok"
    assert sent({"ok": 3}, published=3, stored=0).word == "note"


def test_a_send_on_its_way_when_the_capture_ends_is_no_reason_to_look() -> None:
    assert not sent({"ok": 300, "unanswered_at_end": 2}).next_step
    assert sent({"ok": 300, "unanswered_at_end": 20}).next_step


def refused(*codes: str | None, **total: int) -> Headline:
    """What is said of requests that were refused with these codes, one each."""
    report = decoded()
    report["errors"]["total"] |= {"answers": len(codes), "incidents": len(codes), **total}
    report["errors"]["by_code"] = [{"error_code": code, "answers": 1} for code in codes]
    (headline,) = of(report, "errors")
    return headline


def test_refusals_are_told_by_their_codes() -> None:
    assert refused("A", "B").text == "2 requests were refused: 1 A, 1 B."
    assert refused("A").text == "1 request was refused: A."
    assert refused("99").text == "1 request was refused: code 99."
    assert refused(None).text == "1 request was refused: no code."
    many = refused(*(f"E{number}" for number in range(20)), incidents=3)
    assert many.text.startswith("20 requests were refused in 3 incidents: 1 E0, ")
    assert many.text.endswith(" … (20 in all).")


def test_what_to_ask_of_a_refusal_is_what_explain_says() -> None:
    assert (
        "Find out: Which subscription has the backlog?"
        in refused("ProducerBlockedQuotaExceededError").next_step
    )
    for code in ("no_such_code", None):
        assert "Find out: What does the broker's log say at that time?" in refused(code).next_step


def test_what_was_sent_again_tells_how_it_ended() -> None:
    """23 of 65 that failed alarm nobody for long, if all messages were confirmed in the end."""
    headline = sent({"ok": 42, "conn_closed": 23}, resent=35, logical_latency_ms={"count": 30})
    assert "Not confirmed: 23 unanswered when the connection ended." in headline.text
    assert headline.text.endswith("In the end every message was confirmed.")
    headline = sent({"ok": 6, "error": 7}, resent=2, logical_latency_ms={"count": 6})
    assert headline.text.endswith("5 sends had no attempt that was confirmed.")
    headline = sent({"ok": 6, "error": 7}, resent=6, logical_latency_ms={"count": 6})
    assert headline.text.endswith("1 send had no attempt that was confirmed.")
    # What is not known of some could be the missing ones.
    headline = sent(
        {"ok": 6, "error": 7, "lost_in_gap": 1}, resent=2, logical_latency_ms={"count": 6}
    )
    assert "had no attempt" not in headline.text and "In the end" not in headline.text


def test_sends_whose_messages_are_not_known_are_not_all_of_them() -> None:
    """Of 231 that were cut, 10 could be read and were confirmed; of 41 others nobody knows."""
    counts = {"published": 10, "stored": 10, "sends_of_unknown_count": 221}
    text = sent({"ok": 190, "lost_in_gap": 41}, **counts).text
    assert text.startswith(
        "231 sends with at least 10 messages, 190 of the sends confirmed as stored"
    )
    assert ", all of them confirmed" in sent({"ok": 231}, **counts).text


def test_sends_that_no_subscription_selects_were_seen() -> None:
    report = decoded()
    assert "No send was seen" in "".join(one.text for one in headlines(report))
    report["publish_to_delivery"]["total"]["entries_confirmed"] = 3
    said = "".join(one.text for one in headlines(report))
    assert "No send is selected, as sends name no subscription." in said
    assert "No send was seen" not in said


def test_a_missing_direction_is_one_alarm_and_told_where_it_matters() -> None:
    report = decoded()
    report["coverage"]["total"] |= {"connections": 3, "one_way_connections": {"to_broker": 2}}
    report["errors"]["total"]["answers"] = None
    report["send_latency"]["total"]["sends"] = None
    report["coverage"]["total"] |= {"stream_bytes": 9, "decoded_share": 1.0}
    *_, headline, what_follows = of(report, "coverage")
    assert headline.word == "look"
    assert headline.text == "2 connections were captured in one direction only, of 3 in all."
    for said in (
        "Refusals cannot be evaluated: what brokers send is not in the capture.",
        "Sends cannot be evaluated: what clients send is not in the capture.",
    ):
        assert said in what_follows.text and not what_follows.word
    assert not of(report, "errors") and not of(report, "send_latency")


def test_a_topic_without_a_schema_is_not_a_topic_that_is_missing() -> None:
    report = decoded()
    report["errors"]["total"] |= {"answers": 1, "incidents": 1}
    report["errors"]["by_code"] = [{"error_code": "TopicNotFound", "answers": 1}]
    row = {"request_command": "GET_SCHEMA", "request_frame_no": 3, "response_frame_no": 4}
    report["errors"]["incidents"] = [{**row, "capture": None, "packet": 5}]
    (headline,) = of(report, "errors")
    assert headline.text == "1 request was refused: TopicNotFound."
    assert "no schema" in headline.next_step and "Create" not in headline.next_step


def test_consumers_that_a_seek_closed_are_no_reason_to_look() -> None:
    report = decoded()
    report["connecting"]["total"]["closed_by_broker"] |= {"producers": 0, "consumers": 2}
    report["connecting"]["total"]["closed_by_cause"] = {"seek": 1, "unknown": 1}
    (headline,) = of(report, "connecting")
    assert headline.next_step
    assert headline.text == (
        "The broker closed 2 consumers: 1 on a seek, 1 for a reason that the capture does not show."
    )
    report["connecting"]["total"]["closed_by_cause"] = {"seek": 2}
    (headline,) = of(report, "connecting")
    assert not headline.next_step
    assert headline.text == "The broker closed 2 consumers, as it does on a seek."


@pytest.mark.parametrize("cause", NAMES["V15"])
def test_every_cause_of_a_close_has_words(cause: str) -> None:
    report = decoded()
    report["connecting"]["total"]["closed_by_broker"] |= {"producers": 1, "consumers": 0}
    report["connecting"]["total"]["closed_by_cause"] = {cause: 1}
    (headline,) = of(report, "connecting")
    assert (
        headline.text.startswith("The broker closed 1 producer")
        and "unload, a" not in headline.text
    )


@pytest.mark.parametrize(
    ("total", "words"),
    [
        ({"sends": 34, "published": 42, "stored": 26},
         "34 sends with 42 messages, 26 of them confirmed as stored"),
        ({"sends": 2, "published": 2, "stored": 2},
         "2 sends with 2 messages, all of them confirmed as stored"),
        ({"sends": 1, "published": 1, "stored": 1}, "1 send with 1 message, confirmed as stored"),
        ({"sends": 1, "published": 1, "stored": 0},
         "1 send with 1 message, none of them confirmed as stored"),
        ({"sends": 4, "published": 1, "stored": 3},
         "4 sends with 1 message, confirmed as stored 3 times in all"),
        ({"sends": 4, "published": 1, "stored": None}, "4 sends with 1 message"),
        ({"sends": 4, "published": None, "stored": None}, "4 sends"),
        ({"sends": 4, "published": 3, "stored": 3, "sends_of_unknown_count": 1},
         "4 sends with at least 3 messages, all of them confirmed as stored"),
    ],
)  # fmt: skip
def test_attempts_messages_and_what_was_stored_have_a_word_each(
    total: dict[str, Any], words: str
) -> None:
    report = decoded()
    report["send_latency"]["total"] |= {"outcomes": {}, **total}
    (headline,) = of(report, "send_latency")
    assert headline.text == f"{words}; none with a receipt that could be timed."


def test_an_answer_is_a_receipt_one_for_a_duplicate_or_a_refusal() -> None:
    outcomes = {"ok": 15, "dup_or_dropped": 5, "error": 2, "orphan_response": 7, "conn_closed": 1}
    assert answered(outcomes) == 22


def requested(*rows: tuple[str, str, dict[str, int]]) -> list[Headline]:
    report = decoded()
    report["requests"]["by_command"] = [
        {"kind": kind, "request_command": command, "requests": sum(outcomes.values()),
         "outcomes": outcomes}
        for kind, command, outcomes in rows
    ]  # fmt: skip
    return of(report, "requests")


def test_requests_that_nobody_answered_are_named() -> None:
    (headline,) = requested(("request", "CONNECT", {"conn_closed": 8}), ("auth", "AUTH", {"ok": 3}))
    assert headline.next_step
    assert headline.text == (
        "8 requests were unanswered when the connection or the capture ended: 8 CONNECT."
    )
    (headline,) = requested(("request", "SEEK", {"ok": 9, "unanswered_at_end": 1}))
    assert headline.text.startswith("1 request was unanswered when the connection or the capture")
    assert not requested(("request", "SEEK", {"ok": 900, "unanswered_at_end": 1}))
    # A stream of Cursus ends with its connection, and one that waits for messages has none yet.
    assert not requested(("consume", "STREAM", {"conn_closed": 16}))
