"""Frames and events without messages or acks: consumers' lifecycle, seeks, gaps, transactions."""

from dissector.jit import inlined, kernel
from dissector.limits import MAX_LEAVING_CONSUMERS, NULL
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns, FrameEvent, Lifecycle
from dissector.protocols.pairing.connections import may_hide_frames
from dissector.protocols.pulsar.consumption import claims, published
from dissector.protocols.pulsar.consumption import consumers as consumption_consumers
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.consumers import ConsumerNames
from dissector.protocols.pulsar.consumption.deliveries import end_all, has_identity, identify
from dissector.protocols.pulsar.consumption.delivery_rows import has_id
from dissector.protocols.pulsar.consumption.permits import add_permit_row, learn_balance
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.state import ConsumerState, ConsumptionState, LeftBy
from dissector.protocols.pulsar.wire import commands
from dissector.schemas.enums import CONSUMER_CLOSED, DELIVERY_CONN_CLOSED, RESET
from dissector.stream.columns import ENDED_CAPTURE_END
from dissector.tables import ABSENT, note_cut_walk


@inlined
def names_of(state: ConsumptionState, frames: FrameColumns, row: int) -> ConsumerNames:
    """The names of a frame's consumer, as the registry has set them."""
    return ConsumerNames(
        frames.topic[row],
        frames.subscription[row],
        frames.consumer_name[row],
        frames.incarnation[row],
        published.proxy_side_of(state, frames.connection_id[row]),
    )


@kernel
def _identify_first(state: ConsumptionState, context: PassContext, row: int, consumer: int) -> None:
    """Enter a consumer's open deliveries of entry 0:0 under their id, now that its topic is known.

    A consumer's topic becomes known once, so each delivery is visited once.
    """
    deliveries = state.deliveries
    if not has_identity(state, consumer, 0, 0):
        return
    delivery = state.consumers.first[consumer]
    for _ in range(state.consumers.length[consumer]):
        # Evicting a page of ids may have ended the last delivery of the list.
        if delivery == ABSENT:
            return
        state.counters[consumption_state.LOOKED_AT] += 1
        is_first = deliveries.ledger[delivery] == 0 and deliveries.entry[delivery] == 0
        if not is_first and state.consumers.is_ascending[consumer] == 1:
            return
        if is_first and not has_id(state, delivery):
            identify(state, context, row, consumer, delivery)
        delivery = deliveries.next[delivery]


@kernel
def _update_names(state: ConsumptionState, context: PassContext, row: int, consumer: int) -> None:
    """Update a consumer with names from a frame that were unknown."""
    was_unknown = state.consumers.topic[consumer] == NULL
    consumption_consumers.learn_names(
        state, consumer, names_of(state, context.frames, row), context.is_volatile
    )
    if state.consumers.opened_at[consumer] == 0:
        consumption_consumers.apply_past_gap(state, consumer)
    if was_unknown and state.consumers.topic[consumer] != NULL:
        _identify_first(state, context, row, consumer)


@kernel
def _add_or_update_consumer(
    state: ConsumptionState, context: PassContext, row: int, consumer: int
) -> int:
    """Add a consumer that is first seen in use, or update one with new names."""
    frames = context.frames
    if consumer == ABSENT:
        connection, names = frames.connection_id[row], names_of(state, frames, row)
        consumer = consumption_consumers.add_consumer(
            state, connection, frames.consumer_id[row], names, context.is_volatile
        )
        consumption_consumers.apply_past_gap(state, consumer)
        return consumer
    _update_names(state, context, row, consumer)
    return consumer


@inlined
def consumer_of(state: ConsumptionState, context: PassContext, row: int) -> int:
    """The consumer of a frame, added if it is new, with the frame's names."""
    frames = context.frames
    consumers = state.consumers
    consumer = consumption_consumers.find_consumer(
        state, frames.connection_id[row], frames.consumer_id[row]
    )
    if (
        consumer == ABSENT
        or (consumers.topic[consumer] == NULL and frames.topic[row] != NULL)
        or (consumers.subscription[consumer] == NULL and frames.subscription[row] != NULL)
        or (consumers.name[consumer] == NULL and frames.consumer_name[row] != NULL)
    ):
        return _add_or_update_consumer(state, context, row, consumer)
    return consumer


@kernel
def _end_consumer(
    state: ConsumptionState, context: PassContext, row: int, consumer: int, by: int, outcome: int
) -> None:
    """Close a consumer and end its open deliveries."""
    consumption_consumers.mark_leaving(state, consumer, by)
    end_all(state, context, row, consumer, outcome)
    consumption_consumers.retire(state, consumer)


@kernel
def _open_consumer(state: ConsumptionState, context: PassContext, row: int) -> None:
    """SUBSCRIBE: open a consumer with a balance of zero; close the previous one with its id."""
    frames = context.frames
    connection = frames.connection_id[row]
    consumer_id = frames.handle_id[row]
    consumers = state.consumers
    before = consumption_consumers.find_consumer(state, connection, consumer_id)
    if before != ABSENT and consumers.state[before] != ConsumerState.CLOSED:
        _end_consumer(state, context, row, before, LeftBy.UNSEEN, CONSUMER_CLOSED)
    names = ConsumerNames(
        frames.topic[row],
        frames.subscription[row],
        frames.consumer_name[row],
        frames.handle_incarnation[row],
        published.proxy_side_of(state, connection),
    )
    consumer = consumption_consumers.add_consumer(
        state, connection, consumer_id, names, context.is_volatile
    )
    consumers.state[consumer] = ConsumerState.OPENING
    consumers.type[consumer] = frames.subscription_type[row]
    consumers.opened_at[consumer] = frames.frame_no[row]
    consumers.known_at[consumer] = frames.frame_no[row]
    consumption_consumers.note_two_way(state, consumer, frames.is_two_way[row])
    if before != ABSENT or frames.handle_incarnation[row] > 0:
        add_permit_row(state, context, row, consumer, RESET, NULL)


@kernel
def handle_lifecycle(state: ConsumptionState, context: PassContext, row: int) -> None:
    """Handle a frame that opens or closes a consumer, or the answer to such a frame."""
    frames = context.frames
    step = frames.lifecycle[row]
    if step == Lifecycle.OPENING:
        _open_consumer(state, context, row)
        return
    consumers = state.consumers
    consumer = consumption_consumers.find_consumer(
        state, frames.connection_id[row], frames.handle_id[row]
    )
    if consumer == ABSENT or consumers.state[consumer] == ConsumerState.CLOSED:
        return
    consumption_consumers.note_two_way(state, consumer, frames.is_two_way[row])
    if step == Lifecycle.REPEATED:
        # The consumer stays open; the frame may have names that a late capture start missed.
        if consumers.type[consumer] == NULL:
            consumers.type[consumer] = frames.subscription_type[row]
        _update_names(state, context, row, consumer)
    elif step == Lifecycle.READY:
        if consumers.state[consumer] == ConsumerState.OPENING:
            consumers.state[consumer] = ConsumerState.READY
    elif step == Lifecycle.CLOSING_BY_CLIENT:
        consumption_consumers.mark_leaving(state, consumer, LeftBy.CLIENT)
        consumption_consumers.remember_request(state, consumer, frames.frame_no[row])
        consumers.state[consumer] = ConsumerState.CLOSING
    elif step == Lifecycle.CLOSED_BY_BROKER:
        _end_consumer(state, context, row, consumer, LeftBy.BROKER, CONSUMER_CLOSED)
    elif step in (Lifecycle.CLOSED_BY_CLIENT, Lifecycle.REFUSED):
        _end_consumer(state, context, row, consumer, LeftBy.CLIENT, CONSUMER_CLOSED)


@kernel
def _handle_close(state: ConsumptionState, context: PassContext, row: int) -> None:
    """Close all consumers of an ended connection. The capture's end closes none of them."""
    if context.frames.status[row] == ENDED_CAPTURE_END:
        return
    connection = context.frames.connection_id[row]
    connection_row = consumption_consumers.find_connection(state, connection)
    claims.end_claims_of_connection(state, context, row, connection)
    if connection_row != ABSENT:
        consumers = state.consumers
        consumer = state.connections.first[connection_row]
        for _ in range(state.connections.length[connection_row]):
            if consumers.state[consumer] != ConsumerState.CLOSED:
                is_closing = consumers.state[consumer] == ConsumerState.CLOSING
                outcome = CONSUMER_CLOSED if is_closing else DELIVERY_CONN_CLOSED
                _end_consumer(state, context, row, consumer, LeftBy.CONNECTION, outcome)
            consumer = consumers.next[consumer]
        consumption_consumers.forget_connection(state, connection)
    published.set_proxy_side(state, connection, 0)


@kernel
def _handle_fin(state: ConsumptionState, connection: int) -> None:
    """FIN of one side: mark the connection's consumers as leaving.

    The event of the connection's end comes only after the other side's FIN, and another consumer
    may have received the messages by then.
    """
    connection_row = consumption_consumers.find_connection(state, connection)
    if connection_row == ABSENT:
        return
    consumer = state.connections.first[connection_row]
    for _ in range(min(state.connections.length[connection_row], MAX_LEAVING_CONSUMERS)):
        consumption_consumers.mark_leaving(state, consumer, LeftBy.CONNECTION)
        consumer = state.consumers.next[consumer]
    if state.connections.length[connection_row] > MAX_LEAVING_CONSUMERS:
        note_cut_walk(state.table)


@kernel
def handle_event(state: ConsumptionState, context: PassContext, row: int) -> None:
    """Handle an event between frames: a close, a FIN or a gap."""
    frames = context.frames
    event = frames.command[row]
    connection_row = consumption_consumers.find_connection(state, frames.connection_id[row])
    if connection_row != ABSENT:
        state.connections.is_two_way[connection_row] |= frames.is_two_way[row]
    if event == FrameEvent.CLOSE:
        _handle_close(state, context, row)
    elif event == FrameEvent.FIN:
        _handle_fin(state, frames.connection_id[row])
    elif may_hide_frames(frames, row):
        if frames.direction[row] != columns.TO_CLIENT:
            consumption_consumers.note_gap(state, frames.connection_id[row], True)
        if frames.direction[row] != columns.TO_BROKER:
            consumption_consumers.note_gap(state, frames.connection_id[row], False)


@kernel
def _handle_transaction(state: ConsumptionState, context: PassContext, row: int) -> None:
    """End a transaction: at END_TXN_RESPONSE, or at END_TXN_ON_SUBSCRIPTION."""
    frames = context.frames
    command = frames.command[row]
    most, least = frames.txn_most_bits[row], frames.txn_least_bits[row]
    if command == commands.END_TXN_RESPONSE:
        transaction = published.find_transaction(
            state, consumption_consumers.find_packed(state, frames.answered_frame_no[row])
        )
        if transaction == ABSENT or frames.answered_command[row] != commands.END_TXN:
            return
        if frames.error_code[row] != NULL:
            state.transactions.action[transaction] = NULL
            return
        most = state.transactions.most[transaction]
        least = state.transactions.least[transaction]
    elif most == NULL or least == NULL:
        return
    else:
        transaction = published.end_transaction(state, most, least, frames.txn_action[row])
        if command == commands.END_TXN:
            consumption_consumers.remember_packed(state, frames.frame_no[row], transaction)
            return
        transaction = published.find_transaction(state, transaction)
    action = state.transactions.action[transaction]
    if action in (consumption_state.TRANSACTION_COMMITTED, consumption_state.TRANSACTION_ABORTED):
        is_committed = action == consumption_state.TRANSACTION_COMMITTED
        claims.end_claims_of_transaction(state, context, row, most, least, is_committed)


@kernel
def _handle_answer(state: ConsumptionState, context: PassContext, row: int) -> None:
    """ERROR, ACK_RESPONSE, CONSUMER_STATS_RESPONSE, SUCCESS of a SEEK: apply it to the request
    that it answers."""
    frames = context.frames
    asked_at = frames.answered_frame_no[row]
    asked = frames.answered_command[row]
    if asked == commands.ACK:
        claims.answer_claims(state, context, row, asked_at, frames.error_code[row] != NULL)
        return
    consumer = consumption_consumers.find_requester(state, asked_at)
    if consumer == ABSENT:
        return
    if frames.command[row] == commands.CONSUMER_STATS_RESPONSE:
        learn_balance(state, consumer, frames.available_permits[row], frames.frame_no[row])
    elif asked == commands.SEEK and frames.command[row] == commands.SUCCESS:
        consumption_consumers.note_sought(state, consumer, frames.frame_no[row])
    elif asked == commands.SEEK:
        consumption_consumers.undo_seek(state, consumer, asked_at)
    elif (
        asked in (commands.UNSUBSCRIBE, commands.CLOSE_CONSUMER)
        and state.consumers.state[consumer] == ConsumerState.CLOSING
    ):
        consumption_consumers.mark_present(state, consumer)


@kernel
def handle_slow_path(state: ConsumptionState, context: PassContext, row: int) -> None:
    """Handle rare commands that change a connection, a consumer or a transaction."""
    frames = context.frames
    command = frames.command[row]
    if command in (commands.END_TXN, commands.END_TXN_RESPONSE, commands.END_TXN_ON_SUBSCRIPTION):
        _handle_transaction(state, context, row)
    elif command in (
        commands.CONSUMER_STATS_RESPONSE,
        commands.ERROR,
        commands.ACK_RESPONSE,
        commands.SUCCESS,
    ):
        _handle_answer(state, context, row)
    elif frames.consumer_id[row] != NULL:
        consumer = consumer_of(state, context, row)
        if command in (commands.SEEK, commands.CONSUMER_STATS):
            consumption_consumers.remember_request(state, consumer, frames.frame_no[row])
        if command == commands.SEEK:
            consumption_consumers.note_seek(state, consumer, frames.frame_no[row])
        elif command == commands.ACTIVE_CONSUMER_CHANGE:
            consumption_consumers.note_switch(state, consumer, frames.is_active[row])


@kernel
def note_cut(state: ConsumptionState, frames: FrameColumns, row: int) -> None:
    """Treat an incomplete frame as a gap if the missing part may matter.

    One cut before its first id may concern any consumer: open it, close it, or answer either.
    """
    command = frames.command[row]
    is_nameless = (
        frames.status[row] != columns.MALFORMED
        and frames.consumer_id[row] == NULL
        and frames.producer_id[row] == NULL
        and frames.request_id[row] == NULL
    )
    is_hidden = command == NULL or is_nameless
    if frames.direction[row] == columns.TO_BROKER:
        if command in (commands.ACK, commands.REDELIVER, commands.NEGATIVE_ACK) or (
            command == commands.FLOW and frames.permits[row] == NULL
        ):
            is_hidden = True
        if is_hidden:
            consumption_consumers.note_gap(state, frames.connection_id[row], True)
    elif is_hidden or (command == commands.MESSAGE and frames.consumer_id[row] == NULL):
        consumption_consumers.note_gap(state, frames.connection_id[row], False)
