"""Pictures of a comparison: curves go through the percentiles, bars are the intervals."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.compare.comparing import compared
from dissector.compare.page import page
from dissector.compare.pictures import bars, curve, curve_picture, curves
from dissector.compare.runs import Run
from dissector.compare.testing import Values
from dissector.compare.wording import lines, rows_in_order
from dissector.limits import MAX_COMPARED_CURVES
from tests.dissector.compare.test_wording import whole
from tests.dissector.report.browser import looked_at

Row = dict[str, Any]


def values_of(given_values: list[int]) -> Values:
    """Values as a run has them: alike ones counted, in any order."""
    found, counts = np.unique(np.array(given_values, float), return_counts=True)
    turned = slice(None, None, -1)
    return Values(np.arange(len(found)), found[turned], counts[turned].astype(float))


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=300))
def test_a_curve_goes_through_the_percentiles(given_values: list[int]) -> None:
    ordered = sorted(given_values)
    points = curve(values_of(given_values))
    assert points[0][1] == round(ordered[0] / 1e6, 6)
    assert points[-1] == [len(ordered), round(ordered[-1] / 1e6, 6)]
    for times, value in points[:-1]:
        below = sum(round(each / 1e6, 6) <= value for each in ordered)
        assert below >= (1 - 1 / times) * len(ordered) - 0.1, "times is rounded"
    assert [y for _, y in points] == sorted(y for _, y in points)
    assert len(points) <= 16 * math.log10(len(ordered) + 1) + 2


def test_curves_are_of_what_both_runs_have(quiet: Run, lossy: Run) -> None:
    metrics = compared(quiet, lossy)["metrics"]
    found = curves(quiet, lossy, metrics)
    names = [row["metric"] for row in found]
    assert names[0] == "send_latency", "what changed comes first"
    assert "logical_latency" not in names, "its numbers are those of another"
    assert len(names) <= MAX_COMPARED_CURVES
    assert not curves(quiet._replace(values={}), lossy, metrics)
    for row in found:
        picture = str(curve_picture(row))
        if not any(y for side in ("before", "after") for _, y in row[side]):
            assert picture == ""
            continue
        one, other = re.findall(r'<polyline points="([^"]*)"', picture)
        assert len(one.split()) == len(row["before"]) and len(other.split()) == len(row["after"])
        numbers = [float(each) for each in re.findall(r"[\d.]+", f"{one} {other}")]
        assert min(numbers) >= 0 and max(numbers) <= 1000
        assert 'role="img" aria-label="' in picture


def test_nothing_is_drawn_of_no_time_at_all() -> None:
    zero = [[1.0, 0.0], [5.0, 0.0]]
    assert curve_picture({"metric": "transmit", "before": zero, "after": zero}) == ""


def places(bar: str) -> list[float]:
    """Where a bar begins and ends, and its mark."""
    found = re.findall(r'd="M([\d.]+) 7H([\d.]+)M.*d="M([\d.]+) 1V13"', bar)
    assert len(found) == 1
    return [float(each) for each in found[0]]


def test_bars_are_intervals_on_one_scale() -> None:
    rows: list[Row] = [
        {"interval_percent": [100.0, 300.0], "difference_percent": 200.0, "verdict": "worse",
         "unit": "ms"},
        {"interval_percent": [-50.0, 0.0], "difference_percent": -20.0, "verdict": "no evidence",
         "unit": "ms"},
        {"interval_percent": [-100.0, 1e9], "difference_percent": 5.0, "verdict": "no evidence",
         "unit": "ms"},
        {"interval_percent": None, "difference_percent": None, "interval": [-0.1, 0.2],
         "difference": 0.1, "verdict": "better", "unit": "share"},
        {"interval_percent": None, "difference_percent": None, "interval": [0.0, 0.0],
         "difference": 0.0, "verdict": "no evidence", "unit": "per_s"},
    ]  # fmt: skip
    one, other, huge, share, none = map(places, map(str, bars(rows)))
    assert 100 < one[0] < one[2] < one[1] < 200
    assert other[1] == 100 and other[0] == pytest.approx(200 - one[0], abs=0.2), "a half, twice"
    assert 0 <= huge[0] < 5 and 195 < huge[1] <= 200
    assert share[1] - 100 == pytest.approx(2 * (100 - share[0]), abs=0.2)
    assert none == [100, 100, 100]
    inks = [re.findall(r"--(bad|good|series-2)", str(each)) for each in bars(rows)]
    assert inks == [["bad"], ["series-2"], ["series-2"], ["good"], ["series-2"]]


@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_the_page(quiet: Run, lossy: Run, tmp_path: Path, width: int) -> None:
    comparison = whole(quiet, lossy)
    drawn = curves(quiet, lossy, comparison["metrics"])
    text = page(comparison, drawn)
    assert text.count('class="bar"') == len([*lines(comparison)])
    assert len([*lines(comparison)]) == len([*rows_in_order(comparison)])
    unfold = 'for (const each of document.querySelectorAll("details")) each.open = true;'
    # The page has no script of its own; the probe needs a policy that lets it run.
    probed = looked_at(text, tmp_path, width, act=unfold)
    assert probed["cut"] == [] and probed["outside"] == [] and probed["scrolls"] <= width
    assert probed["faults"] == [] and probed["console"] == []
