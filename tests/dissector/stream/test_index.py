"""The table of rows against a dictionary."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.stream.index import enter, find_row, leave, new_index


@given(st.integers(0, 1 << 32).map(random.Random))
def test_rows_are_found_until_they_leave(generator: random.Random) -> None:
    table = np.full(64, -1, np.int64)
    hashes = np.zeros(64, np.int64)
    # Few homes, some at the end of the table, so that clusters grow, wrap and merge.
    values = generator.sample(
        [home + 64 * n for home in (0, 1, 2, 61, 62, 63) for n in range(9)], 32
    )
    known: dict[int, int] = {}
    for step in range(300):
        value = generator.choice(values)
        if value in known:
            leave(table, hashes, known.pop(value))
        else:
            row = values.index(value)
            hashes[row] = value
            enter(table, hashes, row)
            known[value] = row
        # What is lost stays lost: to look for all of them each time found no more.
        for each in values if step % 4 == 0 else (value,):
            assert find_row(table, hashes, each, each) == known.get(each, -1)
        assert int((table >= 0).sum()) == len(known)
    larger = new_index(hashes, table[table >= 0], 256)
    assert {each: find_row(larger, hashes, each, each) for each in known} == known


def test_an_empty_table_knows_nothing() -> None:
    assert find_row(np.full(8, -1, np.int64), np.zeros(8, np.int64), 5, 5) == -1
