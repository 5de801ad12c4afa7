"""Encodes the metadata of a Parquet file: page headers, page indexes, schema, footer.

Numbers of fields, types and encodings are those of the Parquet format (parquet.thrift).
"""

import enum
from collections.abc import Sequence
from functools import cache, lru_cache
from struct import Struct as StructOfBytes
from typing import Final, NamedTuple, TypeAlias

from dissector.lake.settings import SETTINGS
from dissector.lake.thrift import Struct, struct_list, varint
from dissector.limits import MAX_KEPT_PAGES
from dissector.schemas import TABLES, Column

MAGIC: Final = b"PAR1"


class Encoding(enum.IntEnum):
    """Encodings of pages."""

    PLAIN = 0
    RLE = 3
    DELTA_BINARY_PACKED = 5
    RLE_DICTIONARY = 8


_BOOLEAN: Final = 0
_INT64: Final = 2
_BYTE_ARRAY: Final = 6
_REQUIRED: Final = 0
_OPTIONAL: Final = 1
_REPEATED: Final = 2
_UTF8: Final = 0
_MAP: Final = 1
_LIST: Final = 3
_TIMESTAMP_MICROS: Final = 10
_UNCOMPRESSED: Final = 0
_ZSTD: Final = 6
_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_FORMAT_VERSION: Final = 2
_ONE_BYTE: Final = StructOfBytes("<b").pack
_EIGHT_BYTES: Final = StructOfBytes("<q").pack
_UNORDERED: Final = 0
# Headers of the statistics fields 5, 6, then 7 and 8 (flags), relative to the previous field.
_MOST: Final = b"\x28"
_LEAST: Final = b"\x18"
_EXACT: Final = (b"\x12", b"\x11")
_LAST_CHARACTER: Final = "\U0010ffff"
_SURROGATES: Final = 0xD800
_AFTER_SURROGATES: Final = 0xE000
_CREATED_BY: Final = b"pulsar-dissector version 1"


# Least and most of some values, in the column's sort order.
Bounds: TypeAlias = tuple[int, int] | tuple[bytes, bytes]


class PageStatistics(NamedTuple):
    """Statistics of one page; `bounds` is None if all of its rows are null."""

    nulls: int
    bounds: Bounds | None


class FileRange(NamedTuple):
    """Byte offset and size of a page index or a Bloom filter in a file."""

    at: int
    size: int


class Leaf(NamedTuple):
    """A leaf column of the Parquet schema: a plain column has one, a map has two.

    path: names of the schema elements from the column down.
    type: physical.
    """

    path: tuple[str, ...]
    type: int


Encoded: TypeAlias = bytes  # where a field is named bytes


class ChunkInfo(NamedTuple):
    """Metadata of one column chunk: a leaf's pages in one row group.

    encodings: of all its pages.
    values: count, nulls included.
    raw_bytes, bytes: of its pages, before and after compression, headers included.
    is_compressed: if false, both sizes are equal.
    dictionary_at: None without a dictionary.
    statistics: encoded; empty if there are none.
    bloom_filter: with its header; empty if there is none.
    column_index, offset_index: encoded ColumnIndex and OffsetIndex; empty if there are none.
    """

    leaf: Leaf
    encodings: tuple[int, ...]
    values: int
    raw_bytes: int
    bytes: int
    is_compressed: bool
    data_at: int
    dictionary_at: int | None
    statistics: Encoded
    bloom_filter: Encoded
    column_index: Encoded
    offset_index: Encoded


class GroupInfo(NamedTuple):
    """Metadata of one row group.

    chunks: in the order of the leaves. rows: count. at: byte offset.
    sorted_by: indexes of the leaves by which its rows ascend, in order of precedence.
    bloom_filters: positions of the written filters by leaf.
    """

    chunks: tuple[ChunkInfo, ...]
    rows: int
    at: int
    sorted_by: tuple[int, ...]
    bloom_filters: dict[Leaf, FileRange]


@cache
def leaves(column: Column) -> tuple[Leaf, ...]:
    """Return the leaves of a column."""
    name = column.name
    if column.type == "boolean":
        return (Leaf((name,), _BOOLEAN),)
    if column.type == "string":
        return (Leaf((name,), _BYTE_ARRAY),)
    if column.type.startswith("array"):
        kind = _INT64 if "bigint" in column.type else _BYTE_ARRAY
        return (Leaf((name, "list", "element"), kind),)
    if column.type.startswith("map"):
        kind = _INT64 if "bigint" in column.type else _BYTE_ARRAY
        return (
            Leaf((name, "key_value", "key"), _BYTE_ARRAY),
            Leaf((name, "key_value", "value"), kind),
        )
    return (Leaf((name,), _INT64),)


def data_page_header(raw_bytes: int, size: int, values: int, encoding: int) -> bytes:
    """Encode the header of a data page."""
    head = Struct().i32(1, _DATA_PAGE).i32(2, raw_bytes).i32(3, size)
    return bytes(head.struct(5, _data_page(values, encoding)))


@lru_cache(MAX_KEPT_PAGES)
def _data_page(values: int, encoding: int) -> Struct:
    return Struct().i32(1, values).i32(2, encoding).i32(3, Encoding.RLE).i32(4, Encoding.RLE)


def dictionary_page_header(raw_bytes: int, size: int, values: int) -> bytes:
    """Encode the header of a dictionary page."""
    page = Struct().i32(1, values).i32(2, Encoding.PLAIN)
    return bytes(Struct().i32(1, _DICTIONARY_PAGE).i32(2, raw_bytes).i32(3, size).struct(7, page))


def merged(ranges: Sequence[PageStatistics]) -> PageStatistics:
    """Merge the statistics of all pages of a chunk."""
    if len(ranges) == 1:
        return ranges[0]
    nulls = sum([each.nulls for each in ranges])
    bounds = [each.bounds for each in ranges if each.bounds is not None]
    if not bounds:
        return PageStatistics(nulls, None)
    least = min(bounds, key=_least)[0]
    return PageStatistics(nulls, (least, max(bounds, key=_most)[1]))  # type: ignore[arg-type]


def _least(bounds: Bounds) -> int | bytes:
    return bounds[0]


def _most(bounds: Bounds) -> int | bytes:
    return bounds[1]


@lru_cache(MAX_KEPT_PAGES)
def null_statistics(rows: int) -> bytes:
    """Encode the statistics of a chunk of which only the number of nulls is known."""
    return bytes(Struct().i64(3, rows))


def statistics(leaf: Leaf, span: PageStatistics) -> bytes:
    """Encode the statistics of a chunk: nulls (3), most (5), least (6). Not by Struct, which is
    slower: even the smallest file has one per column."""
    nulls = null_statistics(span.nulls)
    if span.bounds is None:
        return nulls
    least, most = _plain(leaf, span.bounds)
    begin = nulls[:-1] + _MOST + varint(len(most)) + most + _LEAST + varint(len(least)) + least
    if leaf.type != _BYTE_ARRAY:
        return begin + b"\0"
    return begin + _EXACT[most == span.bounds[1]] + _EXACT[least == span.bounds[0]] + b"\0"


def column_index(leaf: Leaf, ranges: Sequence[PageStatistics]) -> bytes:
    """Encode the ColumnIndex, by which readers skip pages of a chunk."""
    plain = [(b"", b"") if each.bounds is None else _plain(leaf, each.bounds) for each in ranges]
    index = Struct().flags(1, [each.bounds is None for each in ranges])
    index.binaries(2, [least for least, _ in plain]).binaries(3, [most for _, most in plain])
    return bytes(index.i32(4, _UNORDERED).i64s(5, [each.nulls for each in ranges]))


def offset_index(at: int, sizes: Sequence[int], rows: Sequence[int]) -> bytes:
    """Encode the OffsetIndex: the positions of a chunk's pages.

    Args:
        at: offset of the first page. sizes, rows: of each page; pages are consecutive.
    """
    locations = []
    first = 0
    for size, count in zip(sizes, rows, strict=True):
        locations.append(Struct().i64(1, at).i32(2, size).i64(3, first))
        at += size
        first += count
    return bytes(Struct().structs(1, locations))


def _plain(leaf: Leaf, bounds: Bounds) -> tuple[bytes, bytes]:
    """Encode bounds; long texts are cut so that they remain a lower and an upper bound."""
    least, most = bounds
    if isinstance(least, bytes) and isinstance(most, bytes):
        return _cut(least), _above(most)
    assert isinstance(least, int) and isinstance(most, int)
    encoded = _ONE_BYTE if leaf.type == _BOOLEAN else _EIGHT_BYTES
    return encoded(least), encoded(most)


def _cut(text: bytes) -> bytes:
    if len(text) <= SETTINGS.text_bound_bytes:
        return text
    return text[: SETTINGS.text_bound_bytes].decode("utf-8", "ignore").encode()


def _above(text: bytes) -> bytes:
    """Return a short upper bound of a text: cut it, and raise its last character that is not the
    highest. Code points compare as their UTF-8 bytes do.
    """
    if len(text) <= SETTINGS.text_bound_bytes:
        return text
    characters = _cut(text).decode().rstrip(_LAST_CHARACTER)
    if not characters:
        return text
    raised = ord(characters[-1]) + 1
    return (characters[:-1] + chr(_AFTER_SURROGATES if raised == _SURROGATES else raised)).encode()


def footer(
    table: str,
    groups: Sequence[GroupInfo],
    indexes: Sequence[Sequence[tuple[FileRange, FileRange]]] = (),
) -> bytes:
    """Encode the end of a file: the FileMetaData, its length, the magic.

    Args:
        indexes: for each group and chunk, the positions of ColumnIndex and OffsetIndex, size 0 for
            a missing one; empty for a file without indexes.
    """
    schema, orders = _of_all_files(table)
    metadata = schema.copy().i64(3, sum(group.rows for group in groups))
    metadata.structs(
        4,
        [
            _group(number, group, indexes[number] if indexes else ())
            for number, group in enumerate(groups)
        ],
    )
    metadata.binary(6, _CREATED_BY).listed(7, orders)
    data = bytes(metadata)
    return data + len(data).to_bytes(4, "little") + MAGIC


@cache
def _of_all_files(table: str) -> tuple[Struct, bytes]:
    """Encode what all files of a table share: the first fields of the footer with the schema, and
    the column orders."""
    columns = TABLES[table].columns
    schema = [Struct().binary(4, b"schema").i32(5, len(columns))]
    for column in columns:
        schema.extend(_elements(column))
    ordered = [Struct().struct(1, Struct())] * sum(len(leaves(column)) for column in columns)
    return Struct().i32(1, _FORMAT_VERSION).structs(2, schema), struct_list(ordered)


def _elements(column: Column) -> list[Struct]:
    """Return the schema elements of one column."""
    if column.type.startswith("array"):
        inner = "string" if "string" in column.type else "bigint"
        return [
            _parent(column.name, _OPTIONAL, 1, _LIST, 3),
            _parent("list", _REPEATED, 1),
            _leaf("element", inner, _OPTIONAL),
        ]
    if column.type.startswith("map"):
        inner = "string" if "string>" in column.type else "bigint"
        return [
            _parent(column.name, _OPTIONAL, 1, _MAP, 2),
            _parent("key_value", _REPEATED, 2),
            _leaf("key", "string", _REQUIRED),
            _leaf("value", inner, _OPTIONAL),
        ]
    return [_leaf(column.name, column.type, _OPTIONAL)]


def _parent(
    name: str, repetition: int, children: int, converted: int | None = None, logical: int = 0
) -> Struct:
    element = Struct().i32(3, repetition).binary(4, name.encode()).i32(5, children)
    if converted is not None:
        element.i32(6, converted).struct(10, Struct().struct(logical, Struct()))
    return element


def _leaf(name: str, kind: str, repetition: int) -> Struct:
    physical = {"boolean": _BOOLEAN, "string": _BYTE_ARRAY}.get(kind, _INT64)
    element = Struct().i32(1, physical).i32(3, repetition).binary(4, name.encode())
    if kind == "string":
        element.i32(6, _UTF8).struct(10, Struct().struct(1, Struct()))
    elif kind.startswith("timestamp"):
        micros = Struct().struct(2, Struct())
        logical = Struct().flag(1, True).struct(2, micros)
        element.i32(6, _TIMESTAMP_MICROS).struct(10, Struct().struct(8, logical))
    return element


def _group(number: int, group: GroupInfo, indexes: Sequence[tuple[FileRange, FileRange]]) -> Struct:
    blooms = group.bloom_filters
    chunks = [_chunk(chunk, blooms.get(chunk.leaf)) for chunk in group.chunks]
    for chunk, (column_index, offset_index) in zip(chunks, indexes, strict=bool(indexes)):
        if offset_index.size:
            chunk.i64(4, offset_index.at).i32(5, offset_index.size)
        if column_index.size:
            chunk.i64(6, column_index.at).i32(7, column_index.size)
    row_group = Struct().structs(1, chunks)
    row_group.i64(2, sum(chunk.raw_bytes for chunk in group.chunks)).i64(3, group.rows)
    if group.sorted_by:
        row_group.structs(
            4, [Struct().i32(1, leaf).flag(2, False).flag(3, False) for leaf in group.sorted_by]
        )
    row_group.i64(5, group.at).i64(6, sum(chunk.bytes for chunk in group.chunks))
    return row_group.i16(7, number)


@cache
def _kind(leaf: Leaf, encodings: tuple[int, ...], codec: int) -> Struct:
    kind = Struct().i32(1, leaf.type).i32s(2, encodings)
    return kind.binaries(3, [name.encode() for name in leaf.path]).i32(4, codec)


def _chunk(chunk: ChunkInfo, bloom: FileRange | None) -> Struct:
    codec = _ZSTD if chunk.is_compressed else _UNCOMPRESSED
    metadata = _kind(chunk.leaf, chunk.encodings, codec).copy()
    metadata.i64s_from(5, chunk.values, chunk.raw_bytes, chunk.bytes).i64(9, chunk.data_at)
    if chunk.dictionary_at is not None:
        metadata.i64(11, chunk.dictionary_at)
    if chunk.statistics:
        metadata.encoded(12, chunk.statistics)
    if bloom is not None:
        metadata.i64(14, bloom.at).i32(15, bloom.size)
    return Struct().i64(2, 0).struct(3, metadata)
