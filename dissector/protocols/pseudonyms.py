"""Names in the place of names, of equal length: the same name is always the same other one.

A word, letters and digits without anything between them, becomes another word: small letters
become small ones, capitals capitals, digits digits, characters of two, three and four bytes such
ones. What stands between words stays, so a topic's name still reads as one. A word follows from a
keyed hash (SipHash) of the one that it stands for, which nothing turns back; where there are few
words of a kind and length, two would meet, and the later one takes the next that is free, in steps
of its own. So different words stay different, up to `limits.MAX_PSEUDONYMS` short ones of a run.
Which one of two gives way depends on which comes first, else all follows from the key.

Parts of names that say what something is stay: `persistent://`, `-partition-3`, `-DLQ`, `-RETRY`,
`pulsar.repl.`, the scheme and port of a URL.
"""

from functools import lru_cache
from typing import Final

import numpy as np

from dissector import tables
from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte
from dissector.codecs.siphash import SipHashKey, following, siphash
from dissector.jit import inlined, kernel
from dissector.limits import MAX_PSEUDONYMS
from dissector.states import State
from dissector.tables import ABSENT, HashTable

_LONGEST_WORD: Final = 128  # characters; a longer one is several
_KNOWN: Final = 1 << 16  # names that are remembered
_POSITIVE: Final = (1 << 62) - 1
_FEW: Final = 1 << 62  # words of a kind and length: of more, no two meet
_KINDS: Final = 8  # of characters
_STEP: Final = 2 * 3 * 5 * 13  # numbers of words have no other factors


def _bytes(text: bytes) -> ByteArray:
    return np.frombuffer(text, np.uint8)


_PERSISTENT: Final = _bytes(b"persistent://")
_NON: Final = _bytes(b"non-")
_REPLICATOR: Final = _bytes(b"pulsar.repl.")
_PARTITION: Final = _bytes(b"-partition-")
_DEAD: Final = _bytes(b"-DLQ")
_RETRY: Final = _bytes(b"-RETRY")


class WordState(State):
    """What words are renamed by.

    key: int64[2].
    values, radixes: int64[128], characters of the word in hand.
    taken: kind and number of a word that stands for another one -> that one's number.
    """

    key: Int64Array
    values: Int64Array
    radixes: Int64Array
    taken: HashTable


@inlined
def _character(data: ByteArray, at: int, end: int) -> tuple[int, int, int]:
    """Value, radix and bytes of the character at a place; radix 0: none of a word."""
    first = byte(data, at)
    if first < 0x80:
        if 0x61 <= first <= 0x7A:
            return first - 0x61, 26, 1
        if 0x30 <= first <= 0x39:
            return first - 0x30, 10, 1
        if 0x41 <= first <= 0x5A:
            return first - 0x41, 26, 1
        return 0, 0, 1
    left = end - at
    if 0xC2 <= first <= 0xDF and left >= 2 and byte(data, at + 1) >> 6 == 2:
        return ((first & 31) << 6 | (byte(data, at + 1) & 63)) - 0x80, 1920, 2
    if first >> 4 == 14 and left >= 3 and byte(data, at + 1) >> 6 == 2:
        code = (first & 15) << 12 | (byte(data, at + 1) & 63) << 6 | (byte(data, at + 2) & 63)
        if byte(data, at + 2) >> 6 == 2 and code >= 0x800 and not 0xD800 <= code < 0xE000:
            return code - 0x800 - (2048 if code >= 0xE000 else 0), 61440, 3
    if first >> 3 == 30 and left >= 4 and byte(data, at + 1) >> 6 == 2:
        code = (first & 7) << 18 | (byte(data, at + 1) & 63) << 12
        code |= (byte(data, at + 2) & 63) << 6 | (byte(data, at + 3) & 63)
        are_next = byte(data, at + 2) >> 6 == 2 and byte(data, at + 3) >> 6 == 2
        if are_next and 0x10000 <= code < 0x110000:
            return code - 0x10000, 1048576, 4
    return first - 0x80, 128, 1


@inlined
def _kind_of(radix: int, first: int) -> int:
    """The kind of a character by its radix and first byte, below _KINDS."""
    if radix == 26:
        return 1 if first >= 0x61 else 2
    return 3 + (radix > 10) + (radix > 128) + (radix > 1920) + (radix > 61440)


@inlined
def _put(data: ByteArray, at: int, value: int, radix: int, was: int) -> int:
    """Write a character of a kind; returns its bytes. was: the byte that is there."""
    if radix == 26:
        data[at] = value + (0x61 if was >= 0x61 else 0x41)
        return 1
    if radix == 10:
        data[at] = value + 0x30
        return 1
    if radix == 128:
        data[at] = value + 0x80
        return 1
    if radix == 1920:
        code = value + 0x80
        data[at] = 0xC0 | code >> 6
        data[at + 1] = 0x80 | (code & 63)
        return 2
    if radix == 61440:
        code = value + 0x800
        if code >= 0xD800:
            code += 2048
        data[at] = 0xE0 | code >> 12
        data[at + 1] = 0x80 | ((code >> 6) & 63)
        data[at + 2] = 0x80 | (code & 63)
        return 3
    code = value + 0x10000
    data[at] = 0xF0 | code >> 18
    data[at + 1] = 0x80 | ((code >> 12) & 63)
    data[at + 2] = 0x80 | ((code >> 6) & 63)
    data[at + 3] = 0x80 | (code & 63)
    return 4


@inlined
def _free_word(words: WordState, kind: int, number: int, most: int, seed: int) -> int:
    """The number of the word that stands for another one, of `most` that there are."""
    step = (_STEP * (following(seed, 0) >> 24 & 0xFFFF_FFFF) + 1) % most
    other = (seed & _POSITIVE) % most
    for turn in range(2 * most):
        is_for = tables.find(words.taken, kind, other, 0, 0)
        if is_for == number:
            break
        # Itself it stays only where all others are taken.
        if is_for == ABSENT and (other != number or turn >= most):
            if words.taken.counts[tables.TAKEN] < MAX_PSEUDONYMS:
                tables.put(words.taken, kind, other, 0, 0, number)
            break
        other = (other + step) % most
    return int(other)


@inlined
def _choose(words: WordState, kind: int, count: int, seed: int) -> None:
    """Replace the word in hand. kind: tells words with other kinds of characters apart."""
    values, radixes = words.values, words.radixes
    most, number = 1, 0
    for index in range(count):
        if most > _FEW // radixes[index]:
            most = _FEW
            break
        most *= radixes[index]
        number = number * radixes[index] + values[index]
    if most == _FEW:
        for index in range(count):
            values[index] = (following(seed, index) & _POSITIVE) % radixes[index]
        return
    other = _free_word(words, kind, number, most, seed)
    for index in range(count - 1, -1, -1):
        values[index] = other % radixes[index]
        other //= radixes[index]


@inlined
def has_word_room(words: WordState, size: int) -> bool:
    """Whether the words of so many bytes have room."""
    more = min(size // 2 + 1, MAX_PSEUDONYMS - words.taken.counts[tables.TAKEN])
    return bool(tables.has_room(words.taken, more))


@kernel
def rename_words(data: ByteArray, start: int, end: int, words: WordState) -> None:
    """Replace all words of data[start:end], for which there is room (`Pseudonyms.reserve`)."""
    values, radixes = words.values, words.radixes
    at = start
    while at < end:
        value, radix, size = _character(data, at, end)
        if radix == 0:
            at += 1
            continue
        first, count, kind = at, 0, 1
        while radix != 0 and count < _LONGEST_WORD:
            values[count] = value
            radixes[count] = radix
            count += 1
            kind = (kind * _KINDS + _kind_of(radix, byte(data, at))) & _POSITIVE
            at += size
            if at >= end:
                break
            value, radix, size = _character(data, at, end)
        _choose(words, kind, count, siphash(words.key[0], words.key[1], data, first, at))
        offset = first
        for index in range(count):
            offset += _put(data, offset, values[index], radixes[index], byte(data, offset))


@inlined
def _begins(data: ByteArray, at: int, end: int, text: ByteArray) -> bool:
    if end - at < len(text):
        return False
    differing = 0
    for index in range(len(text)):
        differing |= data[at + index] ^ text[index]
    return differing == 0


@inlined
def _after_scheme(data: ByteArray, start: int, end: int) -> int:
    """Where the host of a URL begins, -1 if it is none."""
    for at in range(start, min(start + 24, end - 2)):
        if data[at] == 0x3A:
            return at + 3 if data[at + 1] == 0x2F and data[at + 2] == 0x2F else -1
    return -1


@kernel
def rename(data: ByteArray, start: int, end: int, words: WordState) -> None:
    """Replace the name in data[start:end], but for what says what it is; as `rename_words`."""
    if _begins(data, start, end, _REPLICATOR):
        start += len(_REPLICATOR)
    if _begins(data, start, end, _NON) and _begins(data, start + 4, end, _PERSISTENT):
        start += 4
    if _begins(data, start, end, _PERSISTENT):
        start += len(_PERSISTENT)
    else:
        host = _after_scheme(data, start, end)
        if host >= 0:
            stop = host
            while stop < end and data[stop] != 0x2F and data[stop] != 0x2C:
                stop += 1
            port = stop
            while port > host and 0x30 <= data[port - 1] <= 0x39:
                port -= 1
            if port > host and data[port - 1] == 0x3A:
                rename_words(data, host, port, words)
                rename_words(data, stop, end, words)
            else:
                rename_words(data, host, end, words)
            return
    digits = end
    while digits > start and 0x30 <= data[digits - 1] <= 0x39:
        digits -= 1
    mark = digits - len(_PARTITION)
    if digits < end and mark > start and _begins(data, mark, end, _PARTITION):
        end = mark
    if end - start > len(_RETRY) and _begins(data, end - len(_RETRY), end, _RETRY):
        end -= len(_RETRY)
    elif end - start > len(_DEAD) and _begins(data, end - len(_DEAD), end, _DEAD):
        end -= len(_DEAD)
    rename_words(data, start, end, words)


class Pseudonyms:
    """Names under a key: of kernels, which take `state`, and of what Python handles one by one."""

    def __init__(self, key: SipHashKey) -> None:
        hash_key = int.from_bytes(np.array(key, np.int64).tobytes(), "little")
        self.state = WordState(
            key=np.array(key, np.int64),
            values=np.zeros(_LONGEST_WORD, np.int64),
            radixes=np.zeros(_LONGEST_WORD, np.int64),
            taken=tables.new_hash_table(1024, hash_key),
        )
        self.name = lru_cache(_KNOWN)(self._name)
        self.words = lru_cache(_KNOWN)(self._words)

    @property
    def is_full(self) -> bool:
        """Whether there are so many short words that further ones are not kept apart."""
        return int(self.state.taken.counts[tables.TAKEN]) >= MAX_PSEUDONYMS

    def reserve(self, size: int) -> None:
        """Make room for the words of so many bytes."""
        taken = self.state.taken
        more = min(size // 2 + 1, MAX_PSEUDONYMS - int(taken.counts[tables.TAKEN]))
        self.state.grow(taken=tables.reserved(taken, more))

    def _name(self, name: bytes) -> bytes:
        """The pseudonym of a name."""
        data = np.frombuffer(bytearray(name), np.uint8)
        self.reserve(len(data))
        rename(data, 0, len(data), self.state)
        return data.tobytes()

    def _words(self, text: bytes) -> bytes:
        """A text with all its words replaced."""
        data = np.frombuffer(bytearray(text), np.uint8)
        self.reserve(len(data))
        rename_words(data, 0, len(data), self.state)
        return data.tobytes()
