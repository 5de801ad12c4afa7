"""A block's frames, read: which command or answer each is, and the columns that it fills."""

from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.codecs.names import NameTable
from dissector.limits import NULL
from dissector.protocols.columns import (
    COMPLETE,
    FIRST_FIELD,
    MALFORMED,
    NAME_OBSERVED,
    TO_BROKER,
    TO_CLIENT,
    FrameColumns,
)
from dissector.protocols.cursus.answers import Answer, answer_detail, read_answer
from dissector.protocols.cursus.batches import LAYOUT_NAMES, UNKNOWN_ACKS
from dissector.protocols.cursus.bodies import (
    OPENED_SOURCE,
    BodyColumns,
    find_bodies,
    read_batches,
)
from dissector.protocols.cursus.commands import (
    BATCH,
    KEEPALIVE,
    NUMBER,
    RESPONSE_JSON,
    UNKNOWN,
)
from dissector.protocols.cursus.compressed import NONE_CODEC, open_body
from dissector.protocols.cursus.headers import (
    BATCH_BODY,
    EMPTY,
    ENVELOPE,
    GZIP,
    JSON,
    LZ4_FRAME,
    OTHER,
    TEXT,
    XERIAL,
    shape_of,
)
from dissector.protocols.cursus.lines import Line, line_detail, read_line
from dissector.protocols.interface import FrameBlock
from dissector.protocols.tables import new_hash_table, remove, roomy

OPENED_BYTES: Final = 32 << 20  # uncompressed at once; then the frames so far are read first
_MARKED: Final = (GZIP, LZ4_FRAME, XERIAL)
_WITH_MESSAGE: Final = frozenset(
    NUMBER[name] for name in ("PUBLISH", "TXN_PUBLISH", "APPEND_STREAM")
)
_COMMITS: Final = frozenset(NUMBER[name] for name in ("COMMIT_OFFSET", "COMMIT"))
_NAMED: Final = (
    (b"topic", "topic"),
    (b"group", "subscription"),
    (b"producerId", "producer_name"),
    (b"member", "consumer_name"),
)
_ANSWER_NAMED: Final = (
    ("topic", "topic"),
    ("group", "subscription"),
    ("producerId", "producer_name"),
    ("member", "consumer_name"),
)
_NUMBERED: Final = ((b"partition", "partition"), (b"epoch", "producer_epoch"))


class Reading(NamedTuple):
    """What the frame of a row says: a line, an answer, or neither (a batch, an empty frame)."""

    line: Line | None = None
    answer: Answer | None = None


_PLAIN: Final = Reading()


class Codes:
    """Codes of names that texts bring, without asking the table twice."""

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._known: dict[bytes, int] = {}

    def of(self, name: bytes) -> int:
        """The code of a name; NULL for none and where the table is full."""
        if not name:
            return NULL
        code = self._known.get(name)
        if code is None:
            code = self._names.code_of(name)
            if code >= 0:
                self._known[name] = code
        return code


class Readings:
    """Reads the frames of one capture, block after block.

    bodies: of the rows of the block being read; opened: its uncompressed bodies.
    """

    def __init__(self, names: NameTable, place: int, redact: bool, detail: str) -> None:
        self._names = names
        self.codes = Codes(names)
        self._place = place
        self._redact = redact
        self._detail = detail
        self._layouts = new_hash_table(64)
        self.bodies = BodyColumns.new(1, NULL)
        self.opened = np.zeros(1, np.uint8)

    def begin(self, block: FrameBlock) -> Int64Array:
        """Make a block's own columns null; the rows of this protocol, events among them."""
        frames, rows = block.frames, block.rows
        mine = np.flatnonzero(frames.protocol[:rows] == self._place)
        if len(mine) == rows:
            block.matrix[FIRST_FIELD:, :rows] = NULL
        elif len(mine):
            block.matrix[FIRST_FIELD:, mine] = NULL
        if self.bodies.matrix.shape[1] < rows:
            self.bodies = BodyColumns.new(rows, NULL)
        self._layouts = roomy(self._layouts, len(mine))
        return mine

    def read_batches(self, block: FrameBlock, first: int, stop: int) -> int:
        """Find, open and read the bodies of rows from `first` on; returns where it stopped."""
        frames = block.frames
        find_bodies(frames, first, stop, self._place, block.sources, self.bodies)
        stop = self._open(block, first, stop)
        sources = (*block.sources, self.opened)
        read_batches(frames, first, stop, sources, self.bodies, self._names.columns, self._layouts)
        self._open_unmarked(block, first, stop)
        return stop

    def _open(self, block: FrameBlock, first: int, stop: int) -> int:
        """Uncompress bodies with a mark."""
        shapes = self.bodies.shape[first:stop]
        found = [first + row for row in np.flatnonzero(np.isin(shapes, _MARKED)).tolist()]
        parts: list[bytes] = []
        size = 0
        for row in found:
            if size > OPENED_BYTES:
                stop = row
                break
            size += self._open_row(block, row, parts, size)
        self._keep(parts, 0)
        return stop

    def _keep(self, parts: list[bytes], used: int) -> None:
        if not parts:
            return
        before = [self.opened[:used].tobytes()] if used else []
        self.opened = np.frombuffer(bytearray(b"".join([*before, *parts])), np.uint8)

    def _open_row(self, block: FrameBlock, row: int, parts: list[bytes], used: int) -> int:
        """Uncompress one body behind the `used` bytes of others; returns its size."""
        frames, bodies = block.frames, self.bodies
        if int(frames.status[row]) != COMPLETE:
            return 0
        at, end = int(bodies.at[row]), int(bodies.end[row])
        found = open_body(block.sources[int(frames.source[row])][at:end], int(bodies.shape[row]))
        if found is None:
            return 0
        codec, plain = found
        parts.append(plain)
        bodies.codec[row] = codec
        bodies.source[row] = OPENED_SOURCE
        bodies.at[row] = used
        bodies.end[row] = used + len(plain)
        held = np.frombuffer(bytearray(plain), np.uint8)
        bodies.shape[row] = shape_of(held, 0, len(plain))
        frames.payload_bytes[row] = end - at
        frames.uncompressed_bytes[row] = len(plain)
        frames.compression[row] = codec
        return len(plain)

    def _open_unmarked(self, block: FrameBlock, first: int, stop: int) -> None:
        """Bare snappy blocks have no mark: a client's body that is nothing else may be one."""
        frames, bodies = block.frames, self.bodies
        shapes = bodies.shape[first:stop]
        rows = first + np.flatnonzero(
            (shapes != NULL)
            & (shapes != EMPTY)
            & (bodies.codec[first:stop] == NULL)
            & (frames.direction[first:stop] != TO_CLIENT)
            & (frames.status[first:stop] == COMPLETE)
            & ~((shapes == BATCH_BODY) & (bodies.records[first:stop] != NULL))
            & (shapes != ENVELOPE)
        )
        parts: list[bytes] = []
        used = size = len(self.opened)
        for row in rows.tolist():
            if int(bodies.shape[row]) == TEXT and self._is_text(block, row):
                continue
            bodies.shape[row] = OTHER if int(bodies.shape[row]) == TEXT else bodies.shape[row]
            before = int(bodies.shape[row])
            if size - used > OPENED_BYTES:
                break
            bodies.shape[row] = OTHER
            added = self._open_row(block, row, parts, size)
            size += added
            if not added:
                bodies.shape[row] = before
        if not parts:
            return
        self._keep(parts, used)
        sources = (*block.sources, self.opened)
        for row in rows.tolist():
            if int(bodies.codec[row]) != NULL:
                read_batches(
                    frames, row, row + 1, sources, bodies, self._names.columns, self._layouts
                )

    def body(self, block: FrameBlock, row: int) -> bytes:
        """The bytes of a row's body, uncompressed."""
        source = int(self.bodies.source[row])
        data = self.opened if source == OPENED_SOURCE else block.sources[source]
        return data[int(self.bodies.at[row]) : int(self.bodies.end[row])].tobytes()

    def _is_text(self, block: FrameBlock, row: int) -> bool:
        """Whether a body that begins with a letter is a text: no byte that texts do not have."""
        body = self.body(block, row)[:512]
        return not any(value < 0x20 and value not in (9, 10, 13) for value in body)

    def read(self, block: FrameBlock, row: int) -> Reading:
        """Read the frame of a row, and fill the columns that it alone decides."""
        frames, bodies = block.frames, self.bodies
        shape = int(bodies.shape[row])
        if shape == NULL:
            return _PLAIN
        if shape == EMPTY:
            frames.command[row] = KEEPALIVE
            return _PLAIN
        if shape == BATCH_BODY:
            self._note_batch(frames, row)
            return _PLAIN
        is_request = int(frames.direction[row]) == TO_BROKER or (
            int(frames.direction[row]) != TO_CLIENT and shape in (ENVELOPE, OTHER)
        )
        body = self.body(block, row)
        is_whole = int(frames.status[row]) == COMPLETE
        if not is_whole:
            body = _whole_words(body, shape)
            if not body:
                return _PLAIN
        if is_request:
            return self._request(frames, row, body, shape)
        if shape in _MARKED or (shape in (OTHER, ENVELOPE) and not _is_utf8(body)):
            frames.command[row] = UNKNOWN
            frames.status[row] = MALFORMED if is_whole else frames.status[row]
            return _PLAIN
        return self._answer(frames, row, body, is_whole)

    def forget(self, connection: int) -> None:
        """A connection is over."""
        remove(self._layouts, connection, 0, 0, 0)

    def _note_batch(self, frames: FrameColumns, row: int) -> None:
        frames.command[row] = BATCH
        bodies = self.bodies
        if int(bodies.codec[row]) == NULL:
            frames.compression[row] = NONE_CODEC
            frames.payload_bytes[row] = int(frames.frame_bytes[row]) - 4
        if int(frames.status[row]) == COMPLETE and int(bodies.records[row]) == NULL:
            frames.status[row] = MALFORMED
            frames.message_count[row] = NULL  # what its header claims is not there
        frames.name_source[row] = NAME_OBSERVED

    def _request(self, frames: FrameColumns, row: int, body: bytes, shape: int) -> Reading:
        line = read_line(body)
        command = line.command
        frames.command[row] = command
        if command == UNKNOWN and not _is_utf8(line.word):
            frames.status[row] = MALFORMED if frames.status[row] == COMPLETE else frames.status[row]
            return _PLAIN
        if shape in _MARKED or (command == UNKNOWN and shape not in (TEXT, ENVELOPE)):
            if int(frames.status[row]) == COMPLETE:
                frames.status[row] = MALFORMED
            return _PLAIN
        for name, column in _NAMED:
            value = line.arguments.get(name)
            if value:
                getattr(frames, column)[row] = self.codes.of(value)
                frames.name_source[row] = NAME_OBSERVED
        for name, column in _NUMBERED:
            number = line.number(name)
            if number is not None:
                getattr(frames, column)[row] = number
        if int(frames.partition[row]) == -1:
            frames.partition[row] = NULL
        sequence = line.number(b"seqNum")
        if sequence is not None:
            frames.sequence_id[row] = frames.highest_sequence_id[row] = sequence
        if command in _COMMITS:
            offset = line.number(b"offset")
            if offset is not None and offset > 0:
                frames.entry_id[row] = offset - 1
        if command in _WITH_MESSAGE and line.payload is not None:
            self._note_message(frames, row, body, line, line.payload)
        return Reading(line=line)

    def _note_message(
        self, frames: FrameColumns, row: int, body: bytes, line: Line, payload: tuple[int, bytes]
    ) -> None:
        """A text that carries one message is a row of messages as well."""
        key = line.arguments.get(b"key", b"")
        key_at = body.find(b"key=" + key)
        frames.message_count[row] = 1
        frames.is_batch[row] = 0
        bodies = self.bodies
        bodies.records[row] = 1
        bodies.records_at[row] = NULL
        bodies.payload[row] = len(payload[1])
        bodies.payload_at[row] = int(bodies.at[row]) + payload[0]
        bodies.key_at[row] = int(bodies.at[row]) + key_at + 4
        bodies.key_bytes[row] = len(key) if key and key_at >= 0 else NULL

    def _answer(self, frames: FrameColumns, row: int, body: bytes, is_whole: bool) -> Reading:
        if not is_whole and body[:1] in (b"{", b"["):
            frames.command[row] = RESPONSE_JSON
            return Reading(answer=Answer(RESPONSE_JSON, {}))
        answer = read_answer(body)
        frames.command[row] = answer.command
        if answer.ack is not None:
            ack = answer.ack
            frames.entry_id[row] = ack.last_offset
            frames.producer_epoch[row] = ack.producer_epoch
            frames.sequence_id[row] = ack.seq_start
            frames.highest_sequence_id[row] = ack.seq_end
            frames.producer_name[row] = self.codes.of(ack.producer_id)
            frames.name_source[row] = NAME_OBSERVED
            return Reading(answer=answer)
        for name, column in _ANSWER_NAMED:
            value = answer.fields.get(name)
            if isinstance(value, str):
                value = value.encode("utf-8", "replace")
            if isinstance(value, bytes) and value and not answer.is_error:
                getattr(frames, column)[row] = self.codes.of(value)
                frames.name_source[row] = NAME_OBSERVED
        for name, column in (("partition", "partition"), ("epoch", "producer_epoch")):
            number = None if answer.is_error else answer.number(name)
            if number is not None:
                getattr(frames, column)[row] = number
        return Reading(answer=answer)

    def detail(self, frames: FrameColumns, row: int, reading: Reading) -> dict[str, Any]:
        """What a frame says beyond its columns, for `detail`."""
        if self._detail == "none":
            return {}
        is_full = self._detail == "all"
        if reading.line is not None:
            return line_detail(reading.line, self._redact, is_full)
        if reading.answer is not None:
            return answer_detail(reading.answer, self._redact, is_full)
        if is_full and int(frames.command[row]) == BATCH:
            return self._batch_detail(frames, row)
        return {}

    def _batch_detail(self, frames: FrameColumns, row: int) -> dict[str, Any]:
        bodies = self.bodies
        if int(bodies.layout[row]) == NULL:
            return {}
        acks = int(bodies.acks[row])
        found: dict[str, Any] = {
            "layout": LAYOUT_NAMES[int(bodies.layout[row])],
            "acks": None if acks == UNKNOWN_ACKS else acks,
            "idempotent": bool(bodies.idempotent[row]),
        }
        if int(bodies.records[row]) != NULL:
            found["last_offset"] = int(bodies.last_offset[row])
            found["leftover_bytes"] = int(bodies.leftover[row])
        return found


def _whole_words(body: bytes, shape: int) -> bytes:
    """The part of a cut text that is certain: without its last word, which may go on."""
    if shape == JSON:
        return body
    start = 2 + body[1] if shape == ENVELOPE and len(body) > 1 else 0
    end = max(body.rfind(blank) for blank in (b" ", b"\t", b"\n"))
    return body[:end] if end > start else b""


def _is_utf8(text: bytes) -> bool:
    try:
        plain = text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any(ord(each) < 0x20 and each not in "\t\r\n" for each in plain)
