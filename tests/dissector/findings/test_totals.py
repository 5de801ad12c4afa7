"""Rules over totals: they fire where they must, and what they say reads right."""

import json

import pytest

from dissector.findings import totals
from dissector.findings.loading import OK, SEVERITIES
from dissector.findings.totals import FAILED, Judged, judge, never_wrong, totals_rules
from dissector.limits import MAX_NAME_LENGTH
from tests.dissector.observed import CASES, CURSUS_CASES, name_of
from tests.dissector.test_manifests_sentences import reports
from tests.numbers import empty_report, engine

RULES = {rule.number: rule for rule in totals_rules().rules.values()}
NAMES = sorted({name for rule in RULES.values() for name in (*rule.fires, *rule.silent)})


def fired_in(name):
    """Numbers of rules that say something else of a capture than that all is well."""
    (case,) = (case for case in (*CASES, *CURSUS_CASES) if case.name == name)
    found = reports()[name_of(case)]["findings"]
    rows = (*found["findings"], *found["verdicts"])
    return {row["id"] for row in rows if row["severity"] != OK}


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_fires_where_it_must_and_is_silent_on_its_twins(name):
    found = fired_in(name)
    for number, rule in RULES.items():
        assert rule.silent
        if name in rule.fires:
            assert number in found
        if name in rule.silent:
            assert number not in found


def test_each_capture_is_judged_by_its_own_numbers():
    fine, cut = empty_report(), json.loads(json.dumps(empty_report()))
    cut["coverage"]["total"] |= {"truncated_files": 2, "limits_hit": {"names_limit": 3}}
    found, problems = judge(engine(), [Judged("a", 1, 2, fine), Judged("b", 3, 4, cut)])
    assert not problems
    assert [[one.number for one in each] for each in found] == [["V01"], ["V01", "V02", "V05"]]
    files = found[1][1]
    assert (files.capture, files.first_ns, files.last_ns) == ("b", 3, 4)
    assert files.text.startswith("2 files are cut") and files.severity == "warning"


def broken(number, query):
    """A rule that asks something else."""
    name, rule = next(item for item in totals_rules().rules.items() if item[1].number == number)
    return dict(totals_rules().rules) | {name: rule._replace(query=query)}


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT place, nothing_there AS measured_sends FROM totals", "nothing_there"),
        ("SELECT place, 'no_variant' AS variant FROM totals", "no variant no_variant"),
    ],
)
def test_a_rule_that_fails_is_found_as_such_and_ends_no_other(monkeypatch, query, why):
    known = totals_rules()._replace(rules=broken("V08", query))
    monkeypatch.setattr(totals, "totals_rules", lambda: known)
    found, (problem,) = judge(engine(), [Judged(name, 1, 2, empty_report()) for name in "ab"])
    assert why in problem.text
    for mine, capture in zip(found, "ab", strict=True):
        assert {one.number for one in mine} == {"V01", "V08"}
        (one,) = (one for one in mine if one.number == "V08")
        assert (one.code, one.severity, one.section) == (FAILED, "warning", "send_latency")
        assert one.capture == capture and why in one.text and "Please report it" in one.text


def test_want_of_memory_is_no_failure_of_a_rule(monkeypatch):
    def breaks(*_):
        raise MemoryError

    monkeypatch.setattr(totals, "finding_of", breaks)
    with pytest.raises(MemoryError):
        judge(engine(), [Judged("", 1, 2, empty_report())])


def test_rows_of_lists_are_rows_whatever_they_hold():
    """That all values of a row are numbers, or not known, makes no map by name of it."""
    report = json.loads(json.dumps(empty_report()))
    report["errors"]["total"] |= {"answers": 3, "incidents": 3}
    report["errors"]["by_code"] = [{"error_code": None, "answers": 3}]
    (findings,), problems = judge(engine(), [Judged("", 1, 2, report)])
    assert not problems
    (one,) = (one for one in findings if one.number == "V12")
    assert one.measured["codes"] == {"no code": 3}


def test_rules_that_call_nothing_wrong_are_not_asked_for_a_list_of_what_is():
    assert "V08" in never_wrong() and not {"V01", "V07"} & never_wrong()
    of_others = frozenset(RULES) - never_wrong()
    assert totals_rules().sections(of_others) == {"coverage", "closing"}


def test_rules_of_sections_that_a_report_lacks_are_not_asked():
    selected = {*totals_rules().selected(("coverage",), ())}
    assert selected == {f"finding_v0{number}" for number in range(1, 7)}
    assert {*totals_rules().selected(("coverage", "closing"), ("V07",))} == {"finding_v07"}


def test_what_is_wrong_says_what_to_do():
    for rule in RULES.values():
        for words in rule.words.values():
            assert words.severity in SEVERITIES
            assert words.parts["do"] or words.severity in (OK, "info"), rule.number


def test_the_longest_name_is_that_of_the_bound():
    assert RULES["V05"].thresholds["longest"].value == MAX_NAME_LENGTH
