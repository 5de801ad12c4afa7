"""The balance of permits of each consumer: what it granted, what deliveries cost, when it began.

A permit is one message. The broker sends whole entries while the balance is above zero, so that it
may fall below: it is never clamped. It starts at zero with each SUBSCRIBE that opens the consumer;
where that was not seen, or frames are missing since, it is unknown until the next such SUBSCRIBE or
until the broker says it (CONSUMER_STATS_RESPONSE).
"""


from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.pulsar.consumption.consumers import is_balance_known, revive
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows, Place
from dissector.protocols.pulsar.consumption.state import (
    OUT_PERMITS,
    STATE_CLOSED,
    STATE_OPENING,
    STATE_READY,
    ConsumptionState,
)
from dissector.protocols.tables import ABSENT


@inlined
def add_permit_row(
    state: ConsumptionState,
    out: ConsumptionRows,
    consumer: int,
    event: int,
    delta: int,
    place: Place,
) -> None:
    """One row with the balance as it is now."""
    consumers = state.consumers
    permits = out.permits
    row = state.counters[OUT_PERMITS]
    state.counters[OUT_PERMITS] = row + 1
    is_known = is_balance_known(state, consumer)
    permits.connection_id[row] = consumers.connection[consumer]
    permits.consumer_id[row] = consumers.id[consumer]
    permits.incarnation[row] = consumers.incarnation[consumer]
    permits.frame_no[row] = place.frame_no
    permits.ts[row] = place.ts_ns
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
def spend(state: ConsumptionState, consumer: int, count: int) -> int:
    """Take the permits of a delivery; returns the change, null where its size was not read."""
    if count == NULL:
        state.consumers.known_at[consumer] = -1
        return NULL
    state.consumers.available[consumer] -= count
    return -count


@inlined
def grant(state: ConsumptionState, consumer: int, permits: int) -> int:
    """Add the permits of a FLOW that counts; returns the change, null where it was not read."""
    if permits == NULL:
        state.consumers.known_at[consumer] = -1
        return NULL
    state.consumers.available[consumer] += permits
    return permits


@inlined
def counts_flow(state: ConsumptionState, consumer: int) -> bool:
    """Whether the broker takes a FLOW of this consumer now; it ignores one before the success.

    A success, or a SUBSCRIBE after a close, may also have been missed by the capture: in a gap, or
    because nothing of the broker's direction was captured.
    """
    consumers = state.consumers
    connections = state.connections
    row = consumers.connection_row[consumer]
    if consumers.state[consumer] == STATE_OPENING and row != ABSENT:
        has_gap = connections.client_gap_at[row] >= consumers.opened_at[consumer]
        if not has_gap and connections.is_client_missing[row] == 0:
            return False
        consumers.state[consumer] = STATE_READY
    elif consumers.state[consumer] == STATE_CLOSED and row != ABSENT:
        if connections.broker_gap_at[row] < consumers.left_at[consumer]:
            return False
        revive(state, consumer)
    return True
