"""A bundle is one matrix under many names, in Python and in kernels alike."""

import numpy as np
import pytest

from dissector.blocks import Int64Array
from dissector.bundles import Bundle, Records
from dissector.jit import kernel


class Pair(Bundle):
    """Two columns."""

    left: Int64Array
    right: Int64Array


@kernel
def swap(pair: Pair, rows: int) -> int:
    total = 0
    for row in range(rows):
        pair.left[row], pair.right[row] = pair.right[row], pair.left[row]
        total += pair.matrix[0, row] * 10 + pair.matrix[1, row]
    return total


def test_names_are_rows_of_the_matrix_in_kernels_and_outside():
    pair = Pair(np.array([[1, 2, 3], [7, 8, 9]], np.int64))
    assert swap(pair, 2) == 71 + 82
    assert pair.left.tolist() == [7, 8, 3]
    assert pair.matrix.tolist() == [[7, 8, 3], [1, 2, 9]]


def test_growing_copies_and_fills():
    pair = Pair.new(2, 5).grown(4, -1)
    assert pair.right.tolist() == [5, 5, -1, -1]
    assert Pair._fields == ("left", "right")


def test_a_matrix_of_the_wrong_shape_is_refused():
    with pytest.raises(AssertionError):
        Pair(np.zeros((3, 4), np.int64))


def test_a_column_is_made_when_it_is_asked_for_first_and_stays_a_view():
    class Row(Records):
        left: Int64Array
        right: Int64Array

    for made in (Pair.new(3), Row.new(3)):
        assert "right" not in vars(made)
        made.right[1] = 5
        assert made.right is vars(made)["right"] and 5 in made.matrix
        with pytest.raises(AttributeError, match="no column middle"):
            _ = made.middle
