"""A block's bodies, uncompressed and unwrapped from lines that contain a batch."""

from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.codecs.compression import Budget
from dissector.codecs.names import NameTable
from dissector.limits import NULL
from dissector.protocols.columns import COMPLETE, TO_CLIENT
from dissector.protocols.cursus.batches import choose_layout
from dissector.protocols.cursus.bodies import (
    OPENED_SOURCE,
    BodyColumns,
    find_bodies,
    read_batches,
)
from dissector.protocols.cursus.body_starts import BodyShape, shape_of
from dissector.protocols.cursus.compact_acks import ReadBy, note_frequent
from dissector.protocols.cursus.compressed import open_body
from dissector.protocols.cursus.forwarded import INTERNAL_BATCH, batch_within
from dissector.protocols.cursus.lines import CommandLine, read_line
from dissector.protocols.interface import FrameBlock
from dissector.tables import new_hash_table, remove, reserved

OPENED_BYTES: Final = 32 << 20  # uncompressed at once; beyond it the frames so far are parsed first
MARKED: Final = (BodyShape.GZIP, BodyShape.LZ4_FRAME, BodyShape.XERIAL)
_WRAPPING_WORD: Final = b"INTERNAL_BATCH"


class BodyUnpacker:
    """Opens the bodies of one capture, block after block.

    bodies: of the rows of the block being read.
    opened: uncompressed and unwrapped bodies, which the block's sources do not have.
    wrapped: lines that contain a batch, by row; the row's body is the batch.
    """

    def __init__(self, names: NameTable, protocol: int) -> None:
        self._names = names
        self._protocol = protocol
        self._layouts = new_hash_table(64, names.key)
        self._budget = Budget()
        self.bodies = BodyColumns.new(1, NULL)
        self.opened = np.zeros(1, np.uint8)
        self.wrapped: dict[int, CommandLine] = {}

    def begin(self, rows: int, connections: int) -> None:
        """Reserve room for a block's rows, and for the layouts of so many more connections."""
        if self.bodies.matrix.shape[1] < rows:
            self.bodies = BodyColumns.new(rows, NULL)
        self._layouts = reserved(self._layouts, connections)

    def forget(self, connection: int) -> None:
        """Remove the layout of an ended connection."""
        remove(self._layouts, connection, 0, 0, 0)

    def read_batches(self, block: FrameBlock, first: int, stop: int) -> int:
        """Locate, uncompress and parse the bodies of rows from `first` on; returns the next row."""
        self.wrapped = {}
        self.opened = np.zeros(1, np.uint8)
        find_bodies(block.frames, first, stop, self._protocol, block.sources, self.bodies)
        stop = self._open_marked(block, first, stop)
        self._read(block, first, stop)
        stop = self._open_unmarked(block, first, stop)
        sources = (*block.sources, self.opened)
        note_frequent(block.frames, first, stop, sources, self.bodies, self._names.columns)
        return stop

    def _read(self, block: FrameBlock, first: int, stop: int) -> None:
        sources = (*block.sources, self.opened)
        names = self._names.columns
        read_batches(block.frames, first, stop, sources, self.bodies, names, self._layouts)

    def _open_marked(self, block: FrameBlock, first: int, stop: int) -> int:
        """Uncompress bodies with a mark."""
        shapes = self.bodies.shape[first:stop]
        marked = [first + row for row in np.flatnonzero(np.isin(shapes, MARKED)).tolist()]
        parts: list[bytes] = []
        size = 0
        for row in marked:
            if size > OPENED_BYTES:
                stop = row
                break
            size += self._open_row(block, row, parts, size)
        self._keep(parts, 0)
        return stop

    def _keep(self, parts: list[bytes], used: int) -> None:
        if not parts:
            return
        before = [self.opened[:used].tobytes()] if used else []
        self.opened = np.frombuffer(bytearray(b"".join([*before, *parts])), np.uint8)

    def _open_row(self, block: FrameBlock, row: int, parts: list[bytes], used: int) -> int:
        """Uncompress one body behind the `used` bytes of others; returns its size."""
        frames, bodies = block.frames, self.bodies
        if int(frames.status[row]) != COMPLETE:
            return 0
        at, end = int(bodies.at[row]), int(bodies.end[row])
        packed = block.sources[int(frames.source[row])][at:end]
        opened = open_body(packed, int(bodies.shape[row]), self._budget)
        if opened is None:
            return 0
        codec, plain = opened
        bodies.codec[row] = codec
        held = np.frombuffer(bytearray(plain), np.uint8)
        bodies.shape[row] = shape_of(held, 0, len(plain))
        frames.payload_bytes[row] = end - at
        frames.uncompressed_bytes[row] = len(plain)
        frames.compression[row] = codec
        return self._put(row, plain, parts, used)

    def _put(self, row: int, plain: bytes, parts: list[bytes], used: int) -> int:
        """A row's body is `plain`, behind the `used` bytes of others; returns its size."""
        parts.append(plain)
        self.bodies.source[row] = OPENED_SOURCE
        self.bodies.at[row] = used
        self.bodies.end[row] = used + len(plain)
        return len(plain)

    def _open_unmarked(self, block: FrameBlock, first: int, stop: int) -> int:
        """Unpack bodies without a mark: bare snappy blocks, and batches within lines.

        A client's body of no other shape may be a snappy block.
        """
        parts: list[bytes] = []
        used = size = len(self.opened)
        added: list[int] = []
        for row in self._candidates(block, first, stop).tolist():
            if size - used > OPENED_BYTES:
                stop = row
                break
            if int(self.bodies.shape[row]) in (BodyShape.TEXT, BodyShape.ENVELOPE):
                got = self._unwrap(block, row, parts, size)
            else:
                got = 0
            if not got and self._may_be_snappy(block, row):
                got = self._try_snappy(block, row, parts, size)
            if got:
                size += got
                added.append(row)
        if parts:
            self._keep(parts, used)
            for row in added:
                self._read(block, row, row + 1)
        return stop

    def _candidates(self, block: FrameBlock, first: int, stop: int) -> Int64Array:
        """Whole bodies of clients that are not uncompressed, and no batches that were read."""
        frames, bodies = block.frames, self.bodies
        shapes = bodies.shape[first:stop]
        return first + np.flatnonzero(
            (shapes != NULL)
            & (shapes != BodyShape.EMPTY)
            & (bodies.codec[first:stop] == NULL)
            & (frames.direction[first:stop] != TO_CLIENT)
            & (frames.status[first:stop] == COMPLETE)
            & ~((shapes == BodyShape.BATCH_BODY) & (bodies.records[first:stop] != NULL))
        )

    def _may_be_snappy(self, block: FrameBlock, row: int) -> bool:
        shape = int(self.bodies.shape[row])
        return shape != BodyShape.ENVELOPE and not (
            shape == BodyShape.TEXT and self._is_text(block, row)
        )

    def _try_snappy(self, block: FrameBlock, row: int, parts: list[bytes], used: int) -> int:
        before = int(self.bodies.shape[row])
        self.bodies.shape[row] = BodyShape.OTHER
        added = self._open_row(block, row, parts, used)
        if not added and before != BodyShape.TEXT:
            self.bodies.shape[row] = before
        return added

    def _unwrap(self, block: FrameBlock, row: int, parts: list[bytes], used: int) -> int:
        """Unwrap the batch of a line that contains one; returns its size."""
        at = int(self.bodies.at[row])
        data = block.sources[int(block.frames.source[row])]
        if _WRAPPING_WORD not in data[at : at + 300].tobytes().upper():
            return 0
        line = read_line(self.body(block, row))
        plain = batch_within(line) if line.command == INTERNAL_BATCH else None
        if not plain:
            return 0
        held = np.frombuffer(bytearray(plain), np.uint8)
        if (
            shape_of(held, 0, len(plain)) != BodyShape.BATCH_BODY
            or choose_layout(held, 0, len(plain), -1) < 0
        ):
            return 0
        self.wrapped[row] = line
        self.bodies.shape[row] = BodyShape.BATCH_BODY
        self.bodies.decoded[row] = ReadBy.WRAPPED
        block.frames.payload_bytes[row] = len(plain)
        return self._put(row, plain, parts, used)

    def body(self, block: FrameBlock, row: int) -> bytes:
        """The bytes of a row's body, uncompressed."""
        source = int(self.bodies.source[row])
        data = self.opened if source == OPENED_SOURCE else block.sources[source]
        return data[int(self.bodies.at[row]) : int(self.bodies.end[row])].tobytes()

    def _is_text(self, block: FrameBlock, row: int) -> bool:
        """Whether a body that begins with a letter is a text: no byte that texts do not have."""
        body = self.body(block, row)[:512]
        return not any(value < 0x20 and value not in (9, 10, 13) for value in body)
