"""The walk over permits of one consumer, cut anywhere, against a naive one."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.report.balance import (
    DELIVERY,
    GRANT,
    RESET,
    RESULTS,
    STALL_COLUMNS,
    finish,
    new_state,
    walk,
)
from tests.naive.report import permits as naive_permits

SECOND = 1_000_000
EVENTS = {"grant": GRANT, "delivery": DELIVERY, "reset": RESET}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("grant", "grant", "delivery", "delivery", "delivery", "reset")),
        st.integers(0, 5),
        st.sampled_from((1000, 100_000, SECOND, 3 * SECOND)),
        st.booleans(),
    ),
    max_size=40,
)


def rows_of(steps: list[tuple[str, int, int, bool]]) -> list[dict[str, Any]]:
    """Rows of `permits` of one consumer; the balance is sometimes not known."""
    rows = []
    at, available = 0, 0
    for frame_no, (event, number, pause, is_known) in enumerate(steps):
        at += pause
        delta = {"grant": number, "delivery": -number, "reset": None}[event]
        available = 0 if delta is None else available + delta
        rows.append(
            {"connection_id": 0, "consumer_id": 0, "incarnation": 0, "event": event,
             "delta": delta, "available_after": available if is_known or frame_no > 5 else None,
             "unacked_after": number, "ts": at, "frame_no": frame_no}
        )  # fmt: skip
    return rows


def walked(rows: list[dict[str, Any]], cuts: set[int], end_us: int) -> tuple[dict[str, int], Any]:
    """Results and stalls (int64[stalls, STALL_COLUMNS]) of rows that come in pieces."""
    state = new_state(1)
    found = []
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, stop in itertools.pairwise(edges):
        part = rows[start:stop]
        matrix = np.array(
            [
                [0, EVENTS[row["event"]], *(NULL if row[name] is None else row[name] for name in
                 ("delta", "available_after", "unacked_after", "ts", "frame_no"))]
                for row in part
            ], np.int64,
        ).reshape(len(part), 7).T.copy()  # fmt: skip
        stalls = np.zeros((len(part), STALL_COLUMNS), np.int64)
        found.append(stalls[: walk(matrix, state, stalls, SECOND, SECOND // 4)])
    stalls = np.zeros((1, STALL_COLUMNS), np.int64)
    found.append(stalls[: finish(state, np.array([end_us]), stalls, SECOND)])
    return dict(zip(RESULTS, state[0].tolist(), strict=False)), np.concatenate(found)


@settings(max_examples=200)
@given(STEPS, st.sets(st.integers(1, 39), max_size=4), st.integers(0, 5 * SECOND))
def test_times_and_stalls_are_those_of_a_plain_loop(
    steps: list[tuple[str, int, int, bool]], cuts: set[int], after: int
) -> None:
    rows = rows_of(steps)
    end_us = (rows[-1]["ts"] if rows else 0) + after
    results, stalls = walked(rows, cuts, end_us)
    connection = {"connection_id": 0, "last_ts_ns": end_us * 1000}
    expected = naive_permits({"permits": rows, "connections": [connection]}, is_all_observed=True)
    if not rows:
        assert set(results.values()) <= {0, NULL} and len(stalls) == 0
        return
    assert results["exhausted_us"] == expected["exhausted_us"]
    assert results["observed_us"] == expected["observed_us"]
    assert sorted(stalls[:, 4].tolist()) == expected["stalls_us"]
    for name in ("grants", "granted", "deliveries", "delivered"):
        assert results[name] == expected[name]


def test_a_stall_is_confirmed_by_a_delivery_that_follows_at_once() -> None:
    for pause, confirmed in ((100_000, 1), (400_000, 0)):
        steps = [("grant", 1, 1000, True), ("delivery", 1, 1000, True),
                 ("grant", 5, 3 * SECOND, True), ("delivery", 1, pause, True)]  # fmt: skip
        _, stalls = walked(rows_of(steps), set(), 10 * SECOND)
        assert stalls[:, 4:].tolist() == [[3 * SECOND, confirmed]]


def test_silence_with_permits_left_is_no_stall() -> None:
    steps = [("grant", 5, 1000, True), ("delivery", 1, 1000, True), ("delivery", 1, 3 * SECOND,
             True)]  # fmt: skip
    results, stalls = walked(rows_of(steps), set(), 3 * SECOND + 2000)
    assert len(stalls) == 0
    assert (results["quiets"], results["quiet_max_us"]) == (1, 3 * SECOND)


def test_a_stall_that_nothing_ends_is_open() -> None:
    steps = [("grant", 1, 1000, True), ("delivery", 1, 1000, True)]
    results, stalls = walked(rows_of(steps), set(), 2000 + 5 * SECOND)
    assert len(stalls) == 0 and results["open_stall_us"] == 5 * SECOND
