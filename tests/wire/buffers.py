"""Buffers of directions with unknown frame starts, filled by hand."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dissector.jit import callback
from dissector.protocols.columns import new_frame_columns
from dissector.protocols.framing.buffers import (
    append_range,
    begin_buffer,
    drop_bytes,
    reserve,
    search_view,
)
from dissector.protocols.framing.connection_table import allocate_connection
from dissector.protocols.framing.range_pool import BufferedRanges
from dissector.protocols.framing.resync import Rule, SearchView
from dissector.protocols.framing.row_output import Callbacks, PassContext
from dissector.protocols.framing.state import FramingState, grown_pools, new_state
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE, ProtocolSpec
from dissector.tables import ABSENT
from tests.wire.ranges import Ranges
from tests.wire.toy import SPEC


@dataclass
class Held:
    """The buffer of one direction of connection 7, which began before the capture."""

    spec: ProtocolSpec = SPEC
    direction_index: int = 0
    arena_bytes: int = 1 << 22
    script: Ranges = field(default_factory=Ranges)

    def __post_init__(self) -> None:
        self.state: FramingState = new_state(2, self.arena_bytes)
        allocate_connection(self.state, 7, -1, 0, 1 << 20)
        self.calls = Callbacks(
            (callback(CHECK_SIGNATURE, self.spec.check),),
            *(
                (callback(SPAN_SIGNATURE, each),)
                for each in (self.spec.prove, self.spec.one_way, self.spec.announced_limit)
            ),
        )
        self.out = new_frame_columns(10)[1]
        begin_buffer(self.context(), self.direction_index)

    @property
    def buffer(self) -> int:
        """The row of the buffer."""
        return int(self.state.directions.buffer[self.direction_index])

    def context(self) -> Any:
        """The kernels' context: one range, the last of the script."""
        data = np.frombuffer(bytes(self.script.data) or b"\0", np.uint8).copy()
        last = Ranges(rows=self.script.rows[-1:]).columns()
        sources = (data, data[:0], data[:0], self.state.arena)
        return PassContext(self.state, last, sources, self.out, self.calls, ABSENT)

    def add(self, *parts: bytes | int) -> "Held":
        """Append packets (bytes) and gaps (their lengths)."""
        side = self.direction_index & 1
        for part in parts:
            self.state = grown_pools(self.state)
            self.script.data.clear()
            if isinstance(part, int):
                self.script.lose(part, side, 7)
            else:
                self.script.send(part, side, 7)
                assert reserve(self.state, self.buffer, len(part))
            append_range(self.context(), 0, 0, self.direction_index)
        return self

    def drop(self, count: int) -> None:
        """Discard the first bytes."""
        drop_bytes(self.context(), self.direction_index, count)

    def search_view(self) -> SearchView:
        """The buffer as a search reads it."""
        plain = getattr(
            search_view, "py_func", search_view
        )  # no kernel that Python calls gives arrays
        view: SearchView = plain(self.state, self.direction_index, 0)
        return view

    def cell(self, number: int) -> int:
        """A cell of the buffer's search state."""
        return int(self.search_view().search[number])

    def rule(self, is_final: int = 0, is_open: int = 0, skipped: int = 0) -> Rule:
        """The rule by which the buffer's frames are judged."""
        return Rule(self.calls.check, self.calls.prove, 0, 2, 1 << 20, is_final, is_open, skipped)

    @property
    def data(self) -> bytes:
        """The buffer's bytes."""
        return self.search_view().data.tobytes()

    def rows(self, *names: str) -> list[tuple[int, ...]]:
        """Fields of the buffer's ranges, in order."""
        ranges: BufferedRanges = self.state.pool.ranges
        row, rows = int(self.state.pool.buffers.first[self.buffer]), []
        for _ in range(int(self.state.pool.buffers.ranges[self.buffer])):
            rows.append(tuple(int(getattr(ranges, name)[row]) for name in names))
            row = int(ranges.next[row])
        assert row == ABSENT
        return rows
