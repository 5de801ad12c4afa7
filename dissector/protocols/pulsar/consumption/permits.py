"""The balance of permits of each consumer: what it granted, what deliveries cost, when it began.

A permit is one message. The broker sends whole entries while the balance is above zero, so that it
may fall below: it is never clamped. It starts at zero with each SUBSCRIBE that opens the consumer;
where that was not seen, or frames are missing since, it is unknown until the next such SUBSCRIBE or
until the broker says it (CONSUMER_STATS_RESPONSE).
"""

from dissector.blocks import Int64Array
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.columns import FrameColumns
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.bitsets import bits_left
from dissector.protocols.pulsar.consumption.consumers import revive
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.state import ConsumerState, ConsumptionState
from dissector.tables import ABSENT


@inlined
def message_cost(frames: FrameColumns, row: int, words: Int64Array) -> int:
    """Messages that a MESSAGE costs and brings; null where the metadata was not read.

    Pulsar: what the broker says itself, else the bits of the ack_set, one per message still to be
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
def is_balance_known(state: ConsumptionState, row: int) -> bool:
    """Whether the balance is known from its start and no frame is missing since.

    Where nothing of the broker's direction is captured nobody knows what was delivered.
    """
    known_at = state.consumers.known_at[row]
    connection_row = state.consumers.connection_row[row]
    if known_at < 0 or connection_row == ABSENT:
        return False
    connections = state.connections
    return bool(
        known_at > connections.broker_gap_at[connection_row]
        and known_at > connections.client_gap_at[connection_row]
        and connections.is_client_missing[connection_row] == 0
    )


@inlined
def learn_balance(state: ConsumptionState, row: int, available: int, frame_no: int) -> None:
    """CONSUMER_STATS_RESPONSE: the broker's own balance serves where ours is not known.

    It also serves where it is larger than ours: FLOWs reach the broker in the order in which they
    were seen, so that it charged less than was counted. That it is smaller proves nothing, because
    deliveries that it has charged may still be on their way.
    """
    if available == NULL:
        return
    if not is_balance_known(state, row) or available > state.consumers.available[row]:
        state.consumers.available[row] = available
        state.consumers.known_at[row] = frame_no


@inlined
def add_permit_row(
    state: ConsumptionState, block: PassContext, frame: int, consumer: int, event: int, delta: int
) -> None:
    """One row with the balance as it is now."""
    consumers = state.consumers
    permits = block.out.permits
    row = state.counters[consumption_state.OUT_PERMITS]
    state.counters[consumption_state.OUT_PERMITS] = row + 1
    is_known = is_balance_known(state, consumer)
    permits.connection_id[row] = consumers.connection[consumer]
    permits.consumer_id[row] = consumers.id[consumer]
    permits.incarnation[row] = consumers.incarnation[consumer]
    permits.frame_no[row] = block.frames.frame_no[frame]
    permits.ts[row] = block.frames.last_ts_ns[frame]
    permits.event[row] = event
    permits.delta[row] = delta
    permits.available_after[row] = consumers.available[consumer] if is_known else NULL
    is_read = consumers.unread[consumer] == 0
    permits.unacked_after[row] = consumers.unacked[consumer] if is_read else NULL
    permits.baseline_known[row] = 1 if is_known else 0
    permits.topic[row] = consumers.topic[consumer]
    permits.subscription[row] = consumers.subscription[consumer]
    permits.subscription_type[row] = consumers.type[consumer]


@inlined
def change_balance(state: ConsumptionState, consumer: int, change: int) -> int:
    """Add permits of a FLOW, or take those of a delivery; null: their number was not read."""
    if change == NULL:
        state.consumers.known_at[consumer] = -1
    else:
        state.consumers.available[consumer] += change
    return change


@inlined
def counts_flow(state: ConsumptionState, consumer: int) -> bool:
    """Whether the broker takes a FLOW of this consumer now; it ignores one before the success.

    A success, or a SUBSCRIBE after a close, may also have been missed by the capture: in a gap, or
    because nothing of the broker's direction was captured.
    """
    consumers = state.consumers
    connections = state.connections
    row = consumers.connection_row[consumer]
    if consumers.state[consumer] == ConsumerState.OPENING and row != ABSENT:
        has_gap = connections.client_gap_at[row] >= consumers.opened_at[consumer]
        if not has_gap and connections.is_client_missing[row] == 0:
            return False
        consumers.state[consumer] = ConsumerState.READY
    elif consumers.state[consumer] == ConsumerState.CLOSED and row != ABSENT:
        if connections.broker_gap_at[row] < consumers.left_at[consumer]:
            return False
        revive(state, consumer)
    return True
