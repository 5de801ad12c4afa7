"""The framing's memory: room for connections, and growth that loses nothing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.protocols.framing.connection_table import (
    allocate_connection,
    find_connection,
    grown_connections,
    release_connections,
)
from dissector.protocols.framing.state import (
    COUNTER_FRAME_NO,
    OPAQUE_NAMES,
    UNDECIDED,
    new_state,
)
from dissector.tables import TAKEN


@pytest.mark.parametrize("connection_indexes", [1, 4, 64])
def test_a_new_state_has_room_for_what_was_asked(connection_indexes: int) -> None:
    state = new_state(connection_indexes, 100)
    taken = [
        allocate_connection(state, connection, 0, 0, 10)
        for connection in range(connection_indexes + 1)
    ]
    assert sorted(taken[:-1]) == list(range(connection_indexes)) and taken[-1] == -1
    assert len(state.arena) == 100
    assert state.directions.matrix.shape[1] == 2 * connection_indexes


@given(st.lists(st.integers(0, 500), unique=True, max_size=40), st.integers(0, 3))
def test_growth_keeps_slots_counters_and_bytes(connections: list[int], removed: int) -> None:
    state = new_state(64, 10)
    connection_indexes = {
        each: allocate_connection(state, each, 0, 0, 1000 + each) for each in connections
    }
    for each in connections[:removed]:
        release_connections(state, np.array([each]))
        del connection_indexes[each]
    state.counters[COUNTER_FRAME_NO] = 99
    state.arena[:] = 7
    grown = grown_connections(state)
    assert grown.counters[COUNTER_FRAME_NO] == 99 and (grown.arena == 7).all()
    free = int(grown.free_connections.free[0])
    assert free == 128 - len(connection_indexes) and int(
        grown.connection_indexes.counts[TAKEN]
    ) == len(connection_indexes)
    for each, connection_index in connection_indexes.items():
        assert find_connection(grown, each) == connection_index
        assert grown.directions.limit[2 * connection_index] == 1000 + each
        assert grown.connections.connection_id[connection_index] == each
    left = grown.free_connections.rows[:free].tolist()
    assert sorted([*left, *connection_indexes.values()]) == list(range(128))


def test_protocols_that_are_only_recognised_have_numbers_above_all_indexes() -> None:
    assert UNDECIDED < 0 and min(OPAQUE_NAMES) >= 100
    assert sorted(OPAQUE_NAMES.values()) == ["http", "tls", "unknown"]
