"""Kernels for connections, their directions and their groups of requests."""

from dissector import tables
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import FrameColumns, FrameEvent
from dissector.protocols.pairing import rows
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.state import KeyKind, PairingState, PassContext


@inlined
def connection_of(state: PairingState, connection_id: int) -> int:
    """The row of a connection, added if it has none."""
    cache_slot = int(connection_id) & (pairing_state.RECENT - 1)
    row = state.recent_connections[cache_slot]
    if state.connections.connection_id[row] == connection_id:
        return int(row)
    row = _find_or_add_connection(state, connection_id)
    state.recent_connections[cache_slot] = row
    return row


@kernel
def find_connection(state: PairingState, connection_id: int) -> int:
    """The row of a connection, ABSENT if it has none."""
    return tables.find(state.table, KeyKind.CONNECTION, connection_id, 0, 0)


@kernel
def _find_or_add_connection(state: PairingState, connection_id: int) -> int:
    """`connection_of` on a miss of the cache `recent_connections`."""
    row = find_connection(state, connection_id)
    if row != tables.ABSENT:
        return int(row)
    row = tables.allocate_row(state.connection_pool)
    tables.put(state.table, KeyKind.CONNECTION, connection_id, 0, 0, row)
    state.connections.connection_id[row] = connection_id
    state.connections.push[row] = tables.ABSENT
    state.connections.skipped[row] = 0
    state.connections.is_two_way[row] = 0
    for direction_index in range(2 * row, 2 * row + 2):
        state.directions.hole_row[direction_index] = -1
    state.connections.requests[row] = _new_group(state, row, NULL)
    return int(row)


@kernel
def _new_group(state: PairingState, connection: int, producer_id: int) -> int:
    """Add a group without requests to a connection; return its row."""
    group = tables.allocate_row(state.group_pool)
    groups = state.groups
    groups.connection[group] = connection
    groups.producer_id[group] = producer_id
    groups.incarnation[group] = NULL
    groups.is_broker_closed[group] = 0
    groups.has_positions[group] = 0
    groups.publish_time_ms[group] = tables.ABSENT
    groups.topic[group] = NULL
    groups.producer_name[group] = NULL
    groups.source[group] = tables.ABSENT
    groups.publishes[group] = 0
    groups.newest[group] = tables.ABSENT
    groups.known_at[group] = tables.ABSENT
    groups.gone[group] = 0
    tables.list_append(state.connection_lists, state.group_links, connection, group)
    return int(group)


@inlined
def group_of(state: PairingState, connection: int, producer_id: int) -> int:
    """The group of a producer's sends, added if it has none.

    At the bound of producers it is the group of the connection's other requests.
    """
    cache_slot = (connection * 31 + int(producer_id)) & (pairing_state.RECENT - 1)
    group = state.recent_groups[cache_slot]
    groups = state.groups
    if groups.connection[group] == connection and groups.producer_id[group] == producer_id:
        return int(group)
    group = _find_or_add_group(state, connection, producer_id)
    state.recent_groups[cache_slot] = group
    return group


@kernel
def find_group(state: PairingState, connection: int, producer_id: int) -> int:
    """The group of a producer's sends, ABSENT if it has none."""
    return tables.find(state.table, KeyKind.GROUP, connection, producer_id, 0)


@kernel
def _find_or_add_group(state: PairingState, connection: int, producer_id: int) -> int:
    """`group_of` on a miss of the cache `recent_groups`."""
    group = find_group(state, connection, producer_id)
    if group != tables.ABSENT:
        return int(group)
    producers = state.counters[pairing_state.COUNT_PRODUCERS]
    if producers >= state.limits[pairing_state.LIMIT_PRODUCERS]:
        return int(state.connections.requests[connection])
    state.counters[pairing_state.COUNT_PRODUCERS] = producers + 1
    group = _new_group(state, connection, producer_id)
    tables.put(state.table, KeyKind.GROUP, connection, producer_id, 0, group)
    return group


@kernel
def free_group(state: PairingState, group: int) -> None:
    """Free a group without requests."""
    groups = state.groups
    connection, producer_id = groups.connection[group], groups.producer_id[group]
    if producer_id != NULL:
        tables.remove(state.table, KeyKind.GROUP, connection, producer_id, 0)
        state.counters[pairing_state.COUNT_PRODUCERS] -= 1
    tables.list_unlink(state.connection_lists, state.group_links, connection, group)
    groups.connection[group] = tables.ABSENT
    tables.give_row(state.group_pool, group)


@kernel
def close_connection(context: PassContext, connection: int, outcome: int) -> None:
    """Write all pending rows of a closed connection and free its row."""
    state = context.state
    for _ in range(state.connection_lists.length[connection]):
        group = state.connection_lists.first[connection]
        for _ in range(state.group_lists.length[group]):
            row = state.group_lists.first[group]
            rows.write_unanswered(context, row, rows.unanswered_outcome(state, row, outcome))
        free_group(state, group)
    connection_id = state.connections.connection_id[connection]
    tables.remove(state.table, KeyKind.CONNECTION, connection_id, 0, 0)
    state.connections.connection_id[connection] = NULL
    if state.connections.push[connection] >= 0:
        tables.give_row(state.pending_pool, state.connections.push[connection])
    tables.give_row(state.connection_pool, connection)


@inlined
def note_hole(state: PairingState, direction_index: int) -> None:
    """Record a hole at the current row: an answer in this direction may be missing."""
    state.directions.hole_row[direction_index] = state.counters[pairing_state.COUNT_ROW]


@inlined
def may_hide_frames(frames: FrameColumns, row: int) -> bool:
    """Whether an event is a hole: its bytes may contain frames that have no row."""
    event = frames.command[row]
    return bool(
        event == FrameEvent.SKIPPED or (event == FrameEvent.GAP and frames.frames_missing[row] != 0)
    )


@kernel
def note_event(context: PassContext, row: int, direction_index: int) -> None:
    """Handle an event of a direction, or a frame of unknown type; record it if it is a hole."""
    if context.frames.command[row] == NULL or may_hide_frames(context.frames, row):
        note_hole(context.state, direction_index)
