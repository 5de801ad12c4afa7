"""Fields that a message does not have are counted once for each span, and never without end."""

import numpy as np

from dissector.protobuf.odd_fields import (
    ODD_COUNT,
    ODD_FIELD,
    ODD_FIELDS_HERE,
    ODD_NODE,
    ODD_ROW,
    ODD_SLOTS,
    SPAN_ROOM,
    count_odd_fields,
    keep_odd_field,
    new_odd_fields,
)


def counted(*spans: list[tuple[int, int]]) -> dict[tuple[int, int], tuple[int, int]]:
    """(node, number): (count, first row); what found no room is under (-1, -1)."""
    table = new_odd_fields()
    for row, fields in enumerate(spans):
        here = np.zeros(SPAN_ROOM, np.int64)
        for node, number in fields:
            keep_odd_field(here, node, number)
        count_odd_fields(table, here, row)
    columns = table[:, :ODD_SLOTS].T.tolist()
    found = {
        (each[ODD_NODE], each[ODD_FIELD]): (each[ODD_COUNT], each[ODD_ROW])
        for each in columns
        if each[ODD_COUNT]
    }
    others = int(table[ODD_COUNT, ODD_SLOTS])
    return found | ({(-1, -1): (others, int(table[ODD_ROW, ODD_SLOTS]))} if others else {})


def test_a_field_counts_once_for_each_span() -> None:
    assert counted([(1, 9), (1, 9), (2, 9)], [], [(1, 9)]) == {(1, 9): (2, 0), (2, 9): (1, 0)}


def test_two_kinds_in_one_place_do_not_mix() -> None:
    assert counted([(0, 5)], [(0, 5 + ODD_SLOTS)], [(0, 5)]) == {(0, 5): (2, 0), (-1, -1): (1, 1)}


def test_of_one_span_so_many_are_kept() -> None:
    here = np.zeros(SPAN_ROOM, np.int64)
    for number in range(1000):
        keep_odd_field(here, 0, number)
    assert here[ODD_FIELDS_HERE] == (SPAN_ROOM - 1) // 2
