"""Find commands whose fields all have columns, by the tags of their fields alone.

Lookups and similar commands may come in floods and have no further fields: parsing each with the
protobuf library took longer than all other work on it.
"""

from functools import cache
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import be32
from dissector.jit import inlined, kernel
from dissector.protobuf.descriptors import descriptors
from dissector.protobuf.scan import next_field
from dissector.protocols.columns import FrameColumns
from dissector.protocols.interface import Sources
from dissector.protocols.pulsar.wire.columns import shown_paths

_FIELDS: Final = 64  # of a command; fields with larger numbers count as without a column
_LENGTH: Final = 2  # wire type of length-delimited fields
_SIZE_BYTES: Final = 4


@cache
def _shown_fields() -> ByteArray:
    """uint8[commands, _FIELDS], by their numbers: 1 where a field of a command has a column."""
    base = descriptors().messages["BaseCommand"]
    shown = np.zeros((1 + max(base), _FIELDS), np.uint8)
    for number, command in base.items():
        for inner, field in descriptors().messages.get(command.of, {}).items():
            if inner < _FIELDS:
                shown[number, inner] = (command.name, field.name) in shown_paths()
    return shown


def are_plain(frames: FrameColumns, rows: Int64Array, sources: Sources) -> ByteArray:
    """uint8[rows], 1 where all fields of a chosen frame's command have columns, or it is cut; 0
    where it must be parsed, also if it is damaged."""
    columns = frames.source, frames.data_offset, frames.data_bytes
    plain = np.empty(len(rows), np.uint8)
    _mark_plain(sources, np.stack([column[rows] for column in columns]), _shown_fields(), plain)
    return plain


@kernel
def _mark_plain(
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray],
    frames: Int64Array,
    shown: ByteArray,
    plain: ByteArray,
) -> None:
    """Write `plain` for `are_plain`. frames: int64[3, rows], source, offset and bytes."""
    for row in range(len(plain)):
        data = sources[frames[0, row]]
        at, end = frames[1, row] + _SIZE_BYTES, frames[1, row] + frames[2, row]
        plain[row] = 1
        if end - at >= _SIZE_BYTES:
            size = be32(data, at)
            at += _SIZE_BYTES
            if size <= end - at:
                plain[row] = int(_is_plain(data, at, at + size, shown))


@inlined
def _is_plain(data: ByteArray, at: int, end: int, shown: ByteArray) -> bool:
    """Whether all fields of all messages inside the command have a column."""
    while at < end:
        part = next_field(data, at, end)
        if part.next < 0:
            return False
        at = part.next
        if part.wire == _LENGTH:
            if part.number >= len(shown):
                return False
            at += part.value
            if not _are_shown(data, part.next, at, shown, part.number):
                return False
    return True


@inlined
def _are_shown(data: ByteArray, at: int, end: int, shown: ByteArray, command: int) -> bool:
    """Whether all fields of a message inside a command have a column."""
    while at < end:
        field = next_field(data, at, end)
        if field.next < 0 or field.number >= _FIELDS or shown[command, field.number] == 0:
            return False
        at = field.next + (field.value if field.wire == _LENGTH else 0)
    return True
