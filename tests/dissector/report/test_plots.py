"""Plots: inline SVG in the page's colours, axes with durations, nothing where nothing is."""

import re
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.buckets import bucket_of
from dissector.report import bars, plots
from dissector.report.drawings import Pair
from dissector.report.plots import duration_ticks


def svg_of(pair: Pair | None) -> str:
    assert pair is not None
    return pair.wide.svg


def latency(*values_ns: int) -> dict[str, Any]:
    buckets: dict[int, int] = {}
    for value in values_ns:
        buckets[int(bucket_of(value))] = buckets.get(int(bucket_of(value)), 0) + 1
    return {
        "latency_histogram": sorted([bucket, count] for bucket, count in buckets.items()),
        "latency_ms": {"p50": values_ns[0] / 1e6, "p99": values_ns[-1] / 1e6,
                       "min": min(values_ns) / 1e6, "max": max(values_ns) / 1e6,
                       "count": len(values_ns)},
    }  # fmt: skip


def points(count: int) -> list[dict[str, Any]]:
    return [
        {"ts": f"2026-01-01T00:00:{place:02d}.000000Z", "messages": place, "request_bytes": 10,
         "p50_ms": 1.0 + place, "p99_ms": 2.0 + place, "available_min": place,
         "available_max": place + 5, "available_last": place + 1,
         "undelivered": 7 - place % 8, "unacknowledged": place % 8}
        for place in range(count)
    ]  # fmt: skip


ALL = {
    "latency": lambda: plots.latency_distribution(latency(3_000_000, 4_000_000, 5_000_000)),
    "percentiles": lambda: plots.latency_percentiles(latency(*range(1_000_000, 9_000_000, 9_000))),
    "time": lambda: plots.over_time({"over_time": {"step_ms": 1000.0, "points": points(20)}}),
    "permits": lambda: plots.permit_balance(
        {"first_grant": 10, "step_ms": 50.0, "points": points(20)}
    ),
    "backlog": lambda: plots.backlog({"step_ms": 10.0, "points": points(20)}),
    "causes": lambda: bars.redelivery_causes({"by_cause": {"explicit": 3, "unload": 900}}),
    "checksums": lambda: bars.checksum_verdicts(
        {"ok": 5, "confirmed_by_peer": 1, "unconfirmed": 0, "capture_artefact": 0, "absent": 2,
         "not_evaluated": 0}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALL)
def test_a_plot_is_one_element_in_the_colours_of_the_page(name: str) -> None:
    pair = ALL[name]()
    for plot in (pair.wide, pair.narrow):
        assert plot.svg.startswith("<svg") and plot.svg.count("<svg") == 1
        assert 'aria-hidden="true"' in plot.svg and "viewBox" in plot.svg
        assert not re.findall(r"#[0-9a-f]{6}", re.sub(r'(href="|url\()#[^")]*', "", plot.svg))
        assert "style" not in plot.svg, "a strict policy forbids it"
        assert "<metadata" not in plot.svg and "font-family" not in plot.svg
        width, height = (float(part) for part in plot.svg.split('viewBox="0 0 ')[1].split('"')[0]
                         .split())  # fmt: skip
        assert plot.hints and all(
            0 <= hint.x <= width and 0 <= hint.y <= height for hint in plot.hints
        )
    assert pair.caption.endswith(".")


@pytest.mark.parametrize("name", ALL)
def test_a_plot_is_the_same_every_time(name: str) -> None:
    assert ALL[name]() == ALL[name]()


def test_nothing_is_drawn_where_there_is_nothing() -> None:
    assert plots.latency_distribution(latency(0)) is None
    assert plots.latency_percentiles(latency(0)) is None
    assert plots.latency_percentiles(latency(5_000_000)) is None, "one send has no percentiles"
    assert plots.over_time({"over_time": {"step_ms": 1.0, "points": []}}) is None
    assert plots.permit_balance(None) is None
    assert plots.permit_balance({"first_grant": 1, "points": points(1)}) is None
    assert plots.backlog(None) is None
    assert plots.backlog({"step_ms": 1.0, "points": points(1)}) is None
    assert bars.redelivery_causes({"by_cause": {}}) is None
    nothing = dict.fromkeys(("ok", "confirmed_by_peer", "unconfirmed", "capture_artefact",
                             "absent", "not_evaluated"), 0)  # fmt: skip
    assert bars.checksum_verdicts(nothing) is None


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ((3_000_000, 4_000_000, 5_000_000), ["3 ms", "4 ms", "5 ms"]),
        ((400_000, 20_000_000), ["500 µs", "1 ms", "10 ms"]),
        ((1_000, 90_000_000_000), ["1 µs", "1 s"]),
    ],
    ids=["within an octave", "two decades", "many decades"],
)
def test_a_latency_axis_has_durations(values: tuple[int, ...], labels: list[str]) -> None:
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg_of(plots.latency_distribution(
        latency(*values))))  # fmt: skip
    assert set(labels) <= set(texts)


@given(st.floats(1e-6, 1e6), st.floats(1.0, 1e9), st.integers(4, 9))
def test_ticks_are_few_and_inside(low: float, factor: float, most: int) -> None:
    high = low * factor
    ticks = duration_ticks(low, high, most)
    assert 1 <= len(ticks) <= most + 1
    assert all(low * 0.998 <= tick <= high * 1.002 for tick in ticks)
    assert all(one < other for one, other in pairwise(ticks))


def test_bars_far_apart_are_drawn_on_a_logarithmic_scale_and_say_so() -> None:
    pair = bars.redelivery_causes({"by_cause": {"explicit": 1, "unload": 100_000}})
    assert pair is not None and "logarithmic" in pair.caption
    assert pair.wide.hints[0].text == "unload: 100,000 entries"


def lines(pair: Pair | None) -> list[str]:
    """Pieces of what is drawn as lines: no fill, more than one point."""
    paths = re.findall(r'<path d="(M [^"]*)"[^>]*stroke-width="1.6"', svg_of(pair))
    return [piece for path in paths for piece in path.split("M")[1:] if "L" in piece]


def test_points_that_stand_alone_are_dots_and_many_of_them_two_artists() -> None:
    """Of a hundred days with traffic once a day: a piece of a line each would cost a second."""
    days = [day * 86_400 for day in range(100)]
    pair = plots.over_time({"over_time": {"step_ms": 60_000.0, "points": at(*days)}})
    assert pair is not None and len(lines(pair)) == 2, "those of the legend"
    assert len(re.findall("<use [^>]*--series-1", pair.wide.svg)) == 100 + 1, "and the legend's"
    assert pair.wide.svg.count('id="time-wide-line2d_') < 40
    mixed = at(*range(0, 600, 5), 2400, 4800, *range(7200, 7300, 5))
    pair = plots.over_time({"over_time": {"step_ms": 5000.0, "points": mixed}})
    assert pair is not None and len(lines(pair)) == 2 + 2 * 2
    assert len(re.findall("<use [^>]*--series-1", pair.wide.svg)) == 2 + 1


def at(*seconds: int) -> list[dict[str, Any]]:
    """Points of a series at some seconds of a day."""
    start = datetime(2026, 1, 1)
    times = [f"{start + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}.000000Z" for second in seconds]
    return [{**points(1)[0], "ts": time, "messages": 3} for time in times]


def test_no_line_is_drawn_across_time_without_traffic() -> None:
    def drawn(found: list[dict[str, Any]]) -> int:
        return len(lines(plots.over_time({"over_time": {"step_ms": 5000.0, "points": found}})))

    busy = at(*range(0, 600, 5))
    assert drawn(busy) == 2 + 2, "p50 and p99, and both in the legend"
    later = at(*range(2400, 3000, 5))  # half an hour without traffic lies between
    assert drawn(busy + later) == 2 + 2 * 2


@pytest.mark.parametrize(
    ("seconds", "step_ms", "expected"),
    [
        ([0, 5, 10, 15], 5000.0, [(0, 4)]),
        ([0, 5, 10, 1810, 1815], 5000.0, [(0, 3), (3, 5)]),
        ([0, 1800, 3600, 5400], 5000.0, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        ([0, 1800, 3600, 5400], 1_800_000.0, [(0, 4)]),
        ([0, 1, 2, 3, 4, 5, 30, 31], 50.0, [(0, 6), (6, 8)]),
        ([0, 2, 4, 6, 8], 50.0, [(0, 5)]),
        ([7], 50.0, [(0, 1)]),
        ([], 50.0, [(0, 0)]),
    ],
    ids=["steady", "half an hour", "every half hour", "steps as long", "short capture", "sparse",
         "one point", "none"],
)  # fmt: skip
def test_a_line_is_broken_where_nothing_came_for_long(
    seconds: list[int], step_ms: float, expected: list[tuple[int, int]]
) -> None:
    found = plots.unbroken_lines(at(*seconds), step_ms)
    assert [(part.start, part.stop) for part in found] == expected


def test_a_balance_without_traffic_is_dotted_not_drawn() -> None:
    balance = {"first_grant": 10, "step_ms": 5000.0, "points": at(0, 5, 10, 1810, 1815)}
    pair = plots.permit_balance(balance)
    assert pair is not None and "Dotted: no traffic" in pair.caption
    steady = plots.permit_balance(balance | {"points": at(0, 5, 10, 15, 20)})
    dotted = [svg_of(each).count('stroke-dasharray="1,3') for each in (pair, steady)]
    assert dotted == [1, 0]


def test_a_bar_of_a_series_is_as_wide_as_its_step() -> None:
    sparse, dense = at(0, 5, 1800), at(*range(0, 1800, 5))
    widths = []
    for found in (sparse, dense):
        svg = svg_of(plots.over_time({"over_time": {"step_ms": 5000.0, "points": found}}))
        bar = r'<path d="M ([\d.]+) [\d.]+ \nL ([\d.]+) [^"]*"[^>]* fill="var\(--series-2\)"'
        widths += [float(right) - float(left) for left, right in re.findall(bar, svg)[:1]]
    assert widths[0] < 3 and abs(widths[0] - widths[1]) < 1


def test_percentiles_stand_at_equal_distances_per_nine() -> None:
    values = [1_000_000] * 9_000 + [2_000_000] * 900 + [50_000_000] * 99 + [900_000_000]
    pair = plots.latency_percentiles(latency(*values))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", svg_of(pair))
    assert [text for text in texts if text == "0" or "%" in text] == [
        "0", "50 %", "90 %", "99 %", "99.9 %", "99.99 %",
    ]  # fmt: skip
    assert pair is not None
    said = {hint.text: hint.x for hint in pair.wide.hints}
    assert list(said) == [
        "90 % took 1 ms or less", "99 % took 2 ms or less", "99.99 % took 50 ms or less",
        "the slowest took 900 ms",
    ]  # fmt: skip
    one, other, third, last = said.values()
    assert other - one == pytest.approx(third - other, abs=0.3), "90 % and 99 %, a nine apart"
    assert last - third == pytest.approx(2 * (other - one), abs=0.5)


@given(st.floats(10.0, 1e12))
def test_labels_of_percentiles_do_not_run_into_each_other(most: float) -> None:
    found = plots.quantile_ticks(most)
    assert found[0] == (1.0, "0") and found[-1][0] <= most * 1.001
    labels = [text for _, text in found]
    assert len(set(labels)) == len(labels), "each nine is told apart"
    for width in (plots.WIDE[0], plots.NARROW[0]):
        kept = plots._apart(found, float(width))
        assert kept[-1] == found[-1] and set(kept) <= set(found)
