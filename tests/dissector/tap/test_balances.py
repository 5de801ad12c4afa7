"""Permits of consumers at one moment, and what is kept of those that are gone."""

import numpy as np

from dissector.blocks import Coded, TableBlock
from dissector.limits import NULL
from dissector.tap.balances import Balances

EVENTS = ("grant", "delivery", "reset")
KEY = ("t", "s")
SECOND = 10**9


def permits(*rows: tuple[int, str, int, int | None, int]) -> TableBlock:
    """Rows of (consumer, event, delta, available, second)."""
    columns = list(zip(*rows, strict=True))
    null = [NULL if value is None else value for value in columns[3]]
    return TableBlock(
        "permits",
        len(rows),
        {
            "connection_id": np.zeros(len(rows), np.int64),
            "consumer_id": np.array(columns[0], np.int64),
            "incarnation": np.zeros(len(rows), np.int64),
            "frame_no": np.arange(1, len(rows) + 1),
            "ts": np.array(columns[4], np.int64) * SECOND,
            "event": Coded(np.array([EVENTS.index(each) for each in columns[1]]), EVENTS),
            "delta": np.array(columns[2], np.int64),
            "available_after": np.array(null, np.int64),
            "topic": Coded(np.zeros(len(rows), np.int64), [b"t"]),
            "subscription": Coded(np.zeros(len(rows), np.int64), [b"s"]),
        },
    )


def closed(consumer: int) -> TableBlock:
    numbers = {"connection_id": 0, "consumer_id": consumer, "incarnation": 0}
    return TableBlock("consumers", 1, {name: np.array([n]) for name, n in numbers.items()})


def test_what_is_available_and_how_long_nothing_was():
    balances = Balances()
    balances.add(permits((1, "grant", 5, 5, 0), (1, "delivery", -5, 0, 1), (2, "grant", 9, 9, 1)))
    now = balances.now(4_000_000)
    assert now["available"] == {KEY: 9} and now["consumers"] == {KEY: 2}
    assert now["exhausted_us"] == {KEY: 3_000_000} and now["stalled"] == {KEY: 1}
    assert now["empty"] == {KEY: 1}
    balances.add(permits((1, "grant", 5, 5, 5), (1, "delivery", -1, 4, 5)))
    now = balances.now(9_000_000)
    assert now["available"] == {KEY: 13} and now["stalled"] == {KEY: 0}
    assert now["exhausted_us"] == {KEY: 4_000_000}
    assert balances.stalls.values == {(*KEY, "yes"): 1}
    assert balances.granted.values == {KEY: 19} and balances.delivered.values == {KEY: 6}


def test_a_consumer_that_is_gone_leaves_its_sums_and_frees_its_slot():
    balances = Balances()
    balances.add(permits((1, "grant", 5, 5, 0), (1, "delivery", -5, 0, 1)))
    balances.close(closed(1))
    # Rows of the same frames come after the consumer's own.
    balances.add(permits((1, "reset", 0, None, 3)))
    assert balances.now(8_000_000)["available"] == {}
    balances.forget()
    assert balances.now(99_000_000)["exhausted_us"] == {KEY: 2_000_000}
    balances.add(permits((2, "grant", 5, 5, 9)))
    assert balances.now(9_000_000)["available"] == {KEY: 5} and len(balances._labels) == 1


def test_a_balance_that_is_not_known_is_not_counted():
    balances = Balances()
    balances.add(permits((1, "delivery", -5, None, 1)))
    assert balances.now(5_000_000)["available"] == {}
    assert balances.delivered.values == {KEY: 5}
