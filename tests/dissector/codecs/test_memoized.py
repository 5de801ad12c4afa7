"""What was made of bytes is found again: the same, within a bound, and without the bytes."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.codecs.memoized import Remembered
from dissector.limits import MAX_REMEMBERED_BYTES, MAX_REMEMBERED_TEXTS


def counted(may_keep: bool = True) -> tuple[Remembered[int], list[bytes]]:
    """What says how long bytes are, and all that it was made of."""
    asked: list[bytes] = []

    def make(data: list[bytes]) -> list[int]:
        asked.extend(data)
        return [len(each) for each in data]

    return Remembered(make, lambda _: may_keep), asked


@given(st.lists(st.binary(max_size=3), max_size=40))
@settings(max_examples=60)
def test_each_is_made_once_and_the_same_ever_after(texts: list[bytes]) -> None:
    length, asked = counted()
    assert [length(text) for text in texts] == [len(text) for text in texts]
    assert asked == list(dict.fromkeys(texts))


@given(st.lists(st.lists(st.binary(max_size=2), max_size=20), max_size=4))
@settings(max_examples=60)
def test_many_at_once_are_asked_for_at_once_and_each_once(groups: list[list[bytes]]) -> None:
    length, asked = counted()
    assert [length.all_of(group) for group in groups] == [[*map(len, group)] for group in groups]
    assert asked == list(dict.fromkeys(text for group in groups for text in group))


def test_what_may_not_be_kept_is_made_each_time() -> None:
    length, asked = counted(may_keep=False)
    assert [length(b"abc"), length(b"abc")] == [3, 3]
    assert asked == [b"abc"] * 2 and not length.kept()


def test_long_ones_are_made_each_time() -> None:
    length, asked = counted()
    for size in (MAX_REMEMBERED_BYTES, MAX_REMEMBERED_BYTES + 1):
        assert [length(b"x" * size), length(b"x" * size)] == [size, size]
    assert [len(text) for text in asked] == [2048, 2049, 2049]


def test_there_are_never_more_than_the_bound() -> None:
    length, _ = counted()
    most = 0
    for number in range(2 * MAX_REMEMBERED_TEXTS + 5):
        length(b"%d" % number)
        most = max(most, len(length.kept())) if number % 64 == 0 else most
    assert most <= MAX_REMEMBERED_TEXTS and 0 < len(length.kept()) <= MAX_REMEMBERED_TEXTS


def test_the_bytes_themselves_are_not_kept() -> None:
    length, _ = counted()
    length(b"hunter2")
    (key,) = length.kept()
    assert len(key) == 16 and b"hunter2" not in key


def test_what_failed_fails_again() -> None:
    calls = []

    def fail(data: list[bytes]) -> list[int]:
        calls.append(data)
        raise ValueError(data)

    failing = Remembered(fail, lambda _: True)
    for _ in range(2):
        with pytest.raises(ValueError, match="x"):
            failing(b"x")
    assert len(calls) == 2


def test_several_threads_get_what_one_would() -> None:
    threads, texts = 8, [b"%d" % (number * number) for number in range(3 * MAX_REMEMBERED_TEXTS)]
    value = Remembered(lambda data: [*map(int, data)], lambda _: True)

    def values() -> list[int]:
        return [value(text) for text in texts]

    with ThreadPoolExecutor(threads) as pool:
        found = [each.result() for each in [pool.submit(values) for _ in range(threads)]]
    assert found == [[int(text) for text in texts]] * threads
    assert len(value.kept()) < MAX_REMEMBERED_TEXTS + threads
