"""Rows that are handed out and kept in lists, against Python's own lists."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.protocols.pulsar.consumption.records import (
    FREE,
    STOCK_COUNTERS,
    USED,
    give_row,
    has_row,
    take_row,
)
from dissector.protocols.pulsar.consumption.state import Deliveries
from dissector.protocols.tables import ABSENT, Ends, list_append, list_unlink, new_ends

ROWS = 8


def listed(owners: Ends, rows: Deliveries, owner: int) -> list[int]:
    """The rows of an owner, forwards; backwards they are the same."""
    found, row = [], int(owners.first[owner])
    while row != ABSENT:
        found.append(row)
        row = int(rows.next[row])
    back, row = [], int(owners.last[owner])
    while row != ABSENT:
        back.append(row)
        row = int(rows.previous[row])
    assert back == found[::-1] and len(found) == owners.length[owner]
    return found


@settings(max_examples=100)
@given(st.lists(st.tuples(st.sampled_from(("take", "give")), st.integers(0, 1), st.integers(0, 9))))
def test_lists_of_rows(steps: list[tuple[str, int, int]]) -> None:
    rows = Deliveries.new(ROWS)
    owners = new_ends(2)
    counters = np.zeros(STOCK_COUNTERS, np.int64)
    counters[FREE] = ABSENT
    naive: list[list[int]] = [[], []]
    for what, owner, number in steps:
        in_use = naive[0] + naive[1]
        assert has_row(rows, counters, 0) == (len(in_use) < ROWS)
        if what == "take":
            row = take_row(rows, counters, 0)
            if len(in_use) == ROWS:
                assert row == ABSENT
                continue
            assert 0 <= row < ROWS and row not in in_use
            list_append(owners, rows, owner, row)
            naive[owner].append(row)
        elif naive[owner]:
            row = naive[owner].pop(number % len(naive[owner]))
            list_unlink(owners, rows, owner, row)
            give_row(rows, counters, 0, row)
        assert [listed(owners, rows, each) for each in (0, 1)] == naive
        assert counters[USED] == len(naive[0]) + len(naive[1])
