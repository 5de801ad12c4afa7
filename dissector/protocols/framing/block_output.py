"""The output of the framing: the block of frames that is being filled, and its arena."""

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np

from dissector.blocks import ByteArray
from dissector.jit import prepacked
from dissector.limits import FRAME_BLOCK_ROWS, FRAME_BLOCKS_AT_ONCE, NULL, READ_BUFFER_BYTES
from dissector.protocols.columns import new_frame_columns
from dissector.protocols.framing.connection_table import compact_arena
from dissector.protocols.framing.state import COUNTER_ARENA_USED, FramingState, new_state
from dissector.protocols.interface import FrameBlock, Sources

# Half of it holds what one input buffer can add: smaller blocks of frames cost a third more time.
ARENA_BYTES: Final = 3 * READ_BUFFER_BYTES
SLOTS: Final = 1 << 10
_FIRST_ROWS: Final = 1000  # of the first blocks: most captures have few frames
EMPTY: Final = np.empty(0, np.uint8)

FrameSink = Callable[[FrameBlock], None]


def _refuse(block: FrameBlock) -> None:
    raise AssertionError(f"{block.rows} frames after the end")


class FrameOutput:
    """The frames before they go to the sink, and the kernel's state, which owns the arena.

    state: of the splitting kernel.
    rows: frames written to the block so far.
    sources: input buffer, stream heap and side buffer, valid during one call of the framing.
    """

    def __init__(self, sink: FrameSink, key: int, protocols: int = 1) -> None:
        """key: of hash tables; protocols: how many are searched for."""
        self._sink = sink
        self.state = new_state(SLOTS, ARENA_BYTES, key, protocols)
        self.matrix, self.frames = new_frame_columns(_FIRST_ROWS)
        self.rows = 0
        # Readers use a block's columns and arena until FRAME_BLOCKS_AT_ONCE more blocks went to the
        # sink, so columns rotate. An element: matrix, columns, number of used rows.
        self._spare_columns = deque(
            (*new_frame_columns(_FIRST_ROWS), 0) for _ in range(FRAME_BLOCKS_AT_ONCE)
        )
        self.sources: tuple[ByteArray, ByteArray, ByteArray] = (EMPTY, EMPTY, EMPTY)
        # Compaction copies the live bytes to another arena. The old one is reused once as many
        # blocks went to the sink: then the blocks in it have been read. An element: number of the
        # first block that may reuse it, arena, marks.
        self._spare_arenas: deque[tuple[int, ByteArray, ByteArray]] = deque()
        self._blocks = self._blocks_before_arena = 0
        self._for_kernel = (
            self.state,
            self.sources,
            prepacked(self.state),
            prepacked(self.all_sources()),
        )

    def all_sources(self) -> Sources:
        """The arrays that `source` columns select."""
        return (*self.sources, self.state.arena)

    def for_kernel(self) -> tuple[FramingState, Sources]:
        """State and sources as kernel arguments: unpacked once, not at each call."""
        state, own = self.state, self.sources
        if self._for_kernel[0] is not state or self._for_kernel[1] is not own:
            self._for_kernel = (state, own, prepacked(state), prepacked(self.all_sources()))
        return self._for_kernel[2:]

    def flush(self) -> None:
        """Send the frames so far to the sink; afterwards no row points into any buffer."""
        if self.rows:
            self._sink(FrameBlock(self.matrix, self.frames, self.rows, self.all_sources()))
            self._blocks += 1
            matrix, frames, used = self._spare_columns.popleft()
            if self.rows > _FIRST_ROWS // 2 and matrix.shape[1] < FRAME_BLOCK_ROWS:
                (matrix, frames), used = new_frame_columns(FRAME_BLOCK_ROWS), 0
            self._spare_columns.append((self.matrix, self.frames, self.rows))
            self.matrix, self.frames = matrix, frames
            self.matrix[:, :used] = NULL
            self.rows = 0
        if self.state.counters[COUNTER_ARENA_USED] > len(self.state.arena) // 2:
            self._compact(len(self.state.arena))

    def close(self) -> None:
        """Drop the reference to the sink, so that its owner can be collected."""
        self._sink = _refuse

    def grow_arena(self, needed: int) -> None:
        """Grow the arena until `needed` more bytes fit; sends the frames so far to the sink."""
        self.flush()
        used = int(self.state.counters[COUNTER_ARENA_USED])
        size = max(len(self.state.arena), ARENA_BYTES)
        while used + needed > size // 2:
            size *= 2
        if size > len(self.state.arena):
            self._compact(size)

    def _compact(self, size: int) -> None:
        """Copy the live bytes to a fresh arena; only between blocks of frames."""
        state, fresh, marks = self.state, EMPTY, EMPTY
        if self._spare_arenas and self._spare_arenas[0][0] <= self._blocks:
            _, fresh, marks = self._spare_arenas.popleft()
        if len(fresh) != size:
            fresh, marks = np.empty(size, np.uint8), np.empty(size, np.uint8)
        state.counters[COUNTER_ARENA_USED] = compact_arena(state, fresh, marks)
        if len(state.arena) == ARENA_BYTES and self._blocks > self._blocks_before_arena:
            until = self._blocks + FRAME_BLOCKS_AT_ONCE
            self._spare_arenas.append((until, state.arena, state.marks))
        self._blocks_before_arena = self._blocks
        self.state = state._replace(arena=fresh, marks=marks)
