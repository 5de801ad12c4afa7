"""Deliveries, permits and acks: the last pass over Pulsar's frames, and its tables."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, Lists, TableBlock
from dissector.bundles import Bundle
from dissector.findings import Finding, Findings
from dissector.limits import (
    FRAME_BLOCK_ROWS,
    MAX_CONSUMERS,
    MAX_IDENTITY_INTERVALS,
    MAX_OPEN_DELIVERIES,
    NULL,
)
from dissector.protocols.columns import CHECKSUM_NAMES, FrameColumns, IdColumns
from dissector.protocols.pulsar.consumption.acks import ACTION_NAMES
from dissector.protocols.pulsar.consumption.published import set_leg
from dissector.protocols.pulsar.consumption.records import EVER, USED
from dissector.protocols.pulsar.consumption.rows import ConsumptionRows, new_rows
from dissector.protocols.pulsar.consumption.state import (
    NEXT_NODE,
    NEXT_PUBLISHED,
    NEXT_TRANSACTION,
    ORDINAL,
    OUT_ACKS,
    OUT_DELIVERIES,
    OUT_NOTICES,
    OUT_PERMITS,
    OUT_WORDS,
    PADDING,
    PAGE_ENTRIES,
    STOCK_CONNECTIONS,
    STOCK_CONSUMERS,
    STOCK_DELIVERIES,
    STOCK_GROUPS,
    STOCK_PAGES,
    WORDS_USED,
    ConsumptionState,
    make_consumer_room,
    make_delivery_room,
    make_key_room,
    make_node_room,
    new_state,
)
from dissector.protocols.pulsar.consumption.walk import DONE, end_capture, walk
from dissector.schemas.words import CAUSES, DELIVERY_OUTCOMES, PERMIT_EVENTS

SUBSCRIPTION_TYPE_NAMES: Final = ("Exclusive", "Shared", "Failover", "Key_Shared")
ACK_TYPE_NAMES: Final = ("Individual", "Cumulative")
VALIDATION_ERROR_NAMES: Final = (
    "UncompressedSizeCorruption",
    "DecompressionError",
    "ChecksumMismatch",
    "BatchDeSerializeError",
    "DecryptionError",
)
# The texts of a column's codes, by column.
Names = dict[str, Sequence[bytes] | Sequence[str]]
_NOT_PERSISTENT: Final = b"non-persistent://"
_START_CONSUMERS: Final = 512 + PADDING
_START_DELIVERIES: Final = (1 << 13) + PADDING
_START_NODES: Final = 1 << 12
_START_WORDS: Final = 1 << 13
# A frame may bring a consumer, a connection, two groups, a page, published entries, a transaction
# and a node.
_KEYS_PER_FRAME: Final = 8
# One object each: a column is written faster if its words are those of the block before.
_EVENTS: Final = tuple(PERMIT_EVENTS)
_CAUSES: Final = tuple(CAUSES)
_OUTCOMES: Final = tuple(DELIVERY_OUTCOMES)


class PulsarConsumption:
    """State of one capture; `advance` takes the blocks in order, `finish` ends what is open.

    Args:
        protocol: place of Pulsar in PROTOCOLS; rows of other protocols are passed over.
        deliveries, nodes, consumers: bounds of rows, for tests.
    """

    def __init__(
        self,
        protocol: int = 0,
        deliveries: int = MAX_OPEN_DELIVERIES,
        nodes: int = MAX_IDENTITY_INTERVALS,
        consumers: int = MAX_CONSUMERS,
    ) -> None:
        self._protocol = protocol
        self._bounds = (consumers, deliveries, nodes)
        self._state = new_state(
            min(consumers, _START_CONSUMERS),
            min(deliveries, _START_DELIVERIES),
            min(nodes, _START_NODES),
        )
        self._out = new_rows(FRAME_BLOCK_ROWS, _START_WORDS)
        self._kinds = np.zeros(64, np.int64)
        self._named = 0
        self._names: Sequence[bytes] = ()

    def set_leg(self, connection_id: int, is_broker_leg: bool) -> None:
        """Keep a connection's identities apart from those of its twin at the proxy's other side.

        To be called before the connection's first consumer; the connection's end forgets it.
        """
        make_key_room(self._state, 1)
        set_leg(self._state, connection_id, int(is_broker_leg))

    def advance(
        self,
        frames: FrameColumns,
        rows: int,
        ids: IdColumns,
        words: Int64Array,
        names: Sequence[bytes],
        notices: Findings,
    ) -> list[TableBlock]:
        """Take a block of frames that the registry and the exchanges have gone through.

        Args:
            frames: rows in order of release, events among them; nothing in them is changed.
            ids, words: ids of ACK and REDELIVER frames, and the words of all ack sets.
            names: texts of the name codes; the list may grow from call to call.
            notices: gets what is odd.

        Returns:
            Blocks of acks, permits and deliveries: acks and permits in the order of their frames,
            deliveries in the order in which they ended.
        """
        self._learn_names(names)
        blocks: list[TableBlock] = []
        row = 0
        while True:
            self._make_room(rows - row)
            row, status, wanted = walk(
                self._state, frames, ids, words, self._kinds, row, rows, self._protocol, self._out
            )
            blocks.extend(self._flush(words, notices))
            if status == DONE:
                return blocks
            self._widen(wanted)

    def finish(self, notices: Findings) -> list[TableBlock]:
        """End everything that is open, in the order of its frames."""
        blocks: list[TableBlock] = []
        self._state.counters[ORDINAL] += 1
        nothing = np.zeros(1, np.int64)
        while True:
            self._widen(0)
            is_done = end_capture(self._state, self._out)
            blocks.extend(self._flush(nothing, notices))
            if is_done:
                return blocks

    def memory(self) -> ConsumptionState:
        """What another one goes on from: its own, filled in place, and `resume`.

        Rows that were never used are zeros in it: their cells were not set up.
        """
        state = self._state
        counters = state.counters
        used = {
            STOCK_CONSUMERS: (state.consumers, state.gone),
            STOCK_CONNECTIONS: (state.connections,),
            STOCK_GROUPS: (state.groups,),
            STOCK_DELIVERIES: (state.deliveries, state.ages),
            STOCK_PAGES: (state.pages,),
        }
        for stock, bundles in used.items():
            for bundle in bundles:
                _clear(bundle, int(counters[stock + EVER]))
        _clear(state.cells, int(counters[STOCK_PAGES + EVER]) * PAGE_ENTRIES)
        _clear(state.published, int(counters[NEXT_PUBLISHED]))
        state.stamps[int(counters[NEXT_PUBLISHED]) * PAGE_ENTRIES :] = 0
        _clear(state.transactions, int(counters[NEXT_TRANSACTION]))
        state.words[int(counters[WORDS_USED]) :] = 0
        return state

    def resume(self, names: Sequence[bytes]) -> None:
        """Take what goes with a memory: texts of the name codes."""
        self._learn_names(names)

    def _learn_names(self, names: Sequence[bytes]) -> None:
        """Note which of the new names are topics whose messages have no identity."""
        self._names = names
        known = len(names)
        if known > len(self._kinds):
            larger = np.zeros(max(known, 2 * len(self._kinds)), np.int64)
            larger[: len(self._kinds)] = self._kinds
            self._kinds = larger
        for code in range(self._named, known):
            if names[code].startswith(_NOT_PERSISTENT):
                self._kinds[code] = 1
        self._named = known

    def _make_room(self, rows: int) -> None:
        """Room in the state for what so many frames can add, as far as the bounds allow."""
        consumers, deliveries, nodes = self._bounds
        state = self._state
        counters = state.counters
        make_key_room(state, _KEYS_PER_FRAME * rows)
        stocks = (STOCK_CONSUMERS, STOCK_CONNECTIONS, STOCK_GROUPS)
        used = max(int(counters[stock + USED]) for stock in stocks)
        wanted = _wanted(len(state.consumers.id), used + rows, consumers)
        if wanted:
            make_consumer_room(state, wanted)
        used = int(counters[STOCK_DELIVERIES + USED])
        wanted = _wanted(len(state.deliveries.consumer), used + rows, deliveries)
        if wanted:
            make_delivery_room(state, wanted)
        wanted = _wanted(len(state.nodes.bits), int(counters[NEXT_NODE]) + 2 * rows, nodes)
        if wanted:
            make_node_room(state, wanted)

    def _widen(self, wanted: int) -> None:
        """Room for the rows of one frame that needs more than there is."""
        words = int(2 * self._state.counters[WORDS_USED]) + _START_WORDS
        have = len(self._out.deliveries.frame_no)
        if wanted > have or words > len(self._out.words):
            self._out = new_rows(max(wanted, have), max(words, len(self._out.words)))

    def _flush(self, words: Int64Array, notices: Findings) -> list[TableBlock]:
        """The rows so far as blocks of their own arrays; the room is free again."""
        counters = self._state.counters
        out = self._out
        blocks: list[TableBlock] = []
        if counters[OUT_ACKS]:
            blocks.append(self._ack_block(out, int(counters[OUT_ACKS]), words))
        if counters[OUT_PERMITS]:
            blocks.append(self._permit_block(out, int(counters[OUT_PERMITS])))
        if counters[OUT_DELIVERIES]:
            blocks.append(self._delivery_block(out, int(counters[OUT_DELIVERIES])))
        if counters[OUT_NOTICES]:
            found = out.notices.matrix[:, : counters[OUT_NOTICES]].T.tolist()
            notices.add(Finding(*each) for each in found)
        counters[[OUT_ACKS, OUT_PERMITS, OUT_DELIVERIES, OUT_WORDS, OUT_NOTICES]] = 0
        return blocks

    def _ack_block(self, out: ConsumptionRows, rows: int, words: Int64Array) -> TableBlock:
        columns = _columns(out.acks, rows)
        values = words.copy() if (columns["ack_set_count"] > 0).any() else words[:0]
        ack_set = Lists(values, columns.pop("ack_set_at"), columns.pop("ack_set_count"))
        coded: Names = {
            "topic": self._names,
            "subscription": self._names,
            "action": ACTION_NAMES,
            "ack_type": ACK_TYPE_NAMES,
            "validation_error": VALIDATION_ERROR_NAMES,
        }
        return TableBlock("acks", rows, {**_coded(columns, coded), "ack_set": ack_set})

    def _permit_block(self, out: ConsumptionRows, rows: int) -> TableBlock:
        columns = _columns(out.permits, rows)
        coded: Names = {
            "topic": self._names,
            "subscription": self._names,
            "subscription_type": SUBSCRIPTION_TYPE_NAMES,
            "event": _EVENTS,
        }
        return TableBlock("permits", rows, _coded(columns, coded))

    def _delivery_block(self, out: ConsumptionRows, rows: int) -> TableBlock:
        columns = _columns(out.deliveries, rows)
        values = out.words[: self._state.counters[OUT_WORDS]].copy()
        ack_set = Lists(values, columns.pop("ack_set_at"), columns.pop("ack_set_count"))
        coded: Names = {
            "topic": self._names,
            "subscription": self._names,
            "consumer_name": self._names,
            "subscription_type": SUBSCRIPTION_TYPE_NAMES,
            "redelivery_cause": _CAUSES,
            "outcome": _OUTCOMES,
            "checksum": CHECKSUM_NAMES,
        }
        return TableBlock("deliveries", rows, {**_coded(columns, coded), "ack_set": ack_set})


def _wanted(have: int, needed: int, bound: int) -> int:
    """The rows that a bundle shall have: twice what it has, or more; 0 if there are enough."""
    if needed <= have or have >= bound:
        return 0
    return min(max(2 * have, needed) + PADDING, bound)


def _clear(bundle: Bundle, first: int) -> None:
    """Set the rows from one on to zero."""
    for column in bundle:
        column[first:] = 0


def _columns(rows: Bundle, count: int) -> dict[str, Int64Array]:
    """The first rows of a bundle as columns of one fresh matrix."""
    cells = rows.matrix[:, :count].copy()
    return dict(zip(type(rows)._fields, cells, strict=True))


def _coded(columns: dict[str, Int64Array], names: Names) -> dict[str, Column]:
    """The columns, those with names as codes; a number that has no name is null."""
    done: dict[str, Column] = {}
    for name, values in columns.items():
        if name in names:
            done[name] = Coded(np.where(values < len(names[name]), values, NULL), names[name])
        else:
            done[name] = values
    return done
