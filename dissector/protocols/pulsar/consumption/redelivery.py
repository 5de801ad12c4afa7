"""The cause of a redelivery: the first one that fits, in a fixed order."""

from dissector.jit import kernel
from dissector.protocols.pulsar.consumption import consumers as consumption_consumers
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.published import was_committed
from dissector.protocols.pulsar.consumption.standing import COMMITTING, leaves_nothing
from dissector.protocols.pulsar.consumption.state import ConsumptionState, LeftBy
from dissector.schemas import enums
from dissector.tables import ABSENT


@kernel
def _is_uncommitted(state: ConsumptionState, delivery: int) -> bool:
    """Whether an open delivery was acked in a transaction that was not committed."""
    deliveries = state.deliveries
    if deliveries.is_claimed[delivery] == 1 and leaves_nothing(state, delivery, COMMITTING):
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
    """The cause if the previous delivery is known: the cell still describes it.

    consumer: the receiver of the new delivery.
    """
    cells = state.cells
    consumers = state.consumers
    before = cells.frame_no[cell]
    owner = consumption_consumers.unpacked_consumer(state, cells.owner[cell])
    # Messages under way cross a seek: they are seen behind it, and once more when the broker has
    # closed the consumers, moved the position, and said so.
    was_closed = owner != ABSENT and consumers.left_at[owner] != 0
    if state.groups.seek_at[group] > before or (
        was_closed and state.groups.sought_at[group] > before
    ):
        return enums.CAUSE_SEEK
    end = cells.end[cell]
    if end == consumption_state.END_REQUESTED:
        return enums.CAUSE_EXPLICIT
    # An ack inside a transaction that did not end with a commit has no effect: the broker
    # redelivers without a request.
    if end == consumption_state.END_ROLLED_BACK or (
        cells.delivery[cell] != ABSENT and _is_uncommitted(state, cells.delivery[cell])
    ):
        return enums.CAUSE_TXN_ABORT
    if owner == ABSENT:
        return enums.CAUSE_UNKNOWN
    if consumption_consumers.is_failover(state, consumer) or consumption_consumers.is_failover(
        state, owner
    ):
        if consumers.inactive_at[owner] > before:
            return enums.CAUSE_FAILOVER_SWITCH
        if owner != consumer and not consumption_consumers.has_reconnected(state, owner, consumer):
            return enums.CAUSE_FAILOVER_SWITCH
    if consumers.left_at[owner] == 0:
        # When a member joins, the broker may choose the same consumer again, from its position on.
        if consumers.active_at[owner] > before:
            return enums.CAUSE_FAILOVER_SWITCH
        # A REDELIVER of all crosses messages in flight: it is seen before messages that the broker
        # had sent by then, and the broker redelivers all of these, to any consumer. Several in a
        # row cause several redeliveries of the same message, and nothing else does while a
        # consumer is present.
        is_asked = consumers.wants_all[owner] == 1
        return enums.CAUSE_EXPLICIT if is_asked else enums.CAUSE_UNKNOWN
    if consumers.left_by[owner] == LeftBy.UNSEEN:
        return enums.CAUSE_UNKNOWN
    if consumers.left_by[owner] == LeftBy.BROKER:
        # A seek, too, makes the broker close the consumer, and redelivers acknowledged messages.
        may_be_sought = (
            end == consumption_state.END_ACKED and consumers.left_gap_at[owner] >= before
        )
        return enums.CAUSE_UNKNOWN if may_be_sought else enums.CAUSE_UNLOAD
    return (
        enums.CAUSE_RECONNECT
        if consumption_consumers.has_reconnected(state, owner, consumer)
        else enums.CAUSE_CONSUMER_GONE
    )


@kernel
def cause_of_forgotten(state: ConsumptionState, group: int) -> int:
    """The cause if only the id is stored: a seek after the id's page was evicted, else unknown."""
    if state.groups.seek_at[group] > state.groups.forgotten_at[group]:
        return enums.CAUSE_SEEK
    return enums.CAUSE_UNKNOWN


@kernel
def cause_of_unseen(state: ConsumptionState, group: int, consumer: int, is_sent: bool) -> int:
    """The cause if the broker counts an earlier delivery that is not in the capture.

    consumer: the receiver.
    is_sent: the capture has the entry's SEND, so no delivery is older than it. A REDELIVER of all
        also reaches messages that the broker had counted, but not yet written to the connection.
    """
    if is_sent and state.consumers.wants_all[consumer] == 1:
        return enums.CAUSE_EXPLICIT
    if is_sent or (group != ABSENT and state.groups.gap_at[group] >= 0):
        return enums.CAUSE_UNKNOWN
    return enums.CAUSE_PRE_CAPTURE
