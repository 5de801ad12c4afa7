"""Findings as verdicts: the fault, its rival, what to do and the frames to look at."""

from typing import Any

from dissector.cli.findings import lines_of
from dissector.cli.terminal import Paint
from dissector.cli.text_report import STEPS, text_report
from dissector.findings.finding import findings_of_rows
from dissector.findings.loading import RANK
from dissector.findings.querying import rule_queries
from dissector.limits import MAX_FINDING_KINDS
from dissector.report.example_commands import Commands
from dissector.report.page import page
from dissector.report.sections.findings import as_row, beside
from tests.dissector.findings.judged import decoded, headlines, of
from tests.numbers import Numbers


def judged_report(*numbers: str) -> dict[str, Any]:
    """A report of some frames in which rules found something."""
    made = Numbers()
    made.add("connections", Numbers().tables()["connections"], "c")
    for number in numbers:
        made.add_incident(*number.split()[:1], variant="".join(number.split()[1:]))
    report = decoded()
    report["findings"] = made.result()["findings"]
    report["requests"]["total"]["outcomes"] = {"ok": 3}
    return report


def test_findings_come_first_with_rival_command_and_mark() -> None:
    report = judged_report("D15", "R01 lasting", "D08")
    said = [headline for headline in headlines(report) if headline.section != "coverage"]
    marks = [(headline.word, headline.section) for headline in said[:3]]
    assert marks == [("bad", "send_latency"), ("look", "errors"), ("note", "permit_utilization")]
    first = headlines(report)[0]
    assert first.sentence.startswith("D15 A message was stored twice (proven): ")
    assert first.rival.startswith("What else looks the same: ") and first.anchor == "findings"
    assert first.rival not in first.text
    assert first.next_step.startswith("What to do: ")
    assert first.next_step.endswith("dissector frames INPUT -Y 'frame_no in (1)'")


def test_a_section_with_a_finding_is_not_ok() -> None:
    assert [headline.word for headline in of(judged_report(), "errors")] == ["ok"]
    assert [headline.word for headline in of(judged_report("R01 lasting"), "errors")] == [
        "look",
        "",
    ]
    # What is worth a note says nothing against it.
    assert [headline.word for headline in of(judged_report("R01"), "errors")] == ["note", "ok"]


def test_a_note_on_numbers_of_a_section_with_a_finding_is_no_second_note() -> None:
    others = [{"section": name, "severity": level} for name, level in (
        ("errors", "info"), ("errors", "ok"), ("requests", "info")
    )]  # fmt: skip
    noted = [{"section": "errors", "severity": "info"}]
    assert [row["severity"] for row in beside(noted, others)] == [None, "ok", "info"]
    assert [row["severity"] for row in beside([], others)] == ["info", "ok", "info"]


def test_terminal_says_all_facts_before_what_to_do_about_them() -> None:
    report = judged_report("D15", "R01 lasting", "D08")
    lines = list(text_report(report, Paint(False)))
    steps = lines.index(STEPS)
    facts = [number for number, line in enumerate(lines) if "(proven)" in line]
    rivals = [number for number, line in enumerate(lines) if "What else looks the same" in line]
    assert len(facts) == len(rivals) == 3
    assert max(facts) < steps < min(rivals)


def test_names_from_the_wire_are_made_safe_on_terminal_and_page() -> None:
    evil = "<script>alert(1)</script>\x1b[2J\u202e\nWhat to do: pay."
    query = rule_queries()["finding_d15"]
    incident = {"capture": "c", "first_ns": 1, "last_ns": 2, RANK: 1, query.rule.worst: 1}
    incident |= {"subject_topic": evil, "subject_producer_name": evil, "frame_a": 1}
    (one,), _ = findings_of_rows(query.rule, [incident])
    report, row = judged_report("D15"), as_row(one)
    report["findings"]["findings"] = [row]
    assert len(row["text"].split("\n")) == 5 and row["subject"]["topic"] == evil
    terminal = "\n".join(text_report(report, Paint(False)))
    terminal += "\n".join(lines_of([row], 1, Commands(report), Paint(False), 80))
    for text in (page(report), terminal):
        assert "\x1b" not in text and "\u202e" not in text and "alert(1)" in text
    assert "<script>alert" not in page(report)


def test_kinds_are_told_once_and_bounded() -> None:
    report = judged_report("D15")
    row, *_ = report["findings"]["findings"]
    report["findings"]["findings"] = [row | {"capture": name} for name in "abc"]
    assert "And 2 others." in headlines(report)[0].text
    report["findings"]["findings"] = [row | {"id": f"X{n}"} for n in range(99)]
    assert sum(headline.anchor == "findings" for headline in headlines(report)) == MAX_FINDING_KINDS
