"""The first pass: what every byte of a capture's streams becomes, in files beside the capture.

The capture is dissected; frames are treated as frames and the rest as what it is. Streams before
and after lie in two files without a name, so that memory does not grow with the bytes; what grows
is a row for each range of a stream and a number for each packet.
"""

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Coded, Int64Array, TableBlock
from dissector.dissection import Dissection, Options
from dissector.dissection.conversation import ALL, TABLE
from dissector.evidence.anonymizer import Anonymizer
from dissector.limits import MAX_FRAME_BYTES
from dissector.protocols import PROTOCOL_NAMES, PROTOCOLS
from dissector.protocols.columns import UNKNOWN_DIRECTION
from dissector.schemas.rows import arrow_batch
from dissector.sources.account import Account
from dissector.sources.files import ChainReader, FileEnd, FileStart, raise_if_nothing
from dissector.sources.rings import Chain

# No frame of a stream that had none so far can be this long.
_LONGEST_WAIT: Final = 2 * MAX_FRAME_BYTES
_COMPLETE: Final = "complete"
BufferedRange = tuple[int, ByteArray]


class Frames(NamedTuple):
    """Frames of a direction, rising: offsets, announced sizes, is it whole, is it compressed, and a
    text, is its command known."""

    starts: Int64Array
    sizes: Int64Array
    whole: np.ndarray
    packed: np.ndarray
    text: np.ndarray
    known: np.ndarray

    def chosen(self, rows: Any) -> "Frames":
        """Some of them."""
        return Frames(*(column[rows] for column in self))

    def joined(self, other: "Frames") -> "Frames":
        """These and others, in order."""
        both = Frames(*(np.concatenate(pair) for pair in zip(self, other, strict=True)))
        return both.chosen(np.argsort(both.starts, kind="stable"))


NO_FRAMES: Final = Frames(*(np.zeros(0, np.int64),) * 2, *(np.zeros(0, bool),) * 4)


class TreatedSpan(NamedTuple):
    """Bytes start to end of a stream lie in the files from a position on."""

    start: int
    end: int
    position: int

    @property
    def after(self) -> int:
        """The position behind it."""
        return self.position + self.end - self.start


class TreatedDirection:
    """One direction of a connection.

    runs: what is done.
    packets: int64 arrays, those that brought its bytes.
    probe: offset, first bytes and packet of its first piece, to find it among segments.
    """

    def __init__(self) -> None:
        self.runs: list[TreatedSpan] = []
        self.packets: list[Int64Array] = []
        self.probe: tuple[int, bytes, int] = (0, b"", 0)
        self.waiting: list[BufferedRange] = []
        self.held = 0
        self.frames = NO_FRAMES
        self.had_frames = False

    def add(self, offsets: Int64Array, packets: Int64Array, pieces: list[ByteArray]) -> None:
        """Take pieces in the order of the stream."""
        if not self.packets:
            self.probe = (int(offsets[0]), pieces[0][:64].tobytes(), int(packets[0]))
        self.packets.append(packets)
        self.waiting.extend(zip(offsets.tolist(), pieces, strict=True))
        self.held += sum(map(len, pieces))

    def taken(self, limit: int | None) -> Iterator[BufferedRange]:
        """What waits before an offset (None: all), as runs; the rest goes on waiting."""
        parts: list[tuple[int, list[ByteArray]]] = []
        end = None
        rest: list[BufferedRange] = []
        for offset, piece in self.waiting:
            if limit is not None and offset + len(piece) > limit:
                cut = max(limit - offset, 0)
                rest.append((offset + cut, piece[cut:].copy()))
                piece = piece[:cut]
            if not len(piece):
                continue
            if offset == end:
                parts[-1][1].append(piece)
            else:
                parts.append((offset, [piece]))
            end = offset + len(piece)
        self.waiting = rest
        self.held = sum(len(piece) for _, piece in rest)
        for offset, pieces in parts:
            yield offset, np.concatenate(pieces)


class TreatedStreams:
    """All streams of a capture, rewritten. This class collects bytes and frames; a subclass says in
    `_treat_pieces` what the bytes become.

    directions: by connection and endpoint index. before, after: files of their bytes.
    problems: of the input.
    has_fragments: whether IP packets came in pieces.
    """

    # Whether what is complete is treated before the end of its stream.
    is_early = True

    def __init__(self, *, in_memory: bool = False) -> None:
        self.directions: dict[tuple[int, int], TreatedDirection] = {}
        self.before, self.after = _file(in_memory), _file(in_memory)
        self.has_fragments = False
        self.problems: list[str] = []
        self.treated = 0
        self._position = 0
        self._account = Account()
        self._sender_of: dict[int, int] = {}
        self._protocols: dict[int, str] = {}
        self._midstream: set[int] = set()

    def read(
        self, chain: Chain, options: Options, progress: Callable[[int], None] | None = None
    ) -> None:
        """Dissect a capture and treat its streams.

        Raises:
            InputError: no file of it can be read.
        """
        self._account = Account(chain.base_name, chain.shown_names)
        dissection = Dissection(_of_streams(options))
        with ChainReader(chain.files) as reader:
            for event in reader:
                if isinstance(event, FileStart):
                    dissection.start_file()
                elif isinstance(event, FileEnd):
                    self._end_file(dissection, event.problem is not None)
                else:
                    event.consumed, blocks = dissection.feed(
                        event.data, event.start, event.end, event.is_last
                    )
                    event.is_enough = dissection.capture.is_over
                    self._handle(blocks)
                    if progress is not None:
                        progress(reader.stored_bytes)
            raise_if_nothing(reader.problems, reader.files_read)
            self.problems = [problem.text for problem in reader.problems]
        self._finish(dissection)

    def read_bytes(self, data: ByteArray, options: Options) -> None:
        """The same of a file in memory, however damaged."""
        dissection = Dissection(_of_streams(options))
        dissection.start_file()
        self._handle(dissection.feed(data, 0, len(data), True)[1])
        self._end_file(dissection, False)
        self._finish(dissection)

    def _end_file(self, dissection: Dissection, has_problem: bool) -> None:
        _, counts = dissection.end_file(has_problem)
        self.has_fragments |= "ip_fragment" in counts.ignored

    def _finish(self, dissection: Dissection) -> None:
        self._handle(dissection.finish())
        self.problems += self._account.missing
        for connection, endpoint_index in self.directions:
            self._treat(connection, endpoint_index, None)
        self.before.flush()
        self.after.flush()

    def _handle(self, blocks: list[TableBlock]) -> None:
        """Rows of one call of the dissection."""
        framed: dict[tuple[int, int], list[Frames]] = {}
        closed: list[int] = []
        for block in blocks:
            if block.table == TABLE:
                self._handle_bytes(block.columns)
            elif block.table == "frames" and block.rows:
                self._handle_frames(block.columns, framed)
            elif block.table == "notices":
                self._account.add(block)
            elif block.table == "connections":
                rows: Any = arrow_batch(block)
                names = ("connection_id", "protocol", "started")
                columns = [rows.column(name).to_pylist() for name in names]
                for connection, protocol, started in zip(*columns, strict=True):
                    self._protocols[connection] = protocol
                    if started == "midstream":
                        self._midstream.add(connection)
                closed += columns[0]
        for key, batches in framed.items():
            treated = self.directions[key]
            for frames in batches:
                treated.frames = treated.frames.joined(frames)
            treated.had_frames = True
            last = treated.frames.starts[-1] + (treated.frames.sizes[-1] * treated.frames.whole[-1])
            if self.is_early:
                self._treat(*key, int(last))
        for connection in closed:
            for endpoint_index in (0, 1):
                if (connection, endpoint_index) in self.directions:
                    self._treat(connection, endpoint_index, None)
            for direction in range(4):
                self._sender_of.pop(4 * connection + direction, None)
        for (connection, endpoint_index), treated in self.directions.items():
            if self.is_early and treated.held > _LONGEST_WAIT:
                self._treat(connection, endpoint_index, treated.waiting[-1][0] - _LONGEST_WAIT // 2)

    def _handle_bytes(self, columns: Any) -> None:
        data = columns["data"]
        is_data = data.lengths > 0
        if not is_data.any():
            return
        keys = (columns["connection"] * 2 + columns["endpoint_index"])[is_data]
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        offsets, packets = (columns[name][is_data][order] for name in ("stream_offset", "packet"))
        starts, lengths = (
            data.starts[is_data][order].tolist(),
            data.lengths[is_data][order].tolist(),
        )
        unique_keys, firsts = np.unique(keys, return_index=True)
        lasts = [*firsts[1:].tolist(), len(keys)]
        for key, first, last in zip(unique_keys.tolist(), firsts.tolist(), lasts, strict=True):
            pieces = [
                data.data[start : start + size]
                for start, size in zip(starts[first:last], lengths[first:last], strict=True)
            ]
            treated = self.directions.setdefault((key >> 1, key & 1), TreatedDirection())
            treated.add(offsets[first:last], packets[first:last], pieces)

    def _handle_frames(self, columns: Any, framed: dict[tuple[int, int], list[Frames]]) -> None:
        """Frames of a block, by the endpoint that sent them."""
        keys = columns["connection_id"] * 4 + columns["direction"].codes
        of_protocol = {spec.name: _is(columns, "protocol", spec.name) for spec in PROTOCOLS}
        packed, text = np.zeros(len(keys), bool), np.ones(len(keys), bool)
        for spec in PROTOCOLS:
            if of_protocol[spec.name].any():
                for codec in spec.packed_codecs:
                    packed |= of_protocol[spec.name] & _is(columns, "compression", codec)
                for command in spec.binary_commands:
                    text &= ~(of_protocol[spec.name] & _is(columns, "command", command))
        whole = _is(columns, "status", _COMPLETE)
        is_frame = columns["frame_bytes"] > 0
        known = _has_text(columns["command"])
        every = Frames(columns["stream_offset"], columns["frame_bytes"], whole, packed, text, known)
        for key in np.unique(keys).tolist():
            rows_of = np.flatnonzero((keys == key) & is_frame)
            connection, direction = key >> 2, key & 3
            protocol = next(
                (name for name, is_of in of_protocol.items() if is_of[rows_of[:1]].any()),
                PROTOCOL_NAMES[0],
            )
            packets = columns["first_packet"]
            for endpoint_index, own_rows in self._by_endpoint(
                connection, direction, rows_of, packets
            ):
                self._protocols.setdefault(connection, protocol)
                framed.setdefault((connection, endpoint_index), []).append(every.chosen(own_rows))

    def _by_endpoint(
        self, connection: int, direction: int, rows: Int64Array, packets: Int64Array
    ) -> Iterator[tuple[int, Int64Array]]:
        """Rows of frames by the endpoint that sent them, which their packets are of."""
        key = 4 * connection + direction
        if key in self._sender_of:
            yield self._sender_of[key], rows
            return
        for endpoint_index in (0, 1):
            treated = self.directions.get((connection, endpoint_index))
            if treated is None or not len(rows):
                continue
            is_own = np.isin(packets[rows], all_packets([treated]))
            if is_own.any() and direction != UNKNOWN_DIRECTION:
                self._sender_of[key] = endpoint_index
                yield endpoint_index, rows
                return
            if is_own.any():
                yield endpoint_index, rows[is_own]

    def _treat(self, connection: int, endpoint_index: int, limit: int | None) -> None:
        """Treat what waits of a direction before an offset."""
        treated = self.directions[connection, endpoint_index]
        pieces = list(treated.taken(limit))
        afters = self._treat_pieces(connection, treated, pieces)
        for (offset, before), after in zip(pieces, afters, strict=True):
            run = TreatedSpan(offset, offset + len(before), self._position)
            last = treated.runs[-1] if treated.runs else None
            if last and last.end == run.start and last.after == run.position:
                treated.runs[-1] = last._replace(end=run.end)
            else:
                treated.runs.append(run)
            self.before.write(before.data)
            self.after.write(after.data)
            self._position += len(before)
        if limit is None:
            treated.frames = NO_FRAMES
        else:
            is_left = treated.frames.starts + treated.frames.sizes > limit
            treated.frames = treated.frames.chosen(is_left)

    def _treat_pieces(
        self, connection: int, treated: TreatedDirection, pieces: list[BufferedRange]
    ) -> Iterable[ByteArray]:
        """What ranges of a direction become, each as long as before."""
        raise NotImplementedError


class Disguised(TreatedStreams):
    """Streams made anonymous."""

    def __init__(self, anonymizer: Anonymizer, *, in_memory: bool = False) -> None:
        super().__init__(in_memory=in_memory)
        self._anonymizer = anonymizer

    def _treat_pieces(
        self, connection: int, treated: TreatedDirection, pieces: list[BufferedRange]
    ) -> Iterable[ByteArray]:
        protocol = self._protocols.get(connection, "")
        for offset, before in pieces:
            after = before.copy()
            self._treat_run(treated, protocol, offset, after)
            yield after

    def _treat_run(
        self, treated: TreatedDirection, protocol: str, offset: int, data: ByteArray
    ) -> None:
        """Treat bytes that follow on each other, from an offset on."""
        frames = treated.frames
        inside = (frames.starts >= offset) & (frames.starts < offset + len(data))
        frames = frames.chosen(inside)
        starts = frames.starts - offset
        ends = np.minimum(starts + frames.sizes, len(data))
        ends[:-1] = np.minimum(ends[:-1], starts[1:])
        is_whole = frames.whole & (ends == starts + frames.sizes)
        sizes = np.where(is_whole, ends - starts, np.maximum(frames.sizes, ends - starts + 1))
        at = 0
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            if start > at:
                self._outside(treated, protocol, offset, data, (at, start))
            at = max(at, end)
        if at < len(data):
            self._outside(treated, protocol, offset, data, (at, len(data)))
        if len(starts):
            bounds = np.ascontiguousarray(np.stack([starts, sizes, ends]))
            self._anonymizer.frames(data, bounds, protocol, frames.packed.tolist())
        self.treated += len(starts)

    def _outside(
        self,
        treated: TreatedDirection,
        protocol: str,
        offset: int,
        data: ByteArray,
        span: tuple[int, int],
    ) -> None:
        is_first = not treated.runs and span[0] == 0 and offset == 0
        self._anonymizer.outside(data, *span, is_first, protocol)


def _of_streams(options: Options) -> Options:
    """What a dissection is asked for whose streams are treated."""
    return dataclasses.replace(
        options, follow_connection=ALL, want_detail="none", properties=False, redact=False
    )


def _has_text(column: Any) -> np.ndarray:
    """Which rows of a column of texts have one."""
    if isinstance(column, Coded):
        return column.codes >= 0
    return np.array([value is not None for value in column], bool)


def _is(columns: Any, name: str, text: str) -> np.ndarray:
    """Which rows of a column hold a text."""
    column = columns.get(name)
    if column is None:
        return np.zeros(len(columns["connection_id"]), bool)
    if not isinstance(column, Coded):
        return np.array([value == text for value in column])
    wanted: list[Any] = [text, text.encode()]
    codes = [code for code, name in enumerate(column.names) if name in wanted]
    return np.isin(column.codes, codes)


def _file(in_memory: bool) -> IO[bytes]:
    """A file without a name: nothing of it is left, however the run ends."""
    if in_memory:
        return os.fdopen(os.memfd_create("streams"), "w+b")
    return tempfile.TemporaryFile(prefix="dissector-")


def all_packets(directions: Iterable[TreatedDirection]) -> Int64Array:
    """The packets that brought the bytes of some directions, rising."""
    parts = [numbers for treated in directions for numbers in treated.packets]
    return np.unique(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
