"""The first pass over a block's bodies: the shape of each body, and the fields of batches.

It parses batches completely, because there may be tens of thousands a second; `lines` and `answers`
parse texts, which are few.
"""

from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle
from dissector.codecs.integers import be64, byte
from dissector.codecs.names import NameColumns, intern
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import COMPLETE, TO_BROKER, TO_CLIENT, FrameColumns
from dissector.protocols.cursus import batches
from dissector.protocols.cursus.batches import BatchHeader, BatchLayout
from dissector.protocols.cursus.body_starts import BodyShape, shape_of
from dissector.protocols.cursus.headers import LENGTH_BYTES
from dissector.tables import HashTable, find, put

Sources = tuple[ByteArray, ByteArray, ByteArray, ByteArray]
AllSources = tuple[ByteArray, ByteArray, ByteArray, ByteArray, ByteArray]

OPENED_SOURCE: Final = 4  # index of the uncompressed bodies, behind a block's four sources
_MARKER: Final[ByteArray] = np.frombuffer(b"__cursus_txn_control_marker__", np.uint8).copy()


class BodyColumns(Bundle):
    """The bodies of a block's rows, int64[rows] each, limits.NULL where it has none.

    shape: of headers.
    source, at, end: where the body lies, uncompressed.
    codec: NULL if it came as it is, else of `compressed`. Of a batch that was read: layout, acks,
        idempotent, records_at, records: how many there are, first_offset and last_offset as on the
        wire, payload: bytes of all payloads, markers: records that only mark a transaction's end,
        leftover: bytes behind the last record, is_rising: 1 if each offset is larger than the one
        before; first_seq, first_producer (code of its name), first_epoch: of the first record. A
        text that carries one message has records 1, records_at NULL, and its key and payload in
        key_at, key_bytes, payload_at, payload. A commit of one offset has its partition in
        committed_partition, and in following the offset that its group wants to read next.
    decoded: a ReadBy of compact_acks, NULL until a kernel has parsed the body.
    """

    shape: Int64Array
    source: Int64Array
    at: Int64Array
    end: Int64Array
    codec: Int64Array
    layout: Int64Array
    acks: Int64Array
    idempotent: Int64Array
    records_at: Int64Array
    records: Int64Array
    first_offset: Int64Array
    last_offset: Int64Array
    payload: Int64Array
    markers: Int64Array
    leftover: Int64Array
    is_rising: Int64Array
    key_at: Int64Array
    key_bytes: Int64Array
    payload_at: Int64Array
    first_seq: Int64Array
    first_producer: Int64Array
    first_epoch: Int64Array
    committed_partition: Int64Array
    following: Int64Array
    decoded: Int64Array


@kernel
def find_bodies(
    frames: FrameColumns, first: int, stop: int, protocol: int, sources: Sources, out: BodyColumns
) -> None:
    """Fill in the bodies' positions and shapes of a protocol's frames."""
    for row in range(first, stop):
        out.shape[row] = NULL
        out.codec[row] = NULL
        out.records[row] = NULL
        out.first_offset[row] = NULL
        out.last_offset[row] = NULL
        out.acks[row] = NULL
        out.idempotent[row] = NULL
        out.layout[row] = NULL
        out.key_bytes[row] = NULL
        out.committed_partition[row] = NULL
        out.following[row] = NULL
        out.decoded[row] = NULL
        if frames.protocol[row] != protocol or frames.frame_no[row] == NULL:
            continue
        out.source[row] = frames.source[row]
        out.at[row] = frames.data_offset[row] + LENGTH_BYTES
        out.end[row] = frames.data_offset[row] + frames.data_bytes[row]
        if frames.frame_bytes[row] > LENGTH_BYTES and frames.data_bytes[row] <= LENGTH_BYTES:
            continue
        out.shape[row] = shape_of(sources[frames.source[row]], out.at[row], out.end[row])


@inlined
def is_marker(data: ByteArray, at: int, size: int) -> bool:
    """Whether a record's payload is the mark of a transaction's end."""
    if size != len(_MARKER):
        return False
    is_same = True
    for index in range(size):
        if byte(data, at + index) != _MARKER[index]:
            is_same = False
    return is_same


@inlined
def same_bytes(data: ByteArray, one: int, other: int, size: int) -> bool:
    """Whether the bytes at two offsets are the same."""
    index = 0
    while index < size and byte(data, one + index) == byte(data, other + index):
        index += 1
    return index == size


@inlined
def _read_records(
    frames: FrameColumns, row: int, data: ByteArray, out: BodyColumns, names: NameColumns
) -> None:
    """Sum up the records of a batch that is known to be whole."""
    layout = out.layout[row]
    cursor = out.records_at[row]
    producer_at = 0
    producer_bytes = -1
    is_one_producer = True
    payload = 0
    markers = 0
    is_rising = 1
    previous = 0
    for number in range(out.records[row]):
        record = batches.read_record(data, cursor, out.end[row], layout)
        if number == 0:
            producer_at = record.producer_at
            producer_bytes = record.producer_bytes
            out.first_offset[row] = record.offset
            out.first_seq[row] = record.seq_num
            out.first_epoch[row] = record.epoch
            out.first_producer[row] = intern(names, data, producer_at, producer_bytes)
        else:
            if record.offset <= previous:
                is_rising = 0
            if record.producer_bytes != producer_bytes or not same_bytes(
                data, producer_at, record.producer_at, producer_bytes
            ):
                is_one_producer = False
        if is_marker(data, record.payload_at, record.payload_bytes):
            markers += 1
        previous = record.offset
        payload += record.payload_bytes
        cursor = record.next
    out.payload[row] = payload
    out.markers[row] = markers
    out.is_rising[row] = is_rising
    out.last_offset[row] = previous
    out.leftover[row] = out.end[row] - cursor
    if is_one_producer and producer_bytes > 0:
        frames.producer_name[row] = out.first_producer[row]
        frames.producer_epoch[row] = out.first_epoch[row]


@inlined
def _fill_head(
    frames: FrameColumns, row: int, data: ByteArray, out: BodyColumns, head: BatchHeader,
    names: NameColumns,
) -> bool:  # fmt: skip
    """The columns that a batch's header fills; False if it cannot be read."""
    if head.records_at == -1:
        return False
    out.acks[row] = head.acks
    out.idempotent[row] = head.idempotent
    out.records_at[row] = head.records_at
    frames.topic[row] = intern(names, data, head.topic_at, head.topic_bytes)
    frames.partition[row] = head.partition
    frames.message_count[row] = head.records
    frames.is_batch[row] = 1
    if frames.direction[row] != TO_CLIENT:
        frames.sequence_id[row] = head.seq_start
        frames.highest_sequence_id[row] = head.seq_end
    return True


@inlined
def _fill_layout(
    frames: FrameColumns, row: int, data: ByteArray, out: BodyColumns, layout: int,
    names: NameColumns,
) -> bool:  # fmt: skip
    """The columns that the header of a whole batch fills; False if it cannot be read."""
    head = batches.read_head(data, out.at[row], out.end[row], layout)
    if not _fill_head(frames, row, data, out, head, names):
        return False
    out.layout[row] = layout
    if not batches.may_hold(head, out.end[row]):
        frames.message_count[row] = NULL
    return True


@inlined
def _read_cut(
    frames: FrameColumns, row: int, data: ByteArray, out: BodyColumns, known: int,
    names: NameColumns,
) -> None:  # fmt: skip
    """What can be read of a cut batch; its body counts with the length in its frame's header."""
    body_end = max(out.end[row], out.at[row] + frames.frame_bytes[row] - LENGTH_BYTES)
    cut = batches.read_cut_head(data, out.at[row], out.end[row], body_end, known)
    if _fill_head(frames, row, data, out, cut.head, names):
        out.layout[row] = cut.layout
        _read_first(frames, row, data, out)


@inlined
def _read_first(frames: FrameColumns, row: int, data: ByteArray, out: BodyColumns) -> None:
    """The offset of a cut batch's first record, if it is there."""
    if frames.direction[row] == TO_BROKER or frames.message_count[row] <= 0:
        return
    if out.records_at[row] == NULL:
        return
    if out.end[row] - out.records_at[row] >= 8:
        out.first_offset[row] = be64(data, out.records_at[row])
        frames.entry_id[row] = out.first_offset[row]


@kernel
def read_batches(
    frames: FrameColumns,
    first: int,
    stop: int,
    sources: AllSources,
    out: BodyColumns,
    names: NameColumns,
    layouts: HashTable,
) -> None:
    """Read the batches of a block whose bodies are found and open.

    A whole batch that fits no layout keeps the shape of a batch, with records null; of a cut one
    the header's fields that are certain are filled if it is complete.

    Args:
        layouts: the layout of each connection's last batch, by connection.
    """
    for row in range(first, stop):
        if out.shape[row] != BodyShape.BATCH_BODY:
            continue
        data = sources[out.source[row]]
        connection = frames.connection_id[row]
        known = find(layouts, connection, 0, 0, 0)
        if frames.status[row] != COMPLETE:
            _read_cut(frames, row, data, out, known, names)
            continue
        chosen = batches.choose_layout(data, out.at[row], out.end[row], known)
        if chosen < 0:
            _fill_layout(frames, row, data, out, max(known, BatchLayout.CURRENT), names)
            continue
        layout = chosen % batches.LAYOUTS
        if _fill_layout(frames, row, data, out, layout, names):
            out.records[row] = frames.message_count[row]
            _read_records(frames, row, data, out, names)
            if chosen < batches.LAYOUTS and out.records[row] > 0 and chosen != known:
                put(layouts, connection, 0, 0, 0, layout)
            if frames.direction[row] != TO_BROKER and out.records[row] > 0:
                frames.entry_id[row] = out.first_offset[row]
