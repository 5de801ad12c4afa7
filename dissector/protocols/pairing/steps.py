"""The walk over a block of frames: what each asks for or answers, as its protocol's table says."""

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
def pair_frames(run: PassContext, stop: int, protocol: int) -> int:
    """Pair the frames of one protocol up to row `stop`, in order; sets answered_*.

    Begins at row counters[COUNT_AT] and stops there where the state has no room for another row.

    Returns:
        How many rows are left.
    """
    state, frames = run.state, run.frames
    first = state.counters[pairing_state.COUNT_AT]
    for row in range(first, stop):
        if not has_room_for_row(state):
            return stop - row
        begin_row(run, row, state.counters[pairing_state.COUNT_ROW] + 1)
        if frames.protocol[row] != protocol:
            continue
        connection = connections.connection_of(state, frames.connection_id[row])
        if frames.command[row] < 0:
            handle_event(run, row, connection)
        else:
            state.directions.is_seen[2 * connection + frames.endpoint_index[row]] = 1
            handle_frame(run, row, connection, find_request(run, row, connection))
    return 0


@inlined
def has_room_for_row(state: PairingState) -> bool:
    """Whether the state can take what one row adds at most; see `reserve`."""
    return bool(
        has_room(state.table, pairing_state.ROW_KEYS)
        and state.pending_pool.free[0] > 1
        and state.group_pool.free[0] > 1
        and state.connection_pool.free[0] > 0
        and has_attempt_room(state.attempts)
    )


@inlined
def begin_row(run: PassContext, row: int, ordinal: int) -> None:
    """The next row of the capture, of whatever protocol: time goes on."""
    counters = run.state.counters
    counters[pairing_state.COUNT_AT] = row + 1
    counters[pairing_state.COUNT_ROW] = ordinal
    if run.frames.last_ts_ns[row] > counters[pairing_state.COUNT_NOW]:
        counters[pairing_state.COUNT_NOW] = run.frames.last_ts_ns[row]
    if run.state.order.first[pairing_state.UNMATCHED] != ABSENT:
        _end_waiting(run)


@kernel
def _end_waiting(run: PassContext) -> None:
    """Early answers whose request has not come within the window are orphans."""
    state = run.state
    for _ in range(state.order.length[pairing_state.UNMATCHED]):
        unmatched = state.order.first[pairing_state.UNMATCHED]
        if state.pending.deadline_ns[unmatched] >= state.counters[pairing_state.COUNT_NOW]:
            return
        rows.write(run, unmatched)


@kernel
def handle_event(run: PassContext, row: int, connection: int) -> None:
    """Something between frames; also a frame whose type was not seen.

    At the end of the capture nothing is closed here: `close_rest` does it in the order of frames.
    """
    frames = run.frames
    if frames.command[row] != FrameEvent.CLOSE:
        connections.note_event(run, row, 2 * connection + frames.endpoint_index[row])
    elif frames.status[row] != ENDED_CAPTURE_END:
        connections.close_connection(run, connection, CONN_CLOSED)


@inlined
def find_request(run: PassContext, row: int, connection: int) -> int:
    """The request that a frame answers, ABSENT if it is none to answer but a send."""
    command = run.frames.command[row]
    is_answer = 0 <= command < rules.COMMAND_SLOTS and run.rules.reply_key[command] > PairedBy.SEND
    return pending.request_of(run, row, connection) if is_answer else ABSENT


@inlined
def handle_frame(run: PassContext, row: int, connection: int, request: int) -> None:
    """A frame of a known type. request: that it answers, if that is no send."""
    command = run.frames.command[row]
    if command >= rules.COMMAND_SLOTS:
        connections.note_hole(run.state, 2 * connection + run.frames.endpoint_index[row])
    elif run.rules.request_key[command] == PairedBy.SEND:
        sends.handle_send(run, row, connection)
    elif run.rules.reply_key[command] == PairedBy.SEND:
        sends.handle_send_answer(run, row, connection)
    else:
        _handle_other(run, row, connection, request)


@kernel
def _handle_other(run: PassContext, row: int, connection: int, request: int) -> None:
    """Every command that has nothing to do with sends."""
    command = run.frames.command[row]
    if run.frames.status[row] == columns.MALFORMED:
        connections.note_hole(run.state, 2 * connection + run.frames.endpoint_index[row])
    elif run.rules.request_key[command] != PairedBy.NO_REQUEST:
        _handle_request(run, row, connection)
    elif run.rules.reply_key[command] != PairedBy.NO_REQUEST:
        _handle_reply(run, row, connection, request)


@kernel
def _handle_request(run: PassContext, row: int, connection: int) -> None:
    """A request other than a send; without the id that its answer would repeat it is none."""
    state, frames = run.state, run.frames
    command, side = frames.command[row], frames.endpoint_index[row]
    key = run.rules.request_key[command]
    kind, value, extra = KeyKind.TURN, command, side
    if key == PairedBy.REQUEST_ID:
        kind, value = KeyKind.REQUEST, frames.request_id[row]
    elif key == PairedBy.WATCHER:
        kind, value, extra = KeyKind.WATCHER, frames.watcher_id[row], command
    if value == NULL:
        return
    group = state.connections.requests[connection]
    request = pending.new_request(run, row, group, pairing_state.REQUESTS)
    if key == PairedBy.ORDER:
        return
    pending.into_chain(state, request, kind, value, extra)
    if key == PairedBy.NOTHING:
        rows.write_unanswered(run, request, NOT_AWAITED)
    elif state.order.first[pairing_state.UNMATCHED] != ABSENT:
        pending.take_unmatched(run, request)


@kernel
def _handle_reply(run: PassContext, row: int, connection: int, request: int) -> None:
    """An answer other than to a send. request: that it answers, or ABSENT."""
    state, frames = run.state, run.frames
    command = frames.command[row]
    key = run.rules.reply_key[command]
    if key == PairedBy.REQUEST_ID and frames.request_id[row] == NULL:
        if frames.status[row] != columns.COMPLETE:
            connections.note_hole(state, 2 * connection + frames.endpoint_index[row])
        return
    outcome = rows.outcome_of(run, row)
    if request != ABSENT:
        pending.set_answered(run, row, request)
        if frames.topic[row] != NULL:
            state.pending.topic[request] = frames.topic[row]
        if frames.producer_name[row] != NULL:
            state.pending.producer_name[request] = frames.producer_name[row]
        rows.take_answer(run, row, request, outcome)
        rows.write(run, request)
    elif key == PairedBy.ORDER:
        unmatched = pending.keep_unmatched(run, row, connection, outcome)
        rows.write(run, unmatched)  # what comes later asks for something else
    elif key != PairedBy.WATCHER:  # later updates of a watcher answer nothing: they are pushes
        unmatched = pending.keep_unmatched(run, row, connection, outcome)
        kind, value = KeyKind.TURN, run.rules.asked_by[command]
        if key == PairedBy.REQUEST_ID:
            kind, value = KeyKind.REQUEST, frames.request_id[row]
        side = state.pending.endpoint_index[unmatched]
        pending.into_chain(state, unmatched, kind, value, side)


@kernel
def close_rest(run: PassContext, room: int) -> int:
    """The capture is over: write what waits, requests in the order of their frames, then answers.

    Returns:
        How many pending rows are left because `room` rows were written.
    """
    state = run.state
    state.counters[pairing_state.COUNT_ROW] += 1
    first, length = state.order.first, state.order.length
    frame_no = state.pending.request_frame_no
    while state.counters[pairing_state.COUNT_OUT] < room:
        row, other = first[pairing_state.SENDS], first[pairing_state.REQUESTS]
        if row == ABSENT or (other != ABSENT and frame_no[other] < frame_no[row]):
            row = other
        if row != ABSENT:
            rows.write_unanswered(run, row, rows.given_up(state, row, UNANSWERED_AT_END))
        elif first[pairing_state.UNMATCHED] != ABSENT:
            rows.write(run, first[pairing_state.UNMATCHED])
        else:
            break
    return int(length[pairing_state.SENDS] + length[pairing_state.REQUESTS]) + int(
        length[pairing_state.UNMATCHED]
    )
