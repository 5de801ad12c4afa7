"""The table of connections: a row for each that is open, found by its id and used again."""

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
    """Write the rows of connections to `connection_indexes`, ABSENT for those without."""
    for index in range(len(connections)):
        connection_indexes[index] = find_connection(state, connections[index])


@kernel
def allocate_connection(
    state: FramingState, connection: int, opener: int, ports: int, limit: int
) -> int:
    """A fresh row for a connection, or ABSENT when all are taken.

    Args:
        opener: the side that sent the SYN, -1 if that was not seen. ports: of side 0 << 16 | of
            side 1. limit: bytes of a frame.
    """
    connection_index = tables.allocate_row(state.free_connections)
    if connection_index == tables.ABSENT:
        return tables.ABSENT
    tables.put(state.connection_indexes, connection, 0, 0, 0, connection_index)
    known = state.connections
    known.matrix[:, connection_index] = 0
    known.connection_id[connection_index] = connection
    known.protocol[connection_index] = framing_state.UNDECIDED
    known.role[connection_index] = RoleState.PROVISIONAL if opener >= 0 else RoleState.UNDECIDED
    known.is_from_syn[connection_index] = 1 if opener >= 0 else 0
    known.client_endpoint[connection_index] = max(opener, 0)
    known.ports[connection_index] = ports
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
    """Free the rows of closed connections; ids without a row are passed over."""
    for index in range(len(connections)):
        connection_index = tables.remove(state.connection_indexes, connections[index], 0, 0, 0)
        if connection_index != tables.ABSENT:
            tables.give_row(state.free_connections, connection_index)


def grown_connections(state: FramingState) -> FramingState:
    """The same state with room for twice the connections."""
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
    """Copy bytes of the arena to a fresh one; how many bytes this holds then."""
    for index in range(size):
        fresh[used + index] = state.arena[at + index]
    return used + size


@kernel
def compact_arena(state: FramingState, fresh: ByteArray, fresh_marks: ByteArray) -> int:
    """Copy the bytes that are still needed to a fresh arena: those of unfinished frames and of
    buffers, in order of rows, of ranges that go through the kernel again, and of waiting frames.

    Returns:
        how many bytes it holds then.
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
    row = state.counters[framing_state.COUNTER_AGAIN]
    for _ in range(len(ranges.next)):
        if row == tables.ABSENT:
            break
        at = ranges.at[row]
        ranges.at[row] = used
        used = _move(
            state, at, ranges.length[row] if ranges.kind[row] == RangeKind.DATA else 0, fresh, used
        )
        row = ranges.next[row]
    known, frames = state.connections, state.waiting
    for connection_index in range(len(known.waiting)):
        row = known.first_waiting[connection_index]
        for _ in range(known.waiting[connection_index]):
            at = frames.data_offset[row]
            frames.data_offset[row] = used
            used = _move(state, at, frames.data_bytes[row], fresh, used)
            row = frames.next[row]
    return used
