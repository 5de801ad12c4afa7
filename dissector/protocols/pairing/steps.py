"""The walk over a block: each frame is a request or an answer by its protocol's table."""

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols import columns
from dissector.protocols.columns import FrameEvent
from dissector.protocols.pairing import connections, pending, rows, rules, sends
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.attempts import has_attempt_room
from dissector.protocols.pairing.rules import PairedBy
from dissector.protocols.pairing.state import KeyKind, PairingState, PassContext
from dissector.schemas.enums import CONN_CLOSED, NOT_AWAITED, UNANSWERED_AT_END
from dissector.stream.columns import ENDED_CAPTURE_END
from dissector.tables import ABSENT, has_room


@kernel
def pair_frames(context: PassContext, stop: int, protocol: int) -> int:
    """Pair the frames of one protocol up to row `stop`, in order; sets answered_*.

    Begins at row counters[COUNT_CURSOR]; stops early if the state has no room for another row.

    Returns:
        How many rows are left.
    """
    state, frames = context.state, context.frames
    first = state.counters[pairing_state.COUNT_CURSOR]
    for row in range(first, stop):
        if not has_room_for_row(state):
            return stop - row
        begin_row(context, row, state.counters[pairing_state.COUNT_ROW] + 1)
        if frames.protocol[row] != protocol:
            continue
        connection = connections.connection_of(state, frames.connection_id[row])
        state.connections.is_two_way[connection] |= frames.is_two_way[row]
        if frames.command[row] < 0:
            handle_event(context, row, connection)
        else:
            handle_frame(context, row, connection, find_request(context, row, connection))
    return 0


@inlined
def has_room_for_row(state: PairingState) -> bool:
    """Whether the state has room for all that one row can add, see `reserve`."""
    return bool(
        has_room(state.table, pairing_state.ROW_KEYS)
        and state.pending_pool.free[0] > 1
        and state.group_pool.free[0] > 1
        and state.connection_pool.free[0] > 0
        and has_attempt_room(state.attempts)
    )


@inlined
def begin_row(context: PassContext, row: int, ordinal: int) -> None:
    """Advance cursor, ordinal and clock to a row of any protocol; expire unmatched responses."""
    counters = context.state.counters
    counters[pairing_state.COUNT_CURSOR] = row + 1
    counters[pairing_state.COUNT_ROW] = ordinal
    if context.frames.last_ts_ns[row] > counters[pairing_state.COUNT_CLOCK]:
        counters[pairing_state.COUNT_CLOCK] = context.frames.last_ts_ns[row]
    if context.state.order.first[pairing_state.UNMATCHED] != ABSENT:
        _expire_unmatched(context)


@kernel
def _expire_unmatched(context: PassContext) -> None:
    """Write unmatched responses whose window has passed as orphans."""
    state = context.state
    for _ in range(state.order.length[pairing_state.UNMATCHED]):
        unmatched = state.order.first[pairing_state.UNMATCHED]
        if state.pending.deadline_ns[unmatched] >= state.counters[pairing_state.COUNT_CLOCK]:
            return
        rows.write(context, unmatched)


@kernel
def handle_event(context: PassContext, row: int, connection: int) -> None:
    """Handle an event, or a frame whose type is unknown.

    At the end of the capture nothing is closed here: `close_rest` does it in the order of frames.
    """
    frames = context.frames
    if frames.command[row] != FrameEvent.CLOSE:
        connections.note_event(context, row, 2 * connection + frames.endpoint_index[row])
    elif frames.status[row] != ENDED_CAPTURE_END:
        connections.close_connection(context, connection, CONN_CLOSED)


@inlined
def find_request(context: PassContext, row: int, connection: int) -> int:
    """The request that a frame answers, unless that is a send; ABSENT if there is none."""
    command = context.frames.command[row]
    is_answer = (
        0 <= command < rules.COMMAND_SLOTS and context.rules.reply_key[command] > PairedBy.SEND
    )
    return pending.request_of(context, row, connection) if is_answer else ABSENT


@inlined
def handle_frame(context: PassContext, row: int, connection: int, request: int) -> None:
    """Handle a frame of a known type. request: that it answers, from `find_request`."""
    command = context.frames.command[row]
    if command >= rules.COMMAND_SLOTS:
        connections.note_hole(context.state, 2 * connection + context.frames.endpoint_index[row])
    elif context.rules.request_key[command] == PairedBy.SEND:
        sends.handle_send(context, row, connection)
    elif context.rules.reply_key[command] == PairedBy.SEND:
        sends.handle_send_answer(context, row, connection)
    else:
        _handle_other(context, row, connection, request)


@kernel
def _handle_other(context: PassContext, row: int, connection: int, request: int) -> None:
    """Handle a command that is neither a send nor an answer to one."""
    command = context.frames.command[row]
    if context.frames.status[row] == columns.MALFORMED:
        connections.note_hole(context.state, 2 * connection + context.frames.endpoint_index[row])
    elif context.rules.request_key[command] != PairedBy.NO_REQUEST:
        _handle_request(context, row, connection)
    elif context.rules.reply_key[command] != PairedBy.NO_REQUEST:
        _handle_reply(context, row, connection, request)


@kernel
def _handle_request(context: PassContext, row: int, connection: int) -> None:
    """Add a pending row for a request other than a send; ignore it if its id is missing."""
    state, frames = context.state, context.frames
    command, side = frames.command[row], frames.endpoint_index[row]
    key = context.rules.request_key[command]
    kind, value, extra = KeyKind.TURN, command, side
    if key == PairedBy.REQUEST_ID:
        kind, value = KeyKind.REQUEST, frames.request_id[row]
    elif key == PairedBy.WATCHER:
        kind, value, extra = KeyKind.WATCHER, frames.watcher_id[row], command
    if value == NULL:
        return
    group = state.connections.requests[connection]
    request = pending.new_request(context, row, group, pairing_state.REQUESTS)
    if key == PairedBy.ORDER:
        return
    pending.add_key(state, request, kind, value, extra)
    if key == PairedBy.NOTHING:
        rows.write_unanswered(context, request, NOT_AWAITED)
    elif state.order.first[pairing_state.UNMATCHED] != ABSENT:
        pending.pair_unmatched(context, request)


@kernel
def _handle_reply(context: PassContext, row: int, connection: int, request: int) -> None:
    """Handle an answer other than to a send. request: that it answers, or ABSENT."""
    state, frames = context.state, context.frames
    command = frames.command[row]
    key = context.rules.reply_key[command]
    if key == PairedBy.REQUEST_ID and frames.request_id[row] == NULL:
        if frames.status[row] != columns.COMPLETE:
            connections.note_hole(state, 2 * connection + frames.endpoint_index[row])
        return
    outcome = rows.outcome_of(context, row)
    if request != ABSENT:
        pending.set_answered(context, row, request)
        if frames.topic[row] != NULL:
            state.pending.topic[request] = frames.topic[row]
        if frames.producer_name[row] != NULL:
            state.pending.producer_name[request] = frames.producer_name[row]
        rows.take_answer(context, row, request, outcome)
        rows.write(context, request)
    elif key == PairedBy.ORDER:
        unmatched = pending.keep_unmatched(context, row, connection, outcome)
        rows.write(context, unmatched)  # no later request is answered by it
    elif key != PairedBy.WATCHER:  # later updates of a watcher answer nothing: they are pushes
        unmatched = pending.keep_unmatched(context, row, connection, outcome)
        kind, value = KeyKind.TURN, context.rules.first_request[command]
        if key == PairedBy.REQUEST_ID:
            kind, value = KeyKind.REQUEST, frames.request_id[row]
        side = state.pending.endpoint_index[unmatched]
        pending.add_key(state, unmatched, kind, value, side)


@kernel
def close_rest(context: PassContext, room: int) -> int:
    """End the capture: write pending requests in order of their frames, then unmatched responses.

    Returns:
        How many pending rows are left after at most `room` rows.
    """
    state = context.state
    state.counters[pairing_state.COUNT_ROW] += 1
    first, length = state.order.first, state.order.length
    frame_no = state.pending.request_frame_no
    while state.counters[pairing_state.COUNT_OUT] < room:
        row, other = first[pairing_state.SENDS], first[pairing_state.REQUESTS]
        if row == ABSENT or (other != ABSENT and frame_no[other] < frame_no[row]):
            row = other
        if row != ABSENT:
            rows.write_unanswered(
                context, row, rows.unanswered_outcome(state, row, UNANSWERED_AT_END)
            )
        elif first[pairing_state.UNMATCHED] != ABSENT:
            rows.write(context, first[pairing_state.UNMATCHED])
        else:
            break
    return int(length[pairing_state.SENDS] + length[pairing_state.REQUESTS]) + int(
        length[pairing_state.UNMATCHED]
    )
