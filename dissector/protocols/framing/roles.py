"""Which endpoint is the client: frames wait until a one-way command, a port or a bound decides."""

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notice_rows import add_row
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import FrameColumns, FramingColumns
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.row_output import (
    SOURCE_ARENA,
    PassContext,
    broker_of,
    direction_of,
)
from dissector.protocols.framing.state import FramingState, RoleSource, RoleState
from dissector.tables import ABSENT, allocate_row, give_row

_COLUMNS = len(FramingColumns._fields)  # the first ones of frames
_ROLE_FLIPPED = NOTICE_NUMBER["role_flipped"]


@inlined
def may_wait(state: FramingState, connection_index: int, source: int, count: int) -> bool:
    """Whether the arena has room for a frame's bytes if these must be copied to wait for a role."""
    if source == SOURCE_ARENA or state.connections.role[connection_index] == RoleState.DECIDED:
        return True
    return bool(state.counters[framing_state.COUNTER_ARENA_USED] + count <= len(state.arena))


@kernel
def emit_or_wait(context: PassContext, connection_index: int, row: int) -> bool:
    """Keep the last output row if its direction is known; else move it to the waiting frames.

    A row that decides the role waits, too, if others do: all of them are released in order.

    Args:
        row: the last one; the arena has room for its bytes (`may_wait`).

    Returns:
        True if it stays in the output.
    """
    state, connections = context.state, context.state.connections
    is_decided = connections.role[connection_index] == RoleState.DECIDED
    if (
        is_decided
        and connections.is_from_syn[connection_index]
        and connections.role_source[connection_index]
    ):
        _note_flip(state, context.out, row)
    if is_decided and connections.waiting[connection_index] == 0:
        return True
    _queue_row(context, connection_index, row)
    return False


@kernel
def order_event(context: PassContext, connection_index: int, row: int) -> int:
    """Keep the last output row, an event, or queue it behind waiting frames of its connection.

    Returns:
        Rows filled.
    """
    if context.state.connections.waiting[connection_index] == 0:
        return row + 1
    _queue_row(context, connection_index, row)
    return row


@inlined
def _queue_row(context: PassContext, connection_index: int, row: int) -> None:
    """Move an output row to the waiting frames; release them at the bound, or with a role."""
    state, connections = context.state, context.state.connections
    _store_row(context, connection_index, row)
    if (
        connections.role[connection_index] == RoleState.DECIDED
        or connections.waiting[connection_index]
        >= state.counters[framing_state.COUNTER_MOST_WAITING]
    ):
        decide_role_at_last(state, connection_index, context.out.release_packet[row])
    for column in range(_COLUMNS):
        context.out.matrix[column, row] = NULL


@inlined
def _note_flip(state: FramingState, out: FrameColumns, row: int) -> None:
    """Add a notice: a command contradicts the SYN."""
    notice, rows = add_row(state.notices, _ROLE_FLIPPED), state.notices.rows
    rows.ts_ns[notice] = out.last_ts_ns[row]
    rows.connection_id[notice] = out.connection_id[row]
    rows.direction[notice] = out.direction[row]
    rows.packet[notice] = out.last_packet[row]
    rows.stream_offset[notice] = out.stream_offset[row]


@inlined
def _store_row(context: PassContext, connection_index: int, row: int) -> None:
    """Copy an output row to the waiting frames, without its number, and its bytes to the arena."""
    state, out = context.state, context.out
    connections, frames = state.connections, state.waiting
    stored = allocate_row(state.free_waiting)
    for column in range(_COLUMNS):
        frames.matrix[stored, column] = out.matrix[column, row]
    if out.source[row] != SOURCE_ARENA:
        data, at = context.sources[out.source[row]], out.data_offset[row]
        used = state.counters[framing_state.COUNTER_ARENA_USED]
        for index in range(out.data_bytes[row]):
            state.arena[used + index] = data[at + index]
        frames.data_offset[stored] = used
        state.counters[framing_state.COUNTER_ARENA_USED] = used + out.data_bytes[row]
    if out.frame_no[row] != NULL:
        state.counters[framing_state.COUNTER_FRAME_NO] -= 1
    if connections.waiting[connection_index] == 0:
        connections.first_waiting[connection_index] = stored
    else:
        frames.next[connections.last_waiting[connection_index]] = stored
    connections.last_waiting[connection_index] = stored
    connections.waiting[connection_index] += 1


@kernel
def decide_role_at_last(state: FramingState, connection_index: int, release_packet: int) -> None:
    """Release the waiting frames of a connection; decide its role first if that is possible.

    Without a one-way command the SYN decides, else a known port, else the first sender.
    """
    connections = state.connections
    state.counters[framing_state.COUNTER_RELEASED] = connection_index
    state.counters[framing_state.COUNTER_RELEASE_PACKET] = release_packet
    if connections.role[connection_index] == RoleState.DECIDED:
        return
    if connections.is_from_syn[connection_index]:
        connections.role[connection_index] = RoleState.DECIDED
        return
    # Ports of all protocols count, as for connections without frames: a listener is the server.
    ports = connections.ports[connection_index]
    first = state.port_hints[ports >> 16] & framing_state.PORT_OF_BROKER
    second = state.port_hints[ports & 0xFFFF] & framing_state.PORT_OF_BROKER
    if first != second:
        connections.client_endpoint[connection_index] = first
        connections.role[connection_index] = RoleState.DECIDED
        connections.role_source[connection_index] = RoleSource.BY_PORT
    else:
        connections.role_source[connection_index] = RoleSource.BY_FIRST_SEEN


@kernel
def release_frames(context: PassContext, filled: int, limit: int) -> int:
    """Write waiting frames of the released connection, with their direction, up to row `limit`.

    Returns:
        rows filled in all.
    """
    state, out, frames = context.state, context.out, context.state.waiting
    connections = state.connections
    connection_index = state.counters[framing_state.COUNTER_RELEASED]
    for _ in range(connections.waiting[connection_index]):
        if filled >= limit:
            return filled
        row = connections.first_waiting[connection_index]
        for column in range(_COLUMNS):
            out.matrix[column, filled] = frames.matrix[row, column]
        if frames.frame_no[row] != NULL:
            state.counters[framing_state.COUNTER_FRAME_NO] += 1
            out.frame_no[filled] = state.counters[framing_state.COUNTER_FRAME_NO]
        out.source[filled] = SOURCE_ARENA
        out.release_packet[filled] = state.counters[framing_state.COUNTER_RELEASE_PACKET]
        out.direction[filled] = direction_of(state, connection_index, frames.endpoint_index[row])
        out.broker[filled] = broker_of(state, connection_index)
        connections.first_waiting[connection_index] = frames.next[row]
        connections.waiting[connection_index] -= 1
        give_row(state.free_waiting, row)
        filled += 1
    state.counters[framing_state.COUNTER_RELEASED] = ABSENT
    return filled
