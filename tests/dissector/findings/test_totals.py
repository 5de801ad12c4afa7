"""Rules over totals: they fire where they must, and what they say reads right."""

import json
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.findings.loading import OK, SEVERITIES
from dissector.findings.totals import Judged, judge, totals_rules
from dissector.limits import MAX_NAME_LENGTH
from tests.numbers import empty_report, engine

RULES = {rule.number: rule for rule in totals_rules().rules.values()}
CAPTURES = Path(__file__).resolve().parents[3] / "captures"
NAMES = sorted({name for rule in RULES.values() for name in (*rule.fires, *rule.silent)})


def wrong_in(name, capsys):
    (file,) = CAPTURES.glob(f"*/{name}")
    assert run(["findings", "-q", "--json", str(file)]) in (0, 3)
    return {row["id"] for row in json.loads(capsys.readouterr().out)["findings"]}


@pytest.mark.parametrize("name", NAMES)
def test_a_rule_fires_where_it_must_and_is_silent_on_its_twins(name, capsys):
    found = wrong_in(name, capsys)
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


def test_rules_of_sections_that_a_report_lacks_are_not_asked():
    asked = {*totals_rules().asked(("coverage",), ())}
    assert "finding_v07" not in asked and len(asked) == len(RULES) - 1
    assert {*totals_rules().asked(("coverage", "closing"), ("V07",))} == {"finding_v07"}


def test_what_is_wrong_says_what_to_do():
    for rule in RULES.values():
        for words in rule.words.values():
            assert words.severity in SEVERITIES
            assert words.parts["do"] or words.severity in (OK, "info"), rule.number


def test_the_longest_name_is_that_of_the_bound():
    assert RULES["V05"].thresholds["longest"].value == MAX_NAME_LENGTH
