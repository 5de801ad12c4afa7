"""What a request by id asked of a producer or consumer, and what the answer does to it."""

from typing import NamedTuple

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
    OPEN,
    OPENING,
    RegistryState,
    SubjectRows,
)
from dissector.protocols.pulsar.registry.subjects import close_subject, learn_name
from dissector.protocols.pulsar.wire.commands import (
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


class Registering(NamedTuple):
    """What the walk over a block works with.

    rows_before: ordinal of the last row of the block before; schema_versions: int64[rows], index
    of each frame's schema version in the registry's list; out: gets the rows that close, from
    counters[COUNT_OUT] on; notices: int64[.., 2], kind and row, from counters[COUNT_NOTICES] on. As
    many as can come fit.
    """

    state: RegistryState
    rows_before: int
    rules: RuleColumns
    schema_versions: Int64Array
    out: SubjectRows
    notices: Int64Array


class Asked(NamedTuple):
    """The request that a frame answers, as the pairing of exchanges remembers it.

    command: NULL where no request is known; kind: *_SUBJECT that it names, with its id and the
    incarnation that it had; topic, subscription: codes.
    """

    command: int
    kind: int
    id: int
    incarnation: int
    topic: int
    subscription: int


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
