"""CRC32C against the published check value and an independent library."""

import crc32c as library
import numpy as np
import pytest

from dissector.codecs.crc32c import crc32c, crc32c_by_table

WAYS = pytest.mark.parametrize("way", [crc32c, crc32c_by_table], ids=["chosen", "table"])
LENGTHS = (*range(0, 40), 575, 576, 577, 1151, 1160, 6143, 6144, 6151, 13_000, 100_003)


@WAYS
def test_the_check_value_of_the_nine_digits(way) -> None:
    assert way(np.frombuffer(b"123456789", np.uint8).copy(), 0, 9) == 0xE3069283


@WAYS
def test_every_length_and_alignment_equals_the_library(way) -> None:
    data = np.random.default_rng(1).integers(0, 256, 100_100, np.uint8)
    for length in LENGTHS:
        for offset in (0, 1, 7, 13):
            expected = library.crc32c(data[offset : offset + length].tobytes())
            assert way(data, offset, length) == expected, (length, offset)


@WAYS
def test_bytes_outside_the_range_do_not_count(way) -> None:
    data = np.zeros(700, np.uint8)
    before = way(data, 50, 600)
    data[49] = data[650] = 1
    assert way(data, 50, 600) == before
    data[649] = 1
    assert way(data, 50, 600) != before
