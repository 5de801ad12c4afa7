"""Rules over totals: what the numbers of a report say of the capture, that all is well, too.

Their table `totals` has a row for each thing that is judged (a capture, or all captures together):
`place`, `is_evident`, `is_of_time` (times are left out), and the sections of report.json as
columns: `coverage.total.gaps`. Counts by name are maps, whose numbers and those of other groups are
`counts['name']`; lists are lists.
Whatever engine counted, DuckDB asks these rules.
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

# Sections that rules may read; `closing` is of reports over several captures alone.
SECTIONS_READ: Final = (
    "coverage", "send_latency", "permit_utilization", "redelivery", "checksum_failures", "errors",
    "publish_to_delivery", "ack_latency", "requests", "connecting", "closing",
)  # fmt: skip
_EVIDENT: Final = 0.5  # share of the stream below which what was seen says little of the rest
_WORD: Final = re.compile(r"\w+")
FAILED: Final = "rule_failed"  # the code of what says that the program could not judge
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
        if "coverage" in lacking:  # `is_evident` is from it
            return {}
        return {
            name: rule
            for name, rule in self.rules.items()
            if not lacking & {*_WORD.findall(rule.query)} and (not wanted or rule.number in wanted)
        }

    def sections(self, numbers: Iterable[str] = ()) -> set[str]:
        """Those of a report that they read. numbers: of rules, none for all."""
        asked = self.asked(SECTIONS_READ, numbers).values()
        words = {word for rule in asked for word in ("coverage", *_WORD.findall(rule.query))}
        return words.intersection(SECTIONS_READ)


@cache
def totals_rules() -> TotalsRules:
    """The program's own."""
    rules = {
        f"{MAY_FAIL}{rule.number.lower()}": rule for rule in load_rules()[0] if rule.is_over_totals
    }
    words = frozenset(_WORD.findall("\n".join(rule.query for rule in rules.values())))
    return TotalsRules(rules, words)


@cache
def never_wrong() -> frozenset[str]:
    """Numbers of those that call nothing wrong: they say that all is well, or a note."""
    return frozenset(
        rule.number for rule in totals_rules().rules.values()
        if all(words.severity not in WRONG for words in rule.words.values())
    )  # fmt: skip


def names_of(number: str) -> Mapping[str, str]:
    """What a rule calls the names of its counts, see `Rule.names`."""
    return next(rule.names for rule in totals_rules().rules.values() if rule.number == number)


def judge(
    engine: OverFrames, judged: Sequence[Judged], numbers: Iterable[str] = ()
) -> tuple[list[list[Finding]], list[RuleProblem]]:
    """What rules find in the numbers of reports that have the same sections, for each of them, and
    rules that failed. Of these each report says that it could not be judged by them.

    Args:
        numbers: of rules that are asked, none for all; those that read a section which the
            reports lack are not.
    """
    findings: list[list[Finding]] = [[] for _ in judged]
    problems: list[RuleProblem] = []
    if not judged:
        return findings, problems
    known = totals_rules()
    rules = known.asked(judged[0].report, numbers)
    engine.register("totals", _totals(judged, known.words))
    texts = {name: with_thresholds(rule, rule.query) for name, rule in rules.items()}
    for name, rows in sorted(engine.tables(texts).items()) if texts else ():
        rule = rules[name]
        for row in rows.to_pylist():
            problem = row.get("problem")
            places = [*range(len(judged))] if problem else [row.pop("place")]
            for place in places:
                one = judged[place]
                try:
                    if problem:
                        raise UsageError(str(problem))
                    findings[place].append(_finding(rule, row, one))
                except UsageError as error:
                    problems.append(RuleProblem(rule.file, rule.query_line, str(error)))
                    why = f"rule {rule.number}, {error}"
                    findings[place].append(failure(one, rule.number, rule.section, why))
    return findings, list(dict.fromkeys(problems))


def _finding(rule: Rule, row: dict[str, Any], one: Judged) -> Finding:
    """What a row of a rule says. Of several captures, `capture` is the one whose frames it names.

    Raises:
        UsageError: as of `finding_of`.
    """
    capture = row.get("capture") or one.capture
    span = {"capture": capture, "first_ns": one.first_ns, "last_ns": one.last_ns}
    return finding_of(rule, [[row | span]])


def failure(one: Judged, number: str, section: str, why: str) -> Finding:
    """That the program could not judge, which is found as anything else."""
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
    """The table `totals`; what no rule names is left out."""
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
    """Values of one place in reports, as a column: see above. are_rows: items of a list."""
    some = [value for value in values if value is not None]
    if not some:
        return pa.nulls(len(values))
    if isinstance(some[0], list):
        lists = [(value or [])[:MAX_JUDGED_ROWS] for value in values]
        rows = [row for rows in lists for row in rows]
        return pa.ListArray.from_arrays(_bounds(lists), _column(rows, words, are_rows=True))
    if isinstance(some[0], str):
        return text_array(values)
    if not isinstance(some[0], dict):
        return _numbers(values)
    pairs = [pair for value in some for pair in value.items()]
    if not are_rows and all(isinstance(value, int | float | None) for _, value in pairs):
        keys, items = text_array([key for key, _ in pairs]), _numbers([value for _, value in pairs])
        return pa.MapArray.from_arrays(_bounds(values), keys, items)
    names = [name for name in dict.fromkeys(n for v in some for n in v) if name in words]
    parts = [_column([(value or {}).get(name) for value in values], words) for name in names]
    return pa.StructArray.from_arrays(parts, names)


def _bounds(values: Sequence[Any]) -> pa.Array:
    """Where each of several lists or maps begins among the items of all."""
    ends = np.array([0, *(len(value or ()) for value in values)], np.int32).cumsum(dtype=np.int32)
    return pa.Array.from_buffers(pa.int32(), len(ends), [None, pa.py_buffer(ends)])


def _numbers(values: Sequence[float | None]) -> pa.Array:
    """Not by pyarrow.array, which imports pandas first: a third of a second."""
    is_fraction = any(isinstance(value, float) for value in values)
    there = np.array([value is not None for value in values], bool)
    cells = np.array([value or 0 for value in values], np.float64 if is_fraction else np.int64)
    bits = pa.py_buffer(np.packbits(there, bitorder="little"))
    kind = pa.float64() if is_fraction else pa.int64()
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(cells)])
