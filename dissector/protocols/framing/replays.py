"""Ranges that go through the framing once more, and what they were."""

from dataclasses import dataclass, field

from dissector.stream.columns import DATA, RangeColumns


@dataclass
class Piece:
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
    starts_chain: bool = False
    is_judged: bool = False


@dataclass
class Replay:
    """Ranges that go through the framing once more; their bytes lie in the arena from `at` on.

    pieces: what they were, row by row; none where ranges come for the first time.
    """

    ranges: RangeColumns
    rows: int
    at: int
    size: int
    pieces: list[Piece] = field(default_factory=list)
    cursor: int = 0
    position: int = 0

    def is_at_data_of(self, connection: int, side: int) -> bool:
        """Whether the range at the cursor holds bytes of a flow, none of which was taken."""
        ranges, row = self.ranges, self.cursor
        return bool(
            row < self.rows
            and self.position == 0
            and ranges.side[row] == side
            and ranges.connection[row] == connection
            and ranges.kind[row] == DATA
        )

    def move(self, at: int) -> None:
        """The bytes now lie elsewhere in the arena."""
        self.ranges.offset[: self.rows] += at - self.at
        self.at = at
