"""Sequence numbers of 32 bits and stream offsets of 64: the only place that wraps."""

from typing import Final

from dissector.codecs.wrapping import product
from dissector.jit import inlined

SEQUENCE_MASK: Final = 0xFFFF_FFFF
_HALF: Final = 0x8000_0000
_MULTIPLIER: Final = 0x2545_F491_4F6C_DD1D


@inlined
def distance(sequence: int, start: int) -> int:
    """How far a sequence number lies ahead of another, -2^31 to 2^31-1."""
    return ((sequence - start + _HALF) & SEQUENCE_MASK) - _HALF


@inlined
def offset_near(sequence: int, origin: int, near: int) -> int:
    """The stream offset of a sequence number that lies closest to the offset `near`.

    origin: sequence number of offset 0.
    """
    return near + distance(sequence, (origin + near) & SEQUENCE_MASK)


@inlined
def sequence_at(origin: int, offset: int) -> int:
    """The sequence number of a stream offset."""
    return (origin + offset) & SEQUENCE_MASK


@inlined
def mix(value: int) -> int:
    """The last step of a hash: every bit of its parts reaches the low bits.

    Parts are multiplied independently of each other (`wrapping.product`), each by an odd number of
    its own, and joined by xor: a chain of multiplications makes the processor wait.
    """
    mixed = product(int(value) ^ (int(value) >> 32), _MULTIPLIER)
    return mixed ^ (mixed >> 29)
