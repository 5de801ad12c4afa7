"""Pulsar's part of a dissection: fields, registry, exchanges, consumption over each block."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from dissector import limits
from dissector.blocks import Coded, Column, Int64Array, Lists, Spans, TableBlock, coded
from dissector.codecs.names import NameTable
from dissector.codecs.texts import bounded
from dissector.limits import NULL
from dissector.notice_log import NoticeLog, of_limits, of_long_names
from dissector.protobuf.descriptors import enum_names
from dissector.protocols.columns import COLUMN_NUMBER
from dissector.protocols.frame_table import WORDS, copied_spans, picked
from dissector.protocols.interface import (
    ConnectionFacts,
    Decoded,
    DecoderOptions,
    FrameBlock,
    Related,
)
from dissector.protocols.pairing.state import PairingBounds
from dissector.protocols.pulsar.consumption import PulsarConsumption
from dissector.protocols.pulsar.exchanges import ErrorTexts, PulsarExchanges
from dissector.protocols.pulsar.handshakes import Handshakes
from dissector.protocols.pulsar.messages import Entries
from dissector.protocols.pulsar.proxy_sides import ProxySides
from dissector.protocols.pulsar.registry import PulsarRegistry
from dissector.protocols.pulsar.wire.columns import field_of
from dissector.protocols.pulsar.wire.commands import CommandNames
from dissector.protocols.pulsar.wire.details import DETAILS
from dissector.protocols.pulsar.wire.fields import FieldDecoder, Fields
from dissector.schemas import TABLES
from dissector.schemas.enums import CHECKSUM_NOTES

# Kinds of marker messages; the wire definition has no enumeration of them.
MARKERS: Final = {
    10: "REPLICATED_SUBSCRIPTION_SNAPSHOT_REQUEST",
    11: "REPLICATED_SUBSCRIPTION_SNAPSHOT_RESPONSE",
    12: "REPLICATED_SUBSCRIPTION_SNAPSHOT",
    13: "REPLICATED_SUBSCRIPTION_UPDATE",
    20: "TXN_COMMITTING",
    21: "TXN_COMMIT",
    22: "TXN_ABORT",
}
# Columns of `frames` that are no numbers: texts in the frame's bytes, and codes.
_TEXTS: Final = tuple(
    (column.name, f"{column.name}_at", f"{column.name}_bytes")
    for column in TABLES["frames"].columns
    if column.type == "string" and f"{column.name}_at" in COLUMN_NUMBER
)
_CODED: Final = tuple(
    column.name
    for column in TABLES["frames"].columns
    if column.type == "string" and column.name in COLUMN_NUMBER.keys() - WORDS.keys() - {"protocol"}
)
_NUMBERS: Final = np.array([COLUMN_NUMBER[name] for name in _CODED], np.int64)
_ACK_SETS: Final = np.array(
    [COLUMN_NUMBER[name] for name in ("ack_set_at", "ack_set_count")], np.int64
)


@dataclass
class _Decoded(Decoded):
    """A block: its fields; all names by code; connections newly known as a proxy's side; and the
    values that registry and exchanges need of its bytes."""

    fields: Fields
    names: list[bytes]
    proxy_connections: list[int]
    raw_values: Int64Array
    error_texts: ErrorTexts


class PulsarDecoder:
    """The state of one capture's Pulsar frames."""

    def __init__(self, options: DecoderOptions) -> None:
        self._names = NameTable(key=options.hash_key)
        self._decoder = FieldDecoder(self._names, options.protocol_number)
        self._registry = PulsarRegistry(
            options.protocol_number, options.hash_key, self._decoder.unknown
        )
        self._entries = Entries(
            options.protocol_number,
            options.properties,
            options.payload_sha256,
            options.redact,
            options.hash_key,
        )
        self._exchanges = PulsarExchanges(
            options.protocol_number,
            options.reorder_window_ns,
            PairingBounds(*map(options.bounded, PairingBounds())),
            options.hash_key,
        )
        self._consumption = PulsarConsumption(
            options.protocol_number,
            options.bounded(limits.MAX_OPEN_DELIVERIES),
            options.bounded(limits.MAX_IDENTITY_INTERVALS),
            options.bounded(limits.MAX_CONSUMERS),
            options.hash_key,
        )
        self._handshakes = Handshakes(options.protocol_number, self._decoder.unknown)
        self._proxy_sides = ProxySides(options.protocol_number)
        self._detail = DETAILS[options.want_detail]
        self._redact = options.redact
        self._hidden = (0, 0)
        self._commands = CommandNames()
        self._commands_of_frames = CommandNames()
        self.notices = NoticeLog()

    def advance(self, block: FrameBlock) -> _Decoded:
        """Fill the columns that come from the bytes of Pulsar's rows; threads fill the others."""
        frames, rows, sources = block.frames, block.rows, block.sources
        fields = self._decoder.decode(frames, rows, sources)
        self.notices.take(self._decoder.notices)
        return _Decoded(
            [],
            fields,
            self._names.update(),
            self._proxy_legs(block),
            self._registry.read_raw_values(frames, rows, sources),
            self._exchanges.read_texts(frames, rows, sources),
        )

    def pair(self, block: FrameBlock, decoded: _Decoded) -> Related:
        """Fill names in frames; return producers, consumers and exchanges that closed.

        With `relate` it needs a third of the time.
        """
        for connection in decoded.proxy_connections:
            self._exchanges.set_proxy_side(connection, True)
        frames, rows, names, notices = block.frames, block.rows, decoded.names, NoticeLog()
        context = self._registry.begin(rows, names, decoded.raw_values)
        texts = decoded.error_texts
        exchanges = self._exchanges.pair_named(frames, rows, texts, names, context, notices)
        client_handles = self._registry.closed(rows, context, notices)
        return Related(self._named(client_handles + exchanges), notices)

    def read(self, block: FrameBlock, decoded: _Decoded) -> Related:
        """The messages of a block."""
        for connection in decoded.proxy_connections:
            self._entries.set_proxy_side(connection, True)
        frames, rows, words, notices = block.frames, block.rows, decoded.fields.words, NoticeLog()
        messages = self._entries.advance(frames, rows, block.sources, words, decoded.names, notices)
        return Related(messages, notices)

    def relate(self, block: FrameBlock, decoded: _Decoded) -> Related:
        """The consumption tables of a block."""
        for connection in decoded.proxy_connections:
            self._consumption.set_proxy_side(connection, True)
        frames, rows, fields, notices = block.frames, block.rows, decoded.fields, NoticeLog()
        consumption = self._consumption.advance(
            frames, rows, fields.ids, fields.words, decoded.names, notices
        )
        return Related(consumption, notices)

    def _proxy_legs(self, block: FrameBlock) -> list[int]:
        """Parse handshakes; return connections newly known as copies, or a proxy's side."""
        frames, rows, sources = block.frames, block.rows, block.sources
        handshakes = self._handshakes.advance(frames, rows, sources)
        for each in handshakes:
            if each.handshake.auth_bytes:
                self._hidden = self._hidden[0] + 1, self._hidden[1] + each.handshake.auth_bytes
        self._proxy_sides.repeated.update(block.copies)
        proxied = self._proxy_sides.advance(handshakes, frames, rows, sources, block.hosts)
        return [*block.copies, *proxied]

    def frame_columns(
        self, block: FrameBlock, decoded: _Decoded, rows: Int64Array
    ) -> dict[str, Column]:
        """Pulsar's own columns of the table `frames`, for chosen rows of the block."""
        columns: dict[str, Column] = {}
        for index, values in picked(block, _NUMBERS, rows).items():
            name = _CODED[index]
            words = _words_of(name)
            if name == "command":
                columns[name] = self._commands_of_frames.column(values)
            elif name == "checksum_note":
                columns[name] = Coded(np.where(values > 0, values, NULL), CHECKSUM_NOTES)
            elif words is not None:
                columns[name] = coded(values, words)
            else:
                columns[name] = Coded(values, decoded.names)
        for name, at, size in _TEXTS:
            spans = copied_spans(block, rows, at, size, _is_bytes(name))
            if spans is not None:
                columns[name] = spans if spans.is_hex else _bounded_texts(spans)
        sets = picked(block, _ACK_SETS, rows)
        if len(sets) == len(_ACK_SETS):
            columns["ack_set"] = Lists(decoded.fields.words.copy(), *sets.values())
        details = self._detail(block.frames, rows, block.sources, self._redact)
        if details is not None:
            columns["detail"] = details
        return columns

    def connection_facts(self, connections: Sequence[int]) -> dict[int, ConnectionFacts]:
        """The facts of closed connections; their state is dropped."""
        facts = self.open_facts(connections)
        for connection in self._proxy_sides.repeated.intersection(connections):
            self._entries.set_proxy_side(connection, False)
            self._exchanges.set_proxy_side(connection, False)
            self._proxy_sides.pop(connection)
        for connection in facts:
            self._handshakes.pop(connection)
            self._proxy_sides.pop(connection)
        return facts

    def open_facts(self, connections: Sequence[int]) -> dict[int, ConnectionFacts]:
        """The facts of connections so far; those without a handshake have none."""
        by_connection = self._handshakes.of(connections)
        for connection, facts in by_connection.items():
            proxy_side = self._proxy_sides.of(connection)
            if proxy_side is not None:
                by_connection[connection] = facts._replace(
                    leg=proxy_side.name, twin_connection_id=proxy_side.proxy_peer
                )
        return by_connection

    def repeated(self) -> Collection[int]:
        """Connections that are the proxy's side of a pair, or copies of others."""
        return self._proxy_sides.repeated

    def drain_hidden(self) -> tuple[int, int]:
        """Count and bytes of credentials in handshakes since the last call."""
        hidden, self._hidden = self._hidden, (0, 0)
        return hidden

    def finish(self) -> list[TableBlock]:
        """The rows that are open at the end of the capture."""
        names = (self._names, self._entries.real_topics)
        self.notices.add(of_long_names(sum(each.drain_cut() for each in names)))
        passes = (self._registry, self._exchanges, self._consumption)
        states = [each.memory() for each in passes]
        self.notices.add(of_limits(*states, crowded=sum(each.crowded for each in names)))
        self._decoder.unknown.write_notices(self.notices)
        client_handles = self._named(self._registry.finish(self.notices))
        exchanges = self._named(self._exchanges.finish(self.notices))
        self._entries.finish(self.notices)
        return client_handles + exchanges + self._consumption.finish(self.notices)

    def open_rows(self) -> list[TableBlock]:
        """The rows that `finish` would return now; the state is unchanged."""
        blocks = self._registry.open_rows() + self._exchanges.open_rows()
        return self._named(blocks) + self._consumption.open_rows()

    def _named(self, blocks: list[TableBlock]) -> list[TableBlock]:
        return named(blocks, self._commands)


def named(blocks: list[TableBlock], commands: CommandNames) -> list[TableBlock]:
    """Replace numbers of enumerations by their names, in producers, consumers and exchanges."""
    for block in blocks:
        for column, values in block.columns.items():
            if not isinstance(values, np.ndarray):
                continue
            words = _words_of("error_code" if column == "refused_code" else column)
            if words is not None:
                block.columns[column] = coded(values, words)
            elif column in ("request_command", "response_command"):
                block.columns[column] = commands.column(values)
    return blocks


@cache
def _words_of(column: str) -> tuple[str, ...] | None:
    """Words by number for a column with the numbers of a wire enumeration, else None.

    A number without a word is its digits. A tuple, as these words are not searched for secrets.
    """
    field = field_of(column)
    if column == "marker_type":
        words = MARKERS
    elif field is not None and field.type_name == "enum":
        words = enum_names(field.of)
    else:
        return None
    return tuple(words.get(number, str(number)) for number in range(max(words) + 1))


@cache
def _is_bytes(column: str) -> bool:
    field = field_of(column)
    return field is not None and field.type_name == "bytes"


def _bounded_texts(spans: Spans) -> Column:
    """The texts, each cut to MAX_DETAIL_TEXT bytes; unchanged if none is longer."""
    if int(spans.lengths.max(initial=0)) <= limits.MAX_DETAIL_TEXT:
        return spans
    extents = zip(spans.starts.tolist(), spans.lengths.tolist(), strict=True)
    return [
        None if size < 0 else bounded(spans.data[at : at + size].tobytes()) for at, size in extents
    ]
