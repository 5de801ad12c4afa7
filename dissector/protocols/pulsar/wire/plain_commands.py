"""Which commands say nothing beyond their columns, told by the tags of their fields alone.

Of lookups and the like a flood comes, and nothing is left to say of them: to read each with the
protobuf library took longer than all else that is done with it.
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

_FIELDS: Final = 64  # of a command; those with larger numbers count as beyond
_LENGTH: Final = 2  # the wire type of what has a length
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
    """uint8[rows], 1 where the command of a chosen frame has no field without a column, or is not
    whole; 0 where it must be read to tell, as of one that is damaged."""
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
    """Do what `are_plain` says. frames: int64[3, rows], source, offset and bytes."""
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
