"""Verdicts on consumers: every outcome of a delivery has its true words."""

from typing import Any

import pytest

from dissector.report.meanings import CAUSES, DELIVERY_OUTCOMES
from dissector.report.verdict import LOOK, PLAIN, Remark
from dissector.report.verdicts.consuming import causes_text
from tests.dissector.report.verdicts.reports import decoded, of


def delivered(outcomes: dict[str, int], **total: Any) -> Remark:
    report = decoded()
    report["ack_latency"]["total"] |= {
        "deliveries": 9, "acked": 9 - sum(outcomes.values()), "not_judged": outcomes, **total
    }  # fmt: skip
    (remark,) = of(report, "ack_latency")
    return remark


@pytest.mark.parametrize("outcome", sorted(set(DELIVERY_OUTCOMES) - {"acked"}))
def test_every_outcome_of_deliveries_has_its_words(outcome: str) -> None:
    remark = delivered({outcome: 4})
    assert "5 of 9 deliveries were acknowledged; 4 " in remark.text
    assert "_" not in remark.text


def test_what_a_consumer_discarded_is_not_called_unacknowledged() -> None:
    remark = delivered(
        {"discarded": 4}, passed_over=4, passed_over_by_outcome={"discarded": 4},
        validation_errors={"ChecksumMismatch": 4},
    )  # fmt: skip
    assert remark.mark == LOOK
    assert "4 discarded by the consumer as unreadable" in remark.text
    assert "discarded with ChecksumMismatch: applications never got these" in remark.text
    assert "left open" not in remark.text
    assert remark.next_step.endswith("-Y 'validation_error != null'")


def test_what_was_left_open_leads_to_the_first_of_it() -> None:
    remark = delivered({"conn_closed": 4}, passed_over_by_outcome={"conn_closed": 1})
    assert remark.mark == LOOK and "1 was left open though later ones" in remark.text
    assert delivered({"unacked_at_end": 4}).mark == PLAIN


def test_every_cause_has_its_words() -> None:
    for cause in CAUSES:
        assert len(causes_text({cause: 1}).split()) > 2 and "_" not in causes_text({cause: 1})
    several = dict(zip("abcde", range(9, 0, -1), strict=False))
    assert causes_text(several).endswith(", 11 for other reasons")
