"""Frequent answers, parsed by kernels: acknowledgements and `OK`.

Brokers write the acknowledgement of a batch as compact JSON with its keys in one order; exactly
that form is read here. Any other goes the way of all answers.
"""

import enum
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import be16, byte
from dissector.codecs.names import NameColumns, intern
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import COMPLETE, MALFORMED, NAME_OBSERVED, TO_CLIENT, FrameColumns
from dissector.protocols.cursus.bodies import AllSources, BodyColumns
from dissector.protocols.cursus.body_starts import BodyShape
from dissector.protocols.cursus.commands import BATCH, KEEPALIVE, RESPONSE_JSON, RESPONSE_OK
from dissector.protocols.cursus.headers import LENGTH_BYTES


class ReadBy(enum.IntEnum):
    """How a kernel parsed a row (BodyColumns.decoded); NULL if none did."""

    BATCH = 0
    EMPTY = 1
    ACK = 2
    OK = 3  # the other fields of such an answer have no effect here
    WRAPPED = 4  # a line that contains a batch: its text is not parsed yet


_MAX_DIGITS: Final = 18  # any number of so many digits fits in 64 bits
_OK: Final = 0x4F4B

_FIXED_TEXTS: Final = (
    b'{"status":"OK","last_offset":',
    b',"producer_epoch":',
    b',"producer_id":"',
    b'","seq_start":',
    b',"seq_end":',
    b"}",
)
_TEXT: Final[ByteArray] = np.frombuffer(b"".join(_FIXED_TEXTS), np.uint8).copy()
_ENDS: Final[Int64Array] = np.cumsum([len(piece) for piece in _FIXED_TEXTS])


class Parsed(NamedTuple):
    """A parsed number, and the offset after it, -1 if there is none."""

    at: int
    value: int


class CompactAck(NamedTuple):
    """The fields of an acknowledgement; end: exclusive, -1 if it is none."""

    end: int
    last_offset: int
    epoch: int
    producer_at: int
    producer_bytes: int
    seq_start: int
    seq_end: int


@inlined
def _skip_text(data: ByteArray, at: int, end: int, piece: int) -> int:
    """The offset after a fixed text, -1 if the bytes differ."""
    start = _ENDS[piece - 1] if piece > 0 else 0
    size = _ENDS[piece] - start
    if at < 0 or end - at < size:
        return -1
    for index in range(size):
        if byte(data, at + index) != _TEXT[start + index]:
            return -1
    return int(at + size)


@inlined
def _number(data: ByteArray, at: int, end: int) -> Parsed:
    """Parse a decimal number with or without a minus sign."""
    if at < 0 or at >= end:
        return Parsed(-1, 0)
    is_negative = byte(data, at) == 0x2D
    first = at + 1 if is_negative else at
    cursor = first
    value = 0
    while cursor < end and cursor - first <= _MAX_DIGITS:
        digit = byte(data, cursor) - 0x30
        if digit < 0 or digit > 9:
            break
        value = value * 10 + digit
        cursor += 1
    if cursor == first or cursor - first > _MAX_DIGITS:
        return Parsed(-1, 0)
    return Parsed(cursor, -value if is_negative else value)


@inlined
def _behind_name(data: ByteArray, at: int, end: int) -> int:
    """The offset of the quote after a name without escapes, -1 if there is none."""
    if at < 0:
        return -1
    cursor = at
    while cursor < end:
        value = byte(data, cursor)
        if value == 0x22:
            return cursor
        if value == 0x5C:
            return -1
        cursor += 1
    return -1


@kernel
def read_compact_ack(data: ByteArray, at: int, end: int) -> CompactAck:
    """The acknowledgement that fills the bytes from `at` to `end`."""
    offset = _number(data, _skip_text(data, at, end, 0), end)
    epoch = _number(data, _skip_text(data, offset.at, end, 1), end)
    producer_at = _skip_text(data, epoch.at, end, 2)
    quote = _behind_name(data, producer_at, end)
    start = _number(data, _skip_text(data, quote, end, 3), end)
    last = _number(data, _skip_text(data, start.at, end, 4), end)
    stop = _skip_text(data, last.at, end, 5)
    if stop != end or min(offset.value, start.value, last.value) < 0:
        return CompactAck(-1, 0, 0, 0, 0, 0, 0)
    size = quote - producer_at
    return CompactAck(stop, offset.value, epoch.value, producer_at, size, start.value, last.value)


@inlined
def _note_batch(frames: FrameColumns, row: int, out: BodyColumns) -> None:
    frames.command[row] = BATCH
    frames.name_source[row] = NAME_OBSERVED
    if out.codec[row] == NULL:
        frames.compression[row] = 0
        frames.payload_bytes[row] = frames.frame_bytes[row] - LENGTH_BYTES
    if frames.status[row] == COMPLETE and out.records[row] == NULL:
        frames.status[row] = MALFORMED
        frames.message_count[row] = NULL  # what its header claims is not there


@inlined
def _note_ack(
    frames: FrameColumns, row: int, data: ByteArray, out: BodyColumns, names: NameColumns
) -> None:
    ack = read_compact_ack(data, out.at[row], out.end[row])
    if ack.end < 0:
        return
    out.decoded[row] = ReadBy.ACK
    frames.command[row] = RESPONSE_JSON
    frames.entry_id[row] = ack.last_offset
    frames.producer_epoch[row] = ack.epoch
    frames.sequence_id[row] = ack.seq_start
    frames.highest_sequence_id[row] = ack.seq_end
    frames.name_source[row] = NAME_OBSERVED
    if ack.producer_bytes > 0:
        frames.producer_name[row] = intern(names, data, ack.producer_at, ack.producer_bytes)


@inlined
def _is_ok(data: ByteArray, at: int, end: int) -> bool:
    return end - at == 2 and be16(data, at) == _OK


@kernel
def note_frequent(
    frames: FrameColumns,
    first: int,
    stop: int,
    sources: AllSources,
    out: BodyColumns,
    names: NameColumns,
) -> None:
    """Fill the columns of batches, empty frames, acknowledgements and answers that say only OK."""
    for row in range(first, stop):
        shape = out.shape[row]
        if shape == BodyShape.EMPTY:
            frames.command[row] = KEEPALIVE
            out.decoded[row] = ReadBy.EMPTY
        elif shape == BodyShape.BATCH_BODY and out.decoded[row] != ReadBy.WRAPPED:
            _note_batch(frames, row, out)
            out.decoded[row] = ReadBy.BATCH
        elif frames.direction[row] != TO_CLIENT or frames.status[row] != COMPLETE:
            continue
        elif shape == BodyShape.JSON:
            _note_ack(frames, row, sources[out.source[row]], out, names)
        elif shape == BodyShape.TEXT and _is_ok(
            sources[out.source[row]], out.at[row], out.end[row]
        ):
            frames.command[row] = RESPONSE_OK
            out.decoded[row] = ReadBy.OK
