"""The section of findings: order, counts, rules that failed, and the table that others read."""

from itertools import permutations

import pytest

from dissector.findings.finding import findings_of_rows
from dissector.findings.querying import rule_queries
from dissector.report.merged_tables import empty_tables
from dissector.report.sections.findings import about, findings, findings_in, table_of
from dissector.schemas.arrow import arrow_schema
from tests.numbers import Numbers


@pytest.fixture
def numbers() -> Numbers:
    numbers = Numbers()
    for number, capture in (("R01", "b"), ("D15", "a"), ("D15", "b"), ("D08", "a")):
        numbers.add_incident(number, capture)
    numbers.add("connections", Numbers().tables()["connections"], "a")
    return numbers


def test_the_worst_come_first_and_are_counted(numbers: Numbers) -> None:
    section = findings(numbers.parts())
    assert section["total"]["by_severity"] == {"error": 1, "warning": 0, "info": 2}
    assert section["total"]["findings"] == len(section["findings"]) == 3
    assert [row["severity"] for row in section["findings"]] == ["error", "info", "info"]
    # One subject, a moment apart in two captures: one incident.
    (row,) = [row for row in section["findings"] if row["id"] == "D15"]
    assert row["incidents"] == 1 and row["evidence"] == [
        {"frame_no": 1, "packet": 1, "role": "first"}
    ]


def test_a_rule_that_failed_is_counted_and_named() -> None:
    name = next(iter(rule_queries()))
    merged = empty_tables()
    broken = [{"capture": None, "problem": "Binder Error: no such thing"}]
    merged = merged._replace(tables={**merged.tables, name: broken})
    section = findings(merged)
    assert section["total"]["rules_failed"] == 1 and section["findings"] == []
    assert "Left out, since they failed: 1 rule." in about({"findings": section})
    (problem,) = findings_in(merged)[1]
    assert problem.file.endswith(".sql") and "no such thing" in problem.text


def test_a_rule_whose_rows_cannot_be_told_ends_none_of_the_others(numbers: Numbers) -> None:
    name = next(name for name, query in rule_queries().items() if query.rule.number == "D08")
    merged = numbers.parts()
    row = {"capture": "a", "rank_of_capture": 1, "first_ns": "at noon", "last_ns": 1}
    merged = merged._replace(tables={**merged.tables, name: [row, row]})
    section = findings(merged)
    assert section["total"]["rules_failed"] == 1 and section["total"]["findings"] == 2
    (problem,) = findings_in(merged)[1]
    assert "TypeError" in problem.text


def test_the_table_has_the_declared_columns(numbers: Numbers) -> None:
    findings = findings_in(numbers.parts())[0]
    table = table_of(findings)
    assert table.schema.equals(arrow_schema("findings")) and table.num_rows == 3
    assert table_of([]).num_rows == 0


def test_incidents_a_minute_apart_are_one_and_so_is_what_goes_over_midnight() -> None:
    query = rule_queries()["finding_d15"]
    worst = {query.rule.worst: 1}
    second = 10**9

    def row(capture: str, first: int, last: int, rank: int = 1) -> dict[str, object]:
        return {"capture": capture, "first_ns": first * second, "last_ns": last * second,
                "rank_of_capture": rank, **worst}  # fmt: skip

    rows = [row("a", 0, 10), row("a", 50, 60, 2), row("a", 300, 301, 3), row("b", 340, 400)]
    (one,), problems = findings_of_rows(query.rule, rows)
    assert not problems and (one.incidents, one.first_ns, one.last_ns) == (2, 0, 400 * second)
    apart, _ = findings_of_rows(query.rule, [row("a", 0, 10), row("b", 300, 400)])
    assert [(one.capture, one.incidents) for one in apart] == [("a", 1), ("b", 1)]


def test_of_what_captures_saw_alike_the_first_name_is_shown_in_any_order_of_rows() -> None:
    query = rule_queries()["finding_r01"]
    rows = [
        {"capture": capture, "first_ns": 1, "last_ns": 2, "rank_of_capture": 1,
         "frame_first_request": number, query.rule.worst: 5}
        for capture, number in (("b", 1), ("a", 8), ("a", 4), ("c", 1))
    ]  # fmt: skip
    for ordered in permutations(rows):
        (one,), _ = findings_of_rows(query.rule, ordered)
        assert (one.capture, one.evidence[0].frame_no) == ("a", 4)


def test_what_is_more_than_the_limit_is_said() -> None:
    query = rule_queries()["finding_d15"]
    rows = [
        {"capture": "c", "first_ns": 1, "last_ns": 2, "rank_of_capture": rank, query.rule.worst: 1}
        for rank in (1, 1001)
    ]
    (one,), (problem,) = findings_of_rows(query.rule, rows)
    assert one.incidents == 1 and "more than 1,000 incidents in c" in problem.text
