"""The position of a frame's damaged bits, derived from its stored and its computed checksum.

CRC32C is linear: stored XOR computed depends on the flipped bits alone, not on the data. Going
back byte by byte from the frame's end shows whether damage of one byte explains it, and where. Two
flipped bits are searched for only in frames so short that no other two or three give the same XOR.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import Int64Array
from dissector.jit import kernel
from dissector.limits import MAX_BYTE_SEARCH_BYTES

POLYNOMIAL: Final = 0x82F6_3B78  # CRC32C, reflected
MAX_PAIR_BYTES: Final = 655  # up to here any pattern of two bits has a checksum of its own

ONE_BIT: Final = "one_bit"
TWO_BITS: Final = "two_bits"
ONE_BYTE: Final = "one_byte"
CHECKSUM_FIELD: Final = "checksum_field"


class Difference(NamedTuple):
    """The damage that explains a mismatch. kind: one of the names above; distances: of the damaged
    bytes from the frame's end (1: the last byte); masks: the flipped bits of each byte."""

    kind: str
    distances: tuple[int, ...]
    masks: tuple[int, ...]


def remainders() -> Int64Array:
    """int64[256]: the checksum of each byte value, without the inversions at both ends."""
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ POLYNOMIAL, table >> 1)
    return table


@kernel
def _one_byte(
    syndrome: int, size: int, table: Int64Array, by_top: Int64Array, placements: Int64Array
) -> int:
    """Find the bytes whose damage alone explains a syndrome.

    Args:
        syndrome: stored XOR computed; size: bytes that the checksum covers; by_top: int64[256],
            the byte whose remainder has this upper byte; placements: int64[rows, 2], written:
            distance from the end, mask.

    Returns:
        The number of such bytes, which may exceed the rows written.
    """
    count = 0
    rest = syndrome
    for distance in range(size):
        mask = by_top[rest >> 24]
        if table[mask] == rest and mask != 0:
            if count < placements.shape[0]:
                placements[count, 0] = distance + 1
                placements[count, 1] = mask
            count += 1
        # Step the remainder back by one byte.
        rest = ((rest ^ table[mask]) << 8 | mask) & 0xFFFF_FFFF
    return count


def _two_bits(syndrome: int, size: int, table: Int64Array) -> Difference | None:
    """Two flipped bits that explain a syndrome, in a frame of at most MAX_PAIR_BYTES."""
    state = table[1 << np.arange(8)]
    every: dict[int, tuple[int, int]] = {}
    for distance in range(1, size + 1):
        for bit, value in enumerate(state.tolist()):
            other = every.get(value ^ syndrome)
            if other is not None and other[0] == distance:
                return Difference(TWO_BITS, (distance,), (1 << bit | 1 << other[1],))
            if other is not None:
                return Difference(TWO_BITS, (distance, other[0]), (1 << bit, 1 << other[1]))
            every[value] = (distance, bit)
        state = table[state & 0xFF] ^ (state >> 8)
    return None


def difference(stored: int, computed: int, size: int) -> Difference | None:
    """The least damage that explains a mismatch; None if several explain it, or none does.

    Args:
        stored, computed: checksums; size: bytes that they cover, at the end of the frame.
    """
    syndrome = stored ^ computed
    if size <= 0 or syndrome == 0:
        return None
    table = remainders()
    by_top = np.zeros(256, np.int64)
    by_top[table >> 24] = np.arange(256)
    placements = np.zeros((8, 2), np.int64)
    count = _one_byte(syndrome, size, table, by_top, placements)
    kept = placements[: min(count, len(placements))].tolist()
    for distance, mask in kept:
        if mask & (mask - 1) == 0:
            return Difference(ONE_BIT, (distance,), (mask,))
    if size <= MAX_PAIR_BYTES:
        pair = _two_bits(syndrome, size, table)
        if pair is not None:
            return pair
    if count == 1 and size <= MAX_BYTE_SEARCH_BYTES:
        return Difference(ONE_BYTE, (kept[0][0],), (kept[0][1],))
    return None


def of_checksum_field(stored: int, right: int, size: int) -> Difference:
    """Damage of the stored checksum itself, which lies before the bytes that it covers."""
    masks = [(stored ^ right) >> shift & 0xFF for shift in (24, 16, 8, 0)]
    distances = [size + 4 - distance for distance in range(4)]
    hit = [(distance, mask) for distance, mask in zip(distances, masks, strict=True) if mask]
    return Difference(
        CHECKSUM_FIELD, tuple(distance for distance, _ in hit), tuple(mask for _, mask in hit)
    )
