"""Findings as verdicts: bad, look or note, each with its proof to look at."""

from typing import Final

from dissector.limits import MAX_FINDING_KINDS
from dissector.report.commands import Commands
from dissector.report.numbers import Row
from dissector.report.verdict import BAD, GOOD, LOOK, PLAIN, Remark, step_text
from dissector.report.words import many

MARKS: Final = {"error": BAD, "warning": LOOK, "info": PLAIN}
SECTION: Final = "findings"


def command_of(row: Row, commands: Commands) -> str:
    """The command that shows the frames of a finding."""
    numbers = ", ".join(str(each["frame_no"]) for each in row["evidence"])
    return commands.frames(f"frame_no in ({numbers})", row)


def findings(report: Row, commands: Commands) -> list[Remark]:
    """A verdict for each kind of finding, by its worst one; the worst kinds first."""
    kinds: dict[tuple[str, str], list[Row]] = {}
    for row in report[SECTION][SECTION]:
        kinds.setdefault((row["id"], row["title"]), []).append(row)
    found = []
    for rows in list(kinds.values())[:MAX_FINDING_KINDS]:
        worst = rows[0]
        what, _, rival, *_, what_to_do = worst["text"].split("\n")
        more = f" And {many(len(rows) - 1, 'other')}." if len(rows) > 1 else ""
        text = f"{worst['id']} {worst['title']} ({worst['verdict']}): {what} {rival}{more}"
        mark, section = MARKS[worst["severity"]], worst["section"] or SECTION
        step = step_text(f"{what_to_do} The frames", command_of(worst, commands))
        found.append(Remark(mark, section, text, "" if mark == PLAIN else step, SECTION))
    return found


def judged_by(found: list[Remark], remark: Remark) -> str:
    """The mark of what the numbers of a section say: not ok where a rule says otherwise."""
    is_wrong = any(one.section == remark.section and one.mark != PLAIN for one in found)
    return PLAIN if is_wrong and remark.mark == GOOD else remark.mark
