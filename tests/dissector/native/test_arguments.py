"""Arguments of kernels as words: what arrives in a kernel is what was passed, in every kind."""

import copy

import numpy as np
import pytest

from dissector.jit import compiled, prepacked
from dissector.native.arguments import append, maker_of, result_count, word_count
from tests.dissector.native import made


def test_numbers_defaults_and_names() -> None:
    assert made.added(1, 2) == 3
    assert made.added(1) == 6
    assert made.added(second=1, first=-(1 << 63)) == 1 - (1 << 63)
    assert made.added(np.int64(3), np.uint8(4)) == 7


@pytest.mark.skipif(not compiled(), reason="plain Python takes anything")
def test_what_is_longer_than_a_word_is_cut_to_one() -> None:
    assert made.added((1 << 64) - 2, 5) == 3


def test_results_have_their_kinds() -> None:
    assert made.is_more(2, 1) is True or not compiled()
    assert bool(made.is_more(1, 2)) is False
    found = made.range_of(np.array([3, -1, 7], np.int64))
    assert found == made.Pair(-1, 7) and found.most == 7
    assert int(made.unsigned(np.array([1 << 63], np.uint64))) == 1 << 63


def test_arrays_of_any_layout() -> None:
    values = np.arange(12, dtype=np.int64)
    assert made.range_of(values[3:]) == (3, 11)
    assert made.range_of(values[::5]) == (0, 10)
    assert made.range_of(values[::-1]) == (0, 11)
    assert made.range_of(values.reshape(3, 4)[:, 1]) == (1, 9)
    frozen = values.copy()
    frozen.flags.writeable = False
    assert made.range_of(frozen) == (0, 11)


def test_bundles_and_records_are_written_in_place() -> None:
    columns, rows = made.Columns.new(5), made.Rows.new(5)
    made.fill(columns, 10)
    made.fill_rows(rows, 10)
    assert columns.second.tolist() == rows.second.tolist() == [20, 22, 24, 26, 28]
    assert columns.matrix.tolist() == rows.matrix.T.tolist()
    assert rows.grown(7).first.tolist() == [10, 11, 12, 13, 14, 0, 0]


def test_states_reach_all_their_parts_and_grow() -> None:
    arrays = made.Arrays(np.zeros(1, np.int64), made.Columns.new(1))
    memory = made.Memory(total=np.zeros(1, np.int64), rows=made.Rows.new(2), arrays=arrays)
    assert made.remember(memory, 4) == 4
    memory.grow(rows=memory.rows.grown(9))
    assert made.remember(memory, 5) == 9
    assert memory.rows.second.tolist()[:2] == [0, 5]
    assert arrays.values[0] == arrays.columns.first[0] == 5


def test_tuples_are_indexed_at_run_time() -> None:
    sources = np.array([1], np.int64), np.array([2], np.int64)
    assert [made.chosen(sources, which) for which in (0, 1)] == [1, 2]


def test_what_is_kept_is_passed_as_it_is_then() -> None:
    sources = prepacked((np.array([1], np.int64), np.array([2], np.int64)))
    assert [made.chosen(sources, which) for which in (0, 1, 0)] == [1, 2, 1]
    empty, frozen = np.zeros(0, np.int64), np.ones(1, np.int64)
    frozen.flags.writeable = False
    assert made.chosen(prepacked((frozen, frozen)), 1) == 1
    assert append(empty, words := []) and words[0] == empty.ctypes.data


def test_a_state_that_is_passed_again_and_again_may_grow() -> None:
    """And a tuple of it has the fields that it has."""
    arrays = made.Arrays(np.zeros(1, np.int64), made.Columns.new(1))
    memory = made.Memory(total=np.zeros(1, np.int64), rows=made.Rows.new(2), arrays=arrays)
    passed = prepacked(memory)
    assert made.remember(passed, 4) == 4
    memory.grow(rows=memory.rows.grown(4_000))
    assert made.remember(passed, 5) == 9
    assert passed.rows.second.tolist()[:2] == [0, 5]
    assert passed.arrays.columns.first[0] == 5


def test_a_copy_of_what_is_passed_again_has_memory_of_its_own() -> None:
    """A tap asks a copy for the rows that are open, and goes on."""
    arrays = made.Arrays(np.zeros(1, np.int64), made.Columns.new(1))
    memory = made.Memory(total=np.zeros(1, np.int64), rows=made.Rows.new(2), arrays=arrays)
    passed = prepacked(memory)
    copied = copy.deepcopy(passed)
    assert made.remember(copied, 4) == 4
    assert made.remember(passed, 5) == 5
    assert [each.total.tolist() for each in (passed, copied)] == [[5], [4]]


@pytest.mark.skipif(not compiled(), reason="plain Python takes anything")
@pytest.mark.parametrize("value", ["text", None, 1.5, np.zeros((2, 2, 2), np.int64)])
def test_what_kernels_do_not_take_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        made.added(value, 1)  # type: ignore[arg-type]


def test_words_are_as_many_as_a_kind_says() -> None:
    for value in (1, True, np.zeros(3), np.zeros((4, 4)), np.zeros((4, 4))[:, 1:],
                  (np.zeros(1), 2), made.Columns.new(2), made.Rows.new(2)):  # fmt: skip
        words: list[int] = []
        kind = append(value, words)
        assert len(words) == word_count(kind)


def test_results_are_made_of_words() -> None:
    told = ["t", "", "", [["i"], ["b"], ["n"], ["u"], ["t", made.__name__, "Pair", [["i"], ["i"]]]]]
    words = [-1, 0, -1, 5, 6]
    assert result_count(told) == len(words)
    found, end = maker_of(told)(words, 0)
    assert found == (-1, False, None, (1 << 64) - 1, made.Pair(5, 6)) and end == 5
    assert type(found[4]) is made.Pair
