"""Kernel that uncompresses many LZ4 blocks in one call.

A library call costs more than uncompressing the few hundred bytes of a usual entry. The kernel
accepts only blocks that LZ4's own decoder accepts, and outputs the same bytes. A block that is
invalid, or differs from the announced size, is left to the library, which reports the reason.
"""

from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle
from dissector.codecs.integers import byte, le16, le64
from dissector.jit import inlined, kernel

_LONG: Final = 15  # a length of four bits that goes on in further bytes
_SHORTEST_MATCH: Final = 4
_LAST_LITERALS: Final = 5  # with so many bytes a block ends at least
_LAST_MATCH: Final = 12  # so many before its end no match begins
_LAST_BYTES: Final = 8  # a match, the last token and the last literals take more than this
_WORD: Final = 8


class PackedEntries(Bundle):
    """Compressed entries that are uncompressed consecutively.

    row: the caller's number.
    codec: its CompressionType.
    source, offset, length: position of the compressed bytes.
    size: announced uncompressed size.
    at: offset of the uncompressed bytes, -1 if it failed.
    """

    row: Int64Array
    codec: Int64Array
    source: Int64Array
    offset: Int64Array
    length: Int64Array
    size: Int64Array
    at: Int64Array


@inlined
def _copy(data: ByteArray, at: int, out: ByteArray, to: int, count: int) -> None:
    """Copy bytes, eight at a time; within one array the source is at least eight bytes earlier."""
    done = 0
    while done + _WORD <= count:
        word = le64(data, at + done)
        for index in range(_WORD):
            out[to + done + index] = (word >> (8 * index)) & 0xFF
        done += _WORD
    while done < count:
        out[to + done] = byte(data, at + done)
        done += 1


@inlined
def _length(data: ByteArray, at: int, end: int, first: int) -> tuple[int, int]:
    """Decode a length from four bits and further bytes; return it and the offset after them, -1 if
    beyond the block."""
    length = first
    position = at
    part = 255 if first == _LONG else 0
    while part == 255 and position < end:
        part = byte(data, position)
        length += part
        position += 1
    return length, -1 if part == 255 else position


@inlined
def _open(data: ByteArray, at: int, end: int, out: ByteArray, to: int, stop: int) -> bool:
    """Uncompress a block, data[at:end], to out[to:stop]; return whether it fills that exactly."""
    position = at
    made = to
    while position < end:
        token = byte(data, position)
        literals, position = _length(data, position + 1, end, token >> 4)
        if position < 0 or literals > end - position or literals > stop - made:
            return False
        is_last = literals > stop - _LAST_MATCH - made or literals > end - _LAST_BYTES - position
        _copy(data, position, out, made, literals)
        position += literals
        made += literals
        if is_last:
            return bool(position == end and made == stop)
        back = le16(data, position)
        match, position = _length(data, position + 2, end, token & _LONG)
        match += _SHORTEST_MATCH
        if position < 0 or back == 0 or back > made - to or match > stop - _LAST_LITERALS - made:
            return False
        if back >= _WORD:
            _copy(out, made - back, out, made, match)
        else:
            for index in range(match):
                out[made + index] = byte(out, made - back + index)
        made += match
    return False


@kernel
def open_blocks(
    entries: PackedEntries,
    chosen: Int64Array,
    sources: tuple[ByteArray, ByteArray, ByteArray, ByteArray],
    out: ByteArray,
    is_open: Int64Array,
) -> None:
    """Uncompress LZ4 blocks, each to out[at:at + size], which the caller has reserved.

    Args:
        chosen: int64[], indexes of entries; is_open: int64[entries], set to 1 on success.
    """
    for index in chosen:
        start = entries.offset[index]
        to = entries.at[index]
        end = start + entries.length[index]
        data = sources[entries.source[index]]
        opened = _open(data, start, end, out, to, to + entries.size[index])
        is_open[index] = 1 if opened else 0
