"""Reports to judge: of nothing, and of frames alone."""

import copy
from collections.abc import Collection
from typing import Any

from dissector.findings.totals import Judged, judge, totals_rules
from dissector.report.headlines import Headline
from dissector.report.headlines import headlines as _headlines
from dissector.report.sections.findings import beside, section_of
from tests.numbers import empty_report, engine

NOTHING_SEEN = "No send was seen."


def judged(report: dict[str, Any], sections: Collection[str] = ()) -> dict[str, Any]:
    """A report that rules over totals have judged as it is now. sections: of the rules that are
    asked, none for all."""
    rules = totals_rules().rules.values()
    numbers = [rule.number for rule in rules if not sections or rule.section in sections]
    (findings,), problems = judge(engine(), [Judged("", 0, 0, report)], numbers)
    assert not problems, problems
    section = section_of(findings, [])
    of_rows = [row for row in report["findings"]["findings"] if not row["id"].startswith("V")]
    rows = [*of_rows, *section["findings"]]
    both = {"findings": rows, "verdicts": beside(rows, section["verdicts"])}
    return report | {"findings": report["findings"] | section | both}


def headlines(report: dict[str, Any], sections: Collection[str] = ()) -> list[Headline]:
    """What is said of a report as it is now."""
    return _headlines(judged(report, sections))


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
    found = [one for one in headlines(report, [section]) if one.section == section]
    return [one for one in found if not one.text.startswith(NOTHING_SEEN)]
