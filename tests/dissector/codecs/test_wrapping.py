"""Sums and products wrap at 64 bits, whatever the compiler knows about their parts."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.blocks import Int64Array
from dissector.codecs.wrapping import difference, product, total
from dissector.jit import kernel

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FACTOR = 0x5851_F42D_4C95_7F2D


def signed(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


@given(INT64, INT64)
def test_results_wrap(one: int, other: int) -> None:
    assert product(one, other) == signed(one * other)
    assert total(one, other) == signed(one + other)
    assert difference(one, other) == signed(one - other)


@kernel
def _hash_of_known_bits(cells: Int64Array) -> int:
    """A product of which the compiler knows that it would overflow, but for a part."""
    if cells[0] & 23 != 16 or cells[1] != cells[2] & 0xFFFF_FFFF:
        return 0
    mixed = product(cells[1] | (cells[0] & 23) << 33, FACTOR)
    return mixed ^ (mixed >> 32)


@kernel
def _hash_of_unknown_bits(cells: Int64Array) -> int:
    mixed = product(cells[1] | (cells[0] & 23) << 33, FACTOR)
    return mixed ^ (mixed >> 32)


def test_a_hash_is_the_same_in_every_kernel() -> None:
    """Compiled as a plain product, the one of known bits was another number."""
    cells = np.array([16, 1011, 1011], np.int64)
    mixed = signed((1011 | 16 << 33) * FACTOR)
    assert _hash_of_known_bits(cells) == _hash_of_unknown_bits(cells) == mixed ^ (mixed >> 32)
