"""A verdict of a report, and what its sentences and next steps are made of."""

import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from dissector.protocols import PROTOCOLS
from dissector.protocols.interface import ProtocolSpec
from dissector.report.example_commands import Commands
from dissector.report.formatting import count_text, every, many
from dissector.report.numbers import Row

GOOD = "good"
LOOK = "look"
BAD = "bad"
PLAIN = "plain"
NOT_JUDGED = ""  # a sentence on a section that findings judge: they have the word
# The words of verdicts, on the terminal and on the page, the worst first.
VERDICTS: Final = {BAD: "bad", LOOK: "look", PLAIN: "note", NOT_JUDGED: "", GOOD: "ok"}

NAMED: Final = 3  # codes that a sentence names

# Captures whole packets of the port on which Pulsar's traffic is plain.
WHOLE: Final = "tcpdump -s 0 -i INTERFACE -w night.pcap port 6650"


class Remark(NamedTuple):
    """One verdict, or a note.

    mark: good, look, bad, plain, or "" (`NOT_JUDGED`).
    section: its anchor on the page.
    next_step: what to do next, and behind a line break the command to type, if there is one; empty
        where nothing is to be done.
    anchor: where the page says more, if not in the section.
    is_failure: the program could not judge.
    """

    mark: str
    section: str
    text: str
    next_step: str = ""
    anchor: str = ""
    is_failure: bool = False

    @property
    def word(self) -> str:
        """The verdict in a word: ok, look, bad; of what is no verdict: note."""
        return VERDICTS[self.mark]


def attempted(section: str, judge: Callable[[], Iterable[Remark | None]]) -> list[Remark]:
    """What a judgement says. One that fails says that it did: no report ends with it."""
    try:
        return [headline for headline in judge() if headline is not None]
    except MemoryError:
        raise
    except Exception as error:  # whatever a judgement fails with, it fails alone
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{type(error).__name__} in line {at.lineno} of {PurePath(at.filename).name}"
        text = f"This program failed to judge what was seen here: {where}."
        step = step_text("Please report it, with this line and the version", "dissector version")
        return [Remark(LOOK, section, text, step, is_failure=True)]


def _without_permits(report: Row) -> Iterator[tuple[ProtocolSpec, int]]:
    """Protocols without permits and checksums, and connections of each."""
    found = report["coverage"]["total"]["connections_by_protocol"]
    for spec in PROTOCOLS:
        if not spec.grants_permits and found.get(spec.name):
            yield spec, found[spec.name]


def in_protocol_words(report: Row, text: str) -> str:
    """A text that uses Pulsar's words, in those of another protocol where only that was read."""
    if not report["checksum_failures"]["total"]["not_applicable"]:
        return text
    words = next((spec.words for spec, _ in _without_permits(report)), {})
    if not words:
        return text
    found = re.compile(rf"\b(?:{'|'.join(words)})\b")
    return found.sub(lambda one: words[one[0]], text)


def step_text(words: str, command: str) -> str:
    return f"{words}:\n{command}"


def shares_text(outcomes: Mapping[str, int | None], words: Mapping[str, str]) -> tuple[int, str]:
    """How many have one of some outcomes, and how many of each: `1 refused, 22 unanswered …`."""
    found = {name: count for name in words if (count := outcomes.get(name))}
    return sum(found.values()), ", ".join(
        f"{count_text(count)} {words[name]}" for name, count in found.items()
    )


def reasons_text(outcomes: Mapping[str, int | None], words: Mapping[str, str]) -> tuple[int, str]:
    """How many have one of some outcomes, and the reasons, each with its number behind it."""
    found = {name: count for name in words if (count := outcomes.get(name))}
    if len(found) == 1:
        (name,) = found
        return found[name], words[name]
    return sum(found.values()), "; ".join(
        f"{words[name]} ({count_text(count)})" for name, count in found.items()
    )


def share_of(part: int, total: int, one: str, several: str | None = None) -> str:
    """A part of counted things as the beginning of a sentence, with its verb.

    All 3 sends were; the only send was; 1 of 3 sends was; none of 3 sends was.
    """
    if part == total:
        return every(total, one, "was", "were", several)
    whole = many(total, one, several)
    if part:
        return f"{count_text(part)} of {whole} {'was' if part == 1 else 'were'}"
    return f"The only {one} was not" if total == 1 else f"None of {whole} was"


def without_count(found: Mapping[str, int], text: str) -> str:
    """What `shares_text` says, without the number where all have the same reason."""
    return text.partition(" ")[2] if len(found) == 1 else text


def seeks(report: Row) -> int:
    """How many SEEKs brokers carried out: they close the consumer, and deliver again."""
    found = 0
    for row in report["requests"]["by_command"]:
        if row["request_command"] == "SEEK":
            found += row["outcomes"].get("ok", 0)
    return found


def beside(report: Row) -> str:
    """That numbers of Pulsar alone do not speak of connections of others, where there are any."""
    return "".join(
        f" Not applicable to {many(count, 'connection')} of {spec.name.capitalize()}."
        for spec, count in _without_permits(report)
    )


def not_captured(section: str, what: str, who: str) -> Remark:
    """That a direction is missing, where otherwise it would look as if nothing had happened."""
    text = f"{what} cannot be judged: what {who} send is not in the capture."
    return Remark(PLAIN, section, text)


def both_directions(commands: Commands) -> str:
    return step_text(
        "Capture both directions: on the host itself, or with both directions of the port "
        "mirrored; this shows frames to the broker and to the client as a/b",
        commands.connections(),
    )


def whole_packets(total: Row) -> str:
    """How to get packets whole. total: of the section `coverage`."""
    if total["shortened_bytes"] >= total["snaplen_cut_bytes"]:
        return "Let the mirror, switch or tool that shortened the packets pass them whole."
    # As V01 says it, so that it is told once.
    return step_text("What to do: Capture whole packets. Such as", WHOLE)


def holes(commands: Commands) -> str:
    return commands.connections("gap_bytes_to_broker > 0 or gap_bytes_to_client > 0")
