"""Which answer by request id belongs to which request, and what it does to a subject."""

from typing import NamedTuple

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.limits import (
    MAX_CHAIN_STEPS,
    MAX_EARLY_ANSWERS,
    MAX_PENDING_REQUESTS,
    NULL,
)
from dissector.protocols.columns import (
    LIFECYCLE_CLOSED_BY_CLIENT,
    LIFECYCLE_INTERIM,
    LIFECYCLE_NONE,
    LIFECYCLE_READY,
    LIFECYCLE_REFUSED,
    TO_CLIENT,
    FrameColumns,
)
from dissector.protocols.pulsar.registry.state import (
    CLOSING,
    COUNT_EXCHANGES,
    COUNT_NOW,
    EARLY,
    KEY_EARLY,
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
    RuleColumns,
)
from dissector.schemas.words import BY_BROKER, BY_CLIENT
from dissector.tables import (
    ABSENT,
    allocate_row,
    chain_append,
    chain_unlink,
    find,
    give_row,
    list_append,
    list_unlink,
    note_cut_walk,
)


class Registering(NamedTuple):
    """What one pass over a block works with.

    schema_versions: int64[rows], index of each frame's schema version in the registry's list;
    window_ns: how long an early answer waits, by the largest stamp seen; out: gets the rows that
    close, from counters[COUNT_OUT] on; notices: int64[.., 2], kind and row, from
    counters[COUNT_NOTICES] on. As many as can come fit.
    """

    rules: RuleColumns
    schema_versions: Int64Array
    window_ns: int
    out: SubjectRows
    notices: Int64Array


@kernel
def number_request(
    state: RegistryState, frames: FrameColumns, row: int, rules: RuleColumns
) -> None:
    """Number a request; it waits for its answer, unless that was captured before it.

    Nothing answers a request without an id, nor a close by the broker.
    """
    is_close = frames.command[row] in (CLOSE_PRODUCER, CLOSE_CONSUMER)
    is_of_broker = is_close and frames.direction[row] == TO_CLIENT
    if is_of_broker or frames.request_id[row] in (NULL, BROKER_REQUEST_ID):
        return
    key = 2 * connection_row(state, frames.connection_id[row]) + frames.side[row]
    early = _oldest_of(state, frames, row, KEY_EARLY, key, rules)
    if early != ABSENT:
        frames.exchange_no[row] = state.requests.exchange_no[early]
        forget_request(state, early)
        return
    request = _new_request(state, frames, row, KEY_REQUEST, key)
    requests = state.requests
    requests.kind[request] = frames.subject_kind[row]
    requests.id[request] = frames.subject_id[row]
    requests.incarnation[request] = frames.incarnation[row]
    requests.topic[request] = frames.topic[row]
    requests.subscription[request] = frames.subscription[row]


@kernel
def request_of(state: RegistryState, frames: FrameColumns, row: int, run: Registering) -> int:
    """The request that a frame answers; ABSENT, and the answer waits, if there is none yet.

    Unless the answer is an interim one, the row is free then: it holds the request until another
    one comes.
    """
    if frames.request_id[row] in (NULL, BROKER_REQUEST_ID):
        return ABSENT
    key = 2 * connection_row(state, frames.connection_id[row]) + 1 - frames.side[row]
    request = _oldest_of(state, frames, row, KEY_REQUEST, key, run.rules)
    if request == ABSENT:
        early = _new_request(state, frames, row, KEY_EARLY, key)
        state.requests.deadline_ns[early] = state.counters[COUNT_NOW] + run.window_ns
        return ABSENT
    frames.exchange_no[row] = state.requests.exchange_no[request]
    if frames.command[row] != PRODUCER_SUCCESS or frames.is_ready[row] != 0:
        forget_request(state, request)
    return request


@kernel
def _oldest_of(
    state: RegistryState, frames: FrameColumns, row: int, kind: int, key: int, rules: RuleColumns
) -> int:
    """The oldest request, or early answer, that makes a pair with a frame; ABSENT if none does."""
    requests = state.requests
    for _ in range(state.order.length[EARLY]):
        first = state.order.first[EARLY]
        if requests.deadline_ns[first] >= state.counters[COUNT_NOW]:
            break
        forget_request(state, first)
    if state.order.length[kind - KEY_REQUEST] == 0:
        return ABSENT
    command = frames.command[row]
    found = find(state.table, kind, key, frames.request_id[row], 0)
    for _ in range(MAX_CHAIN_STEPS):
        if found == ABSENT:
            return ABSENT
        other = requests.command[found]
        if rules.may_answer[other, command] == 1 or rules.may_answer[command, other] == 1:
            return int(found)
        found = state.chain_links.next[found]
    note_cut_walk(state.table)
    return ABSENT


@kernel
def _new_request(state: RegistryState, frames: FrameColumns, row: int, kind: int, key: int) -> int:
    """A row for a request or an early answer, which gets a number; the oldest one makes room."""
    which = kind - KEY_REQUEST
    bound = MAX_EARLY_ANSWERS if which == EARLY else MAX_PENDING_REQUESTS
    if state.order.length[which] >= bound:
        forget_request(state, state.order.first[which])
    request = allocate_row(state.request_pool)
    state.counters[COUNT_EXCHANGES] += 1
    frames.exchange_no[row] = state.counters[COUNT_EXCHANGES]
    requests = state.requests
    requests.key_kind[request] = kind
    requests.key[request] = key
    requests.request_id[request] = frames.request_id[row]
    requests.exchange_no[request] = frames.exchange_no[row]
    requests.command[request] = frames.command[row]
    chain_append(state.table, state.chain_links, kind, key, frames.request_id[row], 0, request)
    list_append(state.request_lists, state.request_links, key // 2, request)
    list_append(state.order, state.order_links, which, request)
    return request


@kernel
def forget_request(state: RegistryState, request: int) -> None:
    """Take a request, or an early answer, out of everything."""
    requests = state.requests
    kind, key = requests.key_kind[request], requests.key[request]
    request_id = requests.request_id[request]
    chain_unlink(state.table, state.chain_links, kind, key, request_id, 0, request)
    list_unlink(state.request_lists, state.request_links, key // 2, request)
    list_unlink(state.order, state.order_links, kind - KEY_REQUEST, request)
    give_row(state.request_pool, request)


@kernel
def settle(
    state: RegistryState,
    frames: FrameColumns,
    row: int,
    asked: int,
    subject: int,
    run: Registering,
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
            close_subject(state, run.out, subject, BY_BROKER, frames.frame_no[row])
            return LIFECYCLE_REFUSED
        if frames.command[row] == PRODUCER_SUCCESS:
            learn_name(state, subject, frames.wire_producer_name[row])
            if frames.is_ready[row] == 0:
                return LIFECYCLE_INTERIM
            subjects.last_sequence_id[subject] = frames.last_sequence_id[row]
            subjects.topic_epoch[subject] = frames.topic_epoch[row]
            subjects.schema_version[subject] = run.schema_versions[row]
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
            close_subject(state, run.out, subject, BY_CLIENT, NULL)
            return LIFECYCLE_CLOSED_BY_CLIENT
        subjects.state[subject] = OPEN
        subjects.closed_frame_no[subject] = NULL
    return LIFECYCLE_NONE
