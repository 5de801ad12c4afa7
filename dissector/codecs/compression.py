"""The four codecs of Pulsar entries, each bounded by the size that the entry announces.

LZ4 is a bare block, Snappy a bare block with its length in front, ZLIB an RFC 1950 stream and ZSTD
a frame. Only the entry's metadata has the uncompressed size. Java ends its ZLIB streams with a
flush and never finishes them: no last block, no checksum; so a stream is good if it yields exactly
the announced size. Bad input gives a result with a reason, never an exception.
"""

import enum
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

import cramjam
import numpy as np
import zstandard

from dissector.blocks import ByteArray
from dissector.codecs.lz4_blocks import PackedEntries, open_blocks
from dissector.limits import FREE_UNPACKED_BYTES, MAX_ENTRY_BYTES, MAX_UNPACKED_RATIO


class Codec(enum.IntEnum):
    """Numbers of Pulsar's CompressionType."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class UnpackResult(enum.IntEnum):
    """Why an entry was not uncompressed: the number in its notice."""

    OPENED = 0
    UNKNOWN_CODEC = 1
    TOO_LARGE = 2  # the announced size is above limits.MAX_ENTRY_BYTES, or negative
    WRONG_SIZE = 3  # the bytes unpack to another size than announced
    CORRUPT = 4  # not what the codec says
    OVER_BUDGET = 5  # entries of the capture unpacked to too much already, see Budget


_SPARE_BYTES: Final = 16
Sources = tuple[ByteArray, ByteArray, ByteArray, ByteArray]


class Unpacked(NamedTuple):
    """An entry's bytes, uncompressed.

    data: uint8[], a buffer whose first `size` bytes are valid; reused for the next entry.
    problem: OPENED, or the reason of the failure.
    """

    data: ByteArray
    size: int
    problem: UnpackResult


def _lz4(packed: ByteArray, output: ByteArray) -> int:
    return int(cramjam.lz4.decompress_block_into(packed.data, output.data, output_len=len(output)))


def _zlib(packed: ByteArray, output: ByteArray) -> int:
    stream = zlib.decompressobj()
    plain = stream.decompress(packed.data, len(output))
    if stream.unconsumed_tail and stream.decompress(stream.unconsumed_tail, 1):
        return -1  # more than announced
    output[: len(plain)] = np.frombuffer(plain, np.uint8)
    return len(plain)


def _zstd(opener: zstandard.ZstdDecompressor, packed: ByteArray, output: ByteArray) -> int:
    # A size in the frame's own header would be allocated as it stands, whatever the bound.
    if zstandard.frame_content_size(packed.data) > len(output):
        return -1
    plain = opener.decompress(packed.data, max_output_size=len(output))
    if len(plain) > len(output):
        return -1
    output[: len(plain)] = np.frombuffer(plain, np.uint8)
    return len(plain)


def _snappy(packed: ByteArray, output: ByteArray) -> int:
    if int(cramjam.snappy.decompress_raw_len(packed.data)) != len(output):
        return -1
    return int(cramjam.snappy.decompress_raw_into(packed.data, output.data))


class Budget:
    """Limit of the uncompressed size of all entries of a capture, relative to the packed size.

    One entry may expand a hundred thousand times; a capture of many such entries would occupy a run
    for hours.
    """

    def __init__(self, free: int = FREE_UNPACKED_BYTES, ratio: int = MAX_UNPACKED_RATIO) -> None:
        self._left = free
        self._free = free
        self._ratio = ratio

    def allowance(self, packed: int) -> int:
        """Return the permitted uncompressed size of so many packed bytes."""
        return self._grown(self._left, packed)

    def _grown(self, left: int, packed: int) -> int:
        # What is not used up is kept, but for more than the free bytes.
        return min(left + self._ratio * packed, max(left, self._free))

    def spend(self, packed: int, size: int) -> bool:
        """Whether so many packed bytes may expand to `size`; if so, charge the budget."""
        return self.spend_each((packed,), (size,))[0]

    def spend_each(self, packed: Sequence[int], sizes: Sequence[int]) -> list[bool]:
        """Apply `spend` to entries in order."""
        may = []
        left = self._left
        for earned, size in zip(packed, sizes, strict=True):
            left = self._grown(left, earned)
            may.append(size <= left)
            if size <= left:
                left -= size
        self._left = left
        return may


class Decompressor:
    """Uncompresses entries to one buffer, singly or several consecutively.

    buffer: uint8[]; `reserve` and `open` may replace it by a larger one.
    """

    def __init__(self, max_bytes: int = MAX_ENTRY_BYTES, budget: Budget | None = None) -> None:
        self._max_bytes = max_bytes
        self._budget = Budget() if budget is None else budget
        self.buffer = np.zeros(1 << 16, np.uint8)
        self._codecs: dict[int, Callable[[ByteArray, ByteArray], int]] = {
            Codec.LZ4: _lz4,
            Codec.ZLIB: _zlib,
            # To make one takes three times as long as to open a usual entry with it.
            Codec.ZSTD: partial(_zstd, zstandard.ZstdDecompressor()),
            Codec.SNAPPY: _snappy,
        }

    def reserve(self, size: int) -> None:
        """Ensure a buffer of so many bytes; discards its contents."""
        if size + _SPARE_BYTES > len(self.buffer):
            capacity = max(size, min(2 * size, self._max_bytes))
            self.buffer = np.zeros(capacity + _SPARE_BYTES, np.uint8)

    def open(self, codec: int, packed: ByteArray, size: int) -> Unpacked:
        """Uncompress one entry.

        Args:
            codec: CompressionType; packed: the payload as on the wire; size: announced
                uncompressed size.
        """
        if 0 <= size <= self._max_bytes:
            self.reserve(size)
        problem = self._refusal(codec, size)
        if problem is None and not self._budget.spend(len(packed), size):
            problem = UnpackResult.OVER_BUDGET
        if problem is None:
            problem = self._open_at(0, codec, packed, size)
        return Unpacked(self.buffer, size if problem == UnpackResult.OPENED else 0, problem)

    def open_each(
        self, entries: PackedEntries, count: int, sources: Sources
    ) -> list[tuple[int, UnpackResult]]:
        """Uncompress entries consecutively to the reserved buffer.

        Args:
            entries: their `at` is written. count: number of entries.

        Returns:
            The indexes of failed entries, and the reasons.
        """
        codecs, sizes = entries.codec[:count], entries.size[:count]
        is_tried = (sizes > 0) & (sizes <= self._max_bytes)
        is_tried &= (codecs > Codec.NONE) & (codecs <= Codec.SNAPPY)
        costs, earned = np.where(is_tried, (sizes, entries.length[:count]), 0)
        entries.at[:count] = np.cumsum(costs) - costs
        is_paid = np.array(self._budget.spend_each(earned.tolist(), costs.tolist()), np.bool_)
        is_open = np.zeros(count, np.int64)
        open_blocks(
            entries,
            np.flatnonzero(is_tried & is_paid & (codecs == Codec.LZ4)),
            sources,
            self.buffer,
            is_open,
        )
        problems: list[tuple[int, UnpackResult]] = []
        for index in np.flatnonzero(is_open == 0).tolist():
            codec, source, start, length, size, at = entries.matrix[1:, index].tolist()
            problem = self._refusal(codec, size)
            if problem is None and not is_paid[index]:
                problem = UnpackResult.OVER_BUDGET
            if problem is None:
                packed = sources[source][start : start + length]
                problem = self._open_at(at, codec, packed, size)
            if problem != UnpackResult.OPENED:
                entries.at[index] = -1
                problems.append((index, problem))
        return problems

    def _refusal(self, codec: int, size: int) -> UnpackResult | None:
        """What becomes of an entry without a look at its bytes; None: that depends on these."""
        if codec not in self._codecs:
            return UnpackResult.UNKNOWN_CODEC
        if not 0 <= size <= self._max_bytes:
            return UnpackResult.TOO_LARGE
        return None if size else UnpackResult.OPENED

    def _open_at(self, at: int, codec: int, packed: ByteArray, size: int) -> UnpackResult:
        """Let a library uncompress an entry to a place of the buffer."""
        try:
            made = self._codecs[codec](packed, self.buffer[at : at + size])
        except (cramjam.DecompressionError, zlib.error, zstandard.ZstdError):
            return UnpackResult.CORRUPT
        return UnpackResult.OPENED if made == size else UnpackResult.WRONG_SIZE
