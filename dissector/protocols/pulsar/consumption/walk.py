"""One pass over frames in order: each updates consumers, deliveries, permits and acks."""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COMPLETE, FrameColumns, FrameEvent
from dissector.protocols.frame_notices import note_frame
from dissector.protocols.pulsar.consumption import acks, claims, deliveries, lifecycle, published
from dissector.protocols.pulsar.consumption import consumers as consumption_consumers
from dissector.protocols.pulsar.consumption import permits as consumption_permits
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows, PassContext
from dissector.protocols.pulsar.consumption.state import ConsumerState, ConsumptionState
from dissector.protocols.pulsar.wire import commands
from dissector.schemas.enums import (
    CONSUMER_CLOSED,
    DELIVERY,
    GRANT,
    UNACKED_AT_END,
    UNRESOLVED_AT_LIMIT,
)
from dissector.tables import ABSENT

DONE: Final = 0
FULL: Final = 1  # no room for the rows of the next frame: flush the rows, reserve, call again

_CONSUMER: Final = 2  # handle_kind
_OF_DELIVERIES: Final = (
    commands.MESSAGE, commands.ACK, commands.FLOW, commands.REDELIVER, commands.NEGATIVE_ACK,
)  # fmt: skip

_EXPIRING: Final = 16  # released deliveries, at each frame
# Rows that a frame may need beside those counted for it: the deliveries of two evicted pages of ids
# (one for its own id, one for deliveries before its consumer's topic was known), those that expire,
# and a notice.
_SPARE_ROWS: Final = 2 * consumption_state.PAGE_ENTRIES + _EXPIRING + 16

_FLOW_BEFORE_SUBSCRIBE: Final = NOTICE_NUMBER["flow_before_subscribe"]
# For DELIVERIES_GIVEN_UP and the two counters after it.
_LIMIT_NOTICES: Final = (
    NOTICE_NUMBER["deliveries_limit"],
    NOTICE_NUMBER["identities_limit"],
    NOTICE_NUMBER["consumers_limit"],
)


@inlined
def _handle_message(state: ConsumptionState, context: PassContext, row: int) -> None:
    """MESSAGE: open a delivery and subtract its permits."""
    consumer = lifecycle.consumer_of(state, context, row)
    consumers = state.consumers
    consumption_consumers.note_two_way(state, consumer, context.frames.is_two_way[row])
    is_late = consumption_consumers.stays_closed(state, consumer)
    if consumers.state[consumer] == ConsumerState.OPENING:
        consumers.state[consumer] = ConsumerState.READY
    cost = consumption_permits.message_cost(context.frames, row, context.words)
    deliveries.open_delivery(state, context, row, consumer, cost)
    if consumer == consumption_state.OVERFLOW_CONSUMER:
        deliveries.end_all(state, context, row, consumer, UNRESOLVED_AT_LIMIT)
    delta = consumption_permits.change_balance(state, consumer, -cost if cost != NULL else NULL)
    consumption_permits.add_permit_row(state, context, row, consumer, DELIVERY, delta)
    if is_late:
        deliveries.end_all(state, context, row, consumer, CONSUMER_CLOSED)


@kernel
def _handle_flow(state: ConsumptionState, context: PassContext, row: int) -> None:
    """FLOW: add its permits, unless the broker does not know the consumer yet, or any more."""
    permits = context.frames.permits[row]
    consumer = lifecycle.consumer_of(state, context, row)
    consumption_consumers.note_two_way(state, consumer, context.frames.is_two_way[row])
    delta = 0
    if consumption_permits.counts_flow(state, consumer):
        delta = consumption_permits.change_balance(state, consumer, permits)
    elif state.consumers.state[consumer] == ConsumerState.OPENING:
        note_frame(context.out.notices, _FLOW_BEFORE_SUBSCRIBE, context.frames, row, permits, NULL)
    consumption_permits.add_permit_row(state, context, row, consumer, GRANT, delta)


@inlined
def _handle_receipt(state: ConsumptionState, context: PassContext, row: int) -> None:
    """SEND_RECEIPT: note when its entry was sent. -1:-1 was not stored, 0:0 may not be either."""
    frames = context.frames
    topic = frames.topic[row]
    ledger = frames.ledger_id[row]
    entry = frames.entry_id[row]
    sent_ns = frames.answered_last_ns[row]
    if sent_ns == NULL or ledger < 0 or entry < 0:
        return
    if topic < 0 and ledger == 0 and entry == 0:
        return
    if 0 <= topic < len(context.is_volatile) and context.is_volatile[topic] == 1:
        return
    connection = frames.connection_id[row]
    proxy_side = published.proxy_side_of(state, connection)
    published.remember_published(
        state, published.domain_of(topic, connection), ledger, entry, proxy_side, sent_ns
    )


@kernel
def _claims_of_transaction(state: ConsumptionState, frames: FrameColumns, row: int) -> int:
    """Number of claims that a transaction's end decides, by the frame's id or its request's."""
    most, least = frames.txn_most_bits[row], frames.txn_least_bits[row]
    transaction = published.find_transaction(
        state, consumption_consumers.find_packed(state, frames.answered_frame_no[row])
    )
    if frames.command[row] == commands.END_TXN_RESPONSE and transaction != ABSENT:
        most = state.transactions.most[transaction]
        least = state.transactions.least[transaction]
    return int(claims.claims_of_transaction(state, most, least))


@kernel
def _rows_needed(state: ConsumptionState, context: PassContext, row: int) -> int:
    """Upper bound of the rows in one table for a frame that may end many deliveries."""
    frames = context.frames
    connection = frames.connection_id[row]
    consumers = state.consumers
    needed = _SPARE_ROWS
    if frames.command[row] == commands.ACK_RESPONSE:
        return int(needed + claims.claims_of_ack(state, frames.answered_frame_no[row]))
    if frames.command[row] in (commands.END_TXN_RESPONSE, commands.END_TXN_ON_SUBSCRIPTION):
        return int(needed + _claims_of_transaction(state, frames, row))
    if frames.command[row] == FrameEvent.CLOSE:
        needed += claims.claims_of_connection(state, connection)
        connection_row = consumption_consumers.find_connection(state, connection)
        if connection_row != ABSENT:
            consumer = state.connections.first[connection_row]
            for _ in range(state.connections.length[connection_row]):
                needed += consumers.length[consumer]
                consumer = consumers.next[consumer]
    elif frames.command[row] in (commands.ACK, commands.REDELIVER, commands.NEGATIVE_ACK):
        needed += max(frames.id_count[row], 0)
        consumer = consumption_consumers.find_consumer(state, connection, frames.consumer_id[row])
        if consumer != ABSENT:
            needed += acks.max_ended(state, context, row, consumer)
    elif frames.lifecycle[row] > 0 and frames.handle_kind[row] == _CONSUMER:
        consumer = consumption_consumers.find_consumer(state, connection, frames.handle_id[row])
        if consumer != ABSENT:
            needed += consumers.length[consumer]
    return int(needed)


@inlined
def _has_room(state: ConsumptionState, out: ConsumptionRows, needed: int) -> bool:
    """Whether each table has room for `needed` more rows."""
    counters = state.counters
    used = max(
        max(counters[consumption_state.OUT_DELIVERIES], counters[consumption_state.OUT_PERMITS]),
        max(counters[consumption_state.OUT_ACKS], out.notices.used[0]),
    )
    return bool(
        len(out.deliveries.frame_no) - used >= needed
        and len(out.words) - counters[consumption_state.OUT_WORDS]
        > 2 * counters[consumption_state.WORDS_USED] + 4096
    )


@inlined
def _has_claims(state: ConsumptionState, frames: FrameColumns, row: int, needed: int) -> bool:
    """Whether the pool has room for the claims of an ACK, or cannot grow any more."""
    pool = state.claim_pool
    return bool(
        frames.command[row] != commands.ACK
        or pool.free[0] >= needed
        or len(pool.rows) >= state.counters[consumption_state.MOST_CLAIMS]
        or not claims.is_decided_later(frames, row)
    )


@kernel
def _note_limit(state: ConsumptionState, context: PassContext, row: int, which: int) -> None:
    """Write a notice at the first hit of a limit and each time the number of hits has doubled."""
    total = state.counters[consumption_state.DELIVERIES_GIVEN_UP + which]
    note_frame(context.out.notices, _LIMIT_NOTICES[which], context.frames, row, total, NULL)
    while state.counters[consumption_state.NOTICE_FROM + which] <= total:
        state.counters[consumption_state.NOTICE_FROM + which] *= 2


@inlined
def _expire(state: ConsumptionState, context: PassContext, row: int) -> None:
    """Write rows of deliveries for which no ACK counts any more."""
    lists = state.lists
    for _ in range(min(lists.length[consumption_state.LIST_RELEASED], _EXPIRING)):
        oldest = lists.first[consumption_state.LIST_RELEASED]
        elapsed = context.frames.first_ts_ns[row] - state.deliveries.last_ns[oldest]
        if elapsed <= deliveries.LATE_ACK_NS:
            return
        deliveries.end_oldest_released(state, context, row)


@inlined
def _handle_frame(state: ConsumptionState, context: PassContext, row: int) -> None:
    """Handle one row that passed `_matters`."""
    frames = context.frames
    command = frames.command[row]
    if command in _OF_DELIVERIES:
        if frames.consumer_id[row] == NULL:
            return
        if command == commands.MESSAGE:
            _handle_message(state, context, row)
        elif command == commands.ACK:
            acks.handle_ack(state, context, row)
        elif command == commands.FLOW:
            _handle_flow(state, context, row)
        else:
            acks.handle_redeliver(state, context, row)
    elif command < 0:
        lifecycle.handle_event(state, context, row)
    elif frames.lifecycle[row] > 0 and frames.handle_kind[row] == _CONSUMER:
        lifecycle.handle_lifecycle(state, context, row)
    else:
        lifecycle.handle_slow_path(state, context, row)


@inlined
def _matters(frames: FrameColumns, row: int) -> bool:
    """Whether a row can change the state or write rows."""
    command = frames.command[row]
    if command in _OF_DELIVERIES:
        return True
    if frames.lifecycle[row] > 0 and frames.handle_kind[row] == _CONSUMER:
        return True
    if command < 0:
        return bool(command != NULL)
    if command == commands.SUCCESS:
        return bool(frames.answered_command[row] == commands.SEEK)
    return command in (
        commands.ERROR,
        commands.SEEK,
        commands.CONSUMER_STATS,
        commands.CONSUMER_STATS_RESPONSE,
        commands.ACTIVE_CONSUMER_CHANGE,
        commands.ACK_RESPONSE,
        commands.END_TXN,
        commands.END_TXN_RESPONSE,
        commands.END_TXN_ON_SUBSCRIPTION,
    )


@inlined
def _may_end_many(frames: FrameColumns, row: int) -> bool:
    """Whether a row can write more than a few rows."""
    command = frames.command[row]
    if command in (commands.MESSAGE, commands.FLOW):
        return False
    return bool(
        command != commands.ACK
        or frames.id_count[row] > 1
        or frames.ack_type[row] == acks.CUMULATIVE
    )


@kernel
def walk(
    state: ConsumptionState, context: PassContext, start: int, rows: int, protocol: int
) -> tuple[int, int, int]:
    """Handle the rows of a block from `start` on.

    Args:
        protocol: rows of other protocols are skipped.

    Returns:
        The next row, DONE or FULL, and the rows needed when FULL.
    """
    frames = context.frames
    counters = state.counters
    before = counters[consumption_state.ORDINAL] - start
    for row in range(start, rows):
        counters[consumption_state.ORDINAL] = before + row + 1
        command = frames.command[row]
        if frames.frame_no[row] != NULL:
            counters[consumption_state.CLOCK] = frames.frame_no[row]
        if frames.protocol[row] != protocol:
            continue
        if command == commands.SEND_RECEIPT:
            _handle_receipt(state, context, row)
            continue
        if frames.status[row] != COMPLETE and (command >= 0 or command == NULL):
            lifecycle.note_cut(state, frames, row)
        if not _matters(frames, row):
            continue
        needed = _SPARE_ROWS
        if _may_end_many(frames, row):
            needed = _rows_needed(state, context, row)
        if not _has_room(state, context.out, needed) or not _has_claims(state, frames, row, needed):
            counters[consumption_state.ORDINAL] = before + row
            return row, FULL, needed
        _expire(state, context, row)
        _handle_frame(state, context, row)
        for which in range(3):
            if (
                counters[consumption_state.DELIVERIES_GIVEN_UP + which]
                >= counters[consumption_state.NOTICE_FROM + which]
            ):
                _note_limit(state, context, row, which)
    return rows, DONE, 0


@kernel
def end_capture(state: ConsumptionState, context: PassContext) -> bool:
    """End open deliveries at the end of the capture; False: the output is full, call again.

    context: one row without a frame.
    """
    for _ in range(state.lists.length[consumption_state.LIST_RELEASED]):
        if not _has_room(state, context.out, _SPARE_ROWS):
            return False
        deliveries.end_oldest_released(state, context, 0)
    for _ in range(state.lists.length[consumption_state.LIST_AGES]):
        if not _has_room(state, context.out, _SPARE_ROWS):
            return False
        delivery = state.lists.first[consumption_state.LIST_AGES]
        outcome = claims.outcome_at_end(state, delivery)
        if state.deliveries.is_claimed[delivery] == 0:
            outcome = deliveries.unresolved(state, delivery, UNACKED_AT_END)
        deliveries.end_delivery(state, context, 0, delivery, outcome)
    return True
