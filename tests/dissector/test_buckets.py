"""Latency buckets: order, width, and the twins that must agree."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.buckets import (
    BUCKETS,
    bucket_bounds,
    bucket_middle,
    bucket_of,
)
from dissector.limits import NULL
from dissector.report.numbers import quantiles_ns

DURATIONS = st.one_of(
    st.integers(0, 2**63 - 1), st.integers(0, 5000), st.integers(0, 62).map(lambda k: 1 << k)
)


@given(DURATIONS)
def test_a_duration_lies_inside_the_bounds_of_its_bucket(duration):
    bucket = bucket_of(duration)
    low, high = bucket_bounds(bucket)
    assert 0 <= bucket < BUCKETS
    assert low <= duration <= high
    assert high - low <= max(0, low >> 5)
    assert abs(bucket_middle(bucket) - duration) <= max(0, duration * 16 // 1000)


def test_buckets_follow_each_other_without_hole_or_overlap():
    edge = -1
    for bucket in range(BUCKETS):
        low, high = bucket_bounds(bucket)
        assert low == edge + 1
        assert bucket_of(low) == bucket_of(high) == bucket
        edge = high
    assert edge == 2**63 - 1


def test_zero_and_small_durations_have_buckets_of_their_own():
    assert [bucket_of(value) for value in range(64)] == list(range(64))
    assert bucket_of(64) == bucket_of(65) == 64


def test_negative_and_null_durations_have_no_bucket():
    assert bucket_of(-1) == NULL
    assert bucket_of(NULL) == NULL


@given(st.lists(st.integers(0, 10**10), min_size=1, max_size=60), st.integers(1, 1000))
def test_a_quantile_is_the_bucket_of_the_value_of_that_rank(durations, share):
    counts = Counter(map(bucket_of, durations))
    rank = max(1, -(-len(durations) * share // 1000))
    wanted = sorted(durations)[rank - 1]
    low, high = min(durations), max(durations)
    middle = min(max(bucket_middle(bucket_of(wanted)), low), high)
    is_known = rank in (1, len(durations))
    assert quantiles_ns(counts, [share], low, high) == [wanted if is_known else middle]


@pytest.mark.parametrize("bucket", [-1, BUCKETS], ids=["below", "above"])
def test_bounds_of_a_bucket_that_does_not_exist_are_refused(bucket):
    with pytest.raises(AssertionError):
        bucket_bounds(bucket)
