"""What the words of a report mean: outcomes, causes and statuses, a sentence each, for readers."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dissector import protocols
from dissector.notices import NOTICES
from dissector.queries.selection import Selection
from dissector.report.numbers import moment_text
from dissector.schemas.enums import CAUSES, DELIVERY_OUTCOMES, OUTCOMES, STATUSES

__all__ = ["CAUSES", "DELIVERY_OUTCOMES", "OUTCOMES", "STATUSES", "meaning_of"]

NO_CODE: Final = "no code"  # of a refusal that says why in words alone


def _sentence(text: str) -> str:
    """A notice's sentence; the numbers of single notices stand in the table, here are blanks."""
    return re.sub(r"\{(value2?|name)\}", "…", text)


# What each notice and each bound of the summary says.
NOTICE_SENTENCES: Final = {kind.code: _sentence(kind.sentence) for kind in NOTICES}


def notice_sentence(total: Mapping[str, Any], code: str) -> str:
    """What notices of a code say: the sentence of those about the capture, with their numbers; of
    several other ones the sentence with blanks.

    Args:
        total: of the section `coverage`.
    """
    texts = total["notice_texts"].get(code, [])
    if len(texts) == total["notices_by_code"].get(code):
        return "; ".join(texts)
    return NOTICE_SENTENCES.get(code, "a notice of another version")


# Findings that somebody should see at once; what other verdicts speak of is not among them.
SERIOUS: Final = frozenset(
    kind.code for kind in NOTICES if kind.severity == "error" and kind.code != "unknown_link_type"
)


def _notices(codes: Iterable[str]) -> dict[str, str]:
    return {code: NOTICE_SENTENCES.get(code, "") for code in codes}


def in_protocol_words(report: Mapping[str, Any], text: str) -> str:
    """A text that uses Pulsar's words, in those of another protocol where only that was read."""
    if not report["checksum_failures"]["total"]["not_applicable"]:
        return text
    there = report["coverage"]["total"]["connections_by_protocol"]
    others = {*protocols.PROTOCOL_NAMES} - protocols.GRANTING
    specs = (spec for spec in protocols.PROTOCOLS if spec.name in others and there.get(spec.name))
    words = next((spec.words for spec in specs), {})
    if not words:
        return text
    pattern = re.compile(rf"\b(?:{'|'.join(words)})\b")
    return pattern.sub(lambda one: words[one[0]], text)


def selection_words(
    report: Mapping[str, Any], before: str = ": ", moment: Callable[[int], str] = moment_text
) -> str:
    """What a report was selected from its lake by, nothing for a whole one (`Selection.words`)."""
    return Selection.of_json(report.get("selection")).words(moment, before)


def meaning_of(kind: Mapping[str, str] | str, words: Iterable[str]) -> dict[str, str]:
    """What each word means; kind: one of the tables above, or "notices" for codes of notices."""
    if kind == "notices":
        return _notices(words)
    assert not isinstance(kind, str)
    return {word: kind.get(word, "") for word in words}
