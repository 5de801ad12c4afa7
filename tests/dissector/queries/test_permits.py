"""Permits said in SQL: by chance, against a plain walk, and cases known by hand."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NULL
from dissector.report.sections.permit_utilization import CONFIRM_US, STALL_US
from tests.dissector.queries.query_engine import QueryEngine, Row
from tests.naive import balance

SECOND = 1_000_000
EVENTS = ("delivery", "grant", "reset")  # in the order in which one frame has them
WALKED = {"delivery": balance.DELIVERY, "grant": balance.GRANT, "reset": balance.RESET}
WHO = ("connection_id", "consumer_id", "incarnation")
# The same numbers as the walk and the query name them.
SUMS = {
    name: name
    for name in balance.RESULTS
    if name not in ("open_stall_frame", "open_stall_start_us", "quiets", "quiet_max_us")
} | {"quiets": "quiet", "quiet_max_us": "quiet_us_max"}
CHANGE = st.tuples(
    st.sampled_from(("grant", "grant", "delivery", "delivery", "delivery", "reset")),
    st.one_of(st.none(), st.integers(0, 4)),  # of the permits that it adds or takes
    st.sampled_from((0, 1000, CONFIRM_US, CONFIRM_US + 1, SECOND, 3 * SECOND, -SECOND // 2)),
    st.sampled_from((True, True, True, False)),  # whether the balance is known
    st.one_of(st.none(), st.integers(-3, 3), st.none()),  # a balance that comes from nowhere
)
CONSUMER = st.tuples(st.lists(CHANGE, max_size=30), st.integers(-2, 5), st.booleans())


@pytest.fixture(scope="module")
def db() -> QueryEngine:
    return QueryEngine()


def rows_of(consumer: int, changes: list[Any]) -> list[Row]:
    """Rows of a consumer, in their order."""
    rows = []
    at_us, available = 100 * SECOND, 0
    for number, (event, count, pause, is_known, nowhere) in enumerate(changes):
        at_us += pause
        delta = None if event == "reset" or count is None else -count
        delta = -delta if event == "grant" and delta is not None else delta
        available = 0 if event == "reset" else available + (delta or 0)
        available = available if nowhere is None else nowhere
        rows.append(
            {"connection_id": consumer // 2, "consumer_id": consumer % 2, "incarnation": 0,
             "event": event, "delta": delta, "available_after": available if is_known else None,
             "unacked_after": count, "ts": at_us, "frame_no": 3 * number + consumer,
             "topic": "t", "subscription": "s"}
        )  # fmt: skip
    if rows and rows[-1]["event"] == "reset" and consumer % 3 == 0:
        rows[-1]["frame_no"] = None  # by the end of its connection
    return rows


def walked(consumers: list[list[Row]], ends_us: list[int | None]) -> tuple[list[Row], list[Row]]:
    """Numbers and stalls of consumers as the tap's walk finds them."""
    state = balance.new_state(len(consumers))
    numbers = ("delta", "available_after", "unacked_after", "ts", "frame_no")
    rows = [(slot, row) for slot, rows in enumerate(consumers) for row in rows]
    matrix = np.array(
        [
            [slot, WALKED[row["event"]]]
            + [NULL if row[name] is None else row[name] for name in numbers]
            for slot, row in rows
        ], np.int64,
    ).reshape(len(rows), balance.INPUTS).T.copy()  # fmt: skip
    stalls = np.zeros((len(rows) + 1, balance.STALL_COLUMNS), np.int64)
    count = balance.walk(matrix, state, stalls, STALL_US, CONFIRM_US)
    last = np.zeros((len(consumers), balance.STALL_COLUMNS), np.int64)
    ends = np.array([NULL if end is None else end for end in ends_us], np.int64)
    found = np.concatenate((stalls[:count], last[: balance.finish(state, ends, last, STALL_US)]))
    results = [dict(zip(balance.RESULTS, one.tolist(), strict=False)) for one in state]
    names = ("slot", "start_frame_no", "end_frame_no", "start_us", "stall_us", "confirmed")
    listed = [dict(zip(names, one.tolist(), strict=True)) for one in found]
    for slot, one in enumerate(results):
        if one["open_stall_us"]:
            listed.append(
                {"slot": slot, "start_frame_no": one["open_stall_frame"], "end_frame_no": None,
                 "start_us": one["open_stall_start_us"], "stall_us": one["open_stall_us"],
                 "confirmed": None}
            )  # fmt: skip
    return results, listed


def tables_of(consumers: list[list[Row]], ends_us: list[int | None]) -> dict[str, list[Row]]:
    """Their rows in any order, and when each consumer was closed."""
    rows = [row for one in consumers for row in one]
    random.Random(len(rows)).shuffle(rows)
    frames = [
        {"connection_id": n // 2, "frame_no": 10_000 + n, "ts": end}
        for n, end in enumerate(ends_us) if end is not None
    ]  # fmt: skip
    closed = [
        {"connection_id": n // 2, "consumer_id": n % 2, "incarnation": 0,
         "closed_frame_no": None if end is None else 10_000 + n, "name": f"c-{n}"}
        for n, end in enumerate(ends_us)
    ]  # fmt: skip
    return {"permits": rows, "frames": frames, "consumers": closed}


@settings(max_examples=20, deadline=None)
@given(st.lists(CONSUMER, min_size=1, max_size=8))
def test_numbers_and_stalls_are_those_of_the_walk(db: QueryEngine, given: list[Any]) -> None:
    consumers = [rows_of(number, changes) for number, (changes, _, _) in enumerate(given)]
    ends_us = [
        (rows[-1]["ts"] if rows else 0) + after * SECOND if is_closed else None
        for rows, (_, after, is_closed) in zip(consumers, given, strict=True)
    ]
    db.give(tables_of(consumers, ends_us))
    results, stalls = walked(consumers, ends_us)
    found = {tuple(row[name] for name in WHO): row for row in db.per_capture("consumers")}
    assert len(found) == sum(bool(rows) for rows in consumers)
    for number, (rows, one) in enumerate(zip(consumers, results, strict=True)):
        if rows:
            row = found[number // 2, number % 2, 0]
            mine = {name: row[there] or 0 for name, there in SUMS.items()}
            assert mine == {name: 0 if one[name] == NULL else one[name] for name in SUMS}
            of_walk = [each for each in stalls if each["slot"] == number]
            for confirmed, kind in ((1, "confirmed"), (0, "unconfirmed"), (None, "open_stall")):
                times = [e["stall_us"] for e in of_walk if e["confirmed"] == confirmed]
                assert (row[kind] or 0, row[f"{kind}_us"] or 0) == (len(times), sum(times))
                assert (row[f"{kind}_us_max"] or 0) == max(times, default=0)
    listed = [
        {"slot": 2 * row["connection_id"] + row["consumer_id"],
         **{name: row[name] for name in ("start_frame_no", "end_frame_no", "start_us", "stall_us")},
         "confirmed": None if row["confirmed"] is None else int(row["confirmed"])}
        for row in db.per_capture("stalls")
    ]  # fmt: skip
    assert sorted(map(repr, listed)) == sorted(map(repr, stalls)) or len(stalls) > 50
