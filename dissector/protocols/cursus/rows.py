"""Rows of facts on their way to their tables: tuples of integers, gathered and made columns."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.buckets import buckets_of
from dissector.bundles import Bundle
from dissector.codecs.names import NameTable
from dissector.limits import NULL
from dissector.protocols.cursus.commands import NAMES
from dissector.schemas.words import (
    CAUSES,
    CLOSERS,
    DELIVERY_OUTCOMES,
    KINDS,
    NAME_SOURCES,
    OUTCOMES,
)


class ExchangeRow(NamedTuple):
    """One exchange; integers, NULL where not known, text as codes of the name table.

    closing_row: ordinal of the frame or event that closed it, which is not in the table.
    """

    connection_id: int
    kind: int
    request_command: int = NULL
    response_command: int = NULL
    request_frame_no: int = NULL
    response_frame_no: int = NULL
    request_first_ns: int = NULL
    request_last_ns: int = NULL
    response_first_ns: int = NULL
    response_last_ns: int = NULL
    latency_ns: int = NULL
    transmit_ns: int = NULL
    outcome: int = NULL
    error_code: int = NULL
    error_text: int = NULL
    tainted: int = 0
    topic: int = NULL
    subscription: int = NULL
    producer_name: int = NULL
    sequence_id: int = NULL
    highest_sequence_id: int = NULL
    attempt: int = NULL
    message_count: int = NULL
    request_bytes: int = NULL
    outstanding_before: int = NULL
    entry_id: int = NULL
    ts: int = NULL
    closing_row: int = 0


class DeliveryRow(NamedTuple):
    """One batch handed to a client; as above."""

    connection_id: int
    frame_no: int
    ts: int
    topic: int
    subscription: int
    consumer_name: int
    entry_id: int
    partition: int
    batch_size: int
    message_count: int
    messages_acked: int
    is_redelivered: int
    redelivery_cause: int
    previous_frame_no: int
    previous_connection_id: int
    outcome: int
    ack_frame_no: int
    ack_latency_ns: int
    publish_to_delivery_ns: int
    lag: int
    closing_row: int


class AckRow(NamedTuple):
    """One committed offset; as above."""

    connection_id: int
    frame_no: int
    ts: int
    topic: int
    subscription: int
    entry_id: int
    partition: int
    lag: int
    closing_row: int


class ProducerRow(NamedTuple):
    """One producer on one connection; as above."""

    connection_id: int
    topic: int
    name: int
    epoch: int
    closed_by: int
    name_source: int
    closing_row: int


class ConsumerRow(NamedTuple):
    """One member of a group; as above."""

    connection_id: int
    incarnation: int
    topic: int
    subscription: int
    name: int
    opened_frame_no: int
    ready_frame_no: int
    closed_frame_no: int
    closed_by: int
    refused_code: int
    name_source: int
    closing_row: int


Row = ExchangeRow | DeliveryRow | AckRow | ProducerRow | ConsumerRow

_TABLES: Final[dict[type, str]] = {
    ExchangeRow: "exchanges",
    DeliveryRow: "deliveries",
    AckRow: "acks",
    ProducerRow: "producers",
    ConsumerRow: "consumers",
}
_WORDS: Final[dict[str, dict[str, Sequence[str]]]] = {
    "exchanges": {
        "kind": tuple(KINDS),
        "outcome": tuple(OUTCOMES),
        "request_command": NAMES,
        "response_command": NAMES,
    },
    "deliveries": {"outcome": tuple(DELIVERY_OUTCOMES), "redelivery_cause": tuple(CAUSES)},
    "acks": {},
    "producers": {"closed_by": tuple(CLOSERS), "name_source": tuple(NAME_SOURCES)},
    "consumers": {"closed_by": tuple(CLOSERS), "name_source": tuple(NAME_SOURCES)},
}
_TEXTS: Final = (
    "topic",
    "subscription",
    "producer_name",
    "consumer_name",
    "name",
    "error_code",
    "error_text",
    "refused_code",
)
# The order in which tables leave a block: subjects first, what names frames behind.
_SUBJECTS: Final = (ProducerRow, ConsumerRow)
_RELATIONS: Final = (ExchangeRow, AckRow, DeliveryRow)


def columns_class(name: str, row: type[Any], module: str) -> type[Bundle]:
    """The columns of a table's rows, for kernels that write them."""
    fields = {"__annotations__": dict.fromkeys(row._fields, Int64Array), "__module__": module}
    return type(name, (Bundle,), fields)


ExchangeColumns: Final = columns_class("ExchangeColumns", ExchangeRow, __name__)
DeliveryColumns: Final = columns_class("DeliveryColumns", DeliveryRow, __name__)
_COLUMNS: Final = {ExchangeRow: ExchangeColumns, DeliveryRow: DeliveryColumns}


class Rows:
    """Rows of one table in the order in which they closed. columns: room; count: how many."""

    def __init__(self, kind: type[Bundle]) -> None:
        self.columns = kind.new(64)
        self.count = 0

    def make_room(self, more: int) -> None:
        """Room for `more` further rows."""
        wanted = self.count + more
        if wanted > self.columns.matrix.shape[1]:
            self.columns = self.columns.grown(2 * wanted)

    def add(self, row: tuple[int, ...]) -> None:
        """One more row."""
        self.make_room(1)
        self.columns.matrix[:, self.count] = row
        self.count += 1

    def take(self) -> Int64Array:
        """All rows, a copy with a column each; there are none then."""
        cells = self.columns.matrix[:, : self.count].copy()
        self.count = 0
        return cells


class Gathered:
    """Rows of all tables since the last block. row: ordinal of the frame or event in hand."""

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._rows: dict[type, list[Row]] = {kind: [] for kind in _TABLES if kind not in _COLUMNS}
        self.exchanges = Rows(ExchangeColumns)
        self.deliveries = Rows(DeliveryColumns)
        self._many = {ExchangeRow: self.exchanges, DeliveryRow: self.deliveries}
        self.row = 0

    def add(self, row: Row) -> None:
        """A row that closed."""
        kind = type(row)
        if kind in self._many:
            self._many[kind].add(row)
        else:
            self._rows[kind].append(row)

    def subjects(self) -> list[TableBlock]:
        """Blocks of producers and consumers."""
        return self._blocks(_SUBJECTS)

    def relations(self) -> list[TableBlock]:
        """Blocks of exchanges, acks and deliveries."""
        return self._blocks(_RELATIONS)

    def _blocks(self, kinds: tuple[type[Any], ...]) -> list[TableBlock]:
        blocks = []
        for kind in kinds:
            if kind in self._many:
                cells = self._many[kind].take()
            else:
                cells = np.array(self._rows[kind], np.int64).T.copy()
                self._rows[kind] = []
            if cells.size:
                blocks.append(self._block(_TABLES[kind], kind._fields, cells))
        return blocks

    def _block(self, table: str, fields: tuple[str, ...], cells: Int64Array) -> TableBlock:
        rows = cells.shape[1]
        columns: dict[str, Column] = {}
        for name, values in zip(fields, cells, strict=True):
            words: Any = _WORDS[table].get(name)
            if name in _TEXTS:
                words = self._names.names
            columns[name] = values if words is None else Coded(values, words)
        if table == "exchanges":
            latencies = columns["latency_ns"]
            assert isinstance(latencies, np.ndarray)
            columns["latency_bucket"] = buckets_of(latencies)
        if table == "acks":
            zeros: Int64Array = np.zeros(rows, np.int64)
            columns["action"] = Coded(zeros, ("ack",))
            columns["ack_type"] = Coded(zeros, ("Cumulative",))
        return TableBlock(table, rows, columns)
