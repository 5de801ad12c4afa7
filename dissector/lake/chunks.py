"""Encode one column of one row group: its pages and their dictionary.

The kernels of `encodings` encode a page as soon as its rows are complete, and it is compressed at
once, so a row group is buffered in compressed form. A page whose rows are all null is equal for
every column and encoded once.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard

from dissector.blocks import Int64Array
from dissector.lake import encodings, metadata
from dissector.lake.bloom_filters import bloom_filter
from dissector.lake.metadata import Bounds, ChunkInfo, Encoding, Leaf, PageStatistics
from dissector.lake.settings import SETTINGS
from dissector.lake.thrift import varint
from dissector.schemas import Column
from dissector.schemas.builders import Codes, ColumnValues, Flags, Numbers, bits_of
from dissector.schemas.text import plain_bytes

_SPARE: Final = 1024
_NULL_PAGES: Final = 1024  # cached all-null pages, by number of rows
_FEW_TEXTS: Final = 2000  # fewer are coded in Python: pyarrow would load its compute library
# Definition levels: 0 a null list, then an empty one, an element or a map's key, a map's value.
_EMPTY: Final = 1
_KEY: Final = 2
_ELEMENT: Final = 3


def _compressor() -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(
        level=SETTINGS.zstd_level, write_checksum=SETTINGS.page_checksums
    )


class Workspace:
    """The compressor and the scratch arrays that all columns of a table share.

    Attributes:
        is_compressed: whether pages are compressed.
    """

    def __init__(self, page_rows: int) -> None:
        self.scratch = np.empty(page_rows + 136, np.int64)
        self.block = np.empty(128, np.int64)
        self._out = np.empty(10 * page_rows + _SPARE, np.uint8)
        self._zstd = _compressor()
        self.is_compressed = True

    def out(self, size: int) -> npt.NDArray[np.uint8]:
        """Return the output array, grown to at least `size` bytes."""
        if len(self._out) < size:
            self._out = np.empty(size, np.uint8)
        return self._out

    def compressed(self, data: bytes | npt.NDArray[np.uint8]) -> bytes:
        """Compress the bytes with zstd, if pages are compressed."""
        if not self.is_compressed:
            return bytes(data)
        return self._zstd.compress(data if isinstance(data, bytes) else data.data)


@lru_cache(_NULL_PAGES)
def _null_page(rows: int, is_nested: bool, is_compressed: bool) -> tuple[bytes, int]:
    """Return a page of nulls only, and its size before compression."""
    run = varint(rows << 1) + b"\0"
    body = (struct.pack("<I", len(run)) + run) * (2 if is_nested else 1)
    data = _compressor().compress(body) if is_compressed else body
    head = metadata.data_page_header(len(body), len(data), rows, Encoding.PLAIN)
    return head + data, len(head) + len(body)


class ColumnChunk:
    """Builder of one column chunk: the pages of one leaf in one row group."""

    def __init__(self, leaf: Leaf, work: Workspace) -> None:
        self._leaf = leaf
        self._work = work
        self._is_nested = len(leaf.path) > 1
        self._start()

    def _start(self) -> None:
        self._pages: list[bytes] = []
        self._sizes: list[int] = []
        self._dictionary = b""
        self._encodings = {Encoding.RLE}
        self._values = 0
        self._raw_bytes = 0

    def add_null_page(self, rows: int) -> None:
        """Add a page of rows that are all null."""
        page, raw_bytes = _null_page(rows, self._is_nested, self._work.is_compressed)
        self._pages.append(page)
        self._sizes.append(len(page))
        self._encodings.add(Encoding.PLAIN)
        self._values += rows
        self._raw_bytes += raw_bytes

    def add_page(
        self, body: bytes | npt.NDArray[np.uint8], values: int, encoding: Encoding
    ) -> None:
        """Add a page. body: levels and values. values: count, nulls included."""
        data = self._work.compressed(body)
        head = metadata.data_page_header(len(body), len(data), values, encoding)
        self._pages.append(head)
        self._pages.append(data)
        self._sizes.append(len(head) + len(data))
        self._encodings.add(encoding)
        self._values += values
        self._raw_bytes += len(head) + len(body)

    def set_dictionary(self, texts: Sequence[bytes]) -> None:
        """Encode the dictionary page; the index of a text is its code."""
        body = b"".join([part for text in texts for part in (struct.pack("<I", len(text)), text)])
        data = self._work.compressed(body)
        head = metadata.dictionary_page_header(len(body), len(data), len(texts))
        self._dictionary = head + data
        self._encodings.add(Encoding.PLAIN)
        self._raw_bytes += len(head) + len(body)

    def finish(
        self,
        at: int,
        nulls: int | None = None,
        ranges: Sequence[PageStatistics] = (),
        rows: Sequence[int] = (),
        texts: Sequence[bytes] = (),
    ) -> tuple[list[bytes], ChunkInfo]:
        """Return the bytes of the chunk for file offset `at` and their metadata; reset the builder.

        Args:
            nulls: number of null rows, None if not counted. ranges: of its pages, empty if not
                known. rows: of its pages, empty if these get no index.
            texts: of the Bloom filter.
        """
        leaf = self._leaf
        statistics = b""
        if ranges:
            statistics = metadata.statistics(leaf, metadata.merged(ranges))
        elif nulls is not None:
            statistics = metadata.null_statistics(nulls)
        data_at = at + len(self._dictionary)
        pages = [self._dictionary, *self._pages] if self._dictionary else self._pages
        info = ChunkInfo(
            leaf=leaf,
            encodings=tuple(sorted(self._encodings)),
            values=self._values,
            raw_bytes=self._raw_bytes,
            bytes=sum(map(len, pages)),
            is_compressed=self._work.is_compressed,
            data_at=data_at,
            dictionary_at=at if self._dictionary else None,
            statistics=statistics,
            bloom_filter=bloom_filter(texts) if texts else b"",
            column_index=metadata.column_index(leaf, ranges) if rows and ranges else b"",
            offset_index=metadata.offset_index(data_at, self._sizes, rows) if rows else b"",
        )
        self._start()
        return pages, info


def same_text_chunk(
    leaf: Leaf, work: Workspace, text: bytes, rows: int, at: int, *, is_indexed: bool
) -> tuple[list[bytes], ChunkInfo]:
    """Return a chunk with one text in every row, for file offset `at`: two runs and a dictionary of
    one, for any number of rows. is_indexed: whether its page has an index."""
    chunk = ColumnChunk(leaf, work)
    chunk.set_dictionary([text])
    run = varint(rows << 1)
    levels = run + b"\1"
    body = struct.pack("<I", len(levels)) + levels + b"\1" + run + b"\0"
    chunk.add_page(body, rows, Encoding.RLE_DICTIONARY)
    return chunk.finish(at, 0, [PageStatistics(0, (text, text))], [rows] if is_indexed else ())


class ColumnChunks(ABC):
    """Builder of one column of one row group: a chunk for each of its leaves.

    is_ascending: whether its rows in this row group ascend; false for columns not in `sorted_by`.
    """

    def __init__(self, column: Column, work: Workspace) -> None:
        self._work = work
        self._is_sorted_by = column.name in SETTINGS.sorted_by
        self._has_bloom_filter = column.name in SETTINGS.bloom_filters
        leaves = metadata.leaves(column)
        self._is_nested = len(leaves[0].path) > 1
        self._chunks = [ColumnChunk(leaf, work) for leaf in leaves]
        self._chunk = self._chunks[0]
        self._start()

    def add(self, rows: int, column: ColumnValues) -> None:
        """Encode a page of rows."""
        self._rows.append(rows)
        if column is not None:
            self._encode(rows, column)
            return
        self._note(rows, None)
        self.is_ascending = False
        for chunk in self._chunks:
            chunk.add_null_page(rows)

    def finish(self, at: int) -> list[tuple[list[bytes], ChunkInfo]]:
        """Return the chunks of its leaves, for file offset `at`; reset the builder."""
        rows = self._rows if len(self._rows) > 1 else ()
        nulls = None if self._is_nested else self._nulls
        is_known = not self._is_nested and len(self._ranges) == len(self._rows)
        ranges = self._ranges if is_known else ()
        texts = self._distinct_texts() if self._has_bloom_filter else ()
        encoded = []
        for chunk in self._chunks:
            encoded.append(chunk.finish(at, nulls, ranges, rows, texts))
            at += encoded[-1][1].bytes
        self._start()
        return encoded

    def _start(self) -> None:
        self.is_ascending = self._is_sorted_by
        self._rows: list[int] = []
        self._nulls = 0
        self._ranges: list[PageStatistics] = []

    def _note(self, nulls: int, bounds: Bounds | None) -> None:
        """Record the statistics of a page."""
        self._nulls += nulls
        self._ranges.append(PageStatistics(nulls, bounds))

    def _distinct_texts(self) -> Sequence[bytes]:
        """Return the distinct texts of this row group."""
        return ()

    @abstractmethod
    def _encode(self, rows: int, column: Any) -> None:
        """Encode a page that is not all null, and record its statistics."""


def chunks_for(column: Column, work: Workspace) -> ColumnChunks:
    """Return the builder for a column's type."""
    kind: type[ColumnChunks] = NestedChunks
    if column.type in ("bigint", "timestamp[us, UTC]"):
        kind = NumberChunk
    elif column.type == "boolean":
        kind = FlagChunk
    elif column.type == "string":
        kind = CodedChunk if column.repeats else TextChunk
    return kind(column, work)


class NumberChunk(ColumnChunks):
    """Integers and times, delta-packed."""

    def _start(self) -> None:
        super()._start()
        self._last = -1 << 63

    def _encode(self, rows: int, column: Numbers) -> None:
        out = self._work.out(10 * rows + _SPARE)
        page = encodings.number_page(column.values, column.is_time, self._work.scratch, out)
        self._chunk.add_page(out[: page.size], rows, Encoding.DELTA_BINARY_PACKED)
        self._note(rows - page.values, (page.least, page.most) if page.values else None)
        if self.is_ascending:
            # Compare ns: the file's rounded µs may ascend where the ns do not.
            values = column.values
            first, last = int(values[0]), int(values[-1])
            is_behind = page.values == rows and first >= self._last
            self.is_ascending = is_behind and bool((values[1:] >= values[:-1]).all())
            self._last = last


class FlagChunk(ColumnChunks):
    """Flags, one bit each."""

    def _encode(self, rows: int, column: Flags) -> None:
        out = self._work.out(rows + _SPARE)
        page = encodings.flag_page(column.values, column.present, out)
        self._chunk.add_page(out[: page.size], rows, Encoding.PLAIN)
        self._note(rows - page.values, (page.least, page.most) if page.values else None)


class CodedChunk(ColumnChunks):
    """Text that repeats: indices in a dictionary of the row group, in order of first use."""

    def _start(self) -> None:
        super()._start()
        self._texts: list[bytes] = []
        self._used: Int64Array = np.empty(0, np.int64)
        self._names: Sequence[bytes] | Sequence[str] = ()
        self._indices: npt.NDArray[np.int32] = np.empty(0, np.int32)
        self._index_of: dict[str, int] = {}

    def _encode(self, rows: int, column: Codes | pa.StringArray) -> None:
        if isinstance(column, Codes):
            self._grow(column.names)
            self._add_codes(column.codes, self._names, self._indices)
        else:
            self._add_texts(column)

    def finish(self, at: int) -> list[tuple[list[bytes], ChunkInfo]]:
        if self._texts:
            self._chunk.set_dictionary(self._texts)
        return super().finish(at)

    def _distinct_texts(self) -> Sequence[bytes]:
        return self._texts

    def _grow(self, names: Sequence[bytes] | Sequence[str]) -> None:
        """Size the index array for these names; a different name list starts without indices."""
        if names is not self._names:
            self._names, self._indices = names, np.full(len(names), -1, np.int32)
        elif len(names) > len(self._indices):
            more = np.full(len(names) - len(self._indices), -1, np.int32)
            self._indices = np.concatenate((self._indices, more))

    def _add_texts(self, array: pa.StringArray) -> None:
        """Encode a page of texts; texts of earlier pages keep their dictionary index."""
        codes, names = _coded(array)
        indices = np.array([self._index_of.get(name, -1) for name in names], np.int32)
        known = len(self._texts)
        self._add_codes(codes, names, indices)
        for index in range(known, len(self._texts)):
            self._index_of[self._texts[index].decode()] = index

    def _add_codes(
        self,
        codes: npt.NDArray[np.int32],
        names: Sequence[bytes] | Sequence[str],
        indices: npt.NDArray[np.int32],
    ) -> None:
        known = len(self._texts)
        assert len(codes) == 0 or int(codes.max()) < len(indices), "a code without a name"
        need = known + min(len(indices), len(codes))
        if len(self._used) < need:
            self._used = np.concatenate((self._used, np.empty(need, np.int64)))
        out = self._work.out(10 * len(codes) + _SPARE)
        scratch = self._work.scratch
        page = encodings.code_page(codes, indices, self._used, known, scratch, out)
        used = self._used[known : page.used].tolist()
        self._texts += plain_bytes(map(names.__getitem__, used))
        texts = self._texts
        if known:  # else all texts of the dictionary are of this page
            is_in_page = np.zeros(page.used, np.bool_)
            is_in_page[scratch[: page.indices]] = True
            texts = [texts[index] for index in np.flatnonzero(is_in_page).tolist()]
        self._note(len(codes) - page.values, (min(texts), max(texts)) if texts else None)
        self._chunk.add_page(out[: page.size], len(codes), Encoding.RLE_DICTIONARY)


class TextChunk(ColumnChunks):
    """Text that rarely repeats, PLAIN; without ranges, as these would exclude no page."""

    def _start(self) -> None:
        super()._start()
        self._texts: set[bytes] = set()

    def _encode(self, rows: int, column: pa.StringArray) -> None:
        present = bits_of(column)
        levels = _bit_levels(present)
        self._nulls += column.null_count
        if self._has_bloom_filter:
            self._texts.update([text.encode() for text in filter(_is_text, column.to_pylist())])
        self._chunk.add_page(levels + _texts(column, present, self._work), rows, Encoding.PLAIN)

    def _distinct_texts(self) -> Sequence[bytes]:
        return list(self._texts)


class NestedChunks(ColumnChunks):
    """Lists and maps: rare, so numpy computes their levels, not a kernel."""

    def _encode(self, rows: int, column: pa.ListArray | pa.MapArray) -> None:
        is_map = isinstance(column, pa.MapArray)
        values = (column.keys, column.items) if is_map else (column.values,)
        deepest = (_KEY, _ELEMENT) if is_map else (_ELEMENT,)
        for chunk, leaf, level in zip(self._chunks, values, deepest, strict=True):
            assert leaf.null_count == 0, "nulls inside a list or map"
            levels, count = _list_levels(column, level, self._work)
            body, encoding = self._values(leaf)
            chunk.add_page(levels + body, count, encoding)

    def _values(self, values: pa.Array) -> tuple[bytes, Encoding]:
        if pa.types.is_string(values.type):
            return _texts(values, np.ones(len(values), np.bool_), self._work), Encoding.PLAIN
        # Not by to_numpy, which imports pandas: a third of the time of a short run.
        first = values.offset
        numbers = np.frombuffer(values.buffers()[1], np.int64, first + len(values))[first:]
        out = self._work.out(10 * len(numbers) + _SPARE)
        size = encodings.delta_run(numbers, self._work.block, out)
        return out[:size].tobytes(), Encoding.DELTA_BINARY_PACKED


def _coded(array: pa.StringArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return the codes of an array of text, -1 for null, and the text of each code."""
    present = bits_of(array)
    if len(array) >= _FEW_TEXTS and (only := _only_text(array, present)) is not None:
        return present.astype(np.int32) - 1, [only]
    if len(array) < _FEW_TEXTS:
        texts = array.to_pylist()
        numbers = {text: n for n, text in enumerate(dict.fromkeys(filter(_is_text, texts)))}
        return np.array([numbers.get(text, -1) for text in texts], np.int32), list(numbers)
    coded = array.dictionary_encode()
    indices = coded.indices
    codes = np.frombuffer(indices.buffers()[1], np.int32)[indices.offset :][: len(array)]
    return np.where(present, codes, -1).astype(np.int32), coded.dictionary.to_pylist()


def _only_text(array: pa.StringArray, present: npt.NDArray[np.bool_]) -> str | None:
    """Return the text of all non-null rows; None if they differ or there are none."""
    ends, data = _extents(array)
    sizes = np.diff(ends)[present]
    if not len(sizes) or (sizes != sizes[0]).any() or ends[-1] - ends[0] != sizes.sum():
        return None
    texts = data[ends[0] : ends[-1]].reshape(len(sizes), -1)
    return None if (texts != texts[0]).any() else texts[0].tobytes().decode()


def _is_text(value: str | None) -> bool:
    return value is not None


def _bit_levels(present: npt.NDArray[np.bool_]) -> bytes:
    rows = len(present)
    if present.all():
        run = varint(rows << 1) + b"\1"
    else:
        bits = np.packbits(present, bitorder="little").tobytes()
        run = varint(len(bits) << 1 | 1) + bits
    return struct.pack("<I", len(run)) + run


def _texts(array: pa.Array, present: npt.NDArray[np.bool_], work: Workspace) -> bytes:
    """Encode the texts of an array of strings, each after its length."""
    ends, text = _extents(array)
    out = work.out(4 * len(array) + int(ends[-1] - ends[0]))
    return out[: encodings.text_page(text, ends, present.view(np.uint8), out)].tobytes()


def _extents(array: pa.Array) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Return the text offsets (int64[rows + 1]) of an array of strings, and its bytes."""
    _, bounds, data = array.buffers()
    first, rows = array.offset, len(array)
    ends = np.frombuffer(bounds, np.int32, first + rows + 1)[first:].astype(np.int64)
    return ends, np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)


def _list_levels(array: pa.Array, deepest: int, work: Workspace) -> tuple[bytes, int]:
    """Encode the repetition and definition levels of a list or map; return them and their count."""

    present = bits_of(array)
    bounds = np.frombuffer(array.buffers()[1], np.int32, array.offset + len(array) + 1)
    counts = np.diff(bounds[array.offset :]).astype(np.int64)
    assert not counts[~present].any(), "a null list has no elements"
    slots = np.maximum(counts, 1)
    total = int(slots.sum())
    starts = np.cumsum(slots) - slots
    padded = total + -total % 8
    repeats = np.zeros(padded, np.int64)
    repeats[:total] = 1
    repeats[starts] = 0
    levels = np.zeros(padded, np.int64)
    levels[:total] = deepest
    levels[starts] = np.where(counts > 0, deepest, np.where(present, _EMPTY, 0))
    out = work.out(2 * padded + _SPARE)
    size = encodings.level_run(repeats, 1, out)
    runs = out[:size].tobytes()
    size = encodings.level_run(levels, 2, out)
    return runs + out[:size].tobytes(), total
