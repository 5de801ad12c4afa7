"""The toy protocol's rows: frames with a command, and exchanges, which a table declares."""

from collections.abc import Collection, Sequence

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.limits import NULL
from dissector.notice_log import NoticeLog
from dissector.protocols.columns import TO_BROKER, TO_CLIENT
from dissector.protocols.interface import (
    ConnectionFacts,
    Decoded,
    DecoderOptions,
    FrameBlock,
    Related,
)
from dissector.protocols.pairing import rules
from dissector.protocols.pairing.exchanges import Exchanges
from dissector.protocols.pairing.rules import Command, PairedBy

COMMANDS = ("?", "ASK", "ANSWER", "EITHER", "PROVEN", "LIMIT")
ASK, ANSWER = 1, 2
TABLE = (Command(ASK, TO_BROKER, PairedBy.TURN), Command(ANSWER, TO_CLIENT, answers=(ASK,)))
WORDS = {"request_command": COMMANDS, "response_command": COMMANDS, "error_code": ()}
_KIND_AT = 5  # behind the length and the mark


class ToyFacts:
    """The state of one capture."""

    def __init__(self, options: DecoderOptions) -> None:
        self.notices = NoticeLog()
        self._protocol = options.protocol_number
        window_ns, table = options.reorder_window_ns, rules.rules_of(TABLE)
        self._exchanges = Exchanges(self._protocol, table, window_ns, words=WORDS)

    def advance(self, block: FrameBlock) -> Decoded:
        """Fill the columns of the protocol's own rows."""
        frames = block.frames
        is_mine = (frames.protocol == self._protocol) & (frames.frame_no != NULL)
        for row in np.flatnonzero(is_mine[: block.rows]).tolist():
            data = block.sources[int(frames.source[row])]
            frames.command[row] = data[int(frames.data_offset[row]) + _KIND_AT]
        return Decoded([])

    def pair(self, block: FrameBlock, decoded: Decoded) -> Related:
        """The exchanges that closed."""
        notices = NoticeLog()
        found = self._exchanges.pair(block.frames, block.rows, [], notices)
        return Related(found, notices)

    def read(self, block: FrameBlock, decoded: Decoded) -> Related:
        """It has no messages."""
        return Related([])

    def relate(self, block: FrameBlock, decoded: Decoded) -> Related:
        """All was told by `pair`."""
        return Related([])

    def frame_columns(
        self, block: FrameBlock, decoded: Decoded, rows: Int64Array
    ) -> dict[str, Column]:
        """The name of the command."""
        return {"command": Coded(block.frames.command[rows], COMMANDS)}

    def connection_facts(self, connections: Sequence[int]) -> dict[int, ConnectionFacts]:
        """Its connections say nothing of themselves."""
        return {}

    def drain_hidden(self) -> tuple[int, int]:
        return 0, 0

    def repeated(self) -> Collection[int]:
        """It has no proxies."""
        return ()

    def finish(self) -> list[TableBlock]:
        """What waits for its answer."""
        return self._exchanges.finish(self.notices)
