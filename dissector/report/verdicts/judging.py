"""Findings as verdicts: bad, look, note or ok, each with its proof to look at."""

from collections.abc import Iterable
from typing import Final

from dissector.limits import MAX_FINDING_KINDS
from dissector.report.example_commands import Commands
from dissector.report.formatting import many
from dissector.report.numbers import Row
from dissector.report.verdict import BAD, GOOD, LOOK, NOT_JUDGED, PLAIN, Remark

MARKS: Final = {"error": BAD, "warning": LOOK, "info": PLAIN, "ok": GOOD}
SECTION: Final = "findings"
_RIVAL: Final = "What else looks the same: "
_STEP: Final = "What to do: "


def next_step(row: Row, commands: Commands) -> str:
    """What to do about a finding, and behind a line break the command that shows it."""
    step = next((line for line in row["text"].split("\n") if line.startswith(_STEP)), "")
    command = commands.of_finding(row) if step else ""
    if not command:
        return step
    what = "Such as" if row["show"].startswith("$") else "See" if row["show"] else "The frames"
    return f"{step} {what}:\n{command}"


def findings(report: Row, commands: Commands) -> list[Remark]:
    """A verdict for each kind of finding, by its worst one; the worst kinds first."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in report[SECTION][SECTION]:
        kinds.setdefault((row["id"], row["title"]), []).append(row)
    found = [_remark(rows, commands) for rows in kinds.values()]
    found += [_remark([row], commands) for row in report[SECTION]["verdicts"]]
    of_rows = [headline for headline in found if headline.anchor]
    return of_rows[:MAX_FINDING_KINDS] + [headline for headline in found if not headline.anchor]


def _remark(rows: list[Row], commands: Commands) -> Remark:
    """A verdict on findings of one kind, the worst first."""
    worst = rows[0]
    mark, section = MARKS[worst["severity"]], worst["section"] or SECTION
    lines = worst["text"].split("\n")
    rival = next((line for line in lines if line.startswith(_RIVAL)), None)
    if rival is None:  # of a rule over totals, whose sentence is all there is to say
        step = "" if mark == GOOD else next_step(worst, commands)
        return Remark(mark, section, lines[0], step)
    more = f" And {many(len(rows) - 1, 'other')}." if len(rows) > 1 else ""
    text = f"{worst['id']} {worst['title']} ({worst['verdict']}): {lines[0]} {rival}{more}"
    step = "" if mark == PLAIN else next_step(worst, commands)
    return Remark(mark, section, text, step, SECTION)


def judged_by(found: Iterable[Remark], headline: Remark) -> str:
    """The mark of what the numbers of a section say: the findings that judge it give the word."""
    is_wrong = any(one.section == headline.section and one.mark in (BAD, LOOK) for one in found)
    return NOT_JUDGED if is_wrong and headline.mark in (GOOD, PLAIN) else headline.mark
