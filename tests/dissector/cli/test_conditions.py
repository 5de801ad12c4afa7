"""--fail-on: which numbers can be named, and what is a mistake."""

from typing import Any

import pytest

from dissector.cli.conditions import check_paths, met, paths_of, read_conditions, value_at
from dissector.errors import UsageError

REPORT: dict[str, Any] = {
    "schema_version": 1,
    "send_latency": {
        "total": {"sends": 20, "outcomes": {"ok": 18}, "latency_ms": {"p99": 12.5, "max": None}},
        "by_topic": [{"sends": 20}],
    },
    "errors": {"total": {"by_request": {}, "answers": 0}},
}


@pytest.mark.parametrize(
    ("text", "is_met"),
    [
        ("send_latency.total.latency_ms.p99 > 12", True),
        ("send_latency.total.latency_ms.p99 > 12.5", False),
        ("send_latency.total.latency_ms.max > 0", False),
        ("send_latency.total.latency_ms.max == null", True),
        ("send_latency.total.outcomes.ok < send_latency.total.sends", True),
        ("send_latency.total.outcomes.error > 0", False),
        ("errors.total.by_request.SEND > 0 or errors.total.answers > 0", False),
        ("not errors.total.by_request.SEND > 0", True),
    ],
)
def test_conditions_are_judged(text: str, is_met: bool) -> None:
    assert met(read_conditions([text]), REPORT) == ([text] if is_met else [])


def test_only_conditions_that_are_met_are_named() -> None:
    texts = ["errors.total.answers > 0", "send_latency.total.sends == 20", "schema_version in (1)"]
    assert met(read_conditions(texts), REPORT) == texts[1:]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("send_latency.total.latncy_ms.p99", "did you mean send_latency.total.latency_ms.p99?"),
        ("send_latency.total.latency_ms", "not a single number"),
        ("send_latency.by_topic", "not a single number"),
        ("nothing", "no number nothing"),
        ("schema_version.x", "no number"),
    ],
)
def test_names_that_the_report_lacks_are_mistakes(path: str, hint: str) -> None:
    with pytest.raises(UsageError, match="--fail-on") as caught:
        value_at(REPORT, path)
    assert hint in str(caught.value)


def test_all_single_numbers_have_a_name() -> None:
    assert list(paths_of(REPORT)) == [
        "schema_version",
        "send_latency.total.sends",
        "send_latency.total.outcomes.ok",
        "send_latency.total.latency_ms.p99",
        "send_latency.total.latency_ms.max",
        "errors.total.answers",
    ]


@pytest.mark.parametrize(
    "path",
    ["send_latency.total.latency_ms.p99", "errors.total.by_request.SEND", "coverage.total.gaps",
     "send_latency.total.outcomes.error", "coverage.total.notices_by_code.gap_lost",
     "coverage.total.frames_by_command.to_broker.SEEK", "coverage.total.limits_hit.names_limit",
     "permit_utilization.total.utilization_of.allowed", "coverage.total.first_ts",
     "ack_latency.total.validation_errors.ChecksumMismatch"],
)  # fmt: skip
def test_names_of_numbers_that_reports_have_are_taken(path: str) -> None:
    check_paths(read_conditions([f"{path} > 0"]))


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("send_latency.p99", "did you mean send_latency.total.latency_ms.p99?"),
        ("send_latency.totl.latency_ms.p99", "did you mean send_latency.total.latency_ms.p99?"),
        ("checksum_failures.mismatch", "did you mean checksum_failures.total.mismatch?"),
        ("mismatch", "did you mean checksum_failures.total.mismatch?"),
        ("xyzzy", "shows all"),
        ("send_latency.by_topic", "not a single number"),
        ("closing.total.frames_lost", "no number"),
    ],
)
def test_wrong_names_are_refused_before_anything_is_read(path: str, hint: str) -> None:
    conditions = read_conditions(["errors.total.answers > 0", f"{path} > 0"])
    with pytest.raises(UsageError, match="--fail-on") as caught:
        check_paths(conditions)
    assert hint in str(caught.value)


def test_reports_of_lakes_may_join_captures() -> None:
    check_paths(read_conditions(["closing.total.frames_lost > 0"]), is_of_lake=True)
    with pytest.raises(UsageError):
        check_paths(read_conditions(["closing.total.frames_lot > 0"]), is_of_lake=True)
    assert met(read_conditions(["closing.total.frames_lost > 0"]), REPORT) == []


SEVERITIES = ("ok", "info", "warning", "error")  # in the order of what they weigh


@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "==", "!="])
def test_severities_are_in_the_order_of_what_they_weigh(sign: str) -> None:
    """By letters an error would be less than an info, and a job that waits for warnings pass."""
    as_numbers = {
        "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__, "==": int.__eq__,
        "!=": int.__ne__,
    }[sign]  # fmt: skip
    for place, found in enumerate(SEVERITIES):
        report = {"findings": {"findings": [{"severity": found}]}}
        for other, asked in enumerate(SEVERITIES[1:], 1):
            for text in (asked, f'"{asked}"'):
                conditions = read_conditions([f"finding.severity {sign} {text}"])
                assert bool(met(conditions, report)) is as_numbers(place, other), (found, text)
