"""The queue against a sorted list."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.stream.queue import Queue, grown_queue, new_queue, queue_put, queue_remove

MEMBERS = 40


def drained(queue: Queue, places: np.ndarray) -> list[int]:
    """All members, first to last."""
    rows = []
    while queue.size[0] > 0:
        row = int(queue.entries.row[1])
        rows.append(row)
        queue_remove(queue, places, row)
    assert (places == 0).all()
    return rows


@given(st.integers(0, 1 << 32).map(random.Random))
def test_members_come_out_by_key_and_tie(generator: random.Random) -> None:
    queue = grown_queue(new_queue(1), MEMBERS)
    places = np.zeros(MEMBERS, np.int64)
    known: dict[int, tuple[int, int]] = {}
    for _ in range(200):
        member = generator.randrange(MEMBERS)
        if generator.random() < 0.3:
            queue_remove(queue, places, member)
            known.pop(member, None)
        else:
            key = generator.randrange(20)
            queue_put(queue, places, member, key, member)
            if member not in known or key < known[member][0]:
                known[member] = (key, member)
        assert queue.size[0] == len(known)
        for each in known:
            assert queue.entries.row[places[each]] == each
        if known:
            first = min(known, key=lambda each: known[each])
            entries = queue.entries
            assert (entries.key[1], entries.row[1]) == (known[first][0], first)
    assert drained(queue, places) == sorted(known, key=lambda each: known[each])


def test_a_member_can_only_come_earlier() -> None:
    queue, places = new_queue(2), np.zeros(2, np.int64)
    queue_put(queue, places, 0, 10, 0)
    queue_put(queue, places, 1, 20, 1)
    queue_put(queue, places, 0, 30, 0)
    assert queue.entries.key[1] == 10
    queue_put(queue, places, 1, 5, 1)
    assert drained(queue, places) == [1, 0]


def test_who_is_not_queued_cannot_be_removed() -> None:
    queue, places = new_queue(2), np.zeros(2, np.int64)
    queue_remove(queue, places, 1)
    assert queue.size[0] == 0
