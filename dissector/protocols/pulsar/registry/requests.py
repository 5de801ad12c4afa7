"""Requests by id about a producer or consumer, and the effect of their answers on it."""

from typing import NamedTuple

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.limits import NULL
from dissector.notice_rows import Notices
from dissector.protocols.columns import FrameColumns, Lifecycle
from dissector.protocols.pairing.rules import RuleColumns
from dissector.protocols.pulsar.registry.client_handles import close_handle, learn_name
from dissector.protocols.pulsar.registry.state import HandleRows, HandleState, RegistryState
from dissector.protocols.pulsar.wire import commands
from dissector.schemas.enums import BY_BROKER, BY_CLIENT


class RegistryContext(NamedTuple):
    """The arguments of the walk over a block.

    rows_before: ordinal of the last row of the previous block.
    raw_values: int64[rows], by frame: index of its schema version or KeySharedMeta in the list.
    out: rows of closed incarnations are written from counters[COUNT_OUT] on.
    notices: has room for all notices of the block.
    """

    state: RegistryState
    rows_before: int
    rules: RuleColumns
    raw_values: Int64Array
    out: HandleRows
    notices: Notices


class Request(NamedTuple):
    """The request that a frame answers, from the pairing of exchanges.

    command: NULL if no request is known.
    kind: *_SUBJECT, with id and incarnation, of the producer or consumer that it names.
    topic, subscription: codes.
    """

    command: int
    kind: int
    id: int
    incarnation: int
    topic: int
    subscription: int


@kernel
def apply_answer(
    state: RegistryState,
    frames: FrameColumns,
    row: int,
    request_command: int,
    client_handle: int,
    context: RegistryContext,
) -> Lifecycle:
    """Apply the answer to an opening or closing to its client handle; return the Lifecycle."""
    client_handles = state.client_handles
    is_error = frames.command[row] == commands.ERROR
    phase = client_handles.state[client_handle]
    if request_command in (commands.PRODUCER, commands.SUBSCRIBE):
        if is_error:
            client_handles.open_requests[client_handle] -= 1
            if phase != HandleState.OPENING or client_handles.open_requests[client_handle] > 0:
                return Lifecycle.NONE
            client_handles.refused_code[client_handle] = frames.error_code[row]
            close_handle(state, context.out, client_handle, BY_BROKER, frames.frame_no[row])
            return Lifecycle.REFUSED
        if frames.command[row] == commands.PRODUCER_SUCCESS:
            learn_name(state, client_handle, frames.wire_producer_name[row])
            if frames.is_ready[row] == 0:
                return Lifecycle.INTERIM
            client_handles.last_sequence_id[client_handle] = frames.last_sequence_id[row]
            client_handles.topic_epoch[client_handle] = frames.topic_epoch[row]
            client_handles.schema_version[client_handle] = context.raw_values[row]
        client_handles.open_requests[client_handle] -= 1
        if client_handles.ready_frame_no[client_handle] == NULL and (
            phase in (HandleState.OPENING, HandleState.OPEN)
        ):
            client_handles.ready_frame_no[client_handle] = frames.frame_no[row]
        if phase != HandleState.OPENING:
            return Lifecycle.NONE
        client_handles.state[client_handle] = HandleState.OPEN
        client_handles.first_flow_permits[client_handle] = NULL
        return Lifecycle.READY
    if phase == HandleState.CLOSING and (
        request_command in (commands.CLOSE_PRODUCER, commands.CLOSE_CONSUMER, commands.UNSUBSCRIBE)
    ):
        if not is_error:
            close_handle(state, context.out, client_handle, BY_CLIENT, NULL)
            return Lifecycle.CLOSED_BY_CLIENT
        client_handles.state[client_handle] = HandleState.OPEN
        client_handles.closed_frame_no[client_handle] = NULL
    return Lifecycle.NONE
