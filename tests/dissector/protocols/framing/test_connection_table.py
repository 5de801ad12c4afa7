"""Slots of connections: found, reused, never mixed up, in any order of opening and closing."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.protocols.framing.connection_table import (
    allocate_slot,
    find_slot,
    grown_slots,
    release_slots,
)
from dissector.protocols.framing.state import new_state


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=200))
def test_slots_behave_like_a_dict(steps):
    state = new_state(4, 0)
    naive: dict[int, int] = {}
    for is_open, connection in steps:
        if is_open and connection not in naive:
            slot = allocate_slot(state, connection, 0, 0, 100)
            if slot < 0:
                state = grown_slots(state)
                slot = allocate_slot(state, connection, 0, 0, 100)
            assert slot not in naive.values()
            naive[connection] = int(slot)
        elif not is_open:
            release_slots(state, np.array([connection], np.int64))
            naive.pop(connection, None)
        for key in range(41):
            assert find_slot(state, key) == naive.get(key, -1)


def test_growing_keeps_what_is_known():
    state = new_state(2, 0)
    slot = allocate_slot(state, 7, 1, 0, 1234)
    state.flows.frames[2 * slot + 1] = 55
    state = grown_slots(state)
    assert find_slot(state, 7) == slot
    assert state.flows.frames[2 * slot + 1] == 55
    assert state.flows.limit[2 * slot] == 1234


def test_ids_that_rise_by_one_lie_apart_in_the_table():
    """In one cluster each search and each removal would walk along thousands."""
    state = new_state(1 << 12, 0)
    for connection in range(1 << 12):
        allocate_slot(state, connection, 0, 0, 100)
    taken = (state.slots.values >= 0).astype(np.int8)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], taken, [0]))))
    assert int(np.diff(edges)[::2].max()) <= 32
