"""One pass over frames in their order: what each does to consumers, deliveries, permits and acks."""

from typing import Final

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import (
    COMPLETE,
    EVENT_CLOSE,
    EVENT_FIN,
    EVENT_GAP,
    EVENT_SKIPPED,
    LIFECYCLE_CLOSED_BY_BROKER,
    LIFECYCLE_CLOSED_BY_CLIENT,
    LIFECYCLE_CLOSING_BY_CLIENT,
    LIFECYCLE_OPENING,
    LIFECYCLE_READY,
    LIFECYCLE_REFUSED,
    LIFECYCLE_REPEATED,
    TO_BROKER,
    TO_CLIENT,
    FrameColumns,
    IdColumns,
)
from dissector.protocols.pulsar.acks import ACTION_ACK, ACTION_REDELIVER, AckFrame, add_ack_row
from dissector.protocols.pulsar.consumers import (
    ConsumerNames,
    add_consumer,
    connection_row_of,
    find_asker,
    find_consumer,
    forget_connection,
    learn_balance,
    learn_names,
    note_asker,
    note_gap,
    note_inactive,
    note_leaving,
    note_seek,
    retire,
    revive,
    take_back_seek,
)
from dissector.protocols.pulsar.consumption_rows import ConsumptionRows, Place, add_notice
from dissector.protocols.pulsar.consumption_state import (
    CLOCK,
    CLOSING,
    CONN_CLOSED,
    CONNECTION_BROKER_SEEN,
    CONNECTION_CLIENT_MISSING,
    CONSUMER_AVAILABLE,
    CONSUMER_BASELINE_AT,
    CONSUMER_CLOSED,
    CONSUMER_CONNECTION_ROW,
    CONSUMER_GROUP,
    CONSUMER_NAME,
    CONSUMER_OPENED_AT,
    CONSUMER_PAGE,
    CONSUMER_STATE,
    CONSUMER_SUBSCRIPTION,
    CONSUMER_TOPIC,
    CONSUMER_TYPE,
    CONSUMERS_REFUSED,
    DELIVERIES_GIVEN_UP,
    DELIVERY_CONSUMER,
    IDENTITIES_FORGOTTEN,
    LEFT_BY_BROKER,
    LEFT_BY_CLIENT,
    LEFT_BY_CONNECTION,
    NOTICES,
    OUT_ACKS,
    OUT_DELIVERIES,
    OUT_PERMITS,
    OUT_WORDS,
    OVERFLOW_CONSUMER,
    PAGE_ENTRIES,
    REDELIVERY_REQUESTED,
    ROW_BITS,
    STATE_CLOSED,
    STATE_CLOSING,
    STATE_OPENING,
    STATE_READY,
    TRANSACTION_ACTION,
    UNACKED_AT_END,
    UNRESOLVED_AT_LIMIT,
    WORDS_USED,
    ConsumptionState,
)
from dissector.protocols.pulsar.deliveries import (
    find_acked,
    find_open,
    message_cost,
    open_delivery,
    settle,
    settle_up_to,
)
from dissector.protocols.pulsar.delivery_ends import end_all, end_delivery, unresolved, write_ended
from dissector.protocols.pulsar.permits import (
    DELIVERY,
    GRANT,
    RESET,
    add_permit_row,
    counts_flow,
    grant,
    spend,
)
from dissector.protocols.pulsar.published import leg_of, remember_published, transaction_of
from dissector.protocols.tables import ABSENT, find, remove
from dissector.stream.columns import ENDED_CAPTURE_END

DONE: Final = 0
FULL: Final = 1  # no room for the rows of the next frame: take the rows, make room, call again

CONNECT: Final = 2
CONNECTED: Final = 3
SEND_RECEIPT: Final = 7
MESSAGE: Final = 9
ACK: Final = 10
FLOW: Final = 11
ERROR: Final = 14
REDELIVER: Final = 20
CONSUMER_STATS: Final = 25
CONSUMER_STATS_RESPONSE: Final = 26
SEEK: Final = 28
ACTIVE_CONSUMER_CHANGE: Final = 31
END_TXN: Final = 56

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
def _names(state: ConsumptionState, frames: FrameColumns, row: int) -> ConsumerNames:
    return ConsumerNames(
        frames.topic[row],
        frames.subscription[row],
        frames.consumer_name[row],
        frames.incarnation[row],
        leg_of(state.published, frames.connection_id[row]),
    )


@inlined
def _consumer_of(
    state: ConsumptionState, frames: FrameColumns, row: int, kinds: Int64Array
) -> int:
    """The consumer that a frame is about, taken up if it was not known, with what the frame says."""
    connection = frames.connection_id[row]
    consumer = find_consumer(state.consumers, connection, frames.consumer_id[row])
    if consumer == ABSENT:
        names = _names(state, frames, row)
        return add_consumer(
            state.consumers, state.counters, connection, frames.consumer_id[row], names, kinds
        )
    rows = state.consumers.rows
    if (
        (rows[consumer, CONSUMER_TOPIC] == NULL and frames.topic[row] != NULL)
        or (rows[consumer, CONSUMER_SUBSCRIPTION] == NULL and frames.subscription[row] != NULL)
        or (rows[consumer, CONSUMER_NAME] == NULL and frames.consumer_name[row] != NULL)
    ):
        names = _names(state, frames, row)
        learn_names(state.consumers, state.counters, consumer, names, kinds)
    return consumer


@inlined
def _see_broker_side(state: ConsumptionState, consumer: int) -> None:
    row = state.consumers.rows[consumer, CONSUMER_CONNECTION_ROW]
    if row != ABSENT:
        state.consumers.connections[row, CONNECTION_BROKER_SEEN] = 1


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
    consumer = _consumer_of(state, frames, row, kinds)
    rows = state.consumers.rows
    if rows[consumer, CONSUMER_STATE] == STATE_CLOSED:
        revive(state.consumers, consumer)
    elif rows[consumer, CONSUMER_STATE] == STATE_OPENING:
        rows[consumer, CONSUMER_STATE] = STATE_READY
    cost = message_cost(frames, row, words)
    open_delivery(state, frames, row, consumer, cost, words, out, place)
    if consumer == OVERFLOW_CONSUMER:
        end_all(state, consumer, UNRESOLVED_AT_LIMIT)
    delta = spend(rows, consumer, cost)
    add_permit_row(
        state.consumers, state.counters, out, consumer, DELIVERY, delta, place.frame_no, place.ts_ns
    )
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
    consumers = state.consumers
    consumer = find_consumer(consumers, frames.connection_id[row], frames.consumer_id[row])
    frame = _ack_frame(frames, row, ACTION_ACK)
    count = max(frames.id_count[row], 0)
    first = frames.first_id[row]
    for index in range(first, first + count):
        add_ack_row(out, state.counters, frame, ids, index, words)
    if consumer == ABSENT or count == 0:
        return
    _see_broker_side(state, consumer)
    transaction = ABSENT
    if frame.txn_most != NULL and frame.txn_least != NULL:
        transaction = transaction_of(
            state.published, state.counters, frame.txn_most, frame.txn_least
        )
    if frame.ack_type == CUMULATIVE:
        # Pulsar: brokers ignore it on shared subscriptions, and with more than one id.
        kind = consumers.rows[consumer, CONSUMER_TYPE]
        if count == 1 and kind != SHARED and kind != KEY_SHARED:
            settle_up_to(
                state, frames, row, consumer, first, ids, words, transaction, out, place
            )
    else:
        for index in range(first, first + count):
            ledger = ids.ledger_id[index]
            entry = ids.entry_id[index]
            guess = consumers.rows[consumer, CONSUMER_PAGE]
            group = consumers.rows[consumer, CONSUMER_GROUP]
            delivery = find_open(state, group, guess, ledger, entry)
            if delivery == ABSENT:
                delivery = find_acked(state, consumer, ledger, entry)
            if delivery != ABSENT:
                settle(
                    state, frames, row, delivery, index, ids, words, transaction, out, place
                )
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
    consumers = state.consumers
    consumer = find_consumer(consumers, frames.connection_id[row], frames.consumer_id[row])
    frame = _ack_frame(frames, row, ACTION_REDELIVER)
    count = max(frames.id_count[row], 0)
    first = frames.first_id[row]
    for index in range(first, first + count):
        add_ack_row(out, state.counters, frame, ids, index, words)
    if count == 0 and frames.status[row] == COMPLETE:
        add_ack_row(out, state.counters, frame, ids, ABSENT, words)
    if consumer == ABSENT:
        return
    _see_broker_side(state, consumer)
    kind = consumers.rows[consumer, CONSUMER_TYPE]
    is_single_active = kind != NULL and kind != SHARED and kind != KEY_SHARED
    if is_single_active or (count == 0 and frames.status[row] == COMPLETE):
        end_all(state, consumer, REDELIVERY_REQUESTED)
    else:
        for index in range(first, first + count):
            delivery = find_acked(state, consumer, ids.ledger_id[index], ids.entry_id[index])
            # Pulsar: a broker looks only at what this consumer holds.
            if (
                delivery != ABSENT
                and state.deliveries.rows[delivery, DELIVERY_CONSUMER] == consumer
            ):
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
    consumer = _consumer_of(state, frames, row, kinds)
    _see_broker_side(state, consumer)
    delta = 0
    if counts_flow(state.consumers, consumer):
        delta = grant(state.consumers, consumer, frames.permits[row])
    else:
        add_notice(out, state.counters, _FLOW_BEFORE_SUBSCRIBE, place, frames.permits[row])
    add_permit_row(
        state.consumers, state.counters, out, consumer, GRANT, delta, place.frame_no, place.ts_ns
    )


@kernel
def _end_consumer(state: ConsumptionState, consumer: int, by: int, outcome: int) -> None:
    """A consumer is gone: its deliveries will not be acked any more."""
    note_leaving(state.consumers.rows, consumer, by, state.counters[CLOCK])
    end_all(state, consumer, outcome)
    retire(state.consumers, consumer)


@kernel
def _open_consumer(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    kinds: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """A SUBSCRIBE that opens a consumer: its balance starts at zero."""
    connection = frames.connection_id[row]
    consumer_id = frames.subject_id[row]
    before = find_consumer(state.consumers, connection, consumer_id)
    if before != ABSENT and state.consumers.rows[before, CONSUMER_STATE] != STATE_CLOSED:
        _end_consumer(state, before, LEFT_BY_CLIENT, CONSUMER_CLOSED)
        write_ended(state, out, place)
    consumer = add_consumer(
        state.consumers,
        state.counters,
        connection,
        consumer_id,
        ConsumerNames(
            frames.topic[row],
            frames.subscription[row],
            frames.consumer_name[row],
            frames.subject_incarnation[row],
            leg_of(state.published, connection),
        ),
        kinds,
    )
    rows = state.consumers.rows
    rows[consumer, CONSUMER_STATE] = STATE_OPENING
    rows[consumer, CONSUMER_TYPE] = frames.subscription_type[row]
    rows[consumer, CONSUMER_OPENED_AT] = place.frame_no
    rows[consumer, CONSUMER_AVAILABLE] = 0
    rows[consumer, CONSUMER_BASELINE_AT] = place.frame_no
    _see_broker_side(state, consumer)
    if before != ABSENT or frames.subject_incarnation[row] > 0:
        add_permit_row(
            state.consumers, state.counters, out, consumer, RESET, NULL, place.frame_no, place.ts_ns
        )


@kernel
def _take_lifecycle(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    kinds: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """A frame that opens or closes a consumer, or answers one that does."""
    step = frames.lifecycle[row]
    if step == LIFECYCLE_OPENING:
        _open_consumer(state, frames, row, kinds, out, place)
        return
    rows = state.consumers.rows
    consumer = find_consumer(state.consumers, place.connection, frames.subject_id[row])
    if consumer == ABSENT or rows[consumer, CONSUMER_STATE] == STATE_CLOSED:
        return
    if step == LIFECYCLE_REPEATED:
        # Nothing starts anew, but it may say what a capture that began later did not know.
        if rows[consumer, CONSUMER_TYPE] == NULL:
            rows[consumer, CONSUMER_TYPE] = frames.subscription_type[row]
        learn_names(
            state.consumers, state.counters, consumer, _names(state, frames, row), kinds
        )
        _see_broker_side(state, consumer)
    elif step == LIFECYCLE_READY:
        if rows[consumer, CONSUMER_STATE] == STATE_OPENING:
            rows[consumer, CONSUMER_STATE] = STATE_READY
    elif step == LIFECYCLE_CLOSING_BY_CLIENT:
        note_leaving(rows, consumer, LEFT_BY_CLIENT, place.frame_no)
        rows[consumer, CONSUMER_STATE] = STATE_CLOSING
        _see_broker_side(state, consumer)
    elif step == LIFECYCLE_CLOSED_BY_BROKER:
        _end_consumer(state, consumer, LEFT_BY_BROKER, CONSUMER_CLOSED)
    elif step == LIFECYCLE_CLOSED_BY_CLIENT or step == LIFECYCLE_REFUSED:
        _end_consumer(state, consumer, LEFT_BY_CLIENT, CONSUMER_CLOSED)
    write_ended(state, out, place)


@kernel
def _take_close(
    state: ConsumptionState, frames: FrameColumns, row: int, out: ConsumptionRows, place: Place
) -> None:
    """The connection is over. At the capture's end nothing closes: deliveries just stay open."""
    consumers = state.consumers
    connection_row = find(consumers.by_connection, place.connection, 0, 0, 0)
    if frames.status[row] == ENDED_CAPTURE_END:
        return
    if connection_row != ABSENT:
        consumer = consumers.ends.first[connection_row]
        while consumer != ABSENT:
            if consumers.rows[consumer, CONSUMER_STATE] != STATE_CLOSED:
                is_closing = consumers.rows[consumer, CONSUMER_STATE] == STATE_CLOSING
                outcome = CONSUMER_CLOSED if is_closing else CONN_CLOSED
                _end_consumer(state, consumer, LEFT_BY_CONNECTION, outcome)
            consumer = consumers.links.next[consumer]
        write_ended(state, out, place)
        forget_connection(consumers, place.connection)
    if state.published.legs.used[0] > 0:
        remove(state.published.legs, place.connection, 0, 0, 0)


@kernel
def _take_event(
    state: ConsumptionState, frames: FrameColumns, row: int, out: ConsumptionRows, place: Place
) -> None:
    """What happens between frames."""
    event = frames.command[row]
    clock = state.counters[CLOCK]
    if event == EVENT_CLOSE:
        _take_close(state, frames, row, out, place)
    elif event == EVENT_GAP or event == EVENT_SKIPPED:
        if event == EVENT_GAP and frames.frames_missing[row] == 0:
            return
        if frames.direction[row] != TO_CLIENT:
            note_gap(state.consumers, place.connection, True, clock)
        if frames.direction[row] != TO_BROKER:
            note_gap(state.consumers, place.connection, False, clock)
    elif event == EVENT_FIN:
        # The end of the connection may be told only when the other side has ended as well, and
        # another consumer may have got the messages by then.
        connection_row = find(state.consumers.by_connection, place.connection, 0, 0, 0)
        if connection_row == ABSENT:
            return
        consumer = state.consumers.ends.first[connection_row]
        steps = 0
        while consumer != ABSENT and steps < 4096:
            note_leaving(state.consumers.rows, consumer, LEFT_BY_CONNECTION, clock)
            consumer = state.consumers.links.next[consumer]
            steps += 1


@kernel
def _take_rare(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    kinds: Int64Array,
    place: Place,
) -> None:
    """Commands that change what is known of a consumer or a transaction, without rows."""
    command = frames.command[row]
    consumers = state.consumers
    if command == CONNECT or command == CONNECTED:
        connection_row = connection_row_of(consumers, place.connection)
        if connection_row != ABSENT:
            missing = 1 if command == CONNECT else 0
            consumers.connections[connection_row, CONNECTION_CLIENT_MISSING] = missing
            if command == CONNECT:
                consumers.connections[connection_row, CONNECTION_BROKER_SEEN] = 1
    elif command == SEEK:
        consumer = _consumer_of(state, frames, row, kinds)
        note_seek(consumers, consumer, place.frame_no)
        note_asker(consumers, consumer, place.frame_no)
    elif command == CONSUMER_STATS:
        note_asker(consumers, _consumer_of(state, frames, row, kinds), place.frame_no)
    elif command == ACTIVE_CONSUMER_CHANGE:
        consumer = _consumer_of(state, frames, row, kinds)
        note_inactive(consumers.rows, consumer, frames.is_active[row], place.frame_no)
    elif command == END_TXN:
        most = frames.txn_most_bits[row]
        least = frames.txn_least_bits[row]
        if most != NULL and least != NULL:
            number = transaction_of(state.published, state.counters, most, least)
            which = number & ((1 << ROW_BITS) - 1)
            state.published.transactions[which, TRANSACTION_ACTION] = frames.txn_action[row]
    elif command == CONSUMER_STATS_RESPONSE or command == ERROR:
        consumer = find_asker(consumers, frames.answered_frame_no[row])
        if consumer == ABSENT:
            return
        if command == CONSUMER_STATS_RESPONSE:
            learn_balance(consumers, consumer, frames.available_permits[row], place.frame_no)
        elif frames.answered_command[row] == SEEK:
            take_back_seek(consumers, consumer, frames.answered_frame_no[row])


@kernel
def _note_cut(state: ConsumptionState, frames: FrameColumns, row: int) -> None:
    """A frame that cannot be read whole may hide what a gap would."""
    command = frames.command[row]
    clock = state.counters[CLOCK]
    connection = frames.connection_id[row]
    to_broker = frames.direction[row] == TO_BROKER
    is_known = command != NULL and command != ACK and command != REDELIVER
    if to_broker and not (is_known and (command != FLOW or frames.permits[row] != NULL)):
        note_gap(state.consumers, connection, True, clock)
    elif not to_broker and (command == NULL or frames.consumer_id[row] == NULL):
        if command == NULL or command == MESSAGE:
            note_gap(state.consumers, connection, False, clock)


@inlined
def _take_receipt(state: ConsumptionState, frames: FrameColumns, row: int, kinds: Int64Array) -> None:
    """SEND_RECEIPT: which SEND an entry came from. -1:-1 was not stored, 0:0 may not be either."""
    topic = frames.topic[row]
    ledger = frames.ledger_id[row]
    entry = frames.entry_id[row]
    sent_ns = frames.answered_last_ns[row]
    if topic < 0 or sent_ns == NULL or ledger < 0 or entry < 0:
        return
    if topic < len(kinds) and kinds[topic] == 1:
        return
    leg = leg_of(state.published, frames.connection_id[row])
    remember_published(state.published, state.counters, topic, ledger, entry, leg, sent_ns)


@inlined
def _rows_wanted(state: ConsumptionState, frames: FrameColumns, row: int) -> int:
    """Rows of one table that a frame may need at most."""
    command = frames.command[row]
    if command == MESSAGE or command == SEND_RECEIPT or command == FLOW:
        return _SPARE_ROWS
    consumers = state.consumers
    ends = state.deliveries.ends
    wanted = _SPARE_ROWS
    if command == EVENT_CLOSE:
        connection_row = find(consumers.by_connection, frames.connection_id[row], 0, 0, 0)
        if connection_row != ABSENT:
            consumer = consumers.ends.first[connection_row]
            while consumer != ABSENT:
                wanted += ends.length[consumer]
                consumer = consumers.links.next[consumer]
        return wanted
    wanted += max(frames.id_count[row], 0)
    if command == ACK and frames.ack_type[row] != CUMULATIVE:
        return wanted
    consumer_id = frames.consumer_id[row]
    if frames.lifecycle[row] > 0 and frames.subject_kind[row] == _CONSUMER:
        consumer_id = frames.subject_id[row]
    if consumer_id != NULL:
        consumer = find_consumer(consumers, frames.connection_id[row], consumer_id)
        if consumer != ABSENT:
            wanted += ends.length[consumer]
    return wanted


@inlined
def has_room(state: ConsumptionState, out: ConsumptionRows, wanted: int) -> bool:
    """Whether each table takes so many rows more."""
    counters = state.counters
    used = max(
        max(counters[OUT_DELIVERIES], counters[OUT_PERMITS]),
        max(counters[OUT_ACKS], counters[NOTICES]),
    )
    return bool(
        len(out.deliveries.frame_no) - used >= wanted
        and len(out.words) - counters[OUT_WORDS] > 2 * counters[WORDS_USED] + 4096
    )


@inlined
def _note_limits(
    state: ConsumptionState, out: ConsumptionRows, place: Place, given_up: int, kind: int, which: int
) -> None:
    """A notice at the first hit of a limit and whenever their number has doubled."""
    total = state.counters[which]
    if total > given_up and (given_up == 0 or _magnitude(total) > _magnitude(given_up)):
        add_notice(out, state.counters, kind, place, total)


@inlined
def _magnitude(number: int) -> int:
    size = 0
    while number > 0:
        number = number >> 1
        size += 1
    return size


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
    if command == MESSAGE:
        if frames.consumer_id[row] != NULL:
            _take_message(state, frames, row, words, kinds, out, place)
    elif command == ACK:
        if frames.consumer_id[row] != NULL:
            _take_ack(state, frames, row, ids, words, out, place)
    elif command == FLOW:
        if frames.consumer_id[row] != NULL:
            _take_flow(state, frames, row, kinds, out, place)
    elif command == REDELIVER:
        if frames.consumer_id[row] != NULL:
            _take_redeliver(state, frames, row, ids, words, out, place)
    elif command < 0:
        _take_event(state, frames, row, out, place)
    elif frames.lifecycle[row] > 0 and frames.subject_kind[row] == _CONSUMER:
        _take_lifecycle(state, frames, row, kinds, out, place)
    else:
        _take_rare(state, frames, row, kinds, place)


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
    for row in range(start, rows):
        command = frames.command[row]
        if frames.frame_no[row] != NULL:
            counters[CLOCK] = frames.frame_no[row]
        if frames.protocol[row] != protocol:
            continue
        if command == SEND_RECEIPT:
            _take_receipt(state, frames, row, kinds)
            continue
        if frames.status[row] != COMPLETE and (command >= 0 or command == NULL):
            _note_cut(state, frames, row)
        if not _matters(frames, row):
            continue
        wanted = _rows_wanted(state, frames, row)
        if not has_room(state, out, wanted):
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
            _note_limits(state, out, place, given_up, _DELIVERIES_LIMIT, DELIVERIES_GIVEN_UP)
        if counters[IDENTITIES_FORGOTTEN] > forgotten:
            _note_limits(state, out, place, forgotten, _IDENTITIES_LIMIT, IDENTITIES_FORGOTTEN)
        if counters[CONSUMERS_REFUSED] > refused:
            _note_limits(state, out, place, refused, _CONSUMERS_LIMIT, CONSUMERS_REFUSED)
    return rows, DONE, 0


@inlined
def _matters(frames: FrameColumns, row: int) -> bool:
    """Whether a row can change anything here."""
    command = frames.command[row]
    if command == MESSAGE or command == ACK or command == FLOW:
        return True
    if frames.lifecycle[row] > 0 and frames.subject_kind[row] == _CONSUMER:
        return True
    return bool(
        command == REDELIVER
        or command == CONNECT
        or command == CONNECTED
        or command == SEEK
        or command == CONSUMER_STATS
        or command == CONSUMER_STATS_RESPONSE
        or command == ACTIVE_CONSUMER_CHANGE
        or command == END_TXN
        or command == ERROR
        or (command < 0 and command != NULL)
    )


@kernel
def end_capture(state: ConsumptionState, out: ConsumptionRows) -> bool:
    """End what is open at the end of the capture, as far as there is room; whether all is done."""
    tables = state.deliveries
    place = Place(NULL, NULL, NULL, NULL, NULL, NULL)
    while tables.age_ends.length[0] > 0:
        if not has_room(state, out, _SPARE_ROWS):
            return False
        delivery = tables.age_ends.first[0]
        end_delivery(state, delivery, unresolved(state, delivery, UNACKED_AT_END))
        write_ended(state, out, place)
    return True
