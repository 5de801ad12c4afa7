"""Keyed hashes of integers and of bytes: a sender of packets cannot choose keys that collide.

Theory. With a known hash, an attacker can compute ids that all map to one slot of a table, and
every search there becomes as long as the table. So hashes have a secret, random for each run
(`options.Options.hash_key`), which no output reveals.

Integers: Multilinear-HM (Lemire and Kaser, 2014). Each word is cut in halves of 32 bits, a number
of the secret is added to each, the two sums are multiplied, and products are added up modulo 2^64;
bits 31 to 63 are the hash. It is strongly universal: two different keys, whichever they are, have
any two hashes with the same probability, so they collide once in 2^33. Multiplications do not
wait for each other. Ids that count up have sums that do, too: a last, fixed mix scatters them. It
multiplies twice, as after one multiplication one secret of 600 crowds 5,000 such ids.

Bytes: SipHash-1-3, see `siphash`.

The slots of keys, and so their order in memory, differ from run to run; rows never do. So no code
may iterate over a table's slots and keep that order.
"""

from hashlib import blake2b
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.siphash import short_siphash, short_siphash_of_row
from dissector.codecs.wrapping import product, total
from dissector.jit import inlined
from dissector.limits import HASH_KEY_BITS

SECRET_WORDS: Final = 16
_ADDEND: Final = 10  # behind two numbers for each of five words
_BYTES_LOW: Final = 11
_BYTES_HIGH: Final = 12

_HALF: Final = 0xFFFF_FFFF
_UPPER: Final = (1 << 33) - 1
_SPREAD: Final = 0x2545_F491_4F6C_DD1D


def new_secret(key: int) -> Int64Array:
    """The secret of a key of HASH_KEY_BITS: int64[SECRET_WORDS]."""
    return _words(key.to_bytes(HASH_KEY_BITS // 8, "little"))


def following_secret(secret: Int64Array) -> Int64Array:
    """Return another secret, for a table in which the previous one crowded a slot."""
    return _words(blake2b(secret.tobytes(), digest_size=HASH_KEY_BITS // 8).digest())


def _words(key: bytes) -> Int64Array:
    parts = [blake2b(bytes([part]), key=key, digest_size=64).digest() for part in range(2)]
    return np.frombuffer(bytearray(b"".join(parts)), np.int64)


@inlined
def _part(secret: Int64Array, at: int, word: int) -> int:
    low = total(secret[at], word & _HALF)
    return product(low, total(secret[at + 1], (word >> 32) & _HALF))


@inlined
def _mixed(value: int) -> int:
    mixed = product((value >> 31) & _UPPER, _SPREAD)
    mixed = product(mixed ^ (mixed >> 32), _SPREAD)
    return (mixed ^ (mixed >> 32)) & _HALF


@inlined
def hash_of_words(secret: Int64Array, a: int, b: int, c: int, d: int) -> int:
    """A hash of four words, 32 bits."""
    one = total(_part(secret, 0, a), _part(secret, 2, b))
    other = total(_part(secret, 4, c), _part(secret, 6, d))
    return _mixed(total(total(one, other), secret[_ADDEND]))


@inlined
def hash_of_five(secret: Int64Array, a: int, b: int, c: int, d: int, e: int) -> int:
    """A hash of five words, 32 bits."""
    one = total(_part(secret, 0, a), _part(secret, 2, b))
    other = total(_part(secret, 4, c), _part(secret, 6, d))
    rest = total(_part(secret, 8, e), secret[_ADDEND])
    return _mixed(total(total(one, other), rest))


@inlined
def hash_of_bytes(secret: Int64Array, data: ByteArray, start: int, end: int) -> int:
    """A hash of data[start:end], 64 bits, signed."""
    return short_siphash(secret[_BYTES_LOW], secret[_BYTES_HIGH], data, start, end)


@inlined
def hash_of_row(secret: Int64Array, before: int, rows: Int64Array, row: int) -> int:
    """Hash one row of a matrix together with another hash, 64 bits, signed."""
    return short_siphash_of_row(secret[_BYTES_LOW], secret[_BYTES_HIGH] ^ before, rows, row)
