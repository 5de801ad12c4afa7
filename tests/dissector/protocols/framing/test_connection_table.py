"""Rows of connections: found, reused, never mixed up, in any order of opening and closing."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.protocols.framing.connection_table import (
    allocate_connection,
    find_connection,
    grown_connections,
    release_connections,
)
from dissector.protocols.framing.state import new_state


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=200))
def test_slots_behave_like_a_dict(steps):
    state = new_state(4, 0)
    naive: dict[int, int] = {}
    for is_open, connection in steps:
        if is_open and connection not in naive:
            connection_index = allocate_connection(state, connection, 0, 0, 100)
            if connection_index < 0:
                state = grown_connections(state)
                connection_index = allocate_connection(state, connection, 0, 0, 100)
            assert connection_index not in naive.values()
            naive[connection] = int(connection_index)
        elif not is_open:
            release_connections(state, np.array([connection], np.int64))
            naive.pop(connection, None)
        for key in range(41):
            assert find_connection(state, key) == naive.get(key, -1)


def test_growing_keeps_what_is_known():
    state = new_state(2, 0)
    connection_index = allocate_connection(state, 7, 1, 0, 1234)
    state.directions.frames[2 * connection_index + 1] = 55
    state = grown_connections(state)
    assert find_connection(state, 7) == connection_index
    assert state.directions.frames[2 * connection_index + 1] == 55
    assert state.directions.limit[2 * connection_index] == 1234


def test_ids_that_rise_by_one_lie_apart_in_the_table():
    """In one cluster each search and each removal would walk along thousands."""
    state = new_state(1 << 12, 0)
    for connection in range(1 << 12):
        allocate_connection(state, connection, 0, 0, 100)
    taken = (state.connection_indexes.values >= 0).astype(np.int8)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], taken, [0]))))
    assert int(np.diff(edges)[::2].max()) <= 32
