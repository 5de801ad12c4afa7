"""Pseudonyms of equal length for names: a name always has the same pseudonym.

A word, a run of letters and digits, becomes another word: small letters become small ones, capitals
capitals, digits digits, and characters of two, three and four bytes others of that size. Characters
between words stay, so a topic's name still looks like one. The new word is derived from a keyed
hash of the old one, which cannot be inverted. Few words of a kind and length may collide: then the
later one gets the next free word, in steps of its own. So different words stay different, up to
`limits.MAX_PSEUDONYMS` short ones of a run. Only the winner of a collision depends on the order of
words; all else depends on the key alone.

Parts of names that tell the kind of a thing stay: `persistent://`, `-partition-3`, `-DLQ`,
`-RETRY`, `pulsar.repl.`, the scheme and port of a URL.
"""

import hashlib
import math
import re
from functools import lru_cache
from typing import Final

from dissector.limits import MAX_PSEUDONYMS

_KNOWN: Final = 1 << 16  # cached names
_FEW: Final = 1 << 62  # words of a kind and length: with more of them, no two collide
_STEP: Final = 2 * 3 * 5 * 13  # all prime factors of the numbers of words
_ANYTHING: Final = "surrogateescape"  # an invalid byte is a character of its own
_SURROGATES: Final = range(0xD800, 0xE000)
_ESCAPED: Final = range(0xDC80, 0xDD00)
# Kinds of characters: the first one, and their number.
_KINDS: Final = (
    *((0x10000, 0x100000), (0x800, 0xF800 - len(_SURROGATES)), (0x80, 0x780)),
    *((ord("a"), 26), (ord("A"), 26), (ord("0"), 10)),
)
# Longer runs are several words.
_WORD: Final = re.compile("[0-9A-Za-z\x80-\U0010ffff]{1,128}")
_NAME: Final = re.compile(
    rb"(?P<kind>(?:pulsar\.repl\.)?+(?:(?:non-)?+persistent://)?+)"
    rb"(?P<name>.+?)(?P<place>(?:-RETRY|-DLQ)?+(?:-partition-\d++)?+)\Z",
    re.DOTALL,
)
_URL: Final = re.compile(
    rb"(?P<kind>(?:pulsar\.repl\.)?+[^:]{0,23}://)(?P<name>[^/,]*?)(?P<place>:\d++)?+"
    rb"(?P<rest>(?:[/,].*)?+)\Z",
    re.DOTALL,
)


@lru_cache(1 << 12)
def _kind_of(sign: str) -> tuple[int, int]:
    code = ord(sign)
    if code in _ESCAPED:
        return _ESCAPED.start, len(_ESCAPED)
    return next(kind for kind in _KINDS if code >= kind[0])


def _word_at(number: int, kinds: list[tuple[int, int]]) -> str:
    """The word with a number among all words of these kinds of characters."""
    signs = []
    for first, count in kinds:
        code = first + number % count
        number //= count
        is_behind = first < _SURROGATES.start <= code
        signs.append(code + len(_SURROGATES) if is_behind else code)
    return "".join(map(chr, signs))


class Pseudonyms:
    """Pseudonyms under a key.

    name: name -> its pseudonym. words: text -> the text with all its words replaced.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._taken: dict[str, str] = {}  # pseudonym -> word
        self.name = lru_cache(_KNOWN)(self._name)
        self.words = lru_cache(_KNOWN)(self._words)
        self._word = lru_cache(_KNOWN)(self._new_word)

    @property
    def is_full(self) -> bool:
        """Whether the bound of short words is reached, so that further ones may collide."""
        return len(self._taken) >= MAX_PSEUDONYMS

    def _name(self, name: bytes) -> bytes:
        url = None if b"persistent://" in name[:29] else _URL.match(name)
        match = url or _NAME.match(name)
        if match is None:
            return name
        rest = self.words(match["rest"]) if url else b""
        return match["kind"] + self.words(match["name"]) + (match["place"] or b"") + rest

    def _words(self, text: bytes) -> bytes:
        shown = _WORD.sub(lambda match: self._word(match[0]), text.decode("utf-8", _ANYTHING))
        return shown.encode("utf-8", _ANYTHING)

    def _new_word(self, word: str) -> str:
        kinds = [_kind_of(sign) for sign in word]
        word_count = math.prod(count for _, count in kinds)
        hashed = hashlib.shake_256(self._key + word.encode("utf-8", _ANYTHING))
        # 24 bits per character, which has at most 2^20 alternatives.
        digest = hashed.digest(12 + 3 * len(word))
        number, step = int.from_bytes(digest[4:], "big"), int.from_bytes(digest[:4], "big")
        if word_count > _FEW:
            return _word_at(number % word_count, kinds)
        for turn in range(2 * word_count):
            candidate = _word_at((number + turn * (_STEP * step + 1)) % word_count, kinds)
            is_for = self._taken.get(candidate)
            # A word is its own pseudonym only if all others are used.
            if is_for is None and (candidate != word or turn >= word_count):
                if not self.is_full:
                    self._taken[candidate] = word
                return candidate
            if is_for == word:
                return candidate
        return candidate
