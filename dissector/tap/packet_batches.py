"""Batches of a tap's input: parsed packets, and the function that feeds them to the dissection.

A source yields batches that end where a rotation must end (`Cuts`); the loop may move that limit
between two batches.
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
    """The limits of the next batch.

    until_ns: it ends before the first packet at or after this time; NEVER before any packet.
    first_ns: longest duration of the first batch.
    room_bytes: most captured bytes.
    """

    def __init__(self, first_ns: int = NEVER_NS >> 1) -> None:
        self.until_ns = NEVER_NS
        self.first_ns = first_ns
        self.room_bytes = NEVER_NS


class PacketBatch(NamedTuple):
    """Some packets. data holds their bytes;

    packets: columns whose first `rows` rows are set; valid until the next batch.
    feed: feeds them to the dissection, once, and returns the rows that closed.

    A batch that is_boundary has no packets: the cut is reached, and packets.ts_ns[0] is the time of
    the next packet.
    """

    data: ByteArray
    packets: PacketColumns
    rows: int
    feed: Callable[[Dissection], list[TableBlock]]
    is_boundary: bool = False


class Part(NamedTuple):
    """The end of a file, or of a rotation's part of it. name: as in capture_files."""

    name: str
    facts: FileFacts
    counts: PacketCounts


class Idle(NamedTuple):
    """No packet arrived for a moment: the loop can check clocks and signals."""


class PacketSource(Protocol):
    """A source of packets.

    name: for ids and labels.
    file_names: the names of its files in texts.
    interfaces: the captured interfaces.
    is_live: unread packets are lost.
    """

    name: str
    file_names: Sequence[str]
    interfaces: Sequence[str]
    is_live: bool

    @property
    def part_name(self) -> str:
        """The name of the current part in capture_files."""

    def packet_batches(
        self, dissection: Dissection, cuts: Cuts
    ) -> Iterator[PacketBatch | Part | Idle]:
        """Yield all input in order, until it ends or `stop` is called."""

    def dropped(self) -> int:
        """Packets that the kernel dropped so far because the tap was too slow."""

    def down(self) -> list[str]:
        """Interfaces that are down or gone."""

    def notices(self) -> list[Notice]:
        """The input's notices since the last call."""

    def introduce(self, dissection: Dissection) -> None:
        """Add the interfaces to a new dissection; live sources only."""

    def stop(self) -> None:
        """Make `packets` end soon; safe in a signal handler."""

    def close(self) -> None:
        """Close files and sockets."""


def rows_before(packets: PacketColumns, rows: int, cuts: Cuts) -> int:
    """The number of the first `rows` packets before the cut; room_bytes allows at least one."""
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
