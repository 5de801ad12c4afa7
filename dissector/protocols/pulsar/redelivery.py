"""Why a message came again: the first cause that fits, in a fixed order."""

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.protocols.pulsar.consumers import came_back, is_failover, row_of
from dissector.protocols.pulsar.consumption_state import (
    CAUSE_CONSUMER_GONE,
    CAUSE_EXPLICIT,
    CAUSE_FAILOVER_SWITCH,
    CAUSE_PRE_CAPTURE,
    CAUSE_RECONNECT,
    CAUSE_SEEK,
    CAUSE_TXN_ABORT,
    CAUSE_UNKNOWN,
    CAUSE_UNLOAD,
    CELL_DELIVERY,
    CELL_END,
    CELL_FRAME_NO,
    CELL_HOLDER,
    CONSUMER_INACTIVE_AT,
    CONSUMER_LEFT_AT,
    CONSUMER_LEFT_BY,
    DELIVERY_TRANSACTION,
    END_BITS,
    END_IN_TRANSACTION,
    END_REQUESTED,
    GROUP_FORGOTTEN_AT,
    GROUP_GAP_AT,
    GROUP_SEEK_AT,
    LEFT_BY_BROKER,
    ConsumptionState,
)
from dissector.protocols.pulsar.published import was_committed
from dissector.protocols.tables import ABSENT

_END_MASK = (1 << END_BITS) - 1


@kernel
def cause_of_known(state: ConsumptionState, group: int, consumer: int, cell: Int64Array) -> int:
    """The cause where the delivery before is known.

    Args:
        consumer: row of the one that gets the message now.
        cell: int64[CELL_WIDTH], the last delivery of the id.
    """
    before = cell[CELL_FRAME_NO]
    if state.consumers.groups[group, GROUP_SEEK_AT] > before:
        return CAUSE_SEEK
    end = cell[CELL_END] & _END_MASK
    if end == END_REQUESTED:
        return CAUSE_EXPLICIT
    # An ack inside a transaction that ended otherwise than by a commit did not hold. The broker
    # then delivers again without having been asked.
    transaction = ABSENT
    if end == END_IN_TRANSACTION:
        transaction = cell[CELL_END] >> END_BITS
    elif cell[CELL_DELIVERY] != ABSENT:
        transaction = state.deliveries.rows[cell[CELL_DELIVERY], DELIVERY_TRANSACTION]
    if transaction != ABSENT and not was_committed(state.published, transaction):
        return CAUSE_TXN_ABORT
    rows = state.consumers.rows
    holder = row_of(rows, cell[CELL_HOLDER])
    if holder == ABSENT:
        return CAUSE_UNKNOWN
    if is_failover(rows, consumer) or is_failover(rows, holder):
        if rows[holder, CONSUMER_INACTIVE_AT] > before:
            return CAUSE_FAILOVER_SWITCH
        if holder != consumer and not came_back(rows, holder, consumer):
            return CAUSE_FAILOVER_SWITCH
    if rows[holder, CONSUMER_LEFT_AT] == 0:
        return CAUSE_UNKNOWN
    if rows[holder, CONSUMER_LEFT_BY] == LEFT_BY_BROKER:
        return CAUSE_UNLOAD
    return CAUSE_RECONNECT if came_back(rows, holder, consumer) else CAUSE_CONSUMER_GONE


@kernel
def cause_of_forgotten(state: ConsumptionState, group: int) -> int:
    """The cause where only the id is remembered: a seek that came later than its delivery."""
    groups = state.consumers.groups
    if groups[group, GROUP_SEEK_AT] > groups[group, GROUP_FORGOTTEN_AT]:
        return CAUSE_SEEK
    return CAUSE_UNKNOWN


@kernel
def cause_of_unseen(state: ConsumptionState, group: int) -> int:
    """The cause where the broker counts a delivery that is not in the capture."""
    if group != ABSENT and state.consumers.groups[group, GROUP_GAP_AT] >= 0:
        return CAUSE_UNKNOWN
    return CAUSE_PRE_CAPTURE
