"""Kernels that keep track of connections, their directions and their groups of requests."""

from dissector import tables
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import EVENT_GAP, EVENT_SKIPPED, FrameColumns
from dissector.protocols.pulsar.exchanges import state as exchanges_state
from dissector.protocols.pulsar.exchanges.rows import PassContext, given_up, write_unanswered
from dissector.protocols.pulsar.exchanges.state import ExchangeState


@inlined
def connection_of(state: ExchangeState, connection_id: int) -> int:
    """The row of a connection, made if it has none."""
    glance = int(connection_id) & (exchanges_state.RECENT - 1)
    row = state.recent_connections[glance]
    if state.connections.connection_id[row] == connection_id:
        return int(row)
    row = _find_connection(state, connection_id)
    state.recent_connections[glance] = row
    return row


@kernel
def _find_connection(state: ExchangeState, connection_id: int) -> int:
    """connection_of without the glance."""
    row = tables.find(state.table, exchanges_state.KEY_CONNECTION, connection_id, 0, 0)
    if row != tables.ABSENT:
        return int(row)
    row = tables.allocate_row(state.connection_pool)
    tables.put(state.table, exchanges_state.KEY_CONNECTION, connection_id, 0, 0, row)
    state.connections.connection_id[row] = connection_id
    for direction_index in range(2 * row, 2 * row + 2):
        state.directions.is_seen[direction_index] = 0
        state.directions.hole_row[direction_index] = -1
    state.connections.requests[row] = _new_group(state, row, NULL)
    return int(row)


@kernel
def _new_group(state: ExchangeState, connection: int, producer_id: int) -> int:
    """A group without requests."""
    group = tables.allocate_row(state.group_pool)
    groups = state.groups
    groups.connection[group] = connection
    groups.producer_id[group] = producer_id
    groups.incarnation[group] = NULL
    groups.is_broker_closed[group] = 0
    groups.has_positions[group] = 0
    groups.topic[group] = NULL
    groups.producer_name[group] = NULL
    groups.source[group] = tables.ABSENT
    tables.list_append(state.connection_lists, state.group_links, connection, group)
    return int(group)


@inlined
def group_of(state: ExchangeState, connection: int, producer_id: int) -> int:
    """The group of a producer's sends, made if it has none.

    Without room for another producer it is that of the connection's other requests.
    """
    glance = (connection * 31 + int(producer_id)) & (exchanges_state.RECENT - 1)
    group = state.recent_groups[glance]
    groups = state.groups
    if groups.connection[group] == connection and groups.producer_id[group] == producer_id:
        return int(group)
    group = _find_group(state, connection, producer_id)
    state.recent_groups[glance] = group
    return group


@kernel
def _find_group(state: ExchangeState, connection: int, producer_id: int) -> int:
    """group_of without the glance."""
    group = tables.find(state.table, exchanges_state.KEY_GROUP, connection, producer_id, 0)
    if group != tables.ABSENT:
        return int(group)
    if (
        state.counters[exchanges_state.COUNT_PRODUCERS]
        >= state.limits[exchanges_state.LIMIT_PRODUCERS]
    ):
        return int(state.connections.requests[connection])
    state.counters[exchanges_state.COUNT_PRODUCERS] += 1
    group = _new_group(state, connection, producer_id)
    tables.put(state.table, exchanges_state.KEY_GROUP, connection, producer_id, 0, group)
    return group


@kernel
def free_group(state: ExchangeState, group: int) -> None:
    """Forget a group without requests."""
    groups = state.groups
    connection = groups.connection[group]
    if groups.producer_id[group] != NULL:
        tables.remove(
            state.table, exchanges_state.KEY_GROUP, connection, groups.producer_id[group], 0
        )
        state.counters[exchanges_state.COUNT_PRODUCERS] -= 1
    tables.list_unlink(state.connection_lists, state.group_links, connection, group)
    groups.connection[group] = tables.ABSENT
    tables.give_row(state.group_pool, group)


@kernel
def close_connection(state: ExchangeState, run: PassContext, connection: int, outcome: int) -> None:
    """Write every request of a connection that is over, and forget it."""
    for _ in range(state.connection_lists.length[connection]):
        group = state.connection_lists.first[connection]
        for _ in range(state.group_lists.length[group]):
            row = state.group_lists.first[group]
            write_unanswered(state, run, row, given_up(state, row, outcome))
        free_group(state, group)
    tables.remove(
        state.table,
        exchanges_state.KEY_CONNECTION,
        state.connections.connection_id[connection],
        0,
        0,
    )
    state.connections.connection_id[connection] = NULL
    tables.give_row(state.connection_pool, connection)


@kernel
def note_event(
    state: ExchangeState, frames: FrameColumns, row: int, direction_index: int, event: int
) -> None:
    """Missing bytes, bytes without frames, or the end of a direction."""
    state.directions.is_seen[direction_index] = 1
    if event == EVENT_SKIPPED or (event == EVENT_GAP and frames.frames_missing[row] != 0):
        state.directions.hole_row[direction_index] = state.counters[exchanges_state.COUNT_ROW]
