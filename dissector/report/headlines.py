"""What a report says first: a line for each kind of finding, and for each verdict on its numbers.

How bad something is the finding says; terminal, page and the table of captures take the word from
it.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dissector.limits import MAX_FINDING_KINDS, MAX_PAGE_ROWS
from dissector.report.example_commands import Commands
from dissector.report.formatting import many
from dissector.report.numbers import Row

# The words of severities, the worst first. Of a section that a finding calls wrong, sentences on
# its numbers have none.
WORDS: Final[Mapping[str | None, str]] = {
    "error": "bad", "warning": "look", "info": "note", None: "", "ok": "ok"
}  # fmt: skip
_ORDER: Final = tuple(WORDS.values())
WRONG: Final = _ORDER[:2]
# Of a capture or report as a whole, the worst first: fine in what could be judged is before notes.
CAPTURE_WORDS: Final = ("bad", "look", "ok", "note")
_FINDINGS: Final = "findings"
_RIVAL: Final = "What else looks the same: "
_STEP: Final = "What to do: "


class Headline(NamedTuple):
    """One line.

    word: bad, look, note, ok, or none (`WORDS`).
    number: of the rule.
    section: its anchor on the page.
    text: what was seen.
    rival: what else looks the same, a sentence; empty where nothing is concluded.
    next_step: what to do next, and behind a line break the command to type, if there is one; empty
        where nothing is to be done.
    anchor: where the page says more, if not in the section.
    """

    word: str
    number: str
    section: str
    text: str
    rival: str = ""
    next_step: str = ""
    anchor: str = ""

    @property
    def sentence(self) -> str:
        """The rule, what was seen, and what else looks the same."""
        return f"{self.number} {self.text} {self.rival}".rstrip()


def headlines(report: Row, commands: Commands | None = None) -> list[Headline]:
    """What a reader should know first, the worst first.

    Args:
        commands: makes the commands of next steps; without it they name the captures' files.
    """
    commands = commands or Commands(report)
    kinds: dict[tuple[str, str], list[tuple[int, Row]]] = {}
    for place, row in enumerate(report[_FINDINGS][_FINDINGS]):
        kinds.setdefault((row["id"], row["title"]), []).append((place, row))
    lines = [_headline(rows, commands) for rows in kinds.values()]
    of_rows = [one for one in lines if one.anchor][:MAX_FINDING_KINDS]
    lines = [*of_rows, *(one for one in lines if not one.anchor)]
    lines += [_headline([(0, row)], commands) for row in report[_FINDINGS]["verdicts"]]
    return sorted(lines, key=lambda one: _ORDER.index(one.word))


def verdict(lines: Iterable[Headline]) -> str:
    """The word on all of a report: that of its worst line; ok where nothing is wrong."""
    words = {one.word for one in lines}
    return next((word for word in CAPTURE_WORDS if word in words), CAPTURE_WORDS[-1])


def anchor_of(place: int) -> str:
    """Where the page has a finding. place: among those of the report, from 0."""
    return f"finding-{place + 1}" if place < MAX_PAGE_ROWS else _FINDINGS


def _headline(rows: Sequence[tuple[int, Row]], commands: Commands) -> Headline:
    """A line on findings of one kind, the worst first. rows: each with its place."""
    place, worst = rows[0]
    word, section = WORDS[worst["severity"]], worst["section"] or _FINDINGS
    lines = worst["text"].split("\n")
    number = worst["id"]
    rival = next((line for line in lines if line.startswith(_RIVAL)), None)
    if rival is None:  # of a rule over totals, whose sentence is all there is to say
        step = _next_step(worst, commands)
        return Headline(word, number, section, lines[0], next_step=step)
    more = f" And {many(len(rows) - 1, 'other')}." if len(rows) > 1 else ""
    text = f"{worst['title']} ({worst['verdict']}): {lines[0]}{more}"
    step = _next_step(worst, commands) if word in WRONG else ""
    return Headline(word, number, section, text, rival, step, anchor_of(place))


def _next_step(row: Row, commands: Commands) -> str:
    """What to do about a finding, and behind a line break the command that shows it."""
    step = next((line for line in row["text"].split("\n") if line.startswith(_STEP)), "")
    command = commands.of_finding(row) if step else ""
    if not command:
        return step
    what = "Such as" if row["show"].startswith("$") else "See" if row["show"] else "The frames"
    return f"{step} {what}:\n{command}"
