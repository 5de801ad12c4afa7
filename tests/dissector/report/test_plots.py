"""Plots: inline SVG in the page's colours, axes with durations, nothing where nothing is."""

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.buckets import bucket_of
from dissector.report import plots
from dissector.report.plots import Pair, duration_ticks


def svg_of(pair: Pair | None) -> str:
    assert pair is not None
    return pair.wide.svg


def latency(*values_ns: int) -> dict[str, Any]:
    buckets: dict[int, int] = {}
    for value in values_ns:
        buckets[int(bucket_of(value))] = buckets.get(int(bucket_of(value)), 0) + 1
    return {
        "latency_histogram": sorted([bucket, count] for bucket, count in buckets.items()),
        "latency_ms": {"p50": values_ns[0] / 1e6, "p99": values_ns[-1] / 1e6},
    }


def points(count: int) -> list[dict[str, Any]]:
    return [
        {"ts": f"2026-01-01T00:00:{place:02d}.000000Z", "messages": place, "request_bytes": 10,
         "p50_ms": 1.0 + place, "p99_ms": 2.0 + place, "available_min": place,
         "available_max": place + 5, "available_last": place + 1}
        for place in range(count)
    ]  # fmt: skip


ALL = {
    "latency": lambda: plots.latency_distribution(latency(3_000_000, 4_000_000, 5_000_000)),
    "time": lambda: plots.over_time({"over_time": {"step_ms": 1000.0, "points": points(20)}}),
    "permits": lambda: plots.permit_balance(
        {"first_grant": 10, "step_ms": 50.0, "points": points(20)}
    ),
    "causes": lambda: plots.redelivery_causes({"by_cause": {"explicit": 3, "unload": 900}}),
    "checksums": lambda: plots.checksum_verdicts(
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
    assert plots.over_time({"over_time": {"step_ms": 1.0, "points": []}}) is None
    assert plots.permit_balance(None) is None
    assert plots.permit_balance({"first_grant": 1, "points": points(1)}) is None
    assert plots.redelivery_causes({"by_cause": {}}) is None
    nothing = dict.fromkeys(("ok", "confirmed_by_peer", "unconfirmed", "capture_artefact",
                             "absent", "not_evaluated"), 0)  # fmt: skip
    assert plots.checksum_verdicts(nothing) is None


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
    pair = plots.redelivery_causes({"by_cause": {"explicit": 1, "unload": 100_000}})
    assert pair is not None and "logarithmic" in pair.caption
    assert pair.wide.hints[0].text == "unload: 100,000 entries"
