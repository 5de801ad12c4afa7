"""Pulsar frames with other names and noise for payloads, at equal length: kernels.

Numbers, flags and enums stay, so a frame reads as before but for texts and bytes. What is done to
a field is in a plan by message and field number (`anonymize` makes it). Noise follows from the
stored checksum of the entry (or, without one, from the bytes), under a key: copies of an entry stay
equal, and a damaged copy differs from the good one in one byte again. A right checksum is right
again, a wrong one wrong.

What kernels cannot do is listed for Python: sentences that may name something, and compressed
payloads of batches.
"""

import enum
from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.compression import Codec
from dissector.codecs.crc32c import crc32c
from dissector.codecs.integers import be16, be32, varint
from dissector.codecs.siphash import fill_noise, following, siphash
from dissector.jit import kernel
from dissector.protocols.pseudonyms import WordState, has_word_room, rename, rename_words
from dissector.protocols.pulsar.wire.commands import MESSAGE, SEND
from dissector.protocols.pulsar.wire.headers import MAGIC_BROKER_ENTRY, MAGIC_CHECKSUM
from dissector.states import State


class Treatment(enum.IntEnum):
    """What is done to a field of bytes or text."""

    HIDE = 0  # noise that follows from what was there; what is in no description
    KEEP = 1
    NAME = 2
    WORDS = 3
    STARS = 4
    SENTENCE = 5
    DESCEND = 6  # above it, shifted: the message that the field holds
    PAIR = 7  # a KeyValue: some keys are Pulsar's own
    VERSION = 9  # of a program, or the name of a method: words that are known stay
    SHORT = 10  # a number in bytes stays, what is longer does not


SHIFT: Final = 8
FIELDS: Final = 256  # numbers of fields that a plan knows

# Columns of what is left to Python.
LEFT_KIND: Final = 0  # SENTENCE, VERSION or PACKED
LEFT_START: Final = 1
LEFT_END: Final = 2
LEFT_CODEC: Final = 3
LEFT_SIZE: Final = 4  # uncompressed
LEFT_SEED: Final = 5
LEFT_STORED: Final = 6  # offset of the checksum, -1 for none
LEFT_COVERED: Final = 7  # what it covers ends at LEFT_END
LEFT_WRONG: Final = 8  # 1: it was wrong
LEFT_CELLS: Final = 9
PACKED: Final = 64

# Cells of a state's `at`.
NEXT: Final = 0  # frame to go on with
LEFT: Final = 1  # rows of what is left so far

_STAR: Final = 0x2A
_NUMBER_BYTES: Final = 9
_LONGEST_STACK: Final = 32
# Fields of MessageMetadata and SingleMessageMetadata that decide how a payload is read.
_COMPRESSION: Final = 8
_UNCOMPRESSED_SIZE: Final = 9
_BATCH: Final = 11
_ENCRYPTION_KEYS: Final = 13
_PAYLOAD_SIZE: Final = 3


class AnonymizerState(State):
    """plan: int64[messages, FIELDS]; known: int64[n, 2], hash of a key that stays, and what is done
    to its value; noise_key: int64[2]; scratch: uint8[24]; stack: int64[64]; at: int64[2];
    left: int64[rows, LEFT_CELLS]; roots: int64[4], the messages that frames hold."""

    plan: Int64Array
    known: Int64Array
    noise_key: Int64Array
    scratch: ByteArray
    stack: Int64Array
    at: Int64Array
    left: Int64Array
    roots: Int64Array


ROOT_COMMAND: Final = 0
ROOT_METADATA: Final = 1
ROOT_SINGLE: Final = 2


@kernel
def _content_seed(data: ByteArray, start: int, end: int, state: AnonymizerState) -> int:
    return siphash(state.noise_key[0], state.noise_key[1], data, start, end)


@kernel
def _numbered_seed(seed: int, number: int, size: int, state: AnonymizerState) -> int:
    """A seed from numbers."""
    scratch = state.scratch
    for index in range(8):
        scratch[index] = (seed >> (8 * index)) & 0xFF
        scratch[8 + index] = (number >> (8 * index)) & 0xFF
        scratch[16 + index] = (size >> (8 * index)) & 0xFF
    return siphash(state.noise_key[0], state.noise_key[1], scratch, 0, 24)


@kernel
def _hide(data: ByteArray, start: int, end: int, state: AnonymizerState) -> None:
    if start < end:
        fill_noise(data, start, end, _content_seed(data, start, end, state))


@kernel
def _leave(state: AnonymizerState, kind: int, start: int, end: int) -> int:
    """A row for Python; the caller of the pass has seen to the room."""
    row = state.at[LEFT]
    for cell in range(LEFT_CELLS):
        state.left[row, cell] = 0
    state.left[row, LEFT_KIND] = kind
    state.left[row, LEFT_START] = start
    state.left[row, LEFT_END] = end
    state.left[row, LEFT_STORED] = -1
    state.at[LEFT] = row + 1
    return int(row)


@kernel
def _pair(data: ByteArray, start: int, end: int, state: AnonymizerState, words: WordState) -> None:
    """A KeyValue: key and value are names, but for keys that Pulsar itself sets."""
    at = start
    action = Treatment.WORDS
    while at < end:
        tag = varint(data, at, end)
        if tag.next < 0 or tag.value & 7 != 2:
            _hide(data, at, end, state)
            return
        size = varint(data, tag.next, end)
        if size.next < 0 or size.value < 0 or size.value > end - size.next:
            _hide(data, tag.next, end, state)
            return
        first = size.next
        at = first + size.value
        if tag.value >> 3 == 1:
            digest = siphash(words.key[0], words.key[1], data, first, at)
            action = Treatment.WORDS
            for row in range(len(state.known)):
                if state.known[row, 0] == digest:
                    action = state.known[row, 1]
            if action == Treatment.WORDS:
                rename_words(data, first, at, words)
        elif tag.value >> 3 == 2:
            if action != Treatment.KEEP:
                rename(data, first, at, words)
        else:
            _hide(data, first, at, state)


@kernel
def anonymize_message(
    data: ByteArray, start: int, end: int, message: int, state: AnonymizerState, words: WordState
) -> None:
    """Treat the fields of a protobuf message in data[start:end]."""
    stack = state.stack
    depth = 0
    at = start
    while True:
        if at >= end:
            if depth == 0:
                return
            depth -= 1
            end = stack[2 * depth]
            message = stack[2 * depth + 1]
            continue
        tag = varint(data, at, end)
        if tag.next < 0:
            _hide(data, at, end, state)
            at = end
            continue
        kind = tag.value & 7
        number = tag.value >> 3
        if kind == 0:
            value = varint(data, tag.next, end)
            at = end if value.next < 0 else value.next
        elif kind == 1:
            at = tag.next + 8
        elif kind == 5:
            at = tag.next + 4
        elif kind != 2:
            _hide(data, tag.next, end, state)
            at = end
        else:
            size = varint(data, tag.next, end)
            if size.next < 0 or size.value < 0 or size.value > end - size.next:
                # Cut: what there is of it cannot be read.
                _hide(data, tag.next if size.next < 0 else size.next, end, state)
                at = end
                continue
            first = size.next
            at = first + size.value
            plan = state.plan[message, number] if 0 < number < FIELDS else Treatment.HIDE
            action = plan & ((1 << SHIFT) - 1)
            if action == Treatment.DESCEND and depth < _LONGEST_STACK - 1:
                stack[2 * depth] = end
                stack[2 * depth + 1] = message
                # Behind the message its parent goes on at its own end.
                depth += 1
                message = plan >> SHIFT
                end = at
                at = first
            elif action == Treatment.PAIR:
                _pair(data, first, at, state, words)
            elif action == Treatment.NAME:
                rename(data, first, at, words)
            elif action == Treatment.WORDS:
                rename_words(data, first, at, words)
            elif action == Treatment.STARS:
                for offset in range(first, at):
                    data[offset] = _STAR
            elif action in (Treatment.SENTENCE, Treatment.VERSION):
                _leave(state, action, first, at)
            elif action != Treatment.KEEP and (
                action != Treatment.SHORT or size.value > _NUMBER_BYTES
            ):
                _hide(data, first, at, state)


@kernel
def anonymize_batch(
    data: ByteArray, start: int, end: int, seed: int, state: AnonymizerState, words: WordState
) -> None:
    """Messages of a batch that is not compressed: what describes them, and noise for the rest."""
    at = start
    number = 1
    while at + 4 <= end:
        first = at + 4
        stop = first + be32(data, at)
        if stop > end:
            break
        size = _number_in(data, first, stop, _PAYLOAD_SIZE, -1)
        if size < 0:
            break
        anonymize_message(data, first, stop, state.roots[ROOT_SINGLE], state, words)
        at = min(stop + size, end)
        fill_noise(data, stop, at, _numbered_seed(seed, number, at - stop, state))
        number += 1
    if at < end:
        fill_noise(data, at, end, _numbered_seed(seed, 0, end - at, state))


@kernel
def _number_in(data: ByteArray, at: int, end: int, number: int, missing: int) -> int:
    """The last value of a numeric field; of a field of bytes, that it is there: 1."""
    content = missing
    while at < end:
        tag = varint(data, at, end)
        if tag.next < 0:
            break
        kind = tag.value & 7
        at = tag.next
        if kind == 0 or kind == 2:
            value = varint(data, at, end)
            if value.next < 0:
                break
            at = value.next
            if kind == 2:
                if value.value < 0 or value.value > end - at:
                    break
                at += value.value
            if tag.value >> 3 == number:
                content = value.value if kind == 0 else 1
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        else:
            break
    return content


@kernel
def seal(data: ByteArray, stored_at: int, covered: int, end: int, is_wrong: int) -> None:
    """Put the right checksum of data[covered:end]; then, where it was wrong, change a byte."""
    value = crc32c(data, covered, end - covered)
    data[stored_at] = (value >> 24) & 0xFF
    data[stored_at + 1] = (value >> 16) & 0xFF
    data[stored_at + 2] = (value >> 8) & 0xFF
    data[stored_at + 3] = value & 0xFF
    if is_wrong:
        # The last byte is of the payload; a checksum finds every single wrong byte.
        data[end - 1] = (data[end - 1] ^ 0x55) & 0xFF


@kernel
def _entry(
    data: ByteArray, at: int, end: int, is_whole: int, state: AnonymizerState, words: WordState
) -> None:
    """What stands behind the command of a SEND or MESSAGE."""
    if at + 6 <= end and be16(data, at) == MAGIC_BROKER_ENTRY:
        at = min(at + 6 + be32(data, at + 2), end)
    stored_at = -1
    is_wrong = 0
    seed = 0
    if at + 6 <= end and be16(data, at) == MAGIC_CHECKSUM:
        stored_at = at + 2
        at += 6
        stored = be32(data, stored_at)
        if is_whole:
            is_wrong = int(crc32c(data, at, end - at) != stored)
        seed = _numbered_seed(stored, 0, 0, state)
    elif at < end:
        seed = _content_seed(data, at, end, state)
    covered = at
    if at + 4 > end:
        if stored_at >= 0 or at < end:
            _cut(data, stored_at, at, end, seed, state)
        return
    first = at + 4
    stop = first + be32(data, at)
    if stop > end:
        anonymize_message(data, first, end, state.roots[ROOT_METADATA], state, words)
        _cut(data, stored_at, end, end, seed, state)
        return
    codec = _number_in(data, first, stop, _COMPRESSION, Codec.NONE)
    size = _number_in(data, first, stop, _UNCOMPRESSED_SIZE, 0)
    is_batch = _number_in(data, first, stop, _BATCH, -1) >= 0
    is_encrypted = _number_in(data, first, stop, _ENCRYPTION_KEYS, 0)
    anonymize_message(data, first, stop, state.roots[ROOT_METADATA], state, words)
    if is_batch and not is_encrypted and codec == Codec.NONE:
        anonymize_batch(data, stop, end, seed, state, words)
    elif is_batch and not is_encrypted and is_whole and stop < end:
        row = _leave(state, PACKED, stop, end)
        left = state.left
        left[row, LEFT_CODEC] = codec
        left[row, LEFT_SIZE] = size
        left[row, LEFT_SEED] = seed
        left[row, LEFT_STORED] = stored_at
        left[row, LEFT_COVERED] = covered
        left[row, LEFT_WRONG] = is_wrong
        return
    else:
        fill_noise(data, stop, end, _numbered_seed(seed, 1, 0, state))
    if is_whole and stored_at >= 0:
        seal(data, stored_at, covered, end, is_wrong)
    else:
        _cut(data, stored_at, end, end, seed, state)


@kernel
def _cut(
    data: ByteArray, stored_at: int, start: int, end: int, seed: int, state: AnonymizerState
) -> None:
    """The end of what there is of an entry: of the rest nothing is known, nor its checksum."""
    fill_noise(data, start, end, _numbered_seed(seed, 2, end - start, state))
    if stored_at >= 0 and stored_at + 4 <= end:
        value = following(seed, 0)
        for index in range(4):
            data[stored_at + index] = (value >> (8 * index)) & 0xFF


@kernel
def anonymize_frames(
    data: ByteArray,
    starts: Int64Array,
    sizes: Int64Array,
    ends: Int64Array,
    state: AnonymizerState,
    words: WordState,
) -> int:
    """Treat frames, from state.at[NEXT] on, of which data[start:end] is there.

    Returns:
        1 if all are done; 0 if there is no room for what is left to Python.
    """
    for row in range(state.at[NEXT], len(starts)):
        state.at[NEXT] = row
        start = starts[row]
        stop = ends[row]
        is_whole = int(start + sizes[row] == stop)
        # A field of a sentence takes two bytes at least; a command has few of them.
        if len(state.left) - state.at[LEFT] < 1024 or not has_word_room(words, stop - start):
            return 0
        if stop - start < 9:
            continue
        after = min(start + 8 + be32(data, start + 4), stop)
        command = varint(data, start + 9, after) if after > start + 9 else varint(data, 0, 0)
        anonymize_message(data, start + 8, after, state.roots[ROOT_COMMAND], state, words)
        if after < stop:
            if command.next > 0 and command.value in (SEND, MESSAGE):
                _entry(data, after, stop, is_whole, state, words)
            else:
                _hide(data, after, stop, state)
    state.at[NEXT] = len(starts)
    return 1
