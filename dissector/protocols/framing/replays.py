"""Ranges that go through the framing once more, and what they were."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.bundles import Records
from dissector.protocols.interface import HEADER_WINDOW
from dissector.stream.columns import DATA, RangeColumns

# What a range of DATA is for the splitting kernel when a run has its bytes already (`gathering`).
GATHERED: Final = 5  # nothing is to be done
DUE: Final = 6  # with these bytes something is to be decided

PIECE_BYTES: Final = 256  # counted as held for each range of a run, beside its bytes
# What a range may make runs hold more, beside its bytes: it, and of both directions a header that
# began before and turns out to be none.
_MOST_BESIDE: Final = 3 * PIECE_BYTES + 2 * HEADER_WINDOW


class Piece(NamedTuple):
    """One range of a run: where it stands in the stream, its length and the packet it came in.

    order: rises with the ranges of both directions as they arrived; kind, cause: as in ranges;
    starts_chain: its first byte is where frames were found again; is_judged: the first of them need
    not be strict.
    """

    stream_offset: int
    length: int
    packet: int
    ts_ns: int
    flags: int
    order: int = 0
    kind: int = DATA
    cause: int = 0
    starts_chain: int = 0
    is_judged: int = 0


class Pieces(Records):
    """Ranges of a run in order, a `Piece` each."""

    stream_offset: Int64Array
    length: Int64Array
    packet: Int64Array
    ts_ns: Int64Array
    flags: Int64Array
    order: Int64Array
    kind: Int64Array
    cause: Int64Array
    starts_chain: Int64Array
    is_judged: Int64Array

    def __getitem__(self, row: int) -> Piece:
        return Piece(*self.matrix[row].tolist())


@dataclass
class Replay:
    """Ranges that go through the framing once more; their bytes lie in the arena from `at` on.

    pieces: what they were, row by row; None where ranges come for the first time.
    """

    ranges: RangeColumns
    rows: int
    at: int
    size: int
    pieces: Pieces | None = None
    cursor: int = 0
    position: int = 0

    def move(self, at: int) -> None:
        """The bytes now lie elsewhere in the arena."""
        self.ranges.offset[: self.rows] += at - self.at
        self.at = at

    @cached_property
    def next_rows(self) -> Int64Array:
        """For each range the next one of its connection, -1 behind the last."""
        connections = self.ranges.connection[: self.rows]
        order = np.argsort(connections, kind="stable")
        found = np.full(self.rows, -1, np.int64)
        is_same = connections[order[1:]] == connections[order[:-1]]
        found[order[:-1][is_same]] = order[1:][is_same]
        return found

    @cached_property
    def held_bytes(self) -> Int64Array:
        """What runs may hold more behind each range, if they take all up to it."""
        ranges = self.ranges
        bytes_of = np.where(ranges.kind == DATA, ranges.length, 0)[: self.rows]
        return np.cumsum(bytes_of + _MOST_BESIDE)
