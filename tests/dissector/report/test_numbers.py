"""Last arithmetic: rounding, shares, times, percentiles; unknown is never 0."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.buckets import bucket_of
from dissector.limits import MAX_CURVE_POINTS
from dissector.report.numbers import (
    NS_PER_MS,
    STEPS_MS,
    durations,
    high,
    instant,
    known,
    low,
    milliseconds,
    nulls_last,
    quantiles_ns,
    rounded,
    share,
    step_ns,
)
from tests.naive.report import percentile


@given(st.integers(-(10**20), 10**20), st.integers(1, 10**12))
def test_halves_are_rounded_upwards(numerator: int, denominator: int) -> None:
    exact = Fraction(numerator, denominator)
    assert 0 <= rounded(numerator, denominator) - exact + Fraction(1, 2) <= 1


@pytest.mark.parametrize(
    ("ns", "ms"),
    [(None, None), (0, 0.0), (499, 0.0), (500, 0.001), (1_234_567, 1.235), (10**15, 10**9)],
)
def test_milliseconds_have_three_decimals(ns: int | None, ms: float | None) -> None:
    assert milliseconds(ns) == ms


def test_nothing_has_no_share_and_no_mean() -> None:
    assert share(0, 0) is None
    assert share(1, 3) == 0.333333 and durations({1: 2}, 3_000_000, 1, 1)["mean"] == 1.5


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (None, None),
        (0, "1970-01-01T00:00:00.000000Z"),
        (1_750_000_000_123_456_789, "2025-06-15T15:06:40.123456Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1 << 80, None),
    ],
)
def test_times_are_utc_with_microseconds(ns: int | None, text: str | None) -> None:
    assert instant(ns) == text


@given(st.integers(0, 10**18), st.integers(0, 10**18))
def test_a_series_has_few_points_and_steps_nest(first: int, span: int) -> None:
    step = step_ns(first, first + span)
    if step < STEPS_MS[-1] * NS_PER_MS:
        assert (first + span) // step - first // step < MAX_CURVE_POINTS
    assert step // NS_PER_MS in STEPS_MS
    assert all(coarse % fine == 0 for fine, coarse in pairwise(STEPS_MS))


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.integers(1, 1000))
def test_percentiles_of_a_histogram_are_near_those_of_the_values(
    values: list[int], permille: int
) -> None:
    buckets: dict[int, int] = {}
    for value in values:
        bucket = int(bucket_of(value))
        buckets[bucket] = buckets.get(bucket, 0) + 1
    exact = percentile(sorted(values), permille)
    (found,) = quantiles_ns(buckets, [permille], min(values), max(values))
    assert abs(found - exact) <= 0.016 * exact + 1
    if permille > 1000 - 1000 / len(values):
        assert found == exact, "the greatest is known"


def test_durations_stay_between_the_least_and_the_greatest() -> None:
    row = durations({int(bucket_of(1000)): 3}, 3000, 1000, 1000)
    assert row["count"] == 3
    assert {row[name] for name in ("min", "p50", "p99", "max", "mean")} == {0.001}
    nothing = durations({}, 0, None, None)
    assert nothing.pop("count") == 0 and set(nothing.values()) == {None}


def test_exact_percentiles_replace_those_of_the_histogram() -> None:
    exact = {"p50": 1, "p90": 2_000_000, "p95": 3, "p99": 4, "p999": 5}
    assert durations({1: 1}, 1, 1, 1, exact)["p90"] == 2.0


def test_unknown_values_neither_count_nor_come_first() -> None:
    assert (low([None, 3, 1]), high([None, 3]), low([None])) == (1, 3, None)
    assert sorted([(None, "a"), ("b", None)], key=lambda pair: nulls_last(*pair))[0][0] == "b"
    assert known({"b": 2, None: 3, "a": 0, "unknown": 1}) == {"b": 2, "unknown": 4}
