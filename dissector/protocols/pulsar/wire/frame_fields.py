"""Find the texts, bytes and payloads in Pulsar frames, for the code that hides or replaces them.

A plan, built from `contents`, gives the kind of each field by message and field number. A frame has
rows in order of its bytes. `anonymize` and `secret_fields` replace the bytes of rows; only noise
and checksums are written here (`finish`). Noise is derived under a key from the stored checksum of
the entry (without one, from the bytes): copies of an entry stay equal, and a damaged copy differs
from the good one in one byte again. A right checksum is right again, a wrong one wrong.
"""

import enum
from collections.abc import Iterator
from functools import cache
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.compression import Codec
from dissector.codecs.crc32c import crc32c
from dissector.codecs.integers import be16, be32, varint
from dissector.codecs.siphash import SipHashKey, fill_noise, following, siphash, siphash_of_row
from dissector.jit import inlined, kernel
from dissector.protobuf.descriptors import Field, descriptors
from dissector.protocols.pulsar.wire import contents
from dissector.protocols.pulsar.wire.commands import MESSAGE, SEND
from dissector.protocols.pulsar.wire.headers import MAGIC_BROKER_ENTRY, MAGIC_CHECKSUM
from dissector.states import State


class Kind(enum.IntEnum):
    """The kind of a row; up to SHORT also of a field in a plan."""

    HIDE = 0  # bytes that must be hidden; unknown fields
    KEEP = 1  # numbers: no row
    NAME = 2
    KEY = 3  # of a KeyValue
    VALUE = 4
    STARS = 5  # a secret
    SENTENCE = 6
    VERSION = 7  # of a program, or the name of a method: words that are known stay
    DESCEND = 8  # in the bits above, shifted: the message in the field; no row
    SHORT = 9  # a number as bytes: no row; a longer value is HIDE
    BROKEN = 16  # the rest of a message that cannot be parsed
    PAYLOAD = 17  # of a message
    ITEM = 18  # payload of a message of a batch
    ENCRYPTED = 19
    PACKED = 20  # compressed payload
    REST = 21  # the rest of an entry that cannot be parsed
    CHECKSUM = 22  # START: of the checksum, END: of the bytes that it covers


SHIFT: Final = 8
FIELDS: Final = 256  # numbers of fields that a plan knows
# Cells of a row.
KIND: Final = 0
START: Final = 1
END: Final = 2
FIELD: Final = 3  # message and, shifted, number of the field; -1 for none
# Of a field the end of its message; of CHECKSUM the start of the bytes that it covers; of PACKED
# whether it is a whole batch; of REST the start of bytes to be hidden as a whole, 0 if none are.
WITHIN: Final = 4
SEED: Final = 5  # of noise
CODEC: Final = 6  # of PACKED; of PAYLOAD 1 if it continues another frame's; of CHECKSUM a Sum
SIZE: Final = 7  # of PACKED, decompressed
CELLS: Final = 8


class Sum(enum.IntEnum):
    """The result of verifying a checksum."""

    RIGHT = 0
    WRONG = 1
    UNKNOWN = 2  # bytes that it covers are missing


NEXT: Final = 0  # cell of a state's `at`: the frame that is handled next
ROWS: Final = 1  # rows so far

_ROOTS: Final = ("BaseCommand", "MessageMetadata", "SingleMessageMetadata")
ROOT_COMMAND: Final = 0
ROOT_METADATA: Final = 1
ROOT_SINGLE: Final = 2
_TOO_MANY: Final = 1 << 29  # protobuf's field numbers are smaller
_NUMBER_BYTES: Final = 9
_LONGEST_STACK: Final = 32
_MORE_ROWS: Final = 8  # of a frame, in addition to one per two bytes
# Fields of MessageMetadata and SingleMessageMetadata that decide how a payload is parsed, and the
# required ones.
_PRODUCER: Final = 1
_SEQUENCE: Final = 2
_PUBLISHED: Final = 3
_COMPRESSION: Final = 8
_UNCOMPRESSED_SIZE: Final = 9
_BATCH: Final = 11
_ENCRYPTION_KEYS: Final = 13
_CHUNK: Final = 29
_PAYLOAD_SIZE: Final = 3


class FieldState(State):
    """plan: int64[messages, FIELDS]; key: int64[2], of noise; numbers: int64[1, 3]; stack:
    int64[64]; at: int64[2]; rows: int64[rows, CELLS]; roots: int64[3], the messages that frames
    hold."""

    plan: Int64Array
    key: Int64Array
    numbers: Int64Array
    stack: Int64Array
    at: Int64Array
    rows: Int64Array
    roots: Int64Array


@inlined
def _content_seed(data: ByteArray, start: int, end: int, state: FieldState) -> int:
    return siphash(state.key[0], state.key[1], data, start, end)


@inlined
def _numbered_seed(seed: int, number: int, size: int, state: FieldState) -> int:
    """A seed of noise derived from numbers."""
    numbers = state.numbers
    numbers[0, 0], numbers[0, 1], numbers[0, 2] = seed, number, size
    return siphash_of_row(state.key[0], state.key[1], numbers, 0)


@kernel
def _add(state: FieldState, kind: int, start: int, end: int, seed: int) -> int:
    """Add a row if it is not empty; return its number. The caller has reserved room."""
    row = int(state.at[ROWS])
    rows = state.rows
    if start < end:
        for cell in range(CELLS):
            rows[row, cell] = 0
        rows[row, KIND] = kind
        rows[row, START] = start
        rows[row, END] = end
        rows[row, FIELD] = -1
        rows[row, SEED] = seed
        state.at[ROWS] = row + 1
    return row


@kernel
def _find_fields(data: ByteArray, start: int, end: int, message: int, state: FieldState) -> None:
    """Add the rows of the fields of a protobuf message in data[start:end]."""
    stack = state.stack
    depth = 0
    at = start
    while True:
        if at >= end:
            if depth == 0:
                return
            # The message ends: continue with its parent.
            depth -= 1
            end = stack[2 * depth]
            message = stack[2 * depth + 1]
            continue
        tag = varint(data, at, end)
        kind = tag.value & 7
        number = tag.value >> 3
        if tag.next < 0 or kind in (3, 4, 6, 7) or not 0 < number < _TOO_MANY:
            _add(state, Kind.BROKEN, at, end, 0)
            at = end
        elif kind != 2:
            at = tag.next + (8 if kind == 1 else 4)
            if kind == 0:
                at = varint(data, tag.next, end).next
            if at < 0 or at > end:
                _add(state, Kind.BROKEN, tag.next, end, 0)
                at = end
        else:
            size = varint(data, tag.next, end)
            if size.next < 0 or size.value < 0 or size.value > end - size.next:
                # Cut: the remaining bytes cannot be parsed.
                _add(state, Kind.BROKEN, tag.next if size.next < 0 else size.next, end, 0)
                at = end
                continue
            first = size.next
            at = first + size.value
            plan = state.plan[message, number] if number < FIELDS else Kind.HIDE
            action = plan & ((1 << SHIFT) - 1)
            if action == Kind.DESCEND and depth < _LONGEST_STACK - 1:
                stack[2 * depth] = end
                stack[2 * depth + 1] = message
                depth += 1
                message = plan >> SHIFT
                end = at
                at = first
            elif action != Kind.KEEP and (action != Kind.SHORT or size.value > _NUMBER_BYTES):
                is_plain = action in (Kind.DESCEND, Kind.SHORT)
                row = _add(state, Kind.HIDE if is_plain else action, first, at, 0)
                state.rows[row, FIELD] = message << SHIFT | (number if number < FIELDS else 0)
                state.rows[row, WITHIN] = end


@kernel
def _find_messages(data: ByteArray, start: int, end: int, seed: int, state: FieldState) -> None:
    """Add the rows of an uncompressed batch: metadata fields of its messages, and payloads."""
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
        _find_fields(data, first, stop, state.roots[ROOT_SINGLE], state)
        at = min(stop + size, end)
        _add(state, Kind.ITEM, stop, at, _numbered_seed(seed, number, at - stop, state))
        number += 1
    _add(state, Kind.REST, at, end, _numbered_seed(seed, 0, end - at, state))


@kernel
def _number_in(data: ByteArray, at: int, end: int, number: int, missing: int) -> int:
    """The last value of a numeric field, 1 for a field of bytes; `missing` if there is none."""
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
def _find_entry(data: ByteArray, at: int, end: int, is_whole: int, state: FieldState) -> None:
    """Add the rows of the bytes behind the command of a SEND or MESSAGE."""
    if at + 6 <= end and be16(data, at) == MAGIC_BROKER_ENTRY:
        at = min(at + 6 + be32(data, at + 2), end)
    stored_at = -1
    checksum_state = Sum.UNKNOWN
    seed = 0
    if at + 6 <= end and be16(data, at) == MAGIC_CHECKSUM:
        stored_at = at + 2
        at += 6
        stored = be32(data, stored_at)
        if is_whole:
            checksum_state = Sum.RIGHT if crc32c(data, at, end - at) == stored else Sum.WRONG
        seed = _numbered_seed(stored, 0, 0, state)
    elif at < end:
        seed = _content_seed(data, at, end, state)
    covered = at
    first = at + 4
    stop = first + be32(data, at) if first <= end else end + 1
    rest_seed = _numbered_seed(seed, 2, end - at, state)
    if first > end:
        checksum_state = Sum.UNKNOWN
        _add(state, Kind.REST, at, end, rest_seed)
    elif stop > end:
        checksum_state = Sum.UNKNOWN
        _find_fields(data, first, end, state.roots[ROOT_METADATA], state)
        # A row without bytes: what is left of cut metadata is hidden as a whole, from WITHIN on.
        row = _add(state, Kind.REST, first, end, 0)
        state.rows[row, START] = end
        state.rows[row, WITHIN] = first
    else:
        codec = _number_in(data, first, stop, _COMPRESSION, Codec.NONE)
        size = _number_in(data, first, stop, _UNCOMPRESSED_SIZE, 0)
        is_batch = _number_in(data, first, stop, _BATCH, -1) >= 0
        _find_fields(data, first, stop, state.roots[ROOT_METADATA], state)
        whole_seed = _numbered_seed(seed, 1, 0, state)
        is_sound = _number_in(data, first, stop, _PRODUCER, 0) == 1
        for number in (_SEQUENCE, _PUBLISHED):
            is_sound = is_sound and _number_in(data, first, stop, number, -1) != -1
        if not is_sound:
            row = _add(state, Kind.REST, stop, end, whole_seed)
            state.rows[row, WITHIN] = stop
        elif _number_in(data, first, stop, _ENCRYPTION_KEYS, 0):
            _add(state, Kind.ENCRYPTED, stop, end, whole_seed)
        elif codec != Codec.NONE:
            is_repacked = int(is_batch and is_whole)
            row = _add(state, Kind.PACKED, stop, end, seed if is_repacked else whole_seed)
            state.rows[row, WITHIN] = is_repacked
            state.rows[row, CODEC] = codec
            state.rows[row, SIZE] = size
        elif is_batch:
            _find_messages(data, stop, end, seed, state)
        else:
            row = _add(state, Kind.PAYLOAD, stop, end, whole_seed)
            state.rows[row, CODEC] = int(_number_in(data, first, stop, _CHUNK, 0) > 0)
    if stored_at >= 0:
        row = _add(state, Kind.CHECKSUM, stored_at, end, seed)
        state.rows[row, WITHIN] = covered
        state.rows[row, CODEC] = checksum_state


@kernel
def find_frames(
    data: ByteArray, starts: Int64Array, sizes: Int64Array, ends: Int64Array, state: FieldState
) -> int:
    """Write the rows of frames from state.at[NEXT] on; of a frame, data[start:end] was captured.

    Returns:
        1 if all frames are handled; 0 if there is no room for the rows of the next one.
    """
    state.at[ROWS] = 0
    for row in range(state.at[NEXT], len(starts)):
        state.at[NEXT] = row
        start = starts[row]
        stop = ends[row]
        if len(state.rows) - state.at[ROWS] < rows_of(stop - start):
            return 0
        if stop - start < 9:
            continue
        after = min(start + 8 + be32(data, start + 4), stop)
        command = varint(data, start + 9, after) if after > start + 9 else varint(data, 0, 0)
        _find_fields(data, start + 8, after, state.roots[ROOT_COMMAND], state)
        if command.next > 0 and command.value in (SEND, MESSAGE):
            _find_entry(data, after, stop, int(start + sizes[row] == stop), state)
        else:
            # Other commands end the frame.
            extra = _add(state, Kind.REST, after, stop, _content_seed(data, after, stop, state))
            state.rows[extra, WITHIN] = after
    state.at[NEXT] = len(starts)
    return 1


@inlined
def rows_of(size: int) -> int:
    """The maximum number of rows in so many bytes."""
    return size // 2 + _MORE_ROWS


@kernel
def find_batch(data: ByteArray, seed: int, state: FieldState) -> None:
    """Write the rows of a decompressed batch; the caller has reserved room."""
    state.at[ROWS] = 0
    _find_messages(data, 0, len(data), seed, state)


@kernel
def finish(data: ByteArray, rows: Int64Array, state: FieldState) -> None:
    """Write noise over payloads and hidden bytes, and new checksums: right ones; where a checksum
    was wrong, one last byte is changed after it was computed."""
    for row in range(len(rows)):
        kind, start, end, seed = rows[row, KIND], rows[row, START], rows[row, END], rows[row, SEED]
        if kind in (Kind.HIDE, Kind.BROKEN):
            fill_noise(data, start, end, _content_seed(data, start, end, state))
        elif Kind.PAYLOAD <= kind <= Kind.REST:
            fill_noise(data, start, end, seed)
        elif kind == Kind.CHECKSUM:
            covered = rows[row, WITHIN]
            value = following(seed, 0)
            if rows[row, CODEC] != Sum.UNKNOWN:
                value = crc32c(data, covered, end - covered)
            for index in range(4):
                data[start + index] = (value >> (24 - 8 * index)) & 0xFF
            if rows[row, CODEC] == Sum.WRONG:
                # The last byte is the payload's; a checksum detects any single wrong byte.
                data[end - 1] = (data[end - 1] ^ 0x55) & 0xFF


# Kinds of texts by content.
_TEXTS: Final = {contents.VERSION: Kind.VERSION, contents.SENTENCE: Kind.SENTENCE}
_PAIRS: Final = {"key": Kind.KEY, "value": Kind.VALUE}
_FIRST_ROWS: Final = 1 << 14
_NO_KEY: Final = SipHashKey(0, 0)


def _planned(message: str, field: Field, numbers: dict[str, int], has_names: bool) -> int:
    """The entry of a field in the plan. has_names: names stay."""
    content = contents.content_of(message, field.name)
    if content == contents.SECRET:
        return Kind.STARS
    if field.type_name == "message":
        return Kind.DESCEND | numbers[field.of] << SHIFT
    if field.type_name == "string":
        if has_names:
            return Kind.KEEP
        return _PAIRS[field.name] if message == "KeyValue" else _TEXTS.get(content, Kind.NAME)
    if content == contents.NUMBER:
        return Kind.SHORT
    if field.type_name == "bytes":
        return Kind.KEEP if has_names and field.name == "ordering_key" else Kind.HIDE
    # Packed repeated numbers are length-delimited; on any other number that is invalid.
    return Kind.KEEP if field.label == "repeated" else Kind.HIDE


@cache
def plan_of(has_names: bool) -> tuple[Int64Array, dict[str, int]]:
    """The plan, and the number of each message in it."""
    messages = descriptors().messages
    numbers = {name: number for number, name in enumerate(sorted(messages))}
    plan = np.zeros((len(numbers), FIELDS), np.int64)
    for name, fields in messages.items():
        for number, field in fields.items():
            plan[numbers[name], number] = _planned(name, field, numbers, has_names)
    return plan, numbers


@cache
def _named_fields() -> dict[int, tuple[str, str]]:
    messages, (_, numbers) = descriptors().messages, plan_of(False)
    named = {number << SHIFT: (name, "") for name, number in numbers.items()}
    for name, fields in messages.items():
        for number, field in fields.items():
            named[numbers[name] << SHIFT | number] = name, field.name
    return named


def field_named(field: int) -> tuple[str, str]:
    """The message and name of a row's field; the name is empty for an unknown field."""
    named = _named_fields()
    return named.get(field) or named[field >> SHIFT << SHIFT]


class FrameFields:
    """Finds the fields of frames. noise: its key. has_names: names stay and have no rows."""

    def __init__(self, noise: SipHashKey = _NO_KEY, *, has_names: bool = False) -> None:
        plan, numbers = plan_of(has_names)
        self.state = FieldState(
            plan=plan,
            key=np.array(noise, np.int64),
            numbers=np.zeros((1, 3), np.int64),
            stack=np.zeros(64, np.int64),
            at=np.zeros(2, np.int64),
            rows=np.zeros((_FIRST_ROWS, CELLS), np.int64),
            roots=np.array([numbers[name] for name in _ROOTS], np.int64),
        )

    def of_frames(self, data: ByteArray, bounds: Int64Array) -> Iterator[Int64Array]:
        """The rows of frames in parts, int64[rows, CELLS]; data of earlier parts may change.

        Args:
            bounds: see protocols.interface.FrameAnonymizer.
        """
        state, (starts, sizes, ends) = self.state, bounds
        state.at[NEXT] = 0
        is_done = 0
        while not is_done:
            is_done = find_frames(data, starts, sizes, ends, state)
            if state.at[ROWS]:
                yield self._rows_so_far()
            if not is_done:
                row = int(state.at[NEXT])
                self._reserve(int(ends[row] - starts[row]))

    def of_batch(self, data: ByteArray, seed: int) -> Int64Array:
        """The rows of a decompressed batch."""
        self._reserve(len(data))
        find_batch(data, seed, self.state)
        return self._rows_so_far()

    def _rows_so_far(self) -> Int64Array:
        return self.state.rows[: self.state.at[ROWS]].copy()

    def _reserve(self, size: int) -> None:
        if len(self.state.rows) < rows_of(size):
            self.state.grow(rows=np.zeros((rows_of(size), CELLS), np.int64))
