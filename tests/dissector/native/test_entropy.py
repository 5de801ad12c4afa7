"""Numbers that nobody knows beforehand."""

from dissector.native.entropy import random_number


def test_numbers_have_their_bits_and_differ() -> None:
    found = {random_number(128) for _ in range(64)}
    assert len(found) == 64 and max(found).bit_length() > 120 and max(found) < 1 << 128
