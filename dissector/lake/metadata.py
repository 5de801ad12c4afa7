"""What stands around the pages of a Parquet file: schema, page headers, footer.

Numbers of fields, types and encodings are those of the Parquet format (parquet.thrift).
"""

import enum
from functools import cache, lru_cache
from typing import Final, NamedTuple

from dissector.lake.thrift import Struct, struct_list
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
_ZSTD: Final = 6
_DATA_PAGE: Final = 0
_DICTIONARY_PAGE: Final = 2
_FORMAT_VERSION: Final = 2
_CREATED_BY: Final = b"pulsar-dissector version 1"


class Leaf(NamedTuple):
    """One column of values in a file: a plain column is one, a map has two.

    path: names from the table down.
    type: physical.
    """

    path: tuple[str, ...]
    type: int


class ChunkInfo(NamedTuple):
    """The values of one leaf in one row group.

    encodings: all that its pages use.
    values: with nulls.
    raw_bytes, bytes: of its pages, before and after compression, headers included.
    dictionary_at: null without a dictionary.
    statistics: null where none are kept.
    """

    leaf: Leaf
    encodings: tuple[int, ...]
    values: int
    raw_bytes: int
    bytes: int
    data_at: int
    dictionary_at: int | None
    statistics: Struct | None


class GroupInfo(NamedTuple):
    """One row group: its chunks in the order of the leaves, its rows, where it starts."""

    chunks: tuple[ChunkInfo, ...]
    rows: int
    at: int


@cache
def leaves(column: Column) -> tuple[Leaf, ...]:
    """The leaves of a column."""
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
    """The header of a page of values."""
    head = Struct().i32(1, _DATA_PAGE).i32(2, raw_bytes).i32(3, size)
    return bytes(head.struct(5, _data_page(values, encoding)))


@lru_cache(MAX_KEPT_PAGES)
def _data_page(values: int, encoding: int) -> Struct:
    return Struct().i32(1, values).i32(2, encoding).i32(3, Encoding.RLE).i32(4, Encoding.RLE)


def dictionary_page_header(raw_bytes: int, size: int, values: int) -> bytes:
    """The header of a dictionary."""
    page = Struct().i32(1, values).i32(2, Encoding.PLAIN)
    return bytes(Struct().i32(1, _DICTIONARY_PAGE).i32(2, raw_bytes).i32(3, size).struct(7, page))


def number_statistics(least: int, most: int, nulls: int) -> Struct:
    """The range of a chunk of integers."""
    statistics = Struct().i64(3, nulls)
    if least <= most:
        statistics.binary(5, most.to_bytes(8, "little", signed=True))
        statistics.binary(6, least.to_bytes(8, "little", signed=True))
    return statistics


def text_statistics(least: bytes, most: bytes, nulls: int) -> Struct:
    """The range of a chunk of texts, as their bytes compare."""
    return Struct().i64(3, nulls).binary(5, most).binary(6, least)


def footer(table: str, groups: list[GroupInfo]) -> bytes:
    """What ends a file: the schema and where everything is, its length, the mark."""
    schema, orders = _of_all_files(table)
    metadata = schema.copy().i64(3, sum(group.rows for group in groups))
    metadata.structs(4, [_group(number, group) for number, group in enumerate(groups)])
    metadata.binary(6, _CREATED_BY).listed(7, orders)
    data = bytes(metadata)
    return data + len(data).to_bytes(4, "little") + MAGIC


@cache
def _of_all_files(table: str) -> tuple[Struct, bytes]:
    """What is the same in each file of a table: how its footer begins, with the schema, and how
    columns are ordered."""
    columns = TABLES[table].columns
    schema = [Struct().binary(4, b"schema").i32(5, len(columns))]
    for column in columns:
        schema.extend(_elements(column))
    ordered = [Struct().struct(1, Struct())] * sum(len(leaves(column)) for column in columns)
    return Struct().i32(1, _FORMAT_VERSION).structs(2, schema), struct_list(ordered)


def _elements(column: Column) -> list[Struct]:
    """The schema of one column."""
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


def _group(number: int, group: GroupInfo) -> Struct:
    row_group = Struct().structs(1, [_chunk(chunk) for chunk in group.chunks])
    row_group.i64(2, sum(chunk.raw_bytes for chunk in group.chunks)).i64(3, group.rows)
    row_group.i64(5, group.at).i64(6, sum(chunk.bytes for chunk in group.chunks))
    return row_group.i16(7, number)


@cache
def _kind(leaf: Leaf, encodings: tuple[int, ...]) -> Struct:
    kind = Struct().i32(1, leaf.type).i32s(2, encodings)
    return kind.binaries(3, [name.encode() for name in leaf.path]).i32(4, _ZSTD)


def _chunk(chunk: ChunkInfo) -> Struct:
    metadata = _kind(chunk.leaf, chunk.encodings).copy()
    metadata.i64s_from(5, chunk.values, chunk.raw_bytes, chunk.bytes).i64(9, chunk.data_at)
    if chunk.dictionary_at is not None:
        metadata.i64(11, chunk.dictionary_at)
    if chunk.statistics is not None:
        metadata.struct(12, chunk.statistics)
    return Struct().i64(2, 0).struct(3, metadata)
