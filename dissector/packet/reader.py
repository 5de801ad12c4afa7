"""PacketReader: packet columns in, segment columns out, every packet counted once."""

from typing import NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.capture.columns import CaptureNotice
from dissector.limits import PACKET_BLOCK_ROWS
from dissector.packet.columns import PacketColumns, SegmentColumns, new_segment_columns
from dissector.packet.decode import read_packets
from dissector.packet.reasons import IGNORED_REASONS, UNKNOWN_LINK_TYPE, USED


class PacketCounts(NamedTuple):
    """Where the packets of one file went. used + sum(ignored.values()) = packets read."""

    used: int
    ignored: dict[str, int]


class UnknownLinkType(NamedTuple):
    """Packets of a link type that is not read: how many, and the number of the first."""

    link_type: int
    packets: int
    first_packet: int


class PacketReader:
    """Decodes blocks of packets of one capture.

    segments: the columns that read fills, valid until the next read. reasons: int64, for each
    packet of the block just read USED or its reason. unknown_link_types: by number.
    """

    def __init__(self, verify_checksums: bool = False, block_rows: int = PACKET_BLOCK_ROWS) -> None:
        self.segments: SegmentColumns = new_segment_columns(block_rows)
        self.reasons: Int64Array = np.zeros(len(self.segments.packet), np.int64)
        self.unknown_link_types: dict[int, UnknownLinkType] = {}
        self._counts: Int64Array = np.zeros(len(IGNORED_REASONS), np.int64)
        self._verify = int(verify_checksums)

    def read(
        self,
        data: ByteArray,
        packets: PacketColumns,
        rows: int,
        first_packet: int,
        link_types: Int64Array,
    ) -> tuple[SegmentColumns, int]:
        """Decode the first `rows` packets, which lie in data.

        Args:
            first_packet: number of the first of them in the capture. link_types: by interface.

        Returns:
            Segments in the order of their packets, and how many there are.
        """
        reasons = self.reasons[:rows]
        assert len(reasons) == rows, "the block of packets is larger than this reader's"
        found = read_packets(
            data, packets, reasons, link_types, (first_packet, self._verify), self.segments
        )
        counts = np.bincount(reasons, minlength=len(IGNORED_REASONS))
        self._counts += counts
        if counts[UNKNOWN_LINK_TYPE]:
            self._note_unknown(packets.interface[:rows], reasons, first_packet, link_types)
        return self.segments, found

    def finish_file(self) -> PacketCounts:
        """The counts since the last call, which belong to the file that ended."""
        counts = {
            IGNORED_REASONS[reason]: int(count)
            for reason, count in enumerate(self._counts)
            if count and reason != USED
        }
        used = int(self._counts[USED])
        self._counts[:] = 0
        return PacketCounts(used, counts)

    def finish(self) -> list[CaptureNotice]:
        """Findings about the capture as a whole: the link types that are not read."""
        return [
            CaptureNotice(
                "unknown_link_type",
                packet=seen.first_packet,
                value=seen.link_type,
                value2=seen.packets,
            )
            for seen in self.unknown_link_types.values()
        ]

    def _note_unknown(
        self,
        interfaces: Int64Array,
        reasons: Int64Array,
        first_packet: int,
        link_types: Int64Array,
    ) -> None:
        rows = np.flatnonzero(reasons == UNKNOWN_LINK_TYPE)
        numbers, places, counts = np.unique(
            link_types[interfaces[rows]], return_index=True, return_counts=True
        )
        for number, place, count in zip(numbers, places, counts, strict=True):
            seen = self.unknown_link_types.get(int(number))
            self.unknown_link_types[int(number)] = UnknownLinkType(
                int(number),
                int(count) + (seen.packets if seen else 0),
                seen.first_packet if seen else first_packet + int(rows[place]),
            )
