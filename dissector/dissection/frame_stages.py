"""The stages of a block of frames, which run in parallel with the reading of the next packets.

| stage  | output                                 | thread  | input         |
|--------|----------------------------------------|---------|---------------|
| decode | the block's columns                    | decode  | bytes         |
| pair   | names, producers, consumers, exchanges | relate  | columns alone |
| read   | rows of `frames`, messages             | read    | bytes         |
| relate | permits, deliveries, acks              | relate  | columns alone |

A thread handles the blocks in order: each stage of a protocol has state that continues from block
to block. Stages read and relate wait for the names of their block and run in parallel, and all
stages run in parallel with those of the previous and next block. With more threads, or more blocks
at once, switches of the interpreter's lock cost all the gain on two cores. Bytes are valid for a
shorter time than columns, so the caller can wait for only the stages that read them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NoReturn

from dissector.blocks import TableBlock
from dissector.dissection.merging import merged
from dissector.limits import FRAME_BLOCKS_AT_ONCE
from dissector.notice_log import NoticeLog
from dissector.protocols.interface import Decoded, FrameBlock, ProtocolDecoder, Related

_THREADS: Final = ("decode", "relate", "read")


def _refuse(*_: object) -> NoReturn:
    raise AssertionError("a block after the last one")


_Decoding = Future[list[Decoded]]
_Relating = Future[list[Related]]


@dataclass
class _Block:
    """A block in its stages. reading: None once its rows were returned."""

    frames: FrameBlock
    pairing: _Relating
    reading: "Future[tuple[list[TableBlock], list[Related]]] | None"
    relating: _Relating


class FrameStages:
    """The stages of all protocols.

    Args:
        frame_rows: (block, decoded by protocol) -> the block's rows of `frames`.
        out: receives a block whose bytes are no longer needed, or None after its last stage; rows,
            those of `frames` before rows that refer to them; and notices.
    """

    def __init__(
        self,
        protocols: Sequence[ProtocolDecoder],
        frame_rows: Callable[[FrameBlock, list[Decoded]], list[TableBlock]],
        out: Callable[[FrameBlock | None, list[TableBlock], Sequence[NoticeLog]], None],
    ) -> None:
        self._protocols = protocols
        self._frame_rows = frame_rows
        self._out = out
        self._threads = [ThreadPoolExecutor(1, name) for name in _THREADS]
        self._blocks: deque[_Block] = deque()

    def begin(self, frames: FrameBlock) -> None:
        """Start the stages of a block; wait for the oldest block first if too many are open."""
        while len(self._blocks) >= FRAME_BLOCKS_AT_ONCE:
            self._finish_oldest()
        decode, relate, read = (thread.submit for thread in self._threads)
        decoding = decode(self._decode, frames)
        pairing = relate(self._pair, frames, decoding)
        reading = read(self._read, frames, decoding, pairing)
        relating = relate(self._relate, frames, decoding)
        self._blocks.append(_Block(frames, pairing, reading, relating))

    def finish_reading(self, but: int = 0) -> None:
        """Wait for the stages that read bytes, except those of the last `but` blocks."""
        for number in range(len(self._blocks) - but):
            self._finish_reading(self._blocks[number])

    def finish(self) -> None:
        """Wait for all stages of all blocks."""
        while self._blocks:
            self._finish_oldest()

    def close(self) -> None:
        """Wait for all stages and end the threads; no block may follow."""
        self.finish()
        for thread in self._threads:
            thread.shutdown()
        self._frame_rows = self._out = _refuse  # so that their owner can be collected

    def abandon(self) -> None:
        """End the threads without the rest of their work; harmless after `close`.

        An interrupt while the pool starts a thread leaves one that is not in its list: it would
        wait for work, and the process for it, for ever.
        """
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)

    def _finish_reading(self, block: _Block) -> None:
        if block.reading is None:
            return
        rows, related = block.reading.result()
        block.reading = None
        self._out(block.frames, rows, _notices(related))

    def _finish_oldest(self) -> None:
        block = self._blocks[0]
        self._finish_reading(block)
        parts = [*zip(block.pairing.result(), block.relating.result(), strict=True)]
        self._blocks.popleft()
        rows = merged([[*paired.rows, *related.rows] for paired, related in parts])
        self._out(None, rows, [log for part in parts for log in _notices(part)])

    def _decode(self, frames: FrameBlock) -> list[Decoded]:
        return [protocol.advance(frames) for protocol in self._protocols]

    def _pair(self, frames: FrameBlock, decoding: _Decoding) -> list[Related]:
        return [protocol.pair(frames, own) for protocol, own in self._each(decoding)]

    def _read(
        self, frames: FrameBlock, decoding: _Decoding, pairing: _Relating
    ) -> tuple[list[TableBlock], list[Related]]:
        """Rows of `frames`, then rows of other tables, including those of stage decode."""
        pairing.result()
        decoded = decoding.result()
        frame_rows = self._frame_rows(frames, decoded)
        read = [protocol.read(frames, own) for protocol, own in self._each(decoding)]
        parts = zip(decoded, read, strict=True)
        return frame_rows + merged([[*own.rows, *each.rows] for own, each in parts]), read

    def _relate(self, frames: FrameBlock, decoding: _Decoding) -> list[Related]:
        return [protocol.relate(frames, own) for protocol, own in self._each(decoding)]

    def _each(self, decoding: _Decoding) -> Iterable[tuple[ProtocolDecoder, Decoded]]:
        """Protocols with their results of a block's stage decode."""
        return zip(self._protocols, decoding.result(), strict=True)


def _notices(parts: Sequence[Related]) -> list[NoticeLog]:
    return [part.notices for part in parts if part.notices]
