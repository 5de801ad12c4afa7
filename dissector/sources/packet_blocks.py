"""Reads the packets of a chain of files block by block, for second passes, and writes them."""

from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.capture.interfaces import InterfaceTexts
from dissector.capture.reader import CaptureReader
from dissector.capture.write import interface_block, packet_block, section_block, statistics_block
from dissector.limits import MAX_RECORD_BYTES
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.fragments import Fragments
from dissector.packet.header_offsets import PacketsLeft
from dissector.packet.reader import PacketReader
from dissector.packet.rewriting import pack_packets
from dissector.sources.files import Buffer, ChainReader, FileEnd, FileStart
from dissector.sources.rings import Chain

Progress = Callable[[int], None]
_OUT_BYTES: Final = max(1 << 22, MAX_RECORD_BYTES + 64)


class PacketBlock(NamedTuple):
    """Packets of a buffer: their bytes, columns and segments, valid until the next block.

    data: the bytes of the packets.
    rows: number of packets.
    first_packet: packet number of row 0 in the capture.
    segments: segment_count rows.
    reasons: as in PacketReader.
    assembled: rebuilt bytes.
    """

    data: ByteArray
    reader: CaptureReader
    packets: PacketColumns
    rows: int
    first_packet: int
    segments: SegmentColumns
    segment_count: int
    reasons: Int64Array
    assembled: ByteArray


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
    """Read one file in memory; blocks are views of it, so that it can be changed in place."""
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
                buffer.data, reader, reader.packets, scan.rows, scan.first_packet, segments, count,
                reasons, decoder.assembled,
            )  # fmt: skip
    buffer.consumed = position
    buffer.is_enough = reader.is_over


class PacketWriter:
    """Writes packets of blocks as pcapng, by `packet` or by `whole`.

    Args:
        has_names, has_comments: keep those of interfaces.

    packets: number of packets written.
    """

    def __init__(
        self, sink: BinaryIO, *, has_names: bool = False, has_comments: bool = False
    ) -> None:
        self.packets = 0
        self._sink = sink
        self._has_names, self._has_comments = has_names, has_comments
        self._numbers: dict[int, int] = {}  # of interfaces here, by their number in the capture
        self._out: ByteArray = np.zeros(0, np.uint8)
        self._reader: CaptureReader | None = None  # of what is copied whole
        sink.write(section_block("", "pulsar-dissector"))

    def packet(self, block: PacketBlock, row: int, comments: Sequence[str]) -> None:
        """Write one packet, after its interface's description if it is the first."""
        packets = block.packets
        interface, start = int(packets.interface[row]), int(packets.offset[row])
        self._describe(block.reader, interface)
        content = block.data[start : start + int(packets.captured_bytes[row])].tobytes()
        ts_ns, wire_bytes = int(packets.ts_ns[row]), int(packets.wire_bytes[row])
        number = self._numbers[interface]
        self._sink.write(packet_block(content, ts_ns, wire_bytes, number, comments))
        self.packets += 1

    def whole(self, block: PacketBlock) -> None:
        """Write all packets of a block; each interface keeps its number."""
        self._reader = block.reader
        self._describe_all(block.reader)
        if not len(self._out):
            self._out = np.zeros(_OUT_BYTES, np.uint8)
        numbers = np.arange(max(len(self._numbers), 1), dtype=np.int64)
        left = PacketsLeft.all_of(block.rows)
        while left.row[0] < block.rows:
            size = pack_packets(block.data, block.packets, left, numbers, self._out)
            self._sink.write(self._out[:size].data)
        self.packets += block.rows

    def finish(self) -> None:
        """Write the remaining interface blocks after the packets of `whole`."""
        if self._reader is not None:
            self._describe_all(self._reader)
            for interface, count in sorted(self._reader.interfaces.dropped().items()):
                self._sink.write(statistics_block(interface, count))

    def _describe_all(self, reader: CaptureReader) -> None:
        for interface in range(reader.interfaces.count):
            self._describe(reader, interface)

    def _describe(self, reader: CaptureReader, interface: int) -> None:
        if interface in self._numbers:
            return
        self._numbers[interface] = len(self._numbers)
        columns = reader.interfaces.columns
        link_type, snaplen = int(columns.link_type[interface]), int(columns.snaplen[interface])
        texts = reader.interfaces.texts.get(interface, InterfaceTexts())
        name = texts.name if self._has_names else ""
        comment = texts.comment if self._has_comments else ""
        self._sink.write(interface_block(link_type, max(snaplen, 0), name, comment))
