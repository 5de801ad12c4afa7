"""One pass over frames in order: what each does to consumers, deliveries, permits and acks."""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COMPLETE, EVENT_CLOSE, FrameColumns, IdColumns
from dissector.protocols.pulsar.consumption.acks import (
    ACTION_ACK,
    ACTION_REDELIVER,
    AckFrame,
    add_ack_row,
)
from dissector.protocols.pulsar.consumption.consumer_steps import (
    ACK,
    ACTIVE_CONSUMER_CHANGE,
    CONNECT,
    CONNECTED,
    CONSUMER_STATS,
    CONSUMER_STATS_RESPONSE,
    END_TXN,
    ERROR,
    FLOW,
    MESSAGE,
    REDELIVER,
    SEEK,
    SEND_RECEIPT,
    consumer_of,
    note_cut,
    take_event,
    take_lifecycle,
    take_rare,
)
from dissector.protocols.pulsar.consumption.consumers import (
    find_connection,
    find_consumer,
    revive,
    see_broker_side,
    see_client_side,
)
from dissector.protocols.pulsar.consumption.deliveries import message_cost, open_delivery
from dissector.protocols.pulsar.consumption.delivery_acks import (
    Settlement,
    find_meant,
    settle_each,
    settle_up_to,
)
from dissector.protocols.pulsar.consumption.delivery_ends import (
    end_all,
    end_delivery,
    unresolved,
    write_ended,
)
from dissector.protocols.pulsar.consumption.permits import add_permit_row, counts_flow, grant, spend
from dissector.protocols.pulsar.consumption.published import (
    domain_of,
    leg_of,
    remember_published,
    transaction_of,
)
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows, Place, add_notice
from dissector.protocols.pulsar.consumption.state import (
    CLOCK,
    CLOSING,
    CONSUMERS_REFUSED,
    DELIVERIES_GIVEN_UP,
    IDENTITIES_FORGOTTEN,
    LIST_AGES,
    ORDINAL,
    OUT_ACKS,
    OUT_DELIVERIES,
    OUT_NOTICES,
    OUT_PERMITS,
    OUT_WORDS,
    OVERFLOW_CONSUMER,
    PAGE_ENTRIES,
    STATE_CLOSED,
    STATE_OPENING,
    STATE_READY,
    WORDS_USED,
    ConsumptionState,
)
from dissector.protocols.tables import ABSENT
from dissector.schemas.words import (
    DELIVERY,
    GRANT,
    REDELIVERY_REQUESTED,
    UNACKED_AT_END,
    UNRESOLVED_AT_LIMIT,
)

DONE: Final = 0
FULL: Final = 1  # no room for the rows of the next frame: take the rows, make room, call again

CUMULATIVE: Final = 1  # ack_type
SHARED: Final = 1  # subscription types
KEY_SHARED: Final = 3
_CONSUMER: Final = 2  # subject_kind

# Rows that any one frame may need beside those counted for it: a page of ids given up, a notice.
_SPARE_ROWS: Final = PAGE_ENTRIES + 16

_FLOW_BEFORE_SUBSCRIBE: Final = NOTICE_NUMBER["flow_before_subscribe"]
_DELIVERIES_LIMIT: Final = NOTICE_NUMBER["deliveries_limit"]
_IDENTITIES_LIMIT: Final = NOTICE_NUMBER["identities_limit"]
_CONSUMERS_LIMIT: Final = NOTICE_NUMBER["consumers_limit"]


@inlined
def _take_message(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    words: Int64Array,
    kinds: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """MESSAGE: a delivery opens and its permits are spent."""
    consumer = consumer_of(state, frames, row, kinds)
    consumers = state.consumers
    if consumers.state[consumer] == STATE_CLOSED:
        revive(state, consumer)
    elif consumers.state[consumer] == STATE_OPENING:
        consumers.state[consumer] = STATE_READY
    see_client_side(state, consumer)
    cost = message_cost(frames, row, words)
    open_delivery(state, frames, row, consumer, cost, words, out, place)
    if consumer == OVERFLOW_CONSUMER:
        end_all(state, consumer, UNRESOLVED_AT_LIMIT)
    delta = spend(state, consumer, cost)
    add_permit_row(state, out, consumer, DELIVERY, delta, place)
    if state.counters[CLOSING] > 0:
        write_ended(state, out, place)


@inlined
def _ack_frame(frames: FrameColumns, row: int, action: int) -> AckFrame:
    is_ack = action == ACTION_ACK
    return AckFrame(
        frames.connection_id[row],
        frames.frame_no[row],
        frames.last_ts_ns[row],
        frames.consumer_id[row],
        frames.incarnation[row],
        frames.topic[row],
        frames.subscription[row],
        action,
        frames.ack_type[row] if is_ack else NULL,
        frames.request_id[row] if is_ack else NULL,
        frames.validation_error[row] if is_ack else NULL,
        frames.txn_most_bits[row] if is_ack else NULL,
        frames.txn_least_bits[row] if is_ack else NULL,
    )


@inlined
def _take_ack(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    ids: IdColumns,
    words: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """ACK: its ids are rows, and the deliveries that they mean end or shrink."""
    frame = _ack_frame(frames, row, ACTION_ACK)
    first = frames.first_id[row]
    count = max(frames.id_count[row], 0)
    for index in range(first, first + count):
        add_ack_row(state, out, frame, ids, index, words)
    consumer = find_consumer(state, place.connection, frame.consumer_id)
    if consumer == ABSENT:
        return
    see_broker_side(state, consumer)
    transaction = ABSENT
    if frame.txn_most != NULL and frame.txn_least != NULL:
        transaction = transaction_of(state, frame.txn_most, frame.txn_least)
    ack = Settlement(frame.validation_error, transaction, frames.first_ts_ns[row])
    if frame.ack_type != CUMULATIVE:
        settle_each(state, consumer, ack, ids, first, first + count, words, out, place)
    elif count == 1:
        # Pulsar: brokers ignore it on shared subscriptions, and with more than one id.
        kind = state.consumers.type[consumer]
        if kind not in (SHARED, KEY_SHARED):
            settle_up_to(state, consumer, ack, ids, first, words, out, place)
    if state.counters[CLOSING] > 0:
        write_ended(state, out, place)


@kernel
def _take_redeliver(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    ids: IdColumns,
    words: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """REDELIVER_UNACKNOWLEDGED_MESSAGES: those named, or all of the consumer, will come again.

    Pulsar: without ids all; on subscriptions with one active consumer a list means all as well.
    """
    frame = _ack_frame(frames, row, ACTION_REDELIVER)
    first = frames.first_id[row]
    count = max(frames.id_count[row], 0)
    for index in range(first, first + count):
        add_ack_row(state, out, frame, ids, index, words)
    names_none = count == 0 and frames.status[row] == COMPLETE
    if names_none:
        add_ack_row(state, out, frame, ids, ABSENT, words)
    consumer = find_consumer(state, place.connection, frame.consumer_id)
    if consumer == ABSENT:
        return
    see_broker_side(state, consumer)
    kind = state.consumers.type[consumer]
    if names_none or kind not in (NULL, SHARED, KEY_SHARED):
        state.consumers.wants_all[consumer] = 1
        end_all(state, consumer, REDELIVERY_REQUESTED)
    else:
        for index in range(first, first + count):
            delivery = find_meant(state, consumer, ids.ledger_id[index], ids.entry_id[index])
            # Pulsar: a broker looks only at what this consumer holds.
            if delivery != ABSENT and state.deliveries.consumer[delivery] == consumer:
                end_delivery(state, delivery, REDELIVERY_REQUESTED)
    write_ended(state, out, place)


@kernel
def _take_flow(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    kinds: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """FLOW: permits are granted, unless the broker does not know the consumer yet."""
    consumer = consumer_of(state, frames, row, kinds)
    see_broker_side(state, consumer)
    delta = 0
    if counts_flow(state, consumer):
        delta = grant(state, consumer, frames.permits[row])
    else:
        add_notice(state, out, _FLOW_BEFORE_SUBSCRIBE, place, frames.permits[row])
    add_permit_row(state, out, consumer, GRANT, delta, place)


@inlined
def _take_receipt(
    state: ConsumptionState, frames: FrameColumns, row: int, kinds: Int64Array
) -> None:
    """SEND_RECEIPT: which SEND an entry came from. -1:-1 was not stored, 0:0 may not be either."""
    topic = frames.topic[row]
    ledger = frames.ledger_id[row]
    entry = frames.entry_id[row]
    sent_ns = frames.answered_last_ns[row]
    if sent_ns == NULL or ledger < 0 or entry < 0:
        return
    if topic < 0 and ledger == 0 and entry == 0:
        return
    if 0 <= topic < len(kinds) and kinds[topic] == 1:
        return
    connection = frames.connection_id[row]
    leg = leg_of(state, connection)
    remember_published(state, domain_of(topic, connection), ledger, entry, leg, sent_ns)


@kernel
def _rows_wanted(state: ConsumptionState, frames: FrameColumns, row: int) -> int:
    """Rows of one table that a frame that may end many deliveries needs at most."""
    command = frames.command[row]
    connection = frames.connection_id[row]
    consumers = state.consumers
    wanted = _SPARE_ROWS
    if command == EVENT_CLOSE:
        connection_row = find_connection(state, connection)
        if connection_row != ABSENT:
            consumer = state.connections.first[connection_row]
            while consumer != ABSENT:
                wanted += consumers.length[consumer]
                consumer = consumers.next[consumer]
        return wanted
    wanted += max(frames.id_count[row], 0)
    consumer_id = frames.consumer_id[row]
    if frames.lifecycle[row] > 0 and frames.subject_kind[row] == _CONSUMER:
        consumer_id = frames.subject_id[row]
    if consumer_id != NULL:
        consumer = find_consumer(state, connection, consumer_id)
        if consumer != ABSENT:
            wanted += consumers.length[consumer]
    return int(wanted)


@inlined
def _has_room(state: ConsumptionState, out: ConsumptionRows, wanted: int) -> bool:
    """Whether each table takes so many rows more."""
    counters = state.counters
    used = max(
        max(counters[OUT_DELIVERIES], counters[OUT_PERMITS]),
        max(counters[OUT_ACKS], counters[OUT_NOTICES]),
    )
    return bool(
        len(out.deliveries.frame_no) - used >= wanted
        and len(out.words) - counters[OUT_WORDS] > 2 * counters[WORDS_USED] + 4096
    )


@inlined
def _magnitude(number: int) -> int:
    size = 0
    while number > 0:
        number = number >> 1
        size += 1
    return size


@kernel
def _note_limit(
    state: ConsumptionState, out: ConsumptionRows, place: Place, before: int, which: int
) -> None:
    """A notice at the first hit of a limit and whenever their number has doubled."""
    total = state.counters[which]
    if _magnitude(total) > _magnitude(before):
        kind = _DELIVERIES_LIMIT
        if which == IDENTITIES_FORGOTTEN:
            kind = _IDENTITIES_LIMIT
        elif which == CONSUMERS_REFUSED:
            kind = _CONSUMERS_LIMIT
        add_notice(state, out, kind, place, total)


@inlined
def _take_frame(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    ids: IdColumns,
    words: Int64Array,
    kinds: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """One row of frames that may matter here."""
    command = frames.command[row]
    if command in (MESSAGE, ACK, FLOW, REDELIVER):
        if frames.consumer_id[row] == NULL:
            return
        if command == MESSAGE:
            _take_message(state, frames, row, words, kinds, out, place)
        elif command == ACK:
            _take_ack(state, frames, row, ids, words, out, place)
        elif command == FLOW:
            _take_flow(state, frames, row, kinds, out, place)
        else:
            _take_redeliver(state, frames, row, ids, words, out, place)
    elif command < 0:
        take_event(state, frames, row, out, place)
    elif frames.lifecycle[row] > 0 and frames.subject_kind[row] == _CONSUMER:
        take_lifecycle(state, frames, row, kinds, out, place)
    else:
        take_rare(state, frames, row, kinds, place)


@inlined
def _matters(frames: FrameColumns, row: int) -> bool:
    """Whether a row can change anything here."""
    command = frames.command[row]
    if command in (MESSAGE, ACK, FLOW, REDELIVER):
        return True
    if frames.lifecycle[row] > 0 and frames.subject_kind[row] == _CONSUMER:
        return True
    if command < 0:
        return bool(command != NULL)
    return command in (
        CONNECT,
        CONNECTED,
        ERROR,
        SEEK,
        CONSUMER_STATS,
        CONSUMER_STATS_RESPONSE,
        ACTIVE_CONSUMER_CHANGE,
        END_TXN,
    )


@inlined
def _may_end_many(frames: FrameColumns, row: int) -> bool:
    """Whether a row can write more than a few rows."""
    command = frames.command[row]
    if command in (MESSAGE, FLOW):
        return False
    return bool(command != ACK or frames.id_count[row] > 1 or frames.ack_type[row] == CUMULATIVE)


@kernel
def walk(
    state: ConsumptionState,
    frames: FrameColumns,
    ids: IdColumns,
    words: Int64Array,
    kinds: Int64Array,
    start: int,
    rows: int,
    protocol: int,
    out: ConsumptionRows,
) -> tuple[int, int, int]:
    """Take the rows of a block from `start` on.

    Args:
        ids, words: ids of ACK and REDELIVER frames, words of ack sets, of this block.
        kinds: int64[names], 1 for the name of a topic that is not persistent.
        protocol: rows of other protocols are passed over.
        out: rows are added behind those that state.counters tells.

    Returns:
        The next row, DONE or FULL, and the rows wanted when FULL.
    """
    counters = state.counters
    before = counters[ORDINAL] - start
    for row in range(start, rows):
        counters[ORDINAL] = before + row + 1
        command = frames.command[row]
        if frames.frame_no[row] != NULL:
            counters[CLOCK] = frames.frame_no[row]
        if frames.protocol[row] != protocol:
            continue
        if command == SEND_RECEIPT:
            _take_receipt(state, frames, row, kinds)
            continue
        if frames.status[row] != COMPLETE and (command >= 0 or command == NULL):
            note_cut(state, frames, row)
        if not _matters(frames, row):
            continue
        wanted = _SPARE_ROWS
        if _may_end_many(frames, row):
            wanted = _rows_wanted(state, frames, row)
        if not _has_room(state, out, wanted):
            counters[ORDINAL] = before + row
            return row, FULL, wanted
        place = Place(
            frames.connection_id[row],
            frames.direction[row],
            frames.frame_no[row],
            frames.last_packet[row],
            frames.stream_offset[row],
            frames.last_ts_ns[row],
        )
        given_up = counters[DELIVERIES_GIVEN_UP]
        forgotten = counters[IDENTITIES_FORGOTTEN]
        refused = counters[CONSUMERS_REFUSED]
        _take_frame(state, frames, row, ids, words, kinds, out, place)
        if counters[DELIVERIES_GIVEN_UP] > given_up:
            _note_limit(state, out, place, given_up, DELIVERIES_GIVEN_UP)
        if counters[IDENTITIES_FORGOTTEN] > forgotten:
            _note_limit(state, out, place, forgotten, IDENTITIES_FORGOTTEN)
        if counters[CONSUMERS_REFUSED] > refused:
            _note_limit(state, out, place, refused, CONSUMERS_REFUSED)
    return rows, DONE, 0


@kernel
def end_capture(state: ConsumptionState, out: ConsumptionRows) -> bool:
    """End what is open at the end of the capture, as far as there is room; whether all is done."""
    place = Place(NULL, NULL, NULL, NULL, NULL, NULL)
    while state.lists.length[LIST_AGES] > 0:
        if not _has_room(state, out, _SPARE_ROWS):
            return False
        delivery = state.lists.first[LIST_AGES]
        end_delivery(state, delivery, unresolved(state, delivery, UNACKED_AT_END))
        write_ended(state, out, place)
    return True
