"""The pool of ranges grows and keeps what it holds."""

from dissector.protocols.framing.range_pool import grown_range_pool, new_range_pool
from dissector.tables import allocate_row


def test_rows_are_added_where_they_are_wanted_and_keep_what_they_are() -> None:
    pool = new_range_pool(3)
    size = len(pool.free_ranges.rows)
    taken = [allocate_row(pool.free_ranges) for _ in range(size - 2)]
    pool.ranges.packet[taken[-1]] = 77
    pool.searches[-1, 0] = 9
    grown = grown_range_pool(pool, 2)
    assert grown.ranges is pool.ranges and grown.buffers is pool.buffers
    grown = grown_range_pool(pool, 3)
    assert len(grown.ranges.packet) == 2 * size and grown.ranges.packet[taken[-1]] == 77
    assert grown.free_ranges.free[0] == size + 2 and grown.buffers is pool.buffers
    buffers = len(pool.free_buffers.rows)
    assert len(pool.searches) == 3 * buffers
    for _ in range(buffers):
        allocate_row(grown.free_buffers)
    more = grown_range_pool(grown, 1)
    assert len(more.searches) == 6 * buffers and more.searches[3 * buffers - 1, 0] == 9
