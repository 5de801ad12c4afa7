"""Permutation tests and intervals for the difference of two runs, without distribution assumptions.

A metric is a ratio of two sums over blocks (`dissector.compare.blocks`). The test counts how often
blocks that are assigned to the two runs at random differ as much as the runs do: without a change,
each block could belong to either run. It assumes no distribution. The statistic is the difference
divided by its standard error, so that the test also holds if the runs have different variances
(E. Chung and J. Romano, Annals of Statistics 41, 2013).

A percentile is tested at its value in the pooled runs: by the share of values above that value, in
each block. Intervals of percentiles are those of that share, read on the axis of values
(R. Woodruff, JASA 47, 1952); intervals of shares are exact binomial ones for the effective number
of independent values in the blocks (E. Korn and B. Graubard, Survey Methodology 24, 1998). The
interval of a difference is combined from those of both runs (G. Zou and A. Donner, Statistics in
Medicine 27, 2008).
"""

import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.compare.blocks import BlockCut, BlockIndices, CellSeries, Floats, sums_at

DEALS: Final = 50_000  # number of permutations; the least p-value is one divided by it
# A first test with fewer: if its p-value is not small, no more are needed.
_FIRST_DEALS: Final = 4_000
_COMMON: Final = 0.1
_SEED: Final = 1  # fixed, so that the same runs get the same verdict
_AT_ONCE: Final = 4_000_000  # random numbers per batch
Limits = tuple[float, float]


class Values(NamedTuple):
    """Values of a run in order of time.

    cells: intp[rows], the cell of each, ascending.
    values: float64[rows].
    counts: float64[rows], number of equal values.
    """

    cells: BlockIndices
    values: Floats
    counts: Floats

    @property
    def number(self) -> float:
        """The number of values."""
        return float(self.counts.sum())

    def above(self, value: float) -> CellSeries:
        """Per cell the number of values above one, and the number of values."""
        number = int(self.cells[-1]) + 1
        return CellSeries(
            sums_at(self.cells, self.counts * (self.values > value), number),
            sums_at(self.cells, self.counts, number),
        )

    def mean(self) -> CellSeries:
        """Per cell the sum of the values, and their number."""
        number = int(self.cells[-1]) + 1
        return CellSeries(
            sums_at(self.cells, self.counts * self.values, number),
            sums_at(self.cells, self.counts, number),
        )


class Ranked:
    """Sorted values."""

    def __init__(self, *runs: Values) -> None:
        values = np.concatenate([run.values for run in runs])
        order = np.argsort(values, kind="stable")
        self._values = values[order]
        self._ends = np.cumsum(np.concatenate([run.counts for run in runs])[order])

    def at(self, share: float) -> float:
        """The smallest value that this share does not exceed."""
        rank = min(max(math.ceil(self._ends[-1] * share - 1e-9), 1), self._ends[-1])
        return float(self._values[np.searchsorted(self._ends, rank)])


def error_of(run: CellSeries) -> float:
    """The variance of a run's ratio, estimated from its blocks."""
    number = len(run.part)
    rest = run.part - run.whole * run.ratio
    return float((rest**2).sum() / run.whole.sum() ** 2) * number / (number - 1)


@lru_cache(maxsize=32)  # of a few MB each
def _dealt(one: int, other: int, deals: int) -> npt.NDArray[np.int8]:
    """Random assignments of blocks to the first run: int8[deals, one + other], 0 or 1."""
    random = np.random.default_rng((_SEED, one, other, deals))
    number = one + other
    is_first = np.zeros((deals, number), np.int8)
    step = max(_AT_ONCE // number, 1)
    for begin in range(0, deals, step):
        drawn = random.random((min(step, deals - begin), number), np.float32)
        chosen = np.argpartition(drawn, one - 1, axis=1)[:, :one]
        np.put_along_axis(is_first[begin : begin + step], chosen, 1, axis=1)
    return is_first


def chance(before: CellSeries, after: CellSeries, excess: float = 1.0) -> float:
    """The two-sided p-value: the probability that equal runs differ at least this much.

    Args:
        before, after: at least two blocks each. excess: of `dissector.compare.blocks.BlockCut`;
            permuted blocks have no correlated neighbours, so they show their whole variance.
    """
    part = np.concatenate([before.part, after.part])
    whole = np.concatenate([before.whole, after.whole])
    part = part - whole * (part.sum() / whole.sum())
    scale = np.abs(part).max()
    if scale == 0:
        return 1.0
    part, whole = part / scale, whole / whole.max()
    sums = np.stack([part, whole, part * part, part * whole, whole * whole], axis=1)
    one, other = len(before.part), len(after.part)
    is_before = np.zeros((1, one + other))
    is_before[0, :one] = 1
    total = sums.sum(axis=0)
    seen = _distances(is_before @ sums, total, (one, other))[0] / math.sqrt(excess)
    probability = 1.0
    for deals in (_FIRST_DEALS, DEALS):
        dealt = _distances(_dealt(one, other, deals).astype(np.float64) @ sums, total, (one, other))
        # Differences by rounding count as equal.
        probability = float((np.count_nonzero(dealt >= seen * (1 - 1e-9)) + 1) / (deals + 1))
        if probability > _COMMON:
            break
    return probability


def _distances(first: Floats, total: Floats, sizes: tuple[int, int]) -> Floats:
    """Per permutation, the absolute difference by its standard error. first: sums of one side."""
    difference = 0.0
    variance = 1e-18  # avoids a division by 0 for constants
    for sums, size, sign in ((first, sizes[0], 1), (total - first, sizes[1], -1)):
        part, whole, squares, products, wholes = sums.T
        ratio = part / np.maximum(whole, 1e-12)
        rest = squares - 2 * ratio * products + ratio * ratio * wholes
        variance = variance + np.maximum(rest, 0) / np.maximum(whole, 1e-12) ** 2 * (
            size / (size - 1)
        )
        difference = difference + sign * ratio
    distances: Floats = np.abs(difference) / np.sqrt(variance)
    return distances


def least_chance(one: int, other: int) -> float:
    """The smallest p-value of a test with these numbers of blocks."""
    return max(2 / math.comb(one + other, one), 1 / (DEALS + 1))


# -- intervals


def _quantile_of_t(freedom: int, level: float) -> float:
    """The quantile of Student's distribution for a two-sided interval."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + level / 2))


def share_limits(share: float, count: float, variance: float, size: int, level: float) -> Limits:
    """The interval of a share.

    Args:
        count: number of values. variance: of the share, from blocks; size: number of blocks.
    """
    from scipy.special import betaincinv, stdtrit

    worth = count
    if variance > 0:
        worth = min(share * (1 - share) / variance, count)
    # With few blocks the variance itself is uncertain.
    ratio = float(stdtrit(max(count - 1, 1), 0.5 + level / 2)) / _quantile_of_t(size - 1, level)
    worth = max(worth * min(ratio, 1.0) ** 2, 1.0)
    hits = share * worth
    beyond = (1 - level) / 2
    low = 0.0 if hits <= 0 else float(betaincinv(hits, worth - hits + 1, beyond))
    high = 1.0 if hits >= worth else float(betaincinv(hits + 1, worth - hits, 1 - beyond))
    return low, high


def mean_limits(blocks: CellSeries, excess: float, level: float) -> Limits:
    """The interval of a ratio that is not a share. excess: as in `chance`."""
    reach = _quantile_of_t(len(blocks.part) - 1, level) * math.sqrt(error_of(blocks) * excess)
    return blocks.ratio - reach, blocks.ratio + reach


def percentile_limits(run: Values, share: float, cut: BlockCut, side: int, level: float) -> Limits:
    """The interval of a run's quantile at `share`. cut, side: the run's blocks."""
    ranked, size = Ranked(run), cut.sizes[side]
    blocks = run.above(ranked.at(share)).added(cut.indices[side], size)
    variance = error_of(blocks) * cut.excess
    low, high = share_limits(share, run.number, variance, size, level)
    return ranked.at(low), ranked.at(high)


def difference_limits(before: Limits, after: Limits, values: tuple[float, float]) -> Limits:
    """The interval of after - before, from the intervals of both."""
    was, now = values
    low = now - was - math.hypot(now - after[0], before[1] - was)
    high = now - was + math.hypot(after[1] - now, was - before[0])
    return low, high
