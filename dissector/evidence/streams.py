"""The first pass: computes the new bytes of a capture's streams, in unnamed temporary files.

The input is a dissection of the capture. Two files have its streams, one after the other: as
captured, and as treated in place. `packets` then copies the treated bytes of their positions to the
packets. Rows of ranges, frames and packets are in such files, too, so that memory grows with the
capture only while they are sorted.
"""

import mmap
import os
from collections.abc import Callable, Iterable
from tempfile import TemporaryFile
from typing import IO, Any, BinaryIO, Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Coded, Int64Array, TableBlock
from dissector.dissection.conversation import AS_CAPTURED, PLACES, TABLE
from dissector.packet.columns import SegmentColumns
from dissector.packet.rewriting import Runs, SegmentPositions
from dissector.protocols import PROTOCOLS
from dissector.schemas.rows import arrow_batch

# Options of the dissection whose rows `TreatedStreams` reads.
ASKED: Final[dict[str, Any]] = {
    "follow_connection": AS_CAPTURED, "want_detail": "none", "properties": False, "redact": False,
}  # fmt: skip
_COMPLETE: Final = "complete"
_AT_ONCE: Final = 4096  # ranges copied at a time
_HALF: Final = 1 << 31
# Bits of a frame's kind: whole, compressed, command known.
_WHOLE: Final = 1
_PACKED: Final = 2
_KNOWN: Final = 4


class Frames(NamedTuple):
    """Frames of a stream by rising offset: offsets, announced sizes; whether a frame is whole, its
    body is compressed, its command is known."""

    starts: Int64Array
    sizes: Int64Array
    whole: np.ndarray
    packed: np.ndarray
    known: np.ndarray

    def chosen(self, rows: Any) -> "Frames":
        """Return the frames of some rows. rows: an index, mask or slice."""
        return Frames(*(column[rows] for column in self))

    def within(self, start: int, end: int) -> "Frames":
        """Return the frames that begin in a range of the stream."""
        return self.chosen(slice(*np.searchsorted(self.starts, (start, end)).tolist()))


class Stream(NamedTuple):
    """One direction of a connection.

    protocol: of the connection. is_midstream: its start was not captured. runs: offsets, and bytes
    without a gap, which are changed in place.
    """

    protocol: str
    is_midstream: bool
    runs: list[tuple[int, ByteArray]]
    frames: Frames


class _Rows:
    """Rows of int64 numbers in a file. width: numbers of a row."""

    def __init__(self, file: IO[bytes], width: int) -> None:
        self._file = file
        self._width = width

    def add(self, *columns: Int64Array) -> None:
        """Append rows, given by column."""
        self._file.write(np.stack(columns, axis=1).astype(np.int64).data)

    def columns(self) -> Int64Array:
        """Return all rows, int64[width, rows]."""
        return mapped(self._file).view(np.int64).reshape(-1, self._width).T


class TreatedStreams:
    """All streams of a capture, treated.

    Args:
        treat: changes the bytes of a stream. blocks: rows of the capture, dissected with ASKED.

    runs: the treated bytes, by stream and offset.
    has_fragments: whether the capture has, or may have, fragmented IP packets.
    treated: number of frames.
    """

    def __init__(
        self,
        treat: Callable[[Stream], None],
        blocks: Iterable[TableBlock],
        *,
        in_memory: bool = False,
    ) -> None:
        self.runs: Runs
        self.has_fragments = True
        self.treated = 0
        self._treat = treat
        # Unnamed files: the system removes them, however the run ends.
        self._file: Callable[[], IO[bytes]] = memory_file if in_memory else _disk_file
        self._raw = self._file()
        self._size = 0
        self._ranges = _Rows(self._file(), 4)
        self._frames = _Rows(self._file(), 4)
        self._positions = _Rows(self._file(), 4)
        self._streams: Int64Array
        self._of_packets: tuple[Int64Array, Int64Array, Int64Array]
        self._protocols: dict[int, str] = {}
        self._midstream: set[int] = set()
        for block in blocks:
            self._handle(block)
        after = self._lay_out()
        self._locate()
        self._treat_all(after)

    def positions(self, segments: SegmentColumns, count: int) -> SegmentPositions:
        """Return the stream positions of the first `count` segments."""
        packets, streams, offsets = self._of_packets
        positions = SegmentPositions.new(max(count, 1), -1)
        rows, is_there = _look_up(packets, segments.packet[:count])
        positions.stream[:count][is_there] = streams[rows[is_there]]
        positions.offset[:count][is_there] = offsets[rows[is_there]]
        return positions

    # -- rows of the dissection

    def _handle(self, block: TableBlock) -> None:
        columns: Any = block.columns
        if block.table == TABLE:
            self._handle_bytes(columns)
        elif block.table == PLACES:
            self._positions.add(
                *(columns[name] for name in ("packet", "stream", "stream_offset", "origin"))
            )
        elif block.table == "frames" and block.rows:
            self._handle_frames(columns, block.rows)
        elif block.table == "connections":
            rows: Any = arrow_batch(block)
            names = ("connection_id", "protocol", "started")
            cells = (rows.column(name).to_pylist() for name in names)
            for connection, protocol, started in zip(*cells, strict=True):
                self._protocols[connection] = protocol
                if started == "midstream":
                    self._midstream.add(connection)
        elif block.table == "capture_files":
            counts = columns["packets_ignored_by_reason"]
            self.has_fragments = any("ip_fragment" in dict(each) for each in counts)

    def _handle_bytes(self, columns: Any) -> None:
        data = columns["data"]
        is_data = data.lengths > 0
        streams = (columns["connection"] * 2 + columns["endpoint_index"])[is_data]
        starts = data.starts[is_data] + self._size
        self._ranges.add(streams, columns["stream_offset"][is_data], data.lengths[is_data], starts)
        self._raw.write(data.data)
        self._size += len(data.data)

    def _handle_frames(self, columns: Any, rows: int) -> None:
        packed = np.zeros(len(columns["connection_id"]), bool)
        for spec in PROTOCOLS:
            is_of = _is(columns, "protocol", (spec.name,))
            packed |= is_of & _is(columns, "compression", spec.packed_codecs)
        # The column is missing if no frame of the block has a command.
        command = columns.get("command", [None] * rows)
        is_known = command.codes >= 0 if isinstance(command, Coded) else _are_texts(command)
        kinds = _WHOLE * _is(columns, "status", (_COMPLETE,)) + _PACKED * packed
        kinds = kinds + _KNOWN * is_known
        is_frame = columns["frame_bytes"] > 0
        names = ("first_packet", "stream_offset", "frame_bytes")
        self._frames.add(*(columns[name][is_frame] for name in names), kinds[is_frame])

    # -- all of it

    def _lay_out(self) -> ByteArray:
        """Copy the streams one after the other to both files; return the bytes to treat."""
        streams, starts, sizes, positions = self._ranges.columns()
        order = np.lexsort((starts, streams))
        streams, starts, sizes, positions = (
            column[order] for column in (streams, starts, sizes, positions)
        )
        before, after, raw = self._file(), self._file(), mapped(self._raw)
        for first in range(0, len(order), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            ranges = zip(positions[some].tolist(), sizes[some].tolist(), strict=True)
            part = np.concatenate([raw[start : start + size] for start, size in ranges])
            before.write(part.data)
            after.write(part.data)
        ends = starts + sizes
        is_new = np.ones(len(order), bool)
        is_new[1:] = (streams[1:] != streams[:-1]) | (starts[1:] != ends[:-1])
        firsts = np.flatnonzero(is_new)
        self._streams, of_run = np.unique(streams[firsts], return_index=True)
        self.runs = Runs(
            first=of_run,
            last=np.append(of_run[1:], len(firsts))[: len(of_run)],
            starts=starts[firsts],
            ends=ends[np.append(firsts[1:], len(order))[: len(firsts)] - 1],
            positions=(np.cumsum(sizes) - sizes)[firsts],
            before=mapped(before),
            after=mapped(after),
        )
        self._raw.close()
        return self.runs.after

    def _locate(self) -> None:
        """Set each packet's stream number and offset. A stream's origin can move until its first
        bytes are emitted: offsets of earlier packets are corrected."""
        packets, keys, offsets, origins = self._positions.columns()
        streams, is_there = _look_up(self._streams, keys)
        streams = np.where(is_there, streams, -1)
        latest = np.zeros(len(self._streams) + 1, np.int64)
        latest[streams] = origins
        moved = (origins - latest[streams] + _HALF) % (2 * _HALF) - _HALF
        self._of_packets = np.ascontiguousarray(packets), streams, offsets + moved

    def _treat_all(self, after: ByteArray) -> None:
        packets, starts, sizes, kinds = self._frames.columns()
        of_packets, streams_of, _ = self._of_packets
        rows, is_there = _look_up(of_packets, packets)
        streams = np.full(len(packets), -1, np.int64)
        streams[is_there] = streams_of[rows[is_there]]
        order = np.lexsort((starts, streams))
        streams, starts, sizes, kinds = (
            column[order] for column in (streams, starts, sizes, kinds)
        )
        self.treated = int(np.count_nonzero(streams >= 0))
        bits = (kinds & bit != 0 for bit in (_WHOLE, _PACKED, _KNOWN))
        every = Frames(starts, sizes, *bits)
        for number, key in enumerate(self._streams.tolist()):
            some = slice(*np.searchsorted(streams, (number, number + 1)).tolist())
            own = [column.tolist() for column in self._runs_of(number)]
            runs = [
                (start, after[position : position + end - start])
                for start, end, position in zip(*own, strict=True)
            ]
            protocol = self._protocols.get(key >> 1, "unknown")
            self._treat(Stream(protocol, key >> 1 in self._midstream, runs, every.chosen(some)))

    def _runs_of(self, stream: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        runs = self.runs
        some = slice(int(runs.first[stream]), int(runs.last[stream]))
        return runs.starts[some], runs.ends[some], runs.positions[some]


def _look_up(rising: Int64Array, wanted: Int64Array) -> tuple[Int64Array, np.ndarray]:
    """Return the rows of numbers in a rising array, and whether each number is in it."""
    rows = np.searchsorted(rising, wanted)
    is_there = np.zeros(len(wanted), bool)
    is_inside = rows < len(rising)
    is_there[is_inside] = rising[rows[is_inside]] == wanted[is_inside]
    return rows, is_there


def _are_texts(column: Any) -> np.ndarray:
    return np.array([value is not None for value in column], bool)


def _is(columns: Any, name: str, texts: Any) -> np.ndarray:
    """Return bool[rows]: the column has one of some texts there."""
    column = columns.get(name)
    if column is None or not texts:
        return np.zeros(len(columns["connection_id"]), bool)
    if not isinstance(column, Coded):
        return np.array([value in texts for value in column], bool)
    wanted = {*texts, *(text.encode() for text in texts)}
    return np.isin(column.codes, [n for n, text in enumerate(column.names) if text in wanted])


def _disk_file() -> IO[bytes]:
    return TemporaryFile(prefix="dissector-")


def memory_file() -> BinaryIO:
    """Return a file in memory."""
    return os.fdopen(os.memfd_create("dissector"), "w+b")


def mapped(file: IO[bytes]) -> ByteArray:
    """Map a file as an array: writes to the array change the file."""
    file.flush()
    size = os.fstat(file.fileno()).st_size
    return np.frombuffer(mmap.mmap(file.fileno(), size), np.uint8) if size else _EMPTY


_EMPTY: Final = np.zeros(0, np.uint8)
