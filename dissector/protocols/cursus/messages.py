"""The table messages: one row per record of a batch, or of a text that carries a message."""

import hashlib
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Coded, Column, Int64Array, Spans, TableBlock
from dissector.bundles import Bundle
from dissector.codecs.names import NameColumns, NameTable, intern
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.protocols.columns import DIRECTION_NAMES, TO_BROKER, FrameColumns
from dissector.protocols.cursus import bodies as cursus_bodies
from dissector.protocols.cursus.batches import Record, read_record
from dissector.protocols.cursus.bodies import AllSources, BodyColumns

_ROWS: Final = (1 << 15) + 8  # of one block; a batch of more records grows the columns
_TEXT_BYTES: Final = 1 << 20


class MessageColumns(Bundle):
    """Columns of the table; key and payload as offsets in the body's source, for what is asked."""

    connection_id: Int64Array
    frame_no: Int64Array
    batch_index: Int64Array
    batch_size: Int64Array
    direction: Int64Array
    topic: Int64Array
    producer_name: Int64Array
    sequence_id: Int64Array
    payload_bytes: Int64Array
    entry_id: Int64Array
    partition: Int64Array
    ts: Int64Array
    key_start: Int64Array
    key_bytes: Int64Array
    source: Int64Array
    payload_at: Int64Array
    event_type_at: Int64Array
    event_type_bytes: Int64Array
    schema_version: Int64Array
    aggregate_version: Int64Array


class Filled(NamedTuple):
    """Progress of filling: next row of the frames, messages and bytes of keys written."""

    row: int
    messages: int
    used: int


_TEXTLESS: Final = (
    "connection_id",
    "frame_no",
    "batch_index",
    "batch_size",
    "sequence_id",
    "payload_bytes",
    "entry_id",
    "partition",
    "ts",
)


@inlined
def _fill_frame(
    frames: FrameColumns, row: int, messages: MessageColumns, count: int, index: int, source: int
) -> None:
    """Fill the columns that a message has from its frame."""
    messages.connection_id[count] = frames.connection_id[row]
    messages.frame_no[count] = frames.frame_no[row]
    messages.direction[count] = frames.direction[row]
    messages.topic[count] = frames.topic[row]
    messages.partition[count] = frames.partition[row]
    messages.ts[count] = frames.last_ts_ns[row]
    messages.batch_index[count] = index
    messages.source[count] = source


@inlined
def _keep(text: ByteArray, used: int, data: ByteArray, at: int, size: int) -> int:
    """Append a key to the others; returns the bytes used."""
    for index in range(size):
        text[used + index] = data[at + index]
    return used + size


@inlined
def _fill_single(
    frames: FrameColumns, row: int, bodies: BodyColumns, messages: MessageColumns, count: int
) -> None:
    """Fill the message of a text command."""
    _fill_frame(frames, row, messages, count, NULL, bodies.source[row])
    messages.batch_size[count] = NULL
    messages.producer_name[count] = frames.producer_name[row]
    messages.sequence_id[count] = frames.sequence_id[row]
    messages.entry_id[count] = NULL
    messages.payload_bytes[count] = bodies.payload[row]
    messages.payload_at[count] = bodies.payload_at[row]
    messages.event_type_bytes[count] = 0
    messages.schema_version[count] = 0
    messages.aggregate_version[count] = 0
    messages.key_bytes[count] = bodies.key_bytes[row]


@inlined
def _fill_record(messages: MessageColumns, count: int, record: Record, is_stored: int) -> None:
    """Fill the columns from a record; is_stored: 1 if its offset was assigned by a broker."""
    messages.sequence_id[count] = record.seq_num
    messages.entry_id[count] = record.offset if is_stored == 1 else NULL
    messages.payload_bytes[count] = record.payload_bytes
    messages.payload_at[count] = record.payload_at
    messages.event_type_at[count] = record.event_type_at
    messages.event_type_bytes[count] = record.event_type_bytes
    messages.schema_version[count] = record.schema_version
    messages.aggregate_version[count] = record.aggregate_version
    messages.key_bytes[count] = record.key_bytes if record.key_bytes > 0 else NULL


@inlined
def _fill_batch(
    frames: FrameColumns,
    row: int,
    data: ByteArray,
    bodies: BodyColumns,
    names: NameColumns,
    messages: MessageColumns,
    text: ByteArray,
    filled: Filled,
) -> Filled:
    """All records of a batch but the marks of transactions; their producer is mostly one."""
    count, used = filled.messages, filled.used
    cursor = bodies.records_at[row]
    is_stored = 0 if frames.direction[row] == TO_BROKER else 1
    producer_at = 0
    producer_bytes = -1
    producer = NULL
    for index in range(bodies.records[row]):
        record = read_record(data, cursor, bodies.end[row], bodies.layout[row])
        cursor = record.next
        if cursus_bodies.is_marker(data, record.payload_at, record.payload_bytes):
            continue
        size = record.producer_bytes
        if size != producer_bytes or not cursus_bodies.same_bytes(
            data, producer_at, record.producer_at, size
        ):
            producer_at, producer_bytes = record.producer_at, size
            producer = intern(names, data, producer_at, size) if size > 0 else NULL
        _fill_frame(frames, row, messages, count, index, bodies.source[row])
        _fill_record(messages, count, record, is_stored)
        messages.batch_size[count] = bodies.records[row]
        messages.producer_name[count] = producer
        messages.key_start[count] = used
        used = _keep(text, used, data, record.key_at, record.key_bytes)
        count += 1
    return Filled(row, count, used)


@kernel
def fill_messages(
    frames: FrameColumns,
    first: int,
    stop: int,
    sources: AllSources,
    bodies: BodyColumns,
    names: NameColumns,
    messages: MessageColumns,
    text: ByteArray,
) -> Filled:
    """Rows of the messages of frames from `first` on, as far as there is room.

    A row whose messages do not fit is not begun: it is the result's next one.
    """
    filled = Filled(first, 0, 0)
    for row in range(first, stop):
        records = bodies.records[row]
        if records == NULL or records == 0:
            continue
        size = bodies.end[row] - bodies.at[row]
        if filled.messages + records > len(messages.ts) or filled.used + size > len(text):
            return Filled(row, filled.messages, filled.used)
        data = sources[bodies.source[row]]
        if bodies.records_at[row] != NULL:
            filled = _fill_batch(frames, row, data, bodies, names, messages, text, filled)
            continue
        _fill_single(frames, row, bodies, messages, filled.messages)
        messages.key_start[filled.messages] = filled.used
        key = max(bodies.key_bytes[row], 0)
        used = _keep(text, filled.used, data, bodies.key_at[row], key)
        filled = Filled(row, filled.messages + 1, used)
    return Filled(stop, filled.messages, filled.used)


class Messages:
    """Writes the messages of a capture, block after block."""

    def __init__(self, names: NameTable, properties: bool, payload_sha256: bool) -> None:
        self._names = names
        self._wants_properties = properties
        self._wants_digest = payload_sha256
        self._room = MessageColumns.new(0, NULL)
        self._text: ByteArray = np.zeros(0, np.uint8)

    def advance(
        self, frames: FrameColumns, first: int, stop: int, sources: AllSources, bodies: BodyColumns
    ) -> list[TableBlock]:
        """The messages of rows from first to before stop, whose bodies are parsed."""
        blocks: list[TableBlock] = []
        columns = self._names.columns
        if first < stop and not len(self._text):  # few captures hold any
            self._room = MessageColumns.new(_ROWS, NULL)
            self._text = np.zeros(_TEXT_BYTES, np.uint8)
        while first < stop:
            first, count, used = fill_messages(
                frames, first, stop, sources, bodies, columns, self._room, self._text
            )
            if count:
                blocks.append(self._block(int(count), int(used), sources))
            elif first < stop:
                self._reserve(bodies, first)
        return blocks

    def _reserve(self, bodies: BodyColumns, row: int) -> None:
        """Grow the columns for a batch larger than all before."""
        records = int(bodies.records[row])
        size = int(bodies.end[row]) - int(bodies.at[row])
        if records > self._room.matrix.shape[1]:
            self._room = MessageColumns.new(records, NULL)
        if size > len(self._text):
            self._text = np.zeros(size, np.uint8)

    def _block(self, count: int, used: int, sources: AllSources) -> TableBlock:
        room = self._room
        cells = room.matrix[:, :count].copy()
        part = dict(zip(MessageColumns._fields, cells, strict=True))
        columns: dict[str, Column] = {name: part[name] for name in _TEXTLESS}
        columns["direction"] = Coded(part["direction"], DIRECTION_NAMES)
        names = self._names.names
        columns["topic"] = Coded(part["topic"], names)
        columns["producer_name"] = Coded(part["producer_name"], names)
        columns["is_null_value"] = np.zeros(count, np.int64)
        text = self._text[:used].copy()
        columns["partition_key"] = Spans(text, part["key_start"], part["key_bytes"])
        if self._wants_properties:
            columns["properties"] = [self._properties(part, at, sources) for at in range(count)]
        if self._wants_digest:
            columns["payload_sha256"] = [self._digest(part, at, sources) for at in range(count)]
        return TableBlock("messages", count, columns)

    def _properties(
        self, part: dict[str, Int64Array], at: int, sources: AllSources
    ) -> dict[str, str]:
        """The event fields of a record that are not empty."""
        properties: dict[str, str] = {}
        size = int(part["event_type_bytes"][at])
        if size > 0:
            start = int(part["event_type_at"][at])
            data = sources[int(part["source"][at])][start : start + size].tobytes()
            properties["event_type"] = data.decode("utf-8", "backslashreplace")
        for name in ("schema_version", "aggregate_version"):
            if int(part[name][at]):
                properties[name] = str(int(part[name][at]))
        return properties

    def _digest(self, part: dict[str, Int64Array], at: int, sources: AllSources) -> Any:
        start, size = int(part["payload_at"][at]), int(part["payload_bytes"][at])
        data = sources[int(part["source"][at])][start : start + size]
        return hashlib.sha256(data.tobytes()).hexdigest()
