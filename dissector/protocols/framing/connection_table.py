"""The table of open connections: one row each, looked up by id; freed rows are reused."""

from dissector import tables
from dissector.blocks import ByteArray, Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.state import DirectionMode, FramingState, RoleState
from dissector.stream.columns import RangeKind


@inlined
def find_connection(state: FramingState, connection: int) -> int:
    """The row of a connection, or ABSENT."""
    return tables.find(state.connection_indexes, connection, 0, 0, 0)


@kernel
def find_connections(
    state: FramingState, connections: Int64Array, connection_indexes: Int64Array
) -> None:
    """Write the row of each connection to `connection_indexes`, ABSENT where it has none."""
    for index in range(len(connections)):
        connection_indexes[index] = find_connection(state, connections[index])


@kernel
def allocate_connection(
    state: FramingState, connection: int, opener: int, ports: int, limit: int
) -> int:
    """Allocate a row for a connection; ABSENT when the table is full.

    Args:
        opener: the side that sent the SYN, -1 if no SYN was seen. ports: of side 0 << 16 | of
            side 1. limit: bytes of the longest frame.
    """
    connection_index = tables.allocate_row(state.free_connections)
    if connection_index == tables.ABSENT:
        return tables.ABSENT
    tables.put(state.connection_indexes, connection, 0, 0, 0, connection_index)
    connections = state.connections
    connections.matrix[:, connection_index] = 0
    connections.connection_id[connection_index] = connection
    connections.protocol[connection_index] = framing_state.UNDECIDED
    connections.role[connection_index] = (
        RoleState.PROVISIONAL if opener >= 0 else RoleState.UNDECIDED
    )
    connections.is_from_syn[connection_index] = 1 if opener >= 0 else 0
    connections.client_endpoint[connection_index] = max(opener, 0)
    connections.ports[connection_index] = ports
    directions = state.directions
    for direction_index in range(2 * connection_index, 2 * connection_index + 2):
        directions.matrix[:, direction_index] = 0
        directions.first_packet[direction_index] = NULL
        directions.first_ts[direction_index] = NULL
        directions.last_packet[direction_index] = NULL
        directions.last_ts[direction_index] = NULL
        directions.limit[direction_index] = limit
        directions.is_first[direction_index] = 1
        directions.buffer[direction_index] = tables.ABSENT
    return connection_index


@kernel
def release_connections(state: FramingState, connections: Int64Array) -> None:
    """Free the rows of closed connections; ids without a row are ignored."""
    for index in range(len(connections)):
        connection_index = tables.remove(state.connection_indexes, connections[index], 0, 0, 0)
        if connection_index != tables.ABSENT:
            tables.give_row(state.free_connections, connection_index)


def grown_connections(state: FramingState) -> FramingState:
    """Return the state with room for twice the connections."""
    before = len(state.free_connections.rows)
    directions = state.directions.grown(4 * before)
    directions.buffer[2 * before :] = tables.ABSENT
    return state._replace(
        directions=directions,
        connections=state.connections.grown(2 * before),
        connection_indexes=tables.reserved(
            state.connection_indexes, 3 * before
        ),  # a quarter full at most
        free_connections=tables.grown_pool(state.free_connections, 2 * before),
    )


@inlined
def _move(state: FramingState, at: int, size: int, fresh: ByteArray, used: int) -> int:
    """Copy `size` bytes of the arena to a fresh one; return how many bytes that holds then."""
    for index in range(size):
        fresh[used + index] = state.arena[at + index]
    return used + size


@kernel
def compact_arena(state: FramingState, fresh: ByteArray, fresh_marks: ByteArray) -> int:
    """Copy the live bytes to a fresh arena: unfinished frames and buffers, in order of rows, then
    requeued ranges, then waiting frames.

    Returns:
        how many bytes the fresh arena holds.
    """
    directions, buffers, ranges = state.directions, state.pool.buffers, state.pool.ranges
    used = 0
    for direction_index in range(len(directions.mode)):
        have = (
            directions.have[direction_index]
            if directions.mode[direction_index] in (DirectionMode.CHAIN, DirectionMode.HELD)
            else 0
        )
        at = directions.arena_at[direction_index]
        directions.arena_at[direction_index], directions.arena_room[direction_index] = used, have
        used = _move(state, at, have, fresh, used)
        buffer = directions.buffer[direction_index]
        if buffer != tables.ABSENT:
            at, size = buffers.at[buffer], buffers.size[buffer]
            for index in range(size):
                fresh_marks[used + index] = state.marks[at + index]
            buffers.at[buffer], buffers.room[buffer] = used, size
            used = _move(state, at, size, fresh, used)
    row = state.counters[framing_state.COUNTER_REQUEUED]
    for _ in range(len(ranges.next)):
        if row == tables.ABSENT:
            break
        at = ranges.at[row]
        ranges.at[row] = used
        used = _move(
            state, at, ranges.length[row] if ranges.kind[row] == RangeKind.DATA else 0, fresh, used
        )
        row = ranges.next[row]
    connections, frames = state.connections, state.waiting
    for connection_index in range(len(connections.waiting)):
        row = connections.first_waiting[connection_index]
        for _ in range(connections.waiting[connection_index]):
            at = frames.data_offset[row]
            frames.data_offset[row] = used
            used = _move(state, at, frames.data_bytes[row], fresh, used)
            row = frames.next[row]
    return used
