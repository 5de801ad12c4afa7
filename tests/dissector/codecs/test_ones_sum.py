"""The sum of Internet checksums against the same sum word by word."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.codecs.ones_sum import folded, ones_sum


def plain(data: bytes) -> int:
    """Word by word, carries added as they come."""
    total = 0
    padded = data + b"\0" * (len(data) % 2)
    for place in range(0, len(padded), 2):
        total += int.from_bytes(padded[place : place + 2], "big")
        total = (total & 0xFFFF) + (total >> 16)
    return total


@given(st.binary(max_size=300), st.integers(0, 20))
def test_the_sum_is_that_of_its_words(data: bytes, before: int) -> None:
    array = np.frombuffer(b"\xa5" * before + data + b"\x5a" * 9, np.uint8)
    assert ones_sum(array, before, before + len(data)) == plain(data)


def test_the_largest_words_carry() -> None:
    data = np.full(70_001, 0xFF, np.uint8)
    assert ones_sum(data, 0, 70_000) == 0xFFFF
    assert ones_sum(data, 0, 70_001) == 0xFF00


@given(st.integers(0, (1 << 48) - 1))
def test_folding_adds_carries_at_the_low_end(total: int) -> None:
    assert folded(total) == (total % 0xFFFF or (0xFFFF if total else 0))
