"""Batches that are acknowledged in part: the bits left of a delivery."""

from dissector.jit import kernel
from dissector.limits import MAX_BATCH_WORDS, NULL
from dissector.protocols.pulsar.consumption import bitsets
from dissector.protocols.pulsar.consumption.rows import PassContext
from dissector.protocols.pulsar.consumption.state import ConsumptionState
from dissector.tables import ABSENT


@kernel
def _allocate_left(state: ConsumptionState, delivery: int, bits: int) -> int:
    """Allocate the bits left of a delivery and set all; returns their words, ABSENT if no room."""
    deliveries = state.deliveries
    set_words = max(deliveries.set_words[delivery], 0)
    count = bitsets.words_for(bits)
    if set_words > 0:
        # `_store_ack_set` reserved this many words.
        count = min(count, max(set_words, bitsets.words_for(deliveries.messages[delivery])))
    if count > MAX_BATCH_WORDS:
        return ABSENT
    if set_words == 0:
        deliveries.word_block[delivery] = bitsets.allocate_words(state, 2 * count)
    if deliveries.word_block[delivery] == ABSENT:
        return ABSENT
    first = bitsets.words_at(deliveries.word_block[delivery])
    for word_index in range(count):
        if set_words > 0:
            word = bitsets.masked_word(state.words, first, set_words, word_index, bits)
        else:
            word = ~(-1 << (bits - 64 * word_index)) if bits - 64 * word_index < 64 else -1
        state.words[first + set_words + word_index] = word
        state.words[first + set_words + count + word_index] = word
    deliveries.left_words[delivery] = count
    return count


@kernel
def and_ack_set(
    state: ConsumptionState, context: PassContext, delivery: int, index: int, claim: int
) -> int:
    """AND an ack_set into the bits left of a batch.

    Each ack_set has the messages that it leaves unacknowledged, possibly some that an earlier ack
    acknowledged: only AND counts right. claim: also stores the bits, if not ABSENT. Returns the
    messages left, ABSENT if there is no room for the bits.
    """
    ids = context.ids
    deliveries = state.deliveries
    asked = ids.ack_set_count[index]
    bits = deliveries.messages[delivery]
    if bits == NULL:
        bits = ids.batch_size[index]
    if bits <= 0:
        bits = 64 * asked
    count = deliveries.left_words[delivery]
    if count == 0:
        count = _allocate_left(state, delivery, bits)
        if count == ABSENT:
            return ABSENT
    base = bitsets.words_at(deliveries.word_block[delivery]) + max(
        deliveries.set_words[delivery], 0
    )
    target = base + count  # bits that no decided ACK acknowledged
    if claim != ABSENT:
        state.claims.word_block[claim] = bitsets.allocate_words(state, count)
        if state.claims.word_block[claim] == ABSENT:
            return ABSENT
        target = bitsets.words_at(state.claims.word_block[claim])
    left = 0
    for word_index in range(count):
        word = bitsets.masked_word(context.words, ids.ack_set_at[index], asked, word_index, bits)
        named = word if claim != ABSENT else int(word) & int(state.words[target + word_index])
        state.words[target + word_index] = named
        word = int(word) & int(state.words[base + word_index])
        state.words[base + word_index] = word
        left += bitsets.popcount(word)
    return left


@kernel
def has_nothing_left(state: ConsumptionState, delivery: int) -> bool:
    """Whether the decided ACKs with ack_sets leave no message of a delivery."""
    count = state.deliveries.left_words[delivery]
    base = bitsets.words_at(state.deliveries.word_block[delivery])
    base += max(state.deliveries.set_words[delivery], 0) + count
    left = 0
    for word_index in range(count):
        left |= int(state.words[base + word_index])
    return left == 0
