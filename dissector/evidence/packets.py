"""The second pass: rewrites every packet with its stream's new bytes and other addresses."""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from dissector.blocks import ByteArray
from dissector.capture.reader import CaptureReader
from dissector.evidence.ip_fragments import TracedFragments
from dissector.evidence.streams import TreatedStreams
from dissector.packet import header_offsets, rewriting
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.fragments import Fragments, Place, fragment_at
from dissector.packet.header_offsets import Headers, PacketsLeft
from dissector.packet.link import RAW
from dissector.packet.reasons import OTHER_TRANSPORT, USED
from dissector.packet.walk import NO_END, new_walk
from dissector.sources.packet_blocks import PacketBlock, Progress

_HEADERS: Final = 1 << 16
_TCP_KEPT: Final = 14  # bytes kept of an unreadable header: up to its length and flags


# Reads the packets again. Parameters: progress callback, reassembler of fragments.
Blocks = Callable[[Progress | None, Fragments | None], Iterator[PacketBlock]]


class Rewriting:
    """Copies a stream's new bytes to its packets, in place in their block. Subclasses define the
    treatment of headers (`_readdress`) and of bytes outside segments (`_treat_rest`).

    Args:
        state: of the rewriting kernels.
    """

    # Fills fragments whose packet was never complete.
    lost_byte = 0

    def __init__(self, streams: TreatedStreams, state: rewriting.Rewriting) -> None:
        self._streams = streams
        self._state = state
        self._walk = new_walk()
        self._headers = Headers.new(_HEADERS + header_offsets.HEADERS_OF_PACKET)
        self._pieces: dict[int, bytes] = {}

    def blocks(self, read: Blocks, progress: Progress | None = None) -> Iterator[PacketBlock]:
        """Read the packets again; yield each block, changed in place."""
        if self._streams.has_fragments:
            self._put_pieces(read)
        for block in read(progress, None):
            self._rewrite(block, self._streams.positions(block.segments, block.segment_count))
            yield block

    # -- one block

    def _rewrite(self, block: PacketBlock, positions: rewriting.SegmentPositions) -> None:
        """Rewrite the packets of a block. positions: stream positions of its segments."""
        all_headers = self._find_headers(block)
        rewriting.rewrite_segments(
            block.data,
            block.segments,
            block.segment_count,
            positions,
            self._streams.runs,
            self._state,
        )
        self._treat_rest(block)
        for headers in all_headers:
            self._refine(block, headers)
            self._readdress(block.data, block.packets, headers)

    def _treat_rest(self, block: PacketBlock) -> None:
        """Treat bytes outside segments, before headers change."""
        raise NotImplementedError

    def _readdress(self, data: ByteArray, packets: PacketColumns, headers: Headers) -> None:
        """Replace addresses in headers of packets, reassembled ones included."""

    def _find_headers(self, block: PacketBlock) -> list[Headers]:
        """Return the headers of a block's packets, in parts."""
        left = PacketsLeft.all_of(block.rows)
        link_types = block.reader.interfaces.columns.link_type
        all_headers = []
        while left.row[0] < block.rows:
            count = header_offsets.find_headers(
                block.data, block.packets, left, link_types, self._walk, self._headers
            )
            all_headers.append(self._headers.first(count))
        return all_headers

    def _refine(self, block: PacketBlock, headers: Headers) -> None:
        """Mark segments that the packet reader rejected as REST; fill fragments with the new bytes
        of their packet."""
        is_odd = (headers.kind == header_offsets.SEGMENT) & (block.reasons[headers.row] != USED)
        headers.kind[is_odd] = header_offsets.REST
        headers.offset[is_odd] += _TCP_KEPT
        for number in np.flatnonzero(headers.kind == header_offsets.PIECE).tolist():
            self._fill_piece(block, int(headers.row[number]), int(headers.offset[number]))

    def _fill_piece(self, block: PacketBlock, packet: int, at: int) -> None:
        data, start = block.data, int(block.packets.offset[packet])
        end = start + int(block.packets.captured_bytes[packet])
        piece = fragment_at(data.data, Place(at, end, NO_END, 0, 0, packet, 0))
        first = at + 8 if isinstance(piece, int) else piece.first
        lost = data[first:end]
        lost[lost != 0] = self.lost_byte
        content = self._pieces.get(block.first_packet + packet, b"")
        data[first : first + len(content)] = np.frombuffer(content, np.uint8)

    # -- fragmented packets

    def _put_pieces(self, read: Blocks) -> None:
        """Store the new payloads of fragments by packet number."""
        kept = TracedFragments()
        for block in read(None, kept):
            assembled = block.assembled.copy()
            if kept.wholes:
                self._rewrite(*self._rebuilt(assembled, block, kept))
            self._pieces.update(kept.contents(assembled))

    def _rebuilt(
        self, assembled: ByteArray, block: PacketBlock, kept: TracedFragments
    ) -> tuple[PacketBlock, rewriting.SegmentPositions]:
        """Return a block's reassembled packets as a block of their own, and their segments' stream
        positions. Fragments nested in them are not filled: they get their bytes from the packet
        that they are a part of."""
        rows = len(kept.wholes)
        packets = PacketColumns.new(rows)
        starts = np.array([whole.start for whole in kept.wholes], np.int64)
        sizes = np.array([whole.end for whole in kept.wholes], np.int64) - starts
        packets.offset[:], packets.captured_bytes[:], packets.wire_bytes[:] = starts, sizes, sizes
        packets.ts_ns[:] = packets.interface[:] = 0
        reader = CaptureReader(block_rows=1)
        reader.interfaces.add(RAW, 0)
        is_rebuilt = np.flatnonzero(block.segments.source[: block.segment_count] == 1)
        segments = SegmentColumns(np.ascontiguousarray(block.segments.matrix[:, is_rebuilt]))
        count = len(segments.packet)
        positions = self._streams.positions(segments, count)
        # An empty segment's offset is its packet's end, which is the next packet's start.
        of_rows = np.searchsorted(starts, segments.offset - 1, "right") - 1
        segments.source[:], segments.packet[:] = 0, of_rows - rows
        reasons = np.full(rows, OTHER_TRANSPORT, np.int64)
        reasons[of_rows] = USED
        whole = PacketBlock(
            assembled, reader, packets, rows, -rows, segments, count, reasons, assembled
        )
        return whole, positions
