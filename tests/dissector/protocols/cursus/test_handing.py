"""Places of groups that go straight on: handed out, committed, given and taken back."""

import numpy as np

from dissector.limits import NULL
from dissector.protocols.cursus.groups import Delivery, Position
from dissector.protocols.cursus.handing import Commit, Handing, can_hand, hand
from dissector.protocols.cursus.rows import DeliveryColumns


def place_with(handing: Handing, *, first: int = 0, last: int = 9) -> int:
    """A place whose last delivery is open."""
    delivery = Delivery(1, 1, 100, 5, 0, 3, 4, first, last, last - first + 1)
    position = Position(last=delivery)
    position.seen.add(first, last)
    position.open.append(delivery)
    place = handing.new_place(3, 5, 0)
    assert handing.give(place, position, position.seen.top())
    return place


def give_out(handing: Handing, place: int, first: int, last: int) -> bool:
    handing.make_room(1)
    if not can_hand(handing.state, place, first, last, 200):
        return False
    which = hand(handing.state, place, first, last, 7)
    handing.state.handed.frame_no[which] = first
    handing.state.handed.count[which] = last - first + 1
    handing.state.handed.ts[which] = 200
    handing.state.handed.published_ns[which] = NULL
    return True


def test_only_what_goes_straight_on_is_handed_out():
    handing = Handing(1 << 10)
    place = place_with(handing)
    assert handing.place_of(3, 5, 0) == place and handing.place_of(3, 5, 1) == -1
    assert give_out(handing, place, 10, 19) and not give_out(handing, place, 19, 20)
    assert not give_out(handing, place, 20, 19) and not give_out(handing, -1, 20, 21)
    assert give_out(handing, place, 30, 39), "a hole is no step back"
    assert handing.take_runs() == [[place, 0, 20]] and handing.take_runs() == []
    assert handing.open == 2 and handing.length(place) == 3
    straight = handing.take(place)
    assert [(each.first, each.last) for each in straight.open] == [(0, 9), (10, 19), (30, 39)]
    assert (straight.run_first, straight.top, straight.last_row) == (30, 40, 7)
    assert not give_out(handing, place, 40, 41), "the rules have it"


def test_commits_close_what_is_below_them():
    handing = Handing(1 << 10)
    place = place_with(handing)
    for first in (10, 20):
        give_out(handing, place, first, first + 9)
    rows = DeliveryColumns.new(8, NULL)
    assert handing.commit(place, Commit(25, 99, 300, 12), rows, 0) == 2
    assert rows.frame_no[:2].tolist() == [1, 10] and rows.closing_row[:2].tolist() == [12, 12]
    assert rows.ack_latency_ns[:2].tolist() == [200, 100]
    assert handing.commit(place, Commit(25, 99, 300, 13), rows, 2) == 2
    (left,) = handing.take(place).open
    assert (left.first, left.acked, left.ack_frame_no, left.ack_ns) == (20, 5, 99, 300)


def test_what_comes_late_or_is_too_much_is_for_the_rules():
    handing = Handing(2)
    place = place_with(handing)
    handing.add_open(1)
    assert give_out(handing, place, 10, 11) and not give_out(handing, place, 12, 13)
    handing.add_open(-1)
    rows = DeliveryColumns.new(8, NULL)
    handing.commit(place, Commit(1000, 5, 500, 1), rows, 0)
    assert not give_out(handing, place, 12, 13), "committed before it was seen"
    handing.drop_place(place)
    assert handing.place_of(3, 5, 0) == -1
    assert handing.new_place(3, 6, 0) == place, "its record is used again"
    assert np.all(handing.state.spots.matrix[place, 3:] == 0)
