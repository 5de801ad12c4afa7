"""Hashes of keys, the slow and plain way."""

import base64
import binascii
import struct

MASK = 0xFFFF_FFFF


def rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & MASK


def murmur3(data: bytes) -> int:
    """MurmurHash3_x86_32 with seed 0, as its author's page has it."""
    state, blocks = 0, len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:blocks]):
        state ^= rotated(word * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
        state = (rotated(state, 13) * 5 + 0xE6546B64) & MASK
    tail = int.from_bytes(data[blocks:], "little")
    state ^= rotated(tail * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & MASK
    return state ^ state >> 16


def key_hash(data: bytes) -> int:
    return murmur3(data) & 0x7FFF_FFFF


def key_hash_of_base64(text: bytes) -> int | None:
    """Of text in Base64 as Java's decoder takes it: padding may be missing, nothing else."""
    bare = text[: -2 if text.endswith(b"==") else -1] if text.endswith(b"=") else text
    if (bare != text and len(text) % 4) or b"=" in bare:
        return None
    try:
        return key_hash(base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True))
    except binascii.Error:
        return None


def java_hash(text: str) -> int:
    """String.hashCode without its sign."""
    state = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le")):
        state = (31 * state + unit) & MASK
    return state & 0x7FFF_FFFF
