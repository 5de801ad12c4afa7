"""Kernels that encode one column of one Parquet page: definition levels, then values.

Levels of a nullable column have one bit (Parquet: RLE and bit-packing hybrid, width 1, after a
length of four bytes). Values follow: DELTA_BINARY_PACKED for integers (blocks of 128 in four
miniblocks), dictionary indices for coded text, PLAIN for flags and text. The kernels write
consecutively to `out`, which the caller allocates large enough, and return the bytes written. Null
rows are dropped without a branch, as their pattern is not predictable.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import wrapped
from dissector.codecs.wrapping import difference
from dissector.jit import inlined, kernel
from dissector.limits import NULL

_BLOCK: Final = 128
_MINIBLOCK: Final = 32
_MINIBLOCKS: Final = 4
_NS_PER_US: Final = 1000
_LOW_57: Final = (1 << 57) - 1


class NumberPage(NamedTuple):
    """An encoded page of integers.

    values: number of non-null values.
    least, most: their range.
    """

    size: int
    values: int
    least: int
    most: int


class CodePage(NamedTuple):
    """An encoded page of coded text.

    values: number of non-null values.
    used: number of dictionary entries so far.
    indices: length of the prefix of scratch that holds each dictionary index of this page.
    """

    size: int
    values: int
    used: int
    indices: int


# Indices other than loop variables are unsigned: a signed one costs a test per access.


@inlined
def _put32(out: ByteArray, at: int, value: int) -> int:
    out[np.uint64(at)] = value & 255
    out[np.uint64(at + 1)] = (value >> 8) & 255
    out[np.uint64(at + 2)] = (value >> 16) & 255
    out[np.uint64(at + 3)] = (value >> 24) & 255
    return at + 4


@inlined
def _put_varint(out: ByteArray, at: int, value: int) -> int:
    """Write value as an unsigned 64-bit varint: seven bits per byte."""
    while value < 0 or value > 127:
        out[at] = (value & 127) | 128
        value = (value >> 7) & _LOW_57
        at += 1
    out[at] = value
    return at + 1


@inlined
def _zigzag(value: int) -> int:
    return wrapped((value << 1) ^ (value >> 63))


@inlined
def _width(bits: int) -> int:
    """Return the bit length of a number, read as unsigned 64-bit."""
    if bits < 0:
        return 64
    width = 0
    for step in (32, 16, 8, 4, 2, 1):
        if bits >> step != 0:
            width += step
            bits >>= step
    return width + (1 if bits != 0 else 0)


@kernel
def _pack(values: Int64Array, start: int, count: int, width: int, out: ByteArray, at: int) -> int:
    """Write the low `width` bits of each value, the first value in the lowest bits."""
    held = 0
    filled = 0
    for k in range(start, start + count):
        value = int(values[k])
        held = wrapped(held | (value << filled))
        filled += width
        if filled >= 64:
            at = _put32(out, at, held)
            at = _put32(out, at, held >> 32)
            filled -= 64
            held = 0
            if filled > 0:
                shift = width - filled
                held = (value >> shift) & difference(wrapped(1 << (64 - shift)), 1)
    while filled > 0:
        out[at] = held & 255
        held >>= 8
        at += 1
        filled -= 8
    return at


@kernel
def _pack_deltas(values: Int64Array, count: int, block: Int64Array, out: ByteArray, at: int) -> int:
    """Write DELTA_BINARY_PACKED: first value, then blocks of deltas minus the block's least."""
    at = _put_varint(out, at, _BLOCK)
    at = _put_varint(out, at, _MINIBLOCKS)
    at = _put_varint(out, at, count)
    at = _put_varint(out, at, _zigzag(int(values[0]) if count > 0 else 0))
    done = 1
    while done < count:
        size = min(_BLOCK, count - done)
        here, before = values[done : done + size], values[done - 1 : done - 1 + size]
        for k in range(size):
            block[k] = difference(here[k], before[k])
        least = int(block[0])
        for k in range(size):
            least = min(least, int(block[k]))
        at = _put_varint(out, at, _zigzag(least))
        widths = at
        at += _MINIBLOCKS
        for part in range(_MINIBLOCKS):
            first = part * _MINIBLOCK
            bits = 0
            for k in range(first, min(first + _MINIBLOCK, size)):
                above = difference(block[k], least)
                block[k] = above
                bits |= above
            for k in range(max(first, size), first + _MINIBLOCK):
                block[k] = 0
            width = _width(bits)
            out[widths + part] = width
            if width > 0:
                at = _pack(block, first, _MINIBLOCK, width, out, at)
        done += size
    return at


@inlined
def _put_levels(present: ByteArray, rows: int, values: int, out: ByteArray) -> int:
    """Write the levels of a page: one run if all rows are equal, else the bits of `present`."""
    if values == rows or values == 0:
        at = _put_varint(out, 4, rows << 1)
        out[at] = 1 if values else 0
        at += 1
    else:
        groups = (rows + 7) >> 3
        at = _put_varint(out, 4, (groups << 1) | 1)
        for group in range(groups):
            out[at + group] = present[group]
        at += groups
    _put32(out, 0, at - 4)
    return at


@inlined
def _drop_nulls(rows: Int64Array, scratch: Int64Array, bits: ByteArray) -> None:
    """Copy non-null values to the front of scratch, and set a bit per non-null row."""
    values = 0
    for group in range(len(bits)):
        present = 0
        for k in range(group * 8, min(group * 8 + 8, len(rows))):
            value = int(rows[k])
            is_present = 1 if value != NULL else 0
            scratch[np.uint64(values)] = value
            values += is_present
            present |= is_present << (k & 7)
        bits[group] = present


@inlined
def _range(values: Int64Array, count: int) -> tuple[int, int]:
    """Return least and most of the first `count` values."""
    least = 0x7FFF_FFFF_FFFF_FFFF
    most = -0x7FFF_FFFF_FFFF_FFFF - 1
    for k in range(count):
        least = min(least, int(values[k]))
        most = max(most, int(values[k]))
    return least, most


@kernel
def number_page(rows: Int64Array, is_time: bool, scratch: Int64Array, out: ByteArray) -> NumberPage:
    """Encode integers with NULL; times are rounded down from ns to µs.

    Args:
        rows: int64[rows]. scratch: int64[rows + 128]. out: uint8[], 9 bytes per row and 1 KiB
            suffice; its end holds the null bits meanwhile.
    """
    count = len(rows)
    groups = (count + 7) >> 3
    bits = out[len(out) - groups :]
    values = 0
    for k in range(count):
        values += 1 if rows[k] != NULL else 0
    if values == count and not is_time:
        at = _put_levels(bits, count, values, out)
        at = _pack_deltas(rows, values, scratch, out, at)
        least, most = _range(rows, values)
        return NumberPage(at, values, least, most)
    if values == count:
        for k in range(count):
            scratch[k] = rows[k]
    else:
        _drop_nulls(rows, scratch, bits)
    if is_time:
        for k in range(values):
            scratch[k] = int(scratch[k]) // _NS_PER_US
    at = _put_levels(bits, count, values, out)
    at = _pack_deltas(scratch, values, scratch[count:], out, at)
    least, most = _range(scratch, values)
    return NumberPage(at, values, least, most)


@inlined
def _drop_null_codes(codes: npt.NDArray[np.int32], scratch: Int64Array, bits: ByteArray) -> int:
    """As _drop_nulls, for codes, where a negative code is null; return the number of non-nulls."""
    values = 0
    for group in range(len(bits)):
        present = 0
        for k in range(group * 8, min(group * 8 + 8, len(codes))):
            code = int(codes[k])
            is_present = 1 if code >= 0 else 0
            scratch[np.uint64(values)] = code
            values += is_present
            present |= is_present << (k & 7)
        bits[group] = present
    return values


@inlined
def _to_indices(
    scratch: Int64Array,
    values: int,
    indices: npt.NDArray[np.int32],
    used: Int64Array,
    used_count: int,
) -> int:
    """Replace codes in scratch by dictionary indices; append new codes to the dictionary."""
    for k in range(values):
        code = int(scratch[k])
        index = int(indices[np.uint64(code)])
        if index < 0:
            index = used_count
            indices[code] = index
            used[used_count] = code
            used_count += 1
        scratch[k] = index
    return used_count


@kernel
def code_page(
    codes: npt.NDArray[np.int32],
    indices: npt.NDArray[np.int32],
    used: Int64Array,
    used_count: int,
    scratch: Int64Array,
    out: ByteArray,
) -> CodePage:
    """Encode codes of names as indices in a dictionary that is built in order of first use.

    Args:
        codes: int32[rows], negative for null. indices: int32[names], a name's index in the
            dictionary, -1 if it has none yet; written. used: int64[], the code at each index;
            written from used_count on. scratch: int64[rows + 8]. out: uint8[], 5 bytes per
            row and 1 KiB; its end holds the null bits meanwhile.
    """
    count = len(codes)
    bits = out[len(out) - ((count + 7) >> 3) :]
    lowest, highest = 0x7FFF_FFFF, -1
    for k in range(count):
        lowest = min(lowest, int(codes[k]))
        highest = max(highest, int(codes[k]))
    values = count
    if highest < 0:
        values = 0
    elif lowest < 0:
        values = _drop_null_codes(codes, scratch, bits)
    else:
        for k in range(count):
            scratch[k] = codes[k]
    if lowest == highest or values == 0:
        used_count = _to_indices(scratch, min(values, 1), indices, used, used_count)
    else:
        used_count = _to_indices(scratch, values, indices, used, used_count)
    at = _put_levels(bits, count, values, out)
    width = max(1, _width(used_count - 1)) if used_count > 0 else 1
    out[at] = width
    at += 1
    if lowest == highest and values > 0:
        index = int(scratch[0])
        at = _put_varint(out, at, values << 1)
        for _ in range((width + 7) >> 3):
            out[at] = index & 255
            index >>= 8
            at += 1
    elif values > 0:
        eights = (values + 7) >> 3
        for k in range(values, eights * 8):
            scratch[k] = 0
        at = _put_varint(out, at, (eights << 1) | 1)
        at = _pack(scratch, 0, eights * 8, width, out, at)
    return CodePage(at, values, used_count, min(values, 1) if lowest == highest else values)


@kernel
def flag_page(
    flags: npt.NDArray[np.bool_], present: npt.NDArray[np.bool_], out: ByteArray
) -> NumberPage:
    """Encode flags as packed bits; out: uint8[rows + 1 KiB]. Least and most: 0 for false, 1 for
    true."""
    count = len(flags)
    groups = (count + 7) >> 3
    bits = out[len(out) - groups :]
    packed = out[len(out) - 2 * groups - 1 :]
    values = 0
    trues = 0
    held = 0
    for group in range(groups):
        levels = 0
        for k in range(group * 8, min(group * 8 + 8, count)):
            is_present = 1 if present[k] else 0
            is_true = 1 if flags[k] else 0
            held |= (is_true & is_present) << (values & 7)
            packed[values >> 3] = held
            values += is_present
            trues += is_true & is_present
            if values & 7 == 0 and is_present:
                held = 0
            levels |= is_present << (k & 7)
        bits[group] = levels
    at = _put_levels(bits, count, values, out)
    for byte in range((values + 7) >> 3):
        out[at + byte] = packed[byte]
    least, most = 1 if trues == values else 0, 1 if trues else 0
    return NumberPage(at + ((values + 7) >> 3), values, least, most)


@kernel
def text_page(data: ByteArray, bounds: Int64Array, present: ByteArray, out: ByteArray) -> int:
    """Encode texts PLAIN, without levels: a length of four bytes before each.

    Args:
        data: uint8[]. bounds: int64[rows + 1], offset in data of each text's start and end.
        present: uint8[rows], 0 where a row is null. out: uint8[], 4 bytes per row and all of data.
    """
    at = 0
    for row in range(len(present)):
        if present[row]:
            start, stop = int(bounds[row]), int(bounds[row + 1])
            at = _put32(out, at, stop - start)
            for k in range(start, stop):
                out[at] = data[k]
                at += 1
    return at


@kernel
def delta_run(values: Int64Array, block: Int64Array, out: ByteArray) -> int:
    """Encode integers without levels; block: int64[128], scratch; out: 9 bytes a value, 1 KiB."""
    return _pack_deltas(values, len(values), block, out, 0)


@kernel
def level_run(levels: Int64Array, width: int, out: ByteArray) -> int:
    """Encode the levels of a nested column, bit-packed after a length of four bytes.

    Args:
        levels: int64[], padded with zeros to a multiple of 8. out: uint8[], a byte per level, 32.
    """
    at = _put_varint(out, 4, ((len(levels) >> 3) << 1) | 1)
    at = _pack(levels, 0, len(levels), width, out, at)
    _put32(out, 0, at - 4)
    return at
