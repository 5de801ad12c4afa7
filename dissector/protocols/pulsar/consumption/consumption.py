"""The last pass over Pulsar's frames, which writes the tables deliveries, permits and acks."""

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Final

import numpy as np

from dissector import limits, tables
from dissector.blocks import Coded, Column, Int64Array, Lists, TableBlock, coded
from dissector.bundles import Bundle
from dissector.native.zeros import zeros
from dissector.notice_log import NoticeLog
from dissector.protocols import columns as protocols_columns
from dissector.protocols.columns import FrameColumns, IdColumns
from dissector.protocols.frame_table import filled_columns
from dissector.protocols.pulsar.consumption import state
from dissector.protocols.pulsar.consumption.acks import ACTION_NAMES
from dissector.protocols.pulsar.consumption.claims import decide_reaches
from dissector.protocols.pulsar.consumption.published import set_proxy_side
from dissector.protocols.pulsar.consumption.rows import PassContext, new_rows
from dissector.protocols.pulsar.consumption.state import ConsumptionState
from dissector.protocols.pulsar.consumption.walk import DONE, end_capture, walk
from dissector.schemas.enums import CAUSES, CHECKSUMS, DELIVERY_OUTCOMES, PERMIT_EVENTS

SUBSCRIPTION_TYPE_NAMES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
ACK_TYPE_NAMES: Final = ("Individual", "Cumulative")
VALIDATION_ERROR_NAMES: Final = (
    "UncompressedSizeCorruption",
    "DecompressionError",
    "ChecksumMismatch",
    "BatchDeSerializeError",
    "DecryptionError",
)
# The texts of a column's codes; None: the names of the capture.
_TEXTS: Final[dict[str, Sequence[str] | None]] = {
    "topic": None,
    "subscription": None,
    "consumer_name": None,
    "action": ACTION_NAMES,
    "event": tuple(PERMIT_EVENTS),
    "subscription_type": SUBSCRIPTION_TYPE_NAMES,
    "ack_type": ACK_TYPE_NAMES,
    "validation_error": VALIDATION_ERROR_NAMES,
    "redelivery_cause": tuple(CAUSES),
    "outcome": tuple(DELIVERY_OUTCOMES),
    "checksum": tuple(CHECKSUMS),
}
_NOT_PERSISTENT: Final = b"non-persistent://"
_START_CONSUMERS: Final = 512
_START_DELIVERIES: Final = 1 << 13
_START_NODES: Final = 1 << 12
_START_ROWS: Final = 1 << 10
_START_WORDS: Final = 1 << 13
# A frame may add a consumer, a connection, two groups, a page, published entries and a node; an ACK
# a transaction, the ACK itself and the list of its claims.
_KEYS_PER_FRAME: Final = 8


class PulsarConsumption:
    """State of one capture; `advance` reads blocks in order, `finish` ends open deliveries.

    Args:
        protocol: index of Pulsar in PROTOCOLS; rows of other protocols are skipped.
        deliveries, nodes, consumers: bounds of rows, for tests.
        key: of its hash table.
    """

    def __init__(
        self,
        protocol: int = 0,
        deliveries: int = limits.MAX_OPEN_DELIVERIES,
        nodes: int = limits.MAX_IDENTITY_INTERVALS,
        consumers: int = limits.MAX_CONSUMERS,
        key: int = 0,
    ) -> None:
        self._protocol = protocol
        self._bounds = (consumers, deliveries, nodes)
        self._state = state.new_state(
            min(consumers, _START_CONSUMERS),
            min(deliveries, _START_DELIVERIES),
            min(nodes, _START_NODES),
            key,
        )
        self._out = new_rows(_START_ROWS, _START_WORDS)
        self._is_volatile = np.zeros(64, np.int64)
        self._named = 0
        self._names: Sequence[bytes] = ()

    def set_proxy_side(self, connection_id: int, is_broker_side: bool) -> None:
        """Separate a connection's identities from those of its peer on the proxy's other side.

        Call it before the connection's first consumer; the connection's end removes the mark.
        """
        state.make_key_room(self._state, 1)
        set_proxy_side(self._state, connection_id, int(is_broker_side))

    def advance(
        self,
        frames: FrameColumns,
        rows: int,
        ids: IdColumns,
        words: Int64Array,
        names: Sequence[bytes],
        notices: NoticeLog,
    ) -> list[TableBlock]:
        """Read a block of frames after the registry and the exchanges.

        Args:
            frames: rows in order of release, events among them; they are not changed.
            ids, words: ids of ACK and REDELIVER frames, and the words of all ack sets.
            names: texts of the name codes; the list may grow from call to call.
            notices: the log for notices of these frames.

        Returns:
            Blocks of acks, permits and deliveries: acks and permits in the order of their frames,
            deliveries in the order in which they ended.
        """
        self._mark_volatile_topics(names)
        self._widen(min(rows, limits.FRAME_BLOCK_ROWS))
        blocks: list[TableBlock] = []
        row = needed = 0
        while True:
            self._reserve(rows - row, needed)
            context = PassContext(frames, ids, words, self._is_volatile, self._out)
            row, status, needed = walk(self._state, context, row, rows, self._protocol)
            blocks.extend(self._flush(words, notices))
            if status == DONE:
                return blocks
            self._widen(needed, min(needed, limits.MAX_SPARE_ROWS))

    def finish(self, notices: NoticeLog) -> list[TableBlock]:
        """End all open deliveries, in the order of their frames, and return the last rows."""
        blocks: list[TableBlock] = []
        self._state.counters[state.ORDINAL] += 1
        frames, ids = (
            protocols_columns.new_frame_columns(1)[1],
            protocols_columns.new_id_columns(1)[1],
        )
        no_words = np.zeros(1, np.int64)
        decide_reaches(self._state)
        while True:
            self._widen(0)
            context = PassContext(frames, ids, no_words, self._is_volatile, self._out)
            is_done = end_capture(self._state, context)
            blocks.extend(self._flush(no_words, notices))
            if is_done:
                return blocks

    def open_rows(self) -> list[TableBlock]:
        """The rows that `finish` would return now; this object is not changed."""
        ended = copy(self)
        ended._state = deepcopy(self._state)
        return ended.finish(NoticeLog())

    def memory(self) -> ConsumptionState:
        """The state itself, for saving it or for filling it in place before `resume`."""
        return self._state

    def _mark_volatile_topics(self, names: Sequence[bytes]) -> None:
        """Mark the new names that are topics whose messages have no identity."""
        self._names = names
        known = len(names)
        if known > len(self._is_volatile):
            larger = np.zeros(max(known, 2 * len(self._is_volatile)), np.int64)
            larger[: len(self._is_volatile)] = self._is_volatile
            self._is_volatile = larger
        for code in range(self._named, known):
            if names[code].startswith(_NOT_PERSISTENT):
                self._is_volatile[code] = 1
        self._named = known

    def _reserve(self, rows: int, claims: int) -> None:
        """Reserve room in the state for what `rows` frames can add, up to the bounds.

        claims: upper bound of the claims of one frame.
        """
        own = self._state
        consumers, deliveries, nodes = self._bounds
        state.make_key_room(own, _KEYS_PER_FRAME * rows)
        own.grow(requests=tables.settled(own.requests))
        lists = {"reaches": 0, "transaction_reaches": 0}
        tables.grow_rows(own, "consumer_pool", rows, consumers, consumers=0, closed=0, **lists)
        tables.grow_rows(own, "connection_pool", rows, consumers, connections=0)
        tables.grow_rows(own, "group_pool", rows, consumers, groups=0)
        tables.grow_rows(own, "delivery_pool", rows, deliveries, deliveries=0, ages=0)
        own.counters[state.MOST_CLAIMS] = deliveries
        tables.grow_rows(own, "claim_pool", max(rows, claims), deliveries, claims=0, shares=0)
        tables.grow_rows(own, "waiting_pool", rows, deliveries, waiting=tables.ABSENT)
        have, needed = len(own.nodes.bits), int(own.counters[state.NEXT_NODE]) + 2 * rows
        if have < min(needed, nodes):
            own.grow(nodes=own.nodes.grown(min(max(2 * have, needed), nodes)))

    def _widen(self, needed: int, spare: int = 0) -> None:
        """Reserve output rows for one block, or for one frame that needs more than are free.

        Output arrays never shrink. New ones exceed the need by twice the spare rows and are
        allocated only when less than half of the spare rows is left: so neither allocation nor
        flushing happens for each frame of a consumer with many open deliveries.
        """
        words = int(2 * self._state.counters[state.WORDS_USED]) + _START_WORDS
        have = len(self._out.deliveries.frame_no)
        if needed + spare // 2 > have:
            rows = needed + 2 * spare
            self._state.counters[state.ROWS_MADE] += rows
            self._out = new_rows(rows, max(words, len(self._out.words)))
        elif words > len(self._out.words):
            self._out.grow(words=zeros(2 * words))

    def _flush(self, words: Int64Array, notices: NoticeLog) -> list[TableBlock]:
        """Copy the rows so far into blocks and empty the output."""
        counters = self._state.counters
        out = self._out
        own_words = out.words[: counters[state.OUT_WORDS]]
        blocks = [
            self._block(table, rows, int(count), sets)
            for table, rows, count, sets in (
                ("acks", out.acks, counters[state.OUT_ACKS], words),
                ("permits", out.permits, counters[state.OUT_PERMITS], words),
                ("deliveries", out.deliveries, counters[state.OUT_DELIVERIES], own_words),
            )
            if count
        ]
        notices.drain(out.notices)
        counters[[state.OUT_ACKS, state.OUT_PERMITS, state.OUT_DELIVERIES, state.OUT_WORDS]] = 0
        return blocks

    def _block(self, table: str, rows: Bundle, count: int, words: Int64Array) -> TableBlock:
        """The first `count` rows of a bundle as a block of a table. words: of their ack sets."""
        cells = filled_columns(rows, count)
        if table == "deliveries":
            # Deliveries that one frame ends are sorted by their own frames.
            frame_nos, ends = cells["frame_no"], cells["closing_row"]
            if ((ends[1:] == ends[:-1]) & (frame_nos[1:] < frame_nos[:-1])).any():
                order = np.lexsort((frame_nos, ends))
                cells = {name: values[order] for name, values in cells.items()}
        columns: dict[str, Column] = {}
        starts, counts = cells.pop("ack_set_at", None), cells.pop("ack_set_count", None)
        if starts is not None and counts is not None:
            sets = words.copy() if (counts > 0).any() else words[:0]
            columns["ack_set"] = Lists(sets, starts, counts)
        for name, values in cells.items():
            if name in _TEXTS:
                texts = _TEXTS[name]
                columns[name] = coded(values, texts) if texts else Coded(values, self._names)
            else:
                columns[name] = values
        return TableBlock(table, count, columns)
