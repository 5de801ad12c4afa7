"""Columns of the view: each says something of every topic, also of one that nothing is known of."""

import pytest

from dissector.tap.view_columns import COLUMNS, TOPIC, TopicLine

TIMES = {"min": 1.0, "p50": 4.391, "p99": 15.335, "max": 20.0}
FULL = TopicLine("t", 1234.56, 1000, 2, 3, TIMES, TIMES | {"p99": 20.0}, 816, 1, 7)
EMPTY = TopicLine("t", 0.0, 0, 0, 0, {}, {}, None, None, 0)


@pytest.mark.parametrize(
    ("name", "full", "empty"),
    [
        ("rate", "1,234.6", "0.0"), ("p50", "4.4", "-"), ("p99", "15", "-"),
        ("felt", "20.000", "-"), ("sends", "1,000", "0"), ("refused", "2", "0"),
        ("permits", "816", "-"), ("empty", "1", "-"), ("again", "7", "0"), ("open", "3", "0"),
    ],
)  # fmt: skip
def test_a_cell_says_as_much_as_is_known(name, full, empty):
    assert (COLUMNS[name].cell(FULL), COLUMNS[name].cell(EMPTY)) == (full, empty)
    assert (COLUMNS[name].size(EMPTY) is None) == (empty == "-")


def test_no_column_has_the_name_of_the_last_one_and_all_are_explained():
    assert TOPIC not in COLUMNS
    assert all(column.meaning and column.head for column in COLUMNS.values())
