"""SipHash against the vectors of its paper, and noise that follows from a seed."""

import numpy as np
import pytest

from dissector.codecs.siphash import fill_noise, following, key_of, siphash

KEY = key_of(bytes(range(16)))
# Of the reference implementation (vectors_sip64): messages 00, 00 01, ... of these lengths.
VECTORS = {
    0: 0x726FDB47DD0E0E31,
    1: 0x74F839C593DC67FD,
    7: 0xAB0200F58B01D137,
    8: 0x93F5F5799A932462,
    15: 0xA129CA6149BE45E5,
    16: 0x3F2ACC7F57C29BDB,
}


@pytest.mark.parametrize("size", VECTORS)
def test_hashes_are_those_of_the_reference(size: int) -> None:
    data = np.arange(64, dtype=np.uint8)
    assert siphash(*KEY, data, 0, size) & (1 << 64) - 1 == VECTORS[size]
    shifted = np.concatenate([np.zeros(3, np.uint8), data])
    assert siphash(*KEY, shifted, 3, 3 + size) & (1 << 64) - 1 == VECTORS[size]


def test_noise_follows_from_the_seed_and_stays_in_its_place() -> None:
    one, other, third = (np.full(64, 7, np.uint8) for _ in range(3))
    fill_noise(one, 3, 50, 5)
    fill_noise(other, 3, 50, 5)
    fill_noise(third, 3, 50, 6)
    assert one.tobytes() == other.tobytes() != third.tobytes()
    assert set(one[:3]) == set(one[50:]) == {7} and len(set(one[3:50].tolist())) > 30
    assert one[3:11].tobytes() == (following(5, 0) & (1 << 64) - 1).to_bytes(8, "little")
