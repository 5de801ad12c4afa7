"""Parquet's Bloom filters of text columns: split blocks, XXH64 of the UTF-8 bytes of a text.

A block is 256 bits in eight words; a text sets one bit in each word. A text whose bits are not all
set is in no row of the row group.
"""

from collections.abc import Collection
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt
import xxhash

from dissector.lake.settings import SETTINGS
from dissector.lake.thrift import Struct

_BLOCK_BYTES: Final = 32
_WORDS: Final = 8
_SALTS: Final[npt.NDArray[np.uint32]] = np.array(
    [
        0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)  # fmt: skip
_BLOCK, _XXHASH, _UNCOMPRESSED = (Struct().struct(1, Struct()) for _ in range(3))


def bloom_filter(texts: Collection[bytes]) -> bytes:
    """Return the header and the filter of these texts; the number of blocks is a power of two."""
    blocks = 1
    while blocks * _BLOCK_BYTES * 8 < len(texts) * SETTINGS.bloom_filter_bits:
        blocks *= 2
    hashes = np.fromiter(map(xxhash.xxh64_intdigest, texts), np.uint64, len(texts))
    block = ((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)
    low = hashes.astype(np.uint32)
    bits = np.uint32(1) << ((low[:, None] * _SALTS) >> np.uint32(27))
    words = np.zeros((blocks, _WORDS), "<u4")
    np.bitwise_or.at(words, block.astype(np.int64), bits)
    return _header(words.nbytes) + words.tobytes()


@cache
def _header(size: int) -> bytes:
    head = Struct().i32(1, size).struct(2, _BLOCK).struct(3, _XXHASH)
    return bytes(head.struct(4, _UNCOMPRESSED))
