"""Pieces of a tap's input: packets that were found, and how the dissection takes them.

A source gives pieces that end where a rotation shall end. It is told so in `Cuts`, which the loop
may move whenever it has a piece in hand.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np

from dissector.blocks import ByteArray, TableBlock
from dissector.capture.reader import FileFacts
from dissector.dissection import Dissection
from dissector.notice_rows import Notice
from dissector.packet.columns import PacketColumns
from dissector.packet.reader import PacketCounts

NEVER_NS: Final = (1 << 63) - 1


class Cuts:
    """Where the next piece must end.

    until_ns: before the first packet of this time or later, NEVER while none has come.
    first_ns: how long the first piece may last.
    room_bytes: before the packet that would exceed so many captured bytes.
    """

    def __init__(self, first_ns: int = NEVER_NS >> 1) -> None:
        self.until_ns = NEVER_NS
        self.first_ns = first_ns
        self.room_bytes = NEVER_NS


class PacketBatch(NamedTuple):
    """Some packets. data holds their bytes;

    packets: columns of which the first `rows` count, valid until the next piece.
    feed: hands them to the dissection, once, and gives the rows that closed.

    A piece that is_border has no packets to feed and says: the cut is reached, packets.ts_ns[0] is
    the time of the next packet.
    """

    data: ByteArray
    packets: PacketColumns
    rows: int
    feed: Callable[[Dissection], list[TableBlock]]
    is_border: bool = False


class Part(NamedTuple):
    """A file that ended, or a rotation's part of it. name: as capture_files has it."""

    name: str
    facts: FileFacts
    counts: PacketCounts


class Idle(NamedTuple):
    """Nothing came for a moment: time to look at clocks and signals."""


class PacketSource(Protocol):
    """Where packets come from.

    name: for ids and labels.
    file_names: what sentences about its files call them.
    interfaces: that packets come from.
    is_live: packets do not wait for us.
    """

    name: str
    file_names: Sequence[str]
    interfaces: Sequence[str]
    is_live: bool

    @property
    def part_name(self) -> str:
        """What the running part is called in capture_files."""

    def packet_batches(
        self, dissection: Dissection, cuts: Cuts
    ) -> Iterator[PacketBatch | Part | Idle]:
        """All input, in order; ends when the input ends or `stop` was called."""

    def dropped(self) -> int:
        """Packets that the kernel dropped so far, because we were too slow."""

    def down(self) -> list[str]:
        """Interfaces that are down or gone."""

    def notices(self) -> list[Notice]:
        """What happened to the input since the last call."""

    def introduce(self, dissection: Dissection) -> None:
        """Tell a new dissection what the packets to come are of; live sources only."""

    def stop(self) -> None:
        """End soon; safe in a signal handler."""

    def close(self) -> None:
        """Let go of files and sockets."""


def rows_before(packets: PacketColumns, rows: int, cuts: Cuts) -> int:
    """How many of the first `rows` packets lie before the cut; at least one fits any room."""
    count = rows
    until_ns = cuts.until_ns
    if rows and until_ns == NEVER_NS:
        until_ns = int(packets.ts_ns[0]) + cuts.first_ns
    late = packets.ts_ns[:rows] >= until_ns
    if late.any():
        count = int(late.argmax())
    if cuts.room_bytes < NEVER_NS and count:
        filled = np.cumsum(packets.captured_bytes[:count])
        count = max(1, int(np.searchsorted(filled, cuts.room_bytes, side="right")))
    return count
