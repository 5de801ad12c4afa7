"""Bit sets of one word and of several words, and the arena that stores those of deliveries."""

from typing import Final

from dissector.blocks import Int64Array
from dissector.codecs.integers import wrapped
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.pulsar.consumption.state import (
    WORD_CLASSES,
    WORDS_USED,
    ConsumptionState,
)
from dissector.tables import ABSENT

_CLASS_BITS: Final = 4  # of a word block: the size class in the low bits, the offset above


@inlined
def bit_of(index: int) -> int:
    """A bit set with one bit, as a signed number."""
    return wrapped(1 << int(index))


@inlined
def popcount(bits: int) -> int:
    """How many bits of a 64-bit word are set.

    In two halves: for the compiler, a sum that overflows into the sign bit is undefined (as one
    word, 64 bits counted as 62).
    """
    low = int(bits) & 0xFFFF_FFFF
    high = (int(bits) >> 32) & 0xFFFF_FFFF
    low = ((low >> 1) & 0x5555_5555) + (low & 0x5555_5555)
    high = ((high >> 1) & 0x5555_5555) + (high & 0x5555_5555)
    low = ((low >> 2) & 0x3333_3333) + (low & 0x3333_3333)
    high = ((high >> 2) & 0x3333_3333) + (high & 0x3333_3333)
    total = low + high  # up to 8 in each field of four bits
    total = ((total >> 4) & 0x0F0F_0F0F) + (total & 0x0F0F_0F0F)
    total += total >> 8
    total += total >> 16
    return total & 0x7F


@inlined
def masked_word(words: Int64Array, at: int, count: int, index: int, bits: int) -> int:
    """Word `index` of a bit set, zero after its end, without the bits from `bits` on.

    Trailing words that are zero are not on the wire. bits: length of the set, null: no limit.
    """
    if index >= count:
        return 0
    word = words[at + index]
    if bits == NULL:
        return int(word)
    left = bits - 64 * index
    if left >= 64:
        return int(word)
    return int(word & ~(-1 << left)) if left > 0 else 0


@inlined
def bits_left(words: Int64Array, at: int, count: int, bits: int) -> int:
    """How many bits of a bit set are set within its first `bits` bits (null: all)."""
    total = 0
    last = count if bits == NULL else min(count, (max(bits, 0) + 63) >> 6)
    for index in range(last):
        total += popcount(masked_word(words, at, count, index, bits))
    return total


@inlined
def words_for(bits: int) -> int:
    """Words of a bit set of so many bits; 0 for null."""
    return (bits + 63) >> 6 if bits > 0 else 0


@kernel
def allocate_words(state: ConsumptionState, words: int) -> int:
    """Allocate a block of words in the arena, packed with its size class; ABSENT if it is full."""
    size_class = 0
    while (1 << size_class) < words:
        size_class += 1
    if size_class >= WORD_CLASSES:
        return ABSENT
    at = state.free_words[size_class]
    if at != ABSENT:
        state.free_words[size_class] = state.words[at]
    else:
        at = state.counters[WORDS_USED]
        if (1 << size_class) > len(state.words) - at:
            return ABSENT
        state.counters[WORDS_USED] = at + (1 << size_class)
    return int((at << _CLASS_BITS) | size_class)


@inlined
def words_at(word_block: int) -> int:
    """Offset of a word block in the arena."""
    return word_block >> _CLASS_BITS


@kernel
def free_words(state: ConsumptionState, word_block: int) -> None:
    """Free a word block of `allocate_words`."""
    size_class = word_block & ((1 << _CLASS_BITS) - 1)
    at = words_at(word_block)
    state.words[at] = state.free_words[size_class]
    state.free_words[size_class] = at
