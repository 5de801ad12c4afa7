"""Verdicts on requests: every outcome of a send has its true sentence."""

from typing import Any

import pytest

from dissector.report.descriptions import CLOSE_CAUSES, OUTCOMES
from dissector.report.verdict import LOOK, PLAIN, Remark
from dissector.report.verdicts.publishing import answered
from tests.dissector.report.verdicts.reports import decoded, of


def sent(outcomes: dict[str, int], **total: Any) -> list[Remark]:
    """What is said of sends with these outcomes, but how long they took."""
    report = decoded()
    sends = sum(outcomes.values())
    report["send_latency"]["total"] |= {"sends": sends, "outcomes": outcomes, **total}
    return of(report, "send_latency")[1:]


@pytest.mark.parametrize(
    ("outcome", "stands_out", "words"),
    [
        ("error", True, "2 of 5 sends were not confirmed: refused."),
        (
            "dropped_after_close",
            True,
            "were not confirmed: unanswered when their producer was closed or opened again.",
        ),
        (
            "conn_closed",
            True,
            "were not confirmed: unanswered when the connection ended.",
        ),
        (
            "unanswered_at_end",
            True,
            "were not confirmed: unanswered when the capture ended.",
        ),
        ("lost_in_gap", True, "is not known: the answer may lie in bytes that are missing."),
        ("response_cut", True, "is not known: the answer is not whole in the capture."),
        ("other_side_not_captured", False, "the direction of the answers was not captured."),
        ("evicted", True, "is not known: too many waited for an answer"),
        ("dup_or_dropped", False, "2 sends got a receipt without a message id"),
        ("not_awaited", False, "2 sends wanted no answer."),
    ],
)
def test_every_outcome_of_sends_has_its_sentence(
    outcome: str, stands_out: bool, words: str
) -> None:
    (headline,) = sent({"ok": 3, outcome: 2})
    assert headline.mark == PLAIN and words in headline.text
    assert bool(headline.next_step) == stands_out


def test_no_outcome_is_forgotten() -> None:
    said = {"ok", "orphan_response"}  # of these there is nothing to say
    said |= {outcome for outcome in OUTCOMES if sent({"ok": 1, outcome: 1})}
    assert said == set(OUTCOMES)


def test_a_send_on_its_way_when_the_capture_ends_is_no_reason_to_look() -> None:
    (headline,) = sent({"ok": 300, "unanswered_at_end": 2})
    assert not headline.next_step
    (headline,) = sent({"ok": 300, "unanswered_at_end": 20})
    assert headline.next_step


def test_lists_of_codes_say_how_many_there_are() -> None:
    report = decoded()
    report["errors"]["total"] |= {"answers": 4, "incidents": 4}
    report["errors"]["by_code"] = [{"error_code": code} for code in ("A", "B", "C", "D")]
    (headline,) = of(report, "errors")
    assert "4 requests were refused: A, B, C … (4 in all)." in headline.text
    report["errors"]["by_code"].pop()
    (headline,) = of(report, "errors")
    assert "refused: A, B, C." in headline.text


def test_what_was_sent_again_tells_how_it_ended() -> None:
    """23 of 65 that failed alarm nobody for long, if all messages were confirmed in the end."""
    (headline,) = sent({"ok": 42, "conn_closed": 23}, resent=35, logical_latency_ms={"count": 30})
    assert "23 of 65 sends were not confirmed" in headline.text
    assert headline.text.endswith("In the end every message was confirmed.")
    (headline,) = sent({"ok": 6, "error": 7}, resent=2, logical_latency_ms={"count": 6})
    assert headline.text.endswith("5 sends had no attempt that was confirmed.")
    # What is not known of some could be the missing ones.
    (headline,) = sent({"ok": 6, "error": 7, "lost_in_gap": 1}, resent=2,
                     logical_latency_ms={"count": 6})  # fmt: skip
    assert "had no attempt" not in headline.text and "In the end" not in headline.text


def test_answers_that_were_cut_off_lead_to_whole_packets() -> None:
    report = decoded()
    report["coverage"]["total"]["snaplen_cut_bytes"] = 9
    report["send_latency"]["total"] |= {"sends": 5, "outcomes": {"lost_in_gap": 5}}
    assert "tcpdump -s 0" in of(report, "send_latency")[1].next_step


def test_a_missing_direction_is_one_alarm_and_told_where_it_matters() -> None:
    report = decoded()
    report["coverage"]["total"] |= {"connections": 3, "one_way_connections": {"to_broker": 2}}
    report["errors"]["total"]["answers"] = None
    report["send_latency"]["total"]["sends"] = None
    report["coverage"]["total"] |= {"stream_bytes": 9, "decoded_share": 1.0}
    _, headline = of(report, "coverage")
    assert headline.mark == LOOK
    assert headline.text == "2 connections were captured in one direction only, of 3 in all."
    for section, said in (
        ("errors", "Refusals cannot be judged: what brokers send"),
        ("send_latency", "Sends cannot be judged: what clients send"),
    ):
        (headline,) = of(report, section)
        assert headline.mark == PLAIN and headline.text == f"{said} is not in the capture."


def test_a_topic_without_a_schema_is_not_a_topic_that_is_missing() -> None:
    report = decoded()
    report["errors"]["total"] |= {"answers": 1, "incidents": 1}
    report["errors"]["by_code"] = [{"error_code": "TopicNotFound"}]
    row = {"request_command": "GET_SCHEMA", "request_frame_no": 3, "response_frame_no": 4}
    report["errors"]["incidents"] = [{**row, "capture": None}]
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


@pytest.mark.parametrize("cause", CLOSE_CAUSES)
def test_every_cause_of_a_close_has_words(cause: str) -> None:
    report = decoded()
    report["connecting"]["total"]["closed_by_broker"] |= {"producers": 1, "consumers": 0}
    report["connecting"]["total"]["closed_by_cause"] = {cause: 1}
    (headline,) = of(report, "connecting")
    assert (
        headline.text.startswith("The broker closed 1 producer")
        and "unload, a" not in headline.text
    )


def test_a_code_without_a_name_is_told_by_its_number() -> None:
    report = decoded()
    report["errors"]["total"] |= {"answers": 1, "incidents": 1}
    report["errors"]["by_code"] = [{"error_code": "99"}]
    (headline,) = of(report, "errors")
    assert headline.text == "1 request was refused: code 99."


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
    (text,) = (headline.text for headline in of(report, "send_latency")[:1])
    assert text == f"{words}, none with a receipt that could be timed."


def test_an_answer_is_a_receipt_one_for_a_duplicate_or_a_refusal() -> None:
    outcomes = {"ok": 15, "dup_or_dropped": 5, "error": 2, "orphan_response": 7, "conn_closed": 1}
    assert answered(outcomes) == 22


def requested(*rows: tuple[str, str, dict[str, int]]) -> list[Remark]:
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
    assert "8 requests were unanswered when the connection ended: 8 CONNECT." in headline.text
    (headline,) = requested(("request", "SEEK", {"ok": 9, "unanswered_at_end": 1}))
    assert "1 request was unanswered when the capture ended." in headline.text
    assert not requested(("request", "SEEK", {"ok": 900, "unanswered_at_end": 1}))
    # A stream of Cursus ends with its connection, and one that waits for messages has none yet.
    assert not requested(("consume", "STREAM", {"conn_closed": 16}))
