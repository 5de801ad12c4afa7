"""Writes an anonymized copy of a capture: two passes over its files, one pcapng file."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import BinaryIO, NamedTuple

from dissector.blocks import ByteArray
from dissector.evidence.anonymizer import Anonymizer
from dissector.evidence.packets import Rewriting
from dissector.evidence.streams import TreatedStreams
from dissector.packet import rewriting
from dissector.packet.columns import PacketColumns
from dissector.packet.header_offsets import Headers
from dissector.sources.packet_blocks import PacketBlock, PacketWriter, Progress, packet_blocks
from dissector.sources.rings import Chain


class Anonymized(NamedTuple):
    """Counts of a run.

    packets: written.
    frames: anonymized.
    emptied: bytes of packets that are no segments.
    """

    packets: int
    frames: int
    emptied: int


def anonymize(
    chain: Chain,
    streams: TreatedStreams,
    anonymizer: Anonymizer,
    sink: BinaryIO,
    comments: Mapping[int, Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> Anonymized:
    """Write the packets of a capture as pcapng, made anonymous.

    Args:
        streams: anonymized by the anonymizer. comments: of packets, by number. progress: see
            packet_blocks.

    Raises:
        InputError: no file of the capture can be read. OSError: of the sink.
    """
    packets, writer = _Anonymizing(streams, anonymizer.rewriting), PacketWriter(sink)
    for block in packets.blocks(partial(packet_blocks, chain), progress):
        if comments is None:
            writer.whole(block)
            continue
        for row in range(block.rows):
            writer.packet(block, row, comments.get(block.first_packet + row, ()))
    writer.finish()
    return Anonymized(writer.packets, streams.treated, packets.emptied)


class _Anonymizing(Rewriting):
    """Copies anonymized stream bytes to packets, replaces addresses, and blanks other bytes."""

    emptied = 0

    def _treat_rest(self, block: PacketBlock) -> None:
        rewriting.blank_behind(
            block.data, block.packets, block.segments, block.segment_count, block.first_packet
        )

    def _readdress(self, data: ByteArray, packets: PacketColumns, headers: Headers) -> None:
        rewriting.readdress(data, packets, headers, self._state)
        self.emptied += rewriting.blank(data, packets, headers)
