"""The table messages: one row per application message of SEND and MESSAGE frames.

The kernel parses plain entries. This module decompresses batches, many into one buffer before the
kernel resumes, joins chunks, and adds the columns on demand: properties and payload digests. An
entry that cannot be parsed has no rows, but a notice.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from dissector.blocks import ByteArray, Coded, Column, Int64Array, Spans, TableBlock
from dissector.codecs.compression import Codec, Decompressor, Sources, UnpackResult
from dissector.codecs.names import NameTable
from dissector.jit import prepacked
from dissector.limits import NULL
from dissector.notice_log import NoticeLog
from dissector.notice_rows import new_notices
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import DIRECTION_NAMES, FrameColumns
from dissector.protocols.frame_notices import notice_at
from dissector.protocols.frame_table import filled_columns
from dissector.protocols.pulsar.messages import rows as messages_rows
from dissector.protocols.pulsar.messages import state
from dissector.protocols.pulsar.messages.chunks import Chunk, Chunks, Joined, chunks_at
from dissector.protocols.pulsar.messages.rows import RowsStatus
from dissector.protocols.pulsar.messages.state import MessageColumns
from dissector.protocols.pulsar.wire.details import key_text, pair_text, parse
from dissector.schemas import TABLES

# Rows grow from _FIRST_ROWS to _BLOCK_ROWS per block; a larger batch grows them further. A column's
# length is no power of two: all columns would start in one set of the cache, at twice the cost.
_FIRST_ROWS: Final = 1 << 10
_FIRST_TEXT_BYTES: Final = 1 << 16
_BLOCK_ROWS: Final = 1 << 14
_AT_ONCE_BYTES: Final = 1 << 20  # of decompressed batches: they are still in the cache when read
_CHUNKS_AT_ONCE: Final = 1 << 10
_ENTRY_NOT_OPENED: Final = NOTICE_NUMBER["entry_not_opened"]
_NAMES_LIMIT: Final = NOTICE_NUMBER["names_limit"]

_NAMED: Final = ("topic", "producer_name")
_SPANS: Final = (
    ("partition_key", "partition_key", False),
    ("ordering_key", "ordering_key", True),
    ("schema_version_hex", "schema_version", True),
)
# Columns of the table that are numbers.
_PLAIN: Final = tuple(
    column.name
    for column in TABLES["messages"].columns
    if column.name in MessageColumns._fields
    and column.name not in (*_NAMED, "real_topic", "direction")
)


class Entries:
    """Turns the entries of one capture into messages, block after block.

    real_topics: names from messages, in their own table: names from frames are added in parallel,
        while entries of earlier blocks are parsed.
    """

    def __init__(
        self,
        protocol: int,
        properties: bool = False,
        payload_sha256: bool = False,
        redact: bool = True,
        key: int = 0,
    ) -> None:
        """
        Args:
            protocol: Pulsar's number in frames.protocol.
            properties, payload_sha256: add these columns; both are expensive.
            redact: hide the values of properties whose keys mean secrets.
            key: of hash tables.
        """
        self.real_topics = NameTable(key=key)
        self._names: Sequence[bytes] = ()
        self._wants_properties = properties
        self._wants_digest = payload_sha256
        self._redact = redact
        self._parser = state.new_parser_state(
            self.real_topics.columns, _FIRST_ROWS, _FIRST_TEXT_BYTES, protocol
        )
        self._decompressor = Decompressor()
        self._chunks = Chunks(keeps_pieces=payload_sha256)
        self._opened: ByteArray = np.zeros(1, np.uint8)
        self._joined: dict[int, Joined] = {}
        self._chunk_rows = np.zeros(_CHUNKS_AT_ONCE, np.int64)
        self._pending_chunks: list[tuple[int, Chunk]] = []  # in reverse order
        self._properties: list[dict[str, str]] = []
        self._digests: list[str | None] = []

    def set_proxy_side(self, connection: int, is_proxy_side: bool) -> None:
        """Join chunks on a proxy's side apart from the client's side; False when it closes."""
        self._chunks.set_proxy_side(connection, is_proxy_side)

    def advance(
        self,
        frames: FrameColumns,
        rows: int,
        sources: Sources,
        words: Int64Array,
        names: Sequence[bytes],
        notices: NoticeLog,
    ) -> list[TableBlock]:
        """The messages of a block, after the passes that fill its fields and names.

        Args:
            words: of the block, see fields.Fields; names: texts of the name codes; notices:
                receives the notices.
        """
        self._names = names
        if len(self._parser.notices.rows.kind) < rows:
            self._parser.grow(notices=new_notices(rows))
        cursor = self._parser.cursor
        cursor[[state.CURSOR_ROW, state.CURSOR_COUNT, state.CURSOR_TEXT]] = 0
        cursor[state.CURSOR_ROWS] = rows
        cursor[state.CURSOR_JOINED] = -1
        cursor[state.CURSOR_BATCHES] = 0
        blocks: list[TableBlock] = []
        status = -1
        # The kernel returns for compressed batches and for chunks, and is called again.
        passed, passed_words, opened = prepacked(sources), prepacked(words), self._opened
        passed_opened = prepacked(opened)
        while status != RowsStatus.DONE:
            first = int(cursor[state.CURSOR_COUNT])
            if opened is not self._opened:
                opened = self._opened
                passed_opened = prepacked(opened)
            status = messages_rows.open_entries(
                self._parser, frames, passed, passed_opened, passed_words
            )
            self._add_extras(first, frames, sources)
            if status == RowsStatus.FULL:
                is_too_small = not cursor[state.CURSOR_COUNT]
                if cursor[state.CURSOR_COUNT]:
                    blocks.append(self._flush())
                if is_too_small or self._parser.messages.matrix.shape[1] < _BLOCK_ROWS:
                    state.double_room(self._parser)
            elif status == RowsStatus.PACKED:
                self._unpack(frames, sources, notices)
            elif status != RowsStatus.DONE:
                self._join(frames, sources)
        notices.drain(self._parser.notices)
        notices.add(self._chunks.drain_notices())
        if self.real_topics.drain_refused():
            notices.add([notice_at(_NAMES_LIMIT, frames, rows - 1)])
        self._joined.clear()
        if cursor[state.CURSOR_COUNT]:
            blocks.append(self._flush())
        return blocks

    def finish(self, notices: NoticeLog) -> list[TableBlock]:
        """Add the notices of unfinished chunked messages."""
        notices.add(self._chunks.finish())
        return []

    def _unpack(self, frames: FrameColumns, sources: Sources, notices: NoticeLog) -> None:
        """Decompress the batch in the cursor's row, and those behind it up to _AT_ONCE_BYTES."""
        parser = self._parser
        self._decompressor.reserve(int(messages_rows.list_batches(parser, frames, _AT_ONCE_BYTES)))
        count = int(parser.cursor[state.CURSOR_BATCHES])
        for index, problem in self._decompressor.open_each(parser.batches, count, sources):
            row = int(parser.batches.row[index])
            notices.add([notice_at(_ENTRY_NOT_OPENED, frames, row, problem)])
        self._opened = self._decompressor.buffer

    def _join(self, frames: FrameColumns, sources: Sources) -> None:
        """Join chunks from the cursor's row on, up to a complete message, for the kernel."""
        cursor = self._parser.cursor
        if not self._pending_chunks:
            rows = self._chunk_rows[
                : messages_rows.list_chunks(self._parser, frames, self._chunk_rows)
            ]
            self._pending_chunks = [*zip(rows.tolist(), chunks_at(frames, rows), strict=True)][::-1]
        while self._pending_chunks:
            row, chunk = self._pending_chunks.pop()
            joined = self._chunks.add(chunk, sources)
            if joined is None:
                cursor[state.CURSOR_ROW] = row + 1
                continue
            cursor[state.CURSOR_ROW] = row
            unpacked = int(frames.uncompressed_bytes[row])
            is_packed = int(frames.compression[row]) != Codec.NONE and unpacked >= 0
            cursor[state.CURSOR_JOINED] = unpacked if is_packed else joined.size
            if self._wants_digest:
                self._joined[row] = joined
            return

    def _flush(self) -> TableBlock:
        """The messages so far as a block; their rows and text are free again."""
        messages, cursor = self._parser.messages, self._parser.cursor
        count = int(cursor[state.CURSOR_COUNT])
        cells = filled_columns(messages, count)
        columns: dict[str, Column] = {name: cells[name] for name in _PLAIN if name in cells}
        columns["direction"] = Coded(cells["direction"], DIRECTION_NAMES)
        for name in _NAMED:
            if name in cells:
                columns[name] = Coded(cells[name], self._names)
        if "real_topic" in cells:
            columns["real_topic"] = self._topics(cells["real_topic"], messages.metadata_at[:count])
        text = self._parser.text[: int(cursor[state.CURSOR_TEXT])].copy()
        for name, stem, is_hex in _SPANS:
            lengths = cells.get(f"{stem}_bytes")
            if lengths is not None:
                starts = np.where(lengths >= 0, cells[f"{stem}_at"], 0)
                columns[name] = Spans(text, starts, lengths, is_hex)
        if self._wants_properties:
            columns["properties"], self._properties = self._properties, []
        if self._wants_digest:
            columns["payload_sha256"], self._digests = self._digests, []
        cursor[state.CURSOR_COUNT] = cursor[state.CURSOR_TEXT] = 0
        return TableBlock("messages", count, columns)

    def _topics(self, codes: Int64Array, metadata_at: Int64Array) -> Coded:
        """Real topics. codes: in `real_topics` for messages of batches; for others, whose
        metadata_at is null, in the names of frames."""
        singles = np.flatnonzero((metadata_at == NULL) & (codes != NULL))
        used, positions = np.unique(codes[singles], return_inverse=True)
        own = [self.real_topics.code_of(self._names[code]) for code in used.tolist()]
        codes[singles] = np.array(own, np.int64)[positions]
        return Coded(codes, self.real_topics.names)

    def _add_extras(self, first: int, frames: FrameColumns, sources: Sources) -> None:
        """Add properties and digests of messages from `first` on, while their bytes are valid."""
        if not (self._wants_properties or self._wants_digest):
            return
        buffers = (*sources, self._opened)
        messages = self._parser.messages
        for number in range(first, int(self._parser.cursor[state.CURSOR_COUNT])):
            row = int(messages.row[number])
            data = buffers[int(messages.source[number])]
            if self._wants_properties:
                pairs = _properties(messages, number, frames, data)
                self._properties.append(
                    {key_text(pair, self._redact): pair_text(pair, self._redact) for pair in pairs}
                )
            if self._wants_digest:
                self._digests.append(self._digest(number, frames, row, data))

    def _digest(self, number: int, frames: FrameColumns, row: int, data: ByteArray) -> str | None:
        """SHA-256 of a message's payload, in hex; None if it cannot be read."""
        messages = self._parser.messages
        if messages.payload_bytes[number] == NULL:
            return None
        at = int(messages.payload_at[number])
        is_batch = messages.batch_size[number] != NULL
        size = int(messages.payload_bytes[number] if is_batch else frames.payload_bytes[row])
        payload = data[at : at + size]
        if row in self._joined:
            payload = np.frombuffer(bytearray(self._joined[row].pieces), np.uint8)
        if not is_batch and int(frames.compression[row]) != Codec.NONE:
            # With its own buffer: the caller still reads that of decompressed batches.
            opened = Decompressor().open(
                int(frames.compression[row]), payload, int(messages.payload_bytes[number])
            )
            if opened.problem != UnpackResult.OPENED:
                return None
            payload = opened.data[: opened.size]
        return hashlib.sha256(payload.tobytes()).hexdigest()


def _properties(
    messages: MessageColumns, number: int, frames: FrameColumns, data: ByteArray
) -> Sequence[Any]:
    """The application's properties of a message, as KeyValue messages."""
    row = int(messages.row[number])
    if messages.metadata_at[number] != NULL:
        name, at, size = (
            "SingleMessageMetadata",
            messages.metadata_at[number],
            messages.metadata_bytes[number],
        )
    else:
        name, at, size = "MessageMetadata", frames.metadata_at[row], frames.metadata_bytes[row]
    message = parse(name, data[int(at) : int(at) + int(size)].tobytes())
    return message.properties if message is not None else ()
