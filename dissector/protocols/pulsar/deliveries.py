"""Deliveries: from the MESSAGE that opens one to the ack, request or close that ends it.

A delivery is a message put in a client's queue; only its ack shows that it was consumed. Its
identity is (topic, subscription, ledger, entry), so an ack of any consumer of the subscription ends
it. When an id is delivered again while its delivery is still open, the ack counts for the latest
one; the older stays open, apart from identity, until its consumer goes.
"""

from typing import Final

from dissector.blocks import Int64Array
from dissector.codecs.integers import wrapped
from dissector.jit import inlined, kernel
from dissector.limits import MAX_BATCH_WORDS, NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import FrameColumns, IdColumns
from dissector.protocols.pulsar.acks import bits_left, masked_word
from dissector.protocols.pulsar.consumers import packed
from dissector.protocols.pulsar.consumption_rows import ConsumptionRows, Place, add_notice
from dissector.protocols.pulsar.consumption_state import (
    ACKED,
    CELL_DELIVERY,
    CELL_END,
    CELL_FRAME_NO,
    CELL_HOLDER,
    CLOCK,
    CONSUMER_ASCENDING,
    CONSUMER_GROUP,
    CONSUMER_LOCAL,
    CONSUMER_PAGE,
    CONSUMER_TOPIC,
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
    DELIVERY_IS_SUPERSEDED,
    DELIVERY_LAST_NS,
    DELIVERY_LEDGER,
    DELIVERY_LEFT,
    DELIVERY_LEFT_COUNT,
    DELIVERY_MESSAGES,
    DELIVERY_PAGE,
    DELIVERY_PARTITION,
    DELIVERY_PREVIOUS,
    DELIVERY_PUBLISHED_NS,
    DELIVERY_REDELIVERY_COUNT,
    DELIVERY_SET_COUNT,
    DELIVERY_TRANSACTION,
    DELIVERY_WORDS,
    DISCARDED,
    END_BITS,
    END_IN_TRANSACTION,
    END_OTHER,
    GROUP_HAS_IDENTITY,
    GROUP_SERIAL,
    PAGE_ENTRIES,
    PAGE_KNOWN,
    PAGE_OPEN,
    PAGE_SEEN,
    SPENT_STEPS,
    UNRESOLVED_AT_LIMIT,
    ConsumptionState,
)
from dissector.protocols.pulsar.delivery_ends import (
    end_delivery,
    take_words,
    words_at,
    write_ended,
)
from dissector.protocols.pulsar.identities import (
    add_page,
    bit_of,
    find_page,
    give_up_page,
    page_to_give_up,
    popcount,
)
from dissector.protocols.pulsar.published import leg_of, published_ns
from dissector.protocols.pulsar.redelivery import (
    cause_of_forgotten,
    cause_of_known,
    cause_of_unseen,
)
from dissector.protocols.tables import ABSENT, list_append, take_row

_NEGATIVE_DURATION: Final = NOTICE_NUMBER["negative_duration"]
# Steps of walks over lists that are not in order: so many, and so many more per frame.
_FREE_STEPS: Final = 1 << 22
_STEPS_PER_FRAME: Final = 64


@inlined
def message_cost(frames: FrameColumns, row: int, words: Int64Array) -> int:
    """Messages that a MESSAGE costs and brings; null where the metadata was not read.

    Pulsar: what the broker says itself, else the bits of the ack_set, one per message still to be
    acked, else the messages of the entry.
    """
    permits = frames.message_permits[row]
    if permits >= 0:
        return permits
    messages = frames.message_count[row]
    count = frames.ack_set_count[row]
    if count > 0:
        return bits_left(words, frames.ack_set_at[row], count, messages)
    return messages


@kernel
def free_page(state: ConsumptionState, out: ConsumptionRows, place: Place) -> None:
    """Give back a page of ids; deliveries that are open on it cannot be followed any more."""
    identities = state.identities
    page = page_to_give_up(identities)
    if identities.pages[page, PAGE_OPEN] > 0:
        for cell in range(PAGE_ENTRIES):
            if (identities.pages[page, PAGE_KNOWN] >> cell) & 1:
                delivery = identities.cells[page, cell, CELL_DELIVERY]
                if delivery != ABSENT:
                    end_delivery(state, delivery, UNRESOLVED_AT_LIMIT)
        write_ended(state, out, place)
    give_up_page(identities, state.consumers.groups, state.counters)


@kernel
def free_delivery(state: ConsumptionState, out: ConsumptionRows, place: Place) -> None:
    """Give up the oldest open delivery."""
    end_delivery(state, state.deliveries.age_ends.first[0], UNRESOLVED_AT_LIMIT)
    write_ended(state, out, place)


@inlined
def has_identity(state: ConsumptionState, consumer: int, ledger: int, entry: int) -> bool:
    """Whether an id tells one entry from another: not so where all are 0:0.

    That is so on topics that are not persistent, which only their name says.
    """
    group = state.consumers.rows[consumer, CONSUMER_GROUP]
    if group == ABSENT or ledger < 0 or entry < 0:
        return False
    if ledger == 0 and entry == 0 and state.consumers.rows[consumer, CONSUMER_TOPIC] == NULL:
        return False
    return bool(state.consumers.groups[group, GROUP_HAS_IDENTITY] != 0)


@inlined
def _identify(
    state: ConsumptionState, out: ConsumptionRows, consumer: int, delivery: int, place: Place
) -> None:
    """Enter a delivery under its id: whether it came before, when and why again."""
    rows = state.deliveries.rows
    identities = state.identities
    ledger = rows[delivery, DELIVERY_LEDGER]
    entry = rows[delivery, DELIVERY_ENTRY]
    group = state.consumers.rows[consumer, CONSUMER_GROUP]
    serial = state.consumers.groups[group, GROUP_SERIAL]
    guess = state.consumers.rows[consumer, CONSUMER_PAGE]
    page = find_page(identities, guess, serial, ledger, entry)
    if page == ABSENT:
        if identities.pool.free[0] == 0:
            free_page(state, out, place)
        page = add_page(identities, state.counters, group, serial, ledger, entry)
    state.consumers.rows[consumer, CONSUMER_PAGE] = page
    cell = entry & (PAGE_ENTRIES - 1)
    pages = identities.pages
    cells = identities.cells
    if (pages[page, PAGE_KNOWN] >> cell) & 1:
        rows[delivery, DELIVERY_PREVIOUS] = cells[page, cell, CELL_FRAME_NO]
        rows[delivery, DELIVERY_CAUSE] = cause_of_known(state, group, consumer, cells[page, cell])
        older = cells[page, cell, CELL_DELIVERY]
        if older != ABSENT:
            rows[older, DELIVERY_PAGE] = ABSENT
            rows[older, DELIVERY_IS_SUPERSEDED] = 1
            pages[page, PAGE_OPEN] -= 1
    elif (pages[page, PAGE_SEEN] >> cell) & 1:
        rows[delivery, DELIVERY_CAUSE] = cause_of_forgotten(state, group)
    elif rows[delivery, DELIVERY_REDELIVERY_COUNT] > 0:
        rows[delivery, DELIVERY_CAUSE] = cause_of_unseen(state, group)
    pages[page, PAGE_SEEN] = wrapped(int(pages[page, PAGE_SEEN]) | bit_of(cell))
    pages[page, PAGE_KNOWN] = wrapped(int(pages[page, PAGE_KNOWN]) | bit_of(cell))
    pages[page, PAGE_OPEN] += 1
    cells[page, cell, CELL_DELIVERY] = delivery
    cells[page, cell, CELL_FRAME_NO] = rows[delivery, DELIVERY_FRAME_NO]
    cells[page, cell, CELL_HOLDER] = packed(state.consumers.rows, consumer)
    cells[page, cell, CELL_END] = END_OTHER
    rows[delivery, DELIVERY_PAGE] = page


@inlined
def _fill(
    state: ConsumptionState, frames: FrameColumns, row: int, consumer: int, delivery: int, cost: int
) -> None:
    """What the frame itself says."""
    rows = state.deliveries.rows
    partition = frames.partition[row]
    messages = frames.message_count[row]
    rows[delivery, DELIVERY_CONSUMER] = consumer
    rows[delivery, DELIVERY_FRAME_NO] = frames.frame_no[row]
    rows[delivery, DELIVERY_LAST_NS] = frames.last_ts_ns[row]
    rows[delivery, DELIVERY_LEDGER] = frames.ledger_id[row]
    rows[delivery, DELIVERY_ENTRY] = frames.entry_id[row]
    rows[delivery, DELIVERY_PARTITION] = partition if partition >= 0 else NULL
    rows[delivery, DELIVERY_BATCH_SIZE] = messages if frames.is_batch[row] == 1 else NULL
    rows[delivery, DELIVERY_COUNT] = cost
    rows[delivery, DELIVERY_LEFT] = cost
    rows[delivery, DELIVERY_REDELIVERY_COUNT] = frames.redelivery_count[row]
    rows[delivery, DELIVERY_CAUSE] = NULL
    rows[delivery, DELIVERY_PREVIOUS] = NULL
    rows[delivery, DELIVERY_DELIVER_AT] = frames.deliver_at_ms[row]
    rows[delivery, DELIVERY_CHECKSUM] = frames.checksum[row]
    rows[delivery, DELIVERY_CRC] = frames.crc32c_stored[row]
    rows[delivery, DELIVERY_PAGE] = ABSENT
    rows[delivery, DELIVERY_WORDS] = ABSENT
    rows[delivery, DELIVERY_SET_COUNT] = NULL
    rows[delivery, DELIVERY_LEFT_COUNT] = 0
    rows[delivery, DELIVERY_MESSAGES] = messages
    rows[delivery, DELIVERY_TRANSACTION] = ABSENT
    rows[delivery, DELIVERY_ACK_FRAME] = NULL
    rows[delivery, DELIVERY_ACK_LATENCY] = NULL
    rows[delivery, DELIVERY_IS_SUPERSEDED] = 0


@kernel
def _keep_set(
    state: ConsumptionState, delivery: int, words: Int64Array, at: int, count: int
) -> bool:
    """Keep the ack_set that came with a message; False without room."""
    rows = state.deliveries.rows
    needed = max(count, _set_words(rows[delivery, DELIVERY_MESSAGES]))
    if needed > MAX_BATCH_WORDS:
        return False
    piece = take_words(state.deliveries, state.counters, count + needed)
    if piece == ABSENT:
        return False
    target = words_at(piece)
    for word in range(count):
        state.deliveries.words[target + word] = words[at + word]
    rows[delivery, DELIVERY_WORDS] = piece
    rows[delivery, DELIVERY_SET_COUNT] = count
    return True


@inlined
def _set_words(bits: int) -> int:
    """Words of a bit set of so many bits; 0 for null."""
    return (bits + 63) >> 6 if bits > 0 else 0


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
) -> int:
    """Open the delivery of a MESSAGE; returns whether it can be followed."""
    tables = state.deliveries
    if tables.pool.free[0] == 0:
        free_delivery(state, out, place)
    delivery = take_row(tables.pool)
    _fill(state, frames, row, consumer, delivery, cost)
    rows = tables.rows
    ledger = rows[delivery, DELIVERY_LEDGER]
    entry = rows[delivery, DELIVERY_ENTRY]
    consumers = state.consumers.rows
    rows[delivery, DELIVERY_PUBLISHED_NS] = NULL
    if has_identity(state, consumer, ledger, entry):
        _identify(state, out, consumer, delivery, place)
        leg = leg_of(state.published, place.connection)
        topic = consumers[consumer, CONSUMER_TOPIC]
        rows[delivery, DELIVERY_PUBLISHED_NS] = published_ns(
            state.published, topic, ledger, entry, leg
        )
    elif rows[delivery, DELIVERY_REDELIVERY_COUNT] > 0:
        rows[delivery, DELIVERY_CAUSE] = cause_of_unseen(state, ABSENT)
    last = tables.ends.last[consumer]
    if last != ABSENT:
        behind = rows[last, DELIVERY_LEDGER]
        if behind > ledger or (behind == ledger and rows[last, DELIVERY_ENTRY] > entry):
            consumers[consumer, CONSUMER_ASCENDING] = 0
    list_append(tables.ends, tables.links, consumer, delivery)
    list_append(tables.age_ends, tables.age_links, 0, delivery)
    if cost == NULL:
        consumers[consumer, CONSUMER_UNKNOWN_COSTS] += 1
    else:
        consumers[consumer, CONSUMER_UNACKED] += cost
    count = frames.ack_set_count[row]
    is_kept = True
    if count > 0:
        is_kept = _keep_set(state, delivery, words, frames.ack_set_at[row], count)
    if not is_kept:
        end_delivery(state, delivery, UNRESOLVED_AT_LIMIT)
    return is_kept


@inlined
def find_open(state: ConsumptionState, group: int, guess: int, ledger: int, entry: int) -> int:
    """The last delivery of an id to a group, if it is open; else ABSENT."""
    if group == ABSENT or ledger < 0 or entry < 0:
        return ABSENT
    identities = state.identities
    serial = state.consumers.groups[group, GROUP_SERIAL]
    page = find_page(identities, guess, serial, ledger, entry)
    place = entry & (PAGE_ENTRIES - 1)
    if page == ABSENT or (identities.pages[page, PAGE_KNOWN] >> place) & 1 == 0:
        return ABSENT
    return identities.cells[page, place, CELL_DELIVERY]


@kernel
def find_acked(state: ConsumptionState, consumer: int, ledger: int, entry: int) -> int:
    """The open delivery that an id of an ACK means, whoever got it; else ABSENT."""
    rows = state.consumers.rows
    group = rows[consumer, CONSUMER_GROUP]
    delivery = find_open(state, group, rows[consumer, CONSUMER_PAGE], ledger, entry)
    if delivery == ABSENT and rows[consumer, CONSUMER_LOCAL] != ABSENT:
        delivery = find_open(state, rows[consumer, CONSUMER_LOCAL], ABSENT, ledger, entry)
    if delivery == ABSENT and not has_identity(state, consumer, ledger, entry):
        # Ids that are all alike: one more of the consumer's messages is acked, the oldest stands
        # for it.
        oldest = state.deliveries.ends.first[consumer]
        if oldest != ABSENT and state.deliveries.rows[oldest, DELIVERY_PAGE] == ABSENT:
            alike = state.deliveries.rows[oldest, DELIVERY_ENTRY] == entry
            if alike and state.deliveries.rows[oldest, DELIVERY_LEDGER] == ledger:
                return oldest
    return delivery


@kernel
def _narrow(
    state: ConsumptionState, delivery: int, ids: IdColumns, index: int, words: Int64Array
) -> int:
    """Take an ack_set over into what is left of a batch: bits that stay 1 in both.

    A client names in each ack the messages that it leaves, and may name some that an earlier ack
    took: only AND counts right. Returns the messages left, ABSENT where they cannot be kept.
    """
    tables = state.deliveries
    rows = tables.rows
    bits = rows[delivery, DELIVERY_MESSAGES]
    if bits == NULL:
        bits = ids.batch_size[index]
    if bits <= 0:
        bits = 64 * ids.ack_set_count[index]
    count = rows[delivery, DELIVERY_LEFT_COUNT]
    set_count = max(rows[delivery, DELIVERY_SET_COUNT], 0)
    is_new = count == 0
    if is_new:
        count = _set_words(bits)
        if set_count > 0:
            # _keep_set made room for so many.
            count = min(count, max(set_count, _set_words(rows[delivery, DELIVERY_MESSAGES])))
        if count > MAX_BATCH_WORDS:
            return ABSENT
        if set_count == 0:
            rows[delivery, DELIVERY_WORDS] = take_words(tables, state.counters, count)
        if rows[delivery, DELIVERY_WORDS] == ABSENT:
            return ABSENT
        rows[delivery, DELIVERY_LEFT_COUNT] = count
        rows[delivery, DELIVERY_MESSAGES] = bits
    first = words_at(rows[delivery, DELIVERY_WORDS])
    base = first + set_count
    left = 0
    for place in range(count):
        if not is_new:
            word = tables.words[base + place]
        elif set_count > 0:
            word = masked_word(tables.words, first, set_count, place, bits)
        else:
            word = bit_of(bits - 64 * place) - 1 if bits - 64 * place < 64 else -1
        asked = ids.ack_set_count[index]
        word = word & masked_word(words, ids.ack_set_at[index], asked, place, bits)
        tables.words[base + place] = word
        left += popcount(word)
    return left


@inlined
def settle(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    delivery: int,
    index: int,
    ids: IdColumns,
    words: Int64Array,
    transaction: int,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """Apply one id of an ACK to the delivery it means; index ABSENT: the whole entry."""
    rows = state.deliveries.rows
    if frames.validation_error[row] != NULL:
        rows[delivery, DELIVERY_ACK_FRAME] = frames.frame_no[row]
        end_delivery(state, delivery, DISCARDED)
        return
    if index != ABSENT and ids.ack_set_count[index] > 0:
        left = _narrow(state, delivery, ids, index, words)
        if left == ABSENT:
            end_delivery(state, delivery, UNRESOLVED_AT_LIMIT)
            return
        if left > 0:
            consumer = rows[delivery, DELIVERY_CONSUMER]
            before = rows[delivery, DELIVERY_LEFT]
            if before != NULL:
                left = min(left, before)
                state.consumers.rows[consumer, CONSUMER_UNACKED] -= before - left
                rows[delivery, DELIVERY_LEFT] = left
            if transaction != ABSENT:
                rows[delivery, DELIVERY_TRANSACTION] = transaction
            return
    rows[delivery, DELIVERY_ACK_FRAME] = frames.frame_no[row]
    elapsed = frames.first_ts_ns[row] - rows[delivery, DELIVERY_LAST_NS]
    if elapsed >= 0:
        rows[delivery, DELIVERY_ACK_LATENCY] = elapsed
    else:
        add_notice(out, state.counters, _NEGATIVE_DURATION, place, NULL)
    end_delivery(state, delivery, ACKED)
    page = rows[delivery, DELIVERY_PAGE]
    if page == ABSENT:
        rows[delivery, DELIVERY_ACK_LATENCY] = NULL
    elif transaction != ABSENT:
        cell = rows[delivery, DELIVERY_ENTRY] & (PAGE_ENTRIES - 1)
        end = END_IN_TRANSACTION | (transaction << END_BITS)
        state.identities.cells[page, cell, CELL_END] = end


@kernel
def settle_up_to(
    state: ConsumptionState,
    frames: FrameColumns,
    row: int,
    consumer: int,
    index: int,
    ids: IdColumns,
    words: Int64Array,
    transaction: int,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """Apply a cumulative ACK: all open deliveries of the consumer up to its id."""
    tables = state.deliveries
    rows = tables.rows
    ledger = ids.ledger_id[index]
    entry = ids.entry_id[index]
    delivery = tables.ends.first[consumer]
    budget = _FREE_STEPS + _STEPS_PER_FRAME * state.counters[CLOCK]
    while delivery != ABSENT:
        following = tables.links.next[delivery]
        mine = rows[delivery, DELIVERY_LEDGER]
        is_last = mine == ledger and rows[delivery, DELIVERY_ENTRY] == entry
        is_before = mine < ledger or (mine == ledger and rows[delivery, DELIVERY_ENTRY] < entry)
        is_after = not is_last and not is_before
        if is_after and state.consumers.rows[consumer, CONSUMER_ASCENDING] == 1:
            return
        if is_after or rows[delivery, DELIVERY_IS_SUPERSEDED] == 1:
            state.counters[SPENT_STEPS] += 1
            if state.counters[SPENT_STEPS] > budget:
                state.counters[DELIVERIES_GIVEN_UP] += 1
                return
        else:
            which = index if is_last else ABSENT
            settle(
                state, frames, row, delivery, which, ids, words, transaction, out, place
            )
        delivery = following
