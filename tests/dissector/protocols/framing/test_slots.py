"""Slots of connections: found, reused, never mixed up, in any order of opening and closing."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.protocols.framing.slots import find_slot, give_back_slots, grown_slots, take_slot
from dissector.protocols.framing.state import new_state


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=200))
def test_slots_behave_like_a_dict(steps):
    state = new_state(4, 0, 0)
    naive: dict[int, int] = {}
    for is_open, connection in steps:
        if is_open and connection not in naive:
            slot = take_slot(state, connection, 1, 100)
            if slot < 0:
                state = grown_slots(state)
                slot = take_slot(state, connection, 1, 100)
            assert slot not in naive.values()
            naive[connection] = int(slot)
        elif not is_open:
            give_back_slots(state, np.array([connection], np.int64))
            naive.pop(connection, None)
        for key in range(41):
            assert find_slot(state, key) == naive.get(key, -1)


def test_growing_keeps_what_is_known():
    state = new_state(2, 0, 0)
    slot = take_slot(state, 7, 1, 1234)
    state.directions.frames[2 * slot + 1] = 55
    state = grown_slots(state)
    assert find_slot(state, 7) == slot
    assert state.directions.frames[2 * slot + 1] == 55
    assert state.directions.limit[2 * slot] == 1234
