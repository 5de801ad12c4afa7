"""What stands out in a report: its verdicts, each with the section it comes from and what to do.

Findings judge the traffic, and the numbers of coverage the capture. A verdict is `ok` only where
something was seen that could have been otherwise, and no finding says that it was wrong. What
cannot be judged, or stands out without being wrong, is a note that says so.
"""

from typing import Final

from dissector.report.commands import Commands
from dissector.report.numbers import Row
from dissector.report.verdict import GOOD, PLAIN, Remark, in_protocol_words
from dissector.report.verdicts.capturing import checksums, coverage, joined
from dissector.report.verdicts.consuming import acks, permits, redelivery
from dissector.report.verdicts.judging import findings, judged_by
from dissector.report.verdicts.publishing import (
    closed,
    errors,
    in_vain,
    latency,
    unanswered,
    unconfirmed,
)

EVIDENT: Final = 0.5  # share of the stream below which what was seen says little of the rest


def remarks(report: Row, commands: Commands | None = None) -> list[Remark]:
    """What a reader should know first; for reports with all sections.

    Args:
        commands: makes the commands of next steps; without it they name the captures' files.
    """
    commands = commands or Commands(report)
    wrong = findings(report, commands)
    found: list[Remark | None] = [*coverage(report, commands)]
    if report["coverage"]["total"]["frames"]:
        found += [
            latency(report, commands),
            unconfirmed(report, commands),
            permits(report, commands),
            redelivery(report, commands),
            checksums(report, commands),
            errors(report, commands),
            unanswered(report, commands),
            acks(report, commands),
            closed(report, commands),
        ]
    else:
        text = "No frame of Pulsar or Cursus was decoded: nothing else can be judged."
        found.append(Remark(PLAIN, "coverage", text))
    found += [in_vain(report, commands), joined(report, commands)]
    return wrong + [
        remark._replace(
            text=in_protocol_words(report, remark.text), mark=_mark(report, wrong, remark)
        )
        for remark in found
        if remark is not None
    ]


def _mark(report: Row, wrong: list[Remark], remark: Remark) -> str:
    """The verdict; where less than half of what was recognised was read, nothing else is `ok`."""
    share = report["coverage"]["total"]["decoded_share_of_recognised"]
    mark = judged_by(wrong, remark)
    is_evident = remark.section == "coverage" or share is None or share >= EVIDENT
    return PLAIN if mark == GOOD and not is_evident else mark
