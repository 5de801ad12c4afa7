"""Checks that cut packets alone show the findings that they were chosen for, with equal numbers.

A finding is stored as facts without names: rule, title, severity, number of incidents, and measured
values. The bundle has the facts of the whole capture beside those of the cut packets; its reader
can compute the latter again.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dissector.errors import UsageError
from dissector.findings.finding import Finding, findings_of, text_of
from dissector.findings.loading import load_rules, named

if TYPE_CHECKING:
    from dissector.queries.sandbox import Sandbox

Facts = dict[str, Any]
_FACTS: Final = ("number", "code", "title", "severity", "incidents")
# Hidden bytes have other checksums.
_OF_BYTES: Final = "crc32c"
_NAME: Final = "NAME"


def findings_in(engine: "Sandbox", name: str) -> list[Finding]:
    """Return the findings of a rule in a lake. name: its number or code."""
    return findings_of(engine, named(load_rules()[0], [name]))[0]


def wanted_findings(engine: "Sandbox", name: str) -> list[Finding]:
    """Return the findings of a rule that a user named for a bundle.

    Raises:
        UsageError: frames alone cannot show its findings, it failed, or it has none.
    """
    rules = named(load_rules()[0], [name])
    if any(rule.is_over_totals for rule in rules):
        raise UsageError(
            f"--finding {name}: it judges the numbers of a whole report, which no frames alone "
            "show; dissector anonymize makes a copy of all"
        )
    rule_findings, problems = findings_of(engine, rules)
    for problem in problems:
        raise UsageError(f"--finding {name}: {problem}")
    if not rule_findings:
        raise UsageError(
            f"--finding {name}: the rule finds nothing here, so nothing was written; what is "
            "found: dissector findings INPUT"
        )
    return rule_findings


def facts_of(one: Finding) -> Facts:
    """Return a finding's facts, without names."""
    numbers = {
        name: value
        for name, value in one.measured.items()
        if isinstance(value, int | float) and _OF_BYTES not in name
    }
    return {name: getattr(one, name) for name in _FACTS} | {"measured": numbers}


class Shown(NamedTuple):
    """A finding of the capture, and the most similar one of the cut packets, if any."""

    one: Finding
    other: Finding | None

    def as_row(self) -> dict[str, Facts | None]:
        """The facts of both."""
        return {
            "capture": facts_of(self.one),
            "packets": None if self.other is None else facts_of(self.other),
        }

    @property
    def is_same(self) -> bool:
        """Whether the cut packets show the finding with equal numbers."""
        row = self.as_row()
        return row["capture"] == row["packets"]

    def text(self) -> str:
        """The sentences of the cut packets' finding; without one, those of the capture's, without
        names."""
        if self.other is not None and self.is_same:
            return self.other.text
        (rule,) = named(load_rules()[0], [self.one.number])
        parts = next(words.parts for words in rule.words.values() if words.title == self.one.title)
        values = {**self.one.thresholds, **self.one.subject, **self.one.measured}
        values |= {each.role.replace(" ", "_"): each.frame_no for each in self.one.evidence}
        nameless = {
            key: _NAME if isinstance(value, str) else value for key, value in values.items()
        }
        return text_of(parts, nameless, rule.names)


def beside(before: Sequence[Finding], after: Sequence[Finding]) -> list[Shown]:
    """Pair each finding of the capture with the most similar one of the cut packets."""
    left = list(after)
    pairs: list[Shown] = []
    facts = [facts_of(other) for other in after]
    for one in sorted(before, key=lambda each: facts_of(each) not in facts):
        alike = [other for other in left if other.title == one.title]
        own = facts_of(one)
        best = min(alike, key=lambda other: len(_differing(own, facts_of(other))), default=None)
        if best is not None:
            left.remove(best)
        pairs.append(Shown(one, best))
    return pairs


def shown_by(own: "Sandbox", before: Sequence[Finding]) -> list[Shown]:
    """Pair the findings of one rule with those of the cut packets. own: engine of their lake."""
    return beside(before, findings_in(own, before[0].number)) if before else []


def sentences(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return sentences about what the cut packets show of findings, and what they lack."""
    lines = []
    for pair in pairs:
        one, other = pair["capture"], pair["packets"]
        name = f"{one['number']} ({one['title']})"
        if one == other:
            lines.append(f"The packets alone show {name} with the same numbers.")
        elif other is None:
            lines.append(f"The packets alone cannot show {name}: it takes the rest of the capture.")
        else:
            differing = "; ".join(_differing(one, other))
            lines.append(f"The packets alone show {name}, but with other numbers: {differing}.")
    return lines


def _differing(one: Facts, other: Facts) -> list[str]:
    """Return the facts that differ, as text."""
    pairs = [(name, one.get(name), other.get(name)) for name in ("severity", "incidents")]
    own, others = one["measured"], other["measured"]
    pairs += [(name, own.get(name), others.get(name)) for name in sorted({*own, *others})]
    return [
        f"{name} {_shown(own)} in the capture, {_shown(here)} here"
        for name, own, here in pairs
        if own != here
    ]


def _shown(value: object) -> str:
    return "not known" if value is None else f"{value}"
