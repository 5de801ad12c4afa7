"""The framing's memory: room for connections, and growth that loses nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.framing.slots import find_slot, give_back_slots, grown_slots, take_slot
from dissector.protocols.framing.state import (
    COUNTER_FRAME_NO,
    COUNTER_FREE_SLOTS,
    EMPTY_KEY,
    OPAQUE_NAMES,
    UNDECIDED,
    new_state,
)


@pytest.mark.parametrize("slots", [1, 4, 64])
def test_a_new_state_has_room_for_what_was_asked(slots: int) -> None:
    state = new_state(slots, 100, 5)
    taken = [take_slot(state, connection, 0, 10) for connection in range(slots + 1)]
    assert sorted(taken[:-1]) == list(range(slots)) and taken[-1] == -1
    assert len(state.arena) == 100 and state.notices.matrix.shape[1] == 5
    assert state.directions.matrix.shape[1] == 2 * slots


@given(st.lists(st.integers(0, 500), unique=True, max_size=40), st.integers(0, 3))
def test_growth_keeps_slots_counters_and_bytes(connections: list[int], removed: int) -> None:
    state = new_state(64, 10, 0)
    slots = {each: take_slot(state, each, 1, 1000 + each) for each in connections}
    for each in connections[:removed]:
        give_back_slots(state, np.array([each]))
        del slots[each]
    state.counters[COUNTER_FRAME_NO] = 99
    state.arena[:] = 7
    grown = grown_slots(state)
    assert grown.counters[COUNTER_FRAME_NO] == 99 and (grown.arena == 7).all()
    assert grown.counters[COUNTER_FREE_SLOTS] == 128 - len(slots)
    assert int((grown.slot_keys != EMPTY_KEY).sum()) == len(slots)
    for each, slot in slots.items():
        assert find_slot(grown, each) == slot
        assert grown.directions.limit[2 * slot] == 1000 + each
        assert grown.connections.connection_id[slot] == each
    free = grown.free_slots[: 128 - len(slots)].tolist()
    assert sorted([*free, *slots.values()]) == list(range(128))


def test_protocols_that_are_only_recognised_have_numbers_behind_all_places() -> None:
    assert UNDECIDED < 0 and min(OPAQUE_NAMES) >= 100
    assert sorted(OPAQUE_NAMES.values()) == ["http", "tls", "unknown"]
