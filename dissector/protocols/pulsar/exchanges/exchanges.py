"""Exchanges: each request of the traffic with the answer it got, or the reason there is none.

The first pass over decoded frames, which the registry names as it goes. How requests and answers
find each other: `exchanges.state` (theory), `wire.commands` (which command answers which).
"""

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.codecs.texts import bounded
from dissector.limits import MAX_DETAIL_TEXT, NULL
from dissector.notice_log import Notice, NoticeLog
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import FrameColumns
from dissector.protocols.interface import Sources
from dissector.protocols.pulsar.exchanges import state as exchanges_state
from dissector.protocols.pulsar.exchanges.attempts import set_proxy_side
from dissector.protocols.pulsar.exchanges.columns import ExchangeColumns
from dissector.protocols.pulsar.exchanges.rows import PassContext
from dissector.protocols.pulsar.exchanges.state import ExchangeBounds, ExchangeState
from dissector.protocols.pulsar.exchanges.steps import close_rest, pair_frames
from dissector.protocols.pulsar.registry import Registering
from dissector.protocols.pulsar.wire.commands import rule_columns
from dissector.schemas.enums import KINDS, OUTCOMES
from dissector.tables import ABSENT

_START_ROWS: Final = 1024
# Room for rows is made in small steps: tables that are larger than what is in them are looked up in
# memory that is not in the processor's cache.
_ROOM_ROWS: Final = 64
_REST_ROWS: Final = 1 << 16  # rows of one block at the end of the capture
_LAST: Final = (1 << 63) - 1
_KINDS: Final = tuple(KINDS)
_OUTCOMES: Final = tuple(OUTCOMES)
_HIDDEN: Final = ("kind", "outcome", "error_text", "topic", "subscription", "producer_name")


class PulsarExchanges:
    """State of one capture; `pair` takes the blocks in order, `finish` closes what waits."""

    def __init__(
        self,
        protocol: int,
        reorder_window_ns: int,
        bounds: ExchangeBounds | None = None,
        key: int = 0,
    ) -> None:
        """key: of hash tables."""
        self._protocol = protocol
        self._window_ns = reorder_window_ns
        self._rules = rule_columns()
        self._state = exchanges_state.new_exchange_state(
            _START_ROWS, bounds or ExchangeBounds(), key
        )
        self._names: Sequence[bytes] = []
        self._texts: list[bytes] = []

    def set_proxy_side(self, connection: int, is_proxy_side: bool) -> None:
        """Count attempts of a proxy's leg apart from those of its twin.

        To be called before the connection's first producer, and with False when it is over.
        """
        exchanges_state.reserve(self._state, 1)
        set_proxy_side(self._state.attempts, connection, int(is_proxy_side))

    def pair(
        self,
        frames: FrameColumns,
        rows: int,
        error_texts: Int64Array,
        names: Sequence[bytes],
        registering: Registering,
        notices: NoticeLog,
    ) -> list[TableBlock]:
        """Pair the requests and answers of a block; sets answered_* of the frames that answer, and
        what the registry knows of each frame.

        Args:
            error_texts: what `read_texts` returned for the block.
            registering: what the registry began the block with.
            names: texts of the name codes.
            notices: gets what is odd.

        Returns:
            At most one block, of exchanges: those that closed.
        """
        self._names = names
        state = self._state
        state.counters[
            [exchanges_state.COUNT_AT, exchanges_state.COUNT_OUT, exchanges_state.COUNT_NOTICES]
        ] = 0
        waiting = len(state.pending_pool.rows) - int(state.pending_pool.free[0])
        run = self._pairing(error_texts, waiting + 2 * rows)
        more = _ROOM_ROWS
        exchanges_state.reserve(state, more)
        while pair_frames(state, frames, rows, self._protocol, run, registering):
            more *= 2
            exchanges_state.reserve(state, more)
        blocks = self._blocks(run, notices)
        self._keep_texts()
        return blocks

    def finish(self, notices: NoticeLog) -> list[TableBlock]:
        """Rows of everything that still waits at the end of the capture."""
        state = self._state
        blocks = []
        left = 1
        while left:
            state.counters[exchanges_state.COUNT_OUT] = 0
            state.counters[exchanges_state.COUNT_NOTICES] = 0
            run = self._pairing(np.zeros(1, np.int64), _REST_ROWS)
            left = close_rest(state, run, _REST_ROWS)
            blocks += self._blocks(run, notices)
        evicted = int(state.counters[exchanges_state.COUNT_EVICTED])
        if evicted:
            kind = NOTICE_NUMBER["pending_limit"]
            notices.add(
                [Notice(kind, int(state.counters[exchanges_state.COUNT_NOW]), value=evicted)]
            )
        return blocks

    def open_rows(self) -> list[TableBlock]:
        """The rows that `finish` would give now; everything stays open."""
        ended = copy(self)
        ended._state = deepcopy(self._state)
        return ended.finish(NoticeLog())

    def memory(self) -> ExchangeState:
        """The state itself: to be saved, or to be filled in place before `resume`."""
        return self._state

    @property
    def texts(self) -> Sequence[bytes]:
        """Error texts that rows of the memory name by index."""
        return self._texts

    def resume(self, names: Sequence[bytes], texts: Sequence[bytes]) -> None:
        """Take what goes with a memory: texts of the name codes, and error texts."""
        self._names = names
        self._texts = list(texts)

    def _pairing(self, error_texts: Int64Array, rows: int) -> PassContext:
        """What one pass works with; its output takes `rows` rows. Memory is used as it fills."""
        matrix = np.empty((len(ExchangeColumns._fields), rows), np.int64)
        found = np.empty((2 * rows + 1, 4), np.int64)
        return PassContext(
            self._rules, error_texts, self._window_ns, ExchangeColumns(matrix), found
        )

    def read_texts(self, frames: FrameColumns, rows: int, sources: Sources) -> Int64Array:
        """For each row the index of its error text in the list of texts; few rows have one.

        It alone needs the bytes of the block, so that `pair` may run after they are gone.
        """
        indexes = np.full(max(rows, 1), NULL, np.int64)
        has_text = frames.error_text_bytes[:rows] >= 0
        is_mine = frames.protocol[:rows] == self._protocol
        for row in np.flatnonzero(has_text & is_mine).tolist():
            start = int(frames.error_text_at[row])
            data = sources[int(frames.source[row])]
            indexes[row] = len(self._texts)
            length = int(frames.error_text_bytes[row])
            shown = data[start : start + min(length, MAX_DETAIL_TEXT)].tobytes()
            self._texts.append(bounded(shown, length))
        return indexes

    def _keep_texts(self) -> None:
        """Start a new list of texts with those of early answers, which are still to be written."""
        state = self._state
        kept: list[bytes] = []
        unmatched = int(state.order.first[exchanges_state.UNMATCHED])
        while unmatched != ABSENT and self._texts:
            index = int(state.pending.error_text[unmatched])
            if index != NULL:
                state.pending.error_text[unmatched] = len(kept)
                kept.append(self._texts[index])
            unmatched = int(state.order_links.next[unmatched])
        self._texts = kept

    def _blocks(self, run: PassContext, notices: NoticeLog) -> list[TableBlock]:
        """The rows that closed, in order, as at most one block; notices go to `notices`."""
        state = self._state
        notices.add(
            Notice(kind, ts_ns, connection_id, frame_no=frame_no)
            for kind, frame_no, connection_id, ts_ns in run.notices[
                : state.counters[exchanges_state.COUNT_NOTICES]
            ].tolist()
        )
        rows = int(state.counters[exchanges_state.COUNT_OUT])
        if rows == 0:
            return []
        part = _in_order(run.rows, rows)
        columns: dict[str, Column] = {
            name: getattr(part, name) for name in ExchangeColumns._fields if name not in _HIDDEN
        }
        columns["kind"] = Coded(part.kind, _KINDS)
        columns["outcome"] = Coded(part.outcome, _OUTCOMES)
        columns["error_text"] = Coded(part.error_text, self._texts)
        columns["topic"] = Coded(part.topic, self._names)
        columns["subscription"] = Coded(part.subscription, self._names)
        columns["producer_name"] = Coded(part.producer_name, self._names)
        return [TableBlock("exchanges", rows, columns)]


def _in_order(out: ExchangeColumns, rows: int) -> ExchangeColumns:
    """The first rows, those closed by one frame or event by their frames (null last)."""
    closing = out.closing_row[:rows]
    if rows < 2 or not bool(np.any(closing[1:] == closing[:-1])):
        return ExchangeColumns(np.ascontiguousarray(out.matrix[:, :rows]))
    request = out.request_frame_no[:rows]
    keys = (
        out.response_frame_no[:rows],
        out.connection_id[:rows],
        np.where(request == NULL, _LAST, request),
        closing,
    )
    return ExchangeColumns(np.ascontiguousarray(out.matrix[:, np.lexsort(keys)]))
