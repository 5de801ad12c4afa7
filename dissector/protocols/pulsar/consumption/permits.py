"""The balance of permits of each consumer: permits granted minus messages delivered.

A permit is one message. The broker sends whole entries while the balance is above zero, so the
balance may fall below zero and is never clamped. It starts at zero with each SUBSCRIBE that opens
the consumer. If that was not seen, or frames are missing since, it is unknown until the next such
SUBSCRIBE or until the broker reports it (CONSUMER_STATS_RESPONSE).
"""

from dissector.blocks import Int64Array
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.bitsets import bits_left
from dissector.protocols.pulsar.consumption.consumers import stays_closed
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.state import ConsumerState, ConsumptionState
from dissector.tables import ABSENT


@inlined
def message_cost(frames: FrameColumns, row: int, words: Int64Array) -> int:
    """Permits that a MESSAGE costs: its messages; null if its metadata was not read.

    Pulsar: the broker's own number, else the bits of the ack_set, one per message still to be
    acked, else the messages of the entry.
    """
    permits = frames.message_permits[row]
    if permits >= 0:
        return int(permits)
    messages = frames.message_count[row]
    count = frames.ack_set_count[row]
    if count > 0:
        return bits_left(words, frames.ack_set_at[row], count, messages)
    return int(messages)


@inlined
def is_whole_since(state: ConsumptionState, row: int, frame_no: int) -> bool:
    """Whether no frame of a consumer's connection is missing since a frame; below 1: since none.

    One is if only one direction was captured: deliveries were not seen.
    """
    connection_row = state.consumers.connection_row[row]
    if frame_no <= 0 or connection_row == ABSENT:
        return False
    connections = state.connections
    return bool(
        frame_no > connections.broker_gap_at[connection_row]
        and frame_no > connections.client_gap_at[connection_row]
        and connections.is_two_way[connection_row] == 1
    )


@inlined
def is_balance_known(state: ConsumptionState, row: int) -> bool:
    """Whether the balance is known from its start and no frame is missing since."""
    return bool(is_whole_since(state, row, state.consumers.known_at[row]))


@inlined
def learn_balance(state: ConsumptionState, row: int, available: int, frame_no: int) -> None:
    """CONSUMER_STATS_RESPONSE: the broker's balance replaces ours if ours is unknown or smaller.

    A larger one is right: FLOWs reach the broker in the order in which they were seen, so that the
    broker charged less than was counted. A smaller one proves nothing, because deliveries that the
    broker has charged may still be in flight.
    """
    if available == NULL:
        return
    if not is_balance_known(state, row) or available > state.consumers.available[row]:
        state.consumers.available[row] = available
        state.consumers.known_at[row] = frame_no


@inlined
def add_permit_row(
    state: ConsumptionState, context: PassContext, frame: int, consumer: int, event: int, delta: int
) -> None:
    """Write a row of permits with the current balance."""
    consumers = state.consumers
    permits = context.out.permits
    row = state.counters[consumption_state.OUT_PERMITS]
    state.counters[consumption_state.OUT_PERMITS] = row + 1
    is_known = is_balance_known(state, consumer)
    permits.connection_id[row] = consumers.connection[consumer]
    permits.consumer_id[row] = consumers.id[consumer]
    permits.incarnation[row] = consumers.incarnation[consumer]
    permits.frame_no[row] = context.frames.frame_no[frame]
    permits.ts[row] = context.frames.last_ts_ns[frame]
    permits.event[row] = event
    permits.delta[row] = delta
    permits.available_after[row] = consumers.available[consumer] if is_known else NULL
    has_all = is_whole_since(state, consumer, consumers.opened_at[consumer])
    is_counted = has_all and consumers.unread[consumer] == 0
    permits.unacked_after[row] = consumers.unacked[consumer] if is_counted else NULL
    permits.baseline_known[row] = 1 if is_known else 0
    permits.topic[row] = consumers.topic[consumer]
    permits.subscription[row] = consumers.subscription[consumer]
    permits.subscription_type[row] = consumers.type[consumer]


@inlined
def change_balance(state: ConsumptionState, consumer: int, change: int) -> int:
    """Add a FLOW's permits or a delivery's (negative); null: the number was not read."""
    if change == NULL:
        state.consumers.known_at[consumer] = -1
    else:
        state.consumers.available[consumer] += change
    return change


@inlined
def counts_flow(state: ConsumptionState, consumer: int) -> bool:
    """Whether the broker counts a FLOW of this consumer now; it ignores one before the success.

    The capture may have missed a success, or a SUBSCRIBE after a close: in a gap, or because
    nothing of the broker's direction was captured.
    """
    consumers = state.consumers
    connections = state.connections
    row = consumers.connection_row[consumer]
    if consumers.state[consumer] == ConsumerState.OPENING and row != ABSENT:
        has_gap = connections.client_gap_at[row] >= consumers.opened_at[consumer]
        if not has_gap and connections.is_two_way[row] == 1:
            return False
        consumers.state[consumer] = ConsumerState.READY
    return not stays_closed(state, consumer)
