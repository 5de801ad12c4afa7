"""The second pass: every packet once more, with other addresses and what its stream holds now."""

import dataclasses
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import BinaryIO, Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.capture.interfaces import Interfaces
from dissector.capture.write import interface_block, packet_block, section_block, statistics_block
from dissector.codecs.siphash import SipHashKey
from dissector.endpoints import FlowKey
from dissector.evidence.anonymizer import Anonymizer
from dissector.evidence.ip_fragments import TracedFragments
from dissector.evidence.streams import TreatedDirection, TreatedStreams, all_packets
from dissector.limits import MAX_RECORD_BYTES, NULL
from dissector.packet import header_offsets, rewriting
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.fragments import Fragments, Place, fragment_at
from dissector.packet.header_offsets import Headers, PacketsLeft
from dissector.packet.link import RAW
from dissector.packet.reasons import USED
from dissector.packet.tcp import SYN
from dissector.packet.walk import NO_END, new_walk
from dissector.sources.packet_blocks import PacketBlock, Progress, packet_blocks
from dissector.sources.rings import Chain
from dissector.stream.sequence import SEQUENCE_MASK

_HEADERS: Final = 1 << 16
_OUT_BYTES: Final = max(1 << 22, MAX_RECORD_BYTES + 64)
_TCP_KEPT: Final = 14  # of a header that cannot be read: up to its length and flags
_APPLICATION: Final = "pulsar-dissector"


class _FlowStream(NamedTuple):
    """A stream of a flow.

    base: sequence number of its offset 0.
    first, last: packets of it.
    """

    stream: int
    base: int
    first: int
    last: int
    packets: Int64Array


class Survey:
    """Of which flow each stream is, found by its first bytes."""

    def __init__(self, streams: TreatedStreams) -> None:
        self._directions: list[TreatedDirection] = list(streams.directions.values())
        spans: dict[int, list[Int64Array]] = {}
        for (connection, _), treated in streams.directions.items():
            spans.setdefault(connection, []).extend(treated.packets)
        self._spans = [
            (min(int(packets.min()) for packets in spans[key[0]]),
             max(int(packets.max()) for packets in spans[key[0]]))
            for key in streams.directions
        ]  # fmt: skip
        probes: dict[int, list[int]] = {}
        for number, treated in enumerate(self._directions):
            probes.setdefault(treated.probe[2], []).append(number)
        self._probes = probes
        self._probed_packets = np.array(sorted(probes), np.int64)
        self.by_flow: dict[FlowKey, list[_FlowStream]] = {}

    def add(self, segments: SegmentColumns, count: int, sources: Sequence[ByteArray]) -> None:
        """Look at the segments of a block."""
        packets = segments.packet[:count]
        for row in np.flatnonzero(np.isin(packets, self._probed_packets)).tolist():
            start, size = int(segments.offset[row]), int(segments.captured_bytes[row])
            payload = sources[int(segments.source[row])][start : start + size].tobytes()
            for number in self._probes[int(packets[row])]:
                offset, head, _ = self._directions[number].probe
                at = payload.find(head)
                if at < 0:
                    continue
                flow = FlowKey(*(int(getattr(segments, name)[row]) for name in FlowKey._fields))
                sequence = int(segments.sequence[row]) + ((int(segments.flags[row]) & SYN) >> 1)
                base = (sequence + at - offset) & SEQUENCE_MASK
                stream_packets = all_packets([self._directions[number]])
                stream = _FlowStream(number, base, *self._spans[number], stream_packets)
                self.by_flow.setdefault(flow, []).append(stream)

    def runs(self, before: ByteArray, after: ByteArray) -> rewriting.Runs:
        """What the streams hold now."""
        counts = np.array([len(treated.runs) for treated in self._directions], np.int64)
        ordered = [sorted(treated.runs) for treated in self._directions]
        rows = np.array([run for runs in ordered for run in runs], np.int64).reshape(-1, 3)
        last = np.cumsum(counts)
        return rewriting.Runs(
            first=last - counts,
            last=last,
            starts=np.ascontiguousarray(rows[:, 0]),
            ends=np.ascontiguousarray(rows[:, 1]),
            positions=np.ascontiguousarray(rows[:, 2]),
            near=np.array([treated.probe[0] for treated in self._directions], np.int64),
            before=before,
            after=after,
        )

    def streams_of(self, segments: SegmentColumns, count: int) -> rewriting.SegmentStreams:
        """The stream of each segment, -1 for none, and its base."""
        of = rewriting.SegmentStreams.new(max(count, 1), -1)
        if not count:
            return of
        columns = np.stack([getattr(segments, name)[:count] for name in FlowKey._fields], axis=1)
        packed = np.ascontiguousarray(columns).view(f"V{8 * columns.shape[1]}").ravel()
        _, firsts, numbers = np.unique(packed, return_index=True, return_inverse=True)
        packets = segments.packet[:count]
        for number, first in enumerate(firsts.tolist()):
            streams = self.by_flow.get(FlowKey(*columns[first].tolist()))
            if streams is None:
                continue
            rows = np.flatnonzero(numbers == number)
            for stream in sorted(streams, key=lambda one: one.first):
                stream_rows = rows
                if stream is not streams[0] or len(streams) > 1:
                    stream_rows = rows[self._is_of(stream, packets[rows], of.stream[rows], streams)]
                of.stream[stream_rows], of.base[stream_rows] = stream.stream, stream.base
        return of

    @staticmethod
    def _is_of(
        stream: _FlowStream, packets: Int64Array, taken: Int64Array, streams: list[_FlowStream]
    ) -> np.ndarray:
        """Which packets belong to one of several streams of a flow: those that brought its bytes,
        and of packets of no stream those behind its first one."""
        own = np.isin(packets, stream.packets)
        others = np.isin(packets, np.concatenate([one.packets for one in streams]))
        return np.asarray(own | (~others & ((packets >= stream.first) | (taken < 0))))


@dataclasses.dataclass
class Rewritten:
    """What was written: packets, bytes emptied that belong to no segment."""

    packets: int = 0
    emptied: int = 0


# Reads the packets once more. Takes what is told how far it is, and what puts fragments together.
Blocks = Callable[[Progress | None, Fragments | None], Iterator[PacketBlock]]


class Rewriting:
    """Gives each packet what its stream holds now, in the block that holds it: for all that writes
    packets with other bytes. What becomes of headers, and of what is in no segment, is for those
    that derive from it: `_learn`, `_treat_rest`, `_readdress`.

    Args:
        names, noise: keys. fill: see `packet.rewriting`.
    """

    # What is left of a fragment whose packet was never whole.
    lost_byte = 0

    def __init__(
        self, streams: TreatedStreams, names: SipHashKey, noise: SipHashKey, fill: int = NULL
    ) -> None:
        self._streams = streams
        self._state = rewriting.new_rewriting(
            np.array(names, np.int64), np.array(noise, np.int64), fill
        )
        self._walk = new_walk()
        self._headers = Headers.new(_HEADERS + header_offsets.HEADERS_OF_PACKET)
        self._pieces: dict[int, list[tuple[int, bytes]]] = {}
        self._runs: rewriting.Runs

    def blocks(self, read: Blocks, progress: Progress | None = None) -> Iterator[PacketBlock]:
        """Read the packets again: each block, changed in place."""
        survey = Survey(self._streams)
        before, after = (
            _mapped(file.fileno()) for file in (self._streams.before, self._streams.after)
        )
        for block in read(None, None):
            survey.add(block.segments, block.segment_count, (block.data, block.assembled))
        self._runs = survey.runs(before, after)
        if self._streams.has_fragments:
            self._put_pieces(read, survey)
        for block in read(progress, None):
            self._rewrite(block, survey)
            yield block

    # -- one block

    def _rewrite(self, block: PacketBlock, survey: Survey) -> None:
        data, packets = block.data, block.packets
        of = survey.streams_of(block.segments, block.segment_count)
        all_headers = self._find_headers(
            data, packets, block.rows, block.reader.interfaces.columns.link_type
        )
        for headers in all_headers:
            self._learn(data, headers)
        rewriting.rewrite_segments(
            data, block.segments, block.segment_count, of, self._runs, self._state
        )
        self._treat_rest(block)
        for headers in all_headers:
            self._refine(block, headers)
            self._readdress(data, packets, headers)

    def _learn(self, data: ByteArray, headers: Headers) -> None:
        """See headers before anything is rewritten."""

    def _treat_rest(self, block: PacketBlock) -> None:
        """Treat what lies in no segment, before headers change."""
        raise NotImplementedError

    def _readdress(self, data: ByteArray, packets: PacketColumns, headers: Headers) -> None:
        """Give headers of packets, some of them put together of pieces, other addresses."""

    def _find_headers(
        self, data: ByteArray, packets: PacketColumns, rows: int, link_types: Int64Array
    ) -> list[Headers]:
        """The headers of some packets, in parts."""
        left = PacketsLeft.all_of(rows)
        all_headers = []
        while left.row[0] < rows:
            count = header_offsets.find_headers(
                data, packets, left, link_types, self._walk, self._headers
            )
            all_headers.append(self._headers.first(count))
        return all_headers

    def _refine(self, block: PacketBlock, headers: Headers) -> None:
        """What the walk took for a segment, and the reader of packets did not, goes; of fragments
        what their packet holds now."""
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
        for offset, content in self._pieces.get(block.first_packet + packet, ()):
            data[start + offset : start + offset + len(content)] = np.frombuffer(content, np.uint8)

    # -- packets in pieces

    def _put_pieces(self, read: Blocks, survey: Survey) -> None:
        """What packets in pieces hold now, by the packets that brought the pieces."""
        kept = TracedFragments()
        for block in read(None, kept):
            kept.locate(block.packets.offset, block.first_packet)
            assembled = block.assembled.copy()
            links = np.array([RAW], np.int64)
            rows = PacketColumns.new(len(kept.all_rebuilt))
            for row, (start, end) in enumerate(kept.all_rebuilt):
                rows.offset[row], rows.captured_bytes[row] = start, end - start
                rows.wire_bytes[row], rows.ts_ns[row], rows.interface[row] = end - start, 0, 0
            all_headers = self._find_headers(assembled, rows, len(kept.all_rebuilt), links)
            for headers in all_headers:
                self._learn(assembled, headers)
            of = survey.streams_of(block.segments, block.segment_count)
            self._rewrite_rebuilt(assembled, block, of)
            for headers in all_headers:
                headers.kind[headers.kind == header_offsets.PIECE] = header_offsets.REST
                self._readdress(assembled, rows, headers)
            kept.rewritten(assembled)
            for packet, offset, content in kept.contents():
                self._pieces.setdefault(packet, []).append((offset, content))

    def _rewrite_rebuilt(
        self, assembled: ByteArray, block: PacketBlock, of: rewriting.SegmentStreams
    ) -> None:
        segments = block.segments
        rows = np.flatnonzero(segments.source[: block.segment_count] == 1)
        if not len(rows):
            return
        # As if they lay in the input.
        rebuilt = SegmentColumns(np.ascontiguousarray(segments.matrix[:, rows]))
        rebuilt.source[:] = 0
        chosen = rewriting.SegmentStreams(np.ascontiguousarray(of.matrix[:, rows]))
        rewriting.rewrite_segments(assembled, rebuilt, len(rows), chosen, self._runs, self._state)


class Rewriter(Rewriting):
    """Writes the packets of a chain of files as pcapng, with other addresses.

    Args:
        comments: of packets, by their number.
    """

    def __init__(
        self, anonymizer: Anonymizer, streams: TreatedStreams, sink: BinaryIO,
        comments: Mapping[int, Sequence[str]] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(streams, anonymizer.names, anonymizer.noise)
        self._anonymizer = anonymizer
        self._sink = sink
        self._comments = comments
        self._out = np.zeros(_OUT_BYTES, np.uint8)
        self._interfaces = 0
        self.rewritten = Rewritten()

    def run(self, chain: Chain, progress: Progress | None = None) -> Rewritten:
        """Read the files again, and write."""
        self._sink.write(section_block("", _APPLICATION))
        interfaces = Interfaces()
        for block in self.blocks(partial(packet_blocks, chain), progress):
            self._write(block)
            interfaces = block.reader.interfaces
        self._describe(interfaces)
        for interface, count in sorted(interfaces.dropped().items()):
            self._sink.write(statistics_block(interface, count))
        return self.rewritten

    def _learn(self, data: ByteArray, headers: Headers) -> None:
        """Have an answer for every address in headers."""
        if self._anonymizer.keeping.addresses:
            return
        at = 0
        while at < len(headers.row):
            at = rewriting.add_addresses(data, headers, at, self._state)
            self._answer()
            if at < len(headers.row):
                rewriting.grow_addresses(self._state)

    def _answer(self) -> None:
        state = self._state
        rows = state.missing[: state.counts.missing[0]]
        table = state.addresses
        for version, size in ((4, 4), (6, 16)):
            version_rows = rows[table.version[rows] == version]
            whole = [
                b"".join(int(half[row]).to_bytes(8, "big", signed=True)
                         for half in (table.high, table.low))
                for row in version_rows
            ]  # fmt: skip
            for row, new in zip(
                version_rows, self._anonymizer.addresses([w[-size:] for w in whole]), strict=True
            ):
                longer = new.rjust(16, b"\0")
                table.new_high[row] = int.from_bytes(longer[:8], "big", signed=True)
                table.new_low[row] = int.from_bytes(longer[8:], "big", signed=True)
                table.is_known[row] = 1
        state.counts.missing[0] = 0

    def _treat_rest(self, block: PacketBlock) -> None:
        rewriting.blank_behind(
            block.data, block.packets, block.segments, block.segment_count, block.first_packet
        )

    def _readdress(self, data: ByteArray, packets: PacketColumns, headers: Headers) -> None:
        if not self._anonymizer.keeping.addresses:
            rewriting.readdress(data, packets, headers, self._state)
        self.rewritten.emptied += rewriting.blank(data, packets, headers)

    # -- out

    def _describe(self, interfaces: Interfaces) -> None:
        """Write what interfaces there are, that are not written yet."""
        while self._interfaces < interfaces.count:
            number = self._interfaces
            columns = interfaces.columns
            link_type, snaplen = int(columns.link_type[number]), int(columns.snaplen[number])
            self._sink.write(interface_block(link_type, max(snaplen, 0)))
            self._interfaces += 1

    def _write(self, block: PacketBlock) -> None:
        self._describe(block.reader.interfaces)
        self.rewritten.packets += block.rows
        if self._comments is not None:
            self._write_with_comments(block, self._comments)
            return
        numbers = np.arange(max(self._interfaces, 1), dtype=np.int64)
        left = PacketsLeft.all_of(block.rows)
        while left.row[0] < block.rows:
            size = rewriting.pack_packets(block.data, block.packets, left, numbers, self._out)
            self._sink.write(self._out[:size].data)

    def _write_with_comments(
        self, block: PacketBlock, comments: Mapping[int, Sequence[str]]
    ) -> None:
        packets = block.packets
        for row in range(block.rows):
            start = int(packets.offset[row])
            content = block.data[start : start + int(packets.captured_bytes[row])].tobytes()
            texts = comments.get(block.first_packet + row, ())
            self._sink.write(
                packet_block(
                    content, int(packets.ts_ns[row]), int(packets.wire_bytes[row]),
                    int(packets.interface[row]), texts,
                )
            )  # fmt: skip


def _mapped(descriptor: int) -> ByteArray:
    """A file as an array."""
    size = os.fstat(descriptor).st_size
    if not size:
        return np.zeros(1, np.uint8)
    # Copied when written, which nobody does: kernels take arrays that can be.
    return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY), np.uint8)
