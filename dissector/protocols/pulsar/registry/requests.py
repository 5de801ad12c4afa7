"""Requests by their id until their answer comes, and what answers do to producers and consumers."""

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.limits import NULL
from dissector.protocols.columns import (
    LIFECYCLE_CLOSED_BY_CLIENT,
    LIFECYCLE_INTERIM,
    LIFECYCLE_NONE,
    LIFECYCLE_READY,
    LIFECYCLE_REFUSED,
    FrameColumns,
)
from dissector.protocols.pulsar.registry.state import (
    CLOSING,
    KEY_REQUEST,
    OPEN,
    OPENING,
    RegistryState,
    SubjectRows,
)
from dissector.protocols.pulsar.registry.subjects import (
    close_subject,
    connection_row,
    learn_name,
)
from dissector.protocols.pulsar.wire.commands import (
    BROKER_REQUEST_ID,
    CLOSE_CONSUMER,
    CLOSE_PRODUCER,
    ERROR,
    PRODUCER,
    PRODUCER_SUCCESS,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from dissector.schemas.words import BY_BROKER, BY_CLIENT
from dissector.tables import (
    ABSENT,
    allocate_row,
    chain_append,
    chain_unlink,
    give_row,
    list_append,
    list_unlink,
)


@kernel
def await_answer(state: RegistryState, frames: FrameColumns, row: int, subject: int) -> None:
    """Remember a request until its answer; the oldest one makes room."""
    request_id = frames.request_id[row]
    if request_id in (NULL, BROKER_REQUEST_ID):
        return
    request = allocate_row(state.request_pool)
    if request == ABSENT:
        forget_request(state, state.order_list.first[0])
        request = allocate_row(state.request_pool)
    connection = connection_row(state, frames.connection_id[row])
    side = frames.side[row]
    requests = state.requests
    requests.connection[request] = connection
    requests.request_id[request] = request_id
    requests.side[request] = side
    requests.command[request] = frames.command[row]
    requests.subject[request] = subject
    requests.kind[request] = NULL if subject == ABSENT else state.subjects.kind[subject]
    requests.id[request] = NULL if subject == ABSENT else state.subjects.id[subject]
    requests.incarnation[request] = frames.incarnation[row]
    requests.topic[request] = frames.topic[row]
    requests.subscription[request] = frames.subscription[row]
    key = connection * 2 + side
    chain_append(state.table, state.chain_links, KEY_REQUEST, key, request_id, 0, request)
    list_append(state.request_lists, state.request_links, connection, request)
    list_append(state.order_list, state.order_links, 0, request)


@kernel
def forget_request(state: RegistryState, request: int) -> None:
    """Take a request out of everything."""
    requests = state.requests
    connection = requests.connection[request]
    key = connection * 2 + requests.side[request]
    request_id = requests.request_id[request]
    chain_unlink(state.table, state.chain_links, KEY_REQUEST, key, request_id, 0, request)
    list_unlink(state.request_lists, state.request_links, connection, request)
    list_unlink(state.order_list, state.order_links, 0, request)
    give_row(state.request_pool, request)


@kernel
def settle(
    state: RegistryState,
    frames: FrameColumns,
    row: int,
    asked: int,
    subject: int,
    schema_versions: Int64Array,
    out: SubjectRows,
) -> int:
    """What the answer to an opening or closing does to its subject; returns a LIFECYCLE_*."""
    subjects = state.subjects
    is_error = frames.command[row] == ERROR
    phase = subjects.state[subject]
    if asked in (PRODUCER, SUBSCRIBE):
        if is_error:
            subjects.open_requests[subject] -= 1
            if phase != OPENING or subjects.open_requests[subject] > 0:
                return LIFECYCLE_NONE
            subjects.refused_code[subject] = frames.error_code[row]
            close_subject(state, out, subject, BY_BROKER, frames.frame_no[row])
            return LIFECYCLE_REFUSED
        if frames.command[row] == PRODUCER_SUCCESS:
            learn_name(state, subject, frames.wire_producer_name[row])
            if frames.is_ready[row] == 0:
                return LIFECYCLE_INTERIM
            subjects.last_sequence_id[subject] = frames.last_sequence_id[row]
            subjects.topic_epoch[subject] = frames.topic_epoch[row]
            subjects.schema_version[subject] = schema_versions[row]
        subjects.open_requests[subject] -= 1
        if subjects.ready_frame_no[subject] == NULL and (phase in (OPENING, OPEN)):
            subjects.ready_frame_no[subject] = frames.frame_no[row]
        if phase != OPENING:
            return LIFECYCLE_NONE
        subjects.state[subject] = OPEN
        subjects.first_flow_permits[subject] = NULL
        return LIFECYCLE_READY
    if phase == CLOSING and (asked in (CLOSE_PRODUCER, CLOSE_CONSUMER, UNSUBSCRIBE)):
        if not is_error:
            close_subject(state, out, subject, BY_CLIENT, NULL)
            return LIFECYCLE_CLOSED_BY_CLIENT
        subjects.state[subject] = OPEN
        subjects.closed_frame_no[subject] = NULL
    return LIFECYCLE_NONE
