"""Bundles of packets and segments."""

import pytest

from dissector.bundles import spread_rows
from dissector.packet.columns import PacketColumns, SegmentColumns


@pytest.mark.parametrize("rows", [256, 257, 1000, 8192, 65536])
def test_columns_lie_an_odd_number_of_cache_lines_apart(rows):
    spread = spread_rows(rows)
    assert rows <= spread < rows + 16
    assert spread % 8 == 0 and spread // 8 % 2 == 1
    assert len(PacketColumns.new(rows).offset) == len(SegmentColumns.new(rows).packet) == spread


def test_few_rows_are_as_many_as_asked() -> None:
    assert [spread_rows(rows) for rows in (0, 1, 9, 255)] == [0, 1, 9, 255]
