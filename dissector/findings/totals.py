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

import numpy as np
import pyarrow as pa

from dissector.errors import UsageError
from dissector.findings.finding import Finding, finding_of
from dissector.findings.loading import Rule, RuleProblem, load_rules, with_thresholds
from dissector.findings.querying import OverFrames
from dissector.queries.catalogue import MAY_FAIL
from dissector.schemas.text import text_array

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

    def sections(self, numbers: Iterable[str] = ()) -> set[str]:
        """Those of a report that they read. numbers: of rules, none for all."""
        asked = self.asked(SECTIONS_READ, numbers).values()
        words = {word for rule in asked for word in _WORD.findall(rule.query)}
        return words.intersection(SECTIONS_READ)


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
    columns: dict[str, pa.Array] = {"place": _numbers(range(len(judged)))}
    for section in SECTIONS_READ:
        if section in judged[0].report:
            columns[section] = _column([one.report[section] for one in judged], words)
    return pa.table(columns)


def _column(values: Sequence[Any], words: frozenset[str]) -> pa.Array:
    """Values of one place in reports, as a column: see above."""
    some = [value for value in values if value is not None]
    if any(isinstance(value, list) for value in some):
        return text_array([None if value is None else json.dumps(value) for value in values])
    if any(isinstance(value, str) for value in some):
        return text_array(values)
    if not any(isinstance(value, dict) for value in some):
        return _numbers(values)
    pairs = [pair for value in some for pair in value.items()]
    if all(value is None or isinstance(value, int | float) for _, value in pairs):
        sizes = np.array([0, *(len(value or ()) for value in values)], np.int32)
        bounds = pa.Array.from_buffers(
            pa.int32(), len(sizes), [None, pa.py_buffer(sizes.cumsum(dtype=np.int32))]
        )
        keys, items = text_array([key for key, _ in pairs]), _numbers([value for _, value in pairs])
        return pa.MapArray.from_arrays(bounds, keys, items)
    names = [name for name in dict.fromkeys(n for v in some for n in v) if name in words]
    parts = [_column([(value or {}).get(name) for value in values], words) for name in names]
    return pa.StructArray.from_arrays(parts, names)


def _numbers(values: Sequence[float | None]) -> pa.Array:
    """Not by pyarrow.array, which imports pandas first: a third of a second."""
    is_fraction = any(isinstance(value, float) for value in values)
    there = np.array([value is not None for value in values], bool)
    cells = np.array([value or 0 for value in values], np.float64 if is_fraction else np.int64)
    bits = pa.py_buffer(np.packbits(there, bitorder="little"))
    kind = pa.float64() if is_fraction else pa.int64()
    return pa.Array.from_buffers(kind, len(values), [bits, pa.py_buffer(cells)])
