"""Compressed bodies: gzip, LZ4 frames, and snappy with xerial's header or with none.

A client may compress whole bodies, and nothing on the wire says so but the bytes themselves. What
comes out is bounded by a size and by a ratio to what went in, whatever the bytes announce.
"""

import zlib
from typing import Final

import cramjam
import lz4.frame
import numpy as np

from dissector.blocks import ByteArray
from dissector.codecs.compression import Budget
from dissector.limits import MAX_CURSUS_BODY_BYTES, MAX_GZIP_RATIO
from dissector.protocols.cursus import body_starts
from dissector.protocols.cursus.body_starts import BodyShape

CODEC_NAMES: Final = ("NONE", "GZIP", "LZ4", "SNAPPY")
NONE_CODEC: Final = 0
GZIP_CODEC: Final = 1
LZ4_CODEC: Final = 2
SNAPPY_CODEC: Final = 3

_XERIAL_HEADER: Final = 16  # magic, version, oldest compatible version
_CODEC_OF: Final[dict[int, int]] = {
    BodyShape.GZIP: GZIP_CODEC,
    BodyShape.LZ4_FRAME: LZ4_CODEC,
    BodyShape.XERIAL: SNAPPY_CODEC,
}


def room_for(packed: int) -> int:
    """The allowed uncompressed size of so many compressed bytes."""
    return min(MAX_CURSUS_BODY_BYTES, packed * MAX_GZIP_RATIO)


def _gunzip(packed: bytes, room: int) -> bytes | None:
    stream = zlib.decompressobj(16 + zlib.MAX_WBITS)
    plain = stream.decompress(packed, room)
    if stream.unconsumed_tail and stream.decompress(stream.unconsumed_tail, 1):
        return None
    return plain if stream.eof else None


def _unlz4(packed: bytes, room: int) -> bytes | None:
    stream = lz4.frame.LZ4FrameDecompressor()
    plain: bytes = stream.decompress(packed, max_length=room)
    return plain if stream.eof else None


def _unsnap_block(packed: bytes, room: int) -> bytes | None:
    if not packed or int(cramjam.snappy.decompress_raw_len(packed)) > room:
        return None
    return bytes(cramjam.snappy.decompress_raw(packed))


def _unsnap_xerial(packed: bytes, room: int) -> bytes | None:
    plain = bytearray()
    at = _XERIAL_HEADER
    while at + 4 <= len(packed):
        size = int.from_bytes(packed[at : at + 4], "big")
        block = packed[at + 4 : at + 4 + size]
        if len(block) < size:
            return None
        part = _unsnap_block(block, room - len(plain))
        if part is None:
            return None
        plain += part
        at += 4 + size
    return bytes(plain) if at == len(packed) and plain else None


def open_body(packed: ByteArray, shape: int, budget: Budget) -> tuple[int, bytes] | None:
    """Uncompress a body.

    Args:
        budget: of the capture, from which what comes out is taken.
        shape: of headers; OTHER and TEXT are tried as a bare snappy block, which has no mark and
            counts only if what comes out is a batch or a command.

    Returns:
        The codec and the body, None where it is not compressed, broken or too large.
    """
    data = packed.tobytes()
    room = min(room_for(len(data)), budget.allowance(len(data)))
    try:
        if shape == BodyShape.GZIP:
            plain = _gunzip(data, room)
        elif shape == BodyShape.LZ4_FRAME:
            plain = _unlz4(data, room)
        elif shape == BodyShape.XERIAL:
            plain = _unsnap_xerial(data, room)
        else:
            plain = _unsnap_block(data, room)
    except (zlib.error, cramjam.DecompressionError, RuntimeError):
        return None
    if plain is None:
        return None
    budget.spend(len(data), len(plain))
    if shape not in _CODEC_OF:
        opened = body_starts.shape_of(np.frombuffer(bytearray(plain), np.uint8), 0, len(plain))
        if opened not in (BodyShape.BATCH_BODY, BodyShape.ENVELOPE, BodyShape.TEXT):
            return None
    return _CODEC_OF.get(shape, SNAPPY_CODEC), plain
