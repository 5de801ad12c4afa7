"""Where the framing writes: the block of frames being filled, and the arena behind it."""

from collections.abc import Callable
from typing import Final

import numpy as np

from dissector.blocks import ByteArray
from dissector.jit import prepacked
from dissector.limits import FRAME_BLOCK_ROWS, NULL, READ_BUFFER_BYTES
from dissector.protocols.columns import new_frame_columns
from dissector.protocols.framing.connection_table import compact_arena
from dissector.protocols.framing.state import COUNTER_ARENA_USED, FramingState, new_state
from dissector.protocols.interface import FrameBlock, Sources

# Half of it takes what one input buffer can add: smaller blocks of frames cost a third more time.
ARENA_BYTES: Final = 3 * READ_BUFFER_BYTES
SLOTS: Final = 1 << 10
_FIRST_ROWS: Final = 1000  # of the first two blocks: most captures have few frames
EMPTY: Final = np.empty(0, np.uint8)

FrameSink = Callable[[FrameBlock], None]


def _refuse(block: FrameBlock) -> None:
    raise AssertionError(f"{block.rows} frames after the end")


class FrameOutput:
    """Rows of frames on their way to the sink, and everything that must move with the arena.

    state: of the splitting kernel.
    rows: filled so far.
    sources: input buffer, stream heap and side buffer, valid during one call of the framing.
    """

    def __init__(self, sink: FrameSink, key: int, protocols: int = 1) -> None:
        """key: of hash tables; protocols: whose frames are looked for."""
        self._sink = sink
        self.state = new_state(SLOTS, ARENA_BYTES, key, protocols)
        self.matrix, self.frames = new_frame_columns(_FIRST_ROWS)
        self.rows = 0
        # A block is read, columns and arena, until the next one is handed out: two take turns.
        self._other = new_frame_columns(_FIRST_ROWS)
        self._other_rows = 0
        self.sources: tuple[ByteArray, ByteArray, ByteArray] = (EMPTY, EMPTY, EMPTY)
        # What is still needed moves to the other arena. The first one's memory is used again when
        # a block has been handed out since: then the blocks in it are read to the end.
        self._spare = EMPTY
        self._spare_marks = EMPTY
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
        """State and sources for a kernel alone: their words are found once, not for each call."""
        state, own = self.state, self.sources
        if self._for_kernel[0] is not state or self._for_kernel[1] is not own:
            self._for_kernel = (state, own, prepacked(state), prepacked(self.all_sources()))
        return self._for_kernel[2:]

    def flush(self) -> None:
        """Hand the frames so far to the sink; afterwards no row points into any buffer."""
        spare = EMPTY
        if self.rows:
            self._sink(FrameBlock(self.matrix, self.frames, self.rows, self.all_sources()))
            fresh, used = self._other, self._other_rows
            if self.rows > _FIRST_ROWS // 2 and len(fresh[1].command) < FRAME_BLOCK_ROWS:
                fresh, used = new_frame_columns(FRAME_BLOCK_ROWS), 0
            self._other, self._other_rows = (self.matrix, self.frames), self.rows
            self.matrix, self.frames = fresh
            self.matrix[:, :used] = NULL
            self.rows = 0
            spare = self._spare
        if self.state.counters[COUNTER_ARENA_USED] > len(self.state.arena) // 2:
            self._compact(len(self.state.arena), spare)

    def close(self) -> None:
        """Forget the sink: nothing comes any more, and whoever owns both shall not be kept."""
        self._sink = _refuse

    def grow_arena(self, needed: int) -> None:
        """Make room for so many bytes more in the arena; hands the frames so far to the sink."""
        self.flush()
        used = int(self.state.counters[COUNTER_ARENA_USED])
        size = max(len(self.state.arena), ARENA_BYTES)
        while used + needed > size // 2:
            size *= 2
        if size > len(self.state.arena):
            self._compact(size, EMPTY)

    def _compact(self, size: int, spare: ByteArray) -> None:
        """Move what is still needed to a fresh arena; only between blocks of frames.

        Args:
            spare: the memory of an arena that nobody reads.
        """
        fresh = spare if len(spare) == size else np.empty(size, np.uint8)
        marks = self._spare_marks if len(self._spare_marks) == size else np.empty(size, np.uint8)
        self.state.counters[COUNTER_ARENA_USED] = compact_arena(self.state, fresh, marks)
        self._spare, self._spare_marks = self.state.arena, self.state.marks
        self.state = self.state._replace(arena=fresh, marks=marks)
