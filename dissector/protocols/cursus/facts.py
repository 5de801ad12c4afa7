"""Cursus' part of a dissection: decoded bodies, messages and exchanges over each block."""

from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.codecs.names import NameTable
from dissector.codecs.secret_keys import is_secret
from dissector.limits import MAX_PENDING_REQUESTS, NULL
from dissector.notice_log import NoticeLog, of_limits, of_long_names
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COLUMN_NUMBER, MALFORMED, FrameColumns, FrameEvent
from dissector.protocols.cursus.commands import names_column
from dissector.protocols.cursus.compact_acks import ReadBy
from dissector.protocols.cursus.compressed import CODEC_NAMES
from dissector.protocols.cursus.decoded_bodies import BodyDecoder, DecodedBody
from dissector.protocols.cursus.exchanges import CursusExchanges
from dissector.protocols.cursus.headers import BROKER_BODY_LIMIT, LENGTH_BYTES
from dissector.protocols.cursus.lines import as_json
from dissector.protocols.cursus.messages import Messages
from dissector.protocols.frame_notices import notice_at
from dissector.protocols.frame_table import picked
from dissector.protocols.interface import (
    ConnectionFacts,
    Decoded,
    DecoderOptions,
    FrameBlock,
    Related,
)

_NAMED: Final = ("topic", "subscription", "producer_name", "consumer_name")
_PICKED: Final = ("command", "compression", *_NAMED)
# In place of the protocol's number, while a block is paired: frames of connections that are copies
# of others have state of their own, so that nothing in it is counted twice.
_COPIES: Final = 1 << 20
_NUMBERS: Final = np.array([COLUMN_NUMBER[name] for name in _PICKED], np.int64)


class _Texts(NamedTuple):
    """What a frame's columns of text hold."""

    detail: str | None = None
    error_code: str | None = None
    error_text: bytes | None = None


_NO_TEXTS: Final = _Texts()


@dataclass
class _Decoded(Decoded):
    """A block: all names by code; texts of the rows that have any; closed rows of producers,
    consumers, exchanges, acks and deliveries."""

    names: list[bytes]
    texts: dict[int, _Texts]
    client_handles: list[TableBlock]
    relations: list[TableBlock]


class CursusDecoder:
    """The state of one capture's Cursus frames.

    Earlier commands decide how later ones are read, so the first stage does everything.
    """

    def __init__(self, options: DecoderOptions) -> None:
        self._names = NameTable(key=options.hash_key)
        self.notices = NoticeLog()
        self._hidden = (0, 0)
        self._detail = options.want_detail
        self._protocol = options.protocol_number
        self._decoder = BodyDecoder(
            self._names, options.protocol_number, options.redact, options.want_detail
        )
        self._exchanges, self._of_copies = (
            CursusExchanges(
                self._names,
                self._decoder,
                self.notices,
                protocol,
                options.bounded(MAX_PENDING_REQUESTS),
            )
            for protocol in (options.protocol_number, _COPIES)
        )
        self._copies: set[int] = set()  # open connections that are copies of others
        self._messages = Messages(self._names, options.properties, options.payload_sha256)
        self._read: dict[int, DecodedBody] = {}

    def advance(self, block: FrameBlock) -> _Decoded:
        """Fill the columns of Cursus' rows, and collect all closed rows."""
        frames = block.frames
        mine = self._decoder.begin(block)
        self._read = {}
        messages: list[TableBlock] = []
        first = 0
        while len(mine) and first < block.rows:
            stop = self._decoder.opening.read_batches(block, first, block.rows)
            for row in self._rows_to_parse(block, first, stop):
                self._parse(block, row)
            sources = (*block.sources, self._decoder.opening.opened)
            messages += self._messages.advance(frames, first, stop, sources, self._decoder.bodies)
            first = stop
        self._copies.update(block.copies)
        copied = mine[np.isin(frames.connection_id[mine], list(self._copies))]
        frames.protocol[copied] = _COPIES
        self._exchanges.advance(frames, block.rows, len(mine) - len(copied), self._read)
        self._of_copies.advance(frames, block.rows, len(copied), self._read)
        frames.protocol[copied] = self._protocol
        texts = {row: self._texts(frames, row) for row in self._with_texts(frames, mine)}
        return _Decoded(
            messages, self._names.update(), texts,
            self._exchanges.client_handles() + self._of_copies.client_handles(),
            self._exchanges.relations() + self._of_copies.relations(),
        )  # fmt: skip

    def _rows_to_parse(self, block: FrameBlock, first: int, stop: int) -> list[int]:
        """Rows that kernels have not parsed, or that need a notice."""
        frames, bodies = block.frames, self._decoder.bodies
        part = slice(first, stop)
        decoded = bodies.decoded[part]
        is_frame = frames.frame_no[part] != NULL
        chosen = is_frame & (bodies.shape[part] != NULL)
        chosen &= (decoded == NULL) | (decoded == ReadBy.WRAPPED)
        chosen |= is_frame & (frames.status[part] == MALFORMED)
        chosen |= ~is_frame & (frames.command[part] == FrameEvent.CLOSE)
        chosen |= is_frame & (frames.frame_bytes[part] > BROKER_BODY_LIMIT + LENGTH_BYTES)
        chosen &= frames.protocol[part] == self._protocol
        rows: list[int] = (first + np.flatnonzero(chosen)).tolist()
        return rows

    def _parse(self, block: FrameBlock, row: int) -> None:
        frames = block.frames
        if frames.frame_no[row] == NULL:
            self._decoder.opening.forget(int(frames.connection_id[row]))
            return
        if int(self._decoder.bodies.decoded[row]) in (NULL, ReadBy.WRAPPED):
            decoded = self._decoder.read(block, row)
            if decoded.line is not None or decoded.answer is not None:
                self._read[row] = decoded
                self._count_hidden(decoded)
        if frames.status[row] == MALFORMED:
            self._note(frames, row, "malformed_frame")
        if frames.frame_bytes[row] > BROKER_BODY_LIMIT + LENGTH_BYTES:
            self._note(frames, row, "large_frame", int(frames.frame_bytes[row]))

    def _count_hidden(self, decoded: DecodedBody) -> None:
        for name, value in decoded.line.arguments.items() if decoded.line is not None else ():
            if value and is_secret(name.decode("latin-1")):
                self._hidden = self._hidden[0] + 1, self._hidden[1] + len(value)

    def pair(self, block: FrameBlock, decoded: _Decoded) -> Related:
        """The closed rows of producers and consumers."""
        return Related(decoded.client_handles)

    def read(self, block: FrameBlock, decoded: _Decoded) -> Related:
        """No further tables: the first stage has written everything."""
        return Related([])

    def relate(self, block: FrameBlock, decoded: _Decoded) -> Related:
        """The closed rows of exchanges, acks and deliveries."""
        return Related(decoded.relations)

    def _note(self, frames: FrameColumns, row: int, code: str, value: int = NULL) -> None:
        self.notices.add([notice_at(NOTICE_NUMBER[code], frames, row, value)])

    def frame_columns(
        self, block: FrameBlock, decoded: _Decoded, rows: Int64Array
    ) -> dict[str, Column]:
        """Cursus' own columns of the table frames, for chosen rows of the block."""
        columns: dict[str, Column] = {}
        for index, values in picked(block, _NUMBERS, rows).items():
            name = _PICKED[index]
            if name == "command":
                columns[name] = names_column(values)
            elif name == "compression":
                columns[name] = Coded(values, CODEC_NAMES)
            else:
                columns[name] = Coded(values, decoded.names)
        if decoded.texts:
            texts = zip(*(decoded.texts.get(row, _NO_TEXTS) for row in rows.tolist()), strict=True)
            for name, column in zip(_Texts._fields, map(list, texts), strict=True):
                if name == "detail" or any(text is not None for text in column):
                    columns[name] = column
        return columns

    def _texts(self, frames: FrameColumns, row: int) -> _Texts:
        decoded = self._read.get(row, DecodedBody())
        detail = as_json(self._decoder.detail(frames, row, decoded))
        answer = decoded.answer
        if answer is None or not answer.is_error:
            return _Texts(detail)
        return _Texts(detail, answer.error_code, answer.error_text)

    def _with_texts(self, frames: FrameColumns, mine: Int64Array) -> list[int]:
        """Frames that may have a text; all where all have details."""
        if self._detail != "all":
            return [*self._read]
        rows: list[int] = mine[frames.frame_no[mine] != NULL].tolist()
        return rows

    def connection_facts(self, connections: Sequence[int]) -> dict[int, ConnectionFacts]:
        """Remove and return the facts of ended connections."""
        self._copies.difference_update(connections)
        ended = (self._exchanges.negotiated, self._of_copies.negotiated)
        return {each: known.pop(each) for known in ended for each in connections if each in known}

    def open_facts(self, connections: Sequence[int]) -> dict[int, ConnectionFacts]:
        """The facts of connections so far."""
        both = (self._exchanges, self._of_copies)
        known = ((each, one.open_facts(each)) for one in both for each in connections)
        return {each: facts for each, facts in known if facts is not None}

    def repeated(self) -> Collection[int]:
        """Ignored: there is no proxy of Cursus, and the dissection knows the copies."""
        return ()

    def drain_hidden(self) -> tuple[int, int]:
        """Credentials that commands name."""
        hidden, self._hidden = self._hidden, (0, 0)
        return hidden

    def finish(self) -> list[TableBlock]:
        """Close what is open at the capture's end."""
        both = (self._exchanges, self._of_copies)
        rows = [rows for one in both for rows in _finished(one)]
        self.notices.add(of_long_names(self._names.drain_cut()))
        memories = [memory for one in both for memory in one.memories()]
        self.notices.add(of_limits(*memories, crowded=self._names.crowded))
        return rows

    def open_rows(self) -> list[TableBlock]:
        """The rows that `finish` would return now."""
        shared = (self._names, self._decoder)
        both = (self._exchanges, self._of_copies)
        ended = deepcopy(both, {id(each): each for each in shared})
        return [rows for one in ended for rows in _finished(one)]


def _finished(exchanges: CursusExchanges) -> list[TableBlock]:
    """Close what is open at the capture's end; the rows of it."""
    exchanges.finish()
    return exchanges.client_handles() + exchanges.relations()
