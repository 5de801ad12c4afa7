"""CRC32C (Castagnoli) over bytes of a buffer, callable from kernels.

If the processor has an instruction for it, eight bytes cost one instruction. Long inputs use three
independent chains, as each instruction waits for its predecessor; a table that advances a checksum
over a fixed number of zero bytes joins the chains. Other processors need eight table look-ups per
eight bytes.
"""

import functools
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import byte, le64
from dissector.jit import compiled, inlined, instruction, kernel, processor_features

_POLYNOMIAL: Final = 0x82F6_3B78  # bits reversed
_MASK: Final = 0xFFFF_FFFF
_LONG: Final = 2048  # bytes of one chain; three of them at once
_SHORT: Final = 192


def _byte_table() -> Int64Array:
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = (table >> 1) ^ (_POLYNOMIAL * (table & 1))
    return table


def _word_tables() -> Int64Array:
    """int64[8, 256]: what a byte contributes to the checksum when k more bytes follow it."""
    tables = np.empty((8, 256), np.int64)
    tables[0] = _byte_table()
    for k in range(1, 8):
        tables[k] = tables[0][tables[k - 1] & 0xFF] ^ (tables[k - 1] >> 8)
    return tables


def _skip_tables(zero_bytes: int) -> Int64Array:
    """int64[4, 256]: a checksum, byte by byte, advanced over a number of zero bytes."""
    if zero_bytes > 1 and zero_bytes % 2 == 0:  # twice over half as many: a dozen steps, not 2048
        half = _skip_tables(zero_bytes // 2)
        return _skipped(half, _skipped(half, _EVERY_BYTE))
    table = _byte_table()
    crc = _EVERY_BYTE
    for _ in range(zero_bytes):
        crc = table[crc & 0xFF] ^ (crc >> 8)
    return crc


def _skipped(tables: Int64Array, crc: Int64Array) -> Int64Array:
    """Checksums of any shape, advanced by tables."""
    parts = (tables[part, crc >> (8 * part) & 0xFF] for part in range(4))
    return functools.reduce(np.bitwise_xor, parts)


# int64[4, 256]: checksums in which one byte is set.
_EVERY_BYTE: Final = np.arange(256) << 8 * np.arange(4)[:, np.newaxis]
_WORDS: Final = _word_tables()
_SKIP_LONG: Final = _skip_tables(_LONG)
_SKIP_SHORT: Final = _skip_tables(_SHORT)


@inlined
def _table_word(crc: int, word: int) -> int:
    """The checksum after eight more bytes, by tables."""
    low = crc ^ (word & _MASK)
    high = (word >> 32) & _MASK
    return int(
        _WORDS[7, low & 0xFF]
        ^ _WORDS[6, (low >> 8) & 0xFF]
        ^ _WORDS[5, (low >> 16) & 0xFF]
        ^ _WORDS[4, low >> 24]
        ^ _WORDS[3, high & 0xFF]
        ^ _WORDS[2, (high >> 8) & 0xFF]
        ^ _WORDS[1, (high >> 16) & 0xFF]
        ^ _WORDS[0, high >> 24]
    )


@inlined
def _table_byte(crc: int, value: int) -> int:
    """The checksum after one more byte, by a table."""
    return int(_WORDS[0, (crc ^ value) & 0xFF] ^ (crc >> 8))


@inlined
def _skip(tables: Int64Array, crc: int) -> int:
    return int(
        tables[0, crc & 0xFF]
        ^ tables[1, (crc >> 8) & 0xFF]
        ^ tables[2, (crc >> 16) & 0xFF]
        ^ tables[3, crc >> 24]
    )


@kernel
def crc32c_by_table(data: ByteArray, offset: int, length: int) -> int:
    """The checksum of length bytes at offset, 0 to 2^32-1, on any processor."""
    crc = _MASK
    position = offset
    end = offset + length
    while end - position >= 8:
        crc = _table_word(crc, le64(data, position))
        position += 8
    while position < end:
        crc = _table_byte(crc, byte(data, position))
        position += 1
    return crc ^ _MASK


def _has_instruction() -> bool:
    return "sse4.2" in processor_features()  # a feature of x86-64 alone


if compiled() and _has_instruction():
    _word = instruction("llvm.x86.sse42.crc32.64.64", 64, (64, 64))
    _byte = instruction("llvm.x86.sse42.crc32.32.8", 32, (32, 8))

    @inlined
    def _chains(data: ByteArray, position: int, crc: int, size: int, tables: Int64Array) -> int:
        """The checksum after three times `size` more bytes."""
        second = 0
        third = 0
        at = position
        stop = position + size
        while at < stop:
            crc = _word(crc, le64(data, at))
            second = _word(second, le64(data, at + size))
            third = _word(third, le64(data, at + 2 * size))
            at += 8
        return _skip(tables, _skip(tables, crc) ^ second) ^ third

    @kernel
    def crc32c(data: ByteArray, offset: int, length: int) -> int:
        """The checksum of length bytes at offset, 0 to 2^32-1; the caller has checked the range."""
        crc = _MASK
        position = offset
        end = offset + length
        while end - position >= 3 * _LONG:
            crc = _chains(data, position, crc, _LONG, _SKIP_LONG)
            position += 3 * _LONG
        while end - position >= 3 * _SHORT:
            crc = _chains(data, position, crc, _SHORT, _SKIP_SHORT)
            position += 3 * _SHORT
        while end - position >= 8:
            crc = _word(crc, le64(data, position))
            position += 8
        while position < end:
            crc = _byte(crc, byte(data, position))
            position += 1
        return crc ^ _MASK

elif compiled():
    crc32c = crc32c_by_table

else:
    import crc32c as library

    def crc32c(data: ByteArray, offset: int, length: int) -> int:
        """The checksum of length bytes at offset, 0 to 2^32-1; the caller has checked the range."""
        return int(library.crc32c(data[offset : offset + length].tobytes()))
