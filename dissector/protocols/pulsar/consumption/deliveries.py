"""Deliveries begin: from a MESSAGE to an open delivery under its identity.

A delivery is a message put in a client's queue; only its ack shows that it was consumed. Its
identity is (topic, subscription, ledger, entry), so an ack of any consumer of the subscription ends
it. When an id is delivered again while its delivery is still open, the ack counts for the latest
one; the older stays open, apart from identity, until its consumer goes.

A broker that begins anew numbers its ledgers and entries from the start. The same id with another
stored checksum, or without one another time of its producer, is another message: nothing was
delivered again, and when the older message was published says nothing about it.
"""

from dissector.blocks import Int64Array
from dissector.codecs.integers import wrapped
from dissector.jit import inlined, kernel
from dissector.limits import MAX_BATCH_WORDS, NULL
from dissector.protocols.columns import CHECKSUM_MISMATCH, FrameColumns
from dissector.protocols.pulsar.consumption.acks import bits_left
from dissector.protocols.pulsar.consumption.consumers import packed_consumer
from dissector.protocols.pulsar.consumption.delivery_ends import (
    end_delivery,
    take_words,
    words_at,
    write_ended,
)
from dissector.protocols.pulsar.consumption.identities import (
    add_page,
    bit_of,
    find_page,
    give_up_page,
    page_to_give_up,
)
from dissector.protocols.pulsar.consumption.published import (
    domain_of,
    forget_published,
    leg_of,
    published_ns,
)
from dissector.protocols.pulsar.consumption.records import has_row, take_row
from dissector.protocols.pulsar.consumption.redelivery import (
    cause_of_forgotten,
    cause_of_known,
    cause_of_unseen,
)
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows, Place
from dissector.protocols.pulsar.consumption.state import (
    END_OTHER,
    LIST_AGES,
    PAGE_ENTRIES,
    STOCK_DELIVERIES,
    STOCK_PAGES,
    ConsumptionState,
)
from dissector.protocols.tables import ABSENT, list_append
from dissector.schemas.words import UNRESOLVED_AT_LIMIT


@inlined
def message_cost(frames: FrameColumns, row: int, words: Int64Array) -> int:
    """Messages that a MESSAGE costs and brings; null where the metadata was not read.

    Pulsar: what the broker says itself, else the bits of the ack_set, one per message still to be
    acked, else the messages of the entry.
    """
    permits = frames.message_permits[row]
    if permits >= 0:
        return int(permits)
    messages = frames.message_count[row]
    count = frames.ack_set_count[row]
    if count > 0:
        return bits_left(words, frames.ack_set_at[row], count, messages)
    return int(messages)


@kernel
def _free_page(state: ConsumptionState, out: ConsumptionRows, place: Place) -> None:
    """Give back a page of ids; deliveries that are open on it cannot be followed any more."""
    page = page_to_give_up(state)
    if state.pages.open[page] > 0:
        for cell in range(PAGE_ENTRIES):
            if (state.pages.known[page] >> cell) & 1:
                delivery = state.cells.delivery[page * PAGE_ENTRIES + cell]
                if delivery != ABSENT:
                    end_delivery(state, delivery, UNRESOLVED_AT_LIMIT)
        write_ended(state, out, place)
    give_up_page(state, page)


@kernel
def _free_delivery(state: ConsumptionState, out: ConsumptionRows, place: Place) -> None:
    """Give up the oldest open delivery."""
    end_delivery(state, state.lists.first[LIST_AGES], UNRESOLVED_AT_LIMIT)
    write_ended(state, out, place)


@inlined
def has_identity(state: ConsumptionState, consumer: int, ledger: int, entry: int) -> bool:
    """Whether an id tells one entry from another: not so where all are 0:0.

    That is so on topics that are not persistent, which only their name says.
    """
    group = state.consumers.group[consumer]
    if group == ABSENT or ledger < 0 or entry < 0:
        return False
    if ledger == 0 and entry == 0 and state.consumers.topic[consumer] == NULL:
        return False
    return bool(state.groups.has_identity[group] != 0)


@kernel
def _part_with(state: ConsumptionState, page: int, cell: int) -> None:
    """The open delivery of an id that comes again is no longer the one that the id stands for."""
    older = state.cells.delivery[cell]
    if older != ABSENT:
        state.deliveries.page[older] = ABSENT
        state.deliveries.is_superseded[older] = 1
        state.pages.open[page] -= 1


@inlined
def _sound(state: ConsumptionState, delivery: int, value: int) -> int:
    """What a message says of itself; null if its checksum is not the one of its bytes."""
    return NULL if state.deliveries.checksum[delivery] == CHECKSUM_MISMATCH else int(value)


@inlined
def _is_another(state: ConsumptionState, delivery: int, page: int, cell: int) -> bool:
    """Whether the message that an id stood for before is not the one that it stands for now."""
    if (state.pages.known[page] >> (cell & (PAGE_ENTRIES - 1))) & 1 == 0:
        return False
    deliveries = state.deliveries
    before = state.cells.crc32c[cell]
    now = _sound(state, delivery, deliveries.crc32c[delivery])
    if before == NULL or now == NULL:
        before = state.cells.publish_time_ms[cell]
        now = _sound(state, delivery, deliveries.publish_time_ms[delivery])
    return bool(before != NULL and now != NULL and before != now)


@kernel
def _forget_sends(
    state: ConsumptionState, consumer: int, delivery: int, place: Place, cell: int
) -> None:
    """The SEND of the id's entry, if it was complete before the last delivery of the cell, was that
    of the older message."""
    deliveries = state.deliveries
    ledger = deliveries.ledger[delivery]
    entry = deliveries.entry[delivery]
    connection = place.connection
    leg = leg_of(state, connection)
    topic = state.consumers.topic[consumer]
    older = state.cells.delivery[cell]
    if older != ABSENT and deliveries.published_ns[older] == NULL:
        sent_ns = published_ns(state, topic, connection, ledger, entry, leg)
        if sent_ns != NULL and sent_ns <= deliveries.last_ns[older]:
            deliveries.published_ns[older] = sent_ns
    until_ns = state.cells.last_ns[cell]
    if topic >= 0:
        forget_published(state, topic, ledger, entry, leg, until_ns)
    forget_published(state, domain_of(NULL, connection), ledger, entry, leg, until_ns)


@kernel
def _recognise(
    state: ConsumptionState, group: int, consumer: int, delivery: int, page: int, cell: int
) -> None:
    """An id that came before: when, and why it comes again."""
    deliveries = state.deliveries
    if (state.pages.known[page] >> (cell & (PAGE_ENTRIES - 1))) & 1:
        deliveries.previous_frame_no[delivery] = state.cells.frame_no[cell]
        deliveries.previous_connection[delivery] = state.cells.connection[cell]
        deliveries.cause[delivery] = cause_of_known(state, group, consumer, cell)
        _part_with(state, page, cell)
    else:
        deliveries.cause[delivery] = cause_of_forgotten(state, group)


@inlined
def _identify(
    state: ConsumptionState, out: ConsumptionRows, consumer: int, delivery: int, place: Place
) -> None:
    """Enter a delivery under its id."""
    deliveries = state.deliveries
    pages = state.pages
    ledger = deliveries.ledger[delivery]
    entry = deliveries.entry[delivery]
    group = state.consumers.group[consumer]
    serial = state.groups.serial[group]
    page = find_page(state, state.consumers.page[consumer], serial, ledger, entry)
    if page == ABSENT:
        if not has_row(pages, state.counters, STOCK_PAGES):
            _free_page(state, out, place)
        page = add_page(state, group, serial, ledger, entry)
    state.consumers.page[consumer] = page
    bit = entry & (PAGE_ENTRIES - 1)
    cell = page * PAGE_ENTRIES + bit
    is_another = _is_another(state, delivery, page, cell)
    if is_another:
        _forget_sends(state, consumer, delivery, place, cell)
        _part_with(state, page, cell)
    if not is_another and (pages.seen[page] >> bit) & 1:
        _recognise(state, group, consumer, delivery, page, cell)
    elif deliveries.redelivery_count[delivery] > 0:
        deliveries.cause[delivery] = cause_of_unseen(state, group)
    pages.seen[page] = wrapped(int(pages.seen[page]) | bit_of(bit))
    pages.known[page] = wrapped(int(pages.known[page]) | bit_of(bit))
    pages.open[page] += 1
    state.cells.delivery[cell] = delivery
    connection = place.connection
    state.cells.frame_no[cell] = deliveries.frame_no[delivery]
    state.cells.connection[cell] = connection
    state.cells.holder[cell] = packed_consumer(state, consumer)
    state.cells.end[cell] = END_OTHER
    state.cells.last_ns[cell] = deliveries.last_ns[delivery]
    state.cells.crc32c[cell] = _sound(state, delivery, deliveries.crc32c[delivery])
    published_ms = _sound(state, delivery, deliveries.publish_time_ms[delivery])
    state.cells.publish_time_ms[cell] = published_ms
    deliveries.page[delivery] = page
    topic = state.consumers.topic[consumer]
    leg = leg_of(state, connection)
    sent_ns = published_ns(state, topic, connection, ledger, entry, leg)
    deliveries.published_ns[delivery] = sent_ns


@inlined
def _fill(
    state: ConsumptionState, frames: FrameColumns, row: int, consumer: int, delivery: int, cost: int
) -> None:
    """What the frame itself says."""
    deliveries = state.deliveries
    partition = frames.partition[row]
    messages = frames.message_count[row]
    deliveries.consumer[delivery] = consumer
    deliveries.frame_no[delivery] = frames.frame_no[row]
    deliveries.last_ns[delivery] = frames.last_ts_ns[row]
    deliveries.ledger[delivery] = frames.ledger_id[row]
    deliveries.entry[delivery] = frames.entry_id[row]
    deliveries.partition[delivery] = partition if partition >= 0 else NULL
    deliveries.batch_size[delivery] = messages if frames.is_batch[row] == 1 else NULL
    deliveries.messages[delivery] = messages
    deliveries.count[delivery] = cost
    deliveries.left[delivery] = cost
    deliveries.redelivery_count[delivery] = frames.redelivery_count[row]
    deliveries.cause[delivery] = NULL
    deliveries.previous_frame_no[delivery] = NULL
    deliveries.previous_connection[delivery] = NULL
    deliveries.published_ns[delivery] = NULL
    deliveries.deliver_at_ms[delivery] = frames.deliver_at_ms[row]
    deliveries.publish_time_ms[delivery] = frames.publish_time_ms[row]
    deliveries.checksum[delivery] = frames.checksum[row]
    deliveries.crc32c[delivery] = frames.crc32c_stored[row]
    deliveries.page[delivery] = ABSENT
    deliveries.is_superseded[delivery] = 0
    deliveries.piece[delivery] = ABSENT
    deliveries.set_words[delivery] = NULL
    deliveries.left_words[delivery] = 0
    deliveries.transaction[delivery] = ABSENT
    deliveries.ack_frame_no[delivery] = NULL
    deliveries.ack_latency_ns[delivery] = NULL


@inlined
def words_for(bits: int) -> int:
    """Words of a bit set of so many bits; 0 for null."""
    return (bits + 63) >> 6 if bits > 0 else 0


@kernel
def _keep_set(
    state: ConsumptionState, delivery: int, words: Int64Array, at: int, count: int
) -> bool:
    """Keep the ack_set that came with a message; False without room."""
    deliveries = state.deliveries
    needed = max(count, words_for(deliveries.messages[delivery]))
    if needed > MAX_BATCH_WORDS:
        return False
    piece = take_words(state, count + needed)
    if piece == ABSENT:
        return False
    target = words_at(piece)
    for word in range(count):
        state.words[target + word] = words[at + word]
    deliveries.piece[delivery] = piece
    deliveries.set_words[delivery] = count
    return True


@inlined
def _append(state: ConsumptionState, consumer: int, delivery: int) -> None:
    """Put a delivery behind those of its consumer, and note whether their ids still rise."""
    deliveries = state.deliveries
    last = state.consumers.last[consumer]
    if last != ABSENT:
        ledger = deliveries.ledger[delivery]
        behind = deliveries.ledger[last]
        if behind > ledger or (
            behind == ledger and deliveries.entry[last] > deliveries.entry[delivery]
        ):
            state.consumers.is_ascending[consumer] = 0
    list_append(state.consumers, deliveries, consumer, delivery)
    list_append(state.lists, state.ages, LIST_AGES, delivery)


@inlined
def open_delivery(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    consumer: int,
    cost: int,
    words: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """Open the delivery of a MESSAGE. One that cannot be followed ends at once."""
    deliveries = state.deliveries
    if not has_row(deliveries, state.counters, STOCK_DELIVERIES):
        _free_delivery(state, out, place)
    delivery = take_row(deliveries, state.counters, STOCK_DELIVERIES)
    _fill(state, frames, row, consumer, delivery, cost)
    if has_identity(state, consumer, deliveries.ledger[delivery], deliveries.entry[delivery]):
        _identify(state, out, consumer, delivery, place)
    elif deliveries.redelivery_count[delivery] > 0:
        deliveries.cause[delivery] = cause_of_unseen(state, ABSENT)
    _append(state, consumer, delivery)
    if cost == NULL:
        state.consumers.unread[consumer] += 1
    else:
        state.consumers.unacked[consumer] += cost
    count = frames.ack_set_count[row]
    if count > 0 and not _keep_set(state, delivery, words, frames.ack_set_at[row], count):
        end_delivery(state, delivery, UNRESOLVED_AT_LIMIT)
