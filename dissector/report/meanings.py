"""What the words of a report mean: outcomes, causes and statuses, a sentence each, for readers."""

import re
from collections.abc import Iterable, Mapping

from dissector.notices import NOTICES
from dissector.schemas.words import CAUSES, DELIVERY_OUTCOMES, OUTCOMES, STATUSES

__all__ = ["CAUSES", "DELIVERY_OUTCOMES", "OUTCOMES", "STATUSES", "meaning_of"]


def _notices(codes: Iterable[str]) -> dict[str, str]:
    sentences = {kind.code: kind.sentence for kind in NOTICES}
    found = {}
    for code in codes:
        # The numbers of single notices stand in the table; here they are blanks.
        found[code] = re.sub(r"\{value2?\}", "…", sentences.get(code, ""))
    return found


def meaning_of(kind: Mapping[str, str] | str, words: Iterable[str]) -> dict[str, str]:
    """What each word means; kind: one of the tables above, or "notices" for codes of notices."""
    if kind == "notices":
        return _notices(words)
    assert not isinstance(kind, str)
    return {word: kind.get(word, "") for word in words}
