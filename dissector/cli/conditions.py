"""--fail-on: conditions over the numbers of a report, for unattended jobs."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from dissector.cli import expression, select
from dissector.errors import UsageError
from dissector.findings.loading import SEVERITIES


class Condition(NamedTuple):
    """A condition. text: as given; node: parsed."""

    text: str
    node: expression.Node


def read_conditions(texts: Sequence[str]) -> list[Condition]:
    """Parse the expressions, before any work is done.

    Raises:
        UsageError: one has a syntax error.
    """
    return [Condition(text, expression.parse(text)) for text in texts]


def paths_of(report: Any, prefix: str = "") -> Iterator[str]:
    """The paths of all single numbers of a report, such as send_latency.total.latency_ms.p99."""
    if isinstance(report, dict):
        for name, inner in report.items():
            yield from paths_of(inner, f"{prefix}.{name}" if prefix else name)
    elif not isinstance(report, list):
        yield prefix


_OF_ANY: Final = ", and 'finding.severity >= error' asks of findings"
_KEYED: Final = frozenset({"limits_hit", "one_way_connections", "validation_errors"})
# Parts that a report has only in some cases.
_OPTIONAL: Final = (
    "permit_utilization.total.utilization_of",
    "permit_utilization.balance_over_time",
)


def check_paths(conditions: Sequence[Condition], is_of_lake: bool = False) -> None:
    """Check the names in conditions against the sections of reports, before anything is read.

    Args:
        is_of_lake: the report is made from a lake, and may join captures.

    Raises:
        UsageError: a report never has such a number; the text names the nearest one.
    """
    names = {
        column.name
        for each in conditions if not _is_of_findings(each)
        for column in expression.columns_of(each.node)
    }  # fmt: skip
    for each in filter(_is_of_findings, conditions):
        for column in expression.columns_of(each.node):
            _check_of_finding(column.name)
    if not names:
        return
    # A report of empty tables has every number, too: its sections give all paths.
    from dissector.report.merged_tables import empty_tables
    from dissector.report.result import build

    report = build(empty_tables())
    if is_of_lake:
        # What joining captures changed: only reports over several captures have it.
        from dissector.report import closing

        report["closing"] = closing.of_nothing()
    for name in sorted(names):
        if name.startswith("closing.") and not is_of_lake:
            raise UsageError(
                f"--fail-on: the report has no number {name}: only those of lakes join captures"
            )
        if not name.startswith(tuple(f"{part}." for part in _OPTIONAL)):
            value_at(report, name)


def value_at(report: Any, path: str) -> expression.Value:
    """The number at a path.

    A count by name without an entry is 0: `errors.total.by_request.SEND` where no SEND was
    refused. Any other missing name is an error.

    Raises:
        UsageError: the report has no such number.
    """
    entry: Any = report
    names = path.split(".")
    for depth, name in enumerate(names):
        if isinstance(entry, dict) and name in entry:
            entry = entry[name]
        elif isinstance(entry, dict) and _counts_by_name(names[:depth], entry):
            return 0
        elif ".".join(names[:depth]) in _OPTIONAL or (not depth and name == "closing"):
            return None
        else:
            near = _nearest(path, list(paths_of(report)))
            hint = f"; did you mean {near}?" if near else f"; --json of summary shows all{_OF_ANY}"
            raise UsageError(f"--fail-on: the report has no number {path}{hint}")
    if isinstance(entry, dict | list):
        raise UsageError(f"--fail-on: {path} is not a single number")
    return entry if isinstance(entry, int | float | str | bool) else None


def _nearest(path: str, paths: Sequence[str]) -> str | None:
    """The path probably meant: the shortest with all parts of this one, else the most similar."""
    parts = path.split(".")
    whole = []
    for each in paths:
        rest = iter(each.split("."))
        if all(part in rest for part in parts):
            whole.append(each)
    if whole:
        return min(whole, key=len)
    near = get_close_matches(path, paths, n=1, cutoff=0.6)
    return near[0] if near else None


def _counts_by_name(names: Sequence[str], counts: dict[str, Any]) -> bool:
    """Whether a part of the report counts by names and omits the names with a count of 0."""
    keyed = ("_by_", "outcomes", *_KEYED)
    is_keyed = any(name.startswith("by_") or any(each in name for each in keyed) for name in names)
    return is_keyed and all(isinstance(count, int | dict) for count in counts.values())


def met(conditions: Sequence[Condition], report: Any) -> list[str]:
    """The conditions that are true of a report.

    Raises:
        UsageError: one names a number that the report does not have.
    """
    return [
        condition.text
        for condition in conditions
        if (
            any(_holds_of(condition, row) for row in report["findings"]["findings"])
            if _is_of_findings(condition)
            else select.holds(condition.node, lambda path: value_at(report, path))
        )
    ]


# -- conditions over findings, true if they are of any: finding.severity >= error

_OF_FINDING: Final = "finding."
_NAMES: Final = (
    *("severity", "id", "code", "title", "verdict", "section", "capture", "incidents"),
    *("first_ts", "last_ts"),
)
_PARTS: Final = ("subject.", "measured.", "thresholds.")


class _Severity(str):
    """A severity, ordered by weight against a severity or its text. All comparisons are defined, as
    `str` would compare by letters."""

    def __lt__(self, other: str) -> bool:
        return _weight(self) < _weight(other)

    def __le__(self, other: str) -> bool:
        return _weight(self) <= _weight(other)

    def __gt__(self, other: str) -> bool:
        return _weight(self) > _weight(other)

    def __ge__(self, other: str) -> bool:
        return _weight(self) >= _weight(other)


def _weight(severity: str) -> int:
    name = str.__str__(severity)
    return -SEVERITIES.index(name) if name in SEVERITIES else -len(SEVERITIES)


def _is_of_findings(condition: Condition) -> bool:
    columns = expression.columns_of(condition.node)
    return any(column.name.startswith(_OF_FINDING) for column in columns)


def _check_of_finding(name: str) -> None:
    inner = name.removeprefix(_OF_FINDING)
    if name in SEVERITIES or (inner != name and (inner in _NAMES or inner.startswith(_PARTS))):
        return
    near = get_close_matches(inner, _NAMES, n=1, cutoff=0.6)
    hint = f"; did you mean finding.{near[0]}?" if near else f"; it has {', '.join(_NAMES)}"
    raise UsageError(f"--fail-on: a finding has no {name}{hint}")


def _holds_of(condition: Condition, row: dict[str, Any]) -> bool:
    def value(name: str) -> expression.Value:
        if name in SEVERITIES:
            return _Severity(name)
        entry: Any = row
        for part in name.removeprefix(_OF_FINDING).split("."):
            entry = entry.get(part) if isinstance(entry, dict) else None
        return _Severity(entry) if name == "finding.severity" else entry

    return select.holds(condition.node, value)
