"""The plots of the page: inline SVG, text as text, colours from the page's own style sheet.

Every plot is drawn twice, for a wide and for a narrow screen, so that its text is readable on both.
Drawings have placeholder colours (`_INKS`), which variables of the style sheet then replace: one
drawing serves light and dark. No name from the wire is drawn: names are in the page's text.
"""

import io
import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FixedLocator, NullLocator

from dissector.buckets import bucket_bounds, bucket_middle
from dissector.report.drawings import Hint, Pair, Plot
from dissector.report.formatting import (
    about_text,
    bytes_text,
    count_text,
    duration_text,
    share_text,
)
from dissector.report.numbers import NS_PER_MS, Row

WIDE: Final = (620, 280)
NARROW: Final = (340, 250)
# The placeholder colour in the drawing, and its variable of the style sheet.
_INKS: Final = {
    "#0a0b01": "--ink",
    "#0a0b02": "--muted",
    "#0a0b03": "--rule",
    "#0a0b04": "--series-1",
    "#0a0b05": "--series-2",
    "#0a0b06": "--series-3",
    "#0a0b07": "--good",
    "#0a0b08": "--bad",
    "#0a0b09": "--warn-mark",
}
INK, MUTED, RULE, FIRST, SECOND, THIRD, GOOD, BAD, WARN = _INKS
_SETTINGS: Final[Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dissector",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.labelsize": 10.5,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 10.5,
    "ytick.labelsize": 10.5,
    "legend.frameon": False,
    "legend.fontsize": 10.5,
    "lines.linewidth": 1.6,
}
BUCKETS_PER_BAR: Final = 8  # a quarter of an octave: fine enough to see two humps, coarse to read


# Return value of a drawing function: the axes, and hints (x, y in data units, text).
Drawn = tuple[Axes, list[tuple[float, float, str]]]
_Draw = Callable[[Figure], Drawn]


def _svg(figure: Figure, name: str) -> str:
    """The figure as one SVG element without ids, fonts or colours of its own."""
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_visible(False)
    # Figure.savefig would draw everything twice to compute the layout.
    canvas: Any = FigureCanvasSVG(figure)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
    file = io.StringIO()
    canvas.print_svg(file, metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sid="', f' id="{name}-', text)
    text = re.sub(r'((?:xlink:)?href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font: ([\d.]+)px [^;\"]+", r"font-size: \1px", text)
    text = re.sub(r" font-family: [^;\"]+;?", "", text)
    # The page's policy allows its own style sheet alone and forbids the attribute `style`.
    text = re.sub(r' style="([^"]*)"', _attributes, text)
    for mark, variable in _INKS.items():
        text = text.replace(mark, f"var({variable})")
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text)
    return re.sub(r"\n\s*", "\n", text).replace("<svg", '<svg aria-hidden="true"', 1)


def _attributes(style: re.Match[str]) -> str:
    """A style's properties as attributes of the element."""
    pairs = (each.split(":", 1) for each in style[1].split(";") if ":" in each)
    return "".join(f' {name.strip()}="{value.strip()}"' for name, value in pairs)


def _plot(name: str, size: tuple[int, int], draw: _Draw) -> Plot:
    with rc_context(_SETTINGS):
        figure = Figure(figsize=(size[0] / 72, size[1] / 72), dpi=72, layout="constrained")
        axes, labels = draw(figure)
        svg = _svg(figure, name)
        positions = axes.transData.transform([(x, y) for x, y, _ in labels])
    hints = [
        Hint(round(float(across), 1), round(size[1] - float(up), 1), text)
        for (across, up), (*_, text) in zip(positions, labels, strict=True)
    ]
    return Plot(svg, hints)


def _columns(
    axes: Axes, bars: Sequence[tuple[float, float, float]], colour: str, linewidth: float
) -> None:
    """Bars (left edge, right edge, height) as one path: `Axes.bar` makes an artist of each."""
    path = Path.make_compound_path(*(
        Path([(low, 0), (high, 0), (high, height), (low, height), (low, 0)], closed=True)
        for low, high, height in bars
    ))  # fmt: skip
    patch = PathPatch(
        path, facecolor=colour, edgecolor=colour, linewidth=linewidth, joinstyle="miter"
    )
    patch.sticky_edges.y.append(0)
    axes.add_patch(patch)
    axes.autoscale_view()


def pair_of(name: str, draw: _Draw, caption: str, height: int = 0) -> Pair:
    wide = (WIDE[0], height or WIDE[1])
    narrow = (NARROW[0], height or NARROW[1])
    return Pair(_plot(f"{name}-wide", wide, draw), _plot(f"{name}-narrow", narrow, draw), caption)


def _bars(histogram: Sequence[Sequence[int]]) -> list[tuple[float, float, int]]:
    """(left edge, right edge, count) per bar, in ms; a bar sums BUCKETS_PER_BAR buckets. Bars of 0
    are left out."""
    bars: dict[int, int] = {}
    for bucket, count in histogram:
        if bucket > 0:
            bar = bucket // BUCKETS_PER_BAR
            bars[bar] = bars.get(bar, 0) + count
    columns = []
    for bar in sorted(bars):
        low = max(1, bucket_bounds(bar * BUCKETS_PER_BAR)[0])
        high = bucket_bounds((bar + 1) * BUCKETS_PER_BAR - 1)[1] + 1
        columns.append((low / NS_PER_MS, high / NS_PER_MS, bars[bar]))
    return columns


def duration_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Round durations from low to high on a logarithmic scale, at least two, at most `most`."""
    for digits in ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5, 7), (1, 1.5, *range(2, 10))):
        decades = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1)
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) >= min(4, most):
            break
    if len(ticks) < 2:
        # The range is smaller than a step of any round series: use its ends.
        return [low, high] if high > low else [low]
    return ticks[:: math.ceil(len(ticks) / most)]


def _duration_axis(axes: Axes, axis: str, most: int = 7) -> None:
    """A logarithmic axis of ms whose ticks are written as durations."""
    which = axes.xaxis if axis == "x" else axes.yaxis
    if axis == "x":
        axes.set_xscale("log")
    else:
        axes.set_yscale("log")
    low, high = axes.get_xlim() if axis == "x" else axes.get_ylim()
    which.set_major_locator(FixedLocator(duration_ticks(low, high, most)))
    which.set_major_formatter(lambda value, _: duration_text(value))
    which.set_minor_locator(NullLocator())


def latency_distribution(total: Row) -> Pair | None:
    """The histogram of the latencies of sends, with median and 99th percentile."""
    bars = _bars(total["latency_histogram"])
    if not bars:
        return None
    latency = total["latency_ms"]

    def draw(figure: Figure) -> Drawn:
        axes = figure.subplots()
        _columns(axes, bars, FIRST, 0.4)
        _duration_axis(axes, "x")
        axes.set_ylabel("sends")
        axes.grid(axis="x", visible=False)
        axes.margins(y=0.14)
        # The median is named to the left of its line, the 99th to the right: they may be close.
        for name, colour, side, aside in (("p50", INK, "right", -3), ("p99", BAD, "left", 3)):
            if latency[name]:
                axes.axvline(latency[name], color=colour, linewidth=1.2, linestyle=(0, (3, 2)))
                axes.annotate(name, (latency[name], 1), xycoords=("data", "axes fraction"),
                              xytext=(aside, -9), textcoords="offset points", color=colour,
                              ha=side, fontsize=10.5)  # fmt: skip
        return axes, [
            ((low * high) ** 0.5, count,
             f"{duration_text(low)} to {duration_text(high)}: {count_text(count)} sends")
            for low, high, count in bars
        ]  # fmt: skip

    return pair_of("latency", draw, "Sends by latency (logarithmic), receipts of outcome ok.")


def _exceeded(total: Row) -> list[tuple[float, float, float]]:
    """(1 / (1 - q), latency in ms, share up to it) per bucket; q: the share below the bucket."""
    latency, passed = total["latency_ms"], 0
    buckets = total["latency_histogram"]
    count = sum(number for _, number in buckets)
    steps = []
    for bucket, number in buckets:
        value = min(max(bucket_middle(bucket) / NS_PER_MS, latency["min"]), latency["max"])
        steps.append((count / (count - passed), value, (passed + number) / count))
        passed += number
    return steps


def quantile_ticks(most: float) -> list[tuple[float, str]]:
    """(1 / (1 - q), label) of the customary quantiles, up to `most`, a number of sends."""
    ticks = [(1.0, "0"), (2.0, "50 %")]
    for nines in range(1, math.floor(math.log10(most) + 1e-9) + 1):
        share = 100 - 10.0 ** (2 - nines)
        ticks.append((10.0**nines, f"{share:.{max(0, nines - 2)}f} %"))
    return ticks


def _apart(ticks: list[tuple[float, str]], width: float) -> list[tuple[float, str]]:
    """Ticks of a logarithmic axis without overlapping ones. width: of the axis, points."""
    scale = width / math.log10(ticks[-1][0])
    kept = [ticks[-1]]
    for at, text in reversed(ticks[:-1]):
        room = scale * math.log10(kept[-1][0] / at)
        if room > 6 * (len(text) + len(kept[-1][1])) / 2:
            kept.append((at, text))
    return kept[::-1]


def latency_percentiles(total: Row) -> Pair | None:
    """The latency that each share of sends did not exceed, drawn as HdrHistogram does."""
    steps = [step for step in _exceeded(total) if step[1] > 0]
    count, slowest = total["latency_ms"]["count"], total["latency_ms"]["max"]
    if not steps or count < 2:
        return None

    def draw(figure: Figure) -> Drawn:
        axes = figure.subplots()
        axes.set_xscale("log")
        axes.step([*(x for x, *_ in steps), count], [*(y for _, y, _ in steps), slowest],
                  where="post", color=FIRST)  # fmt: skip
        axes.plot(count, slowest, marker="o", markersize=4, color=FIRST)
        axes.set_xlim(1, max(10.0, count) * 1.12)
        axes.xaxis.set_major_locator(FixedLocator([]))
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = _apart(quantile_ticks(max(10.0, count)), 0.8 * 72 * figure.get_figwidth())
        axes.set_xticks([at for at, _ in ticks], [text for _, text in ticks])
        _duration_axis(axes, "y", 6)
        axes.set_ylabel("latency")
        axes.set_xlabel("share of sends that took no longer")
        return axes, [
            *((x, y, f"{share_text(share)} took {about_text(y)} or less")
              for x, y, share in steps[:-1]),
            (count, slowest, f"the slowest took {duration_text(slowest)}"),
        ]  # fmt: skip

    caption = (
        "Latency by percentile, across log(1/(1-q)) as HdrHistogram draws it: each nine is as "
        "wide as the one before. The dot is the slowest send."
    )
    return pair_of("percentiles", draw, caption)


# A line over time is broken after so long without traffic; in short captures after this share of
# the time shown, if that is also much more than usual.
BREAK_S: Final = 60.0
BREAK_SHARE: Final = 0.05
BREAK_TIMES: Final = 4


def unbroken_lines(points: Sequence[Row], step_ms: float) -> list[slice]:
    """The runs of points that a line connects: no long time without traffic lies inside."""
    times = [datetime.fromisoformat(point["ts"]).timestamp() for point in points]
    pauses = [after - before for before, after in pairwise(times)]
    if not pauses:
        return [slice(0, len(times))]
    usual = max(BREAK_SHARE * (times[-1] - times[0]), BREAK_TIMES * median(pauses))
    longest = max(2 * step_ms / 1000, min(BREAK_S, usual))
    breaks = [at + 1 for at, pause in enumerate(pauses) if pause > longest]
    return [slice(*ends) for ends in pairwise([0, *breaks, len(times)])]


def _seconds(points: Sequence[Row]) -> tuple[list[float], str]:
    """Times of points since the first one, and the axis label with the first one's time."""
    times = [datetime.fromisoformat(point["ts"]) for point in points]
    since = [(time - times[0]).total_seconds() for time in times]
    seconds, unit = (1, "seconds") if since[-1] < 600 else (60, "minutes")
    if since[-1] >= 6 * 3600:
        seconds, unit = 3600, "hours"
    label = f"{unit} since {times[0]:%Y-%m-%d %H:%M:%S} UTC"
    return [value / seconds for value in since], label


def over_time(total: Row) -> Pair | None:
    """Latency percentiles and messages per second over the time of the capture."""
    series = total["over_time"]
    points = series["points"]
    if not points:
        return None
    across, label = _seconds(points)
    step_s = series["step_ms"] / 1000
    rates = [point["messages"] / step_s for point in points]
    timed = [(x, point) for x, point in zip(across, points, strict=True) if point["p50_ms"]]
    lines = unbroken_lines([point for _, point in timed], series["step_ms"])
    width = _width(points, across, series["step_ms"])
    # A point between two breaks would be a line without length; breaks count as points.
    dotted = [
        at + breaks
        for breaks, line in enumerate(lines)
        for at in range(line.start, line.stop)
        if len(points) < 120 or line.stop - line.start == 1
    ]

    def draw(figure: Figure) -> Drawn:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        for name, colour in (("p50", FIRST), ("p99", BAD)):
            # A NaN breaks a line; one line per run of points would be an artist each.
            drawn = [(x, point[f"{name}_ms"]) for x, point in timed]
            for line in reversed(lines[1:]):
                drawn.insert(line.start, (math.nan, math.nan))
            small = {"marker": "o", "markersize": 2.6, "markevery": dotted} if dotted else {}
            upper.plot([x for x, _ in drawn], [y for _, y in drawn], color=colour, label=name,
                       **small)  # fmt: skip
        if timed:
            _duration_axis(upper, "y", 4)
            upper.legend(loc="upper right", ncols=2, borderaxespad=0, handlelength=1.2)
        upper.set_ylabel("latency")
        # The edge keeps bars visible that are narrower than a point.
        bars = [(x - width / 2, x + width / 2, rate) for x, rate in zip(across, rates, strict=True)]
        _columns(lower, bars, SECOND, 0.6)
        lower.set_ylabel("messages/s")
        lower.set_xlabel(label)
        lower.margins(y=0.14)
        return lower, [(x, rate, _point_text(point, rate))
                for x, rate, point in zip(across, rates, points, strict=True)]  # fmt: skip

    step = duration_text(series["step_ms"]).removesuffix(" 0 s")
    caption = f"Latency of sends (above) and messages sent per second (below), in steps of {step}."
    return pair_of("time", draw, caption, 300)


def _width(points: Sequence[Row], across: Sequence[float], step_ms: float) -> float:
    """The width of one step of a series on its axis."""
    if len(points) < 2:
        return 1.0
    first, last = (datetime.fromisoformat(points[at]["ts"]) for at in (0, -1))
    return step_ms / 1000 * (across[-1] - across[0]) / (last - first).total_seconds()


def _point_text(point: Row, rate: float) -> str:
    latency = ""
    if point["p50_ms"] is not None:
        latency = f"; p50 {about_text(point['p50_ms'])}, p99 {about_text(point['p99_ms'])}"
    sent = f"{count_text(point['messages'])} messages, {bytes_text(point['request_bytes'])}"
    return f"{point['ts'][11:23]}: {sent}, {count_text(round(rate))}/s{latency}"


def permit_balance(balance: Row | None) -> Pair | None:
    """A consumer's remaining permits over time."""
    points = balance["points"] if balance else []
    if not balance or len(points) < 2:
        return None  # one point makes no line
    across, label = _seconds(points)

    def draw(figure: Figure) -> Drawn:
        axes = figure.subplots()
        low = [point["available_min"] for point in points]
        high = [point["available_max"] for point in points]
        last = [point["available_last"] for point in points]
        axes.vlines(across, low, high, color=FIRST, linewidth=2.4, alpha=0.45)
        for line in unbroken_lines(points, balance["step_ms"]):
            axes.step(across[line], last[line], where="post", color=FIRST, linewidth=1.3)
            if line.start:
                # Nothing was granted or delivered meanwhile: the balance did not change.
                axes.step(across[line.start - 1 : line.start + 1],
                          last[line.start - 1 : line.start + 1], where="post", color=FIRST,
                          linewidth=1, linestyle=(0, (1, 3)))  # fmt: skip
        axes.axhline(0, color=BAD, linewidth=1)
        if balance["first_grant"]:
            axes.axhline(balance["first_grant"], color=MUTED, linewidth=1, linestyle=(0, (3, 2)))
        axes.set_ylabel("permits left")
        axes.set_xlabel(label)
        return axes, [(x, point["available_min"],
                 f"{point['ts'][11:23]}: {_range(point)} permits left")
                for x, point in zip(across, points, strict=True)]  # fmt: skip

    step = duration_text(balance["step_ms"]).removesuffix(" 0 s")
    caption = (
        f"Permits left, in steps of {step}: the last balance of a step and, as a bar, all between "
        "its least and greatest. Dotted: no traffic; dashed: the first grant; red: none left."
    )
    return pair_of("permits", draw, caption)


def backlog(series: Row | None) -> Pair | None:
    """Undelivered and unacknowledged entries of subscriptions over time."""
    points = series["points"] if series else []
    if not series or len(points) < 2:
        return None
    across, label = _seconds(points)
    lines = (("undelivered", "not delivered", BAD), ("unacknowledged", "not acknowledged", FIRST))

    def draw(figure: Figure) -> Drawn:
        axes = figure.subplots()
        for name, words, colour in lines:
            axes.step(across, [point[name] for point in points], where="post", color=colour,
                      linewidth=1.3, label=words)  # fmt: skip
        axes.margins(y=0.25)  # above the lines, for the legend
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right", ncols=2, borderaxespad=0, handlelength=1.2)
        axes.set_ylabel("entries")
        axes.set_xlabel(label)
        return axes, [
            (x, max(point[name] for name, *_ in lines),
             f"{point['ts'][11:23]}: {count_text(point['undelivered'])} not delivered, "
             f"{count_text(point['unacknowledged'])} not acknowledged")
            for x, point in zip(across, points, strict=True)
        ]  # fmt: skip

    step = duration_text(series["step_ms"]).removesuffix(" 0 s")
    caption = (
        f"Entries stored for subscriptions, once for each, at the end of steps of {step}: not "
        "delivered yet, and delivered but not acknowledged."
    )
    return pair_of("backlog", draw, caption)


def _range(point: Row) -> str:
    low, high = point["available_min"], point["available_max"]
    return count_text(low) if low == high else f"{count_text(low)} to {count_text(high)}"
