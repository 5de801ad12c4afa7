"""Reports to judge: of nothing, and of frames alone."""

import copy
from typing import Any

from dissector.findings.totals import Judged, judge
from dissector.report.sections.findings import section_of
from dissector.report.verdict import Remark
from dissector.report.verdicts import headlines as _remarks
from tests.numbers import empty_report, engine


def judged(report: dict[str, Any]) -> dict[str, Any]:
    """A report that rules over totals have judged as it is now."""
    (found,), problems = judge(engine(), [Judged("", 0, 0, report)])
    assert not problems
    section = section_of(found, [])
    of_rows = [row for row in report["findings"]["findings"] if not row["id"].startswith("V")]
    findings = {"findings": [*of_rows, *section["findings"]]}
    return report | {"findings": report["findings"] | section | findings}


def headlines(report: dict[str, Any]) -> list[Remark]:
    """What is said of a report as it is now."""
    return _remarks(judged(report))


def empty() -> dict[str, Any]:
    """A report of nothing, which is the caller's to change."""
    return copy.deepcopy(empty_report())


def decoded() -> dict[str, Any]:
    """A report of some frames of which nothing else is known."""
    report = empty()
    report["coverage"]["total"]["frames"] = 9
    return report


def of(report: dict[str, Any], section: str) -> list[Remark]:
    return [headline for headline in headlines(report) if headline.section == section]
