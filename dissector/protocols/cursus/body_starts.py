"""The first bytes of a body: its shape, and the literal with which a compressed body begins."""

import enum
from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16, be32, byte
from dissector.jit import inlined, kernel
from dissector.protocols.cursus import batches
from dissector.protocols.cursus.commands import is_blank

MAX_TOPIC_BYTES: Final = 249
_GZIP: Final = 0x1F8B
_LZ4: Final = 0x04224D18
_XERIAL: Final = 0x82534E41  # 0x82 and "SNA"
_XERIAL_HEADER: Final = 20  # with the size of the first block
_UNKNOWN_END: Final = 1 << 40
_SIZE_BYTES: Final = 16  # of a literal's size; literals with longer sizes are not examined


class BodyShape(enum.IntEnum):
    """Shapes of a body, by its first bytes."""

    EMPTY = 0
    BATCH_BODY = 1
    ENVELOPE = 2
    TEXT = 3
    JSON = 4
    GZIP = 5
    LZ4_FRAME = 6
    XERIAL = 7
    OTHER = 8


class Literal(NamedTuple):
    """The uncompressed bytes with which all compressors begin a body.

    at: offset of the first, `end` or more if more bytes are needed, -1 if there are none.
    stop: exclusive end.
    body_end: where the body would end if it were not compressed, if its header has the size.
    """

    at: int
    stop: int
    body_end: int


@kernel
def shape_of(data: ByteArray, at: int, end: int) -> int:
    """The shape of a body by its first bytes; OTHER also if there are too few of them."""
    have = end - at
    if have <= 0:
        return BodyShape.EMPTY
    first = byte(data, at)
    if first == 0xBA and have >= 2 and be16(data, at) == batches.MAGIC:
        return BodyShape.BATCH_BODY
    if first == 0x00 and have >= 2 and byte(data, at + 1) <= MAX_TOPIC_BYTES:
        return BodyShape.ENVELOPE
    if first == 0x7B or first == 0x5B:
        return BodyShape.JSON
    if first == 0x1F and have >= 3 and be16(data, at) == _GZIP and byte(data, at + 2) == 8:
        return BodyShape.GZIP
    if first == 0x04 and have >= 4 and be32(data, at) == _LZ4:
        return BodyShape.LZ4_FRAME
    if first == 0x82 and have >= 8 and be32(data, at) == _XERIAL:
        return BodyShape.XERIAL
    if 0x61 <= first <= 0x7A or 0x41 <= first <= 0x5A or is_blank(first):
        return BodyShape.TEXT
    return BodyShape.OTHER


@inlined
def _snappy_literal(data: ByteArray, at: int, end: int) -> Literal:
    """The literal of a bare snappy block, which has no mark, behind its length and a tag."""
    raw = shift = 0
    cursor = at
    while cursor < min(end, at + 4) and byte(data, cursor) >= 0x80:
        raw |= (byte(data, cursor) & 0x7F) << shift
        shift += 7
        cursor += 1
    if end - cursor < 2:
        return Literal(end, end, end)
    raw |= byte(data, cursor) << shift
    tag = byte(data, cursor + 1)
    if tag & 3:
        return Literal(-1, -1, -1)
    size = (tag >> 2) + 1
    cursor += 2
    if size > 60:
        extra = size - 60
        size = 0
        if end - cursor < extra:
            return Literal(end, end, end)
        for number in range(extra):
            size |= byte(data, cursor + number) << (8 * number)
        size += 1
        cursor += extra
    return Literal(cursor, cursor + size, cursor + raw)


@inlined
def _lz4_literal(data: ByteArray, at: int, end: int) -> Literal:
    """The literal of an LZ4 frame, behind its header, a block's size and a token."""
    if end - at < 5:
        return Literal(end, end, end)
    flags = byte(data, at + 4)
    if flags >> 6 != 1:
        return Literal(-1, -1, -1)
    cursor = at + 7 + (8 if flags & 8 else 0) + (4 if flags & 1 else 0)
    if end - cursor < 5:
        return Literal(end, end, end)
    is_copied = byte(data, cursor + 3) >= 0x80
    cursor += 4
    if is_copied:
        return Literal(cursor, _UNKNOWN_END, _UNKNOWN_END)
    size = byte(data, cursor) >> 4
    cursor += 1
    if size == 15:
        first = cursor
        while cursor < end and byte(data, cursor) == 0xFF:
            size += 0xFF
            cursor += 1
        if cursor - first > _SIZE_BYTES:
            return Literal(-1, -1, -1)
        if cursor >= end:
            return Literal(end, end, end)
        size += byte(data, cursor)
        cursor += 1
    return Literal(cursor, cursor + size, _UNKNOWN_END)


@inlined
def literal_of(data: ByteArray, at: int, end: int, shape: int) -> Literal:
    """The literal of a body of a shape; shapes without a mark are read as a snappy block."""
    if shape == BodyShape.LZ4_FRAME:
        return _lz4_literal(data, at, end)
    if shape == BodyShape.GZIP:
        return Literal(-1, -1, -1)
    return _snappy_literal(data, at + _XERIAL_HEADER if shape == BodyShape.XERIAL else at, end)
