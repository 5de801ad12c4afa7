"""What the command of each frame does to producers and consumers."""

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import (
    EVENT_CLOSE,
    EVENT_GAP,
    EVENT_SKIPPED,
    LIFECYCLE_CLOSED_BY_BROKER,
    LIFECYCLE_CLOSING_BY_CLIENT,
    LIFECYCLE_NONE,
    LIFECYCLE_OPENING,
    LIFECYCLE_REPEATED,
    MALFORMED,
    NAME_OBSERVED,
    TO_BROKER,
    TO_CLIENT,
    FrameColumns,
)
from dissector.protocols.pulsar.registry.requests import (
    Asked,
    Registering,
    settle,
)
from dissector.protocols.pulsar.registry.state import (
    CLOSED,
    CLOSING,
    COUNT_NOTICES,
    COUNT_ROW,
    KEY_CONNECTION,
    OPEN,
    OPENING,
    UNOPENED,
    RegistryState,
    SubjectRows,
)
from dissector.protocols.pulsar.registry.subjects import (
    begin_incarnation,
    close_connection,
    close_subject,
    connection_row,
    describe,
    learn_ledger,
    learn_name,
    learn_topic,
    subject_of,
)
from dissector.protocols.pulsar.wire.commands import (
    ACK,
    BROKER_REQUEST_ID,
    BY_REQUEST_ID,
    CLOSE_CONSUMER,
    CLOSE_PRODUCER,
    COMMAND_SLOTS,
    CONNECT,
    CONSUMER_SUBJECT,
    FLOW,
    MESSAGE,
    PRODUCER,
    PRODUCER_SUBJECT,
    SEND,
    SEND_ERROR,
    SEND_RECEIPT,
    SUBSCRIBE,
    UNSUBSCRIBE,
    RuleColumns,
)
from dissector.schemas.words import BY_BROKER, BY_CAPTURE_END, BY_CLIENT, BY_CONNECTION
from dissector.stream.columns import ENDED_CAPTURE_END
from dissector.tables import (
    ABSENT,
    find,
    give_row,
    remove,
)

ID_REOPENED = NOTICE_NUMBER["id_reopened"]
REPLICATED = 8  # bit of has_property: the metadata is that of another cluster's producer


@inlined
def register_frame(frames: FrameColumns, row: int, asked: Asked, run: Registering) -> None:
    """Fill the registry's columns of a frame, or take note of an event.

    Args:
        asked: what the frame answers, if it is an answer by request id.
    """
    state = run.state
    state.counters[COUNT_ROW] = run.rows_before + row + 1
    command = frames.command[row]
    if command in (SEND, SEND_RECEIPT, SEND_ERROR):
        _handle_send(state, frames, row, command)
    elif command == MESSAGE:
        _handle_message(state, frames, row)
    elif command < 0:
        _handle_event(state, frames, row, run.out)
    elif frames.status[row] != MALFORMED:
        _handle_rest(frames, row, asked, run)


@kernel
def _handle_rest(frames: FrameColumns, row: int, asked: Asked, run: Registering) -> None:
    """Every command that does not come in masses."""
    command = frames.command[row]
    if command >= COMMAND_SLOTS:
        _copy_names(frames, row)
    elif run.rules.request_key[command] == BY_REQUEST_ID:
        _handle_request(run.state, frames, row, run)
    elif run.rules.reply_key[command] == BY_REQUEST_ID:
        _handle_reply(run.state, frames, row, asked, run)
    else:
        _handle_other(run.state, frames, row, run.rules)


@inlined
def _handle_send(state: RegistryState, frames: FrameColumns, row: int, command: int) -> None:
    """SEND and its answers: the incarnation in use, the producer's name, the ledger."""
    number = frames.producer_id[row]
    if number == NULL or frames.status[row] == MALFORMED:
        return
    subject = subject_of(state, frames.connection_id[row], PRODUCER_SUBJECT, number)
    if subject == ABSENT:
        return
    subjects = state.subjects
    if command == SEND:
        if subjects.state[subject] != OPEN:
            _use(state, subject)
        if subjects.name[subject] == NULL:
            _learn_from_send(state, frames, row, subject)
    elif command == SEND_RECEIPT and (
        subjects.topic[subject] == NULL or frames.ledger_id[row] != subjects.last_ledger[subject]
    ):
        learn_ledger(state, subject, frames.ledger_id[row], frames.entry_id[row])
    describe(state, frames, row, subject)
    if command != SEND:
        _step_back(state, frames, row, subject)
    elif frames.producer_name[row] == NULL:
        frames.producer_name[row] = frames.wire_producer_name[row]


@inlined
def _handle_message(state: RegistryState, frames: FrameColumns, row: int) -> None:
    """MESSAGE: as SEND_RECEIPT, for a consumer."""
    number = frames.consumer_id[row]
    if number == NULL or frames.status[row] == MALFORMED:
        return
    subject = subject_of(state, frames.connection_id[row], CONSUMER_SUBJECT, number)
    if subject == ABSENT:
        return
    subjects = state.subjects
    if subjects.topic[subject] == NULL or frames.ledger_id[row] != subjects.last_ledger[subject]:
        learn_ledger(state, subject, frames.ledger_id[row], frames.entry_id[row])
    describe(state, frames, row, subject)
    frames.producer_name[row] = frames.wire_producer_name[row]
    _step_back(state, frames, row, subject)


@inlined
def _use(state: RegistryState, subject: int) -> None:
    """A client uses a producer: the success of its opening was there, seen or not."""
    subjects = state.subjects
    phase = subjects.state[subject]
    is_whole = state.connections.is_whole[subjects.connection[subject]]
    if phase == OPENING or (phase == UNOPENED and is_whole == 0):
        subjects.state[subject] = OPEN


@inlined
def _step_back(state: RegistryState, frames: FrameColumns, row: int, subject: int) -> None:
    """What the broker sends before it has answered an opening belongs to the incarnation before.

    Unless there is none before, or the answer may have been lost in a hole.
    """
    subjects = state.subjects
    if subjects.state[subject] != OPENING:
        return
    hole = state.connections.hole_row[subjects.connection[subject]]
    if subjects.incarnation[subject] == 0 or hole > subjects.opened_row[subject]:
        subjects.state[subject] = OPEN
        return
    frames.incarnation[row] -= 1
    frames.subject_incarnation[row] -= 1


@kernel
def _learn_from_send(state: RegistryState, frames: FrameColumns, row: int, subject: int) -> None:
    """Take a producer's name from the metadata, unless it was copied from another cluster."""
    has_property = frames.has_property[row]
    if has_property != NULL and has_property & REPLICATED:
        return
    if frames.replicated_from[row] == NULL:
        learn_name(state, subject, frames.wire_producer_name[row])


@kernel
def _handle_event(state: RegistryState, frames: FrameColumns, row: int, out: SubjectRows) -> None:
    """A hole makes uncertain what was opened; the end of the connection ends everything.

    At the end of the capture nothing is closed here: `close_all` does it in the order of frames.
    """
    connection = find(state.table, KEY_CONNECTION, frames.connection_id[row], 0, 0)
    command = frames.command[row]
    if connection == ABSENT:
        return
    if command in (EVENT_GAP, EVENT_SKIPPED):
        direction = frames.direction[row]
        if direction != TO_CLIENT:
            state.connections.is_whole[connection] = 0
        if direction != TO_BROKER:
            state.connections.hole_row[connection] = state.counters[COUNT_ROW]
    elif command == EVENT_CLOSE and frames.status[row] != ENDED_CAPTURE_END:
        _forget_connection(state, out, connection, BY_CONNECTION)


@kernel
def _forget_connection(
    state: RegistryState, out: SubjectRows, connection: int, closed_by: int
) -> None:
    """Close a connection's subjects and forget it."""
    close_connection(state, out, connection, closed_by)
    remove(state.table, KEY_CONNECTION, state.connections.connection_id[connection], 0, 0)
    state.connections.connection_id[connection] = NULL
    give_row(state.connection_pool, connection)


@kernel
def close_all(state: RegistryState, out: SubjectRows) -> None:
    """The capture is over: close what is open on every connection."""
    state.counters[COUNT_ROW] += 1
    for connection in range(len(state.connections.connection_id)):
        if state.connections.connection_id[connection] != NULL:
            _forget_connection(state, out, connection, BY_CAPTURE_END)


@kernel
def _handle_request(state: RegistryState, frames: FrameColumns, row: int, run: Registering) -> None:
    """A request by id: what it does to its subject."""
    command = frames.command[row]
    if command in (PRODUCER, SUBSCRIBE):
        _handle_opening(state, frames, row, run)
    elif command in (CLOSE_PRODUCER, CLOSE_CONSUMER, UNSUBSCRIBE):
        _handle_closing(state, frames, row, run.out)
    else:
        _handle_other(state, frames, row, run.rules)


@kernel
def _handle_opening(state: RegistryState, frames: FrameColumns, row: int, run: Registering) -> None:
    """PRODUCER or SUBSCRIBE: a new incarnation, or a repeat on a live id."""
    command = frames.command[row]
    kind = PRODUCER_SUBJECT if command == PRODUCER else CONSUMER_SUBJECT
    number = frames.producer_id[row] if command == PRODUCER else frames.consumer_id[row]
    if number == NULL:
        return
    subject = subject_of(state, frames.connection_id[row], kind, number)
    if subject == ABSENT:
        return
    subjects = state.subjects
    phase = subjects.state[subject]
    lifecycle = LIFECYCLE_OPENING
    # An id first met here is not open: its row was made by this very frame.
    is_new = subjects.opened_row[subject] == state.counters[COUNT_ROW]
    if is_new and phase == OPEN:
        subjects.state[subject] = UNOPENED
        phase = UNOPENED
    if phase in (OPENING, OPEN):
        lifecycle = LIFECYCLE_REPEATED
        notice = state.counters[COUNT_NOTICES]
        run.notices[notice, 0] = ID_REOPENED
        run.notices[notice, 1] = row
        state.counters[COUNT_NOTICES] = notice + 1
    else:
        if phase == CLOSING:
            close_subject(state, run.out, subject, BY_CLIENT, NULL)
        begin_incarnation(state, subject, frames.frame_no[row])
    subjects.open_requests[subject] += 1
    learn_topic(state, subject, frames.wire_topic[row], NAME_OBSERVED)
    if command == PRODUCER:
        subjects.epoch[subject] = frames.producer_epoch[row]
        subjects.access_mode[subject] = frames.access_mode[row]
        learn_name(state, subject, frames.wire_producer_name[row])
    else:
        _learn_subscription(state, frames, row, subject)
    describe(state, frames, row, subject)
    frames.lifecycle[row] = lifecycle


@kernel
def _learn_subscription(state: RegistryState, frames: FrameColumns, row: int, subject: int) -> None:
    """What a SUBSCRIBE says of its consumer."""
    subjects = state.subjects
    if frames.wire_subscription[row] != NULL:
        subjects.subscription[subject] = frames.wire_subscription[row]
    if frames.wire_consumer_name[row] != NULL:
        subjects.name[subject] = frames.wire_consumer_name[row]
    subjects.subscription_type[subject] = frames.subscription_type[row]
    subjects.priority_level[subject] = frames.priority_level[row]
    subjects.is_durable[subject] = frames.is_durable[row]
    subjects.initial_position[subject] = frames.initial_position[row]


@kernel
def _handle_closing(state: RegistryState, frames: FrameColumns, row: int, out: SubjectRows) -> None:
    """CLOSE_* and UNSUBSCRIBE: the broker's word is final, the client's waits for its answer."""
    kind = PRODUCER_SUBJECT if frames.command[row] == CLOSE_PRODUCER else CONSUMER_SUBJECT
    number = frames.producer_id[row] if kind == PRODUCER_SUBJECT else frames.consumer_id[row]
    if number == NULL:
        return
    subject = subject_of(state, frames.connection_id[row], kind, number)
    if subject == ABSENT:
        return
    subjects = state.subjects
    phase = subjects.state[subject]
    is_live = phase in (OPENING, OPEN, CLOSING)
    describe(state, frames, row, subject)
    if frames.direction[row] == TO_CLIENT or frames.request_id[row] == BROKER_REQUEST_ID:
        if is_live:
            frames.lifecycle[row] = LIFECYCLE_CLOSED_BY_BROKER
            closed_by = BY_CLIENT if phase == CLOSING else BY_BROKER
            frame_no = NULL if phase == CLOSING else frames.frame_no[row]
            close_subject(state, out, subject, closed_by, frame_no)
        return
    if is_live:
        subjects.state[subject] = CLOSING
        if phase != CLOSING:
            subjects.closed_frame_no[subject] = frames.frame_no[row]
        frames.lifecycle[row] = LIFECYCLE_CLOSING_BY_CLIENT


@kernel
def _handle_other(state: RegistryState, frames: FrameColumns, row: int, rules: RuleColumns) -> None:
    """Every other command: names of its subject, or its own."""
    command = frames.command[row]
    kind = rules.subject[command]
    number = frames.consumer_id[row]
    subject = ABSENT
    if kind == CONSUMER_SUBJECT and number != NULL:
        subject = subject_of(state, frames.connection_id[row], kind, number)
    if subject == ABSENT:
        _copy_names(frames, row)
        if command == CONNECT:
            connection = connection_row(state, frames.connection_id[row])
            if state.subject_lists.first[connection] == ABSENT:
                state.connections.is_whole[connection] = 1
    else:
        if command == FLOW:
            _handle_flow(state, frames, row, subject)
        describe(state, frames, row, subject)


@kernel
def _handle_flow(state: RegistryState, frames: FrameColumns, row: int, subject: int) -> None:
    """Keep the first permits of an incarnation that was seen from its start.

    The broker ignores a FLOW before it has answered the SUBSCRIBE, so the answer clears the number.
    """
    subjects = state.subjects
    phase = subjects.state[subject]
    is_known = subjects.first_flow_permits[subject] != NULL
    if subjects.opened_frame_no[subject] == NULL or is_known or phase == CLOSED:
        return
    subjects.first_flow_permits[subject] = frames.permits[row]


@kernel
def _copy_names(frames: FrameColumns, row: int) -> None:
    """Names of a frame that is about no producer or consumer: its own."""
    frames.topic[row] = frames.wire_topic[row]
    frames.subscription[row] = frames.wire_subscription[row]
    frames.producer_name[row] = frames.wire_producer_name[row]
    frames.consumer_name[row] = frames.wire_consumer_name[row]
    if frames.wire_topic[row] != NULL:
        frames.name_source[row] = NAME_OBSERVED
    frames.lifecycle[row] = LIFECYCLE_NONE


@kernel
def _handle_reply(
    state: RegistryState, frames: FrameColumns, row: int, asked: Asked, run: Registering
) -> None:
    """An answer by request id: its request tells what it is about."""
    # ACK_RESPONSE names its consumer itself.
    if asked.command in (NULL, ACK):
        _handle_other(state, frames, row, run.rules)
        return
    connection = connection_row(state, frames.connection_id[row])
    subject = find(state.table, asked.kind, connection, asked.id, 0)
    if subject != ABSENT:
        lifecycle = LIFECYCLE_NONE
        if state.subjects.incarnation[subject] == asked.incarnation:
            lifecycle = settle(state, frames, row, asked.command, subject, run)
        describe(state, frames, row, subject)
        frames.incarnation[row] = asked.incarnation
        frames.subject_incarnation[row] = asked.incarnation
        frames.lifecycle[row] = lifecycle
    else:
        _copy_names(frames, row)
        if frames.topic[row] == NULL and asked.topic != NULL:
            frames.topic[row] = asked.topic
            frames.name_source[row] = NAME_OBSERVED
        if frames.subscription[row] == NULL:
            frames.subscription[row] = asked.subscription
