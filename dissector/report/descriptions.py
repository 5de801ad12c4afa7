"""Descriptions of a report's enum values (outcomes, causes, statuses): one sentence each."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dissector import protocols
from dissector.notices import NOTICES
from dissector.queries.selection import Selection
from dissector.report.numbers import moment_text
from dissector.schemas.enums import CAUSES, DELIVERY_OUTCOMES, OUTCOMES, STATUSES

__all__ = ["CAUSES", "DELIVERY_OUTCOMES", "OUTCOMES", "STATUSES", "meaning_of"]

NO_CODE: Final = "no code"  # of a refusal that gives its reason as text alone


def _sentence(text: str) -> str:
    """A notice's sentence with `…` in place of the values of a single notice."""
    return re.sub(r"\{(value2?|name)\}", "…", text)


# The sentence of each notice code.
NOTICE_SENTENCES: Final = {kind.code: _sentence(kind.sentence) for kind in NOTICES}


def notice_sentence(total: Mapping[str, Any], code: str) -> str:
    """The sentence of a code's notices: with their values if all are about the capture as a whole,
    else with blanks.

    Args:
        total: of the section `coverage`.
    """
    texts = total["notice_texts"].get(code, [])
    if len(texts) == total["notices_by_code"].get(code):
        return "; ".join(texts)
    return NOTICE_SENTENCES.get(code, "a notice of another version")


# Codes of notices that a reader must see at once. An unknown link type has a verdict of its own.
SERIOUS: Final = frozenset(
    kind.code for kind in NOTICES if kind.severity == "error" and kind.code != "unknown_link_type"
)


def _notices(codes: Iterable[str]) -> dict[str, str]:
    return {code: NOTICE_SENTENCES.get(code, "") for code in codes}


def in_protocol_words(report: Mapping[str, Any], text: str) -> str:
    """A text in Pulsar's words, with those of another protocol where only that was captured."""
    if not report["checksum_failures"]["total"]["not_applicable"]:
        return text
    connections = report["coverage"]["total"]["connections_by_protocol"]
    others = {*protocols.PROTOCOL_NAMES} - protocols.GRANTING
    specs = (
        spec for spec in protocols.PROTOCOLS if spec.name in others and connections.get(spec.name)
    )
    words = next((spec.words for spec in specs), {})
    if not words:
        return text
    pattern = re.compile(rf"\b(?:{'|'.join(words)})\b")
    return pattern.sub(lambda one: words[one[0]], text)


def selection_words(
    report: Mapping[str, Any], before: str = ": ", moment: Callable[[int], str] = moment_text
) -> str:
    """The selection of a report in words, empty for a whole lake (`Selection.words`)."""
    return Selection.of_json(report.get("selection")).words(moment, before)


def meaning_of(kind: Mapping[str, str] | str, words: Iterable[str]) -> dict[str, str]:
    """The description of each word. kind: a table of descriptions, or "notices" for their codes."""
    if kind == "notices":
        return _notices(words)
    assert not isinstance(kind, str)
    return {word: kind.get(word, "") for word in words}
