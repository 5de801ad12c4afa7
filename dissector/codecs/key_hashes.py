"""The hash of message keys by which brokers select consumers, and clients select partitions.

It has 31 bits, without the sign, as in Pulsar's programs.
"""

from typing import Final

from dissector.blocks import ByteArray
from dissector.codecs.integers import byte, le32
from dissector.codecs.wrapping import product
from dissector.jit import inlined, kernel
from dissector.limits import NULL

_MASK: Final = 0xFFFF_FFFF
_UNSIGNED: Final = 0x7FFF_FFFF
_PADDING: Final = 0x3D
_NO_DIGIT: Final = -1


@inlined
def _mixed(word: int) -> int:
    """A word of four bytes before it enters the hash."""
    word = product(word, 0xCC9E_2D51) & _MASK
    word = ((word << 15) | (word >> 17)) & _MASK
    return product(word, 0x1B87_3593) & _MASK


@inlined
def _entered(state: int, word: int) -> int:
    """The hash with one word more."""
    state ^= _mixed(word)
    state = ((state << 13) | (state >> 19)) & _MASK
    return (state * 5 + 0xE654_6B64) & _MASK


@inlined
def _finished(state: int, size: int) -> int:
    """The hash of so many bytes, without its sign."""
    state ^= size & _MASK
    state ^= state >> 16
    state = product(state, 0x85EB_CA6B) & _MASK
    state ^= state >> 13
    state = product(state, 0xC2B2_AE35) & _MASK
    return (state ^ (state >> 16)) & _UNSIGNED


@kernel
def murmur3(data: ByteArray, at: int, size: int) -> int:
    """Murmur3 (x86, 32 bits, seed 0) of bytes."""
    state = 0
    end = at + size
    while end - at >= 4:
        state = _entered(state, le32(data, at))
        at += 4
    rest = 0
    for k in range(end - at):
        rest |= byte(data, at + k) << (8 * k)
    return _finished(state ^ _mixed(rest), size)


@inlined
def _digit(letter: int) -> int:
    """The six bits of a letter of Base64, _NO_DIGIT of any other."""
    if 0x41 <= letter <= 0x5A:
        return letter - 0x41
    if 0x61 <= letter <= 0x7A:
        return letter - 0x61 + 26
    if 0x30 <= letter <= 0x39:
        return letter - 0x30 + 52
    if letter == 0x2B:
        return 62
    return 63 if letter == 0x2F else _NO_DIGIT


@kernel
def murmur3_of_base64(data: ByteArray, at: int, size: int) -> int:
    """Return Murmur3 of the bytes that Base64 text encodes, with or without padding; NULL for other
    text."""
    end = at + size
    for _ in range(2):
        if size % 4 == 0 and end > at and byte(data, end - 1) == _PADDING:
            end -= 1
    if (end - at) % 4 == 1:
        return NULL
    state = 0
    count = 0  # bytes so far
    word = 0
    bits = 0  # read and not yet in a byte
    held = 0
    while at < end:
        digit = _digit(byte(data, at))
        if digit == _NO_DIGIT:
            return NULL
        held = ((held << 6) | digit) & 0xFFF
        bits += 6
        at += 1
        if bits >= 8:
            bits -= 8
            word |= ((held >> bits) & 0xFF) << (8 * (count & 3))
            count += 1
            if count & 3 == 0:
                state = _entered(state, word)
                word = 0
    return _finished(state ^ _mixed(word), count)
