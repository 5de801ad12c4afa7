"""Bytes and gaps of connections in both directions: rows for `follow`."""

from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Coded, Spans, TableBlock
from dissector.packet.columns import SegmentColumns
from dissector.stream.columns import RangeColumns, RangeKind

TABLE: Final = "conversation"  # not a table of the lake
PLACES: Final = "places"  # nor is this
KIND_NAMES: Final = ("data", "lost", "cut")
AS_CAPTURED: Final = -1  # all connections, with the bytes of their packets: TLS stays encrypted


class Conversation:
    """Selects the ranges of one connection, or of all AS_CAPTURED, in order of release."""

    def __init__(self, connection: int) -> None:
        self._connection = connection

    def places(self, segments: SegmentColumns, count: int) -> list[TableBlock]:
        """For AS_CAPTURED, the positions of a block's segments: packet, stream, stream_offset and
        origin, as in SegmentColumns."""
        if self._connection != AS_CAPTURED or not count:
            return []
        names = ("packet", "stream", "stream_offset", "origin")
        columns = {name: getattr(segments, name)[:count].copy() for name in names}
        return [TableBlock(PLACES, count, dict(columns))]

    def rows(
        self, ranges: RangeColumns, rows: int, sources: tuple[ByteArray, ByteArray, ByteArray]
    ) -> list[TableBlock]:
        """The selected ranges of a block as rows of the table `conversation`."""
        kinds = ranges.kind[:rows]
        chosen = np.flatnonzero(
            ((ranges.connection[:rows] == self._connection) | (self._connection == AS_CAPTURED))
            & (
                (kinds == RangeKind.DATA)
                | (kinds == RangeKind.GAP_LOST)
                | (kinds == RangeKind.GAP_CUT)
            )
        )
        if not len(chosen):
            return []
        lengths = ranges.length[chosen]
        sizes = np.where(kinds[chosen] == RangeKind.DATA, lengths, -1)
        pieces = [
            sources[int(ranges.source[row])][
                int(ranges.offset[row]) : int(ranges.offset[row]) + int(ranges.length[row])
            ]
            for row in chosen
            if ranges.kind[row] == RangeKind.DATA
        ]
        data = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
        present = np.maximum(sizes, 0)
        starts = np.cumsum(present) - present
        return [
            TableBlock(
                TABLE,
                len(chosen),
                {
                    "connection": ranges.connection[chosen],
                    "endpoint_index": ranges.endpoint_index[chosen],
                    "kind": Coded(kinds[chosen].copy(), KIND_NAMES),
                    "stream_offset": ranges.stream_offset[chosen],
                    "bytes": lengths,
                    "packet": ranges.packet[chosen],
                    "ts": ranges.ts_ns[chosen],
                    "data": Spans(data, starts, sizes),
                },
            )
        ]
