"""The queue against a sorted list."""

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dissector.stream.queue import queue_put, queue_remove

MEMBERS = 40


def drained(queue: np.ndarray, cells: np.ndarray) -> list[int]:
    """All members, first to last."""
    found = []
    while queue[0] > 0:
        where = int(queue[5])
        found.append(where)
        queue_remove(queue, cells, where)
    assert (cells == 0).all()
    return found


@given(st.integers(0, 1 << 32).map(random.Random))
def test_members_come_out_by_key_and_tie(generator: random.Random) -> None:
    queue = np.zeros(3 * (MEMBERS + 2), np.int64)
    cells = np.zeros(MEMBERS, np.int64)
    known: dict[int, tuple[int, int]] = {}
    for _ in range(200):
        member = generator.randrange(MEMBERS)
        if generator.random() < 0.3:
            queue_remove(queue, cells, member)
            known.pop(member, None)
        else:
            key = generator.randrange(20)
            queue_put(queue, cells, member, key, member)
            if member not in known or key < known[member][0]:
                known[member] = (key, member)
        assert queue[0] == len(known)
        for each in known:
            assert queue[3 * cells[each] + 2] == each
        if known:
            first = min(known, key=lambda each: known[each])
            assert (queue[3], queue[5]) == (known[first][0], first)
    assert drained(queue, cells) == sorted(known, key=lambda each: known[each])


def test_a_member_can_only_come_earlier() -> None:
    queue, cells = np.zeros(12, np.int64), np.zeros(2, np.int64)
    queue_put(queue, cells, 0, 10, 0)
    queue_put(queue, cells, 1, 20, 1)
    queue_put(queue, cells, 0, 30, 0)
    assert queue[3] == 10
    queue_put(queue, cells, 1, 5, 1)
    assert drained(queue, cells) == [1, 0]


def test_who_is_not_queued_cannot_be_removed() -> None:
    queue, cells = np.zeros(12, np.int64), np.zeros(2, np.int64)
    queue_remove(queue, cells, 1)
    assert queue[0] == 0
