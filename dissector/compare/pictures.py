"""Charts of a comparison, as inline SVG of any width.

The percentile curves of both runs share a chart; the interval of each change is a bar. No text from
the wire is drawn.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from markupsafe import Markup, escape

from dissector.compare.runs import Run
from dissector.compare.testing import Values
from dissector.limits import MAX_COMPARED_CURVES
from dissector.report.formatting import count_text, duration_text
from dissector.report.numbers import NS_PER_MS

Row = dict[str, Any]
Curve = list[list[float]]
_PER_NINE: Final = 16  # points of a curve per factor of 10 in 1/(1-q)
_WIDTH: Final = 1000  # of the stretched drawing
_HEIGHT: Final = 170
_TOP: Final = 14  # px, for the label of the top grid line
_LEAST: Final = 10  # least number of values for a curve
_SIDES: Final = (("before", "series-2"), ("after", "series-1"))
_MOST_TIMES: Final = 8.0  # largest change that a bar shows: eightfold, or an eighth
_BAR: Final = 200
_THIN: Final = 'fill="none" vector-effect="non-scaling-stroke"'


def curve(values: Values) -> Curve:
    """Points [1 / (1 - q), ms] of a run's quantiles; a share q of the values does not exceed ms.

    The last point is the greatest value; the number of values limits q.
    """
    order = np.argsort(values.values, kind="stable")
    passed = np.cumsum(values.counts[order])
    number = float(passed[-1])
    steps = math.ceil(_PER_NINE * math.log10(max(number, 1)))
    shares = [10 ** (step / _PER_NINE) for step in range(steps)]
    ranks = [*(max(math.ceil((1 - 1 / each) * number), 1) for each in shares), number]
    at = np.minimum(np.searchsorted(passed, ranks), len(order) - 1)
    percentiles = values.values[order][at] / NS_PER_MS
    points = zip([*shares, number], percentiles, strict=True)
    return [[round(x, 4), round(float(y), 6)] for x, y in points]


def curves(before: Run, after: Run, metrics: Sequence[Row]) -> list[Row]:
    """The curves of durations over all topics that both runs have: metric, before, after. Changed
    metrics come first; metrics with few values are left out."""
    changed = sorted(metrics, key=lambda row: row["verdict"] not in ("worse", "better"))
    measures = dict.fromkeys(
        row["metric"].rpartition(".")[0] for row in changed
        if row["topic"] is None and row["unit"] == "ms" and row["same_as"] is None
    )  # fmt: skip
    both = [
        name for name in measures
        if all((name, None) in run.values and run.values[name, None].number >= _LEAST
               for run in (before, after))
    ]  # fmt: skip
    return [
        {"metric": name, "before": curve(before.values[name, None]),
         "after": curve(after.values[name, None])}
        for name in both[:MAX_COMPARED_CURVES]
    ]  # fmt: skip


def curve_picture(row: Row) -> Markup:
    """Both curves of a metric over log(1/(1-q)), on a logarithmic scale; empty if all values are
    0."""
    from dissector.report.plots import duration_ticks, quantile_ticks

    values = [y for name, _ in _SIDES for _, y in row[name] if y > 0]
    if not values:
        return Markup("")
    low, high = min(values) / 1.1, max(values) * 1.1
    most = max(10.0, *(row[name][-1][0] for name, _ in _SIDES))
    scale = _HEIGHT / math.log(high / low)

    def across(x: float) -> float:
        return math.log(x) / math.log(most)

    def up(y: float) -> float:
        return round(_HEIGHT - scale * math.log(max(y, low) / low), 1)

    lines, words, grid = "", "", ""
    for name, ink in _SIDES:
        points = " ".join(f"{round(_WIDTH * across(x), 1)},{up(y)}" for x, y in row[name])
        lines += f'<polyline points="{points}" stroke="var(--{ink})" stroke-width="2" {_THIN}/>'
    for y in duration_ticks(low, high, 4):
        grid += f"M0 {up(y)}H{_WIDTH}"
        words += f'<text x="0" y="{_TOP + up(y) - 3}">{duration_text(y)}</text>'
    for x, label in quantile_ticks(most)[1:]:
        anchor = "end" if across(x) > 0.9 else "middle"
        grid += f"M{round(_WIDTH * across(x))} 0V{_HEIGHT}"
        words += (
            f'<text x="{100 * across(x):.4g}%" y="{_TOP + _HEIGHT + 15}" text-anchor="{anchor}">'
            f"{label}</text>"
        )
    label = "; ".join(
        f"{name}: the slowest of {count_text(round(row[name][-1][0]))} took "
        f"{duration_text(row[name][-1][1])}" for name, _ in _SIDES
    )  # fmt: skip
    text = (
        f'<svg class="timeline" role="img" aria-label="{escape(row["metric"])}, by percentile; '
        f'{label}" width="100%" height="{_TOP + _HEIGHT + 22}">'
        f'<svg y="{_TOP}" width="100%" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'preserveAspectRatio="none">'
        f'<path d="{grid}" stroke="var(--rule)" {_THIN}/>{lines}</svg>{words}</svg>'
    )
    return Markup(text)


def bars(rows: Sequence[Row]) -> Iterator[Markup]:
    """The interval of each change as a bar; a line marks no change.

    Changes in percent share a scale, as do those of one unit that have no percent.
    """
    spans = [_span(row) for row in rows]
    most: dict[str, float] = {}
    for unit, ends in spans:
        most[unit] = max(most.get(unit, 0.0), *map(abs, ends))
    for row, (unit, (low, at, high)) in zip(rows, spans, strict=True):
        half = _BAR / 2
        scale = half / (most[unit] or 1.0) * 0.96
        left, middle, right = (round(half + scale * each, 1) for each in (low, at, high))
        ink = {"worse": "bad", "better": "good"}.get(row["verdict"], "series-2")
        yield Markup(
            f'<svg class="bar" aria-hidden="true" viewBox="0 0 {_BAR} 14" '
            f'preserveAspectRatio="none"><path d="M{half} 0V14" stroke="var(--muted)" {_THIN}/>'
            f'<path d="M{left} 7H{right}M{left} 3V11M{right} 3V11" stroke="var(--{ink})" '
            f'stroke-width="2" {_THIN}/><path d="M{middle} 1V13" stroke="var(--ink)" '
            f'stroke-width="3" {_THIN}/></svg>'
        )


def _span(row: Row) -> tuple[str, tuple[float, float, float]]:
    """The scale of a change, and its interval and value relative to the scale's ends."""
    percent = row["interval_percent"]
    if percent is None or row["difference_percent"] is None:
        low, high = row["interval"]
        return row["unit"], (low, row["difference"], high)
    logs = [
        max(min(math.log1p(max(each, -99.9) / 100), math.log(_MOST_TIMES)), -math.log(_MOST_TIMES))
        for each in (percent[0], row["difference_percent"], percent[1])
    ]
    return "percent", (logs[0], logs[1], logs[2])


def legend() -> Markup:
    """The legend of the curves' colours."""
    marks = "  ".join(f'<tspan fill="var(--{ink})">■</tspan> {name}' for name, ink in _SIDES)
    return Markup(
        f'<svg class="timeline" width="100%" height="18"><text x="0" y="13">{marks}</text></svg>'
    )
