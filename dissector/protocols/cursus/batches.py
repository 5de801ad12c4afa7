"""The binary batch, magic 0xBA7C, in the four layouts that were ever written down or sent.

Big-endian, no padding. A header: magic, topic (u16 length), partition, acks as text, idempotent
flag, first and last sequence number, number of records. A record: offset, sequence number, producer
id and key (u16 lengths), epoch, payload (u32 length), and in newer layouts event type, schema
version, aggregate version and metadata. Nothing says which layout it is: the one that ends exactly
where the frame ends. `SEED` is from a published document, and no program ever sent it; it is tried
first if its text partition fits, since such a frame may also parse as a `CURRENT` one.
"""

import enum
from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16, be32, be64, byte
from dissector.jit import inlined, kernel
from dissector.limits import MAX_BATCH_RECORDS, NULL

MAGIC: Final = 0xBA7C


class BatchLayout(enum.IntEnum):
    """Layouts of a batch."""

    CURRENT = 0  # partition i32, acks u8 length
    SEED = 1  # partition as text, acks u16 length
    APRIL = 2  # as CURRENT, records without event fields
    V010 = 3  # as APRIL, without the idempotent flag


LAYOUTS: Final = 4
LAYOUT_NAMES: Final = ("cur", "seed", "apr26", "v010")

# Values of acks; any other text is UNKNOWN_ACKS.
ACKS_ALL: Final = -1
UNKNOWN_ACKS: Final = -2

_MAX_PARTITION_DIGITS: Final = 10
_SHORT_RECORD: Final = 8 + 8 + 2 + 2 + 8 + 4
_EVENT_FIELDS: Final = 2 + 4 + 8 + 2


class BatchHeader(NamedTuple):
    """A batch's header.

    records_at: offset of the first record, -1 if the header does not fit.
    acks: 0, 1, ACKS_ALL or UNKNOWN_ACKS.
    topic_at, topic_bytes: its topic.
    records: announced number of records, signed.
    """

    records_at: int
    topic_at: int
    topic_bytes: int
    partition: int
    acks: int
    idempotent: int
    seq_start: int
    seq_end: int
    records: int


class CutHead(NamedTuple):
    """A cut batch's layout, NULL if it is not certain, -1 if none fits, and its header."""

    layout: int
    head: BatchHeader


class Record(NamedTuple):
    """Offsets and sizes of a record's parts; next: the offset after it, -1 if it does not fit."""

    next: int
    offset: int
    seq_num: int
    producer_at: int
    producer_bytes: int
    key_at: int
    key_bytes: int
    epoch: int
    payload_at: int
    payload_bytes: int
    event_type_at: int
    event_type_bytes: int
    schema_version: int
    aggregate_version: int


@inlined
def _signed32(value: int) -> int:
    return value - (1 << 32) if value >= 1 << 31 else value


@inlined
def _no_head() -> BatchHeader:
    return BatchHeader(-1, 0, 0, 0, 0, 0, 0, 0, 0)


@inlined
def _no_record() -> Record:
    return Record(-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


@inlined
def _digits(data: ByteArray, at: int, count: int) -> int:
    """A number in decimal digits, -1 if any other byte is among them."""
    value = 0
    for offset in range(at, at + count):
        digit = byte(data, offset) - 0x30
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@inlined
def _acks(data: ByteArray, at: int, size: int) -> int:
    if size == 1 and byte(data, at) == 0x30:
        return 0
    if size == 1 and byte(data, at) == 0x31:
        return 1
    if size == 2 and be16(data, at) == 0x2D31:  # "-1"
        return ACKS_ALL
    if size == 3 and be16(data, at) == 0x616C and byte(data, at + 2) == 0x6C:  # "all"
        return ACKS_ALL
    return UNKNOWN_ACKS


@kernel
def read_head(data: ByteArray, at: int, end: int, layout: int) -> BatchHeader:
    """The header of the batch at `at` in one layout; records_at is -1 if `end` cuts it."""
    if end - at < 4 or be16(data, at) != MAGIC:
        return _no_head()
    topic_bytes = be16(data, at + 2)
    topic_at = at + 4
    cursor = topic_at + topic_bytes
    if end - cursor < 5:
        return _no_head()
    if layout == BatchLayout.SEED:
        digits = be16(data, cursor)
        if digits < 1 or digits > _MAX_PARTITION_DIGITS or end - cursor < 4 + digits:
            return _no_head()
        partition = _digits(data, cursor + 2, digits)
        if partition < 0:
            return _no_head()
        acks_bytes = be16(data, cursor + 2 + digits)
        cursor += 4 + digits
    else:
        partition = _signed32(be32(data, cursor))
        acks_bytes = byte(data, cursor + 4)
        cursor += 5
    flag_bytes = 0 if layout == BatchLayout.V010 else 1
    if end - cursor < acks_bytes + flag_bytes + 20:
        return _no_head()
    acks = _acks(data, cursor, acks_bytes)
    cursor += acks_bytes
    idempotent = byte(data, cursor) if flag_bytes == 1 else 0
    cursor += flag_bytes
    if idempotent > 1:
        return _no_head()
    return BatchHeader(
        cursor + 20,
        topic_at,
        topic_bytes,
        partition,
        acks,
        idempotent,
        be64(data, cursor),
        be64(data, cursor + 8),
        _signed32(be32(data, cursor + 16)),
    )


@inlined
def read_record(data: ByteArray, at: int, end: int, layout: int) -> Record:
    """The record at `at`."""
    if end - at < _SHORT_RECORD:
        return _no_record()
    producer_at = at + 18
    producer_bytes = be16(data, at + 16)
    cursor = producer_at + producer_bytes
    if end - cursor < 14:
        return _no_record()
    key_bytes = be16(data, cursor)
    key_at = cursor + 2
    cursor = key_at + key_bytes
    if end - cursor < 12:
        return _no_record()
    epoch = be64(data, cursor)
    payload_bytes = be32(data, cursor + 8)
    payload_at = cursor + 12
    cursor = payload_at + payload_bytes
    event_at = cursor
    event_bytes = 0
    schema_version = 0
    aggregate_version = 0
    if layout in (BatchLayout.CURRENT, BatchLayout.SEED):
        if end - cursor < _EVENT_FIELDS:
            return _no_record()
        event_bytes = be16(data, cursor)
        event_at = cursor + 2
        cursor = event_at + event_bytes
        if end - cursor < 14:
            return _no_record()
        schema_version = be32(data, cursor)
        aggregate_version = be64(data, cursor + 4)
        cursor += 14 + be16(data, cursor + 12)
    if cursor > end:
        return _no_record()
    return Record(
        cursor,
        be64(data, at),
        be64(data, at + 8),
        producer_at,
        producer_bytes,
        key_at,
        key_bytes,
        epoch,
        payload_at,
        payload_bytes,
        event_at,
        event_bytes,
        schema_version,
        aggregate_version,
    )


@inlined
def may_hold(head: BatchHeader, end: int) -> bool:
    """Whether the announced number of records, each of the minimum size, fits before `end`."""
    return bool(0 <= head.records * _SHORT_RECORD <= end - head.records_at)


@inlined
def _agreed(one: int, other: int) -> int:
    return one if one == other else NULL


@inlined
def _common_head(one: BatchHeader, other: BatchHeader) -> BatchHeader:
    """The fields of a header that two layouts have in common; the others are NULL."""
    return BatchHeader(
        _agreed(one.records_at, other.records_at),
        one.topic_at,
        one.topic_bytes,
        _agreed(one.partition, other.partition),
        _agreed(one.acks, other.acks),
        _agreed(one.idempotent, other.idempotent),
        _agreed(one.seq_start, other.seq_start),
        _agreed(one.seq_end, other.seq_end),
        _agreed(one.records, other.records),
    )


@kernel
def read_cut_head(data: ByteArray, at: int, end: int, body_end: int, known: int) -> CutHead:
    """The header of a cut batch, whose end does not tell its layout.

    A layout fits if the records that the header announces fit into the body. A field is NULL unless
    it is the same in each layout that fits. An earlier batch decides between layouts with numbers
    as partitions, but one of them may look like one with a text.

    Args:
        end: of the captured bytes. body_end: of the body.
        known: the layout of an earlier batch of this connection, -1 if there was none.
    """
    found, chosen = _no_head(), -1
    for turn in range(-1, LAYOUTS):
        layout = turn if turn >= 0 else known
        if layout < 0 or (turn == known and layout >= 0):
            continue
        head = read_head(data, at, end, layout)
        if head.records_at < 0 or not may_hold(head, body_end):
            continue
        if found.records_at == -1:
            found, chosen = head, layout
        elif chosen != known or layout == BatchLayout.SEED or known == BatchLayout.SEED:
            found, chosen = _common_head(found, head), NULL
    return CutHead(chosen, found)


@kernel
def end_of_records(data: ByteArray, head: BatchHeader, end: int, layout: int) -> int:
    """The offset after the last record, -1 if a record is missing or cut."""
    if head.records_at < 0 or head.records < 0 or head.records > MAX_BATCH_RECORDS:
        return -1
    cursor = head.records_at
    for _ in range(head.records):
        record = read_record(data, cursor, end, layout)
        if record.next < 0:
            return -1
        cursor = record.next
    return int(cursor)


@kernel
def choose_layout(data: ByteArray, at: int, end: int, known: int) -> int:
    """The layout in which a whole batch ends exactly at `end`.

    Args:
        known: the layout of an earlier batch of this connection, -1 if there was none.

    Returns:
        The layout; LAYOUTS + layout if all records fit but bytes are left over, as brokers accept;
        -1 if none fits.
    """
    if known >= 0:
        head = read_head(data, at, end, known)
        if end_of_records(data, head, end, known) == end:
            return known
    loose = -1
    for turn in range(LAYOUTS):
        layout = 1 - turn if turn < 2 else turn  # SEED, CURRENT, APRIL, V010
        head = read_head(data, at, end, layout)
        stop = end_of_records(data, head, end, layout)
        if stop == end:
            return layout
        if stop >= 0 and head.records > 0 and loose < 0 and layout != BatchLayout.SEED:
            loose = LAYOUTS + layout
    return loose
