"""Names in the place of names, of equal length: the same name is always the same other one.

A word, letters and digits without anything between them, becomes another word: small letters
become small ones, capitals capitals, digits digits, characters of two, three and four bytes such
ones. What stands between words stays, so a topic's name still reads as one. Different words stay
different: each kind of word of a length is permuted by a Feistel network with additions by
character (as FFX has it: Bellare, Rogaway and Spies, 2010), its round function is SipHash.

Parts of names that say what something is stay: `persistent://`, `-partition-3`, `-DLQ`, `-RETRY`,
`pulsar.repl.`, the scheme and port of a URL.
"""

from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte
from dissector.codecs.siphash import following, siphash
from dissector.jit import inlined, kernel

_ROUNDS: Final = 10
_LONGEST_WORD: Final = 128  # characters; a longer one is several
ROOM: Final = 2 * _LONGEST_WORD
_CELL_BYTES: Final = 4
_KNOWN: Final = 1 << 16  # names that are remembered
_POSITIVE: Final = (1 << 62) - 1


def _bytes(text: bytes) -> ByteArray:
    return np.frombuffer(text, np.uint8)


_PERSISTENT: Final = _bytes(b"persistent://")
_NON: Final = _bytes(b"non-")
_REPLICATOR: Final = _bytes(b"pulsar.repl.")
_PARTITION: Final = _bytes(b"-partition-")
_DEAD: Final = _bytes(b"-DLQ")
_RETRY: Final = _bytes(b"-RETRY")


class SipHashKey(NamedTuple):
    """A key of SipHash: two signed halves."""

    low: int
    high: int


def key_of(data: bytes) -> SipHashKey:
    """A key from 16 bytes."""
    return SipHashKey(*(int.from_bytes(data[at : at + 8], "little", signed=True) for at in (0, 8)))


@kernel
def permute(
    values: Int64Array, radixes: Int64Array, count: int, low: int, high: int, scratch: ByteArray
) -> None:
    """Replace the first `count` values, each below its radix, by others: one to one.

    Args:
        scratch: uint8[], at least four bytes for each value and eight more.
    """
    half = (count + 1) // 2
    for number in range(_ROUNDS):
        is_left = number & 1 == 0
        first, last = (0, half) if is_left else (half, count)
        other, stop = (half, count) if is_left else (0, half)
        scratch[0] = number
        scratch[1] = count & 0xFF
        at = 2
        for index in range(other, stop):
            value = values[index]
            scratch[at] = value & 0xFF
            scratch[at + 1] = (value >> 8) & 0xFF
            scratch[at + 2] = (value >> 16) & 0xFF
            scratch[at + 3] = radixes[index] & 0xFF
            at += _CELL_BYTES
        seed = siphash(low, high, scratch, 0, at)
        for index in range(first, last):
            added = (following(seed, index) & _POSITIVE) % radixes[index]
            values[index] = (values[index] + added) % radixes[index]


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
            return first - 0x41, 25 + 1, 1
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


@kernel
def rename_words(
    data: ByteArray, start: int, end: int, key: Int64Array, cells: Int64Array, scratch: ByteArray
) -> None:
    """Replace all words of data[start:end].

    Args:
        key: int64[2]. cells: int64[2 * ROOM]; scratch: uint8[], room for `permute`.
    """
    values = cells[:ROOM]
    radixes = cells[ROOM:]
    at = start
    while at < end:
        value, radix, size = _character(data, at, end)
        if radix == 0:
            at += 1
            continue
        first = at
        count = 0
        while radix != 0 and count < _LONGEST_WORD:
            values[count] = value
            radixes[count] = radix
            count += 1
            at += size
            if at >= end:
                break
            value, radix, size = _character(data, at, end)
        permute(values, radixes, count, key[0], key[1], scratch)
        offset = first
        for number in range(count):
            offset += _put(data, offset, values[number], radixes[number], byte(data, offset))


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
def rename(
    data: ByteArray, start: int, end: int, key: Int64Array, cells: Int64Array, scratch: ByteArray
) -> None:
    """Replace the name in data[start:end], but for what says what it is. Arguments as above."""
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
                rename_words(data, host, port, key, cells, scratch)
                rename_words(data, stop, end, key, cells, scratch)
            else:
                rename_words(data, host, end, key, cells, scratch)
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
    rename_words(data, start, end, key, cells, scratch)


class Pseudonyms:
    """Names under a key, for what Python handles one by one.

    seen: names of this run, to find them in texts that mention them.
    """

    def __init__(self, key: SipHashKey) -> None:
        self.key: Int64Array = np.array(key, np.int64)
        self.cells: Int64Array = np.zeros(2 * ROOM, np.int64)
        self.scratch: ByteArray = np.zeros(_CELL_BYTES * (_LONGEST_WORD + 4), np.uint8)
        self.name = lru_cache(_KNOWN)(self._name)
        self.words = lru_cache(_KNOWN)(self._words)

    def _name(self, name: bytes) -> bytes:
        """The pseudonym of a name."""
        data = np.frombuffer(bytearray(name), np.uint8)
        rename(data, 0, len(data), self.key, self.cells, self.scratch)
        return data.tobytes()

    def _words(self, text: bytes) -> bytes:
        """A text with all its words replaced."""
        data = np.frombuffer(bytearray(text), np.uint8)
        rename_words(data, 0, len(data), self.key, self.cells, self.scratch)
        return data.tobytes()
