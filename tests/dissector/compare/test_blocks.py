"""Runs cut into blocks: long enough to be independent, equal on both sides."""

import numpy as np
import pytest

from dissector.compare.blocks import (
    SIZES,
    TIMES_APART,
    WINDOW,
    CellSeries,
    block_indices,
    cut,
    dependences,
    sums_at,
)
from dissector.compare.testing import error_of


def noise(seed: int, cells: int, keeps: float = 0.0) -> CellSeries:
    """A mean per cell that keeps a part of what the cell before had."""
    random = np.random.default_rng(seed)
    found = random.standard_normal(cells)
    for at in range(1, cells):
        found[at] = keeps * found[at - 1] + found[at] * np.sqrt(1 - keeps**2)
    return CellSeries(found + 5, np.ones(cells))


def naive_share(run: CellSeries, groups: int) -> float:
    """The share of a run that acts as one value, by the definition."""
    part = [float(run.part[block_indices(run.whole, groups) == g].sum()) for g in range(groups)]
    whole = [float(run.whole[block_indices(run.whole, groups) == g].sum()) for g in range(groups)]
    mean = sum(part) / sum(whole)
    rest = [one - mean * of for one, of in zip(part, whole, strict=True)]
    time = 1.0
    for lag in range(groups):
        if lag:
            both = sum(rest[at] * rest[at + lag] for at in range(groups - lag))
            time += 2 * both / sum(one * one for one in rest)
        if lag >= WINDOW * time:
            break
    return max(time, 1.0) / groups


@pytest.mark.parametrize("keeps", [0.0, 0.5, 0.9])
def test_the_share_that_acts_as_one_is_that_of_the_definition(keeps: float) -> None:
    run = noise(3, 1024, keeps)
    expected = [naive_share(run, 512), naive_share(run, 128)]
    assert [one.share for one in dependences(run)] == pytest.approx(expected, rel=1e-9)


def test_what_hangs_together_longer_makes_longer_blocks() -> None:
    sizes = [
        min(cut([(noise(1, 4096, keeps), noise(2, 4096, keeps))]).sizes)
        for keeps in (0.0, 0.95, 0.99)
    ]
    assert sizes[0] >= 16 and sizes == sorted(sizes, reverse=True)
    # The correlation time of such a walk is (1 + keeps) / (1 - keeps) cells.
    assert sizes[2] <= 4096 / (TIMES_APART * 199) * 2


def test_metrics_of_the_same_values_share_the_blocks_of_the_slowest() -> None:
    quick, slow = (noise(1, 4096), noise(2, 4096)), (noise(3, 4096, 0.98), noise(4, 4096, 0.98))
    assert cut([quick, slow]).sizes == cut([slow]).sizes < cut([quick]).sizes
    assert cut([quick]).excess < 1.2 < cut([slow]).excess


def test_the_variance_of_means_is_told_although_neighbouring_blocks_share_some() -> None:
    """Of walks whose true error is known, by blocks of two correlation times."""
    keeps, cells = 0.98, 20_000
    true = (1 + keeps) / (1 - keeps) / cells
    told = []
    for seed in range(20):
        run = noise(seed, cells, keeps)
        found = cut([(run, run)])
        told.append(error_of(found.blocks(run, run)[0]) * found.excess)
    assert float(np.mean(told)) == pytest.approx(true, rel=0.15)


def test_blocks_hold_equally_much_and_everything_once() -> None:
    random = np.random.default_rng(1)
    whole = random.integers(1, 9, 5000).astype(float)
    run = CellSeries(whole * 0.5, whole)
    found = cut([(run, run)])
    one, _ = found.blocks(run, run)
    assert found.sizes[0] in SIZES
    assert one.whole.sum() == whole.sum() and one.part.sum() == run.part.sum()
    assert np.ptp(one.whole) <= 18 and (np.diff(found.indices[0]) >= 0).all()


def test_a_longer_run_has_more_blocks_of_the_same_length() -> None:
    found = cut([(noise(1, 1000), noise(2, 4000))])
    assert 2 * found.sizes[0] <= found.sizes[1] <= 8 * found.sizes[0]


@pytest.mark.parametrize("cells", [1, 2, 3])
def test_runs_of_hardly_anything_are_cut_into_hardly_any_blocks(cells: int) -> None:
    run = CellSeries(np.ones(cells), np.ones(cells))
    assert min(cut([(run, run)]).sizes) == 1


def test_what_never_varies_is_not_correlated() -> None:
    run = CellSeries(np.full(700, 0.3), np.full(700, 3.0))
    assert dependences(run) == [(1 / 512, 0.0), (1 / 128, 0.0)]


def test_sums_of_places_are_sums() -> None:
    indices = np.array([0, 2, 2], np.intp)
    assert sums_at(indices, np.array([1.0, 2.0, 3.0]), 4).tolist() == [1, 0, 5, 0]
