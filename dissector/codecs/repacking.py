"""Compresses replaced bytes to a given length: a packed payload with other content of equal size.

The content is free, as it replaces a hidden payload: the more bytes are zeros, the shorter the
result. The number of zeros is chosen so that the length is exact; if the steps of a codec skip that
length, another part of the noise is tried.
"""

import gzip
import zlib
from collections.abc import Callable
from typing import Any, Final

import cramjam
import lz4.frame
import numpy as np
import zstandard

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.compression import Codec

_TRIES: Final = 48
_STRONGEST: Final = 19  # level of zstd
# Codecs that are not Pulsar's: of whole bodies, with heads of their own.
GZIP: Final = 16
FRAME_LZ4: Final = 17
FRAME_SNAPPY: Final = 18
_ZLIB_STORED: Final = b"\0\0\0\xff\xff"  # an empty block, as a flush writes it


def _zlib(level: int) -> Callable[[bytes], bytes]:
    """Flushed, not finished: how Java's client writes it; and one that can be lengthened."""

    def pack(data: bytes) -> bytes:
        made = zlib.compressobj(level)
        return made.compress(data) + made.flush(zlib.Z_SYNC_FLUSH)

    return pack


def _zstd(level: int) -> Callable[[bytes], bytes]:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        level, write_content_size=level < _STRONGEST, write_checksum=False
    )
    return lambda data: zstandard.ZstdCompressor(compression_params=parameters).compress(data)


def _lz4(**mode: Any) -> Callable[[bytes], bytes]:
    return lambda data: bytes(cramjam.lz4.compress_block(data, store_size=False, **mode))


def _gzip(level: int) -> Callable[[bytes], bytes]:
    return lambda data: gzip.compress(data, level, mtime=0)


def _snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(data))


# Of each codec the usual way, and the one that makes least of it.
_PACKERS: Final[dict[int, tuple[Callable[[bytes], bytes], ...]]] = {
    Codec.LZ4: (_lz4(), _lz4(mode="high_compression", compression=12)),
    Codec.ZLIB: (_zlib(6), _zlib(9)),
    Codec.ZSTD: (_zstd(3), _zstd(_STRONGEST)),
    Codec.SNAPPY: (_snappy,),
    GZIP: (_gzip(6), _gzip(9)),
    FRAME_LZ4: (lz4.frame.compress, lambda data: lz4.frame.compress(data, compression_level=12)),
    FRAME_SNAPPY: (_snappy,),
}


def repacked(codec: int, before: ByteArray, after: ByteArray, size: int) -> bytes | None:
    """Compress `after` to exactly `size` bytes, with zeros for some bytes that differ from
    `before`; None if that fails.

    Args:
        codec: CompressionType, or one of the above. before, after: uint8[], equally long.
    """
    free = np.flatnonzero(before != after)
    for pack in _PACKERS.get(codec, ()):
        for order in (free, free[::-1], np.concatenate([free[step::7] for step in range(7)])):
            fitted = _searched(codec, pack, after, order, size)
            if fitted is not None:
                return fitted
            if len(_made(pack, after, order, 0)) > size:
                break
    return None


def _made(pack: Callable[[bytes], bytes], after: ByteArray, order: Int64Array, count: int) -> bytes:
    """With noise in the first `count` places of what is free, zeros in the others."""
    some = after.copy()
    some[order[count:]] = 0
    return pack(some.tobytes())


def _searched(
    codec: int, pack: Callable[[bytes], bytes], after: ByteArray, order: Int64Array, size: int
) -> bytes | None:
    """How much of what is free must be noise, by halves, then one by one around there."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        packed = _made(pack, after, order, middle)
        fitted = _fitted(codec, packed, size)
        if fitted is not None:
            return fitted
        if len(packed) < size:
            low = middle + 1
        else:
            high = middle
    for count in range(max(0, low - _TRIES // 2), min(len(order), low + _TRIES // 2) + 1):
        fitted = _fitted(codec, _made(pack, after, order, count), size)
        if fitted is not None:
            return fitted
    return None


def _fitted(codec: int, packed: bytes, size: int) -> bytes | None:
    """The packed bytes if they are as long as wanted, or can be made so."""
    missing = size - len(packed)
    if missing == 0:
        return packed
    if codec == Codec.ZLIB and missing > 0 and missing % len(_ZLIB_STORED) == 0:
        return packed + _ZLIB_STORED * (missing // len(_ZLIB_STORED))
    return None
