"""Findings: faults that the rules found, with evidence and rival causes, the worst first."""

import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dissector.findings.finding import Finding, findings_of_rows, worst_first
from dissector.findings.loading import OK, SEVERITIES, WRONG, RuleProblem
from dissector.findings.querying import OverFrames, rule_queries
from dissector.findings.totals import Judged, failure, judge, totals_rules
from dissector.report.descriptions import in_protocol_words
from dissector.report.formatting import many
from dissector.report.merged_tables import MergedTables
from dissector.report.numbers import Row, high, instant, low
from dissector.report.section import Section
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.small_tables import nested_table

_OF_CAPTURES: Final = ("coverage", "closing")  # sections that are about no protocol's traffic


class Judgement(NamedTuple):
    """The findings, the worst first, and the rules that failed."""

    findings: list[Finding]
    problems: list[RuleProblem]


def findings_in(merged: MergedTables) -> tuple[list[Finding], list[RuleProblem]]:
    """The findings of the program's rules, the worst first, and the rules that failed."""
    findings: list[Finding] = []
    problems: list[RuleProblem] = []
    for name, query in rule_queries().items():
        mine, failed = findings_of_rows(query.rule, merged.rows(name))
        findings += mine
        problems += failed
    return worst_first(findings), problems


def as_row(one: Finding) -> Row:
    """A finding as a row of the report."""
    return {
        "id": one.number,
        "code": one.code,
        "title": one.title,
        "severity": one.severity,
        "verdict": one.verdict,
        "section": one.section,
        "capture": one.capture or None,
        "subject": dict(one.subject),
        "first_ts": instant(one.first_ns),
        "last_ts": instant(one.last_ns),
        "incidents": one.incidents,
        "measured": dict(one.measured),
        "thresholds": dict(one.thresholds),
        "ruled_out": list(one.ruled_out),
        "evidence": [each._asdict() for each in one.evidence],
        "text": one.text,
        "show": one.show,
    }


def is_wrong(one: Finding) -> bool:
    """Whether a finding is a fault: rules over totals also say what is fine or unknown."""
    return one.severity in WRONG or one.number not in _over_totals()


def section_of(findings: Sequence[Finding], problems: Iterable[RuleProblem]) -> dict[str, Any]:
    """The section `findings`: total; findings: faults; verdicts: other sentences of rules on the
    numbers."""
    wrong = [one for one in findings if is_wrong(one)]
    counts = Counter(one.severity for one in wrong)
    total = {
        "findings": len(wrong),
        "by_severity": {name: counts[name] for name in SEVERITIES if name != OK},
        "rules": len(rule_queries()) + len(_over_totals()),
        "rules_failed": len({problem.file for problem in problems}),
    }
    rows = [as_row(one) for one in wrong]
    others = [as_row(one) for one in findings if not is_wrong(one)]
    return {"total": total, "findings": rows, "verdicts": beside(rows, others)}


def beside(wrong: Iterable[Row], others: Iterable[Row]) -> list[Row]:
    """The rules' other sentences on numbers, as rows. The severity becomes None beside a finding:
    "ok" in a section that a finding calls wrong, and a note in a section with any finding."""
    listed = [*wrong]
    of_wrong = {row["section"] for row in listed if row["severity"] in WRONG}
    of_any = {row["section"] for row in listed}
    return [
        row | {"severity": None}
        if row["section"] in (of_wrong if row["severity"] == OK else of_any)
        else row
        for row in others
    ]


def findings(merged: MergedTables) -> dict[str, Any]:
    """The section `findings` of the rules over rows; rules over totals are not run."""
    return section_of(*findings_in(merged))


def judge_reports(
    engine: OverFrames, reports: Sequence[tuple[MergedTables, Row]], numbers: Iterable[str] = ()
) -> list[Judgement]:
    """Run the rules over totals on reports, and add their findings to each report's `findings`.

    Args:
        reports: reports with the same sections, and their merged tables.
        numbers: of the rules to run, none: all.
    """
    judged = [_judged(merged, report) for merged, report in reports]
    by_totals, failed = judge(engine, judged, numbers)
    outcomes = []
    for (merged, report), more in zip(reports, by_totals, strict=True):
        of_rows, problems = findings_in(merged)
        in_words = (_in_protocol_words(report, one) for one in more)
        judgement = Judgement(worst_first([*of_rows, *in_words]), [*problems, *failed])
        section = section_of(judgement.findings, judgement.problems)
        if "about" in report["findings"]:
            section = {"about": about({"findings": section}), **section}
        report["findings"] = section
        outcomes.append(judgement)
    return outcomes


def _in_protocol_words(report: Row, one: Finding) -> Finding:
    if one.section in _OF_CAPTURES or "checksum_failures" not in report:
        return one
    return one._replace(text=in_protocol_words(report, one.text))


def failed_section(merged: MergedTables, error: Exception) -> Row:
    """The section `findings` of a report whose sections failed: the failure is its finding."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    why = f"{type(error).__name__} in line {at.lineno} of {PurePath(at.filename).name}"
    return section_of([failure(_judged(merged, {}), "", "coverage", why)], [])


def _judged(merged: MergedTables, report: Row) -> Judged:
    files = merged.rows("files")
    captures = {row["capture"] for row in files}
    return Judged(
        captures.pop() or "" if len(captures) == 1 else "",
        low(row["first_ts_ns"] for row in files) or 0,
        high(row["last_ts_ns"] for row in files) or 0,
        report,
    )


@cache
def _over_totals() -> frozenset[str]:
    return frozenset(rule.number for rule in totals_rules().rules.values())


def about(report: Row) -> str:
    """The section's sentences: what the findings mean, and what is unknown."""
    total = report["findings"]["total"]
    failed = many(total["rules_failed"], "rule") if total["rules_failed"] else ""
    return (
        f"Faults that {many(total['rules'], 'rule')} found, the worst first. A finding is proven "
        "if the frames alone decide, else a pattern that fits, with what else could look the "
        "same. Each capture is judged by itself."
        f"{f' Left out, since they failed: {failed}.' if failed else ''}"
    )


def table_of(findings: Iterable[Finding]) -> pa.Table:
    """Findings as rows of the table of that name."""
    rows = [
        {
            **as_row(one),
            "first_ns": one.first_ns,
            "last_ns": one.last_ns,
            **{name: _texts(getattr(one, name)) for name in ("subject", "measured", "thresholds")},
            "frame_nos": [each.frame_no for each in one.evidence],
            "packets": [each.packet for each in one.evidence],
            "roles": [each.role for each in one.evidence],
        }
        for one in findings
    ]
    return nested_table(rows, arrow_schema("findings"))


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items() if value is not None]


SECTION: Final = Section("findings", findings, about, ())
