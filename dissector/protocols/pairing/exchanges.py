"""Exchanges: each request of the traffic with the answer it got, or the reason there is none.

How requests and answers find each other: `state` (theory), `rules` (which command answers which).
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy, deepcopy
from types import MappingProxyType
from typing import Any, Final, Self

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.limits import NULL
from dissector.notice_log import NoticeLog
from dissector.notice_rows import new_notices
from dissector.protocols.columns import FrameColumns, new_frame_columns
from dissector.protocols.pairing import state as pairing_state
from dissector.protocols.pairing.columns import ExchangeColumns
from dissector.protocols.pairing.rules import RuleColumns
from dissector.protocols.pairing.state import PairingBounds, PairingState, PassContext
from dissector.protocols.pairing.steps import close_rest, pair_frames
from dissector.schemas.enums import KINDS, OUTCOMES

_START_ROWS: Final = 1024
# Room for rows is made in small steps: tables that are larger than what is in them are looked up in
# memory that is not in the processor's cache.
_ROOM_ROWS: Final = 64
_REST_ROWS: Final = 1 << 16  # rows of one block at the end of the capture
_LAST: Final = (1 << 63) - 1
_KINDS: Final = tuple(KINDS)
_OUTCOMES: Final = tuple(OUTCOMES)
_NAMED: Final = ("topic", "subscription", "producer_name")


class Exchanges:
    """State of one capture's frames of one protocol.

    `pair` takes the blocks in order, `finish` closes what waits. A protocol whose frames do more
    than its table says walks over them itself, between `begin` and `blocks`.
    """

    def __init__(
        self,
        protocol: int,
        rules: RuleColumns,
        reorder_window_ns: int,
        bounds: PairingBounds | None = None,
        key: int = 0,
        words: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    ) -> None:
        """State of nothing.

        Args:
            key: of hash tables.
            words: the texts of further columns that hold indexes, by name.
        """
        self._words = words
        self._protocol = protocol
        self._rules = rules
        self._window_ns = reorder_window_ns
        self._state = pairing_state.new_pairing_state(_START_ROWS, bounds or PairingBounds(), key)
        self._names: Sequence[bytes] = []
        self._texts: Sequence[bytes] = []

    def pair(
        self, frames: FrameColumns, rows: int, names: Sequence[bytes], notices: NoticeLog
    ) -> list[TableBlock]:
        """Pair the requests and answers of a block, as the table says; sets answered_*.

        Args:
            names: texts of the name codes.
            notices: gets what is odd.

        Returns:
            At most one block, of exchanges: those that closed.
        """
        run = self.begin(frames, rows, np.full(max(rows, 1), NULL, np.int64), names)
        for _ in self.rooms():
            if not pair_frames(run, rows, self._protocol):
                break
        return self.blocks(run, notices)

    def begin(
        self, frames: FrameColumns, rows: int, error_texts: Int64Array, names: Sequence[bytes]
    ) -> PassContext:
        """Take up a block."""
        self._names = names
        self._state.counters[pairing_state.COUNT_AT] = 0
        pool = self._state.pending_pool
        waiting = len(pool.rows) - int(pool.free[0])
        return self._context(frames, error_texts, waiting + 2 * rows)

    def rooms(self) -> Iterator[None]:
        """Make room for some rows, each time for more; whoever walks asks where there is none."""
        more = _ROOM_ROWS
        while True:
            pairing_state.reserve(self._state, more)
            yield
            more *= 2

    def finish(self, notices: NoticeLog) -> list[TableBlock]:
        """Rows of everything that still waits at the end of the capture."""
        counters = self._state.counters
        blocks = []
        left = 1
        while left:
            run = self._context(new_frame_columns(1)[1], np.zeros(1, np.int64), _REST_ROWS)
            left = close_rest(run, _REST_ROWS)
            blocks += self.blocks(run, notices)
        evicted = int(counters[pairing_state.COUNT_EVICTED])
        if evicted:
            now = int(counters[pairing_state.COUNT_NOW])
            notices.note("pending_limit", ts_ns=now, value=evicted)
        return blocks

    def open_rows(self) -> list[TableBlock]:
        """The rows that `finish` would give now; everything stays open."""
        return deepcopy(self).finish(NoticeLog())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """One with a state of its own, for the same names."""
        ended = copy(self)
        ended._state = deepcopy(self._state, memo)
        return ended

    def memory(self) -> PairingState:
        """The state itself: to be saved, or to be filled in place before `resume`."""
        return self._state

    def _context(self, frames: FrameColumns, error_texts: Int64Array, rows: int) -> PassContext:
        """What one pass works with; its output takes `rows` rows. Memory is used as it fills."""
        self._state.counters[pairing_state.COUNT_OUT] = 0
        out = ExchangeColumns(np.empty((len(ExchangeColumns._fields), rows), np.int64))
        notices = new_notices(2 * rows + 1)
        return PassContext(
            self._state, self._rules, frames, error_texts, self._window_ns, out, notices
        )

    def blocks(self, run: PassContext, notices: NoticeLog) -> list[TableBlock]:
        """The rows that closed, in order, as at most one block; notices go to `notices`."""
        notices.drain(run.notices)
        rows = int(self._state.counters[pairing_state.COUNT_OUT])
        if rows == 0:
            return []
        part = _in_order(run.out, rows)
        columns: dict[str, Column] = dict(zip(ExchangeColumns._fields, part.matrix, strict=True))
        texts: dict[str, Sequence[Any]] = dict.fromkeys(_NAMED, self._names)
        texts |= {"kind": _KINDS, "outcome": _OUTCOMES, "error_text": self._texts, **self._words}
        for name, known in texts.items():
            columns[name] = Coded(getattr(part, name), known)
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
