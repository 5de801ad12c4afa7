"""Sequence numbers against plain integers that never wrap."""

from hypothesis import given
from hypothesis import strategies as st

from dissector.codecs.wrapping import product
from dissector.stream.sequence import distance, mix, offset_near, sequence_at

WRAP = 1 << 32
SEQUENCE = st.integers(0, WRAP - 1)
NEAR = st.integers(-(1 << 31), (1 << 31) - 1)
OFFSET = st.integers(-(1 << 24), 1 << 50)


@given(SEQUENCE, NEAR)
def test_distance_undoes_a_step_of_less_than_half_the_circle(start: int, step: int) -> None:
    assert distance((start + step) % WRAP, start) == step


@given(SEQUENCE, OFFSET)
def test_a_sequence_number_is_its_offset_modulo_2_to_the_32(origin: int, offset: int) -> None:
    assert sequence_at(origin, offset) == (origin + offset) % WRAP


@given(SEQUENCE, OFFSET, NEAR)
def test_an_offset_is_found_again_from_anywhere_near(origin: int, offset: int, off: int) -> None:
    sequence = sequence_at(origin, offset)
    assert offset_near(sequence, origin, offset - off) == offset


def test_offsets_go_on_behind_the_wrap() -> None:
    assert offset_near(5, WRAP - 10, 0) == 15
    assert offset_near(WRAP - 1, 5, 3) == -6
    assert offset_near(0, 0, WRAP - 1) == WRAP


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_hashes_are_signed_64_bit_numbers_that_tell_neighbours_apart(value: int) -> None:
    low = value & ~1
    assert mix(low) != mix(low | 1)
    assert -(1 << 63) <= mix(value) < 1 << 63
    assert product(value, 3) == (3 * value + (1 << 63)) % (1 << 64) - (1 << 63)


def test_hashes_fill_a_table_evenly() -> None:
    buckets = [0] * 256
    for number in range(25_600):
        buckets[mix(product(number, 0x2127_599B_F432_5C37)) & 255] += 1
    assert min(buckets) > 50 and max(buckets) < 160
