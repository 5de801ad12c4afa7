"""Crypto-PAn: addresses in the place of addresses, prefixes kept (Xu, Fan, Ammar and Moon, 2002).

Two addresses that share their first n bits share exactly n bits afterwards. Each bit is turned by
the first bit of what AES-128 makes of the bits before it, filled up with a secret pad. AES is
computed here for many blocks at once, one row each (FIPS 197): a library for it would be a
dependency for one function, and nobody measures the time that this takes.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector.blocks import ByteArray

KEY_BYTES: Final = 32
_ROUNDS: Final = 10
_BLOCK: Final = 16


def _doubled(values: ByteArray) -> ByteArray:
    """Times x in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1."""
    return np.asarray((values << 1) ^ np.where(values & 0x80, 0x1B, 0), np.uint8)


def _substitutions() -> ByteArray:
    """The S-box: the inverse in GF(2^8), then an affine map (FIPS 197, section 5.1.1)."""
    box = np.zeros(256, np.uint8)
    one, inverse = 1, 1
    while True:
        # Times 3 here, through 3 there.
        one = one ^ (one << 1 & 0xFF) ^ (0x1B if one & 0x80 else 0)
        for shift in (1, 2, 4):
            inverse = (inverse ^ (inverse << shift)) & 0xFF
        inverse ^= 0x09 if inverse & 0x80 else 0
        turned = inverse
        for shift in (1, 2, 3, 4):
            turned ^= (inverse << shift | inverse >> (8 - shift)) & 0xFF
        box[one] = turned ^ 0x63
        if one == 1:
            break
    box[0] = 0x63
    return box


_BOX: Final = _substitutions()
# ShiftRows on bytes that lie column by column.
_SHIFTED: Final = np.array(
    [(4 * (column + row) + row) % 16 for column in range(4) for row in range(4)]
)


class Aes:
    """AES-128 of whole blocks under one key, encryption alone."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == _BLOCK, "AES-128"
        words = [np.frombuffer(key[at : at + 4], np.uint8) for at in range(0, _BLOCK, 4)]
        constant = np.array([1], np.uint8)
        for number in range(4, 4 * (_ROUNDS + 1)):
            last = words[-1]
            if number % 4 == 0:
                last = _BOX[np.roll(last, -1)].copy()
                last[0] ^= constant[0]
                constant = _doubled(constant)
            words.append(words[number - 4] ^ last)
        self._keys = np.concatenate(words).reshape(_ROUNDS + 1, _BLOCK)

    def encrypt(self, blocks: ByteArray) -> ByteArray:
        """uint8[rows, 16] in, the same out."""
        state = blocks ^ self._keys[0]
        for number in range(1, _ROUNDS):
            columns = _BOX[state][:, _SHIFTED].reshape(-1, 4, 4)
            doubled = _doubled(columns)
            # MixColumns: 2, 3, 1, 1 and so around.
            mixed = doubled ^ np.roll(doubled ^ columns, -1, axis=2)
            mixed ^= np.roll(columns, -2, axis=2) ^ np.roll(columns, -3, axis=2)
            state = mixed.reshape(-1, _BLOCK) ^ self._keys[number]
        return np.asarray(_BOX[state][:, _SHIFTED] ^ self._keys[_ROUNDS])


class CryptoPan:
    """Addresses under a key of 32 bytes: the first half is of AES, the second makes the pad."""

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES, "16 bytes for AES, 16 for the pad"
        self._aes = Aes(key[:_BLOCK])
        pad = self._aes.encrypt(np.frombuffer(key[_BLOCK:], np.uint8).reshape(1, _BLOCK))
        self._pad = np.unpackbits(pad[0])

    def anonymized(self, addresses: Sequence[bytes]) -> list[bytes]:
        """Other addresses for addresses of 4 or 16 bytes, all of one length."""
        if not addresses:
            return []
        bits = np.unpackbits(np.frombuffer(b"".join(addresses), np.uint8)).reshape(
            len(addresses), -1
        )
        width = bits.shape[1]
        # Row n of an address: its first n bits, then the pad.
        is_own = np.arange(8 * _BLOCK) < np.arange(width)[:, None]
        longer = np.zeros((len(addresses), 8 * _BLOCK), np.uint8)
        longer[:, :width] = bits
        inputs = np.where(is_own, longer[:, None, :], self._pad)
        blocks = np.packbits(inputs.reshape(-1, 8 * _BLOCK), axis=1)
        turned = self._aes.encrypt(blocks)[:, 0] >> 7
        packed = np.packbits(bits ^ turned.reshape(bits.shape), axis=1)
        return [row.tobytes() for row in packed]
