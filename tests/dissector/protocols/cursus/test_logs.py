"""Attempts, publishing times and sets of offsets, each against a plain twin."""

from hypothesis import given
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.protocols.cursus.logs import Attempts, Intervals, Published, Sent


def sent(start: int, end: int, producer: int = 1) -> Sent:
    return Sent(5, 0, producer, 7, start, end)


def test_attempts_count_copies():
    attempts = Attempts(limit=2)
    assert [attempts.begin(sent(1, 5)) for _ in range(3)] == [1, 2, 3]
    assert not attempts.is_stored(sent(1, 5))
    assert attempts.is_stored(sent(1, 5))
    attempts.begin(sent(6, 9))
    attempts.begin(sent(10, 12))
    assert attempts.begin(sent(1, 5)) == 1, "the oldest are forgotten"
    assert not attempts.is_stored(sent(99, 99))


def test_publishing_times_are_found_by_any_record_of_a_batch():
    published = Published(limit=3)
    published.add(sent(1, 5), 100)
    published.add(sent(6, 9), 200)
    published.add(sent(6, 9), 300)  # sent again: the first counts
    key = sent(0, 0)[:4]
    assert [published.last_ns(key, each) for each in (0, 1, 5, 6, 9, 10)] == [
        NULL,
        100,
        100,
        200,
        200,
        NULL,
    ]
    for start in (20, 30):
        published.add(sent(start, start), start)
    assert published.last_ns(key, 1) == NULL and published.last_ns(key, 6) == 200
    assert published.last_ns(sent(0, 0, 9)[:4], 1) == NULL


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 8)), max_size=25))
def test_intervals_are_a_set(ranges):
    found, plain = Intervals(), set()
    for first, size in ranges:
        numbers = set(range(first, first + size + 1))
        assert found.covered(first, first + size) == bool(numbers & plain)
        found.add(first, first + size)
        plain |= numbers
    runs = sum(1 for each in plain if each - 1 not in plain)
    assert len(found) == runs
    for each in range(70):
        assert found.covered(each, each) == (each in plain)
