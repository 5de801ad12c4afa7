"""Choosing rows of blocks; the sums themselves are held against the tables in test_metrics."""

import numpy as np

from dissector.blocks import Coded, TableBlock
from dissector.limits import NULL
from dissector.tap.facts import FactSums, column, is_text, some_rows

BLOCK = TableBlock(
    "frames",
    3,
    {
        "status": Coded(np.array([0, 1, NULL]), ["complete", "malformed"]),
        "topic": ["a", None, "b"],
        "redelivery_count": np.array([0, NULL, 2]),
    },
)


def test_rows_are_chosen_with_their_texts():
    assert is_text(BLOCK, "status", "complete").tolist() == [True, False, False]
    assert not is_text(BLOCK, "no_such_column", "complete").any()
    chosen = some_rows(BLOCK, ("topic", "status"), np.array([True, False, True]))
    assert chosen.rows == 2 and chosen.columns["topic"].codes.tolist() == [0, 1]
    assert column(BLOCK, "redelivery_count").tolist() == [0, NULL, 2]
    assert column(BLOCK, "permits").tolist() == [NULL] * 3


def test_tables_without_numbers_are_passed_over():
    sums = FactSums()
    sums.add(TableBlock("messages", 1, {}))
    sums.add(TableBlock("exchanges", 0, {}))
    assert all(not counts.values for counts in sums.all_counts().values())
