"""Tests and intervals: against scipy's own, and against how often they ought to be wrong."""

import numpy as np
import pytest
from scipy import stats

from dissector.compare.blocks import BlockCut, CellSeries
from dissector.compare.testing import (
    DEALS,
    Ranked,
    Values,
    chance,
    difference_limits,
    error_of,
    least_chance,
    mean_limits,
    percentile_limits,
    share_limits,
)


def blocks(seed: int, number: int, mean: float = 5.0) -> CellSeries:
    random = np.random.default_rng(seed)
    whole = random.integers(5, 15, number).astype(float)
    return CellSeries(random.gamma(2.0, mean / 2, number) * whole, whole)


def values(seed: int, number: int, scale: float = 1.0) -> Values:
    random = np.random.default_rng(seed)
    found = np.rint(random.lognormal(0, 0.5, number) * 1e6 * scale)
    return Values(np.arange(number), found, np.ones(number))


@pytest.mark.parametrize(("one", "other"), [(5, 5), (6, 9), (20, 32)])
def test_the_chance_is_that_of_scipys_permutation_test(one: int, other: int) -> None:
    before, after = blocks(one, one), blocks(99, other, 6.0)
    part = np.concatenate([before.part, after.part])
    whole = np.concatenate([before.whole, after.whole])

    def distance(mine: np.ndarray, yours: np.ndarray) -> float:
        sides = [CellSeries(part[at], whole[at]) for at in (mine.astype(int), yours.astype(int))]
        rest = sum(error_of(side) for side in sides)
        return abs(sides[0].ratio - sides[1].ratio) / np.sqrt(rest)

    expected = stats.permutation_test(
        (np.arange(one), np.arange(one, one + other)), distance, permutation_type="independent",
        alternative="greater", n_resamples=6000, rng=np.random.default_rng(1),
    ).pvalue  # fmt: skip
    assert chance(before, after) == pytest.approx(expected, abs=0.03)


def test_equal_runs_have_any_chance_equally_often() -> None:
    values = np.array([chance(blocks(seed, 10), blocks(seed + 500, 10)) for seed in range(120)])
    assert stats.kstest(values, "uniform").pvalue > 0.01


def test_a_chance_is_never_zero_nor_less_than_the_least() -> None:
    apart = chance(blocks(1, 30), blocks(2, 30, 500.0))
    assert apart == pytest.approx(1 / (DEALS + 1)) == least_chance(30, 30)
    assert chance(blocks(1, 4), blocks(2, 4, 500.0)) >= 0.9 * least_chance(4, 4)


def test_variance_that_blocks_do_not_show_makes_a_difference_less_rare() -> None:
    one, other = blocks(1, 12), blocks(9, 12, 8.0)
    assert chance(one, other) < chance(one, other, 1.5) < chance(one, other, 3.0)


def test_what_never_varies_is_no_evidence() -> None:
    same = CellSeries(np.zeros(8), np.ones(8))
    assert chance(same, same) == 1.0


def test_a_rare_event_in_one_run_alone_is_as_rare_as_the_deals_that_put_it_there() -> None:
    """Three failures in three of 20 blocks, all of the second run: 2 * C(10, 3) / C(20, 3)."""
    before = CellSeries(np.zeros(10), np.full(10, 50.0))
    after = CellSeries(np.array([1.0] * 3 + [0.0] * 7), np.full(10, 50.0))
    assert chance(before, after) == pytest.approx(240 / 1140, abs=0.01)


def test_the_interval_of_independent_values_is_the_binomial_one() -> None:
    share, count = 0.03, 1000
    found = share_limits(share, count, share * (1 - share) / count, 100_000, 0.95)
    expected = stats.binomtest(30, 1000).proportion_ci(0.95, "exact")
    assert found == pytest.approx((expected.low, expected.high), rel=1e-3)


def test_dependent_values_and_few_blocks_make_intervals_wider() -> None:
    plain, dependent, few = (
        share_limits(0.1, 1000, variance, size, 0.95)
        for variance, size in ((0.00009, 60), (0.0009, 60), (0.0009, 6))
    )
    assert few[0] < dependent[0] < plain[0] < 0.1 < plain[1] < dependent[1] < few[1]


def test_nothing_of_many_has_an_upper_limit_above_nothing() -> None:
    low, high = share_limits(0.0, 1000, 0.0, 60, 0.95)
    assert low == 0.0 and high == pytest.approx(0.00368, abs=0.0003)
    assert share_limits(1.0, 1000, 0.0, 60, 0.95)[1] == 1.0


def test_intervals_of_percentiles_hold_the_true_one_as_often_as_they_say() -> None:
    true, held = np.exp(0.5 * stats.norm.ppf(0.95)) * 1e6, 0
    places = np.arange(2000) // 50
    cut = BlockCut((places, places), (40, 40), 1.0)
    for seed in range(200):
        run = values(seed, 2000)
        low, high = percentile_limits(run, 0.95, cut, 0, 0.9)
        held += low <= true <= high
    assert 170 <= held <= 196


def test_the_interval_of_a_mean_is_students() -> None:
    run = CellSeries(np.array([1.0, 2.0, 3.0, 6.0]), np.ones(4))
    expected = stats.t.interval(0.95, 3, loc=3.0, scale=stats.sem(run.part))
    assert mean_limits(run, 1.0, 0.95) == pytest.approx(expected)
    low, high = mean_limits(run, 4.0, 0.95)
    assert high - low == pytest.approx(2 * (expected[1] - expected[0]))


def test_the_interval_of_a_difference_takes_the_limits_that_face_each_other() -> None:
    assert difference_limits((9.0, 14.0), (17.0, 26.0), (10.0, 20.0)) == pytest.approx(
        (10 - 5, 10 + np.hypot(6, 1))
    )


def test_percentiles_are_the_smallest_values_that_a_share_does_not_exceed() -> None:
    run = Values(np.array([0, 0, 1]), np.array([30.0, 10.0, 20.0]), np.array([1.0, 5.0, 4.0]))
    ranked = Ranked(run)
    assert [ranked.at(share) for share in (0.0, 0.5, 0.51, 0.9, 0.91, 1.0)] == [
        10, 10, 20, 20, 30, 30,
    ]  # fmt: skip
    assert run.number == 10 and run.above(10.0).part.tolist() == [1, 4]
    assert run.mean().ratio == pytest.approx((30 + 50 + 80) / 10)
