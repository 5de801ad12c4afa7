"""ACKs of released deliveries (see `deliveries`)."""

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.pulsar.consumption import claims
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.ack_sets import and_ack_set
from dissector.protocols.pulsar.consumption.deliveries import LATE_ACK_NS, end_released
from dissector.protocols.pulsar.consumption.identities import is_after
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.standing import has_spent
from dissector.protocols.pulsar.consumption.state import ConsumptionState
from dissector.schemas.enums import ACKED, UNKNOWN_GAP
from dissector.tables import ABSENT, note_cut_walk


@inlined
def _late_outcome(state: ConsumptionState, context: PassContext, row: int, delivery: int) -> int:
    """What an ACK that names a released delivery makes of it: ACKED by a plain one in time,
    UNKNOWN_GAP if a gap may hide that the entry was delivered again, null if it does not count."""
    frames, deliveries = context.frames, state.deliveries
    elapsed = frames.first_ts_ns[row] - deliveries.last_ns[delivery]
    # Below 0 where the clock was set back.
    if elapsed > LATE_ACK_NS or frames.validation_error[row] != NULL:
        return NULL
    if claims.is_decided_later(frames, row):
        return NULL
    has_gap = state.groups.gap_at[deliveries.group[delivery]] >= deliveries.frame_no[delivery]
    return UNKNOWN_GAP if has_gap else ACKED


@inlined
def _end_by_ack(
    state: ConsumptionState, context: PassContext, row: int, delivery: int, outcome: int
) -> None:
    """End a released delivery by an ACK."""
    frames, deliveries = context.frames, state.deliveries
    deliveries.ack_frame_no[delivery] = frames.frame_no[row]
    elapsed = frames.first_ts_ns[row] - deliveries.last_ns[delivery]
    if elapsed >= 0 and deliveries.is_timed[delivery] == 1:
        deliveries.ack_latency_ns[delivery] = elapsed
    end_released(state, context, row, delivery, outcome)


@kernel
def ack_released_up_to(
    state: ConsumptionState, context: PassContext, row: int, consumer: int, index: int
) -> None:
    """Apply a cumulative ACK to the released deliveries of its subscription up to its id."""
    group = state.consumers.group[consumer]
    if group == ABSENT:
        return
    deliveries = state.deliveries
    ledger, entry = context.ids.ledger_id[index], context.ids.entry_id[index]
    is_part = context.ids.ack_set_count[index] > 0
    delivery = state.groups.first[group]
    for _ in range(state.groups.length[group]):
        following = deliveries.next[delivery]
        is_last = deliveries.ledger[delivery] == ledger and deliveries.entry[delivery] == entry
        is_beyond = is_after(state, delivery, ledger, entry)
        if is_beyond and state.groups.is_ascending[group] == 1:
            return
        outcome = NULL
        if not is_beyond and not (is_last and is_part):
            outcome = _late_outcome(state, context, row, delivery)
        if outcome != NULL:
            _end_by_ack(state, context, row, delivery, outcome)
        else:
            state.counters[consumption_state.SPENT_STEPS] += 1
            if has_spent(state):
                note_cut_walk(state.table)
                return
        delivery = following


@kernel
def ack_released(
    state: ConsumptionState, context: PassContext, row: int, delivery: int, index: int
) -> None:
    """Acknowledge the messages of a released delivery that an id names."""
    deliveries = state.deliveries
    outcome = _late_outcome(state, context, row, delivery)
    if outcome == NULL:
        return
    if outcome == ACKED and index != ABSENT and context.ids.ack_set_count[index] > 0:
        left = and_ack_set(state, context, delivery, index, ABSENT)
        if left == ABSENT:
            return
        if left > 0:
            if deliveries.left[delivery] != NULL:
                deliveries.left[delivery] = min(left, deliveries.left[delivery])
            return
    _end_by_ack(state, context, row, delivery, outcome)
