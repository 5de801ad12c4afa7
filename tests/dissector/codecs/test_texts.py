"""Long texts keep their beginning and say what is missing."""

import pytest

from dissector.codecs.texts import bounded
from dissector.limits import MAX_DETAIL_TEXT


@pytest.mark.parametrize("size", [0, 1, MAX_DETAIL_TEXT])
def test_texts_within_the_bound_stay_as_they_are(size: int) -> None:
    assert bounded(b"x" * size) == b"x" * size


def test_what_is_cut_off_is_counted() -> None:
    assert bounded(b"x" * (MAX_DETAIL_TEXT + 7)) == b"x" * MAX_DETAIL_TEXT + b"<7 more>"
    assert bounded(b"x" * MAX_DETAIL_TEXT, 5_000_000).endswith(b"<4983616 more>")


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize("character", ["\u00e9", "\u20ac", "\U0001f600"])
def test_a_character_is_not_cut_in_two(before: int, character: str) -> None:
    text = ("x" * before + character * MAX_DETAIL_TEXT).encode()
    for given in (text, text[:MAX_DETAIL_TEXT]):
        kept, _, more = bounded(given, len(text)).decode().partition("<")
        assert more.endswith(" more>") and len(kept.encode()) + int(more.split()[0]) == len(text)
        assert MAX_DETAIL_TEXT - len(kept.encode()) < 4
