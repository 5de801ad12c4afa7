"""What stands out in a report: its verdicts, each with the section it comes from and what to do.

Findings judge, the traffic and the capture. What numbers say beside them is `ok` only where
something was seen that could have been otherwise, and no finding judges its section; what cannot be
judged, or stands out without being wrong, is a note that says so.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from dissector.report.example_commands import Commands
from dissector.report.numbers import Row
from dissector.report.verdict import GOOD, PLAIN, VERDICTS, Remark, attempted, in_protocol_words
from dissector.report.verdicts.consuming import acks, checksums, permits, redelivery
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
_ORDER: Final = tuple(VERDICTS)
# What speaks of frames, and the section that it speaks of.
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
_OF_CONNECTIONS: Final[tuple[tuple[str, _Judge], ...]] = (("connecting", in_vain),)


def headlines(report: Row, commands: Commands | None = None) -> list[Remark]:
    """What a reader should know first, the worst first; for reports with all sections.

    Args:
        commands: makes the commands of next steps; without it they name the captures' files.
    """
    commands = commands or Commands(report)
    found = attempted("findings", partial(findings, report, commands))
    numbers: list[Remark] = []
    judges = _OF_CONNECTIONS
    if report["coverage"]["total"]["frames"]:
        judges = _OF_FRAMES + judges
    for section, judge in judges:
        numbers += attempted(section, partial(_said, judge, report, commands))
    found += [
        headline._replace(
            text=in_protocol_words(report, headline.text), mark=_mark(report, headline)
        )
        for headline in numbers
    ]
    judged = [
        headline if headline.anchor else headline._replace(mark=judged_by(found, headline))
        for headline in found
    ]
    return sorted(judged, key=lambda headline: _ORDER.index(headline.mark))


def _said(judge: _Judge, report: Row, commands: Commands) -> list[Remark | None]:
    return [judge(report, commands)]


def _mark(report: Row, headline: Remark) -> str:
    """The mark; where less than half of what was recognised was read, nothing is `ok`."""
    share = report["coverage"]["total"]["decoded_share_of_recognised"]
    is_evident = share is None or share >= EVIDENT
    return PLAIN if headline.mark == GOOD and not is_evident else headline.mark
