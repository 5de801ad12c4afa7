"""Rows that have the same numbers in some columns, found without sorting them."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.buckets import bucket_of
from dissector.codecs.keyed_hash import hash_of_words, new_secret
from dissector.codecs.wrapping import total
from dissector.jit import kernel
from dissector.limits import HASH_KEY_BITS, NULL, SUB_BUCKET_BITS
from dissector.native.entropy import random_number

_FREE: Final = -1
_FEWEST_SLOTS: Final = 64
_SECRET: Final = new_secret(random_number(HASH_KEY_BITS))


@kernel
def _number(
    columns: Int64Array,
    slots: Int64Array,
    groups: Int64Array,
    firsts: Int64Array,
    secret: Int64Array,
) -> int:
    """Number the distinct rows of a matrix int64[columns, rows] by their first appearance.

    Args:
        slots: as many as a power of two, more than rows, all _FREE: an open table of groups.
        groups: gets the group of each row; firsts: the first row of each group; secret: of hashes.

    Returns:
        how many groups there are.
    """
    count = 0
    mask = len(slots) - 1
    for row in range(columns.shape[1]):
        key = 0
        for column in range(columns.shape[0]):
            key = hash_of_words(secret, key, columns[column, row], column, 0)
        at = key & mask
        for _ in range(mask + 1):
            if slots[at] == _FREE:
                break
            first = firsts[slots[at]]
            column = 0
            while column < columns.shape[0] and columns[column, first] == columns[column, row]:
                column += 1
            if column == columns.shape[0]:
                break
            at = (at + 1) & mask
        if slots[at] == _FREE:
            slots[at] = count
            firsts[count] = row
            count += 1
        groups[row] = slots[at]
    return count


@kernel
def _add_up(values: Int64Array, groups: Int64Array, sums: Int64Array) -> None:
    """Add a column to the sums of its groups; nulls are left out."""
    for row in range(len(groups)):
        if values[row] != NULL:
            sums[groups[row]] = total(sums[groups[row]], values[row])


@kernel
def _count_up(groups: Int64Array, sums: Int64Array) -> None:
    """Count the rows of each group."""
    for row in range(len(groups)):
        sums[groups[row]] += 1


@kernel
def _tally(
    durations_ns: Int64Array,
    groups: Int64Array,
    numbers: Int64Array,
    first_octave: int,
    counts: Int64Array,
    sums: Int64Array,
) -> None:
    """Count durations by octave; see `tallied`."""
    last = counts.shape[1] - 1
    for row in range(len(groups)):
        number = numbers[groups[row]]
        duration = durations_ns[row]
        if number >= 0 and duration >= 0:
            # Bucket 32 * n + k holds durations from 2^(n + 4) to below 2^(n + 5), n from 1 on.
            octave = (bucket_of(duration) >> SUB_BUCKET_BITS) + SUB_BUCKET_BITS - first_octave
            counts[number, min(max(octave, 0), last)] += 1
            sums[number] = total(sums[number], duration)


def group_rows(columns: Sequence[Int64Array]) -> tuple[Int64Array, Int64Array]:
    """Which rows are equal in all columns.

    Returns:
        the first row of each group, groups in the order of these, and the group of each row.
    """
    matrix = np.ascontiguousarray(np.stack(columns))
    rows = matrix.shape[1]
    slots = np.full(max(_FEWEST_SLOTS, 1 << (2 * rows).bit_length()), _FREE, np.int64)
    groups, firsts = np.empty(rows, np.int64), np.empty(rows, np.int64)
    count = int(_number(matrix, slots, groups, firsts, _SECRET))
    return firsts[:count], groups


def added_up(values: Int64Array | None, groups: Int64Array, count: int) -> list[int]:
    """Sums of a column per group, nulls left out; without a column, how many rows each has."""
    sums = np.zeros(count, np.int64)
    if values is None:
        _count_up(groups, sums)
    else:
        _add_up(np.ascontiguousarray(values), groups, sums)
    found: list[int] = sums.tolist()
    return found


def tallied(
    durations_ns: Int64Array,
    groups: Int64Array,
    numbers: Int64Array,
    first_octave: int,
    octaves: int,
) -> tuple[Int64Array, list[int]]:
    """Durations of each number, by octaves of the lake's buckets; nulls are left out.

    Args:
        groups: of each row; numbers: of each group, -1 leaves it out.
        first_octave: durations below 2^first_octave ns are in the first place.

    Returns:
        int64[numbers, octaves], the last place holds what is longer; and sums, ns.
    """
    count = int(numbers.max(initial=-1)) + 1
    counts = np.zeros((count, octaves), np.int64)
    sums = np.zeros(count, np.int64)
    _tally(np.ascontiguousarray(durations_ns), groups, numbers, first_octave, counts, sums)
    return counts, sums.tolist()
