"""Verdicts on requests: every outcome of a send has its true sentence."""

from typing import Any

import pytest

from dissector.report.meanings import OUTCOMES
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
    ("outcome", "mark", "words"),
    [
        ("error", LOOK, "2 refused."),
        ("dropped_after_close", LOOK, "2 sent to a producer that was closed already."),
        ("conn_closed", LOOK, "2 unanswered when the connection ended."),
        ("unanswered_at_end", LOOK, "2 unanswered when the capture ended."),
        ("lost_in_gap", LOOK, "is not known: the answer may lie in bytes that are missing."),
        ("response_cut", LOOK, "is not known: the answer is not whole in the capture."),
        ("other_side_not_captured", LOOK, "the direction of the answers was not captured."),
        ("evicted", LOOK, "is not known: too many waited for an answer"),
        ("dup_or_dropped", PLAIN, "2 sends got a receipt without a message id"),
        ("not_awaited", PLAIN, "2 sends wanted no answer."),
    ],
)
def test_every_outcome_of_sends_has_its_sentence(outcome: str, mark: str, words: str) -> None:
    (remark,) = sent({"ok": 3, outcome: 2})
    assert remark.mark == mark and words in remark.text
    assert bool(remark.next_step) == (mark == LOOK)


def test_no_outcome_is_forgotten() -> None:
    said = {"ok", "orphan_response"}  # of these there is nothing to say
    said |= {outcome for outcome in OUTCOMES if sent({"ok": 1, outcome: 1})}
    assert said == set(OUTCOMES)


def test_a_send_on_its_way_when_the_capture_ends_is_no_reason_to_look() -> None:
    (remark,) = sent({"ok": 300, "unanswered_at_end": 2})
    assert remark.mark == PLAIN
    (remark,) = sent({"ok": 300, "unanswered_at_end": 20})
    assert remark.mark == LOOK


def test_lists_of_codes_say_how_many_there_are() -> None:
    report = decoded()
    report["errors"]["total"] |= {"answers": 4, "incidents": 4}
    report["errors"]["by_code"] = [{"error_code": code} for code in ("A", "B", "C", "D")]
    (remark,) = of(report, "errors")
    assert "(A, B, C … (4 in all))" in remark.text
    report["errors"]["by_code"].pop()
    (remark,) = of(report, "errors")
    assert "(A, B, C)." in remark.text


def test_an_answer_is_a_receipt_one_for_a_duplicate_or_a_refusal() -> None:
    outcomes = {"ok": 15, "dup_or_dropped": 5, "error": 2, "orphan_response": 7, "conn_closed": 1}
    assert answered(outcomes) == 22
