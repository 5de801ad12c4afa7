"""Permits of consumers over windows: what they have now, and the sums of a walk over all rows."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.blocks import Coded, TableBlock
from dissector.limits import NULL
from dissector.tap import balances as module
from dissector.tap.balances import Balances, Stall
from dissector.tap.sums import Sums
from dissector.tap.window_tables import as_tables
from dissector.tap.windows import Window
from tests.naive.balance import Balance

EVENTS = ("grant", "delivery", "reset")
KEY = ("t", "s")
SECOND = 1_000_000
_SUMS = Sums(is_of_permits=True)  # its database is made once
Row = tuple[int, str, int | None, int | None, int]


def permits(rows: Sequence[Row], first_frame_no: int = 1) -> TableBlock:
    """Rows of (consumer, event, delta, available, µs)."""
    columns = list(zip(*rows, strict=True))
    filled = [[NULL if value is None else value for value in column] for column in columns[2:4]]
    zeros = np.zeros(len(rows), np.int64)
    return TableBlock(
        "permits",
        len(rows),
        {
            "connection_id": zeros,
            "consumer_id": np.array(columns[0], np.int64),
            "incarnation": zeros,
            "frame_no": np.arange(first_frame_no, first_frame_no + len(rows)),
            "ts": np.array(columns[4], np.int64) * 1000,
            "event": Coded(np.array([EVENTS.index(each) for each in columns[1]]), EVENTS),
            "delta": np.array(filled[0], np.int64),
            "available_after": np.array(filled[1], np.int64),
            "topic": Coded(zeros, [b"t"]),
            "subscription": Coded(zeros, [b"s"]),
        },
    )


def closed(consumer: int) -> TableBlock:
    numbers = {"connection_id": 0, "consumer_id": consumer, "incarnation": 0}
    return TableBlock("consumers", 1, {name: np.array([n]) for name, n in numbers.items()})


def sums() -> Sums:
    _SUMS.balances = Balances()
    return _SUMS


def take(found: Sums, *blocks: TableBlock, is_end: bool = False) -> Balances:
    """Count a window."""
    window = Window("run", None, 1, 0, is_end=is_end)
    found.take(window, as_tables(blocks, "run", found.columns))
    return found.balances


def seconds(*rows: Row) -> list[Row]:
    return [(*row[:4], row[4] * SECOND) for row in rows]


def test_what_is_available_and_how_long_nothing_was():
    found = sums()
    first = [(1, "grant", 5, 5, 0), (1, "delivery", -5, 0, 1), (2, "grant", 9, 9, 1)]
    balances = take(found, permits(seconds(*first)))
    now = balances.now(4 * SECOND)
    assert now["available"] == {KEY: 9} and now["consumers"] == {KEY: 2}
    assert now["exhausted_us"] == {KEY: 3 * SECOND} and now["stalled"] == {KEY: 1}
    assert now["empty"] == {KEY: 1}
    take(found, permits(seconds((1, "grant", 5, 5, 5)), 4))
    assert balances.stalls.values == {}, "nobody knows yet whether messages waited"
    assert balances.drain_stalls() == [Stall(0, 1, 4, SECOND, 4 * SECOND)]
    take(found, permits(seconds((1, "delivery", -1, 4, 5)), 5))
    now = balances.now(9 * SECOND)
    assert now["available"] == {KEY: 13} and now["stalled"] == {KEY: 0}
    assert now["exhausted_us"] == {KEY: 4 * SECOND}
    assert balances.stalls.values == {(*KEY, "yes"): 1} and not balances.drain_stalls()
    assert balances.granted.values == {KEY: 19} and balances.delivered.values == {KEY: 6}


def test_a_consumer_that_is_gone_leaves_its_sums():
    found = sums()
    balances = take(
        found, permits(seconds((1, "grant", 5, 5, 0), (1, "delivery", -5, 0, 1))), closed(1)
    )
    assert balances.now(8 * SECOND)["available"] == {}
    # Rows of the same frames may come after the consumer's own.
    take(found, permits(seconds((1, "reset", None, None, 3)), 3))
    take(found, permits(seconds((2, "grant", 5, 5, 9)), 4))
    assert balances.now(99 * SECOND)["exhausted_us"] == {KEY: 2 * SECOND}
    assert balances.now(9 * SECOND)["available"] == {KEY: 5} and len(balances._open) == 1


def test_a_stall_that_nothing_confirmed_counts_when_its_consumer_is_gone():
    found = sums()
    rows = seconds((1, "grant", 1, 1, 0), (1, "delivery", -1, 0, 1), (1, "grant", 1, 1, 5))
    balances = take(found, permits(rows))
    assert balances.stalls.values == {}
    take(found, closed(1), is_end=True)
    assert balances.stalls.values == {(*KEY, "no"): 1} and not balances._open


def test_a_balance_that_is_not_known_is_not_counted():
    balances = take(sums(), permits(seconds((1, "delivery", -5, None, 1))))
    assert balances.now(5 * SECOND)["available"] == {}
    assert balances.delivered.values == {KEY: 5}


def test_more_consumers_than_can_be_followed_are_counted(monkeypatch):
    monkeypatch.setattr(module, "MAX_FOLLOWED_CONSUMERS", 1)
    rows = seconds((1, "grant", 5, 5, 0), (2, "grant", 5, 5, 0))
    balances = take(sums(), permits(rows))
    assert balances.left_out == 1 and balances.now(0)["consumers"] == {KEY: 1}
    assert balances.granted.values == {KEY: 10}


STEPS = st.lists(
    st.tuples(
        st.sampled_from(("grant", "grant", "delivery", "delivery", "delivery", "reset")),
        st.integers(0, 5),
        st.sampled_from((1000, 100_000, SECOND, 3 * SECOND)),
        st.booleans(),
        st.booleans(),  # a window ends behind it
    ),
    max_size=14,
)


def rows_of(steps: list[tuple[str, int, int, bool, bool]]) -> list[dict[str, Any]]:
    """Rows of `permits` of one consumer; the balance is sometimes not known."""
    rows = []
    at, available = 0, 0
    for frame_no, (event, number, pause, is_known, _) in enumerate(steps):
        at += pause
        delta = {"grant": number, "delivery": -number, "reset": None}[event]
        available = 0 if delta is None else available + delta
        rows.append(
            {"event": event, "delta": delta, "unacked_after": number, "ts": at,
             "available_after": available if is_known or frame_no > 5 else None,
             "frame_no": frame_no}
        )  # fmt: skip
    return rows


@given(STEPS)
@settings(max_examples=12)
def test_windows_cut_anywhere_give_what_a_walk_over_all_rows_gives(steps):
    rows = rows_of(steps)
    wanted = Balance(rows, None, SECOND, SECOND // 4)
    found, window, first = sums(), [], 0
    for row, step in zip(rows, steps, strict=True):
        cells = (row["event"], row["delta"], row["available_after"], row["ts"])
        window.append((1, *cells))
        if step[-1]:
            take(found, permits(window, first))
            first, window = first + len(window), []
    balances = take(found, *([permits(window, first)] if window else []), closed(1), is_end=True)
    ended = [each for each in wanted.stalls if each.end_us is not None]
    assert balances._exhausted_us.values.get(KEY, 0) == wanted.exhausted_us
    for confirmed, name in ((1, "yes"), (0, "no")):
        count = sum((each.confirmed or 0) == confirmed for each in ended)
        assert balances.stalls.values.get((*KEY, name), 0) == count
    assert [(each.end_frame_no, each.duration_us) for each in balances.drain_stalls()] == [
        (each.end_frame_no or 0, each.end_us - each.start_us) for each in ended
    ]
    granted = sum(row["delta"] for row in rows if row["event"] == "grant")
    assert balances.granted.values.get(KEY, 0) == granted
