"""Rows that are equal, and their sums: the same as with dictionaries."""

import numpy as np
import pytest

from dissector.limits import NULL
from dissector.tap.grouping import added_up, group_rows


@pytest.mark.parametrize("rows", [0, 1, 7, 400])
@pytest.mark.parametrize("kinds", [1, 3, 1000])
def test_groups_are_those_of_a_dictionary(rows, kinds):
    random = np.random.default_rng(rows + kinds)
    one = random.integers(-kinds, kinds, rows)
    other = random.choice([NULL, (1 << 63) - 1, -1, 0], rows)
    first, groups = group_rows([one, other])
    pairs = list(zip(one.tolist(), other.tolist(), strict=True))
    expected = {pair: number for number, pair in enumerate(dict.fromkeys(pairs))}
    assert groups.tolist() == [expected[pair] for pair in pairs]
    assert first.tolist() == [pairs.index(pair) for pair in expected]
    sums = [0] * len(expected)
    for pair, value in zip(pairs, one.tolist(), strict=True):
        sums[expected[pair]] += value
    assert added_up(one, groups, len(expected)) == sums
    counts = [pairs.count(pair) for pair in expected]
    assert added_up(None, groups, len(expected)) == counts


def test_nulls_are_left_out_of_sums():
    values, groups = np.array([NULL, 2, 3, NULL]), np.array([0, 1, 1, 1])
    assert added_up(values, groups, 2) == [0, 5]
    assert added_up(np.stack([values, values], axis=1)[:, 0], groups, 2) == [0, 5]
