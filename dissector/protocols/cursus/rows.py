"""Output rows: tuples of integers, which collect until they become columns of a table."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.bundles import Records
from dissector.codecs.names import NameTable
from dissector.schemas import enums


class DeliveryRows(Records):
    """Batches sent to clients, open and closed; NULL if unknown.

    The columns up to closing_row are the table's; texts are codes of the name table.

    entry_id, last_offset: the first and the last offset.
    closing_row: ordinal of the frame or event that closed it.
    ack_ns: time of the commit in ack_frame_no.
    next: the next delivery at its position, ABSENT for the last.
    """

    connection_id: Int64Array
    frame_no: Int64Array
    ts: Int64Array
    topic: Int64Array
    subscription: Int64Array
    consumer_name: Int64Array
    entry_id: Int64Array
    partition: Int64Array
    batch_size: Int64Array
    message_count: Int64Array
    messages_acked: Int64Array
    is_redelivered: Int64Array
    redelivery_cause: Int64Array
    previous_frame_no: Int64Array
    previous_connection_id: Int64Array
    outcome: Int64Array
    ack_frame_no: Int64Array
    ack_latency_ns: Int64Array
    publish_to_delivery_ns: Int64Array
    lag: Int64Array
    closing_row: Int64Array
    last_offset: Int64Array
    ack_ns: Int64Array
    next: Int64Array


DELIVERY_COLUMNS: Final = DeliveryRows._fields[: DeliveryRows._fields.index("closing_row") + 1]


class AckRows(Records):
    """Committed offsets; texts and closing_row as in DeliveryRows."""

    connection_id: Int64Array
    frame_no: Int64Array
    ts: Int64Array
    topic: Int64Array
    subscription: Int64Array
    entry_id: Int64Array
    partition: Int64Array
    lag: Int64Array
    closing_row: Int64Array


class ProducerRow(NamedTuple):
    """One producer on one connection; texts and closing_row as in DeliveryRows."""

    connection_id: int
    topic: int
    name: int
    epoch: int
    closed_by: int
    name_source: int
    closing_row: int


class ConsumerRow(NamedTuple):
    """One member of a group; texts and closing_row as in DeliveryRows."""

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


Row = ProducerRow | ConsumerRow

_TABLES: Final[dict[type, str]] = {
    ProducerRow: "producers",
    ConsumerRow: "consumers",
}
_WORDS: Final[dict[str, dict[str, Sequence[str]]]] = {
    "deliveries": {
        "outcome": tuple(enums.DELIVERY_OUTCOMES),
        "redelivery_cause": tuple(enums.CAUSES),
    },
    "acks": {},
    "producers": {"closed_by": tuple(enums.CLOSERS), "name_source": tuple(enums.NAME_SOURCES)},
    "consumers": {"closed_by": tuple(enums.CLOSERS), "name_source": tuple(enums.NAME_SOURCES)},
}
_TEXTS: Final = (
    "topic",
    "subscription",
    "consumer_name",
    "name",
    "refused_code",
)


class ClosedRows:
    """Closed rows since the last block. row: ordinal of the current frame or event."""

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._rows: dict[type, list[Row]] = {kind: [] for kind in _TABLES}
        self.row = 0

    def add(self, row: Row) -> None:
        """Append a closed row."""
        self._rows[type(row)].append(row)

    def drain(self, kind: type[Row]) -> list[TableBlock]:
        """Remove the rows of a kind and return them as a block, if there are any."""
        cells = np.array(self._rows[kind], np.int64).T.copy()
        self._rows[kind] = []
        return self.block(_TABLES[kind], kind._fields, cells)

    def block(self, table: str, fields: tuple[str, ...], cells: Int64Array) -> list[TableBlock]:
        """The block of rows of a table, int64[fields, rows], if there are any."""
        return [self._block(table, fields, cells)] if cells.size else []

    def _block(self, table: str, fields: tuple[str, ...], cells: Int64Array) -> TableBlock:
        rows = cells.shape[1]
        columns: dict[str, Column] = {}
        for name, values in zip(fields, cells, strict=True):
            words: Any = _WORDS[table].get(name)
            if name in _TEXTS:
                words = self._names.names
            columns[name] = values if words is None else Coded(values, words)
        if table == "acks":
            zeros: Int64Array = np.zeros(rows, np.int64)
            columns["action"] = Coded(zeros, ("ack",))
            columns["ack_type"] = Coded(zeros, ("Cumulative",))
        return TableBlock(table, rows, columns)
