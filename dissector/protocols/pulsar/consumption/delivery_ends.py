"""How deliveries end: out of what is open, and into a row.

All deliveries that end with one frame are gathered first and written in the order of their frames.
"""

from typing import Final

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.pulsar.consumption.published import leg_of, published_ns
from dissector.protocols.pulsar.consumption.records import give_row
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows, Place, add_notice
from dissector.protocols.pulsar.consumption.state import (
    CLOSING,
    DELIVERIES_GIVEN_UP,
    END_OTHER,
    END_REQUESTED,
    FREE_WORDS,
    LIST_AGES,
    ORDINAL,
    OUT_DELIVERIES,
    OUT_WORDS,
    PAGE_ENTRIES,
    STOCK_DELIVERIES,
    WORD_CLASSES,
    WORDS_USED,
    ConsumptionState,
)
from dissector.protocols.tables import ABSENT, list_unlink
from dissector.schemas.words import ACKED, REDELIVERY_REQUESTED, UNKNOWN_GAP, UNRESOLVED_AT_LIMIT

_NEGATIVE_DURATION: Final = NOTICE_NUMBER["negative_duration"]
_CLASS_BITS: Final = 4  # of a piece: its size class below, its place above


@kernel
def take_words(state: ConsumptionState, words: int) -> int:
    """A piece of the arena for so many words, packed with its class; ABSENT without room."""
    counters = state.counters
    size_class = 0
    while (1 << size_class) < words:
        size_class += 1
    if size_class >= WORD_CLASSES:
        return ABSENT
    at = counters[FREE_WORDS + size_class]
    if at != ABSENT:
        counters[FREE_WORDS + size_class] = state.words[at]
    else:
        at = counters[WORDS_USED]
        if (1 << size_class) > len(state.words) - at:
            return ABSENT
        counters[WORDS_USED] = at + (1 << size_class)
    return int((at << _CLASS_BITS) | size_class)


@inlined
def words_at(piece: int) -> int:
    """Where a piece begins."""
    return piece >> _CLASS_BITS


@kernel
def give_words(state: ConsumptionState, piece: int) -> None:
    """Give a piece back."""
    size_class = piece & ((1 << _CLASS_BITS) - 1)
    at = words_at(piece)
    state.words[at] = state.counters[FREE_WORDS + size_class]
    state.counters[FREE_WORDS + size_class] = at


@inlined
def end_delivery(state: ConsumptionState, delivery: int, outcome: int) -> None:
    """Take a delivery out of what is open; its row is written by write_ended."""
    deliveries = state.deliveries
    consumers = state.consumers
    consumer = deliveries.consumer[delivery]
    deliveries.outcome[delivery] = outcome
    list_unlink(consumers, deliveries, consumer, delivery)
    list_unlink(state.lists, state.ages, LIST_AGES, delivery)
    if consumers.length[consumer] == 0:
        consumers.is_ascending[consumer] = 1
    left = deliveries.left[delivery]
    if left == NULL:
        consumers.unread[consumer] -= 1
    else:
        consumers.unacked[consumer] -= left
        if outcome == ACKED:
            deliveries.left[delivery] = 0
    page = deliveries.page[delivery]
    if page != ABSENT:
        cell = page * PAGE_ENTRIES + (deliveries.entry[delivery] & (PAGE_ENTRIES - 1))
        state.pages.open[page] -= 1
        state.cells.delivery[cell] = ABSENT
        end = END_REQUESTED if outcome == REDELIVERY_REQUESTED else END_OTHER
        state.cells.end[cell] = end
    if outcome == UNRESOLVED_AT_LIMIT:
        state.counters[DELIVERIES_GIVEN_UP] += 1
    deliveries.closing[state.counters[CLOSING]] = delivery
    state.counters[CLOSING] += 1


@inlined
def unresolved(state: ConsumptionState, delivery: int, outcome: int) -> int:
    """The outcome, or UNKNOWN_GAP where an answer may have been missed by the capture."""
    consumer = state.deliveries.consumer[delivery]
    row = state.consumers.connection_row[consumer]
    if row == ABSENT:
        return outcome
    if state.connections.is_broker_seen[row] == 0:
        return UNKNOWN_GAP
    if state.connections.broker_gap_at[row] >= state.deliveries.frame_no[delivery]:
        return UNKNOWN_GAP
    return outcome


@kernel
def end_all(state: ConsumptionState, consumer: int, outcome: int) -> None:
    """End every open delivery of a consumer; a request and a limit are certain."""
    is_certain = outcome in (REDELIVERY_REQUESTED, UNRESOLVED_AT_LIMIT)
    while state.consumers.length[consumer] > 0:
        delivery = state.consumers.first[consumer]
        end_delivery(
            state, delivery, outcome if is_certain else unresolved(state, delivery, outcome)
        )


@inlined
def _closing_frame(state: ConsumptionState, place: int) -> int:
    return int(state.deliveries.frame_no[state.deliveries.closing[place]])


@kernel
def _sift(state: ConsumptionState, start: int, end: int) -> None:
    """Restore the heap below `start`: the largest frame number on top."""
    closing = state.deliveries.closing
    top = start
    while 2 * top + 1 < end:
        child = 2 * top + 1
        if child + 1 < end and _closing_frame(state, child + 1) > _closing_frame(state, child):
            child += 1
        if _closing_frame(state, top) >= _closing_frame(state, child):
            return
        held = closing[top]
        closing[top] = closing[child]
        closing[child] = held
        top = child


@kernel
def sort_closing(state: ConsumptionState) -> None:
    """Order the deliveries that end by frame number, in place."""
    count = state.counters[CLOSING]
    place = 1
    while place < count and _closing_frame(state, place - 1) <= _closing_frame(state, place):
        place += 1
    if place >= count:
        return
    for start in range(count // 2 - 1, -1, -1):
        _sift(state, start, count)
    closing = state.deliveries.closing
    for end in range(count - 1, 0, -1):
        held = closing[0]
        closing[0] = closing[end]
        closing[end] = held
        _sift(state, 0, end)


@kernel
def write_ended(state: ConsumptionState, out: ConsumptionRows, place: Place) -> None:
    """Write the rows of the deliveries that end with the frame in hand, and free them."""
    count = state.counters[CLOSING]
    if count > 1:
        sort_closing(state)
    for index in range(count):
        delivery = state.deliveries.closing[index]
        _write_row(state, out, delivery, place)
        piece = state.deliveries.piece[delivery]
        if piece != ABSENT:
            give_words(state, piece)
        give_row(state.deliveries, state.counters, STOCK_DELIVERIES, delivery)
    state.counters[CLOSING] = 0


@inlined
def _publish_to_delivery(
    state: ConsumptionState, out: ConsumptionRows, delivery: int, place: Place
) -> int:
    """From SEND to MESSAGE in ns; null if the SEND is not known or, with a notice, negative."""
    deliveries = state.deliveries
    sent_ns = deliveries.published_ns[delivery]
    if sent_ns == NULL:
        # A receipt may come later than the message that it is about.
        if deliveries.page[delivery] == ABSENT:
            return NULL
        consumer = deliveries.consumer[delivery]
        connection = state.consumers.connection[consumer]
        leg = leg_of(state, connection)
        topic = state.consumers.topic[consumer]
        ledger = deliveries.ledger[delivery]
        entry = deliveries.entry[delivery]
        sent_ns = published_ns(state, topic, connection, ledger, entry, leg)
        if sent_ns == NULL:
            return NULL
    elapsed = deliveries.last_ns[delivery] - sent_ns
    if elapsed < 0:
        add_notice(state, out, _NEGATIVE_DURATION, place, NULL)
        return NULL
    return int(elapsed)


@inlined
def _write_set(state: ConsumptionState, out: ConsumptionRows, delivery: int, row: int) -> None:
    """Copy the ack_set that came with the message."""
    count = state.deliveries.set_words[delivery]
    target = state.counters[OUT_WORDS]
    out.deliveries.ack_set_at[row] = target
    out.deliveries.ack_set_count[row] = count
    if count > 0:
        at = words_at(state.deliveries.piece[delivery])
        for word in range(count):
            out.words[target + word] = state.words[at + word]
        state.counters[OUT_WORDS] = target + count


@inlined
def _write_row(state: ConsumptionState, out: ConsumptionRows, delivery: int, place: Place) -> None:
    """One row of deliveries, with what is known of its consumer by now."""
    deliveries = state.deliveries
    consumers = state.consumers
    consumer = deliveries.consumer[delivery]
    row = state.counters[OUT_DELIVERIES]
    state.counters[OUT_DELIVERIES] = row + 1
    to = out.deliveries
    to.connection_id[row] = consumers.connection[consumer]
    to.frame_no[row] = deliveries.frame_no[delivery]
    to.ts[row] = deliveries.last_ns[delivery]
    to.topic[row] = consumers.topic[consumer]
    to.subscription[row] = consumers.subscription[consumer]
    to.subscription_type[row] = consumers.type[consumer]
    to.consumer_id[row] = consumers.id[consumer]
    to.incarnation[row] = consumers.incarnation[consumer]
    to.consumer_name[row] = consumers.name[consumer]
    to.ledger_id[row] = deliveries.ledger[delivery]
    to.entry_id[row] = deliveries.entry[delivery]
    to.partition[row] = deliveries.partition[delivery]
    to.batch_size[row] = deliveries.batch_size[delivery]
    count = deliveries.count[delivery]
    left = deliveries.left[delivery]
    to.message_count[row] = count
    to.messages_acked[row] = max(count - left, 0) if count != NULL and left != NULL else NULL
    _write_set(state, out, delivery, row)
    cause = deliveries.cause[delivery]
    to.redelivery_count[row] = max(deliveries.redelivery_count[delivery], 0)
    to.is_redelivered[row] = 0 if cause == NULL else 1
    to.redelivery_cause[row] = cause
    to.previous_frame_no[row] = deliveries.previous_frame_no[delivery]
    to.previous_connection_id[row] = deliveries.previous_connection[delivery]
    to.outcome[row] = deliveries.outcome[delivery]
    to.ack_frame_no[row] = deliveries.ack_frame_no[delivery]
    to.ack_latency_ns[row] = deliveries.ack_latency_ns[delivery]
    to.publish_to_delivery_ns[row] = _publish_to_delivery(state, out, delivery, place)
    to.deliver_at_ms[row] = deliveries.deliver_at_ms[delivery]
    to.checksum[row] = deliveries.checksum[delivery]
    to.crc32c_stored[row] = deliveries.crc32c[delivery]
    to.closing_row[row] = state.counters[ORDINAL]
