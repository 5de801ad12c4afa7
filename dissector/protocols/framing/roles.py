"""Who is the client: frames wait until a one-way command, a port or a bound decides it."""

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notice_rows import add_row
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import FrameColumns, FramingColumns
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.row_output import SOURCE_ARENA, PassContext, direction_of
from dissector.protocols.framing.state import FramingState, RoleSource, RoleState
from dissector.tables import ABSENT, allocate_row, give_row

_COLUMNS = len(FramingColumns._fields)  # the first ones of frames
_ROLE_FLIPPED = NOTICE_NUMBER["role_flipped"]


@inlined
def may_wait(state: FramingState, connection_index: int, source: int, count: int) -> bool:
    """Whether the arena has room for a frame of so many bytes, should it wait for the role."""
    if source == SOURCE_ARENA or state.connections.role[connection_index] == RoleState.DECIDED:
        return True
    return bool(state.counters[framing_state.COUNTER_ARENA_USED] + count <= len(state.arena))


@kernel
def settle_role(work: PassContext, connection_index: int, row: int) -> bool:
    """The last row has no direction yet, or has decided it: keep it, or let all out.

    Args:
        row: the last one; the arena has room for its bytes (`may_wait`).

    Returns:
        Whether it stays; else it waits.
    """
    state, known = work.state, work.state.connections
    is_decided = known.role[connection_index] == RoleState.DECIDED
    if is_decided and known.is_from_syn[connection_index] and known.role_source[connection_index]:
        _note_flip(state, work.out, row)
    if is_decided and known.waiting[connection_index] == 0:
        return True
    _wait(work, connection_index, row)
    return False


@kernel
def settle_event(work: PassContext, connection_index: int, row: int) -> int:
    """The last row is an event: it stays, or waits behind frames that do, which it may tell of.

    Returns:
        Rows filled.
    """
    if work.state.connections.waiting[connection_index] == 0:
        return row + 1
    _wait(work, connection_index, row)
    return row


@inlined
def _wait(work: PassContext, connection_index: int, row: int) -> None:
    """Keep a row, and let all out where nothing more is waited for."""
    state, known = work.state, work.state.connections
    _hold(work, connection_index, row)
    if (
        known.role[connection_index] == RoleState.DECIDED
        or known.waiting[connection_index] >= state.counters[framing_state.COUNTER_MOST_WAITING]
    ):
        decide_role_at_last(state, connection_index, work.out.release_packet[row])
    for column in range(_COLUMNS):
        work.out.matrix[column, row] = NULL


@inlined
def _note_flip(state: FramingState, out: FrameColumns, row: int) -> None:
    """A command contradicts the SYN."""
    notice, rows = add_row(state.notices, _ROLE_FLIPPED), state.notices.rows
    rows.ts_ns[notice] = out.last_ts_ns[row]
    rows.connection_id[notice] = out.connection_id[row]
    rows.direction[notice] = out.direction[row]
    rows.packet[notice] = out.last_packet[row]
    rows.stream_offset[notice] = out.stream_offset[row]


@inlined
def _hold(work: PassContext, connection_index: int, row: int) -> None:
    """Keep a row, which loses its number; its bytes go to the arena if they are not there."""
    state, out = work.state, work.out
    known, frames = state.connections, state.waiting
    held = allocate_row(state.free_waiting)
    for column in range(_COLUMNS):
        frames.matrix[held, column] = out.matrix[column, row]
    if out.source[row] != SOURCE_ARENA:
        data, at = work.sources[out.source[row]], out.data_offset[row]
        used = state.counters[framing_state.COUNTER_ARENA_USED]
        for index in range(out.data_bytes[row]):
            state.arena[used + index] = data[at + index]
        frames.data_offset[held] = used
        state.counters[framing_state.COUNTER_ARENA_USED] = used + out.data_bytes[row]
    if out.frame_no[row] != NULL:
        state.counters[framing_state.COUNTER_FRAME_NO] -= 1
    if known.waiting[connection_index] == 0:
        known.first_waiting[connection_index] = held
    else:
        frames.next[known.last_waiting[connection_index]] = held
    known.last_waiting[connection_index] = held
    known.waiting[connection_index] += 1


@kernel
def decide_role_at_last(state: FramingState, connection_index: int, release_packet: int) -> None:
    """Frames of a connection wait no longer: they go out next, with a role if any is known.

    Without a one-way command the SYN decides, else a known port, else who spoke first.
    """
    known = state.connections
    state.counters[framing_state.COUNTER_RELEASED] = connection_index
    state.counters[framing_state.COUNTER_RELEASE_PACKET] = release_packet
    if known.role[connection_index] == RoleState.DECIDED:
        return
    if known.is_from_syn[connection_index]:
        known.role[connection_index] = RoleState.DECIDED
        return
    # Of any protocol, as where no frame came out: what listens there answers, whatever it is.
    ports = known.ports[connection_index]
    first = state.port_hints[ports >> 16] & framing_state.PORT_OF_BROKER
    second = state.port_hints[ports & 0xFFFF] & framing_state.PORT_OF_BROKER
    if first != second:
        known.client_endpoint[connection_index] = first
        known.role[connection_index] = RoleState.DECIDED
        known.role_source[connection_index] = RoleSource.BY_PORT
    else:
        known.role_source[connection_index] = RoleSource.BY_FIRST_SEEN


@kernel
def release_frames(work: PassContext, filled: int, limit: int) -> int:
    """Write frames that waited, now with their direction, as far as there is room below a limit.

    Returns:
        rows filled in all.
    """
    state, out, frames = work.state, work.out, work.state.waiting
    known, connection_index = state.connections, state.counters[framing_state.COUNTER_RELEASED]
    for _ in range(known.waiting[connection_index]):
        if filled >= limit:
            return filled
        row = known.first_waiting[connection_index]
        for column in range(_COLUMNS):
            out.matrix[column, filled] = frames.matrix[row, column]
        if frames.frame_no[row] != NULL:
            state.counters[framing_state.COUNTER_FRAME_NO] += 1
            out.frame_no[filled] = state.counters[framing_state.COUNTER_FRAME_NO]
        out.source[filled] = SOURCE_ARENA
        out.release_packet[filled] = state.counters[framing_state.COUNTER_RELEASE_PACKET]
        out.direction[filled] = direction_of(state, connection_index, frames.endpoint_index[row])
        known.first_waiting[connection_index] = frames.next[row]
        known.waiting[connection_index] -= 1
        give_row(state.free_waiting, row)
        filled += 1
    state.counters[framing_state.COUNTER_RELEASED] = ABSENT
    return filled
