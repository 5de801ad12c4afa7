"""Rules over totals: what the numbers of a report say of the capture, that all is well, too.

Their table `totals` has a row for each thing that is judged (a capture, or all captures together):
`place`, and the sections of report.json as columns: `coverage.total.gaps`. Counts by name are maps,
lists are JSON; all else are numbers and texts. Whatever engine counted, DuckDB asks these rules.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import pyarrow as pa

from dissector.errors import UsageError
from dissector.findings.finding import Finding, finding_of
from dissector.findings.loading import Rule, RuleProblem, load_rules, with_thresholds
from dissector.findings.querying import OverFrames
from dissector.queries.catalogue import MAY_FAIL

# Sections that rules may read; `closing` is of reports over several captures alone.
SECTIONS_READ: Final = ("coverage", "closing")
_WORD: Final = re.compile(r"\w+")
Row = Mapping[str, Any]


class Judged(NamedTuple):
    """What is judged: its capture, "" for several together; when it began and ended; its report."""

    capture: str
    first_ns: int
    last_ns: int
    report: Row


class TotalsRules(NamedTuple):
    """Rules over totals by the names of their queries, and the words that their texts have."""

    rules: Mapping[str, Rule]
    words: frozenset[str]

    def asked(self, sections: Iterable[str], numbers: Iterable[str]) -> dict[str, Rule]:
        """Those that read nothing but these sections. numbers: of rules, none for all."""
        lacking, wanted = {*SECTIONS_READ} - {*sections}, {*numbers}
        return {
            name: rule
            for name, rule in self.rules.items()
            if not lacking & {*_WORD.findall(rule.query)} and (not wanted or rule.number in wanted)
        }


@cache
def totals_rules() -> TotalsRules:
    """The program's own."""
    rules = {
        f"{MAY_FAIL}{rule.number.lower()}": rule for rule in load_rules()[0] if rule.is_over_totals
    }
    words = frozenset(_WORD.findall("\n".join(rule.query for rule in rules.values())))
    return TotalsRules(rules, words)


def judge(
    engine: OverFrames, judged: Sequence[Judged], numbers: Iterable[str] = ()
) -> tuple[list[list[Finding]], list[RuleProblem]]:
    """What rules find in the numbers of reports that have the same sections, for each of them, and
    rules that failed.

    Args:
        numbers: of rules that are asked, none for all; those that read a section which the
            reports lack are not.
    """
    found: list[list[Finding]] = [[] for _ in judged]
    problems: list[RuleProblem] = []
    if not judged:
        return found, problems
    known = totals_rules()
    rules = known.asked(judged[0].report, numbers)
    engine.register("totals", _totals(judged, known.words))
    texts = {name: with_thresholds(rule, rule.query) for name, rule in rules.items()}
    for name, rows in sorted(engine.tables(texts).items()) if texts else ():
        rule = rules[name]
        for row in rows.to_pylist():
            if row.get("problem"):
                problems.append(RuleProblem(rule.file, rule.query_line, str(row["problem"])))
                continue
            place = row.pop("place")
            one = judged[place]
            span = {"capture": one.capture, "first_ns": one.first_ns, "last_ns": one.last_ns}
            try:
                found[place].append(finding_of(rule, [[row | span]]))
            except UsageError as error:
                problems.append(RuleProblem(rule.file, rule.query_line, str(error)))
    return found, problems


def _totals(judged: Sequence[Judged], words: frozenset[str]) -> pa.Table:
    """The table `totals`; what no rule names is left out."""
    columns: dict[str, pa.Array] = {"place": pa.array(range(len(judged)), pa.int64())}
    for section in SECTIONS_READ:
        if section in judged[0].report:
            columns[section] = _column([one.report[section] for one in judged], words)
    return pa.table(columns)


def _column(values: Sequence[Any], words: frozenset[str]) -> pa.Array:
    """Values of one place in reports, as a column: see above."""
    some = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in some):
        texts = [None if value is None else json.dumps(value) for value in values]
        return pa.array(texts, pa.string())
    if any(isinstance(value, str) for value in some):
        return pa.array(values, pa.string())
    if not any(isinstance(value, dict) for value in some):
        return pa.array(values, pa.float64() if _is_fraction(some) else pa.int64())
    inner = [each for value in some for each in value.values()]
    if all(each is None or isinstance(each, int | float) for each in inner):
        kind = pa.float64() if _is_fraction(inner) else pa.int64()
        rows = [None if value is None else list(value.items()) for value in values]
        return pa.array(rows, pa.map_(pa.string(), kind))
    names = [name for name in dict.fromkeys(n for v in some for n in v) if name in words]
    parts = [_column([(value or {}).get(name) for value in values], words) for name in names]
    return pa.StructArray.from_arrays(parts, names)


def _is_fraction(values: Iterable[Any]) -> bool:
    return any(isinstance(value, float) for value in values)
