"""The toy protocol's rows: frames with a command, and exchanges by order."""

from collections import deque
from collections.abc import Collection

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.limits import NULL
from dissector.notice_log import NoticeLog
from dissector.protocols.columns import EVENT_CLOSE
from dissector.protocols.interface import ConnectionFacts, DecoderOptions, FrameBlock, Related

COMMANDS = ("?", "ASK", "ANSWER", "EITHER", "PROVEN", "LIMIT")
ASK, ANSWER = 1, 2
_KIND_AT = 5  # behind the length and the mark


class ToyFacts:
    """The state of one capture."""

    def __init__(self, options: DecoderOptions) -> None:
        self.notices = NoticeLog()
        self._protocol = options.protocol_number
        self._waiting: dict[int, deque[tuple[int, int]]] = {}
        self._closed: list[tuple[int, ...]] = []
        self._ordinal = 0

    def advance(self, block: FrameBlock) -> list[TableBlock]:
        """Fill the columns of the protocol's own rows, and follow requests."""
        frames = block.frames
        for row in range(block.rows):
            self._ordinal += 1
            if frames.protocol[row] != self._protocol:
                continue
            if frames.frame_no[row] == NULL:
                if frames.command[row] == EVENT_CLOSE:
                    self._waiting.pop(int(frames.connection_id[row]), None)
                continue
            data = block.sources[int(frames.source[row])]
            frames.command[row] = data[int(frames.data_offset[row]) + _KIND_AT]
            self._follow(block, row)
        return []

    def _follow(self, block: FrameBlock, row: int) -> None:
        frames = block.frames
        connection = int(frames.connection_id[row])
        waiting = self._waiting.setdefault(connection, deque())
        number, at = int(frames.frame_no[row]), int(frames.last_ts_ns[row])
        if frames.command[row] == ASK:
            waiting.append((number, at))
        elif frames.command[row] == ANSWER and waiting:
            asked, asked_at = waiting.popleft()
            self._closed.append((connection, asked, number, at - asked_at, asked_at, self._ordinal))

    def pair(self, block: FrameBlock) -> Related:
        """Frames are paired where they are read."""
        return Related([])

    def read(self, block: FrameBlock) -> list[TableBlock]:
        """It has no messages."""
        return []

    def relate(self, block: FrameBlock) -> Related:
        """The exchanges that closed."""
        if not self._closed:
            return Related([])
        cells = np.array(self._closed, np.int64).T.copy()
        self._closed = []
        names = ("connection_id", "request_frame_no", "response_frame_no", "latency_ns", "ts")
        columns: dict[str, Column] = dict(zip((*names, "closing_row"), cells, strict=True))
        columns["kind"] = Coded(np.zeros(len(cells[0]), np.int64), ("request",))
        columns["outcome"] = Coded(np.zeros(len(cells[0]), np.int64), ("ok",))
        return Related([TableBlock("exchanges", len(cells[0]), columns)])

    def frame_columns(self, block: FrameBlock, rows: Int64Array) -> dict[str, Column]:
        """The name of the command."""
        return {"command": Coded(block.frames.command[rows], COMMANDS)}

    def connection_facts(self, connection: int) -> ConnectionFacts | None:
        """Its connections say nothing of themselves."""
        return None

    def drain_hidden(self) -> tuple[int, int]:
        return 0, 0

    def repeated(self) -> Collection[int]:
        """It has no proxies."""
        return ()

    def finish(self) -> list[TableBlock]:
        """What waits is not told."""
        return []
