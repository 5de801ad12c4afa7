"""Why a message came again: the first cause that fits, in a fixed order."""

from dissector.jit import kernel
from dissector.protocols.pulsar.consumption import consumers as consumption_consumers
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.published import was_committed
from dissector.protocols.pulsar.consumption.standing import COMMITTING, is_taken
from dissector.protocols.pulsar.consumption.state import ConsumptionState, LeftBy
from dissector.schemas import enums
from dissector.tables import ABSENT


@kernel
def _is_uncommitted(state: ConsumptionState, delivery: int) -> bool:
    """Whether an open delivery was acked in a transaction that was not committed."""
    deliveries = state.deliveries
    if deliveries.is_claimed[delivery] == 1 and is_taken(state, delivery, COMMITTING):
        return False
    if deliveries.is_rolled_back[delivery] == 1:
        return True
    claim = state.deliveries.first[delivery]
    for _ in range(state.deliveries.length[delivery]):
        transaction = state.claims.transaction[claim]
        if transaction != ABSENT and not was_committed(state, transaction):
            return True
        claim = state.shares.next[claim]
    return False


@kernel
def cause_of_known(state: ConsumptionState, group: int, consumer: int, cell: int) -> int:
    """The cause where the delivery before is known: it is still the one of the cell.

    consumer: the one that gets the message now.
    """
    cells = state.cells
    consumers = state.consumers
    before = cells.frame_no[cell]
    if state.groups.seek_at[group] > before:
        return enums.CAUSE_SEEK
    end = cells.end[cell]
    if end == consumption_state.END_REQUESTED:
        return enums.CAUSE_EXPLICIT
    # An ack inside a transaction that ended otherwise than by a commit did not hold. The broker
    # then delivers again without having been asked.
    if end == consumption_state.END_ROLLED_BACK or (
        cells.delivery[cell] != ABSENT and _is_uncommitted(state, cells.delivery[cell])
    ):
        return enums.CAUSE_TXN_ABORT
    owner = consumption_consumers.unpacked_consumer(state, cells.owner[cell])
    if owner == ABSENT:
        return enums.CAUSE_UNKNOWN
    if consumption_consumers.is_failover(state, consumer) or consumption_consumers.is_failover(
        state, owner
    ):
        if consumers.inactive_at[owner] > before:
            return enums.CAUSE_FAILOVER_SWITCH
        if owner != consumer and not consumption_consumers.came_back(state, owner, consumer):
            return enums.CAUSE_FAILOVER_SWITCH
    if consumers.left_at[owner] == 0:
        # A request for all crosses what is on its way: it is seen before messages that the broker
        # had sent by then, and all of these come again. Several in a row bring the same several
        # times, and nothing else does so while a consumer is there.
        is_asked = owner == consumer and consumers.wants_all[consumer] == 1
        return enums.CAUSE_EXPLICIT if is_asked else enums.CAUSE_UNKNOWN
    if consumers.left_by[owner] == LeftBy.UNSEEN:
        return enums.CAUSE_UNKNOWN
    if consumers.left_by[owner] == LeftBy.BROKER:
        # A seek makes the broker close it, too, and brings back what was acknowledged.
        may_be_sought = (
            end == consumption_state.END_ACKED and consumers.left_gap_at[owner] >= before
        )
        return enums.CAUSE_UNKNOWN if may_be_sought else enums.CAUSE_UNLOAD
    return (
        enums.CAUSE_RECONNECT
        if consumption_consumers.came_back(state, owner, consumer)
        else enums.CAUSE_CONSUMER_GONE
    )


@kernel
def cause_of_forgotten(state: ConsumptionState, group: int) -> int:
    """The cause where only the id is remembered: a seek that came later than its delivery."""
    if state.groups.seek_at[group] > state.groups.forgotten_at[group]:
        return enums.CAUSE_SEEK
    return enums.CAUSE_UNKNOWN


@kernel
def cause_of_unseen(state: ConsumptionState, group: int) -> int:
    """The cause where the broker counts a delivery that is not in the capture."""
    if group != ABSENT and state.groups.gap_at[group] >= 0:
        return enums.CAUSE_UNKNOWN
    return enums.CAUSE_PRE_CAPTURE
