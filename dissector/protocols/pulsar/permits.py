"""The balance of permits of each consumer: what it granted, what deliveries cost, when it began anew.

A permit is one message. The broker sends whole entries while the balance is above zero, so that it
may fall below: it is never clamped. It starts at zero with each SUBSCRIBE that opens the consumer;
where that was not seen, or frames are missing since, it is unknown until the next such SUBSCRIBE or
until the broker says it (CONSUMER_STATS_RESPONSE).
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined
from dissector.limits import NULL
from dissector.protocols.pulsar.consumers import is_baseline_known, revive
from dissector.protocols.pulsar.consumption_rows import ConsumptionRows
from dissector.protocols.pulsar.consumption_state import (
    CONNECTION_BROKER_GAP_AT,
    CONNECTION_CLIENT_GAP_AT,
    CONNECTION_CLIENT_MISSING,
    CONSUMER_AVAILABLE,
    CONSUMER_BASELINE_AT,
    CONSUMER_CONNECTION,
    CONSUMER_CONNECTION_ROW,
    CONSUMER_ID,
    CONSUMER_INCARNATION,
    CONSUMER_LEFT_AT,
    CONSUMER_OPENED_AT,
    CONSUMER_STATE,
    CONSUMER_SUBSCRIPTION,
    CONSUMER_TOPIC,
    CONSUMER_TYPE,
    CONSUMER_UNACKED,
    CONSUMER_UNKNOWN_COSTS,
    OUT_PERMITS,
    STATE_CLOSED,
    STATE_OPENING,
    STATE_READY,
    ConsumerTables,
)
from dissector.protocols.tables import ABSENT

EVENT_NAMES: Final = ("grant", "delivery", "reset")
GRANT: Final = 0
DELIVERY: Final = 1
RESET: Final = 2


@inlined
def add_permit_row(
    consumers: ConsumerTables,
    counters: Int64Array,
    out: ConsumptionRows,
    consumer: int,
    event: int,
    delta: int,
    frame_no: int,
    ts_ns: int,
) -> None:
    """One row with the balance as it is now."""
    rows = consumers.rows
    row = counters[OUT_PERMITS]
    permits = out.permits
    is_known = is_baseline_known(consumers, consumer)
    permits.connection_id[row] = rows[consumer, CONSUMER_CONNECTION]
    permits.consumer_id[row] = rows[consumer, CONSUMER_ID]
    permits.incarnation[row] = rows[consumer, CONSUMER_INCARNATION]
    permits.frame_no[row] = frame_no
    permits.ts[row] = ts_ns
    permits.event[row] = event
    permits.delta[row] = delta
    permits.available_after[row] = rows[consumer, CONSUMER_AVAILABLE] if is_known else NULL
    unacked = rows[consumer, CONSUMER_UNACKED]
    permits.unacked_after[row] = unacked if rows[consumer, CONSUMER_UNKNOWN_COSTS] == 0 else NULL
    permits.baseline_known[row] = 1 if is_known else 0
    permits.topic[row] = rows[consumer, CONSUMER_TOPIC]
    permits.subscription[row] = rows[consumer, CONSUMER_SUBSCRIPTION]
    permits.subscription_type[row] = rows[consumer, CONSUMER_TYPE]
    counters[OUT_PERMITS] = row + 1


@inlined
def spend(rows: Int64Array, consumer: int, count: int) -> int:
    """Take the permits of a delivery; returns the change, null where its size was not read."""
    if count == NULL:
        rows[consumer, CONSUMER_BASELINE_AT] = -1
        return NULL
    rows[consumer, CONSUMER_AVAILABLE] -= count
    return -count


@inlined
def grant(consumers: ConsumerTables, consumer: int, permits: int) -> int:
    """Add the permits of a FLOW that counts; returns the change, null where it was not read."""
    if permits == NULL:
        consumers.rows[consumer, CONSUMER_BASELINE_AT] = -1
        return NULL
    consumers.rows[consumer, CONSUMER_AVAILABLE] += permits
    return permits


@inlined
def counts_flow(consumers: ConsumerTables, consumer: int) -> bool:
    """Whether the broker takes a FLOW of this consumer now; it ignores one before the success.

    A success, or a SUBSCRIBE after a close, may also have been missed by the capture: in a gap, or
    because nothing of the broker's direction was captured.
    """
    rows = consumers.rows
    state = rows[consumer, CONSUMER_STATE]
    row = rows[consumer, CONSUMER_CONNECTION_ROW]
    if state == STATE_OPENING and row != ABSENT:
        connections = consumers.connections
        gap_at = connections[row, CONNECTION_CLIENT_GAP_AT]
        is_missing = connections[row, CONNECTION_CLIENT_MISSING]
        if gap_at < rows[consumer, CONSUMER_OPENED_AT] and not is_missing:
            return False
        rows[consumer, CONSUMER_STATE] = STATE_READY
    elif state == STATE_CLOSED and row != ABSENT:
        gap_at = consumers.connections[row, CONNECTION_BROKER_GAP_AT]
        if gap_at < rows[consumer, CONSUMER_LEFT_AT]:
            return False
        revive(consumers, consumer)
    return True
