"""Parses a block's frames: the command or answer of each, and the columns that it fills."""

from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.codecs.names import NameTable
from dissector.limits import MAX_KEPT_ANSWERS, NULL
from dissector.protocols import columns
from dissector.protocols.columns import FrameColumns
from dissector.protocols.cursus import commands
from dissector.protocols.cursus.answers import Ack, Answer, answer_detail, read_answer, shown_value
from dissector.protocols.cursus.batches import LAYOUT_NAMES, UNKNOWN_ACKS
from dissector.protocols.cursus.bodies import BodyColumns
from dissector.protocols.cursus.body_starts import BodyShape
from dissector.protocols.cursus.compact_acks import ReadBy
from dissector.protocols.cursus.forwarded import (
    NOTHING,
    Forwarded,
    is_passed_on,
    read_forwarded,
)
from dissector.protocols.cursus.lines import CommandLine, line_detail, read_line
from dissector.protocols.cursus.unpacked_bodies import MARKED, BodyUnpacker
from dissector.protocols.interface import FrameBlock

_SHORT_BYTES: Final = 128
_WITH_MESSAGE: Final = frozenset(
    commands.NUMBER[name] for name in ("PUBLISH", "TXN_PUBLISH", "APPEND_STREAM")
)
_COMMIT_OFFSET: Final = commands.NUMBER["COMMIT_OFFSET"]
_COMMITS: Final = (_COMMIT_OFFSET, commands.NUMBER["COMMIT"])
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


class DecodedBody(NamedTuple):
    """The parsed frame of a row: a line, an answer, or neither (a batch, an empty frame).

    forwarded: the payload of a line from one broker to another.
    """

    line: CommandLine | None = None
    answer: Answer | None = None
    forwarded: Forwarded = NOTHING


_PLAIN: Final = DecodedBody()


class NameCodes:
    """Codes of names in texts: a cache of the name table."""

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._known: dict[bytes, int] = {}

    def of(self, name: bytes) -> int:
        """The code of a name; NULL for an empty name or if the table is full."""
        if not name:
            return NULL
        code = self._known.get(name)
        if code is None:
            code = self._names.code_of(name)
            if code >= 0:
                self._known[name] = code
        return code


class BodyDecoder:
    """Parses the frames of one capture, block after block. opening: their unpacked bodies."""

    def __init__(self, names: NameTable, protocol: int, redact: bool, detail: str) -> None:
        self._names = names
        self.codes = NameCodes(names)
        self._protocol = protocol
        self._redact = redact
        self._detail = detail
        self.opening = BodyUnpacker(names, protocol)
        self._answers: dict[bytes, Answer] = {}

    @property
    def bodies(self) -> BodyColumns:
        """The bodies of the block being read."""
        return self.opening.bodies

    def begin(self, block: FrameBlock) -> Int64Array:
        """Begin a block; returns the rows of this protocol, events among them."""
        mine = np.flatnonzero(block.frames.protocol[: block.rows] == self._protocol)
        self.opening.begin(block.rows, len(mine))
        return mine

    def read(self, block: FrameBlock, row: int) -> DecodedBody:
        """Parse the frame of a row, and fill the columns that depend on it alone."""
        frames = block.frames
        shape = int(self.bodies.shape[row])
        if shape == NULL:
            return _PLAIN
        wrapped = self.opening.wrapped.get(row)
        if wrapped is not None:
            frames.name_source[row] = columns.NAME_OBSERVED
            return self._fill_line(frames, row, wrapped)
        is_request = int(frames.direction[row]) == columns.TO_BROKER or (
            int(frames.direction[row]) != columns.TO_CLIENT
            and shape in (BodyShape.ENVELOPE, BodyShape.OTHER)
        )
        body = self.opening.body(block, row)
        is_whole = int(frames.status[row]) == columns.COMPLETE
        if not is_whole:
            body = _whole_words(body, shape)
            if not body:
                return _PLAIN
        if is_request:
            return self._request(frames, row, body, shape)
        if shape in MARKED or (
            shape in (BodyShape.OTHER, BodyShape.ENVELOPE) and not _is_utf8(body)
        ):
            return _unread(frames, row)
        return self._answer(frames, row, body, is_whole)

    def _request(self, frames: FrameColumns, row: int, body: bytes, shape: int) -> DecodedBody:
        line = read_line(body)
        command = line.command
        if shape in MARKED or (
            command == commands.UNKNOWN
            and (shape not in (BodyShape.TEXT, BodyShape.ENVELOPE) or not _is_utf8(line.word))
        ):
            return _unread(frames, row)
        frames.command[row] = command
        if command in _WITH_MESSAGE and line.payload is not None:
            self._note_message(frames, row, body, line, line.payload)
        return self._fill_line(frames, row, line)

    def _fill_line(self, frames: FrameColumns, row: int, line: CommandLine) -> DecodedBody:
        """The columns that a known command's arguments fill."""
        command = line.command
        frames.command[row] = command
        for name, column in _NAMED:
            value = line.arguments.get(name)
            if value:
                getattr(frames, column)[row] = self.codes.of(value)
                frames.name_source[row] = columns.NAME_OBSERVED
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
        if command in commands.ACKS and not is_passed_on(line):
            self._note_commit(frames, row, line)
        forwarded = read_forwarded(line)
        for column, text in forwarded.texts.items():
            getattr(frames, column)[row] = self.codes.of(text)
            frames.name_source[row] = columns.NAME_OBSERVED
        for column, figure in forwarded.numbers.items():
            getattr(frames, column)[row] = figure
        return DecodedBody(line=line, forwarded=forwarded)

    def _note_commit(self, frames: FrameColumns, row: int, line: CommandLine) -> None:
        """Fill the columns of a text that commits one offset."""
        entries = line.entries or ()
        offset = line.number(b"offset")
        if line.command == _COMMIT_OFFSET and offset is not None:
            entries = ((int(frames.partition[row]), offset),)
        if len(entries) == 1:
            self.bodies.committed_partition[row], self.bodies.following[row] = entries[0]

    def _note_message(
        self,
        frames: FrameColumns,
        row: int,
        body: bytes,
        line: CommandLine,
        payload: tuple[int, bytes],
    ) -> None:
        """Fill the columns of a text with a message, for the table messages."""
        key = line.arguments.get(b"key", b"")
        key_at = body.find(b"key=" + key)
        frames.message_count[row] = 1
        frames.is_batch[row] = 0
        if int(frames.status[row]) != columns.COMPLETE:
            return  # the message is cut
        bodies = self.bodies
        bodies.records[row] = 1
        bodies.records_at[row] = NULL
        bodies.payload[row] = len(payload[1])
        bodies.payload_at[row] = int(bodies.at[row]) + payload[0]
        bodies.key_at[row] = int(bodies.at[row]) + key_at + 4
        bodies.key_bytes[row] = len(key) if key and key_at >= 0 else NULL

    def _answer(self, frames: FrameColumns, row: int, body: bytes, is_whole: bool) -> DecodedBody:
        if not is_whole and body[:1] in (b"{", b"["):
            frames.command[row] = commands.RESPONSE_JSON
            return DecodedBody(answer=Answer(commands.RESPONSE_JSON, {}))
        answer = self._answers.get(body)
        if answer is None:
            answer = read_answer(body)
            if len(body) <= _SHORT_BYTES:
                if len(self._answers) >= MAX_KEPT_ANSWERS:
                    self._answers.clear()
                self._answers[body] = answer
        frames.command[row] = answer.command
        if is_whole and answer.command == commands.RESPONSE_OK:
            self.bodies.decoded[row] = ReadBy.OK
        if answer.ack is not None:
            ack = answer.ack
            frames.entry_id[row] = ack.last_offset
            frames.producer_epoch[row] = ack.producer_epoch
            frames.sequence_id[row] = ack.seq_start
            frames.highest_sequence_id[row] = ack.seq_end
            frames.producer_name[row] = self.codes.of(ack.producer_id)
            frames.name_source[row] = columns.NAME_OBSERVED
            return DecodedBody(answer=answer)
        for name, column in _ANSWER_NAMED:
            value = answer.fields.get(name)
            if isinstance(value, str):
                value = value.encode("utf-8", "replace")
            if isinstance(value, bytes) and value and not answer.is_error:
                getattr(frames, column)[row] = self.codes.of(value)
                frames.name_source[row] = columns.NAME_OBSERVED
        for name, column in (("partition", "partition"), ("epoch", "producer_epoch")):
            number = None if answer.is_error else answer.number(name)
            if number is not None:
                getattr(frames, column)[row] = number
        return DecodedBody(answer=answer)

    def detail(self, frames: FrameColumns, row: int, decoded: DecodedBody) -> dict[str, Any]:
        """A frame's values without a column, for `detail`."""
        if self._detail == "none":
            return {}
        is_full = self._detail == "all"
        if decoded.line is not None:
            detail = line_detail(decoded.line, self._redact, is_full)
            if int(frames.status[row]) != columns.COMPLETE:
                detail.pop("message_bytes", None)  # of what is there
            if decoded.forwarded.rest:
                detail["payload"] = shown_value("payload", decoded.forwarded.rest, self._redact)
            if row in self.opening.wrapped:
                detail["batch"] = self._batch_detail(frames, row)
            return detail
        if decoded.answer is not None:
            return answer_detail(decoded.answer, self._redact, is_full)
        if is_full and int(frames.command[row]) == commands.BATCH:
            return self._batch_detail(frames, row)
        if is_full and int(self.bodies.decoded[row]) == ReadBy.ACK:
            return answer_detail(self.ack_of(frames, row), self._redact, is_full)
        return {}

    def ack_of(self, frames: FrameColumns, row: int) -> Answer:
        """The acknowledgement in a row's columns."""
        ack = Ack(
            int(frames.entry_id[row]),
            int(frames.producer_epoch[row]),
            self._names.name_of(int(frames.producer_name[row])) or b"",
            int(frames.sequence_id[row]),
            int(frames.highest_sequence_id[row]),
        )
        return Answer(commands.RESPONSE_JSON, {}, ack=ack)

    def frequent(self, frames: FrameColumns, row: int) -> Answer | None:
        """The answer of a row that a kernel parsed; None for a batch or any other row."""
        decoded = int(self.bodies.decoded[row])
        if decoded == ReadBy.ACK:
            return self.ack_of(frames, row)
        return Answer(commands.RESPONSE_OK, {}) if decoded == ReadBy.OK else None

    def _batch_detail(self, frames: FrameColumns, row: int) -> dict[str, Any]:
        bodies = self.bodies
        layout, acks = int(bodies.layout[row]), int(bodies.acks[row])
        detail: dict[str, Any] = {}
        if layout != NULL:
            detail["layout"] = LAYOUT_NAMES[layout]
        if acks != NULL:
            detail["acks"] = None if acks == UNKNOWN_ACKS else acks
        if int(bodies.idempotent[row]) != NULL:
            detail["idempotent"] = bool(bodies.idempotent[row])
        if int(bodies.records[row]) != NULL:
            detail["last_offset"] = int(bodies.last_offset[row])
            detail["leftover_bytes"] = int(bodies.leftover[row])
        return detail


def _unread(frames: FrameColumns, row: int) -> DecodedBody:
    """Mark an unreadable body as malformed; a cut one may be any command."""
    if int(frames.status[row]) == columns.COMPLETE:
        frames.command[row] = commands.UNKNOWN
        frames.status[row] = columns.MALFORMED
    else:
        frames.command[row] = NULL
    return _PLAIN


def _whole_words(body: bytes, shape: int) -> bytes:
    """A cut text without its last word or quoted value, which may be incomplete."""
    if shape == BodyShape.JSON:
        return body
    start = 2 + body[1] if shape == BodyShape.ENVELOPE and len(body) > 1 else 0
    end = max(body.rfind(blank) for blank in (b" ", b"\t", b"\n"))
    if end > start:
        bracket = body.rfind(b"[", start, end)
        opened = bracket if b"]" not in body[bracket:end] else -1
        if body.count(b'"', start, end) % 2:
            opened = body.rfind(b'"', start, end)
        if opened >= 0:
            end = max(body.rfind(blank, 0, opened) for blank in (b" ", b"\t", b"\n"))
    return body[:end] if end > start else b""


def _is_utf8(text: bytes) -> bool:
    try:
        plain = text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return not any(ord(each) < 0x20 and each not in "\t\r\n" for each in plain)
