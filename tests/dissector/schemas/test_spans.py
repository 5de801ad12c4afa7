"""The kernel that joins byte ranges."""

import numpy as np

from dissector.schemas.spans import gather_spans


def test_ranges_are_copied_in_order_and_negative_lengths_skipped() -> None:
    data = np.arange(10, dtype=np.uint8)
    out = np.full(6, 99, np.uint8)
    written = gather_spans(data, np.array([7, 0, 2]), np.array([3, -1, 2]), out)
    assert written == 5
    assert out.tolist() == [7, 8, 9, 2, 3, 99]
