"""Apply the command of each frame to producers and consumers."""

from dissector import tables
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns, FrameEvent, Lifecycle
from dissector.protocols.frame_notices import note_frame
from dissector.protocols.pairing import rules
from dissector.protocols.pairing.connections import may_hide_frames
from dissector.protocols.pairing.rules import PairedBy
from dissector.protocols.pulsar.registry import client_handles as registry_client_handles
from dissector.protocols.pulsar.registry import state as registry_state
from dissector.protocols.pulsar.registry.requests import RegistryContext, Request, apply_answer
from dissector.protocols.pulsar.registry.state import (
    HandleRows,
    HandleState,
    RegistryKey,
    RegistryState,
)
from dissector.protocols.pulsar.wire import commands
from dissector.schemas.enums import BY_BROKER, BY_CAPTURE_END, BY_CLIENT, BY_CONNECTION
from dissector.stream.columns import ENDED_CAPTURE_END

ID_REOPENED = NOTICE_NUMBER["id_reopened"]
REPLICATED = 8  # bit of has_property: the metadata is that of another cluster's producer


@inlined
def register_frame(
    frames: FrameColumns, row: int, request: Request, context: RegistryContext
) -> None:
    """Fill the registry's columns of a frame, or handle an event.

    Args:
        request: that the frame answers, if it is an answer by request id.
    """
    state = context.state
    state.counters[registry_state.COUNT_ROW] = context.rows_before + row + 1
    command = frames.command[row]
    if command in (commands.SEND, commands.SEND_RECEIPT, commands.SEND_ERROR):
        _handle_send(state, frames, row, command)
    elif command == commands.MESSAGE:
        _handle_message(state, frames, row)
    elif command < 0:
        _handle_event(state, frames, row, context.out)
    elif frames.status[row] != columns.MALFORMED:
        _handle_uncommon(frames, row, request, context)


@kernel
def _handle_uncommon(
    frames: FrameColumns, row: int, request: Request, context: RegistryContext
) -> None:
    """Handle a frame other than SEND, its answers and MESSAGE, which are most of the traffic."""
    command = frames.command[row]
    if command >= rules.COMMAND_SLOTS:
        _copy_names(frames, row)
    elif context.rules.request_key[command] == PairedBy.REQUEST_ID:
        _handle_request(context.state, frames, row, context)
    elif context.rules.reply_key[command] == PairedBy.REQUEST_ID:
        _handle_reply(context.state, frames, row, request, context)
    else:
        _handle_other(context.state, frames, row, context)


@inlined
def _handle_send(state: RegistryState, frames: FrameColumns, row: int, command: int) -> None:
    """Handle SEND and its answers: the incarnation in use, the producer's name, the ledger."""
    number = frames.producer_id[row]
    if number == NULL or frames.status[row] == columns.MALFORMED:
        return
    client_handle = registry_client_handles.handle_of(
        state, frames, row, commands.PRODUCER_SUBJECT, number
    )
    if client_handle == tables.ABSENT:
        return
    client_handles = state.client_handles
    if command == commands.SEND:
        if client_handles.state[client_handle] != HandleState.OPEN:
            _mark_used(state, client_handle)
        if client_handles.name[client_handle] == NULL:
            _learn_from_send(state, frames, row, client_handle)
    elif command == commands.SEND_RECEIPT:
        _learn_ledger(state, frames, row, client_handle)
    registry_client_handles.describe(state, frames, row, client_handle)
    if command != commands.SEND:
        _use_previous(state, frames, row, client_handle)


@inlined
def _learn_ledger(state: RegistryState, frames: FrameColumns, row: int, client_handle: int) -> None:
    """Relate the ledger of a stored or delivered entry to the handle's topic."""
    client_handles = state.client_handles
    if (
        client_handles.topic[client_handle] == NULL
        or frames.ledger_id[row] != client_handles.last_ledger[client_handle]
    ):
        registry_client_handles.learn_ledger(
            state, client_handle, frames.ledger_id[row], frames.entry_id[row]
        )


@inlined
def _handle_message(state: RegistryState, frames: FrameColumns, row: int) -> None:
    """Handle MESSAGE: as SEND_RECEIPT, for a consumer."""
    number = frames.consumer_id[row]
    if number == NULL or frames.status[row] == columns.MALFORMED:
        return
    client_handle = registry_client_handles.handle_of(
        state, frames, row, commands.CONSUMER_SUBJECT, number
    )
    if client_handle == tables.ABSENT:
        return
    _learn_ledger(state, frames, row, client_handle)
    registry_client_handles.describe(state, frames, row, client_handle)
    frames.producer_name[row] = frames.wire_producer_name[row]
    _use_previous(state, frames, row, client_handle)


@inlined
def _mark_used(state: RegistryState, client_handle: int) -> None:
    """Mark a producer as OPEN when it sends: its opening has succeeded, captured or not."""
    client_handles = state.client_handles
    phase = client_handles.state[client_handle]
    is_whole = state.connections.is_whole[client_handles.connection[client_handle]]
    if phase == HandleState.OPENING or (phase == HandleState.UNOPENED and is_whole == 0):
        client_handles.state[client_handle] = HandleState.OPEN


@inlined
def _use_previous(state: RegistryState, frames: FrameColumns, row: int, client_handle: int) -> None:
    """Assign a broker's frame to the previous incarnation if the opening is not answered yet.

    If there is no previous one, or the answer may lie in a hole, the handle becomes OPEN instead.
    """
    client_handles = state.client_handles
    if client_handles.state[client_handle] != HandleState.OPENING:
        return
    hole = state.connections.hole_row[client_handles.connection[client_handle]]
    if (
        client_handles.incarnation[client_handle] == 0
        or hole > client_handles.opened_row[client_handle]
    ):
        client_handles.state[client_handle] = HandleState.OPEN
        return
    frames.incarnation[row] -= 1
    frames.handle_incarnation[row] -= 1


@kernel
def _learn_from_send(
    state: RegistryState, frames: FrameColumns, row: int, client_handle: int
) -> None:
    """Set a producer's name from the metadata, unless the entry is a copy from another cluster."""
    has_property = frames.has_property[row]
    if has_property != NULL and has_property & REPLICATED:
        return
    if frames.replicated_from[row] == NULL:
        registry_client_handles.learn_name(state, client_handle, frames.wire_producer_name[row])


@kernel
def _handle_event(state: RegistryState, frames: FrameColumns, row: int, out: HandleRows) -> None:
    """Handle a gap, which may hide openings or answers, or a close, which ends all handles.

    At the end of the capture nothing is closed here: `close_all` does it in the order of frames.
    """
    connection = tables.find(state.table, RegistryKey.CONNECTION, frames.connection_id[row], 0, 0)
    command = frames.command[row]
    if connection == tables.ABSENT:
        return
    if command in (FrameEvent.GAP, FrameEvent.SKIPPED):
        direction = frames.direction[row]
        if direction != columns.TO_CLIENT:
            # Also for a gap inside a frame: it may be the SUBSCRIBE.
            state.connections.is_whole[connection] = 0
        if direction != columns.TO_BROKER and may_hide_frames(frames, row):
            state.connections.hole_row[connection] = state.counters[registry_state.COUNT_ROW]
    elif command == FrameEvent.CLOSE and frames.status[row] != ENDED_CAPTURE_END:
        _forget_connection(state, out, connection, BY_CONNECTION)


@kernel
def _forget_connection(
    state: RegistryState, out: HandleRows, connection: int, closed_by: int
) -> None:
    """Close a connection's handles and free its row."""
    registry_client_handles.close_connection(state, out, connection, closed_by)
    tables.remove(
        state.table,
        RegistryKey.CONNECTION,
        state.connections.connection_id[connection],
        0,
        0,
    )
    state.connections.connection_id[connection] = NULL
    tables.give_row(state.connection_pool, connection)


@kernel
def close_all(state: RegistryState, out: HandleRows) -> None:
    """Close all connections and their handles at the end of the capture."""
    state.counters[registry_state.COUNT_ROW] += 1
    for connection in range(len(state.connections.connection_id)):
        if state.connections.connection_id[connection] != NULL:
            _forget_connection(state, out, connection, BY_CAPTURE_END)


@kernel
def _handle_request(
    state: RegistryState, frames: FrameColumns, row: int, context: RegistryContext
) -> None:
    """Handle a request by id: an opening, a closing, or another command."""
    command = frames.command[row]
    if command in (commands.PRODUCER, commands.SUBSCRIBE):
        _handle_opening(state, frames, row, context)
    elif command in (commands.CLOSE_PRODUCER, commands.CLOSE_CONSUMER, commands.UNSUBSCRIBE):
        _handle_closing(state, frames, row, context.out)
    else:
        _handle_other(state, frames, row, context)


@kernel
def _handle_opening(
    state: RegistryState, frames: FrameColumns, row: int, context: RegistryContext
) -> None:
    """Handle PRODUCER or SUBSCRIBE: begin an incarnation, or note a repetition on a live id."""
    command = frames.command[row]
    kind = commands.PRODUCER_SUBJECT if command == commands.PRODUCER else commands.CONSUMER_SUBJECT
    number = frames.producer_id[row] if command == commands.PRODUCER else frames.consumer_id[row]
    if number == NULL:
        return
    client_handle = registry_client_handles.handle_of(state, frames, row, kind, number)
    if client_handle == tables.ABSENT:
        return
    client_handles = state.client_handles
    phase = client_handles.state[client_handle]
    lifecycle = Lifecycle.OPENING
    # An id first seen in this frame is not open: the frame added its row.
    is_new = client_handles.opened_row[client_handle] == state.counters[registry_state.COUNT_ROW]
    if is_new and phase == HandleState.OPEN:
        client_handles.state[client_handle] = HandleState.UNOPENED
        phase = HandleState.UNOPENED
    is_open = phase in (HandleState.OPENING, HandleState.OPEN)
    is_known = client_handles.opened_frame_no[client_handle] != NULL and frames.is_two_way[row] != 0
    if is_open and is_known:
        lifecycle = Lifecycle.REPEATED
        note_frame(context.notices, ID_REOPENED, frames, row, number, NULL)
    else:
        # It is not known how an open one ended without the broker's frames, or if it was there
        # before the capture: its client uses what the broker has closed until it knows, and the
        # broker may still confirm sends. Most were closed.
        if is_open or phase == HandleState.CLOSING:
            closed_by = NULL if is_open else BY_CLIENT
            registry_client_handles.close_handle(state, context.out, client_handle, closed_by, NULL)
        registry_client_handles.begin_incarnation(state, client_handle, frames.frame_no[row])
    client_handles.open_requests[client_handle] += 1
    registry_client_handles.learn_topic(
        state, client_handle, frames.wire_topic[row], columns.NAME_OBSERVED
    )
    if command == commands.PRODUCER:
        client_handles.epoch[client_handle] = frames.producer_epoch[row]
        client_handles.access_mode[client_handle] = frames.access_mode[row]
        registry_client_handles.learn_name(state, client_handle, frames.wire_producer_name[row])
    else:
        _learn_subscription(context, frames, row, client_handle)
    registry_client_handles.describe(state, frames, row, client_handle)
    frames.lifecycle[row] = lifecycle


@kernel
def _learn_subscription(
    context: RegistryContext, frames: FrameColumns, row: int, client_handle: int
) -> None:
    """Set the columns of a consumer from its SUBSCRIBE."""
    client_handles = context.state.client_handles
    if frames.wire_subscription[row] != NULL:
        client_handles.subscription[client_handle] = frames.wire_subscription[row]
    if frames.wire_consumer_name[row] != NULL:
        client_handles.name[client_handle] = frames.wire_consumer_name[row]
    client_handles.subscription_type[client_handle] = frames.subscription_type[row]
    client_handles.priority_level[client_handle] = frames.priority_level[row]
    client_handles.is_durable[client_handle] = frames.is_durable[row]
    client_handles.initial_position[client_handle] = frames.initial_position[row]
    client_handles.key_shared[client_handle] = context.raw_values[row]


@kernel
def _handle_closing(state: RegistryState, frames: FrameColumns, row: int, out: HandleRows) -> None:
    """Handle CLOSE_* and UNSUBSCRIBE: the broker's is final, the client's awaits its answer."""
    kind = (
        commands.PRODUCER_SUBJECT
        if frames.command[row] == commands.CLOSE_PRODUCER
        else commands.CONSUMER_SUBJECT
    )
    number = (
        frames.producer_id[row] if kind == commands.PRODUCER_SUBJECT else frames.consumer_id[row]
    )
    if number == NULL:
        return
    client_handle = registry_client_handles.handle_of(state, frames, row, kind, number)
    if client_handle == tables.ABSENT:
        return
    client_handles = state.client_handles
    phase = client_handles.state[client_handle]
    is_live = phase in (HandleState.OPENING, HandleState.OPEN, HandleState.CLOSING)
    registry_client_handles.describe(state, frames, row, client_handle)
    if (
        frames.direction[row] == columns.TO_CLIENT
        or frames.request_id[row] == commands.BROKER_REQUEST_ID
    ):
        if is_live:
            frames.lifecycle[row] = Lifecycle.CLOSED_BY_BROKER
            closed_by = BY_CLIENT if phase == HandleState.CLOSING else BY_BROKER
            frame_no = NULL if phase == HandleState.CLOSING else frames.frame_no[row]
            registry_client_handles.close_handle(state, out, client_handle, closed_by, frame_no)
        return
    if is_live:
        client_handles.state[client_handle] = HandleState.CLOSING
        if phase != HandleState.CLOSING:
            client_handles.closed_frame_no[client_handle] = frames.frame_no[row]
        frames.lifecycle[row] = Lifecycle.CLOSING_BY_CLIENT


@kernel
def _handle_other(
    state: RegistryState, frames: FrameColumns, row: int, context: RegistryContext
) -> None:
    """Handle any other command: fill the names of its handle, or its own."""
    command = frames.command[row]
    kind = context.rules.client_handle[command]
    number = frames.consumer_id[row]
    client_handle = tables.ABSENT
    if kind == commands.CONSUMER_SUBJECT and number != NULL:
        client_handle = registry_client_handles.handle_of(state, frames, row, kind, number)
    if client_handle == tables.ABSENT:
        _copy_names(frames, row)
        if command == commands.CONNECT:
            connection = registry_client_handles.connection_row(state, frames, row)
            if state.handle_lists.first[connection] == tables.ABSENT:
                state.connections.is_whole[connection] = 1
    else:
        if command == commands.FLOW:
            _handle_flow(state, frames, row, client_handle)
        registry_client_handles.describe(state, frames, row, client_handle)


@kernel
def _handle_flow(state: RegistryState, frames: FrameColumns, row: int, client_handle: int) -> None:
    """Store the first permits of an incarnation whose opening was captured.

    The broker ignores a FLOW before it has answered the SUBSCRIBE, so the answer clears the number.
    """
    client_handles = state.client_handles
    phase = client_handles.state[client_handle]
    is_known = client_handles.first_flow_permits[client_handle] != NULL
    if (
        client_handles.opened_frame_no[client_handle] == NULL
        or is_known
        or phase == HandleState.CLOSED
    ):
        return
    client_handles.first_flow_permits[client_handle] = frames.permits[row]


@kernel
def _copy_names(frames: FrameColumns, row: int) -> None:
    """Fill the names of a frame without a client handle from its own fields."""
    frames.topic[row] = frames.wire_topic[row]
    frames.subscription[row] = frames.wire_subscription[row]
    frames.producer_name[row] = frames.wire_producer_name[row]
    frames.consumer_name[row] = frames.wire_consumer_name[row]
    if frames.wire_topic[row] != NULL:
        frames.name_source[row] = columns.NAME_OBSERVED
    frames.lifecycle[row] = Lifecycle.NONE


@kernel
def _handle_reply(
    state: RegistryState, frames: FrameColumns, row: int, request: Request, context: RegistryContext
) -> None:
    """Handle an answer by request id: its request names the client handle."""
    # ACK_RESPONSE names its consumer itself.
    if request.command in (NULL, commands.ACK):
        _handle_other(state, frames, row, context)
        return
    connection = registry_client_handles.connection_row(state, frames, row)
    client_handle = tables.find(state.table, request.kind, connection, request.id, 0)
    if client_handle != tables.ABSENT:
        lifecycle = Lifecycle.NONE
        if state.client_handles.incarnation[client_handle] == request.incarnation:
            lifecycle = apply_answer(state, frames, row, request.command, client_handle, context)
        registry_client_handles.describe(state, frames, row, client_handle)
        frames.incarnation[row] = request.incarnation
        frames.handle_incarnation[row] = request.incarnation
        frames.lifecycle[row] = lifecycle
    else:
        _copy_names(frames, row)
        if frames.topic[row] == NULL and request.topic != NULL:
            frames.topic[row] = request.topic
            frames.name_source[row] = columns.NAME_OBSERVED
        if frames.subscription[row] == NULL:
            frames.subscription[row] = request.subscription
