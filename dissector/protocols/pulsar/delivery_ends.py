"""How deliveries end: out of the tables of what is open, and into a row.

All deliveries that end with one frame are gathered first and written in the order of their frames.
"""

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.pulsar.consumption_rows import ConsumptionRows, Place, add_notice
from dissector.protocols.pulsar.consumption_state import (
    ACKED,
    CELL_DELIVERY,
    CELL_END,
    CLOSING,
    CONNECTION_BROKER_GAP_AT,
    CONNECTION_BROKER_SEEN,
    CONSUMER_ASCENDING,
    CONSUMER_CONNECTION,
    CONSUMER_CONNECTION_ROW,
    CONSUMER_ID,
    CONSUMER_INCARNATION,
    CONSUMER_NAME,
    CONSUMER_SUBSCRIPTION,
    CONSUMER_TOPIC,
    CONSUMER_TYPE,
    CONSUMER_UNACKED,
    CONSUMER_UNKNOWN_COSTS,
    DELIVERIES_GIVEN_UP,
    DELIVERY_ACK_FRAME,
    DELIVERY_ACK_LATENCY,
    DELIVERY_BATCH_SIZE,
    DELIVERY_CAUSE,
    DELIVERY_CHECKSUM,
    DELIVERY_CONSUMER,
    DELIVERY_COUNT,
    DELIVERY_CRC,
    DELIVERY_DELIVER_AT,
    DELIVERY_ENTRY,
    DELIVERY_FRAME_NO,
    DELIVERY_LAST_NS,
    DELIVERY_LEDGER,
    DELIVERY_LEFT,
    DELIVERY_OUTCOME,
    DELIVERY_PAGE,
    DELIVERY_PARTITION,
    DELIVERY_PREVIOUS,
    DELIVERY_PUBLISHED_NS,
    DELIVERY_REDELIVERY_COUNT,
    DELIVERY_SET_COUNT,
    DELIVERY_WORDS,
    END_OTHER,
    END_REQUESTED,
    OUT_DELIVERIES,
    OUT_WORDS,
    PAGE_ENTRIES,
    PAGE_OPEN,
    REDELIVERY_REQUESTED,
    UNKNOWN_GAP,
    UNRESOLVED_AT_LIMIT,
    WORD_CLASSES,
    WORDS_USED,
    ConsumptionState,
    DeliveryTables,
)
from dissector.protocols.pulsar.published import leg_of, published_ns
from dissector.protocols.tables import ABSENT, give_row, list_unlink

_NEGATIVE_DURATION = NOTICE_NUMBER["negative_duration"]
_CLASS_BITS = 4  # DELIVERY_WORDS: class of the piece below, its place above


@kernel
def take_words(deliveries: DeliveryTables, counters: Int64Array, words: int) -> int:
    """A piece of the arena for so many words, packed with its class; ABSENT without room."""
    size_class = 0
    while (1 << size_class) < words:
        size_class += 1
    if size_class >= WORD_CLASSES:
        return ABSENT
    at = deliveries.free_words[size_class]
    if at >= 0:
        deliveries.free_words[size_class] = deliveries.words[at]
    else:
        at = counters[WORDS_USED]
        if (1 << size_class) > len(deliveries.words) - at:
            return ABSENT
        counters[WORDS_USED] = at + (1 << size_class)
    return (at << _CLASS_BITS) | size_class


@inlined
def words_at(piece: int) -> int:
    """Where a piece begins."""
    return piece >> _CLASS_BITS


@kernel
def _give_words(deliveries: DeliveryTables, piece: int) -> None:
    """Give a piece back."""
    size_class = piece & ((1 << _CLASS_BITS) - 1)
    at = piece >> _CLASS_BITS
    deliveries.words[at] = deliveries.free_words[size_class]
    deliveries.free_words[size_class] = at


@inlined
def end_delivery(state: ConsumptionState, delivery: int, outcome: int) -> None:
    """Take a delivery out of what is open; its row is written by write_ended."""
    tables = state.deliveries
    rows = tables.rows
    consumers = state.consumers.rows
    consumer = rows[delivery, DELIVERY_CONSUMER]
    rows[delivery, DELIVERY_OUTCOME] = outcome
    list_unlink(tables.ends, tables.links, consumer, delivery)
    list_unlink(tables.age_ends, tables.age_links, 0, delivery)
    if tables.ends.length[consumer] == 0:
        consumers[consumer, CONSUMER_ASCENDING] = 1
    left = rows[delivery, DELIVERY_LEFT]
    if left == NULL:
        consumers[consumer, CONSUMER_UNKNOWN_COSTS] -= 1
    else:
        consumers[consumer, CONSUMER_UNACKED] -= left
        if outcome == ACKED:
            rows[delivery, DELIVERY_LEFT] = 0
    page = rows[delivery, DELIVERY_PAGE]
    if page != ABSENT:
        identities = state.identities
        place = rows[delivery, DELIVERY_ENTRY] & (PAGE_ENTRIES - 1)
        identities.pages[page, PAGE_OPEN] -= 1
        identities.cells[page, place, CELL_DELIVERY] = ABSENT
        end = END_REQUESTED if outcome == REDELIVERY_REQUESTED else END_OTHER
        identities.cells[page, place, CELL_END] = end
    if outcome == UNRESOLVED_AT_LIMIT:
        state.counters[DELIVERIES_GIVEN_UP] += 1
    tables.closing[state.counters[CLOSING]] = delivery
    state.counters[CLOSING] += 1


@inlined
def unresolved(state: ConsumptionState, delivery: int, outcome: int) -> int:
    """The outcome, or UNKNOWN_GAP where an answer may have been missed by the capture."""
    consumer = state.deliveries.rows[delivery, DELIVERY_CONSUMER]
    row = state.consumers.rows[consumer, CONSUMER_CONNECTION_ROW]
    if row == ABSENT:
        return outcome
    connections = state.consumers.connections
    if connections[row, CONNECTION_BROKER_SEEN] == 0:
        return UNKNOWN_GAP
    gap_at = connections[row, CONNECTION_BROKER_GAP_AT]
    if gap_at >= state.deliveries.rows[delivery, DELIVERY_FRAME_NO]:
        return UNKNOWN_GAP
    return outcome


@kernel
def end_all(state: ConsumptionState, consumer: int, outcome: int) -> None:
    """End every open delivery of a consumer; REDELIVERY_REQUESTED and limits are certain."""
    ends = state.deliveries.ends
    is_certain = outcome == REDELIVERY_REQUESTED or outcome == UNRESOLVED_AT_LIMIT
    while ends.length[consumer] > 0:
        delivery = ends.first[consumer]
        end_delivery(
            state, delivery, outcome if is_certain else unresolved(state, delivery, outcome)
        )


@kernel
def _sift(closing: Int64Array, rows: Int64Array, start: int, end: int) -> None:
    """Restore the heap below `start`: the largest frame number on top."""
    top = start
    while 2 * top + 1 < end:
        child = 2 * top + 1
        if child + 1 < end and (
            rows[closing[child + 1], DELIVERY_FRAME_NO] > rows[closing[child], DELIVERY_FRAME_NO]
        ):
            child += 1
        if rows[closing[top], DELIVERY_FRAME_NO] >= rows[closing[child], DELIVERY_FRAME_NO]:
            return
        held = closing[top]
        closing[top] = closing[child]
        closing[child] = held
        top = child


@kernel
def sort_closing(closing: Int64Array, rows: Int64Array, count: int) -> None:
    """Order deliveries by frame number, in place."""
    is_sorted = True
    for place in range(1, count):
        if rows[closing[place], DELIVERY_FRAME_NO] < rows[closing[place - 1], DELIVERY_FRAME_NO]:
            is_sorted = False
            break
    if is_sorted:
        return
    for start in range(count // 2 - 1, -1, -1):
        _sift(closing, rows, start, count)
    for end in range(count - 1, 0, -1):
        held = closing[0]
        closing[0] = closing[end]
        closing[end] = held
        _sift(closing, rows, 0, end)


@inlined
def write_ended(state: ConsumptionState, out: ConsumptionRows, place: Place) -> None:
    """Write the rows of the deliveries that end with the frame in hand, and free them."""
    count = state.counters[CLOSING]
    if count > 1:
        sort_closing(state.deliveries.closing, state.deliveries.rows, count)
    for index in range(count):
        delivery = state.deliveries.closing[index]
        _write_row(state, out, delivery, place)
        piece = state.deliveries.rows[delivery, DELIVERY_WORDS]
        if piece != ABSENT:
            _give_words(state.deliveries, piece)
        give_row(state.deliveries.pool, delivery)
    state.counters[CLOSING] = 0


@inlined
def _publish_to_delivery(
    state: ConsumptionState, out: ConsumptionRows, delivery: int, place: Place
) -> int:
    """From SEND to MESSAGE in ns; null if the SEND is not known or, with a notice, negative."""
    rows = state.deliveries.rows
    sent_ns = rows[delivery, DELIVERY_PUBLISHED_NS]
    if sent_ns == NULL:
        # A receipt may come later than the message that it is about.
        consumer = rows[delivery, DELIVERY_CONSUMER]
        if rows[delivery, DELIVERY_PAGE] == ABSENT:
            return NULL
        sent_ns = published_ns(
            state.published,
            state.consumers.rows[consumer, CONSUMER_TOPIC],
            rows[delivery, DELIVERY_LEDGER],
            rows[delivery, DELIVERY_ENTRY],
            leg_of(state.published, place.connection),
        )
        if sent_ns == NULL:
            return NULL
    elapsed = rows[delivery, DELIVERY_LAST_NS] - sent_ns
    if elapsed < 0:
        add_notice(out, state.counters, _NEGATIVE_DURATION, place, NULL)
        return NULL
    return elapsed


@inlined
def _write_set(
    state: ConsumptionState, out: ConsumptionRows, delivery: int, row: int
) -> None:
    """Copy the ack_set that came with the message."""
    rows = state.deliveries.rows
    count = rows[delivery, DELIVERY_SET_COUNT]
    out.deliveries.ack_set_at[row] = state.counters[OUT_WORDS]
    out.deliveries.ack_set_count[row] = count
    if count > 0:
        at = words_at(rows[delivery, DELIVERY_WORDS])
        target = state.counters[OUT_WORDS]
        for word in range(count):
            out.words[target + word] = state.deliveries.words[at + word]
        state.counters[OUT_WORDS] = target + count


@inlined
def _write_row(
    state: ConsumptionState, out: ConsumptionRows, delivery: int, place: Place
) -> None:
    """One row of deliveries."""
    rows = state.deliveries.rows
    consumers = state.consumers.rows
    consumer = rows[delivery, DELIVERY_CONSUMER]
    row = state.counters[OUT_DELIVERIES]
    state.counters[OUT_DELIVERIES] = row + 1
    to = out.deliveries
    outcome = rows[delivery, DELIVERY_OUTCOME]
    count = rows[delivery, DELIVERY_COUNT]
    left = rows[delivery, DELIVERY_LEFT]
    cause = rows[delivery, DELIVERY_CAUSE]
    to.connection_id[row] = consumers[consumer, CONSUMER_CONNECTION]
    to.frame_no[row] = rows[delivery, DELIVERY_FRAME_NO]
    to.ts[row] = rows[delivery, DELIVERY_LAST_NS]
    to.topic[row] = consumers[consumer, CONSUMER_TOPIC]
    to.subscription[row] = consumers[consumer, CONSUMER_SUBSCRIPTION]
    to.subscription_type[row] = consumers[consumer, CONSUMER_TYPE]
    to.consumer_id[row] = consumers[consumer, CONSUMER_ID]
    to.incarnation[row] = consumers[consumer, CONSUMER_INCARNATION]
    to.consumer_name[row] = consumers[consumer, CONSUMER_NAME]
    to.ledger_id[row] = rows[delivery, DELIVERY_LEDGER]
    to.entry_id[row] = rows[delivery, DELIVERY_ENTRY]
    to.partition[row] = rows[delivery, DELIVERY_PARTITION]
    to.batch_size[row] = rows[delivery, DELIVERY_BATCH_SIZE]
    to.message_count[row] = count
    to.messages_acked[row] = max(count - left, 0) if count != NULL and left != NULL else NULL
    _write_set(state, out, delivery, row)
    to.redelivery_count[row] = max(rows[delivery, DELIVERY_REDELIVERY_COUNT], 0)
    to.is_redelivered[row] = 0 if cause == NULL else 1
    to.redelivery_cause[row] = cause
    to.previous_frame_no[row] = rows[delivery, DELIVERY_PREVIOUS]
    to.outcome[row] = outcome
    to.ack_frame_no[row] = rows[delivery, DELIVERY_ACK_FRAME]
    to.ack_latency_ns[row] = rows[delivery, DELIVERY_ACK_LATENCY]
    to.publish_to_delivery_ns[row] = _publish_to_delivery(state, out, delivery, place)
    to.deliver_at_ms[row] = rows[delivery, DELIVERY_DELIVER_AT]
    to.checksum[row] = rows[delivery, DELIVERY_CHECKSUM]
    to.crc32c_stored[row] = rows[delivery, DELIVERY_CRC]
