"""The framing's memory: room for connections, and growth that loses nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.framing.connection_table import (
    allocate_slot,
    find_slot,
    grown_slots,
    release_slots,
)
from dissector.protocols.framing.state import (
    COUNTER_FRAME_NO,
    OPAQUE_NAMES,
    UNDECIDED,
    new_state,
)
from dissector.tables import TAKEN


@pytest.mark.parametrize("slots", [1, 4, 64])
def test_a_new_state_has_room_for_what_was_asked(slots: int) -> None:
    state = new_state(slots, 100)
    taken = [allocate_slot(state, connection, 0, 0, 10) for connection in range(slots + 1)]
    assert sorted(taken[:-1]) == list(range(slots)) and taken[-1] == -1
    assert len(state.arena) == 100
    assert state.flows.matrix.shape[1] == 2 * slots


@given(st.lists(st.integers(0, 500), unique=True, max_size=40), st.integers(0, 3))
def test_growth_keeps_slots_counters_and_bytes(connections: list[int], removed: int) -> None:
    state = new_state(64, 10)
    slots = {each: allocate_slot(state, each, 0, 0, 1000 + each) for each in connections}
    for each in connections[:removed]:
        release_slots(state, np.array([each]))
        del slots[each]
    state.counters[COUNTER_FRAME_NO] = 99
    state.arena[:] = 7
    grown = grown_slots(state)
    assert grown.counters[COUNTER_FRAME_NO] == 99 and (grown.arena == 7).all()
    free = int(grown.free_slots.free[0])
    assert free == 128 - len(slots) and int(grown.slots.counts[TAKEN]) == len(slots)
    for each, slot in slots.items():
        assert find_slot(grown, each) == slot
        assert grown.flows.limit[2 * slot] == 1000 + each
        assert grown.connections.connection_id[slot] == each
    left = grown.free_slots.rows[:free].tolist()
    assert sorted([*left, *slots.values()]) == list(range(128))


def test_protocols_that_are_only_recognised_have_numbers_above_all_indexes() -> None:
    assert UNDECIDED < 0 and min(OPAQUE_NAMES) >= 100
    assert sorted(OPAQUE_NAMES.values()) == ["http", "tls", "unknown"]
