"""Whether packets alone show the findings that they were chosen for, with the same numbers.

What a finding says of a capture is kept as facts without names: its rule, title, severity, how many
incidents, and what was measured. The facts of the whole capture and those of the packets that were
cut out of it stand beside each other in the bundle; whoever gets it can make the second ones again.
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
# Of bytes that are hidden the sums are others.
_OF_BYTES: Final = "crc32c"
_NAME: Final = "NAME"


def findings_in(engine: "Sandbox", name: str) -> list[Finding]:
    """What a rule, named by number or code, finds in a lake."""
    return findings_of(engine, named(load_rules()[0], [name]))[0]


def wanted_findings(engine: "Sandbox", name: str) -> list[Finding]:
    """The same, of a rule that a user named to show what it finds.

    Raises:
        UsageError: no frames alone can show it, it cannot be asked, or it finds nothing.
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
        raise UsageError(f"--finding {name}: the rule finds nothing here")
    return rule_findings


def facts_of(one: Finding) -> Facts:
    """What a finding says, without names."""
    numbers = {
        name: value
        for name, value in one.measured.items()
        if isinstance(value, int | float) and _OF_BYTES not in name
    }
    return {name: getattr(one, name) for name in _FACTS} | {"measured": numbers}


class Shown(NamedTuple):
    """A finding of the capture and the one of the packets that is most like it, if any."""

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
        """Whether the packets show it with the same numbers."""
        row = self.as_row()
        return row["capture"] == row["packets"]

    def text(self) -> str:
        """The sentences of the finding as the packets give them; where they do not show it, as the
        capture does, without the names that it has."""
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
    """Each finding of the capture with what the packets show of it."""
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
    """The findings of one rule with what packets alone, read into a lake, show of them."""
    return beside(before, findings_in(own, before[0].number)) if before else []


def sentences(pairs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the packets show of findings, and what they cannot show."""
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
    """Which numbers are others."""
    pairs = [(name, one.get(name), other.get(name)) for name in ("severity", "incidents")]
    mine, theirs = one["measured"], other["measured"]
    pairs += [(name, mine.get(name), theirs.get(name)) for name in sorted({*mine, *theirs})]
    return [
        f"{name} {_shown(own)} in the capture, {_shown(here)} here"
        for name, own, here in pairs
        if own != here
    ]


def _shown(value: object) -> str:
    return "not known" if value is None else f"{value}"
