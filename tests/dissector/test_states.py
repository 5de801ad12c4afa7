"""States: kernels see the arrays, bundles and tuples of a state, also after they have grown."""

import sys
from typing import NamedTuple

import numpy as np
import pytest

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle
from dissector.jit import kernel
from dissector.states import State


class Columns(Bundle):
    left: Int64Array
    right: Int64Array


class Pair(NamedTuple):
    columns: Columns
    grid: Int64Array


class Whole(State):
    counts: Int64Array
    pair: Pair
    text: ByteArray
    columns: Columns
    words: Int64Array


@kernel
def add_up(state: Whole, factor: int) -> int:
    """A sum over every array, and a change of each."""
    total = 0
    for row in range(len(state.columns.left)):
        total += state.columns.left[row] * factor + state.columns.right[row]
        state.columns.right[row] = total
    for row in range(state.pair.grid.shape[0]):
        for column in range(state.pair.grid.shape[1]):
            total += state.pair.grid[row, column] * (column + 1)
    state.pair.columns.left[0] += 1
    state.counts[1] += len(state.text)
    state.words[len(state.words) - 1] += 1
    return total + state.text[0] + state.pair.columns.left[0]


def make() -> Whole:
    return Whole(
        counts=np.zeros(2, np.int64),
        pair=Pair(Columns.new(1, 5), np.arange(6, dtype=np.int64).reshape(2, 3)),
        text=np.array([7, 8], np.uint8),
        columns=Columns(np.array([[1, 2], [10, 20]], np.int64)),
        words=np.zeros(1000, np.int64),
    )


def test_a_kernel_reads_and_writes_every_field():
    state = make()
    grid = sum(value * (place % 3 + 1) for place, value in enumerate(range(6)))
    assert add_up(state, 3) == (1 * 3 + 10) + (2 * 3 + 20) + grid + 7 + 6
    assert state.columns.right.tolist() == [13, 39]
    assert state.counts.tolist() == [0, 2]
    assert state.pair.columns.left.tolist() == [6]
    assert state.words.tolist() == [0] * 999 + [1]


def test_a_grown_array_is_seen_by_the_next_kernel():
    state = make()
    add_up(state, 0)
    state.grow(columns=state.columns.grown(3, 100), text=np.zeros(9, np.uint8))
    add_up(state, 0)
    assert state.columns.right.tolist() == [10, 40, 140]
    assert state.counts.tolist() == [0, 11]


def test_fields_must_be_those_of_the_class():
    with pytest.raises(AssertionError):
        Whole(counts=np.zeros(2, np.int64))
    with pytest.raises(AssertionError):
        make().grow(other=np.zeros(2, np.int64))


def test_no_field_hides_what_a_state_keeps_for_itself():
    with pytest.raises(AssertionError, match="pointers"):

        class _Hiding(State):
            pointers: Int64Array

    state = make()
    for name in state._fields:
        value = getattr(state, name)
        assert not np.shares_memory(getattr(value, "matrix", np.zeros(0)), state.pointers)
    assert state.words is not state.pointers


def test_a_call_keeps_nothing_of_the_state():
    state = make()
    add_up(state, 0)
    before = sys.getrefcount(state.pointers)
    for _ in range(100):
        add_up(state, 0)
    after = sys.getrefcount(state.pointers)
    assert after == before
