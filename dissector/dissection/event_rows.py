"""Rows of the table `events`: gaps and ends between the frames of a block."""

from typing import Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.limits import NULL
from dissector.protocols.columns import DIRECTION_NAMES, FrameEvent
from dissector.protocols.interface import FrameBlock
from dissector.schemas import enums
from dissector.stream.columns import ENDED_CAPTURE_END, ENDED_NAMES

_WORDS: Final = {
    FrameEvent.GAP: enums.EVENT_GAP,
    FrameEvent.SKIPPED: enums.EVENT_SKIPPED,
    FrameEvent.FIN: enums.EVENT_FIN,
    FrameEvent.CLOSE: enums.EVENT_CLOSE,
}


class EventRows:
    """Returns the events of one block after the other.

    Connections whose protocol is not decoded have no events, as they have no frames. The end of the
    capture is no event.
    """

    def __init__(self, protocols: int) -> None:
        """protocols: how many are decoded."""
        self._protocols = protocols
        self._events = self._frames = 0  # so far

    def rows(self, block: FrameBlock) -> list[TableBlock]:
        """The events of a block as one block, if it has any."""
        used, frames = slice(0, block.rows), block.frames
        numbers, protocols = frames.frame_no[used], frames.protocol[used]
        is_event = (numbers == NULL) & (protocols >= 0) & (protocols < self._protocols)
        is_event &= (frames.command[used] != FrameEvent.CLOSE) | (
            frames.status[used] != ENDED_CAPTURE_END
        )
        rows = np.flatnonzero(is_event)
        behind = np.maximum.accumulate(np.maximum(numbers, self._frames))
        if block.rows:
            self._frames = int(behind[-1])
        if not len(rows):
            return []
        kinds = frames.command[rows]
        words = np.select(
            [kinds == kind for kind in _WORDS], [*map(int, _WORDS.values())], default=NULL
        )
        is_close = kinds == FrameEvent.CLOSE
        has_bytes = (kinds == FrameEvent.GAP) | (kinds == FrameEvent.SKIPPED)

        def of(mask: Int64Array, values: Int64Array) -> Int64Array:
            return np.where(mask, values[rows], NULL)

        columns: dict[str, Column] = {
            "connection_id": frames.connection_id[rows],
            "event_no": np.arange(self._events + 1, self._events + len(rows) + 1),
            "behind_frame_no": behind[rows],
            "event": Coded(words, tuple(enums.STREAM_EVENTS)),
            "direction": Coded(of(~is_close, frames.direction), DIRECTION_NAMES),
            "ts": frames.last_ts_ns[rows],
            "ts_ns": frames.last_ts_ns[rows],
            "packet": frames.last_packet[rows],
            "stream_offset": of(~is_close, frames.stream_offset),
            "bytes": of(has_bytes, frames.frame_bytes),
            "is_inside": of(has_bytes, (frames.frames_missing == 0).astype(np.int64)),
            "ended": Coded(of(is_close, frames.status), ENDED_NAMES),
        }
        self._events += len(rows)
        return [TableBlock("events", len(rows), columns)]
