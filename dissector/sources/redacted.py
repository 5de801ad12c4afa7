"""A capture file with its secrets hidden at equal length, sums made right.

The file is dissected first: streams, frames, what belongs to no frame. Then every packet is gone
through once more and gets the bytes that its place in the stream has now, so that a secret goes
also where it is sent again, lies across packets, in a tunnel or in fragments. What differs from the
stream, or is no segment at all, is searched by itself. A checksum of TCP that was right is right
again.
"""

import dataclasses
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array, TableBlock
from dissector.capture.reader import CaptureReader
from dissector.codecs.redaction import behind_hole, masked, secrets
from dissector.codecs.secret_keys import Span
from dissector.dissection import Dissection, Options
from dissector.dissection.conversation import ALL, TABLE
from dissector.endpoints import FlowKey
from dissector.packet.columns import SegmentColumns
from dissector.packet.fragments import Fragments, Place, fragment_at
from dissector.packet.reader import PacketReader
from dissector.packet.reasons import FRAGMENT, USED
from dissector.protocols import spec_of
from dissector.schemas.rows import arrow_batch
from dissector.stream_secrets import Frame, StreamSecrets, frame_spans, is_searched

_SUM_AT: Final = 16  # in a TCP header
_LINK_HEAD: Final = 14
_PROBE_BYTES: Final = 64
_HALF: Final = 1 << 31
_WHOLE: Final = 1 << 32

RAW_BYTES: Final = "raw bytes, secrets too, which --redact hides"


class FrameRow(NamedTuple):
    """A frame. direction, packet: to find its stream."""

    direction: str
    packet: int
    frame: Frame


class Run(NamedTuple):
    """Bytes of a stream without a hole: from offset start to end, as captured, and hidden."""

    start: int
    end: int
    before: ByteArray
    after: ByteArray


Origins = list[tuple[int, int, int]]


class Segment(NamedTuple):
    """A segment. offset: of its payload, in the file or where fragments are put together; origins:
    then (place there, place in the file, length) of its bytes, else None; is_whole: nothing of it
    was cut."""

    packet: int
    flow: FlowKey
    sequence: int
    offset: int
    header: bytes
    payload: bytes
    origins: Origins | None
    is_whole: bool

    def is_right(self) -> bool:
        """Whether the checksum is known to be right."""
        if not self.is_whole:
            return False
        whole = self.header + self.payload
        high, low, _, other_high, other_low, _ = self.flow
        total = len(whole) + 6
        for half in (high, low, other_high, other_low):
            total += sum((half >> shift) & 0xFFFF for shift in (0, 16, 32, 48))
        total += int(np.frombuffer(whole + b"\0" * (len(whole) % 2), ">u2").sum())
        return total % 0xFFFF == 0


class Stream:
    """One direction of a connection: its pieces (offset, bytes, packet), then its runs.
    is_searched: what is hidden of it is what is found, else all that lies in no frame."""

    def __init__(self) -> None:
        self.pieces: list[tuple[int, bytes, int]] = []
        self.runs: list[Run] = []
        self.is_searched = True

    def hide(self, frames: list[Frame], protocol: str, is_midstream: bool) -> None:
        """Make the runs, of a connection whose protocol is this."""
        self.is_searched = is_searched(protocol)
        search = StreamSecrets()
        for offset, data, _ in self.pieces:
            search.add(offset, data)
        framed = ((frame.start, frame.end) for frame in frames)
        found = search.finish(protocol, is_midstream, framed)
        frames = sorted(frames, key=lambda frame: frame.start)
        ends = np.maximum.accumulate([frame.end for frame in frames] or [0])
        for start, before in self._joined():
            first = bisect_right(found, start, key=lambda span: span[1])
            spans = found[first : bisect_left(found, (start + len(before), 0))]
            inside: list[tuple[int, int, Frame]] = []
            for frame in frames[int(np.searchsorted(ends, start, "right")) :]:
                low, high = max(frame.start - start, 0), min(frame.end - start, len(before))
                if frame.start >= start + len(before):
                    break
                if low < high:
                    inside.append((low, high, frame))
                    spans += frame_spans(frame, start + low, before[low:high])
            after = bytearray(masked(before, list(_within(start, spans, len(before)))))
            for low, high, frame in inside:
                after[low:high] = _mended(frame, before[low:high], bytes(after[low:high]))
            arrays = (np.frombuffer(bytearray(each), np.uint8) for each in (before, after))
            self.runs.append(Run(start, start + len(before), *arrays))

    def _joined(self) -> list[tuple[int, bytes]]:
        """Offset and bytes of what follows on each other."""
        parts: list[tuple[int, list[bytes]]] = []
        end = None
        for offset, data, _ in self.pieces:
            if offset == end:
                parts[-1][1].append(data)
            else:
                parts.append((offset, [data]))
            end = offset + len(data)
        return [(start, b"".join(pieces)) for start, pieces in parts]

    def runs_in(self, start: int, end: int) -> Iterator[Run]:
        """The runs that have a part of some offsets."""
        first = bisect_right(self.runs, start, key=lambda run: run.end)
        for run in self.runs[first:]:
            if run.start >= end:
                break
            yield run


def _within(start: int, spans: Iterable[Span], size: int) -> Iterator[Span]:
    for low, high in spans:
        if low - start < size and high > start:
            yield max(low - start, 0), min(high - start, size)


def _mended(frame: Frame, before: bytes, after: bytes) -> bytes:
    """What is hidden of a frame with sums as right as before; it begins with the frame or is hidden
    whole."""
    spec = spec_of(frame.protocol)
    is_rest = after == b"*" * len(after)
    return after if spec is None or is_rest or before == after else spec.mended(before, after)


class _Streams:
    """What a dissection says of the streams of a file."""

    def __init__(self, data: ByteArray, options: Options) -> None:
        self.streams: dict[tuple[int, int], Stream] = {}
        self._frames: dict[int, list[FrameRow]] = {}
        self._protocols: dict[int, tuple[str, str]] = {}  # and how the connection started
        dissection = Dissection(options)
        dissection.start_file()
        self._handle(dissection.feed(data, 0, len(data), True)[1])
        dissection.end_file()
        self._handle(dissection.finish())
        for connection, side in self.streams:
            frames = self._of_side(connection, side)
            protocol, started = self._protocols.get(connection, ("unknown", "midstream"))
            self.streams[connection, side].hide(frames, protocol, started == "midstream")

    def _handle(self, blocks: list[TableBlock]) -> None:
        for block in blocks:
            if block.table == TABLE:
                self._handle_bytes(block.columns)
            elif block.table == "frames":
                self._handle_frames(block)
            elif block.table == "connections":
                rows: Any = arrow_batch(block)
                names = ("connection_id", "protocol", "started")
                columns = (rows.column(name).to_pylist() for name in names)
                for connection, protocol, started in zip(*columns, strict=True):
                    self._protocols[connection] = protocol, started

    def _handle_bytes(self, columns: Any) -> None:
        names = ("connection", "side", "stream_offset", "packet")
        data = columns["data"]
        spans = zip(data.starts.tolist(), data.lengths.tolist(), strict=True)
        rows = zip(*(columns[name].tolist() for name in names), strict=True)
        for (connection, side, offset, packet), (start, size) in zip(rows, spans, strict=True):
            if size > 0:
                stream = self.streams.setdefault((connection, side), Stream())
                held = data.data[start : start + size].tobytes()
                stream.pieces.append((offset, held, packet))

    def _handle_frames(self, block: TableBlock) -> None:
        rows: Any = arrow_batch(block)
        names = (
            *("connection_id", "direction", "first_packet", "stream_offset", "frame_bytes"),
            *("protocol", "compression", "command"),
        )
        for connection, direction, packet, start, size, protocol, codec, command in zip(
            *(rows.column(name).to_pylist() for name in names), strict=True
        ):
            if command is not None:
                spec = spec_of(protocol)
                is_packed = spec is not None and spec.is_packed_text(codec, command)
                frame = Frame(start, start + size, protocol, is_packed)
                self._frames.setdefault(connection, []).append(FrameRow(direction, packet, frame))

    def _of_side(self, connection: int, side: int) -> list[Frame]:
        """The frames of a side: those of the direction whose packets are the side's."""
        packets = {packet for _, _, packet in self.streams[connection, side].pieces}
        frames = self._frames.get(connection, [])
        direction = next((each.direction for each in frames if each.packet in packets), None)
        return [each.frame for each in frames if each.direction == direction]


class _KeptFragments(Fragments):
    """Remembers where the bytes of rebuilt packets came from.

    origins: place in `side`, place in the file, length; lost: places and lengths of those that
    became no packet.
    """

    def __init__(self, data: ByteArray) -> None:
        super().__init__()
        self._data = data
        self._pieces: dict[Any, list[tuple[int, int, int]]] = {}
        self.origins: list[tuple[int, int, int]] = []

    @property
    def lost(self) -> list[tuple[int, int]]:
        """Places and lengths of the fragments of packets that were never whole."""
        return [piece[1:] for pieces in self._pieces.values() for piece in pieces]

    def add(self, data: memoryview, place: Place) -> int:
        """As it is, and note the place of the fragment."""
        piece = fragment_at(data, place)
        if not isinstance(piece, int) and piece.known and place.source == 0:
            span = (piece.start, piece.first, piece.known)
            self._pieces.setdefault(piece.key, []).append(span)
        status = super().add(data, place)
        if status < 0 and not isinstance(piece, int):
            at = self.rebuilt[0]
            first_byte = int(self.side[at])
            head = (first_byte & 15) * 4 if first_byte >> 4 == 4 else piece.head_bytes
            for start, first, size in self._pieces.pop(piece.key, []):
                self.origins.append((at + head + start, first, size))
        return status


class _Packets:
    """The packets of a file, to be changed in place.

    segments: of all packets, in their order; changed: bytes that were hidden.
    """

    def __init__(self, data: ByteArray) -> None:
        self._data = data
        self.changed = 0
        self._fragments = _KeptFragments(data)
        reader = CaptureReader()
        reader.start_file()
        self.segments: list[Segment] = []
        self._rows: list[tuple[int, int, int, int]] = []  # offset, size, number, reason
        packets = PacketReader(fragments=self._fragments)
        position, is_more = 0, True
        while is_more:
            scan = reader.feed(data, position, len(data), True)
            position, is_more = scan.consumed, scan.is_more
            if not scan.rows:
                continue
            links = reader.interfaces.columns.link_type
            self._fragments.origins = []
            found, count = packets.read(data, reader.packets, scan.rows, scan.first_packet, links)
            self._keep(reader, found, count, scan.rows, scan.first_packet, packets)

    def _keep(
        self, reader: CaptureReader, found: SegmentColumns, count: int, rows: int,
        first_packet: int, packets: PacketReader,
    ) -> None:  # fmt: skip
        """Note segments and packets of a block: the reader uses its columns again."""
        offsets, sizes = reader.packets.offset[:rows], reader.packets.captured_bytes[:rows]
        reasons = packets.reasons[:rows].tolist()
        for row, (offset, size) in enumerate(zip(offsets.tolist(), sizes.tolist(), strict=True)):
            self._rows.append((offset, size, first_packet + row, reasons[row]))
        names = ("packet", "source", "offset", "captured_bytes", "wire_bytes", "sequence", "flags")
        cells = [getattr(found, name)[:count].tolist() for name in (*names, *FlowKey._fields)]
        for packet, source, offset, size, wire, sequence, flags, *flow in zip(*cells, strict=True):
            data = packets.side if source else self._data
            start = offset - 4 * ((flags >> 12) & 15)
            header, payload = data[start:offset].tobytes(), data[offset : offset + size].tobytes()
            origins = list(self._fragments.origins) if source else None
            self.segments.append(
                Segment(
                    packet, FlowKey(*flow), sequence, offset, header, payload, origins, wire == size
                )
            )

    def write(self, segment: Segment, payload: bytes) -> None:
        """Put a payload in the place of a segment's. The sum of TCP moves with it if it was right;
        then sums around it (UDP of a tunnel, GRE) stay what they are."""
        old, new = (
            np.frombuffer(each, np.uint8).astype(np.int64) for each in (segment.payload, payload)
        )
        changed = np.flatnonzero(old != new)
        if not len(changed):
            return
        self.changed += len(changed)
        self._put(segment.origins, segment.offset + changed, new[changed])
        if not segment.is_right():
            return
        weights = np.where((changed + len(segment.header)) & 1, 1, 256)
        delta = int(((new - old)[changed] * weights).sum())
        stored = int.from_bytes(segment.header[_SUM_AT : _SUM_AT + 2], "big")
        moved = 0xFFFF - ((0xFFFF - stored + delta - 1) % 0xFFFF + 1)
        at = segment.offset - len(segment.header) + _SUM_AT
        self._put(segment.origins, np.array([at, at + 1]), np.array([moved >> 8, moved & 0xFF]))

    def _put(self, origins: Origins | None, positions: Int64Array, values: Int64Array) -> None:
        for position, value in zip(positions.tolist(), values.tolist(), strict=True):
            for target in _origin(origins, position):
                self._data[target] = value

    def hide_the_rest(self) -> None:
        """Packets without a segment: fragments of nothing as a whole, others by what is found."""
        for first, size in self._fragments.lost:
            self._data[first : first + size] = ord("*")
        used = {segment.packet for segment in self.segments}
        for offset, size, number, reason in self._rows:
            if number in used or reason in (USED, FRAGMENT):
                continue
            start = offset + min(_LINK_HEAD, size)
            whole = self._data[start : offset + size].tobytes()
            for low, high in secrets(whole):
                self._data[start + low : start + high] = ord("*")
                self.changed += high - low


def _origin(origins: Origins | None, position: int) -> Iterator[int]:
    """The places in the file of a byte of a segment."""
    if origins is None:
        yield position
        return
    for start, first, size in origins:
        if start <= position < start + size:
            yield first + position - start


def hidden_sentence(changed: int) -> str:
    """What is said of a file that was redacted."""
    return f"{changed:,} bytes of secrets hidden" if changed else "no secret was found in it"


def redact_capture(data: bytearray, options: Options) -> int:
    """Hide the secrets of a capture file in place; returns how many bytes changed.

    Takes a few times the file's size of memory.

    Args:
        options: how it is dissected.
    """
    view = np.frombuffer(data, np.uint8)
    full = dataclasses.replace(options, follow_connection=ALL, want_detail="none", properties=False)
    streams = _Streams(view, full).streams
    packets = _Packets(view)
    by_flow = _streams_by_flow(streams.values(), packets.segments)
    for segment in packets.segments:
        if segment.payload:
            packets.write(segment, _hidden_payload(segment, by_flow.get(segment.flow, [])))
    packets.hide_the_rest()
    return packets.changed


def _streams_by_flow(
    streams: Iterable[Stream], segments: Iterable[Segment]
) -> dict[FlowKey, list[tuple[int, Stream]]]:
    """By flow, its streams, and the sequence number of their offset 0."""
    by_packet: dict[int, list[Segment]] = {}
    for segment in segments:
        by_packet.setdefault(segment.packet, []).append(segment)
    found: dict[FlowKey, list[tuple[int, Stream]]] = {}
    for stream in streams:
        for offset, data, packet in stream.pieces:
            found_at = _find(by_packet.get(packet, []), offset, data)
            if found_at is not None:
                found.setdefault(found_at[0], []).append((found_at[1], stream))
                break
    return found


def _find(segments: list[Segment], offset: int, data: bytes) -> tuple[FlowKey, int] | None:
    for segment in segments:
        at = segment.payload.find(data[:_PROBE_BYTES])
        if at >= 0:
            return segment.flow, (segment.sequence + at - offset) % _WHOLE
    return None


def _hidden_payload(segment: Segment, streams: list[tuple[int, Stream]]) -> bytes:
    """A segment's payload as its stream has it now. Where it says other things it is searched
    itself; of frames that are read nothing of that stays, as nothing tells what it belongs to."""
    payload = np.frombuffer(bytearray(segment.payload), np.uint8)
    known = np.zeros(len(payload), bool)
    before = payload.copy()
    for base, stream in streams:
        first = (segment.sequence - base + _HALF) % _WHOLE - _HALF
        for run in stream.runs_in(first, first + len(payload)):
            low, high = max(first, run.start), min(first + len(payload), run.end)
            mine = slice(low - first, high - first)
            theirs = slice(low - run.start, high - run.start)
            old, new = run.before[theirs], run.after[theirs]
            payload[mine] = np.where(old != new, new, payload[mine])
            known[mine] |= old == before[mine]
    if not known.all():
        if not all(stream.is_searched for _, stream in streams):
            payload[~known] = ord("*")
        else:
            rest = np.arange(len(payload)) < behind_hole(segment.payload)
            payload[rest & ~known] = ord("*")
            for low, high in secrets(segment.payload):
                payload[low:high] = ord("*")
    return payload.tobytes()
