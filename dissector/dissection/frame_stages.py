"""What is done to a block of frames, in stages that run beside the reading of the next packets.

| stage  | what it makes                          | thread   | what it reads |
|--------|----------------------------------------|----------|---------------|
| decode | the block's columns                    | caller's | bytes         |
| pair   | names, producers, consumers, exchanges | a worker | columns alone |
| read   | rows of `frames`, messages             | a worker | bytes         |
| relate | permits, deliveries, acks              | a worker | columns alone |

Reading and relating wait for the names and run beside each other.

There is one block at a time, as what a protocol knows goes on from block to block: the next one is
decoded when all stages of the last are through. Bytes are lent for a shorter time than columns, so
the caller can ask for the end of the stages that need them alone.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

from dissector.blocks import TableBlock
from dissector.dissection.merging import merged
from dissector.notice_log import NoticeLog
from dissector.protocols.interface import FrameBlock, ProtocolDecoder, Related

# Reading, and what reads columns alone.
_WORKERS = 2


def _refuse(*_: object) -> NoReturn:
    raise AssertionError("a block after the last one")


@dataclass
class _Block:
    """A block in its stages. reading: None when its rows are out."""

    frames: FrameBlock
    pairing: "Future[list[Related]]"
    reading: "Future[tuple[list[TableBlock], list[TableBlock]]] | None"
    relating: "Future[list[Related]]"


class FrameStages:
    """The stages of all protocols.

    Args:
        frame_rows: makes the rows of `frames` of a block.
        out: takes a block whose bytes are not needed any more, or None behind its last stage; and
            rows, those of `frames` before those that name them; and notices.
    """

    def __init__(
        self,
        protocols: Sequence[ProtocolDecoder],
        frame_rows: Callable[[FrameBlock], list[TableBlock]],
        out: Callable[[FrameBlock | None, list[TableBlock], Sequence[NoticeLog]], None],
    ) -> None:
        self._protocols = protocols
        self._frame_rows = frame_rows
        self._out = out
        self._workers = ThreadPoolExecutor(_WORKERS, "stages")
        self._block: _Block | None = None

    def begin(self, frames: FrameBlock) -> None:
        """Decode a block, and start its other stages; the last one ends first."""
        self.finish()
        decoded = [protocol.advance(frames) for protocol in self._protocols]
        # In this order: a worker that waits for names must not keep them from being found.
        pairing = self._workers.submit(self._pair, frames)
        reading = self._workers.submit(self._read, frames, decoded, pairing)
        relating = self._workers.submit(self._relate, frames, pairing)
        self._block = _Block(frames, pairing, reading, relating)

    def finish_reading(self) -> None:
        """Wait for the stages that need bytes."""
        block = self._block
        if block is None or block.reading is None:
            return
        frames, others = block.reading.result()
        block.reading = None
        self._out(block.frames, frames + others, [])

    def finish(self) -> None:
        """Wait for all stages of the block, if there is one."""
        if self._block is None:
            return
        self.finish_reading()
        parts = [*zip(self._block.pairing.result(), self._block.relating.result(), strict=True)]
        self._block = None
        notices = [related.notices for part in parts for related in part if related.notices]
        rows = merged([[*paired.rows, *related.rows] for paired, related in parts])
        self._out(None, rows, notices)

    def close(self) -> None:
        """No block follows."""
        self.finish()
        self._workers.shutdown()
        self._frame_rows = self._out = _refuse  # whoever owns both shall not be kept

    def _pair(self, frames: FrameBlock) -> list[Related]:
        return [protocol.pair(frames) for protocol in self._protocols]

    def _relate(self, frames: FrameBlock, pairing: "Future[list[Related]]") -> list[Related]:
        pairing.result()
        return [protocol.relate(frames) for protocol in self._protocols]

    def _read(
        self,
        frames: FrameBlock,
        decoded: list[list[TableBlock]],
        pairing: "Future[list[Related]]",
    ) -> tuple[list[TableBlock], list[TableBlock]]:
        """Rows of `frames`, and those of other tables with what was decoded already."""
        pairing.result()
        both = zip(decoded, self._protocols, strict=True)
        return self._frame_rows(frames), merged(
            [[*first, *protocol.read(frames)] for first, protocol in both]
        )
