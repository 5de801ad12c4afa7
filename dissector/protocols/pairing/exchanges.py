"""Exchanges: each request with its answer, or the reason why there is none.

`state` says how requests and answers are paired, `rules` which command answers which.
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
# Tables grow in small steps: lookups in a table larger than its content miss the processor's cache.
_ROOM_ROWS: Final = 64
_REST_ROWS: Final = 1 << 16  # rows of one block at the end of the capture
_LAST: Final = (1 << 63) - 1
_KINDS: Final = tuple(KINDS)
_OUTCOMES: Final = tuple(OUTCOMES)
_NAMED: Final = ("topic", "subscription", "producer_name")


class Exchanges:
    """Pairs the frames of one protocol in one capture.

    Call `pair` with the blocks in order, then `finish`. A protocol with rules beyond its table of
    commands walks over the frames itself, between `begin` and `blocks`.
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
        """An empty state.

        Args:
            key: of hash tables.
            words: by name of a further coded column, its texts.
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
        """Pair the requests and answers of a block by the table of commands; sets answered_*.

        Args:
            names: texts of the name codes.
            notices: receives the notices.

        Returns:
            At most one block: the exchanges that closed.
        """
        context = self.begin(frames, rows, np.full(max(rows, 1), NULL, np.int64), names)
        for _ in self.reservations():
            if not pair_frames(context, rows, self._protocol):
                break
        return self.blocks(context, notices)

    def begin(
        self, frames: FrameColumns, rows: int, error_texts: Int64Array, names: Sequence[bytes]
    ) -> PassContext:
        """The context for a walk over a block."""
        self._names = names
        self._state.counters[pairing_state.COUNT_CURSOR] = 0
        pool = self._state.pending_pool
        waiting = len(pool.rows) - int(pool.free[0])
        return self._context(frames, error_texts, waiting + 2 * rows)

    def reservations(self) -> Iterator[None]:
        """Reserve room before each attempt at a walk, twice as much each time, until one ends."""
        more = _ROOM_ROWS
        while True:
            pairing_state.reserve(self._state, more)
            yield
            more *= 2

    def finish(self, notices: NoticeLog) -> list[TableBlock]:
        """Write the rows that are still pending at the end of the capture."""
        counters = self._state.counters
        blocks = []
        left = 1
        while left:
            context = self._context(new_frame_columns(1)[1], np.zeros(1, np.int64), _REST_ROWS)
            left = close_rest(context, _REST_ROWS)
            blocks += self.blocks(context, notices)
        evicted = int(counters[pairing_state.COUNT_EVICTED])
        if evicted:
            now = int(counters[pairing_state.COUNT_CLOCK])
            notices.note("pending_limit", ts_ns=now, value=evicted)
        return blocks

    def open_rows(self) -> list[TableBlock]:
        """The rows that `finish` would return now; the state is unchanged."""
        return deepcopy(self).finish(NoticeLog())

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with its own state; names and texts are shared."""
        ended = copy(self)
        ended._state = deepcopy(self._state, memo)
        return ended

    def memory(self) -> PairingState:
        """The state itself, to save it or to load a saved one in place before `resume`."""
        return self._state

    def _context(self, frames: FrameColumns, error_texts: Int64Array, rows: int) -> PassContext:
        """The context of a pass with `rows` output rows; the system maps their pages on use."""
        self._state.counters[pairing_state.COUNT_OUT] = 0
        out = ExchangeColumns(np.empty((len(ExchangeColumns._fields), rows), np.int64))
        notices = new_notices(2 * rows + 1)
        return PassContext(
            self._state, self._rules, frames, error_texts, self._window_ns, out, notices
        )

    def blocks(self, context: PassContext, notices: NoticeLog) -> list[TableBlock]:
        """The closed exchanges, in order, as at most one block; adds notices to `notices`."""
        notices.drain(context.notices)
        rows = int(self._state.counters[pairing_state.COUNT_OUT])
        if rows == 0:
            return []
        closed = _in_order(context.out, rows)
        columns: dict[str, Column] = dict(zip(ExchangeColumns._fields, closed.matrix, strict=True))
        texts: dict[str, Sequence[Any]] = dict.fromkeys(_NAMED, self._names)
        texts |= {"kind": _KINDS, "outcome": _OUTCOMES, "error_text": self._texts, **self._words}
        for name, column_texts in texts.items():
            columns[name] = Coded(getattr(closed, name), column_texts)
        return [TableBlock("exchanges", rows, columns)]


def _in_order(out: ExchangeColumns, rows: int) -> ExchangeColumns:
    """The first `rows` rows; those with an equal closing row are sorted by frames, nulls last."""
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
