"""Running numbers of frames, and the way back; numbers of columns."""

import numpy as np
import pyarrow as pa

from dissector.joining.encodings import FrameNumbers, by_text, index_in, numbers
from dissector.limits import NULL


def test_frames_of_several_captures_have_one_running_number_and_a_way_back() -> None:
    serials = FrameNumbers()
    given = [(0, 1), (0, 2), (1, 7), (0, 3), (1, 8), (1, 9)]
    first, second = given[:2], given[2:]
    found = []
    for part in (first, second):
        ranks, own = (np.array(column, np.int64) for column in zip(*part, strict=True))
        found += serials.number(ranks, own).tolist()
    assert found == [1, 2, 3, 4, 5, 6]
    ranks, own = serials.resolve(np.array([*found, NULL], np.int64))
    assert list(zip(ranks.tolist(), own.tolist(), strict=True)) == [*given, (NULL, NULL)]


def test_without_frames_there_is_no_way_back_but_for_null() -> None:
    ranks, own = FrameNumbers().resolve(np.array([NULL], np.int64))
    assert ranks.tolist() == own.tolist() == [NULL]


def test_numbers_of_columns() -> None:
    assert numbers(pa.array([1, None])).tolist() == [1, NULL]
    assert numbers(pa.array([True, None, False])).tolist() == [1, NULL, 0]
    assert index_in(pa.array(["y", "z", None]), ("x", "y")).tolist() == [1, NULL, NULL]
    assert by_text(pa.array(["aa", None]), len).tolist() == [2, NULL]
