"""The headlines of a report: a line per kind of finding, and per verdict on its numbers.

The severity of a finding decides its word: terminal, page and the table of captures print this one.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from dissector.limits import MAX_FINDING_KINDS, MAX_PAGE_ROWS
from dissector.report.example_commands import Commands
from dissector.report.formatting import many
from dissector.report.numbers import Row

# The words of severities, the worst first. None: a sentence on the numbers of a section that has a
# finding.
WORDS: Final[Mapping[str | None, str]] = {
    "error": "bad", "warning": "look", "info": "note", None: "", "ok": "ok"
}  # fmt: skip
_ORDER: Final = tuple(WORDS.values())
WRONG: Final = _ORDER[:2]
# Of a whole capture or report, the worst first. What could be judged decides: ok before note.
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
    rival: the sentence of what else looks the same; empty where nothing is concluded.
    next_step: what to do, then, if there is a command, a line break and the command; may be empty.
    anchor: of the finding's own details on the page; empty: those of the section.
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
    """The headlines of a report, the worst first.

    Args:
        commands: builds the commands of next steps; by default they name the captures' files.
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
    """The word of a whole report: the worst of its lines, in the order of CAPTURE_WORDS."""
    words = {one.word for one in lines}
    return next((word for word in CAPTURE_WORDS if word in words), CAPTURE_WORDS[-1])


def anchor_of(place: int) -> str:
    """The anchor of a finding on the page. place: its index in the report's list, from 0."""
    return f"finding-{place + 1}" if place < MAX_PAGE_ROWS else _FINDINGS


def _headline(rows: Sequence[tuple[int, Row]], commands: Commands) -> Headline:
    """The headline of findings of one kind. rows: (index in the report, finding), worst first."""
    place, worst = rows[0]
    word, section = WORDS[worst["severity"]], worst["section"] or _FINDINGS
    lines = worst["text"].split("\n")
    number = worst["id"]
    rival = next((line for line in lines if line.startswith(_RIVAL)), None)
    if rival is None:  # of a rule over totals, whose finding is one sentence
        step = _next_step(worst, commands)
        return Headline(word, number, section, lines[0], next_step=step)
    more = f" And {many(len(rows) - 1, 'other')}." if len(rows) > 1 else ""
    text = f"{worst['title']} ({worst['verdict']}): {lines[0]}{more}"
    step = _next_step(worst, commands) if word in WRONG else ""
    return Headline(word, number, section, text, rival, step, anchor_of(place))


def _next_step(row: Row, commands: Commands) -> str:
    """What to do about a finding, a line break, and the command that shows the finding."""
    step = next((line for line in row["text"].split("\n") if line.startswith(_STEP)), "")
    command = commands.of_finding(row) if step else ""
    if not command:
        return step
    what = "Such as" if row["show"].startswith("$") else "See" if row["show"] else "The frames"
    return f"{step} {what}:\n{command}"
