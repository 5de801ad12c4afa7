"""The walk over a block of frames: what each asks for or answers, and of whom.

An answer by request id is of whom its request was; what closing and opening a producer does to its
sends is known once the registry has had the frame. So each frame's request is found first, then the
registry takes the frame, then the exchange goes on.
"""

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pulsar.exchanges import connections
from dissector.protocols.pulsar.exchanges import pending as exchanges_pending
from dissector.protocols.pulsar.exchanges import rows as exchanges_rows
from dissector.protocols.pulsar.exchanges import state as exchanges_state
from dissector.protocols.pulsar.exchanges.attempts import begin_attempt, has_attempt_room, source_of
from dissector.protocols.pulsar.exchanges.rows import PassContext
from dissector.protocols.pulsar.exchanges.state import ExchangeState
from dissector.protocols.pulsar.registry import Registering, register_frame
from dissector.protocols.pulsar.wire import commands
from dissector.schemas.enums import CONN_CLOSED, DROPPED_AFTER_CLOSE, NOT_AWAITED, UNANSWERED_AT_END
from dissector.stream.columns import ENDED_CAPTURE_END
from dissector.tables import ABSENT, find, has_room


@kernel
def pair_frames(
    state: ExchangeState,
    frames: FrameColumns,
    rows: int,
    protocol: int,
    run: PassContext,
    registering: Registering,
) -> int:
    """Pair the frames of one protocol, in order; sets answered_* and the registry's columns.

    Begins at row counters[COUNT_AT] and stops there where the state has no room for another row.

    Returns:
        How many rows are left.
    """
    counters = state.counters
    first = counters[exchanges_state.COUNT_AT]
    for row in range(first, rows):
        if not _has_room(state):
            return rows - row
        counters[exchanges_state.COUNT_AT] = row + 1
        counters[exchanges_state.COUNT_ROW] += 1
        if frames.last_ts_ns[row] > counters[exchanges_state.COUNT_NOW]:
            counters[exchanges_state.COUNT_NOW] = frames.last_ts_ns[row]
        if state.order.first[exchanges_state.UNMATCHED] != ABSENT:
            _end_waiting(state, run)
        if frames.protocol[row] != protocol:
            continue
        connection = connections.connection_of(state, frames.connection_id[row])
        direction_index = 2 * connection + frames.endpoint_index[row]
        command = frames.command[row]
        request = ABSENT
        if (
            0 <= command < commands.COMMAND_SLOTS
            and run.rules.reply_key[command] > commands.BY_SEND
        ):
            request = exchanges_pending.request_of(state, frames, row, connection, run)
        register_frame(frames, row, exchanges_pending.asked_of(state, request, run), registering)
        if command < 0:
            _handle_event(state, frames, row, connection, run)
            continue
        state.directions.is_seen[direction_index] = 1
        if command == commands.SEND:
            _handle_send(state, frames, row, connection, run)
        elif command in (commands.SEND_RECEIPT, commands.SEND_ERROR):
            _handle_send_answer(state, frames, row, connection, run)
        elif command in (commands.MESSAGE, commands.FLOW):
            continue
        elif frames.status[row] == columns.MALFORMED or command >= commands.COMMAND_SLOTS:
            state.directions.hole_row[direction_index] = counters[exchanges_state.COUNT_ROW]
        else:
            _handle_other(state, frames, row, connection, request, run)
    return 0


@inlined
def _has_room(state: ExchangeState) -> bool:
    """Whether the state can take what one row adds at most; see `reserve`."""
    return bool(
        has_room(state.table, exchanges_state.ROW_KEYS)
        and state.pending_pool.free[0] > 1
        and state.group_pool.free[0] > 1
        and state.connection_pool.free[0] > 0
        and has_attempt_room(state.attempts)
    )


@kernel
def _end_waiting(state: ExchangeState, run: PassContext) -> None:
    """Early answers whose request has not come within the window are orphans."""
    for _ in range(state.order.length[exchanges_state.UNMATCHED]):
        unmatched = state.order.first[exchanges_state.UNMATCHED]
        if state.pending.deadline_ns[unmatched] >= state.counters[exchanges_state.COUNT_NOW]:
            return
        exchanges_rows.write_unanswered(state, run, unmatched, NULL)


@kernel
def _handle_event(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    run: PassContext,
) -> None:
    """Something between frames; also a frame whose type was not seen.

    At the end of the capture nothing is closed here: `close_rest` does it in the order of frames.
    """
    command = frames.command[row]
    direction_index = 2 * connection + frames.endpoint_index[row]
    if command == NULL:
        state.directions.is_seen[direction_index] = 1
        state.directions.hole_row[direction_index] = state.counters[exchanges_state.COUNT_ROW]
    elif command != columns.EVENT_CLOSE:
        connections.note_event(state, frames, row, direction_index, command)
    elif frames.status[row] != ENDED_CAPTURE_END:
        connections.close_connection(state, run, connection, CONN_CLOSED)


@inlined
def _handle_send(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    run: PassContext,
) -> None:
    """SEND: it waits for its receipt or error."""
    producer_id = frames.producer_id[row]
    sequence_id = frames.sequence_id[row]
    if producer_id == NULL or sequence_id == NULL or frames.status[row] == columns.MALFORMED:
        return
    group = connections.group_of(state, connection, producer_id)
    if frames.incarnation[row] != state.groups.incarnation[group]:
        _begin_incarnation(state, group, frames.incarnation[row], run)
    _note_names(state, frames, row, group)
    outstanding = state.group_lists.length[group]
    send = exchanges_pending.new_pending(state, frames, row, group, exchanges_state.SENDS, run)
    pending = state.pending
    is_producer = state.groups.producer_id[group] != NULL
    pending.outstanding_before[send] = outstanding if is_producer else NULL
    pending.sequence_id[send] = sequence_id
    pending.chunk_id[send] = frames.chunk_id[row]
    pending.crc32c_stored[send] = frames.crc32c_stored[row]
    pending.message_count[send] = _messages_of(frames, row)
    exchanges_pending.into_chain(state, send, exchanges_state.KEY_SEND, sequence_id, producer_id)
    _note_second_key(state, frames, row, group, send)
    source = state.groups.source[group]
    if source != ABSENT and is_producer:
        attempt = begin_attempt(
            state.attempts, source, sequence_id, frames.chunk_id[row], frames.crc32c_stored[row]
        )
        pending.attempt_row[send] = attempt
        if attempt != ABSENT:
            pending.attempt[send] = state.attempts.rows.count[attempt]
    if state.order.first[exchanges_state.UNMATCHED] != ABSENT:
        _handle_unmatched_response(state, send, run)


@inlined
def _messages_of(frames: FrameColumns, row: int) -> int:
    """Messages that a SEND completes: of a chunked message only the last chunk counts, as one."""
    chunk_count = frames.chunk_count[row]
    if chunk_count > 1:
        return 1 if frames.chunk_id[row] == chunk_count - 1 else 0
    return int(frames.message_count[row])


@inlined
def _note_names(state: ExchangeState, frames: FrameColumns, row: int, group: int) -> None:
    """Keep the names of a producer, and the source whose attempts are counted."""
    groups = state.groups
    topic = frames.topic[row]
    producer_name = frames.producer_name[row]
    if topic == groups.topic[group] and producer_name == groups.producer_name[group]:
        return
    groups.topic[group] = topic
    groups.producer_name[group] = producer_name
    groups.source[group] = ABSENT
    if topic != NULL and producer_name != NULL:
        connection = frames.connection_id[row]
        groups.source[group] = source_of(state.attempts, connection, topic, producer_name)


@inlined
def _note_second_key(
    state: ExchangeState, frames: FrameColumns, row: int, group: int, send: int
) -> None:
    """Batches are also known by their last sequence id, copies by their position in the source."""
    highest = frames.highest_sequence_id[row]
    sequence_id = frames.sequence_id[row]
    if highest > 0:
        state.pending.highest_sequence_id[send] = highest
    if frames.repl_source_ledger_id[row] != NULL:
        ledger_id = frames.repl_source_ledger_id[row]
        entry_id = frames.repl_source_entry_id[row]
        state.groups.has_positions[group] = 1
        exchanges_pending.into_other_chain(
            state, send, exchanges_state.KEY_SOURCE_POSITION, ledger_id, entry_id
        )
        return
    last = sequence_id
    if highest > 0:
        last = highest
    elif frames.message_count[row] > 1:
        last = sequence_id + frames.message_count[row] - 1
    if last != sequence_id:
        exchanges_pending.into_other_chain(
            state, send, exchanges_state.KEY_LAST, last, frames.producer_id[row]
        )


@kernel
def _begin_incarnation(
    state: ExchangeState, group: int, incarnation: int, run: PassContext
) -> None:
    """A producer is open again: what still waits from before was dropped."""
    groups = state.groups
    if groups.producer_id[group] == NULL or incarnation < groups.incarnation[group]:
        return
    groups.incarnation[group] = incarnation
    groups.is_broker_closed[group] = 0
    row = state.group_lists.first[group]
    for _ in range(state.group_lists.length[group]):
        after = state.member_links.next[row]
        exchanges_rows.write_unanswered(
            state, run, row, exchanges_rows.given_up(state, row, DROPPED_AFTER_CLOSE)
        )
        row = after
    groups.topic[group] = NULL
    groups.producer_name[group] = NULL
    groups.source[group] = ABSENT


@kernel
def _handle_unmatched_response(state: ExchangeState, row: int, run: PassContext) -> None:
    """A request whose answer was captured before it."""
    unmatched = exchanges_pending.unmatched_response_of(state, row, run)
    if unmatched != ABSENT:
        answer = exchanges_rows.answer_of_unmatched(state, unmatched)
        exchanges_rows.release(state, unmatched)
        exchanges_rows.write_answered(state, run, row, answer)


@inlined
def _set_answered(state: ExchangeState, frames: FrameColumns, row: int, request: int) -> None:
    """Tell the frame what it answers."""
    frames.answered_frame_no[row] = state.pending.frame_no[request]
    frames.answered_last_ns[row] = state.pending.last_ns[request]
    frames.answered_command[row] = state.pending.command[request]


@inlined
def _handle_send_answer(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    run: PassContext,
) -> None:
    """SEND_RECEIPT and SEND_ERROR."""
    producer_id = frames.producer_id[row]
    is_readable = producer_id != NULL and frames.sequence_id[row] != NULL
    if not is_readable or frames.status[row] == columns.MALFORMED:
        state.directions.hole_row[2 * connection + frames.endpoint_index[row]] = state.counters[
            exchanges_state.COUNT_ROW
        ]
        return
    group = connections.group_of(state, connection, producer_id)
    send = exchanges_pending.send_of(state, frames, row, group)
    if send == ABSENT:
        unmatched = exchanges_pending.keep_unmatched(state, frames, row, connection, run)
        state.pending.sequence_id[unmatched] = frames.sequence_id[row]
        if frames.highest_sequence_id[row] > 0:
            state.pending.highest_sequence_id[unmatched] = frames.highest_sequence_id[row]
        exchanges_pending.into_chain(
            state, unmatched, exchanges_state.KEY_SEND, frames.sequence_id[row], producer_id
        )
        return
    groups = state.groups
    if groups.topic[group] != frames.topic[row] and groups.topic[group] == NULL:
        groups.topic[group] = frames.topic[row]
    _set_answered(state, frames, row, send)
    exchanges_rows.write_answered(
        state, run, send, exchanges_rows.answer_of_frame(frames, row, run.error_texts)
    )


@kernel
def _handle_other(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    request: int,
    run: PassContext,
) -> None:
    """Every other command: a request, an answer, or the end or return of a producer."""
    command = frames.command[row]
    if frames.handle_kind[row] == commands.PRODUCER_SUBJECT:
        _handle_lifecycle(state, frames, row, connection, run)
    if run.rules.request_key[command] != -1:
        _handle_request(state, frames, row, connection, run)
    elif run.rules.reply_key[command] != -1:
        _handle_reply(state, frames, row, connection, request, run)


@kernel
def _handle_lifecycle(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    run: PassContext,
) -> None:
    """What closing and reopening a producer does to its sends."""
    lifecycle = frames.lifecycle[row]
    number = frames.handle_id[row]
    incarnation = frames.handle_incarnation[row]
    groups = state.groups
    if lifecycle == columns.LIFECYCLE_CLOSED_BY_BROKER:
        group = connections.group_of(state, connection, number)
        if groups.incarnation[group] == NULL:
            groups.incarnation[group] = incarnation
        if groups.incarnation[group] == incarnation and groups.producer_id[group] != NULL:
            groups.is_broker_closed[group] = 1
        return
    group = find(state.table, exchanges_state.KEY_GROUP, connection, number, 0)
    if group == ABSENT:
        return
    if lifecycle == columns.LIFECYCLE_READY and incarnation > groups.incarnation[group]:
        _begin_incarnation(state, group, incarnation, run)
    is_over = lifecycle in (columns.LIFECYCLE_CLOSED_BY_CLIENT, columns.LIFECYCLE_REFUSED)
    if is_over and state.group_lists.length[group] == 0:
        connections.free_group(state, group)


@kernel
def _handle_request(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    run: PassContext,
) -> None:
    """A request other than a send. ACKs without a request id and closes by the broker are none."""
    command = frames.command[row]
    key = run.rules.request_key[command]
    is_close = command in (commands.CLOSE_PRODUCER, commands.CLOSE_CONSUMER)
    is_of_broker = is_close and frames.direction[row] == columns.TO_CLIENT
    has_no_id = frames.request_id[row] in (NULL, commands.BROKER_REQUEST_ID)
    if key == commands.BY_REQUEST_ID and (is_of_broker or has_no_id):
        return
    if key == commands.BY_WATCHER and frames.watcher_id[row] == NULL:
        return
    group = state.connections.requests[connection]
    request = exchanges_pending.new_pending(
        state, frames, row, group, exchanges_state.REQUESTS, run
    )
    if key == commands.BY_REQUEST_ID:
        exchanges_pending.into_chain(
            state,
            request,
            exchanges_state.KEY_REQUEST,
            frames.request_id[row],
            frames.endpoint_index[row],
        )
    elif key == commands.BY_WATCHER:
        exchanges_pending.into_chain(
            state, request, exchanges_state.KEY_WATCHER, frames.watcher_id[row], command
        )
    else:
        exchanges_pending.into_chain(
            state, request, exchanges_state.KEY_TURN, command, frames.endpoint_index[row]
        )
    if key == commands.BY_NOTHING:
        exchanges_rows.write_unanswered(state, run, request, NOT_AWAITED)
    elif state.order.first[exchanges_state.UNMATCHED] != ABSENT:
        _handle_unmatched_response(state, request, run)


@kernel
def _handle_reply(
    state: ExchangeState,
    frames: FrameColumns,
    row: int,
    connection: int,
    request: int,
    run: PassContext,
) -> None:
    """An answer other than to a send. request: that it answers, or ABSENT."""
    command = frames.command[row]
    key = run.rules.reply_key[command]
    if key == commands.BY_REQUEST_ID and frames.request_id[row] == NULL:
        if frames.status[row] != columns.COMPLETE:
            state.directions.hole_row[2 * connection + frames.endpoint_index[row]] = state.counters[
                exchanges_state.COUNT_ROW
            ]
        return
    if request == ABSENT:
        # Later updates of a watcher answer nothing: they are pushes.
        if key != commands.BY_WATCHER:
            unmatched = exchanges_pending.keep_unmatched(state, frames, row, connection, run)
            asking_endpoint = state.pending.endpoint_index[unmatched]
            if key == commands.BY_TURN:
                exchanges_pending.into_chain(
                    state,
                    unmatched,
                    exchanges_state.KEY_TURN,
                    run.rules.asked_by[command],
                    asking_endpoint,
                )
            else:
                exchanges_pending.into_chain(
                    state,
                    unmatched,
                    exchanges_state.KEY_REQUEST,
                    frames.request_id[row],
                    asking_endpoint,
                )
        return
    _set_answered(state, frames, row, request)
    if command == commands.PRODUCER_SUCCESS and frames.is_ready[row] == 0:
        return
    pending = state.pending
    if frames.topic[row] != NULL:
        pending.topic[request] = frames.topic[row]
    if frames.producer_name[row] != NULL:
        pending.producer_name[request] = frames.producer_name[row]
    exchanges_rows.write_answered(
        state, run, request, exchanges_rows.answer_of_frame(frames, row, run.error_texts)
    )


@kernel
def close_rest(state: ExchangeState, run: PassContext, room: int) -> int:
    """The capture is over: write what waits, requests in the order of their frames, then answers.

    Returns:
        How many pending rows are left because `room` rows were written.
    """
    state.counters[exchanges_state.COUNT_ROW] += 1
    order = state.order
    for _ in range(
        order.length[exchanges_state.SENDS]
        + order.length[exchanges_state.REQUESTS]
        + order.length[exchanges_state.UNMATCHED]
    ):
        if state.counters[exchanges_state.COUNT_OUT] >= room:
            break
        row = order.first[exchanges_state.SENDS]
        other = order.first[exchanges_state.REQUESTS]
        if row == ABSENT or (
            other != ABSENT and state.pending.frame_no[other] < state.pending.frame_no[row]
        ):
            row = other
        if row == ABSENT:
            row = order.first[exchanges_state.UNMATCHED]
            if row == ABSENT:
                break
            exchanges_rows.write_unanswered(state, run, row, NULL)
        else:
            exchanges_rows.write_unanswered(
                state, run, row, exchanges_rows.given_up(state, row, UNANSWERED_AT_END)
            )
    return int(
        order.length[exchanges_state.SENDS]
        + order.length[exchanges_state.REQUESTS]
        + order.length[exchanges_state.UNMATCHED]
    )
