"""Cuts runs into blocks of time that are nearly independent of each other.

Consecutive measurements are correlated: a flushing broker slows all sends for a while, a queue
drains slowly, bursts cluster. A thousand such values carry less information than a thousand
independent ones, and a test that ignores this finds changes where there are none. So the unit of
every test here is a block of consecutive values, long enough to be nearly independent.

The block length is estimated from the values. A run is cut into fine groups, and the deviations of
groups from the run's mean are correlated with those of later groups; the sum of these correlations
is the number of groups that act as one (the integrated autocorrelation time; the window is chosen
as in A. Sokal, "Monte Carlo methods in statistical mechanics", 1996, section 3). A block lasts
TIMES_APART of these, and the variance that such short blocks do not show is added.
Both sides have equal blocks, so that in equal runs any block could be of either.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.limits import MAX_BLOCK_RATIO

Floats = npt.NDArray[np.float64]
BlockIndices = npt.NDArray[np.intp]

# Numbers of fine groups that a run is cut into. Long and weak correlations are lost in the noise of
# the finest groups, so coarser ones are tried, too; the longest resulting blocks are used.
FINE_GROUPS: Final = (512, 128)
# Correlation times per block. The remaining correlation of neighbours is then known well enough to
# be added to the variance (`BlockCut.excess`); longer blocks would be too few for a test.
TIMES_APART: Final = 2
WINDOW: Final = 5  # correlation times that are summed over; more would add noise
# Allowed numbers of blocks per side. More blocks than the last do not improve a test; few sizes let
# tests share their permutations.
SIZES: Final = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)


_NS: Final = 1_000_000_000


class CellSeries(NamedTuple):
    """Sums per cell of time, in order of time.

    part: float64[cells], the numerator.
    whole: float64[cells] > 0, the denominator. Their ratio is the metric: failures per send, ns per
        receipt, messages per second.
    """

    part: Floats
    whole: Floats

    @property
    def ratio(self) -> float:
        """The metric over the whole run."""
        return float(self.part.sum() / self.whole.sum())

    def added(self, indices: BlockIndices, number: int) -> "CellSeries":
        """Sums of the cells of each block. indices: intp[cells], below number."""
        return CellSeries(sums_at(indices, self.part, number), sums_at(indices, self.whole, number))


def seconds_between(begins_ns: Floats, width_ns: float, first_ns: int, last_ns: int) -> Floats:
    """Seconds of each time cell between two events; the whole cell if both are the same event.

    So a rate does not depend on the width of cells. begins_ns: float64[cells], ascending.
    """
    if first_ns >= last_ns:
        return np.full(len(begins_ns), width_ns / _NS)
    # Subtract the times as integers: float64 does not represent all their digits.
    begins, last = begins_ns - first_ns, float(last_ns - first_ns)
    inside = np.minimum(begins + width_ns, last) - np.maximum(begins, 0)
    seconds: Floats = np.maximum(inside, 1) / _NS
    return seconds


def sums_at(indices: BlockIndices, values: Floats, number: int) -> Floats:
    """The sum of the values of each block. indices: intp[values], below number."""
    return np.bincount(indices, values, number).astype(np.float64, copy=False)


class BlockCut(NamedTuple):
    """The cut of two runs into blocks.

    indices: the block of each cell, by run.
    sizes: number of blocks, by run.

    excess: factor from the variance that blocks show to the true one: neighbours are correlated.
    """

    indices: tuple[BlockIndices, BlockIndices]
    sizes: tuple[int, int]
    excess: float

    def blocks(self, before: CellSeries, after: CellSeries) -> tuple[CellSeries, CellSeries]:
        """Both runs, summed per block."""
        one, other = (
            run.added(indices, size)
            for run, indices, size in zip((before, after), self.indices, self.sizes, strict=True)
        )
        return one, other


def block_indices(whole: Floats, number: int) -> BlockIndices:
    """The block of each cell, with blocks as equal as cells allow. Some blocks may be empty."""
    ends = np.cumsum(whole)
    indices: BlockIndices = ((ends - whole / 2) * (number / ends[-1])).astype(np.intp)
    indices[indices >= number] = number - 1
    return indices


class Dependence(NamedTuple):
    """The autocorrelation of a run.

    share: part of the run that acts as one value.
    rest: variance that blocks do not show, times their share of the run.
    """

    share: float
    rest: float


def dependences(run: CellSeries) -> list[Dependence]:
    """The autocorrelation of a run, estimated with each number of groups."""
    return [_memory(run, groups) for groups in FINE_GROUPS]


def _memory(run: CellSeries, most_groups: int) -> Dependence:
    indices = block_indices(run.whole, min(most_groups, len(run.whole)))
    groups, indices = np.unique(indices, return_inverse=True)
    number = len(groups)
    fine = run.added(indices, number)
    deviation = fine.part - fine.whole * run.ratio
    size = 2 * number  # zero padding for all lags: the end must not wrap around to the begin
    spectrum = np.abs(np.fft.rfft(deviation, size)) ** 2
    products = np.fft.irfft(spectrum, size)[:number]
    # A constant metric deviates only by rounding.
    if products[0] <= 1e-18 * max(float((fine.part**2).sum()), 1e-300):
        return Dependence(1 / number, 0.0)
    sums = 2 * np.cumsum(products / products[0]) - 1
    wide = np.nonzero(np.arange(number) >= WINDOW * sums)[0]
    time = max(float(sums[wide[0] if len(wide) else -1]), 1.0)
    # For correlations that fall geometrically: the sum of lag * correlation, by their plain sum.
    plain = (time - 1) / 2
    return Dependence(time / number, 2 * plain * (1 + plain) / time / number)


def cut(metrics: Sequence[tuple[CellSeries, CellSeries]]) -> BlockCut:
    """Cut two runs into as many blocks as their correlations allow.

    Args:
        metrics: metrics of the same values, with equal `whole`, before and after: for example the
            share above each percentile. The strongest correlation decides for all: single tails
            show little of it, and their own blocks would be too short.
    """
    run_dependences = [
        [one for metric in metrics for one in dependences(metric[side])] for side in (0, 1)
    ]
    wholes = [metrics[0][side].whole for side in (0, 1)]
    totals = [float(whole.sum()) for whole in wholes]
    block = max(
        total * TIMES_APART * max(one.share for one in side)
        for total, side in zip(totals, run_dependences, strict=True)
    )
    block = max(block, min(totals) / SIZES[-1])
    sizes = [_size(total / block) for total in totals]
    most = MAX_BLOCK_RATIO * min(sizes)
    sizes = [min(size, most) for size in sizes]
    one, other = (block_indices(whole, size) for whole, size in zip(wholes, sizes, strict=True))
    hidden = max(
        one.rest * size for side, size in zip(run_dependences, sizes, strict=True) for one in side
    )
    return BlockCut((one, other), (sizes[0], sizes[1]), 1 / (1 - min(hidden, 0.5)))


def _size(blocks: float) -> int:
    """The allowed number of blocks for an estimated number, at least 1."""
    whole = int(blocks + 1e-9)
    fitting = [size for size in SIZES if size <= whole]
    if whole > SIZES[-1]:
        return 1 << (whole.bit_length() - 1)
    return fitting[-1] if fitting else 1
