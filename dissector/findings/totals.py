"""Rules over totals: findings from the numbers of a report, including that there is no fault.

Their table `totals` has a row per judged report (of a capture, or of all together): `place`,
`is_evident`, `is_of_time` (the time is restricted), and the sections of report.json as columns:
`coverage.total.gaps`. Objects of numbers are maps: `counts['name']`; lists are lists.
DuckDB runs these rules, whichever engine computed the numbers.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from dissector.errors import UsageError
from dissector.findings.finding import Finding, finding_of
from dissector.findings.loading import (
    VERDICTS,
    WRONG,
    Rule,
    RuleProblem,
    load_rules,
    with_thresholds,
)
from dissector.findings.querying import OverFrames
from dissector.limits import MAX_JUDGED_ROWS
from dissector.queries.catalogue import MAY_FAIL
from dissector.queries.selection import Selection
from dissector.schemas.text import text_array

# Sections that rules may read; only reports over several captures have `closing`.
SECTIONS_READ: Final = (
    "coverage", "send_latency", "permit_utilization", "redelivery", "checksum_failures", "errors",
    "publish_to_delivery", "ack_latency", "requests", "connecting", "closing",
)  # fmt: skip
_EVIDENT: Final = 0.5  # share of the stream below which the decoded part is not representative
_WORD: Final = re.compile(r"\w+")
FAILED: Final = "rule_failed"  # code of the finding that a rule failed
Row = Mapping[str, Any]


class Judged(NamedTuple):
    """A report to judge: its capture ("" for several), its first and last time, and its JSON."""

    capture: str
    first_ns: int
    last_ns: int
    report: Row


class TotalsRules(NamedTuple):
    """Rules over totals by query name, and the words of their queries."""

    rules: Mapping[str, Rule]
    words: frozenset[str]

    def selected(self, sections: Iterable[str], numbers: Iterable[str]) -> dict[str, Rule]:
        """The rules that read only these sections. numbers: of rules, empty for all."""
        lacking, wanted = {*SECTIONS_READ} - {*sections}, {*numbers}
        if "coverage" in lacking:  # `is_evident` is from it
            return {}
        return {
            name: rule
            for name, rule in self.rules.items()
            if not lacking & {*_WORD.findall(rule.query)} and (not wanted or rule.number in wanted)
        }

    def sections(self, numbers: Iterable[str] = ()) -> set[str]:
        """The report sections that the rules read. numbers: of rules, empty for all."""
        rules = self.selected(SECTIONS_READ, numbers).values()
        words = {word for rule in rules for word in ("coverage", *_WORD.findall(rule.query))}
        return words.intersection(SECTIONS_READ)


@cache
def totals_rules() -> TotalsRules:
    """The program's rules over totals."""
    rules = {
        f"{MAY_FAIL}{rule.number.lower()}": rule for rule in load_rules()[0] if rule.is_over_totals
    }
    words = frozenset(_WORD.findall("\n".join(rule.query for rule in rules.values())))
    return TotalsRules(rules, words)


@cache
def never_wrong() -> frozenset[str]:
    """The numbers of rules without a severity in WRONG."""
    return frozenset(
        rule.number for rule in totals_rules().rules.values()
        if all(words.severity not in WRONG for words in rule.words.values())
    )  # fmt: skip


def names_of(number: str) -> Mapping[str, str]:
    """The display names of a rule's counts, see `Rule.names`."""
    return next(rule.names for rule in totals_rules().rules.values() if rule.number == number)


def judge(
    engine: OverFrames, judged: Sequence[Judged], numbers: Iterable[str] = ()
) -> tuple[list[list[Finding]], list[RuleProblem]]:
    """The findings for each report, and the problems of rules that failed; each failure is also a
    finding. All reports have the same sections.

    Args:
        numbers: of the rules to run, empty for all. Rules that read a missing section do not run.
    """
    findings: list[list[Finding]] = [[] for _ in judged]
    problems: list[RuleProblem] = []
    if not judged:
        return findings, problems
    known = totals_rules()
    rules = known.selected(judged[0].report, numbers)
    engine.register("totals", _totals(judged, known.words))
    texts = {name: with_thresholds(rule, rule.query) for name, rule in rules.items()}
    for name, rows in sorted(engine.tables(texts).items()) if texts else ():
        rule = rules[name]
        for row in rows.to_pylist():
            problem = row.get("problem")
            indexes = [*range(len(judged))] if problem else [row.pop("place")]
            for index in indexes:
                one = judged[index]
                try:
                    if problem:
                        raise UsageError(str(problem))
                    findings[index].append(_finding(rule, row, one))
                except UsageError as error:
                    problems.append(RuleProblem(rule.file, rule.query_line, str(error)))
                    why = f"rule {rule.number}, {error}"
                    findings[index].append(failure(one, rule.number, rule.section, why))
    return findings, list(dict.fromkeys(problems))


def _finding(rule: Rule, row: dict[str, Any], one: Judged) -> Finding:
    """The finding of a row. Its `capture`, if any, is the one of several whose frames it names.

    Raises:
        UsageError: as in `finding_of`.
    """
    capture = row.get("capture") or one.capture
    span = {"capture": capture, "first_ns": one.first_ns, "last_ns": one.last_ns}
    return finding_of(rule, [[row | span]])


def failure(one: Judged, number: str, section: str, why: str) -> Finding:
    """The finding that a rule failed."""
    text = (
        f"This program failed to judge what was seen here: {why}.\n"
        "What to do: Please report it, with this line and the version."
    )
    return Finding(
        number, FAILED, "This program failed to judge", "warning", VERDICTS[0], section,
        one.capture, {}, one.first_ns, one.last_ns, ((one.first_ns, one.last_ns),), 0, {}, {}, (),
        (), text, "$ dissector version",
    )  # fmt: skip


def _totals(judged: Sequence[Judged], words: frozenset[str]) -> pa.Table:
    """The table `totals`, without the fields that no rule names."""
    columns = {"place": _numbers(range(len(judged)))}
    for section in SECTIONS_READ:
        if section in judged[0].report:
            columns[section] = _column([one.report[section] for one in judged], words)
    if "coverage" in columns:
        shares = [one.report["coverage"]["total"]["decoded_share_of_recognised"] for one in judged]
        columns["is_evident"] = _numbers([share is None or share >= _EVIDENT for share in shares])
    selected = [Selection.of_json(one.report.get("selection")) for one in judged]
    columns["is_of_time"] = _numbers([one.is_of_time for one in selected])
    return pa.table(columns)


def _column(values: Sequence[Any], words: frozenset[str], are_rows: bool = False) -> pa.Array:
    """The values of one field in all reports as an Arrow array. are_rows: items of a list."""
    known = [value for value in values if value is not None]
    if not known:
        return pa.nulls(len(values))
    if isinstance(known[0], list):
        lists = [(value or [])[:MAX_JUDGED_ROWS] for value in values]
        rows = [row for rows in lists for row in rows]
        return pa.ListArray.from_arrays(_bounds(lists), _column(rows, words, are_rows=True))
    if isinstance(known[0], str):
        return text_array(values)
    if not isinstance(known[0], dict):
        return _numbers(values)
    pairs = [pair for value in known for pair in value.items()]
    if not are_rows and all(isinstance(value, int | float | None) for _, value in pairs):
        keys, items = text_array([key for key, _ in pairs]), _numbers([value for _, value in pairs])
        return pa.MapArray.from_arrays(_bounds(values), keys, items)
    names = [name for name in dict.fromkeys(n for v in known for n in v) if name in words]
    fields = [_column([(value or {}).get(name) for value in values], words) for name in names]
    return pa.StructArray.from_arrays(fields, names)


def _bounds(values: Sequence[Any]) -> pa.Array:
    """The offsets of lists or maps in their concatenated items: int32[count + 1]."""
    ends = np.array([0, *(len(value or ()) for value in values)], np.int32).cumsum(dtype=np.int32)
    return pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])


def _numbers(values: Sequence[float | None]) -> pa.Array:
    """An Arrow array, built without pyarrow.array, which imports pandas: a third of a second."""
    is_fraction = any(isinstance(value, float) for value in values)
    is_valid = np.array([value is not None for value in values], bool)
    cells = np.array([value or 0 for value in values], np.float64 if is_fraction else np.int64)
    bits = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    kind = pa.float64() if is_fraction else pa.int64()
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(cells)])
