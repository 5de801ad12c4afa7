"""The sum of which Internet checksums are made: 16-bit words, carries added at the low end."""

from dissector.blocks import ByteArray
from dissector.codecs.integers import byte, le16, le64
from dissector.jit import inlined, kernel

_LOW_32 = 0xFFFF_FFFF


@inlined
def folded(total: int) -> int:
    """A sum of words, up to 2^48, as 16 bits: carries come back in at the low end."""
    total = (total & 0xFFFF) + ((total >> 16) & 0xFFFF) + (total >> 32)
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16)


@kernel
def ones_sum(data: ByteArray, start: int, end: int) -> int:
    """The ones' complement sum of data[start:end] in 16-bit words, an odd last byte as a high one.

    The order of bytes within words changes nothing but the order of bytes within the sum, so eight
    bytes are added at a time as they lie.
    """
    words = (end - start) >> 3
    low = 0
    high = 0
    for word in range(words):
        eight = le64(data, start + 8 * word)
        low += eight & _LOW_32
        high += (eight >> 32) & _LOW_32
    total = (low & _LOW_32) + (low >> 32) + (high & _LOW_32) + (high >> 32)
    position = start + 8 * words
    while position + 2 <= end:
        total += le16(data, position)
        position += 2
    if position < end:
        total += byte(data, position)
    swapped = folded(total)
    return ((swapped & 0xFF) << 8) | (swapped >> 8)
