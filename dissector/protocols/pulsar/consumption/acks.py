"""ACK, REDELIVER and NEGATIVE_ACK: write a row of acks for each id and update its delivery."""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COMPLETE, FrameColumns
from dissector.protocols.frame_notices import note_frame
from dissector.protocols.pulsar.consumption import bitsets, claims
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.ack_sets import and_ack_set, has_nothing_left
from dissector.protocols.pulsar.consumption.consumers import find_consumer
from dissector.protocols.pulsar.consumption.deliveries import end_all, end_delivery, has_identity
from dissector.protocols.pulsar.consumption.identities import cell_of, find_page, is_after
from dissector.protocols.pulsar.consumption.late_acks import ack_released, ack_released_up_to
from dissector.protocols.pulsar.consumption.published import transaction_of
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.standing import has_spent
from dissector.protocols.pulsar.consumption.state import ConsumptionState
from dissector.protocols.pulsar.wire.commands import NEGATIVE_ACK, REDELIVER
from dissector.schemas.enums import ACKED, DISCARDED, REDELIVERY_REQUESTED, UNRESOLVED_AT_LIMIT
from dissector.tables import ABSENT

ACTION_NAMES: Final = ("ack", "redeliver", "nack")
ACTION_ACK: Final = 0
ACTION_REDELIVER: Final = 1
ACTION_NACK: Final = 2
CUMULATIVE: Final = 1  # ack_type
SHARED: Final = 1  # subscription types
KEY_SHARED: Final = 3
_NEGATIVE_DURATION: Final = NOTICE_NUMBER["negative_duration"]


@inlined
def _add_ack_row(
    state: ConsumptionState, context: PassContext, frame: int, action: int, index: int
) -> None:
    """Write a row of acks. index: row of the id, or ABSENT for a frame without ids."""
    frames = context.frames
    ids = context.ids
    acks = context.out.acks
    row = state.counters[consumption_state.OUT_ACKS]
    state.counters[consumption_state.OUT_ACKS] = row + 1
    acks.matrix[:, row] = NULL
    acks.connection_id[row] = frames.connection_id[frame]
    acks.frame_no[row] = frames.frame_no[frame]
    acks.ts[row] = frames.last_ts_ns[frame]
    acks.consumer_id[row] = frames.consumer_id[frame]
    acks.incarnation[row] = frames.incarnation[frame]
    acks.topic[row] = frames.topic[frame]
    acks.subscription[row] = frames.subscription[frame]
    acks.action[row] = action
    if action == ACTION_ACK:
        acks.ack_type[row] = frames.ack_type[frame]
        acks.request_id[row] = frames.request_id[frame]
        acks.validation_error[row] = frames.validation_error[frame]
        acks.txn_most_bits[row] = frames.txn_most_bits[frame]
        acks.txn_least_bits[row] = frames.txn_least_bits[frame]
    if index != ABSENT:
        partition = ids.partition[index]
        at = ids.ack_set_at[index]
        count = ids.ack_set_count[index]
        batch_size = ids.batch_size[index]
        acks.ledger_id[row] = ids.ledger_id[index]
        acks.entry_id[row] = ids.entry_id[index]
        acks.partition[row] = partition if partition >= 0 else NULL
        acks.batch_size[row] = batch_size
        acks.ack_set_at[row] = at
        acks.ack_set_count[row] = count
        if count > 0:
            bits = batch_size if batch_size > 0 else NULL
            acks.remaining_in_batch[row] = bitsets.bits_left(context.words, at, count, bits)


@inlined
def _find_open(state: ConsumptionState, group: int, guess: int, ledger: int, entry: int) -> int:
    """The last delivery of an id to a group, if it is open; else ABSENT."""
    if group == ABSENT or ledger < 0 or entry < 0:
        return ABSENT
    page = find_page(state, guess, state.groups.serial[group], ledger, entry)
    bit = entry & (consumption_state.PAGE_ENTRIES - 1)
    if page == ABSENT or (state.pages.known[page] >> bit) & 1 == 0:
        return ABSENT
    return int(state.cells.delivery[page * consumption_state.PAGE_ENTRIES + bit])


@kernel
def _find_elsewhere(state: ConsumptionState, consumer: int, ledger: int, entry: int) -> int:
    """The open delivery that an id of a consumer names outside its group's pages, or ABSENT."""
    local = state.consumers.local[consumer]
    if local != ABSENT:
        return _find_open(state, local, ABSENT, ledger, entry)
    if has_identity(state, consumer, ledger, entry):
        return ABSENT
    # All ids are equal (0:0): an ack of one counts for the consumer's oldest open delivery.
    oldest = state.consumers.first[consumer]
    deliveries = state.deliveries
    if (
        oldest != ABSENT
        and deliveries.page[oldest] == ABSENT
        and deliveries.superseded_at[oldest] == 0
        and deliveries.entry[oldest] == entry
        and deliveries.ledger[oldest] == ledger
    ):
        return int(oldest)
    return ABSENT


@inlined
def _find_named(state: ConsumptionState, consumer: int, ledger: int, entry: int) -> int:
    """The open delivery that an id in a consumer's frame names, to any consumer; else ABSENT."""
    guess = state.consumers.page[consumer]
    delivery = _find_open(state, state.consumers.group[consumer], guess, ledger, entry)
    return _find_elsewhere(state, consumer, ledger, entry) if delivery == ABSENT else delivery


@kernel
def _apply_ack_set(
    state: ConsumptionState, context: PassContext, row: int, delivery: int, index: int, claim: int
) -> bool:
    """Apply an ack_set; returns whether nothing is left. Without room the delivery ends."""
    deliveries = state.deliveries
    left = and_ack_set(state, context, delivery, index, claim)
    if left == ABSENT:
        end_delivery(state, context, row, delivery, UNRESOLVED_AT_LIMIT)
        return False
    if left == 0 or deliveries.is_claimed[delivery] == 1:
        return True
    before = deliveries.left[delivery]
    if before != NULL:
        left = min(left, before)
        state.consumers.unacked[deliveries.consumer[delivery]] -= before - left
        deliveries.left[delivery] = left
    return False


@inlined
def _ack_delivery(
    state: ConsumptionState,
    context: PassContext,
    row: int,
    delivery: int,
    index: int,
    transaction: int,
) -> None:
    """Acknowledge, or discard, the messages of a delivery that an id names.

    index: row of the id, ABSENT if that is a later delivery's; transaction: packed, or ABSENT.
    """
    frames = context.frames
    deliveries = state.deliveries
    if deliveries.released[delivery] != NULL:
        ack_released(state, context, row, delivery, index)
        return
    is_later = claims.is_decided_later(frames, row)
    is_discarded = frames.validation_error[row] != NULL
    is_part = index != ABSENT and not is_discarded and context.ids.ack_set_count[index] > 0
    is_waiting = deliveries.is_claimed[delivery] == 1
    claim = ABSENT
    if is_later and (is_waiting or not is_discarded):
        claim = claims.add_claim(state, frames, row, delivery, transaction)
        if claim == ABSENT:
            end_delivery(state, context, row, delivery, UNRESOLVED_AT_LIMIT)
            return
    is_over = not is_later
    if is_part:
        if not _apply_ack_set(state, context, row, delivery, index, claim):
            return
        is_over = is_over and has_nothing_left(state, delivery)
    if is_waiting:
        if is_over:
            end_delivery(state, context, row, delivery, ACKED)
        return
    deliveries.ack_frame_no[delivery] = frames.frame_no[row]
    if is_discarded:
        end_delivery(state, context, row, delivery, DISCARDED)
        return
    cell = cell_of(state, delivery)
    elapsed = frames.first_ts_ns[row] - deliveries.last_ns[delivery]
    if elapsed < 0:
        note_frame(context.out.notices, _NEGATIVE_DURATION, context.frames, row, NULL, NULL)
    elif cell != ABSENT and deliveries.is_timed[delivery] == 1:
        deliveries.ack_latency_ns[delivery] = elapsed
    if is_over:
        end_delivery(state, context, row, delivery, ACKED)
    else:
        claims.set_aside(state, delivery)


@inlined
def _is_cumulative(state: ConsumptionState, frames: FrameColumns, row: int, consumer: int) -> bool:
    """Whether an ACK acknowledges everything up to its id.

    Pulsar: brokers ignore a cumulative ACK on shared subscriptions, and one with several ids.
    """
    return bool(
        frames.ack_type[row] == CUMULATIVE
        and frames.id_count[row] == 1
        and state.consumers.type[consumer] not in (SHARED, KEY_SHARED)
    )


@inlined
def _asks_for_all(state: ConsumptionState, frames: FrameColumns, row: int, consumer: int) -> bool:
    """Whether a REDELIVER asks for all open deliveries of its consumer.

    Pulsar: one without ids does; on subscriptions with one active consumer one with ids does, too.
    A NEGATIVE_ACK asks for the ids in it alone.
    """
    if frames.command[row] == NEGATIVE_ACK:
        return False
    names_none = frames.id_count[row] <= 0 and frames.status[row] == COMPLETE
    return bool(names_none or state.consumers.type[consumer] not in (NULL, SHARED, KEY_SHARED))


@kernel
def max_ended(state: ConsumptionState, context: PassContext, row: int, consumer: int) -> int:
    """Upper bound of the deliveries that an ACK or REDELIVER ends beyond its list of ids."""
    frames = context.frames
    waiting = state.consumers.length[consumer]
    if frames.command[row] in (REDELIVER, NEGATIVE_ACK):
        return int(waiting) if _asks_for_all(state, frames, row, consumer) else 0
    if not _is_cumulative(state, frames, row, consumer):
        return 0
    group = state.consumers.group[consumer]
    released = 0 if group == ABSENT else int(state.groups.length[group])
    return released + _max_acked(state, context, row, consumer)


@kernel
def _max_acked(state: ConsumptionState, context: PassContext, row: int, consumer: int) -> int:
    """Upper bound of the open deliveries of a consumer that its cumulative ACK ends."""
    frames = context.frames
    waiting = state.consumers.length[consumer]
    if state.consumers.is_ascending[consumer] == 0:
        return int(waiting)
    first = frames.first_id[row]
    ledger, entry = context.ids.ledger_id[first], context.ids.entry_id[first]
    delivery = state.consumers.first[consumer]
    for count in range(waiting):
        state.counters[consumption_state.LOOKED_AT] += 1
        if is_after(state, delivery, ledger, entry):
            return count
        delivery = state.deliveries.next[delivery]
    return int(waiting)


@kernel
def _ack_up_to(
    state: ConsumptionState,
    context: PassContext,
    row: int,
    consumer: int,
    index: int,
    transaction: int,
) -> None:
    """Apply a cumulative ACK: all open deliveries of the consumer up to its id."""
    deliveries = state.deliveries
    ledger = context.ids.ledger_id[index]
    entry = context.ids.entry_id[index]
    ack_released_up_to(state, context, row, consumer, index)
    if state.consumers.claimed[consumer] > 0:
        claims.add_reach(state, context, row, consumer, transaction)
    delivery = state.consumers.first[consumer]
    for _ in range(state.consumers.length[consumer]):
        state.counters[consumption_state.LOOKED_AT] += 1
        following = deliveries.next[delivery]
        is_last = deliveries.ledger[delivery] == ledger and deliveries.entry[delivery] == entry
        is_beyond = is_after(state, delivery, ledger, entry)
        if is_beyond and state.consumers.is_ascending[consumer] == 1:
            break
        if is_beyond or deliveries.superseded_at[delivery] > 0:
            state.counters[consumption_state.SPENT_STEPS] += 1
            if has_spent(state):
                state.counters[consumption_state.DELIVERIES_GIVEN_UP] += 1
                return
        else:
            its_index = index if is_last else ABSENT
            _ack_delivery(state, context, row, delivery, its_index, transaction)
        delivery = following
    # Deliveries set aside are not in the consumer's list; the ACK may leave part of its entry.
    delivery = _find_named(state, consumer, ledger, entry)
    if (
        delivery != ABSENT
        and deliveries.consumer[delivery] == consumer
        and deliveries.is_claimed[delivery] == 1
        and deliveries.ack_frame_no[delivery] != context.frames.frame_no[row]
    ):
        _ack_delivery(state, context, row, delivery, index, transaction)


@inlined
def handle_ack(state: ConsumptionState, context: PassContext, row: int) -> None:
    """ACK: write a row for each id; apply the ids to the deliveries that they name."""
    frames = context.frames
    ids = context.ids
    first = frames.first_id[row]
    count = max(frames.id_count[row], 0)
    for index in range(first, first + count):
        _add_ack_row(state, context, row, ACTION_ACK, index)
    consumer = find_consumer(state, frames.connection_id[row], frames.consumer_id[row])
    if consumer == ABSENT:
        return
    transaction = ABSENT
    if frames.txn_most_bits[row] != NULL and frames.txn_least_bits[row] != NULL:
        transaction = transaction_of(state, frames.txn_most_bits[row], frames.txn_least_bits[row])
    if frames.ack_type[row] != CUMULATIVE:
        for index in range(first, first + count):
            delivery = _find_named(state, consumer, ids.ledger_id[index], ids.entry_id[index])
            if delivery != ABSENT:
                _ack_delivery(state, context, row, delivery, index, transaction)
    elif _is_cumulative(state, frames, row, consumer):
        _ack_up_to(state, context, row, consumer, first, transaction)


@kernel
def handle_redeliver(state: ConsumptionState, context: PassContext, row: int) -> None:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES, NEGATIVE_ACK: end the deliveries they name, or all."""
    frames = context.frames
    ids = context.ids
    first = frames.first_id[row]
    count = max(frames.id_count[row], 0)
    is_nack = frames.command[row] == NEGATIVE_ACK
    action = ACTION_NACK if is_nack else ACTION_REDELIVER
    for index in range(first, first + count):
        _add_ack_row(state, context, row, action, index)
    if count == 0 and frames.status[row] == COMPLETE and not is_nack:
        _add_ack_row(state, context, row, ACTION_REDELIVER, ABSENT)
    consumer = find_consumer(state, frames.connection_id[row], frames.consumer_id[row])
    if consumer == ABSENT:
        return
    if _asks_for_all(state, frames, row, consumer):
        state.consumers.wants_all[consumer] = 1
        end_all(state, context, row, consumer, REDELIVERY_REQUESTED)
        return
    for index in range(first, first + count):
        delivery = _find_named(state, consumer, ids.ledger_id[index], ids.entry_id[index])
        # Pulsar: the broker considers only deliveries to this consumer.
        if (
            delivery != ABSENT
            and state.deliveries.consumer[delivery] == consumer
            and state.deliveries.is_claimed[delivery] == 0
            and state.deliveries.released[delivery] == NULL
        ):
            end_delivery(state, context, row, delivery, REDELIVERY_REQUESTED)
