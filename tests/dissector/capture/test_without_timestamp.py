"""Packets without a time: their numbers are kept, and the time before stands in."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.capture import without_timestamp
from dissector.capture.without_timestamp import NumberRanges, PacketsWithoutTimestamp
from dissector.limits import NULL


@given(times=st.lists(st.none() | st.integers(-5, 5), min_size=1), data=st.data())
def test_the_time_before_stands_in(times, data):
    packets = PacketsWithoutTimestamp()
    found, timed = [], []
    at = 0
    while at < len(times):
        size = data.draw(st.integers(1, len(times) - at))
        part = np.array([NULL if t is None else t for t in times[at : at + size]], np.int64)
        timed += packets.fill(part, at + 1).tolist()
        found += part.tolist()
        at += size
    last, expected = NULL, []
    for time in times:
        last = last if time is None else time
        expected.append(last)
    assert found == expected
    assert timed == [time is not None for time in times]
    assert packets.has_time == any(timed)
    assert bool(packets) == (not all(timed))
    numbers = np.arange(0, len(times) + 3)
    assert np.flatnonzero(packets.holds(numbers)).tolist() == [
        number for number, time in enumerate(times, start=1) if time is None
    ]


def test_null_is_no_number():
    ranges = NumberRanges()
    ranges.add(np.array([1, 2, 9]))
    assert ranges.holds(np.array([NULL, 1, 3, 9])).tolist() == [False, True, False, True]


def test_beyond_the_limit_all_that_follows_is_in_it(monkeypatch):
    monkeypatch.setattr(without_timestamp, "MAX_TIMELESS_RANGES", 2)
    ranges = NumberRanges()
    ranges.add(np.array([1, 5, 9]))
    assert ranges.holds(np.array([1, 2, 5, 6, 100])).tolist() == [True, False, True, True, True]
    ranges.add(np.array([12]))
    assert ranges.holds(np.array([100])).tolist() == [True]
