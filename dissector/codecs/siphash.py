"""SipHash-2-4, a keyed hash (Aumasson and Bernstein, 2012), and numbers that follow from one.

Without the key of 128 bits, a hash reveals nothing about the bytes.
"""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte, le64, wrapped
from dissector.codecs.wrapping import product, total
from dissector.jit import inlined, kernel

# "somepseudorandomlygeneratedbytes", as the paper has it.
_FIRST: Final = 0x736F6D6570736575
_SECOND: Final = 0x646F72616E646F6D
_THIRD: Final = 0x6C7967656E657261
_FOURTH: Final = 0x7465646279746573
# SplitMix64 (Steele, Lea and Flood, 2014); factors above 2^63 as signed numbers.
_STEP: Final = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX: Final = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_AGAIN: Final = 0x94D049BB133111EB - (1 << 64)


class SipHashKey(NamedTuple):
    """A key of SipHash: two signed halves."""

    low: int
    high: int


def key_of(data: bytes) -> SipHashKey:
    """A key from 16 bytes."""
    return SipHashKey(*(int.from_bytes(data[at : at + 8], "little", signed=True) for at in (0, 8)))


@inlined
def _rotated(value: int, bits: int) -> int:
    return wrapped(value << bits) | ((value >> (64 - bits)) & ((1 << bits) - 1))


@inlined
def _round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a = total(a, b)
    b = _rotated(b, 13) ^ a
    a = _rotated(a, 32)
    c = total(c, d)
    d = _rotated(d, 16) ^ c
    a = total(a, d)
    d = _rotated(d, 21) ^ a
    c = total(c, b)
    b = _rotated(b, 17) ^ c
    c = _rotated(c, 32)
    return a, b, c, d


@inlined
def _last_word(data: ByteArray, start: int, end: int) -> int:
    """The bytes behind the last whole word of data[start:end], and how many bytes there are."""
    word = wrapped(((end - start) & 0xFF) << 56)
    shift = 0
    for position in range(end - ((end - start) & 7), end):
        word |= byte(data, position) << shift
        shift += 8
    return word


@inlined
def _absorbed(a: int, b: int, c: int, d: int, word: int, rounds: int) -> tuple[int, int, int, int]:
    d ^= word
    for _ in range(rounds):
        a, b, c, d = _round(a, b, c, d)
    return a ^ word, b, c, d


@inlined
def _finished(a: int, b: int, c: int, d: int, rounds: int) -> int:
    c ^= 0xFF
    for _ in range(rounds):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


@inlined
def _hash(low: int, high: int, data: ByteArray, start: int, end: int, rounds: int) -> int:
    """SipHash with so many rounds for each word, and two more at the end."""
    a, b, c, d = _FIRST ^ low, _SECOND ^ high, _THIRD ^ low, _FOURTH ^ high
    position = start
    while position + 8 <= end:
        a, b, c, d = _absorbed(a, b, c, d, le64(data, position), rounds)
        position += 8
    a, b, c, d = _absorbed(a, b, c, d, _last_word(data, start, end), rounds)
    return _finished(a, b, c, d, rounds + 2)


@kernel
def siphash(low: int, high: int, data: ByteArray, start: int, end: int) -> int:
    """The hash of data[start:end] as a signed number; low, high: the key's halves, likewise."""
    return _hash(low, high, data, start, end, 2)


@inlined
def short_siphash(low: int, high: int, data: ByteArray, start: int, end: int) -> int:
    """SipHash-1-3, with half the rounds: for hash tables in memory, where hashes are not shown."""
    return _hash(low, high, data, start, end, 1)


@inlined
def _hash_of_row(low: int, high: int, rows: Int64Array, row: int, rounds: int) -> int:
    a, b, c, d = _FIRST ^ low, _SECOND ^ high, _THIRD ^ low, _FOURTH ^ high
    for column in range(rows.shape[1]):
        a, b, c, d = _absorbed(a, b, c, d, rows[row, column], rounds)
    return _finished(a, b, c, d, rounds + 2)


@inlined
def siphash_of_row(low: int, high: int, rows: Int64Array, row: int) -> int:
    """The hash of one row of int64[rows, words]."""
    return _hash_of_row(low, high, rows, row, 2)


@inlined
def short_siphash_of_row(low: int, high: int, rows: Int64Array, row: int) -> int:
    """SipHash-1-3 of one row of int64[rows, words]."""
    return _hash_of_row(low, high, rows, row, 1)


@inlined
def following(seed: int, number: int) -> int:
    """The number'th of the numbers that follow from a seed, signed, 64 bits."""
    value = total(seed, product(_STEP, number + 1))
    value = product(value ^ ((value >> 30) & ((1 << 34) - 1)), _MIX)
    value = product(value ^ ((value >> 27) & ((1 << 37) - 1)), _MIX_AGAIN)
    return value ^ ((value >> 31) & ((1 << 33) - 1))


@kernel
def fill_noise(data: ByteArray, start: int, end: int, seed: int) -> None:
    """Fill data[start:end] with bytes that are derived from a seed."""
    position = start
    number = 0
    while position < end:
        word = following(seed, number)
        number += 1
        stop = min(position + 8, end)
        while position < stop:
            data[position] = word & 0xFF
            word >>= 8
            position += 1
