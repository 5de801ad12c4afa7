"""Reports to judge: of nothing, and of frames alone."""

import copy
from typing import Any

from dissector.findings.totals import Judged, judge
from dissector.report.headlines import Headline
from dissector.report.headlines import headlines as _headlines
from dissector.report.sections.findings import beside, section_of
from tests.numbers import empty_report, engine

NOTHING_SEEN = "No send was seen."


def judged(report: dict[str, Any]) -> dict[str, Any]:
    """A report that rules over totals have judged as it is now."""
    (findings,), problems = judge(engine(), [Judged("", 0, 0, report)])
    assert not problems, problems
    section = section_of(findings, [])
    of_rows = [row for row in report["findings"]["findings"] if not row["id"].startswith("V")]
    rows = [*of_rows, *section["findings"]]
    both = {"findings": rows, "verdicts": beside(rows, section["verdicts"])}
    return report | {"findings": report["findings"] | section | both}


def headlines(report: dict[str, Any]) -> list[Headline]:
    """What is said of a report as it is now."""
    return _headlines(judged(report))


def empty() -> dict[str, Any]:
    """A report of nothing, which is the caller's to change."""
    return copy.deepcopy(empty_report())


def decoded() -> dict[str, Any]:
    """A report of some frames of which nothing else is known."""
    report = empty()
    report["coverage"]["total"] |= {"packets": 12, "frames": 9}
    return report


def of(report: dict[str, Any], section: str) -> list[Headline]:
    """What is said of a section, but that of most things nothing was seen."""
    found = [one for one in headlines(report) if one.section == section]
    return [one for one in found if not one.text.startswith(NOTHING_SEEN)]
