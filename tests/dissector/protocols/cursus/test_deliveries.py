"""Positions of groups: what they fetch, what waits for a commit, and what a commit closes."""

import numpy as np

from dissector.limits import NULL
from dissector.protocols.cursus.deliveries import (
    LARGEST,
    Commit,
    OpenDeliveries,
    extend_fetched,
    extends_top,
    handle_commit,
    open_delivery,
    see_client,
)
from dissector.protocols.cursus.rows import DELIVERY_COLUMNS
from dissector.schemas.enums import (
    DELIVERY_CONN_CLOSED,
    UNACKED_AT_END,
    UNKNOWN_GAP,
    UNRESOLVED_AT_LIMIT,
)
from dissector.tables import ABSENT, allocate_row, find


def deliver(opened: OpenDeliveries, position: int, first: int, last: int) -> bool:
    """Deliver offsets that go on at a position; False if they do not."""
    opened.reserve(1)
    state = opened.state
    if position == ABSENT or not extends_top(state, position, first, last, 200):
        return False
    which = allocate_row(state.free)
    state.deliveries.matrix[which] = NULL
    names = ("connection_id", "frame_no", "ts", "entry_id", "last_offset", "message_count", "next")
    for name, value in zip(names, (1, first, 200, first, last, last - first + 1, ABSENT),
                           strict=True):  # fmt: skip
        getattr(state.deliveries, name)[which] = value
    extend_fetched(state, position, first, last)
    open_delivery(state, position, which, True, 7)
    return True


def closed(opened: OpenDeliveries) -> dict[str, list[int]]:
    return dict(zip(DELIVERY_COLUMNS, opened.drain_closed().tolist(), strict=True))


def test_only_offsets_above_the_fetched_ones_go_on():
    opened = OpenDeliveries(1 << 10)
    position = opened.new_position(3, 5, 0)
    by_position = opened.state.by_position
    assert find(by_position, 3, 5, 0, 0) == position and find(by_position, 3, 5, 1, 0) == ABSENT
    assert deliver(opened, position, 0, 9) and deliver(opened, position, 10, 19)
    assert not deliver(opened, position, 19, 20) and not deliver(opened, position, 20, 19)
    assert not deliver(opened, position, 20, LARGEST) and not deliver(opened, ABSENT, 20, 21)
    assert deliver(opened, position, 30, 39), "a hole is no step back"
    assert opened.drain_runs() == [[position, 0, 20]] and opened.drain_runs() == []
    positions = opened.state.positions
    assert (positions.run_first[position], positions.top[position]) == (30, 40)
    assert opened.open == positions.length[position] == 3 and positions.last_row[position] == 7


def test_a_commit_closes_what_is_below_it():
    opened = OpenDeliveries(1 << 10)
    position = opened.new_position(3, 5, 0)
    for first in (0, 10, 20):
        deliver(opened, position, first, first + 9)
    handle_commit(opened.state, position, Commit(25, 99, 300, 12))
    rows = closed(opened)
    assert rows["frame_no"] == [0, 10] and rows["closing_row"] == [12, 12]
    assert rows["ack_latency_ns"] == [100, 100] and rows["messages_acked"] == [10, 10]
    handle_commit(opened.state, position, Commit(25, 99, 300, 13))
    opened.close(opened.unlinked(position, 0, LARGEST), UNACKED_AT_END, 14)
    rows = closed(opened)
    assert (rows["frame_no"], rows["messages_acked"], rows["ack_frame_no"]) == ([20], [5], [NULL])
    assert opened.open == 0 and np.all(opened.state.positions.length == 0)


def test_what_becomes_of_deliveries_of_a_client_that_was_not_captured_is_unknown():
    opened = OpenDeliveries(1 << 10)
    position = opened.new_position(3, 5, 0)
    opened.note_one_way(1)
    opened.close_connection(1)
    for outcome, told in (
        (UNACKED_AT_END, (UNKNOWN_GAP, NULL)), (UNRESOLVED_AT_LIMIT, (UNRESOLVED_AT_LIMIT, NULL)),
    ):  # fmt: skip
        first = int(opened.state.positions.top[position])
        deliver(opened, position, first, first + 9)
        opened.close(opened.unlinked(position, 0, LARGEST), outcome, 14)
        rows = closed(opened)
        assert (rows["outcome"], rows["messages_acked"]) == ([told[0]], [told[1]])
    see_client(opened.state, 1)
    deliver(opened, position, 20, 29)
    opened.close(opened.unlinked(position, 0, LARGEST), UNACKED_AT_END, 14)
    assert closed(opened)["outcome"] == [DELIVERY_CONN_CLOSED]


def test_out_of_order_a_commit_looks_at_all_that_is_open():
    opened = OpenDeliveries(1 << 10)
    position = opened.new_position(3, 5, 0)
    deliver(opened, position, 20, 29)
    opened.state.positions.top[position] = 0  # as after a step back
    deliver(opened, position, 5, 9)
    assert opened.state.positions.is_mixed[position] == 1
    handle_commit(opened.state, position, Commit(10, 99, 300, 12))
    assert closed(opened)["entry_id"] == [5] and opened.open == 1
    assert opened.unlinked(position, 0, 19).tolist() == []
    assert len(opened.unlinked(position, 29, 40)) == 1 and opened.open == 0


def test_what_comes_late_or_is_too_much_does_not_go_on():
    opened = OpenDeliveries(2)
    position = opened.new_position(3, 5, 0)
    assert deliver(opened, position, 0, 9) and deliver(opened, position, 10, 11)
    assert not deliver(opened, position, 12, 13)
    handle_commit(opened.state, position, Commit(1000, 5, 500, 1))
    assert not deliver(opened, position, 12, 13), "committed before it was seen"
    opened.drop_position(position)
    assert find(opened.state.by_position, 3, 5, 0, 0) == ABSENT
    assert opened.new_position(3, 6, 0) == position, "its record is used again"
    assert opened.state.positions.top[position] == 0
