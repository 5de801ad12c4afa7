"""Damage worked out from two checksums alone, against damage that was made."""

import random
from typing import Any

import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.report.crc_errors import (
    MAX_PAIR_BYTES,
    ONE_BIT,
    ONE_BYTE,
    TWO_BITS,
    Difference,
    difference,
    of_checksum_field,
)


def damaged(size: int, hits: dict[int, int], seed: int = 1) -> tuple[int, int]:
    """Checksums of data before and after: masks by bytes before the end."""
    data = bytearray(random.Random(seed).randbytes(size))
    before = crc32c.crc32c(bytes(data))
    for place, mask in hits.items():
        data[-place] ^= mask
    return before, crc32c.crc32c(bytes(data))


@given(st.integers(1, 5000), st.data())
@settings(max_examples=60)
def test_one_flipped_bit_is_found_wherever_it_is(size: int, data: Any) -> None:
    place, bit = data.draw(st.integers(1, size)), data.draw(st.integers(0, 7))
    differing = difference(*damaged(size, {place: 1 << bit}), size)
    assert differing == Difference(ONE_BIT, (place,), (1 << bit,))


@given(st.integers(2, MAX_PAIR_BYTES), st.data())
@settings(max_examples=20)
def test_two_flipped_bits_are_found_in_a_short_frame(size: int, data: Any) -> None:
    places = data.draw(st.lists(st.integers(1, size), min_size=2, max_size=2, unique=True))
    hits = {place: 1 << data.draw(st.integers(0, 7)) for place in places}
    differing = difference(*damaged(size, hits), size)
    assert differing is not None and differing.kind == TWO_BITS
    assert dict(zip(differing.distances, differing.masks, strict=True)) == hits


def test_a_damaged_byte_is_found_and_more_damage_is_not_guessed() -> None:
    assert difference(*damaged(2000, {700: 0xA5}), 2000) == Difference(ONE_BYTE, (700,), (0xA5,))
    assert difference(*damaged(100, {9: 0b11}), 100) == Difference(TWO_BITS, (9,), (0b11,))
    assert difference(*damaged(3000, {5: 0x5A, 900: 0x33, 2000: 0x77}), 3000) is None
    assert difference(5, 5, 10) is None and difference(5, 6, 0) is None


def test_damage_of_the_checksum_itself_lies_before_what_it_covers() -> None:
    assert of_checksum_field(0x11223344, 0x11233344, 10) == Difference(
        "checksum_field", (13,), (1,)
    )
