"""The table of rows against a dictionary."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.stream.index import enter, find_value, leave

CELLS = 4
HASH = 2  # place of the hash in a row of these tests


@given(st.integers(0, 1 << 32).map(random.Random))
def test_rows_are_found_until_they_leave(generator: random.Random) -> None:
    table = np.full(64, -1, np.int64)
    cells = np.zeros(64 * CELLS, np.int64)
    # Few homes, some at the end of the table, so that clusters grow, wrap and merge.
    values = generator.sample(
        [home + 64 * n for home in (0, 1, 2, 61, 62, 63) for n in range(9)], 32
    )
    known: dict[int, int] = {}
    for _ in range(300):
        value = generator.choice(values)
        if value in known:
            leave(table, cells, HASH, known.pop(value))
        else:
            base = values.index(value) * CELLS
            cells[base + HASH] = value
            enter(table, base, value)
            known[value] = base
        for each in values:
            assert find_value(table, cells, HASH, each) == known.get(each, -1)
        assert int((table >= 0).sum()) == len(known)


def test_an_empty_table_knows_nothing() -> None:
    assert find_value(np.full(8, -1, np.int64), np.zeros(8, np.int64), 0, 5) == -1
