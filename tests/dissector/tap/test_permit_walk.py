"""The walk over permits of one consumer, cut anywhere, against a naive one."""

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.tap.permit_walk import (
    DELIVERY,
    EXHAUSTED_US,
    GRANT,
    RESET,
    STALL_COLUMNS,
    finish,
    new_state,
    walk,
)
from tests.naive.balance import Balance
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


def plain(rows: list[dict[str, Any]]) -> tuple[int, list[list[int]]]:
    """Time without permits and stalls (end frame, start, duration, confirmed) of the plain walk."""
    found = Balance(rows, None, SECOND, SECOND // 4)
    return found.exhausted_us, [
        [each.end_frame_no or 0, each.start_us, each.end_us - each.start_us, each.confirmed or 0]
        for each in found.stalls if each.end_us is not None
    ]  # fmt: skip


def matrix_of(rows: list[dict[str, Any]], names: tuple[str, ...]) -> Any:
    cells = [
        [0, EVENTS[row["event"]], *(NULL if row[name] is None else row[name] for name in names)]
        for row in rows
    ]
    return np.array(cells, np.int64).reshape(len(rows), 2 + len(names)).T.copy()


def walked(rows: list[dict[str, Any]], cuts: set[int] = frozenset()) -> tuple[int, Any]:
    """The same of rows that come in pieces, as the tap walks them."""
    state = new_state(1)
    found: list[list[int]] = []
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    for start, stop in itertools.pairwise(edges):
        part = rows[start:stop]
        matrix = matrix_of(part, ("delta", "available_after", "ts", "frame_no"))
        stalls = np.zeros((len(part), STALL_COLUMNS), np.int64)
        found += stalls[: walk(matrix, state, stalls, SECOND, SECOND // 4)].tolist()
    stalls = np.zeros((1, STALL_COLUMNS), np.int64)
    found += stalls[: finish(state, stalls)].tolist()
    return state[0, EXHAUSTED_US], [each[1:] for each in found]


@settings(max_examples=200)
@given(STEPS, st.sets(st.integers(1, 39), max_size=4))
def test_times_and_stalls_are_those_of_the_plain_walk(
    steps: list[tuple[str, int, int, bool]], cuts: set[int]
) -> None:
    rows = rows_of(steps)
    assert walked(rows, cuts) == plain(rows)


@settings(max_examples=200)
@given(STEPS)
def test_the_plain_walk_says_what_a_loop_over_rows_says(
    steps: list[tuple[str, int, int, bool]],
) -> None:
    rows = rows_of(steps)
    if rows:
        connection = {"connection_id": 0, "last_ts_ns": rows[-1]["ts"] * 1000}
        told = naive_permits({"permits": rows, "connections": [connection]}, is_all_observed=True)
        exhausted, stalls = plain(rows)
        assert (exhausted, sorted(each[2] for each in stalls)) == (
            told["exhausted_us"], told["stalls_us"],
        )  # fmt: skip


def test_a_stall_is_confirmed_by_a_delivery_that_follows_at_once() -> None:
    for pause, confirmed in ((100_000, 1), (400_000, 0)):
        steps = [("grant", 1, 1000, True), ("delivery", 1, 1000, True),
                 ("grant", 5, 3 * SECOND, True), ("delivery", 1, pause, True)]  # fmt: skip
        _, stalls = walked(rows_of(steps))
        assert [each[2:] for each in stalls] == [[3 * SECOND, confirmed]]


def test_silence_with_permits_left_is_no_stall() -> None:
    steps = [("grant", 5, 1000, True), ("delivery", 1, 1000, True), ("delivery", 1, 3 * SECOND,
             True)]  # fmt: skip
    assert walked(rows_of(steps)) == (0, [])


def test_a_stall_that_nothing_ends_is_open() -> None:
    steps = [("grant", 1, 1000, True), ("delivery", 1, 1000, True)]
    assert walked(rows_of(steps))[1] == []
