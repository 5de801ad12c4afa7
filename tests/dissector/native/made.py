"""Kernels of the tests' own: each takes or returns one kind of argument."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.blocks import Int64Array
from dissector.bundles import Bundle, Records
from dissector.jit import inlined, kernel
from dissector.states import State


class Columns(Bundle):
    """Two columns."""

    first: Int64Array
    second: Int64Array


class Rows(Records):
    """The same as records."""

    first: Int64Array
    second: Int64Array


class Pair(NamedTuple):
    """Two numbers."""

    least: int
    most: int


class Arrays(NamedTuple):
    """What a kernel works with."""

    values: Int64Array
    columns: Columns


class Memory(State):
    """What stays between calls."""

    total: Int64Array
    rows: Rows
    arrays: Arrays


@inlined
def twice(value: int) -> int:
    """A helper that is part of its callers."""
    return 2 * value


@kernel
def added(first: int, second: int = 5) -> int:
    """The sum."""
    return first + second


@kernel
def is_more(first: int, second: int) -> bool:
    """A flag."""
    return first > second


@kernel
def range_of(values: Int64Array) -> Pair:
    """Least and most of an array."""
    least, most = values[0], values[0]
    for value in values:
        least = min(least, value)
        most = max(most, value)
    return Pair(least, most)


@kernel
def unsigned(values: npt.NDArray[np.uint64]) -> int:
    """The first of unsigned numbers."""
    return values[0]  # type: ignore[return-value]


@kernel
def fill(columns: Columns, start: int) -> None:
    """Write both columns."""
    for row in range(len(columns.first)):
        columns.first[row] = start + row
        columns.second[row] = twice(start + row)


@kernel
def fill_rows(rows: Rows, start: int) -> None:
    """Write both fields of all records."""
    for row in range(len(rows.first)):
        rows.first[row] = start + row
        rows.second[row] = twice(start + row)


@kernel
def remember(memory: Memory, value: int) -> int:
    """Change every part of a state."""
    memory.total[0] += value
    memory.rows.second[1] = value
    memory.arrays.values[0] = value
    memory.arrays.columns.first[0] = value
    return memory.total[0]


@kernel
def chosen(sources: tuple[Int64Array, Int64Array], which: int) -> int:
    """An element of one of several arrays."""
    return sources[which][0]


@kernel
def out_of_bounds(values: Int64Array, place: int) -> int:
    """A read that a test mode checks."""
    return values[place]
