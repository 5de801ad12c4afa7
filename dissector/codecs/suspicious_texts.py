"""Finds those of many texts that may contain a secret, by one search over their joined bytes.

Texts without a hint are excluded first, as most contain none; one search over all texts costs less
than a search per text.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from dissector.blocks import Int64Array
from dissector.codecs.redaction import FORM_HINTS, KEY_HINTS, may_hold, places_in, without_lengths

_MANY_TEXTS: Final = 64  # of more it pays to leave out those without a hint
# Nothing of a text may be taken for a part of the next one.
BETWEEN: Final = b"\0\n"

# What there is in many texts if there is a length in one of them.
_ANY_LENGTH: Final = re.compile(
    rb"[\x01-\x08\x0e-\x1f]|\x00(?!\n)|(?:\A|\x00\n)[\n\"*2:BJRZbjrz\x80-\xff][0-9A-Za-z]"
)


def suspicious(texts: Sequence[bytes]) -> list[int]:
    """Which of many texts can hold a secret: all that do, hardly one that does not."""
    whole = BETWEEN.join(texts)
    if not may_hold(whole):
        return []
    chosen = np.arange(len(texts))
    if len(texts) >= _MANY_TEXTS:
        chosen = _texts_at(_hinted(whole), _ends(texts))
        texts = [texts[index] for index in chosen.tolist()]
        whole = BETWEEN.join(texts)
    indices = _found(texts, whole)
    if _ANY_LENGTH.search(whole) or whole.count(BETWEEN) != len(texts) - 1:
        bare = [without_lengths(text) for text in texts]
        others = [index for index, text in enumerate(texts) if bare[index] != text]
        bare = [bare[index] for index in others]
        indices.update(others[index] for index in _found(bare, BETWEEN.join(bare)))
    return list(map(int, chosen[sorted(indices)]))


def _found(texts: Sequence[bytes], whole: bytes) -> set[int]:
    """Which texts have a secret in them, or on their boundary. whole: all of them."""
    indices: set[int] = set()
    ends = _ends(texts)
    for start, end in places_in(whole, whole):
        first, last = np.searchsorted(ends, [start, end - 1], side="right").tolist()
        indices.update(range(first, min(last, len(texts) - 1) + 1))
    return indices


def _ends(texts: Sequence[bytes]) -> Int64Array:
    """Where each of some texts ends, with what is between it and the next one."""
    return np.cumsum(np.fromiter(map(len, texts), np.int64, len(texts)) + len(BETWEEN))


def _texts_at(places: Int64Array, ends: Int64Array) -> Int64Array:
    """Which texts the places lie in, each once, rising."""
    indices = np.unique(np.searchsorted(ends, places, side="right"))
    return indices[indices < len(ends)]


def _hinted(data: bytes) -> Int64Array:
    """Where a hint can begin: all places where one does, hardly one where none does."""
    signs = np.frombuffer(data + b"   ", np.uint8)
    short = (signs & 31).astype(np.int32)
    codes = short[:-3] << 15 | short[1:-2] << 10 | short[2:-1] << 5 | short[3:]
    return np.flatnonzero(_hint_codes()[codes] | (signs[:-3] == ord("@")))


@cache
def _hint_codes() -> npt.NDArray[np.bool_]:
    """By the last five bits of four bytes, in which a letter's size is not: whether a hint begins
    so."""
    codes = np.zeros(1 << 20, bool)
    for hint in (*KEY_HINTS, *FORM_HINTS):
        code, free = 0, 4 - min(len(hint), 4)
        for sign in hint[:4]:
            code = code << 5 | sign & 31
        codes[code << 5 * free : (code + 1) << 5 * free] = True
    return codes
