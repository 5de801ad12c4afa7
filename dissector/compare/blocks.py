"""Runs cut into blocks of time that tell nothing about each other, as far as can be seen.

What is measured in one moment is like what is measured in the next: a broker that flushes slows all
sends for a while, a queue empties slowly, bursts come together. A thousand such values hold less
than a thousand independent ones, and whoever takes them for that finds changes where there are
none. So the unit of every test here is a block of consecutive values, long enough that neighbours
are all but independent.

How long that is, the values tell. A run is cut into fine groups, whose deviations from the run's
own mean are correlated with those of the groups behind them; the sum of these correlations is how
many groups act as one (the integrated autocorrelation time; the window is chosen as A. Sokal does,
"Monte Carlo methods in statistical mechanics", 1996, section 3). A block is TIMES_APART of these,
and what blocks that are so short do not show of the variance is added to it.
Blocks hold equal numbers of values on both sides, so that under equal runs any could be of either.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from dissector.limits import MAX_BLOCK_RATIO

Floats = npt.NDArray[np.float64]
BlockIndices = npt.NDArray[np.intp]

# Into how many fine groups a run is cut. What hangs together for long and weakly is lost in the
# noise of the finest, so that coarser ones are asked, too; the longest blocks count.
FINE_GROUPS: Final = (512, 128)
# Correlation times that a block lasts. What neighbours still share is known then well enough to be
# added to the variance (`BlockCut.excess`); longer blocks would be too few to show anything.
TIMES_APART: Final = 2
WINDOW: Final = 5  # correlation times that are summed over; more would add noise
# Sizes that a side may be cut into. More blocks than the last add nothing to a test; few sizes let
# tests share their permutations.
SIZES: Final = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64)


_NS: Final = 1_000_000_000


class CellSeries(NamedTuple):
    """Sums per cell of time, in order of time.

    part: float64[cells], what is measured.
    whole: float64[cells] > 0, of how much. Their ratio is the metric: failures of sends, ns of
        receipts, messages of seconds.
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
    """Seconds of each cell of time that lie between two events, the whole cell if they are one.

    So a rate does not depend on how wide cells are. begins_ns: float64[cells], ascending.
    """
    if first_ns >= last_ns:
        return np.full(len(begins_ns), width_ns / _NS)
    # Differences of times as they are, of which float64 does not hold all digits.
    begins, last = begins_ns - first_ns, float(last_ns - first_ns)
    inside = np.minimum(begins + width_ns, last) - np.maximum(begins, 0)
    seconds: Floats = np.maximum(inside, 1) / _NS
    return seconds


def sums_at(indices: BlockIndices, values: Floats, number: int) -> Floats:
    """The sum of the values of each block. indices: intp[values], below number."""
    return np.bincount(indices, values, number).astype(np.float64, copy=False)


class BlockCut(NamedTuple):
    """How two runs are cut.

    indices: of each cell of a run, its block.
    sizes: how many blocks.

    excess: how many times as large variances are as blocks show, since neighbours still share
    something.
    """

    indices: tuple[BlockIndices, BlockIndices]
    sizes: tuple[int, int]
    excess: float

    def blocks(self, before: CellSeries, after: CellSeries) -> tuple[CellSeries, CellSeries]:
        """The runs as blocks."""
        one, other = (
            run.added(indices, size)
            for run, indices, size in zip((before, after), self.indices, self.sizes, strict=True)
        )
        return one, other


def block_indices(whole: Floats, number: int) -> BlockIndices:
    """The block of each cell, of blocks as equal as cells allow. Some may hold none."""
    ends = np.cumsum(whole)
    indices: BlockIndices = ((ends - whole / 2) * (number / ends[-1])).astype(np.intp)
    indices[indices >= number] = number - 1
    return indices


class Dependence(NamedTuple):
    """How long a run remembers.

    share: of the run that acts as one value.
    rest: what of its variance blocks do not show, times their share of the run.
    """

    share: float
    rest: float


def dependences(run: CellSeries) -> list[Dependence]:
    """The memory of a run as groups of each size show it."""
    return [_memory(run, groups) for groups in FINE_GROUPS]


def _memory(run: CellSeries, most_groups: int) -> Dependence:
    indices = block_indices(run.whole, min(most_groups, len(run.whole)))
    groups, indices = np.unique(indices, return_inverse=True)
    number = len(groups)
    fine = run.added(indices, number)
    deviation = fine.part - fine.whole * run.ratio
    size = 2 * number  # room for all lags, so that the end is not taken for what precedes the begin
    spectrum = np.abs(np.fft.rfft(deviation, size)) ** 2
    products = np.fft.irfft(spectrum, size)[:number]
    # A metric that never varies deviates by rounding alone.
    if products[0] <= 1e-18 * max(float((fine.part**2).sum()), 1e-300):
        return Dependence(1 / number, 0.0)
    sums = 2 * np.cumsum(products / products[0]) - 1
    wide = np.nonzero(np.arange(number) >= WINDOW * sums)[0]
    time = max(float(sums[wide[0] if len(wide) else -1]), 1.0)
    # For correlations that fall geometrically: the sum of lag * correlation, by their plain sum.
    plain = (time - 1) / 2
    return Dependence(time / number, 2 * plain * (1 + plain) / time / number)


def cut(metrics: Sequence[tuple[CellSeries, CellSeries]]) -> BlockCut:
    """Cut two runs into blocks that are as many as their correlations allow.

    Args:
        metrics: of the same values, with equal `whole`, before and after: the share above each
            percentile, say. What hangs together most decides for all: single tails show little of
            it, and their own blocks would be too short.
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
    """The size that is used for so many blocks, at least 1."""
    whole = int(blocks + 1e-9)
    fitting = [size for size in SIZES if size <= whole]
    if whole > SIZES[-1]:
        return 1 << (whole.bit_length() - 1)
    return fitting[-1] if fitting else 1
