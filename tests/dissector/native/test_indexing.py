"""Indices of arrays in kernels: the elements that numpy finds, and nothing counted from the end."""

import numpy as np
import pytest

from dissector.jit import compiled, kernel

pytestmark = pytest.mark.skipif(not compiled(), reason="nothing is compiled")


@kernel
def turned(matrix: np.ndarray, out: np.ndarray) -> int:
    """Write a matrix with rows for columns; gives the sum of its first row."""
    for row in range(matrix.shape[0]):
        for column in range(matrix.shape[1]):
            out[column, row] = matrix[row, column]
    total = 0
    first = matrix[0]
    for column in range(len(first)):
        total += first[column]
    return total


@kernel
def copied(source: np.ndarray, start: int, target: np.ndarray, at: int, count: int) -> None:
    for place in range(count):
        target[at + place] = source[start + place]


@kernel
def element(values: np.ndarray, place: int) -> int:
    return values[place]


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (7, 2)])
def test_elements_are_those_of_numpy(kind: type, shape: tuple[int, int]) -> None:
    matrix = np.random.default_rng(1).integers(0, 100, shape).astype(kind)
    out = np.zeros(shape[::-1], kind)
    assert turned(matrix, out) == matrix[0].sum()
    assert (out == matrix.T).all()


def test_arrays_with_strides_are_read_where_their_elements_lie() -> None:
    values = np.arange(20, dtype=np.int64)
    assert [element(values[3::4], place) for place in range(4)] == [3, 7, 11, 15]
    assert [element(values[::-1], place) for place in range(3)] == [19, 18, 17]
    matrix = values.reshape(4, 5)
    out = np.zeros((4, 5), np.int64)
    turned(np.asfortranarray(matrix).T, out)
    assert (out == matrix).all()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 63, 64, 65, 1000])
def test_bytes_are_copied_and_no_other_is_touched(count: int) -> None:
    """Also within one array, towards its beginning, by less than is copied at once."""
    source = np.random.default_rng(count).integers(0, 256, 1100).astype(np.uint8)
    target = np.full(1100, 77, np.uint8)
    copied(source, 5, target, 9, count)
    assert (target[9 : 9 + count] == source[5 : 5 + count]).all()
    assert (target[:9] == 77).all() and (target[9 + count :] == 77).all()
    for shift in (1, 3, 8, 40):
        moved = source.copy()
        copied(moved, shift, moved, 0, count)
        assert (moved[:count] == source[shift : shift + count]).all()
        assert (moved[count:] == source[count:]).all()


@pytest.mark.parametrize("place", [-1, -4, 4, 1 << 40])
def test_with_bounds_checks_an_index_from_the_end_is_outside(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the runs of kernels with bounds checks show that no kernel has one."""
    monkeypatch.setenv("DISSECTOR_BOUNDSCHECK", "1")

    @kernel
    def checked(values: np.ndarray, at: int) -> int:
        values[at, 0] = 1
        return values[at, 0]

    assert checked(np.zeros((4, 1), np.int64), 3) == 1
    with pytest.raises(IndexError, match="out of bounds"):
        checked(np.zeros((4, 1), np.int64), place)
