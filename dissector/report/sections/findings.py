"""Findings: what the rules say is wrong, with its proof and its rivals, the worst first."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa

from dissector.findings.finding import Finding, found_by, worst_first
from dissector.findings.loading import SEVERITIES, Problem
from dissector.findings.querying import rule_queries
from dissector.report.numbers import Row, instant
from dissector.report.parts import Parts
from dissector.report.section import Section
from dissector.report.words import many
from dissector.schemas.arrow import arrow_schema


def found_in(parts: Parts) -> tuple[list[Finding], list[Problem]]:
    """What the rules of the program found, the worst first, and rules that failed."""
    found: list[Finding] = []
    problems: list[Problem] = []
    for name, query in rule_queries().items():
        mine, failed = found_by(query.rule, parts.rows(name))
        found += mine
        problems += failed
    return worst_first(found), problems


def as_row(one: Finding) -> Row:
    """A finding as a report has it."""
    return {
        "id": one.number,
        "code": one.code,
        "title": one.title,
        "severity": one.severity,
        "verdict": one.verdict,
        "section": one.section,
        "capture": one.capture,
        "subject": dict(one.subject),
        "first_ts": instant(one.first_ns),
        "last_ts": instant(one.last_ns),
        "incidents": one.incidents,
        "measured": dict(one.measured),
        "thresholds": dict(one.thresholds),
        "ruled_out": list(one.ruled_out),
        "evidence": [each._asdict() for each in one.evidence],
        "text": one.text,
    }


def findings(parts: Parts) -> dict[str, Any]:
    """The section `findings`: total, findings."""
    found, problems = found_in(parts)
    counts = Counter(one.severity for one in found)
    total = {
        "findings": len(found),
        "by_severity": {severity: counts[severity] for severity in SEVERITIES},
        "rules": len(rule_queries()),
        "rules_failed": len({problem.file for problem in problems}),
    }
    return {"total": total, "findings": [as_row(one) for one in found]}


def about(report: Row) -> str:
    """What the findings mean, and what is not known."""
    total = report["findings"]["total"]
    failed = many(total["rules_failed"], "rule") if total["rules_failed"] else ""
    return (
        f"What {many(total['rules'], 'rule')} found that people report as trouble, the worst "
        "first. A finding is proven where the wire alone decides, else a pattern that fits, with "
        "what else could look the same. Each capture is judged by what it holds itself."
        f"{f' Left out, since they failed: {failed}.' if failed else ''}"
    )


def table_of(found: Iterable[Finding]) -> pa.Table:
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
        for one in found
    ]
    return pa.Table.from_pylist(rows, arrow_schema("findings"))


def _texts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items() if value is not None]


SECTION: Final = Section("findings", findings, about)
