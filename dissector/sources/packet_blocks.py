"""The packets of a chain of files, block by block, with their TCP segments: for second passes."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.capture.reader import CaptureReader
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.fragments import Fragments
from dissector.packet.reader import PacketReader
from dissector.sources.files import Buffer, ChainReader, FileEnd, FileStart
from dissector.sources.rings import Chain

Progress = Callable[[int], None]


class PacketBlock(NamedTuple):
    """Packets of a buffer: their bytes, columns and segments, valid until the next block.

    data: holds the packets.
    rows: how many.
    first_packet: number of the first in the capture.
    segments: segment_count rows.
    reasons: as PacketReader has them.
    assembled: rebuilt bytes.
    """

    data: ByteArray
    reader: CaptureReader
    rows: int
    first_packet: int
    segments: SegmentColumns
    segment_count: int
    reasons: Int64Array
    assembled: ByteArray

    @property
    def packets(self) -> PacketColumns:
        """Columns of the packets."""
        return self.reader.packets


def packet_blocks(
    chain: Chain, progress: Progress | None = None, fragments: Fragments | None = None
) -> Iterator[PacketBlock]:
    """Read the files of a chain as one capture.

    Args:
        progress: called with the stored bytes read so far. fragments: see PacketReader.
    """
    reader, decoder = CaptureReader(), PacketReader(fragments=fragments)
    with ChainReader(chain.files) as source:
        for event in source:
            if isinstance(event, FileStart):
                reader.start_file()
            elif isinstance(event, FileEnd):
                reader.finish_file()
                decoder.finish_file()
            else:
                yield from _blocks_of(event, reader, decoder)
                if progress is not None:
                    progress(source.stored_bytes)


def blocks_of_bytes(
    data: ByteArray, progress: Progress | None = None, fragments: Fragments | None = None
) -> Iterator[PacketBlock]:
    """The same of one file in memory; blocks are in it, so that it can be changed in place."""
    reader = CaptureReader()
    reader.start_file()
    buffer = Buffer(data, 0, len(data), True)
    yield from _blocks_of(buffer, reader, PacketReader(fragments=fragments))


def _blocks_of(
    buffer: Buffer, reader: CaptureReader, decoder: PacketReader
) -> Iterator[PacketBlock]:
    position, is_more = buffer.start, True
    while is_more:
        scan = reader.feed(buffer.data, position, buffer.end, buffer.is_last)
        position, is_more = scan.consumed, scan.is_more
        if scan.rows:
            link_types = reader.interfaces.columns.link_type
            segments, count = decoder.read(
                buffer.data, reader.packets, scan.rows, scan.first_packet, link_types
            )
            reasons = decoder.reasons[: scan.rows]
            yield PacketBlock(
                buffer.data, reader, scan.rows, scan.first_packet, segments, count, reasons,
                decoder.assembled,
            )  # fmt: skip
    buffer.consumed = position
    buffer.is_enough = reader.is_over
