"""What an ACK does to deliveries: which one an id means, and what is left of it."""

from typing import Final, NamedTuple

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import MAX_BATCH_WORDS, NULL
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import IdColumns
from dissector.protocols.pulsar.consumption.acks import masked_word
from dissector.protocols.pulsar.consumption.deliveries import has_identity, words_for
from dissector.protocols.pulsar.consumption.delivery_ends import end_delivery, take_words, words_at
from dissector.protocols.pulsar.consumption.identities import find_page, popcount
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows, Place, add_notice
from dissector.protocols.pulsar.consumption.state import (
    CLOCK,
    DELIVERIES_GIVEN_UP,
    END_BITS,
    END_IN_TRANSACTION,
    PAGE_ENTRIES,
    SPENT_STEPS,
    ConsumptionState,
)
from dissector.protocols.tables import ABSENT
from dissector.schemas.words import ACKED, DISCARDED, UNRESOLVED_AT_LIMIT

_NEGATIVE_DURATION: Final = NOTICE_NUMBER["negative_duration"]
# Steps of walks over lists that are not in order: so many, and so many more per frame.
_FREE_STEPS: Final = 1 << 22
_STEPS_PER_FRAME: Final = 64


@inlined
def find_open(state: ConsumptionState, group: int, guess: int, ledger: int, entry: int) -> int:
    """The last delivery of an id to a group, if it is open; else ABSENT."""
    if group == ABSENT or ledger < 0 or entry < 0:
        return ABSENT
    page = find_page(state, guess, state.groups.serial[group], ledger, entry)
    bit = entry & (PAGE_ENTRIES - 1)
    if page == ABSENT or (state.pages.known[page] >> bit) & 1 == 0:
        return ABSENT
    return int(state.cells.delivery[page * PAGE_ENTRIES + bit])


@kernel
def find_elsewhere(state: ConsumptionState, consumer: int, ledger: int, entry: int) -> int:
    """The open delivery that an id of a consumer means and that its group does not have."""
    local = state.consumers.local[consumer]
    if local != ABSENT:
        return find_open(state, local, ABSENT, ledger, entry)
    if has_identity(state, consumer, ledger, entry):
        return ABSENT
    # Ids that are all alike: one more of the consumer's messages is acked, the oldest stands for
    # it.
    oldest = state.consumers.first[consumer]
    deliveries = state.deliveries
    if (
        oldest != ABSENT
        and deliveries.page[oldest] == ABSENT
        and deliveries.is_superseded[oldest] == 0
        and deliveries.entry[oldest] == entry
        and deliveries.ledger[oldest] == ledger
    ):
        return int(oldest)
    return ABSENT


@inlined
def find_meant(state: ConsumptionState, consumer: int, ledger: int, entry: int) -> int:
    """The open delivery that an id of a consumer's frame means, whoever got it; else ABSENT."""
    guess = state.consumers.page[consumer]
    delivery = find_open(state, state.consumers.group[consumer], guess, ledger, entry)
    return find_elsewhere(state, consumer, ledger, entry) if delivery == ABSENT else delivery


@kernel
def _begin_left(state: ConsumptionState, delivery: int, bits: int) -> int:
    """Lay out the bits left of a delivery, all that came with it; returns words, ABSENT if none."""
    deliveries = state.deliveries
    set_words = max(deliveries.set_words[delivery], 0)
    count = words_for(bits)
    if set_words > 0:
        # So much room was kept with the ack_set.
        count = min(count, max(set_words, words_for(deliveries.messages[delivery])))
    if count > MAX_BATCH_WORDS:
        return ABSENT
    if set_words == 0:
        deliveries.piece[delivery] = take_words(state, count)
    if deliveries.piece[delivery] == ABSENT:
        return ABSENT
    first = words_at(deliveries.piece[delivery])
    for place in range(count):
        if set_words > 0:
            word = masked_word(state.words, first, set_words, place, bits)
        else:
            word = ~(-1 << (bits - 64 * place)) if bits - 64 * place < 64 else -1
        state.words[first + set_words + place] = word
    deliveries.left_words[delivery] = count
    return count


@kernel
def _narrow(
    state: ConsumptionState, delivery: int, ids: IdColumns, index: int, words: Int64Array
) -> int:
    """Take an ack_set over into what is left of a batch: bits that stay 1 in both.

    A client names in each ack the messages that it leaves, and may name some that an earlier ack
    took: only AND counts right. Returns the messages left, ABSENT where they cannot be kept.
    """
    deliveries = state.deliveries
    asked = ids.ack_set_count[index]
    bits = deliveries.messages[delivery]
    if bits == NULL:
        bits = ids.batch_size[index]
    if bits <= 0:
        bits = 64 * asked
    count = deliveries.left_words[delivery]
    if count == 0:
        count = _begin_left(state, delivery, bits)
        if count == ABSENT:
            return ABSENT
    base = words_at(deliveries.piece[delivery]) + max(deliveries.set_words[delivery], 0)
    left = 0
    for place in range(count):
        word = masked_word(words, ids.ack_set_at[index], asked, place, bits)
        word = word & state.words[base + place]
        state.words[base + place] = word
        left += popcount(word)
    return left


class Settlement(NamedTuple):
    """What an ACK says of all its ids: error (null: none), the packed transaction or ABSENT, and
    the time of its first byte in ns.
    """

    error: int
    transaction: int
    first_ns: int


@kernel
def _settle_part(
    state: ConsumptionState,
    delivery: int,
    ids: IdColumns,
    index: int,
    words: Int64Array,
    transaction: int,
) -> bool:
    """Take an ack_set; returns whether nothing is left. Without room the delivery ends."""
    deliveries = state.deliveries
    left = _narrow(state, delivery, ids, index, words)
    if left == ABSENT:
        end_delivery(state, delivery, UNRESOLVED_AT_LIMIT)
        return False
    if left == 0:
        return True
    before = deliveries.left[delivery]
    if before != NULL:
        left = min(left, before)
        state.consumers.unacked[deliveries.consumer[delivery]] -= before - left
        deliveries.left[delivery] = left
    if transaction != ABSENT:
        deliveries.transaction[delivery] = transaction
    return False


@inlined
def _settle(
    state: ConsumptionState,
    delivery: int,
    ack: Settlement,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """A delivery is acked as a whole, or discarded."""
    deliveries = state.deliveries
    deliveries.ack_frame_no[delivery] = place.frame_no
    if ack.error != NULL:
        end_delivery(state, delivery, DISCARDED)
        return
    page = deliveries.page[delivery]
    elapsed = ack.first_ns - deliveries.last_ns[delivery]
    if elapsed < 0:
        add_notice(state, out, _NEGATIVE_DURATION, place, NULL)
    elif page != ABSENT:
        deliveries.ack_latency_ns[delivery] = elapsed
    end_delivery(state, delivery, ACKED)
    if page != ABSENT and ack.transaction != ABSENT:
        cell = page * PAGE_ENTRIES + (deliveries.entry[delivery] & (PAGE_ENTRIES - 1))
        state.cells.end[cell] = END_IN_TRANSACTION | (ack.transaction << END_BITS)


@inlined
def settle_each(
    state: ConsumptionState,
    consumer: int,
    ack: Settlement,
    ids: IdColumns,
    start: int,
    end: int,
    words: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """Apply an individual ACK, ids from start to end."""
    for index in range(start, end):
        delivery = find_meant(state, consumer, ids.ledger_id[index], ids.entry_id[index])
        if delivery == ABSENT:
            continue
        is_part = ack.error == NULL and ids.ack_set_count[index] > 0
        if is_part and not _settle_part(state, delivery, ids, index, words, ack.transaction):
            continue
        _settle(state, delivery, ack, out, place)


@kernel
def settle_up_to(
    state: ConsumptionState,
    consumer: int,
    ack: Settlement,
    ids: IdColumns,
    index: int,
    words: Int64Array,
    out: ConsumptionRows,
    place: Place,
) -> None:
    """Apply a cumulative ACK: all open deliveries of the consumer up to its id."""
    deliveries = state.deliveries
    ledger = ids.ledger_id[index]
    entry = ids.entry_id[index]
    delivery = state.consumers.first[consumer]
    budget = _FREE_STEPS + _STEPS_PER_FRAME * state.counters[CLOCK]
    while delivery != ABSENT:
        following = deliveries.next[delivery]
        mine = deliveries.ledger[delivery]
        is_last = mine == ledger and deliveries.entry[delivery] == entry
        is_after = not is_last and (
            mine > ledger or (mine == ledger and deliveries.entry[delivery] > entry)
        )
        if is_after and state.consumers.is_ascending[consumer] == 1:
            return
        if is_after or deliveries.is_superseded[delivery] == 1:
            state.counters[SPENT_STEPS] += 1
            if state.counters[SPENT_STEPS] > budget:
                state.counters[DELIVERIES_GIVEN_UP] += 1
                return
        else:
            is_part = is_last and ack.error == NULL and ids.ack_set_count[index] > 0
            if not is_part or _settle_part(state, delivery, ids, index, words, ack.transaction):
                _settle(state, delivery, ack, out, place)
        delivery = following
