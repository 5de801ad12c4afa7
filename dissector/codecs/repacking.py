"""Bytes compressed to a given length: a packed payload with other content in the same room.

How well bytes compress is free where they stand for a payload that nobody may see: the more of them
are zeros, the shorter it gets. So many are zeros that the length is met to the byte; where the
steps of a codec jump over it, another part of the noise is tried.
"""

import zlib
from collections.abc import Callable
from typing import Final

import cramjam
import numpy as np
import zstandard

from dissector.blocks import ByteArray
from dissector.codecs.compression import LZ4, SNAPPY, ZLIB, ZSTD

_TRIES: Final = 48
_ZLIB_STORED: Final = b"\0\0\0\xff\xff"  # an empty block, as a flush writes it


def _zlib(data: bytes) -> bytes:
    """Flushed, not finished: how Java's client writes it; and one that can be lengthened."""
    made = zlib.compressobj(6)
    return made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH)


_PACKERS: Final[dict[int, Callable[[bytes], bytes]]] = {
    LZ4: lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False)),
    ZLIB: _zlib,
    ZSTD: lambda data: zstandard.ZstdCompressor(level=3).compress(data),
    SNAPPY: lambda data: bytes(cramjam.snappy.compress_raw(data)),
}


def repacked(codec: int, before: ByteArray, after: ByteArray, size: int) -> bytes | None:
    """`after` compressed to exactly `size` bytes, with zeros for some of what differs from
    `before`; None if that was not found.

    Args:
        codec: CompressionType. before, after: uint8[], equally long.
    """
    pack = _PACKERS.get(codec)
    if pack is None:
        return None
    free = np.flatnonzero(before != after)
    low, high = 0, len(free)  # so many of them stay noise

    def made(count: int) -> bytes:
        some = after.copy()
        some[free[count:]] = 0
        return pack(some.tobytes())

    for _ in range(_TRIES):
        middle = (low + high) // 2
        packed = made(middle)
        found = _fitted(codec, packed, size)
        if found is not None:
            return found
        if low >= high:
            break
        if len(packed) < size:
            low = middle + 1
        else:
            high = middle
    for count in range(max(0, low - _TRIES // 2), min(len(free), low + _TRIES // 2)):
        found = _fitted(codec, made(count), size)
        if found is not None:
            return found
    return None


def _fitted(codec: int, packed: bytes, size: int) -> bytes | None:
    """The packed bytes if they are as long as wanted, or can be made so."""
    missing = size - len(packed)
    if missing == 0:
        return packed
    if codec == ZLIB and missing > 0 and missing % len(_ZLIB_STORED) == 0:
        return packed + _ZLIB_STORED * (missing // len(_ZLIB_STORED))
    return None
