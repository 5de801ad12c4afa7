"""Permits said in SQL: by chance, against a plain walk, and cases known by hand."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.report.sections.permit_utilization import CONFIRM_US, STALL_US
from tests.dissector.queries.query_engine import QueryEngine, Row
from tests.naive.balance import Balance

SECOND = 1_000_000
EVENTS = ("delivery", "grant", "reset")  # in the order in which one frame has them
WHO = ("connection_id", "consumer_id", "incarnation")
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
    """Numbers and stalls of consumers as the plain walk finds them."""
    found = [
        Balance(rows, end_us, STALL_US, CONFIRM_US)
        for rows, end_us in zip(consumers, ends_us, strict=True)
    ]
    listed = [
        {"slot": slot, "start_frame_no": each.start_frame_no, "end_frame_no": each.end_frame_no,
         "start_us": each.start_us,
         "stall_us": (one.closed_us if each.end_us is None else each.end_us) - each.start_us,
         "confirmed": each.confirmed}
        for slot, one in enumerate(found) for each in one.stalls
    ]  # fmt: skip
    return [one.numbers() for one in found], listed


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
            assert {name: row[name] or 0 for name in one} == {
                name: value or 0 for name, value in one.items()
            }
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
