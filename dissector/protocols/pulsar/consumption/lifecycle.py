"""Frames and events that carry no message: consumers open and close, seek, lose frames."""

from dissector.jit import inlined, kernel
from dissector.limits import MAX_LEAVING_CONSUMERS, NULL
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns, FrameEvent, Lifecycle
from dissector.protocols.pairing.connections import may_hide_frames
from dissector.protocols.pulsar.consumption import claims, published
from dissector.protocols.pulsar.consumption import consumers as consumption_consumers
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.consumers import ConsumerNames
from dissector.protocols.pulsar.consumption.deliveries import (
    end_all,
    has_id,
    has_identity,
    identify,
)
from dissector.protocols.pulsar.consumption.permits import add_permit_row, learn_balance
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.state import ConsumerState, ConsumptionState, LeftBy
from dissector.protocols.pulsar.wire import commands
from dissector.schemas.enums import CONSUMER_CLOSED, DELIVERY_CONN_CLOSED, RESET
from dissector.stream.columns import ENDED_CAPTURE_END
from dissector.tables import ABSENT, note_cut_walk


@inlined
def names_of(state: ConsumptionState, frames: FrameColumns, row: int) -> ConsumerNames:
    """What a frame says about its consumer, by the registry."""
    return ConsumerNames(
        frames.topic[row],
        frames.subscription[row],
        frames.consumer_name[row],
        frames.incarnation[row],
        published.proxy_side_of(state, frames.connection_id[row]),
    )


@kernel
def _identify_first(state: ConsumptionState, block: PassContext, row: int, consumer: int) -> None:
    """Enter what a consumer holds of the entry 0:0 under its id, now that its topic is known.

    That is so once in its life: each delivery is looked at once.
    """
    deliveries = state.deliveries
    if not has_identity(state, consumer, 0, 0):
        return
    delivery = state.consumers.first[consumer]
    for _ in range(state.consumers.length[consumer]):
        # What a page of ids that was given up ended may have been the last.
        if delivery == ABSENT:
            return
        state.counters[consumption_state.LOOKED_AT] += 1
        is_first = deliveries.ledger[delivery] == 0 and deliveries.entry[delivery] == 0
        if not is_first and state.consumers.is_ascending[consumer] == 1:
            return
        if is_first and not has_id(state, delivery):
            identify(state, block, row, consumer, delivery)
        delivery = deliveries.next[delivery]


@kernel
def _learn(state: ConsumptionState, block: PassContext, row: int, consumer: int) -> None:
    """Take over what a frame says of a consumer that was not known of it."""
    was_unknown = state.consumers.topic[consumer] == NULL
    consumption_consumers.learn_names(
        state, consumer, names_of(state, block.frames, row), block.is_volatile
    )
    if state.consumers.opened_at[consumer] == 0:
        consumption_consumers.take_gaps(state, consumer)
    if was_unknown and state.consumers.topic[consumer] != NULL:
        _identify_first(state, block, row, consumer)


@kernel
def _meet_consumer(state: ConsumptionState, block: PassContext, row: int, consumer: int) -> int:
    """Take up a consumer met in use, or what a frame says of it for the first time."""
    frames = block.frames
    if consumer == ABSENT:
        connection, names = frames.connection_id[row], names_of(state, frames, row)
        consumer = consumption_consumers.add_consumer(
            state, connection, frames.consumer_id[row], names, block.is_volatile
        )
        consumption_consumers.take_gaps(state, consumer)
        return consumer
    _learn(state, block, row, consumer)
    return consumer


@inlined
def consumer_of(state: ConsumptionState, block: PassContext, row: int) -> int:
    """The consumer that a frame is about."""
    frames = block.frames
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
        return _meet_consumer(state, block, row, consumer)
    return consumer


@kernel
def _end_consumer(
    state: ConsumptionState, block: PassContext, row: int, consumer: int, by: int, outcome: int
) -> None:
    """A consumer is gone: its deliveries will not be acked any more."""
    consumption_consumers.mark_leaving(state, consumer, by)
    end_all(state, block, row, consumer, outcome)
    consumption_consumers.retire(state, consumer)


@kernel
def _open_consumer(state: ConsumptionState, block: PassContext, row: int) -> None:
    """A SUBSCRIBE that opens a consumer: its balance starts at zero."""
    frames = block.frames
    connection = frames.connection_id[row]
    consumer_id = frames.handle_id[row]
    consumers = state.consumers
    before = consumption_consumers.find_consumer(state, connection, consumer_id)
    if before != ABSENT and consumers.state[before] != ConsumerState.CLOSED:
        _end_consumer(state, block, row, before, LeftBy.UNSEEN, CONSUMER_CLOSED)
    names = ConsumerNames(
        frames.topic[row],
        frames.subscription[row],
        frames.consumer_name[row],
        frames.handle_incarnation[row],
        published.proxy_side_of(state, connection),
    )
    consumer = consumption_consumers.add_consumer(
        state, connection, consumer_id, names, block.is_volatile
    )
    consumers.state[consumer] = ConsumerState.OPENING
    consumers.type[consumer] = frames.subscription_type[row]
    consumers.opened_at[consumer] = frames.frame_no[row]
    consumers.known_at[consumer] = frames.frame_no[row]
    consumption_consumers.see_broker_side(state, consumer)
    if before != ABSENT or frames.handle_incarnation[row] > 0:
        add_permit_row(state, block, row, consumer, RESET, NULL)


@kernel
def handle_lifecycle(state: ConsumptionState, block: PassContext, row: int) -> None:
    """A frame that opens or closes a consumer, or answers one that does."""
    frames = block.frames
    step = frames.lifecycle[row]
    if step == Lifecycle.OPENING:
        _open_consumer(state, block, row)
        return
    consumers = state.consumers
    consumer = consumption_consumers.find_consumer(
        state, frames.connection_id[row], frames.handle_id[row]
    )
    if consumer == ABSENT or consumers.state[consumer] == ConsumerState.CLOSED:
        return
    if frames.direction[row] == columns.TO_CLIENT:
        consumption_consumers.see_client_side(state, consumer)
    if step == Lifecycle.REPEATED:
        # Nothing starts anew, but it may say what a capture that began later did not know.
        if consumers.type[consumer] == NULL:
            consumers.type[consumer] = frames.subscription_type[row]
        _learn(state, block, row, consumer)
        consumption_consumers.see_broker_side(state, consumer)
    elif step == Lifecycle.READY:
        if consumers.state[consumer] == ConsumerState.OPENING:
            consumers.state[consumer] = ConsumerState.READY
    elif step == Lifecycle.CLOSING_BY_CLIENT:
        consumption_consumers.mark_leaving(state, consumer, LeftBy.CLIENT)
        consumption_consumers.remember_request(state, consumer, frames.frame_no[row])
        consumers.state[consumer] = ConsumerState.CLOSING
        consumption_consumers.see_broker_side(state, consumer)
    elif step == Lifecycle.CLOSED_BY_BROKER:
        _end_consumer(state, block, row, consumer, LeftBy.BROKER, CONSUMER_CLOSED)
    elif step in (Lifecycle.CLOSED_BY_CLIENT, Lifecycle.REFUSED):
        _end_consumer(state, block, row, consumer, LeftBy.CLIENT, CONSUMER_CLOSED)


@kernel
def _handle_close(state: ConsumptionState, block: PassContext, row: int) -> None:
    """The connection is over. At the capture's end nothing closes: deliveries just stay open."""
    if block.frames.status[row] == ENDED_CAPTURE_END:
        return
    connection = block.frames.connection_id[row]
    connection_row = consumption_consumers.find_connection(state, connection)
    claims.end_claims_of_connection(state, block, row, connection)
    if connection_row != ABSENT:
        consumers = state.consumers
        consumer = state.connections.first[connection_row]
        for _ in range(state.connections.length[connection_row]):
            if consumers.state[consumer] != ConsumerState.CLOSED:
                is_closing = consumers.state[consumer] == ConsumerState.CLOSING
                outcome = CONSUMER_CLOSED if is_closing else DELIVERY_CONN_CLOSED
                _end_consumer(state, block, row, consumer, LeftBy.CONNECTION, outcome)
            consumer = consumers.next[consumer]
        consumption_consumers.forget_connection(state, connection)
    published.set_proxy_side(state, connection, 0)


@kernel
def _handle_fin(state: ConsumptionState, connection: int) -> None:
    """One side has ended its stream: its consumers begin to go.

    The end of the connection is reported only when the other side has ended as well, and another
    consumer may have got the messages by then.
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
def handle_event(state: ConsumptionState, block: PassContext, row: int) -> None:
    """What happens between frames."""
    frames = block.frames
    event = frames.command[row]
    if event == FrameEvent.CLOSE:
        _handle_close(state, block, row)
    elif event == FrameEvent.FIN:
        _handle_fin(state, frames.connection_id[row])
    elif may_hide_frames(frames, row):
        if frames.direction[row] != columns.TO_CLIENT:
            consumption_consumers.note_gap(state, frames.connection_id[row], True)
        if frames.direction[row] != columns.TO_BROKER:
            consumption_consumers.note_gap(state, frames.connection_id[row], False)


@kernel
def _handle_transaction(state: ConsumptionState, block: PassContext, row: int) -> None:
    """A transaction ends: for its client once that is confirmed, for subscriptions when told."""
    frames = block.frames
    command = frames.command[row]
    most, least = frames.txn_most_bits[row], frames.txn_least_bits[row]
    if command == commands.END_TXN_RESPONSE:
        transaction = published.find_transaction(
            state, consumption_consumers.find_asked(state, frames.answered_frame_no[row])
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
            consumption_consumers.remember_asked(state, frames.frame_no[row], transaction)
            return
        transaction = published.find_transaction(state, transaction)
    action = state.transactions.action[transaction]
    if action in (consumption_state.TRANSACTION_COMMITTED, consumption_state.TRANSACTION_ABORTED):
        is_committed = action == consumption_state.TRANSACTION_COMMITTED
        claims.end_claims_of_transaction(state, block, row, most, least, is_committed)


@kernel
def _handle_answer(state: ConsumptionState, block: PassContext, row: int) -> None:
    """ERROR, ACK_RESPONSE, CONSUMER_STATS_RESPONSE: the exchanges know what it answers."""
    frames = block.frames
    asked_at = frames.answered_frame_no[row]
    asked = frames.answered_command[row]
    if asked == commands.ACK:
        claims.answer_claims(state, block, row, asked_at, frames.error_code[row] != NULL)
        return
    consumer = consumption_consumers.find_requester(state, asked_at)
    if consumer == ABSENT:
        return
    if frames.command[row] == commands.CONSUMER_STATS_RESPONSE:
        learn_balance(state, consumer, frames.available_permits[row], frames.frame_no[row])
    elif asked == commands.SEEK:
        consumption_consumers.undo_seek(state, consumer, asked_at)
    elif (
        asked in (commands.UNSUBSCRIBE, commands.CLOSE_CONSUMER)
        and state.consumers.state[consumer] == ConsumerState.CLOSING
    ):
        consumption_consumers.mark_present(state, consumer)


@kernel
def handle_slow_path(state: ConsumptionState, block: PassContext, row: int) -> None:
    """Commands that change what is known of a consumer or a transaction, without rows."""
    frames = block.frames
    command = frames.command[row]
    if command in (commands.CONNECT, commands.CONNECTED):
        connection_row = consumption_consumers.add_connection(state, frames.connection_id[row])
        if connection_row != ABSENT:
            is_request = command == commands.CONNECT
            state.connections.is_client_missing[connection_row] = 1 if is_request else 0
            if is_request:
                state.connections.is_broker_seen[connection_row] = 1
    elif command in (commands.END_TXN, commands.END_TXN_RESPONSE, commands.END_TXN_ON_SUBSCRIPTION):
        _handle_transaction(state, block, row)
    elif command in (commands.CONSUMER_STATS_RESPONSE, commands.ERROR, commands.ACK_RESPONSE):
        _handle_answer(state, block, row)
    elif frames.consumer_id[row] != NULL:
        consumer = consumer_of(state, block, row)
        if command in (commands.SEEK, commands.CONSUMER_STATS):
            consumption_consumers.remember_request(state, consumer, frames.frame_no[row])
        if command == commands.SEEK:
            consumption_consumers.note_seek(state, consumer, frames.frame_no[row])
        elif command == commands.ACTIVE_CONSUMER_CHANGE:
            consumption_consumers.note_switch(state, consumer, frames.is_active[row])


@kernel
def note_cut(state: ConsumptionState, frames: FrameColumns, row: int) -> None:
    """A frame that cannot be read whole may hide what a gap would.

    One that was cut before the first id is of any consumer: an opening, a closing, their answer.
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
