"""What a request by id asked of a producer or consumer, and what the answer does to it."""

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
    """What the walk over a block works with.

    rows_before: ordinal of the last row of the block before.
    said: int64[rows], index of each frame's schema version or KeySharedMeta in the registry's list.
    out: gets the rows that close, from counters[COUNT_OUT] on.
    notices: as many as can come fit.
    """

    state: RegistryState
    rows_before: int
    rules: RuleColumns
    said: Int64Array
    out: HandleRows
    notices: Notices


class Asked(NamedTuple):
    """The request that a frame answers, as the pairing of exchanges remembers it.

    command: NULL where no request is known.
    kind: *_SUBJECT that it names, with its id and the incarnation that it had.
    topic, subscription: codes.
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
    client_handle: int,
    run: RegistryContext,
) -> Lifecycle:
    """What the answer to an opening or closing does to its subject; returns a Lifecycle."""
    client_handles = state.client_handles
    is_error = frames.command[row] == commands.ERROR
    phase = client_handles.state[client_handle]
    if asked in (commands.PRODUCER, commands.SUBSCRIBE):
        if is_error:
            client_handles.open_requests[client_handle] -= 1
            if phase != HandleState.OPENING or client_handles.open_requests[client_handle] > 0:
                return Lifecycle.NONE
            client_handles.refused_code[client_handle] = frames.error_code[row]
            close_handle(state, run.out, client_handle, BY_BROKER, frames.frame_no[row])
            return Lifecycle.REFUSED
        if frames.command[row] == commands.PRODUCER_SUCCESS:
            learn_name(state, client_handle, frames.wire_producer_name[row])
            if frames.is_ready[row] == 0:
                return Lifecycle.INTERIM
            client_handles.last_sequence_id[client_handle] = frames.last_sequence_id[row]
            client_handles.topic_epoch[client_handle] = frames.topic_epoch[row]
            client_handles.schema_version[client_handle] = run.said[row]
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
        asked in (commands.CLOSE_PRODUCER, commands.CLOSE_CONSUMER, commands.UNSUBSCRIBE)
    ):
        if not is_error:
            close_handle(state, run.out, client_handle, BY_CLIENT, NULL)
            return Lifecycle.CLOSED_BY_CLIENT
        client_handles.state[client_handle] = HandleState.OPEN
        client_handles.closed_frame_no[client_handle] = NULL
    return Lifecycle.NONE
