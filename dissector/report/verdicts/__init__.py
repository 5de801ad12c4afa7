"""What stands out in a report: its verdicts, each with the section it comes from and what to do.

Findings judge the traffic, and the numbers of coverage the capture. A verdict is `ok` only where
something was seen that could have been otherwise, and no finding says that it was wrong. What
cannot be judged, or stands out without being wrong, is a note that says so.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from dissector.report.commands import Commands
from dissector.report.numbers import Row
from dissector.report.verdict import GOOD, PLAIN, Remark, attempted, in_protocol_words
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
_Judge = Callable[[Row, Commands], Remark | None]
# What judges frames, in the order of what it says, and the section that it speaks of.
_OF_FRAMES: Final[tuple[tuple[str, _Judge], ...]] = (
    ("send_latency", latency),
    ("send_latency", unconfirmed),
    ("permit_utilization", permits),
    ("redelivery", redelivery),
    ("checksum_failures", checksums),
    ("errors", errors),
    ("requests", unanswered),
    ("ack_latency", acks),
    ("connecting", closed),
)
_OF_CAPTURES: Final[tuple[tuple[str, _Judge], ...]] = (
    ("connecting", in_vain),
    ("coverage", joined),
)


def remarks(report: Row, commands: Commands | None = None) -> list[Remark]:
    """What a reader should know first; for reports with all sections.

    Args:
        commands: makes the commands of next steps; without it they name the captures' files.
    """
    commands = commands or Commands(report)
    wrong = attempted("findings", partial(findings, report, commands))
    found = attempted("coverage", partial(coverage, report, commands))
    judges = _OF_CAPTURES
    if report["coverage"]["total"]["frames"]:
        judges = _OF_FRAMES + judges
    else:
        text = "No frame of Pulsar or Cursus was decoded: nothing else can be judged."
        found.append(Remark(PLAIN, "coverage", text))
    for section, judge in judges:
        found += attempted(section, partial(_said, judge, report, commands))
    return wrong + [
        remark._replace(
            text=in_protocol_words(report, remark.text), mark=_mark(report, wrong, remark)
        )
        for remark in found
    ]


def _said(judge: _Judge, report: Row, commands: Commands) -> list[Remark | None]:
    return [judge(report, commands)]


def _mark(report: Row, wrong: list[Remark], remark: Remark) -> str:
    """The verdict; where less than half of what was recognised was read, nothing else is `ok`."""
    share = report["coverage"]["total"]["decoded_share_of_recognised"]
    mark = judged_by(wrong, remark)
    is_evident = remark.section == "coverage" or share is None or share >= EVIDENT
    return PLAIN if mark == GOOD and not is_evident else mark
