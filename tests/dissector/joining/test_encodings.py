"""Running numbers of frames, and the way back; codes of texts."""

import numpy as np
import pyarrow as pa

from dissector.joining.encodings import FrameNumbers, Names, by_text, index_in, numbers
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


def test_only_runs_whose_frames_are_mentioned_are_remembered() -> None:
    serials = FrameNumbers()
    serials.number(np.repeat(np.arange(50), 2), np.tile([5, 6], 50))
    mentioned = [np.array([NULL, 0, 4, -3], np.int64), np.array([[31], [1 << 40]], np.int64)]
    found = FrameNumbers.resumed(serials.memory(mentioned))
    assert len(serials.memory([])) == 2 and len(serials.memory(mentioned)) == 4
    numbers = np.array([4, 31, 100, NULL], np.int64)
    for one, other in zip(found.resolve(numbers), serials.resolve(numbers), strict=True):
        assert one.tolist() == other.tolist()
    more = np.array([49, 49]), np.array([7, 9])
    assert found.number(*more).tolist() == serials.number(*more).tolist() == [101, 102]
    assert [each.tolist() for each in found.resolve(np.array([101, 102]))] == [[49, 49], [7, 9]]


def test_without_frames_there_is_no_way_back_but_for_null() -> None:
    ranks, own = FrameNumbers().resolve(np.array([NULL], np.int64))
    assert ranks.tolist() == own.tolist() == [NULL]


def test_texts_keep_their_codes() -> None:
    names = Names()
    assert names.codes(pa.array(["b", None, "a", "b"])).tolist() == [0, NULL, 1, 0]
    assert names.codes(pa.array(["a", None])).tolist() == [1, NULL]
    assert names.codes(pa.array([None], pa.string())).tolist() == [NULL]
    assert names.texts == [b"b", b"a"]


def test_numbers_of_columns() -> None:
    assert numbers(pa.array([1, None])).tolist() == [1, NULL]
    assert numbers(pa.array([True, None, False])).tolist() == [1, NULL, 0]
    assert index_in(pa.array(["y", "z", None]), ("x", "y")).tolist() == [1, NULL, NULL]
    assert by_text(pa.array(["aa", None]), len).tolist() == [2, NULL]
