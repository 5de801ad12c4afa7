"""--fail-on: conditions over the numbers of a report, for jobs that nobody watches."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from dissector.cli import expression, select
from dissector.errors import UsageError


class Condition(NamedTuple):
    """text: as given; node: as read."""

    text: str
    node: expression.Node


def read_conditions(texts: Sequence[str]) -> list[Condition]:
    """Read the expressions before any work is done.

    Raises:
        UsageError: one cannot be read.
    """
    return [Condition(text, expression.parse(text)) for text in texts]


def paths_of(report: Any, prefix: str = "") -> Iterator[str]:
    """The names of all single numbers of a report: send_latency.total.latency_ms.p99."""
    if isinstance(report, dict):
        for name, inner in report.items():
            yield from paths_of(inner, f"{prefix}.{name}" if prefix else name)
    elif not isinstance(report, list):
        yield prefix


def value_at(report: Any, path: str) -> expression.Value:
    """The number of this name.

    A count by name that has no entry is 0: `errors.total.by_request.SEND` where no SEND was
    refused. Any other name that is not there is a mistake.

    Raises:
        UsageError: the report has no such number.
    """
    place: Any = report
    names = path.split(".")
    for depth, name in enumerate(names):
        if not isinstance(place, dict) or name not in place:
            is_last = depth == len(names) - 1
            if is_last and isinstance(place, dict) and _counts_by_name(names[depth - 1], place):
                return 0
            near = get_close_matches(path, list(paths_of(report)), n=1, cutoff=0.6)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(f"--fail-on: the report has no number {path}{hint}")
        place = place[name]
    if isinstance(place, dict | list):
        raise UsageError(f"--fail-on: {path} is not a single number")
    return place if isinstance(place, int | float | str | bool) else None


def _counts_by_name(name: str, counts: dict[str, Any]) -> bool:
    """Whether a part of the report counts things by names that occur only if they happened."""
    keyed = "_by_" in name or name.startswith("by_") or name in ("outcomes", "not_judged")
    return keyed and all(isinstance(count, int) for count in counts.values())


def met(conditions: Sequence[Condition], report: Any) -> list[str]:
    """The conditions that are true of a report.

    Raises:
        UsageError: one names a number that the report does not have.
    """
    return [
        condition.text
        for condition in conditions
        if select.holds(condition.node, lambda path: value_at(report, path))
    ]
