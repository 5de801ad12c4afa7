"""Kernel: many LZ4 blocks opened in one call.

A call of a library costs more than opening the few hundred bytes of a usual entry. Blocks are taken
by the rules of LZ4's own decoder, so what is opened here is opened there, to the same bytes; one
that breaks them, or holds more or less than was announced, is left for the library to say why.
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
    """Compressed entries that are opened behind one another.

    row: the caller's number.
    codec: its CompressionType.
    source, offset, length: where it lies.
    size: bytes that it is announced to hold.
    at: where the uncompressed bytes begin, -1 where they could not be had.
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
    """Copy bytes, eight at a time; within one array they begin at least eight before."""
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
    """A length that begins with four bits, and where its further bytes end; -1 behind the block."""
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
    """Open a block, data[at:end], to out[to:stop]; whether it fills that exactly."""
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
    """Open entries that are LZ4 blocks, each to out[at:at + size], for which there is room.

    Args:
        chosen: int64[], which of the entries; is_open: int64[entries], 1 for those that could be.
    """
    for index in chosen:
        start = entries.offset[index]
        to = entries.at[index]
        end = start + entries.length[index]
        data = sources[entries.source[index]]
        opened = _open(data, start, end, out, to, to + entries.size[index])
        is_open[index] = 1 if opened else 0
