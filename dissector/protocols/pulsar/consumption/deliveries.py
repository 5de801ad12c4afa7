"""Deliveries: a MESSAGE opens one and enters it under its identity; its end writes a row.

A delivery puts a message in a client's queue; only its ack shows that it was consumed. Its identity
is (topic, subscription, ledger, entry), so an ack of any consumer of the subscription ends it. If
an id is delivered again while its delivery is open, an ack counts for the latest delivery; the
older one stays open, without the identity, until its consumer leaves.

A client still acknowledges what it got before its consumer was closed, on its next connection, and
an ACK may cross the request to redeliver everything. The broker counts it. So a delivery that ends
without an ACK is *released*: it is neither its consumer's nor in its sums any more, but keeps its
id. A plain ACK of the id, or a cumulative one of a later id, acknowledges it after all, up to
LATE_ACK_MS behind the delivery and until the id is delivered again; its row is written then.

A broker that begins anew numbers its ledgers and entries from the start. The same id with another
stored checksum, or without one with another publish time, is another message: this is no
redelivery, and the older message's publish time does not apply to it.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.codecs.integers import wrapped
from dissector.jit import inlined, kernel
from dissector.limits import LATE_ACK_MS, MAX_BATCH_WORDS, NULL
from dissector.protocols.columns import CHECKSUM_MISMATCH, COMPLETE, CUT_BY_SNAPLEN, FrameColumns
from dissector.protocols.pulsar.consumption import (
    bitsets,
    identities,
    published,
    redelivery,
    standing,
)
from dissector.protocols.pulsar.consumption import state as consumption_state
from dissector.protocols.pulsar.consumption.consumers import (
    forget_released,
    hold_released,
    packed_consumer,
    release_claimed,
)
from dissector.protocols.pulsar.consumption.delivery_rows import sent_at, write_row
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.state import ConsumptionState
from dissector.schemas import enums
from dissector.tables import ABSENT, allocate_row, give_row, list_append, list_unlink

LATE_ACK_NS: Final = LATE_ACK_MS * 1_000_000


@kernel
def end_delivery(
    state: ConsumptionState, context: PassContext, row: int, delivery: int, outcome: int
) -> None:
    """Close an open delivery: unlink it; write its row, or release it."""
    deliveries = state.deliveries
    consumers = state.consumers
    consumer = deliveries.consumer[delivery]
    list_unlink(state.lists, state.ages, consumption_state.LIST_AGES, delivery)
    if deliveries.is_claimed[delivery] == 1:
        release_claimed(state, consumer)
        if consumers.claimed[consumer] == 0:
            standing.forget_reaches(state, consumer)
    else:
        list_unlink(consumers, deliveries, consumer, delivery)
        if consumers.length[consumer] == 0:
            consumers.is_ascending[consumer] = 1
        left = deliveries.left[delivery]
        if left == NULL:
            consumers.unread[consumer] -= 1
        else:
            consumers.unacked[consumer] -= left
    cell = identities.cell_of(state, delivery)
    if cell != ABSENT:
        state.pages.open[deliveries.page[delivery]] -= 1
        state.cells.end[cell] = _end_code(outcome)
        if _may_be_acked_late(state, delivery, outcome):
            _release(state, delivery, outcome)
            return
        state.cells.delivery[cell] = ABSENT
    if outcome == enums.UNRESOLVED_AT_LIMIT:
        state.counters[consumption_state.DELIVERIES_GIVEN_UP] += 1
    _write_and_free(state, context, row, delivery, outcome)


@inlined
def _may_be_acked_late(state: ConsumptionState, delivery: int, outcome: int) -> bool:
    """Whether a later ACK may count for a delivery that ends: the names of its row are known, and
    no ACK of it waits, or waited, for its answer or commit."""
    consumer = state.deliveries.consumer[delivery]
    return bool(
        outcome in (enums.REDELIVERY_REQUESTED, enums.CONSUMER_CLOSED, enums.DELIVERY_CONN_CLOSED)
        and state.deliveries.was_claimed[delivery] == 0
        and state.consumers.topic[consumer] != NULL
        and state.consumers.subscription[consumer] != NULL
        and state.consumers.group[consumer] != ABSENT
    )


@inlined
def _release(state: ConsumptionState, delivery: int, outcome: int) -> None:
    """Keep a delivery that has ended for an ACK that comes late. Its publish time is fixed."""
    deliveries = state.deliveries
    deliveries.released[delivery] = outcome
    if deliveries.published_ns[delivery] == NULL:
        deliveries.published_ns[delivery] = sent_at(state, delivery)
    hold_released(state, deliveries.consumer[delivery], delivery)
    list_append(state.lists, state.ages, consumption_state.LIST_RELEASED, delivery)


@kernel
def end_released(
    state: ConsumptionState, context: PassContext, row: int, delivery: int, outcome: int
) -> None:
    """Write the row of a released delivery and free it."""
    list_unlink(state.lists, state.ages, consumption_state.LIST_RELEASED, delivery)
    cell = identities.cell_of(state, delivery)
    if cell != ABSENT:
        state.cells.delivery[cell] = ABSENT
    forget_released(state, state.deliveries.consumer[delivery], delivery)
    _write_and_free(state, context, row, delivery, outcome)


@kernel
def end_oldest_released(state: ConsumptionState, context: PassContext, row: int) -> None:
    """Write the row of the delivery that was released first."""
    delivery = state.lists.first[consumption_state.LIST_RELEASED]
    end_released(state, context, row, delivery, state.deliveries.released[delivery])


@inlined
def _write_and_free(
    state: ConsumptionState, context: PassContext, row: int, delivery: int, outcome: int
) -> None:
    """Write the row of a delivery that has ended, and free it."""
    deliveries = state.deliveries
    write_row(state, context, row, delivery, outcome)
    if deliveries.word_block[delivery] != ABSENT:
        bitsets.free_words(state, deliveries.word_block[delivery])
    deliveries.frame_no[delivery] = NULL  # claims on it are void
    give_row(state.delivery_pool, delivery)


@inlined
def _end_code(outcome: int) -> int:
    """The END_* of an outcome, from which the next redelivery's cause follows."""
    if outcome == enums.REDELIVERY_REQUESTED:
        return consumption_state.END_REQUESTED
    if outcome == enums.ACK_ROLLED_BACK:
        return consumption_state.END_ROLLED_BACK
    if outcome == enums.ACKED:
        return consumption_state.END_ACKED
    return consumption_state.END_OTHER


@inlined
def unresolved(state: ConsumptionState, delivery: int, outcome: int) -> int:
    """The outcome, or UNKNOWN_GAP if the capture may have missed an ACK.

    If an ACK was refused or rolled back, that replaces the outcome.
    """
    consumer = state.deliveries.consumer[delivery]
    row = state.consumers.connection_row[consumer]
    if state.deliveries.taken_back[delivery] != NULL:
        outcome = state.deliveries.taken_back[delivery]
    if row == ABSENT:
        return outcome
    if state.connections.is_two_way[row] == 0:
        return enums.UNKNOWN_GAP
    if state.connections.broker_gap_at[row] >= state.deliveries.frame_no[delivery]:
        return enums.UNKNOWN_GAP
    return outcome


@kernel
def end_all(
    state: ConsumptionState, context: PassContext, row: int, consumer: int, outcome: int
) -> None:
    """End all open deliveries of a consumer; a gap does not change a requested or limit outcome."""
    is_certain = outcome in (enums.REDELIVERY_REQUESTED, enums.UNRESOLVED_AT_LIMIT)
    for _ in range(state.consumers.length[consumer]):
        delivery = state.consumers.first[consumer]
        its_outcome = outcome if is_certain else unresolved(state, delivery, outcome)
        end_delivery(state, context, row, delivery, its_outcome)


@kernel
def _free_page(state: ConsumptionState, context: PassContext, row: int) -> None:
    """Evict a page of ids; its open deliveries end at the limit, no ACK finds released ones."""
    page = identities.page_to_evict(state)
    if state.pages.open[page] > 0 or state.lists.length[consumption_state.LIST_RELEASED] > 0:
        for cell in range(consumption_state.PAGE_ENTRIES):
            if (state.pages.known[page] >> cell) & 1:
                delivery = state.cells.delivery[page * consumption_state.PAGE_ENTRIES + cell]
                if delivery == ABSENT:
                    continue
                released = state.deliveries.released[delivery]
                if released == NULL:
                    end_delivery(state, context, row, delivery, enums.UNRESOLVED_AT_LIMIT)
                else:
                    end_released(state, context, row, delivery, released)
    identities.evict_page(state, page)


@inlined
def has_identity(state: ConsumptionState, consumer: int, ledger: int, entry: int) -> bool:
    """Whether an id identifies an entry. All ids are 0:0 on non-persistent topics.

    Only its name shows that a topic is not persistent.
    """
    group = state.consumers.group[consumer]
    if group == ABSENT or ledger < 0 or entry < 0:
        return False
    if ledger == 0 and entry == 0 and state.consumers.topic[consumer] == NULL:
        return False
    return bool(state.groups.has_identity[group] != 0)


@kernel
def _detach_from_id(
    state: ConsumptionState, context: PassContext, row: int, page: int, cell: int, delivery: int
) -> None:
    """Detach the cell's delivery, if any, from its id, which is delivered again."""
    older = state.cells.delivery[cell]
    if older != ABSENT and state.deliveries.released[older] != NULL:
        end_released(state, context, row, older, state.deliveries.released[older])
    elif older != ABSENT:
        state.deliveries.page[older] = ABSENT
        frame_no = state.deliveries.frame_no[delivery]
        state.deliveries.superseded_at[older] = frame_no
        if state.deliveries.is_claimed[older] == 1:
            state.consumers.superseded_at[state.deliveries.consumer[older]] = frame_no
        state.pages.open[page] -= 1


@inlined
def _if_checksum_ok(state: ConsumptionState, delivery: int, value: int) -> int:
    """A value from the message; null if its checksum does not match."""
    return NULL if state.deliveries.checksum[delivery] == CHECKSUM_MISMATCH else int(value)


@inlined
def _is_other_message(state: ConsumptionState, delivery: int, page: int, cell: int) -> bool:
    """Whether an id's previous and current deliveries carry different messages."""
    if (state.pages.known[page] >> (cell & (consumption_state.PAGE_ENTRIES - 1))) & 1 == 0:
        return False
    deliveries = state.deliveries
    before = state.cells.crc32c[cell]
    now = _if_checksum_ok(state, delivery, deliveries.crc32c[delivery])
    if before == NULL or now == NULL:
        before = state.cells.publish_time_ms[cell]
        now = _if_checksum_ok(state, delivery, deliveries.publish_time_ms[delivery])
    return bool(before != NULL and now != NULL and before != now)


@kernel
def _forget_publish_time(state: ConsumptionState, consumer: int, delivery: int, cell: int) -> None:
    """Forget the publish time of an id if it is from before the cell's last delivery: it is the
    older message's, whose open delivery copies it."""
    deliveries = state.deliveries
    ledger = deliveries.ledger[delivery]
    entry = deliveries.entry[delivery]
    connection = state.consumers.connection[consumer]
    proxy_side = published.proxy_side_of(state, connection)
    topic = state.consumers.topic[consumer]
    older = state.cells.delivery[cell]
    is_open = older != ABSENT and deliveries.released[older] == NULL
    if is_open and deliveries.published_ns[older] == NULL:
        sent_ns = sent_at(state, older)
        if sent_ns != NULL and sent_ns <= deliveries.last_ns[older]:
            deliveries.published_ns[older] = sent_ns
    until_ns = state.cells.last_ns[cell]
    if topic >= 0:
        published.forget_published(state, topic, ledger, entry, proxy_side, until_ns)
    published.forget_published(
        state, published.domain_of(NULL, connection), ledger, entry, proxy_side, until_ns
    )


@kernel
def _recognise(
    state: ConsumptionState, context: PassContext, row: int, delivery: int, page: int, cell: int
) -> None:
    """Set the previous delivery and the cause of a redelivery."""
    deliveries = state.deliveries
    consumer = deliveries.consumer[delivery]
    group = state.consumers.group[consumer]
    if (state.pages.known[page] >> (cell & (consumption_state.PAGE_ENTRIES - 1))) & 1:
        deliveries.previous_frame_no[delivery] = state.cells.frame_no[cell]
        deliveries.previous_connection[delivery] = state.cells.connection[cell]
        cause = redelivery.cause_of_known(state, group, consumer, cell)
        deliveries.cause[delivery] = cause
        older = state.cells.delivery[cell]
        _detach_from_id(state, context, row, page, cell, delivery)
        is_open = older != ABSENT and deliveries.is_claimed[older] == 1
        if cause == enums.CAUSE_TXN_ABORT and is_open:
            end_delivery(state, context, row, older, enums.ACK_ROLLED_BACK)
    else:
        deliveries.cause[delivery] = redelivery.cause_of_forgotten(state, group)


@inlined
def identify(
    state: ConsumptionState, context: PassContext, row: int, consumer: int, delivery: int
) -> None:
    """Enter a delivery under its id, as the last delivery of its cell."""
    deliveries = state.deliveries
    pages = state.pages
    ledger = deliveries.ledger[delivery]
    entry = deliveries.entry[delivery]
    group = state.consumers.group[consumer]
    serial = state.groups.serial[group]
    page = identities.find_page(state, state.consumers.page[consumer], serial, ledger, entry)
    if page == ABSENT:
        if state.page_pool.free[0] == 0:
            _free_page(state, context, row)
        page = identities.add_page(state, group, serial, ledger, entry)
    state.consumers.page[consumer] = page
    bit = entry & (consumption_state.PAGE_ENTRIES - 1)
    cell = page * consumption_state.PAGE_ENTRIES + bit
    is_another = _is_other_message(state, delivery, page, cell)
    if is_another:
        _forget_publish_time(state, consumer, delivery, cell)
        _detach_from_id(state, context, row, page, cell, delivery)
    if not is_another and (pages.seen[page] >> bit) & 1:
        _recognise(state, context, row, delivery, page, cell)
    sent_ns = sent_at(state, delivery)
    if deliveries.cause[delivery] == NULL and deliveries.redelivery_count[delivery] > 0:
        deliveries.cause[delivery] = redelivery.cause_of_unseen(
            state, group, consumer, sent_ns != NULL
        )
    pages.seen[page] = wrapped(int(pages.seen[page]) | bitsets.bit_of(bit))
    pages.known[page] = wrapped(int(pages.known[page]) | bitsets.bit_of(bit))
    pages.open[page] += 1
    cells = state.cells
    cells.delivery[cell] = delivery
    cells.frame_no[cell] = deliveries.frame_no[delivery]
    cells.connection[cell] = state.consumers.connection[consumer]
    cells.owner[cell] = packed_consumer(state, consumer)
    cells.end[cell] = consumption_state.END_OTHER
    cells.last_ns[cell] = deliveries.last_ns[delivery]
    cells.crc32c[cell] = _if_checksum_ok(state, delivery, deliveries.crc32c[delivery])
    cells.publish_time_ms[cell] = _if_checksum_ok(
        state, delivery, deliveries.publish_time_ms[delivery]
    )
    deliveries.page[delivery] = page
    deliveries.published_ns[delivery] = sent_ns


@inlined
def _fill(
    state: ConsumptionState, frames: FrameColumns, row: int, consumer: int, delivery: int, cost: int
) -> None:
    """Fill a new delivery's row from its MESSAGE frame."""
    deliveries = state.deliveries
    partition = frames.partition[row]
    messages = frames.message_count[row]
    deliveries.matrix[delivery, :] = NULL
    deliveries.consumer[delivery] = consumer
    deliveries.frame_no[delivery] = frames.frame_no[row]
    deliveries.last_ns[delivery] = frames.last_ts_ns[row]
    is_timed = frames.status[row] in (COMPLETE, CUT_BY_SNAPLEN)
    deliveries.is_timed[delivery] = 1 if is_timed else 0
    deliveries.ledger[delivery] = frames.ledger_id[row]
    deliveries.entry[delivery] = frames.entry_id[row]
    deliveries.partition[delivery] = partition if partition >= 0 else NULL
    deliveries.batch_size[delivery] = messages if frames.is_batch[row] == 1 else NULL
    deliveries.messages[delivery] = messages
    deliveries.count[delivery] = cost
    deliveries.left[delivery] = cost
    deliveries.redelivery_count[delivery] = frames.redelivery_count[row]
    deliveries.deliver_at_ms[delivery] = frames.deliver_at_ms[row]
    deliveries.publish_time_ms[delivery] = frames.publish_time_ms[row]
    deliveries.checksum[delivery] = frames.checksum[row]
    deliveries.crc32c[delivery] = frames.crc32c_stored[row]
    deliveries.page[delivery] = ABSENT
    deliveries.superseded_at[delivery] = 0
    deliveries.word_block[delivery] = ABSENT
    deliveries.left_words[delivery] = 0
    deliveries.first[delivery] = ABSENT
    deliveries.last[delivery] = ABSENT
    deliveries.length[delivery] = 0
    deliveries.is_claimed[delivery] = 0
    deliveries.is_rolled_back[delivery] = 0
    deliveries.was_claimed[delivery] = 0


@kernel
def _store_ack_set(
    state: ConsumptionState, delivery: int, words: Int64Array, at: int, count: int
) -> bool:
    """Store the ack_set of a MESSAGE in the arena; False without room."""
    deliveries = state.deliveries
    needed = max(count, bitsets.words_for(deliveries.messages[delivery]))
    if needed > MAX_BATCH_WORDS:
        return False
    word_block = bitsets.allocate_words(state, count + 2 * needed)
    if word_block == ABSENT:
        return False
    target = bitsets.words_at(word_block)
    for word in range(count):
        state.words[target + word] = words[at + word]
    deliveries.word_block[delivery] = word_block
    deliveries.set_words[delivery] = count
    return True


@inlined
def append_delivery(state: ConsumptionState, consumer: int, delivery: int) -> None:
    """Append a delivery to its consumer's list, and note whether the ids still rise."""
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


@inlined
def open_delivery(
    state: ConsumptionState, context: PassContext, row: int, consumer: int, cost: int
) -> None:
    """Open the delivery of a MESSAGE. It ends at once if its ack_set finds no room."""
    frames = context.frames
    deliveries = state.deliveries
    if state.delivery_pool.free[0] > 0:
        pass
    elif state.lists.length[consumption_state.LIST_RELEASED] > 0:
        end_oldest_released(state, context, row)
    else:
        end_delivery(
            state,
            context,
            row,
            state.lists.first[consumption_state.LIST_AGES],
            enums.UNRESOLVED_AT_LIMIT,
        )
    delivery = allocate_row(state.delivery_pool)
    _fill(state, frames, row, consumer, delivery, cost)
    if has_identity(state, consumer, deliveries.ledger[delivery], deliveries.entry[delivery]):
        identify(state, context, row, consumer, delivery)
    elif deliveries.redelivery_count[delivery] > 0:
        deliveries.cause[delivery] = redelivery.cause_of_unseen(state, ABSENT, consumer, False)
    append_delivery(state, consumer, delivery)
    list_append(state.lists, state.ages, consumption_state.LIST_AGES, delivery)
    if cost == NULL:
        state.consumers.unread[consumer] += 1
    else:
        state.consumers.unacked[consumer] += cost
    count = frames.ack_set_count[row]
    if count > 0 and not _store_ack_set(
        state, delivery, context.words, frames.ack_set_at[row], count
    ):
        end_delivery(state, context, row, delivery, enums.UNRESOLVED_AT_LIMIT)
