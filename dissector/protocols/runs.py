"""Bytes that the slow path holds: runs of a direction whose frames are not found yet."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dissector.blocks import ByteArray
from dissector.stream.columns import (
    DATA,
    ENDS_PACKET,
    STARTS_PACKET,
    RangeColumns,
)

SOURCE_ARENA: Final = 3


@dataclass
class Piece:
    """One range of a run: where it stands in the stream, its length and the packet it came in."""

    stream_offset: int
    length: int
    packet: int
    ts_ns: int
    flags: int


@dataclass
class Run:
    """Consecutive bytes of one direction since a gap or the stream's start.

    resume: offset in data below which no candidate can be proven any more; at_start: the first byte
    is the first of the connection; is_known_start: and it was seen so, from a SYN.
    """

    data: bytearray = field(default_factory=bytearray)
    pieces: list[Piece] = field(default_factory=list)
    resume: int = 0
    at_start: bool = False
    is_known_start: bool = False

    def add(self, piece: Piece, data: bytes) -> None:
        """Append a range."""
        self.pieces.append(piece)
        self.data += data

    def drop(self, count: int) -> None:
        """Forget the first bytes."""
        del self.data[:count]
        self.resume = max(0, self.resume - count)
        self.at_start = False
        while count > 0 and self.pieces:
            piece = self.pieces[0]
            if piece.length <= count:
                count -= piece.length
                self.pieces.pop(0)
            else:
                piece.stream_offset += count
                piece.length -= count
                piece.flags &= ~STARTS_PACKET
                count = 0

    def edges(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Offsets at which packets start, and the end of the run if a packet ends there."""
        starts: list[int] = []
        position = 0
        for piece in self.pieces:
            if piece.flags & STARTS_PACKET:
                starts.append(position)
            position += piece.length
        if self.pieces and self.pieces[-1].flags & ENDS_PACKET:
            starts.append(position)
        return np.array(starts, np.int64)

    def array(self) -> ByteArray:
        """The bytes as an array of their own."""
        return np.frombuffer(bytes(self.data), np.uint8).copy()


@dataclass
class Replay:
    """Ranges that go through the framing once more; their bytes lie in the arena from `at` on."""

    ranges: RangeColumns
    rows: int
    at: int
    size: int
    cursor: int = 0
    position: int = 0

    def move(self, at: int) -> None:
        """The bytes now lie elsewhere in the arena."""
        self.ranges.offset[: self.rows] += at - self.at
        self.at = at


def replay_of(
    runs: Sequence[tuple[int, Run]], connection: int, at: int, release_packet: int
) -> Replay:
    """The pieces of one or both directions as ranges, by the packets that brought them.

    Args:
        runs: direction's place in the framing's state, and run; at: where the bytes of the first
            stand in the arena, those of the second behind them.
    """
    pieces: list[tuple[int, ...]] = []
    position = at
    for way, run in runs:
        turn = 0
        for piece in run.pieces:
            turn = max(turn, piece.packet)
            pieces.append((turn, way, piece.stream_offset, *_range_of(piece, way, position)))
            position += piece.length
    pieces.sort(key=lambda piece: piece[:3])
    ranges = RangeColumns.new(len(pieces))
    for row, (_, _, _, side, offset, length, place, packet, ts_ns, flags) in enumerate(pieces):
        ranges.connection[row] = connection
        ranges.side[row] = side
        ranges.kind[row] = DATA
        ranges.stream_offset[row] = offset
        ranges.length[row] = length
        ranges.source[row] = SOURCE_ARENA
        ranges.offset[row] = place
        ranges.packet[row] = packet
        ranges.ts_ns[row] = ts_ns
        ranges.flags[row] = flags
        ranges.release_packet[row] = release_packet
    return Replay(ranges, len(pieces), at, position - at)


def _range_of(piece: Piece, way: int, place: int) -> tuple[int, ...]:
    return (
        way & 1,
        piece.stream_offset,
        piece.length,
        place,
        piece.packet,
        piece.ts_ns,
        piece.flags,
    )
