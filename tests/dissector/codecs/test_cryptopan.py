"""AES and Crypto-PAn against published vectors, and prefixes that are kept."""

import ipaddress
import random

import numpy as np
import pytest

from dissector.codecs.cryptopan import Aes, CryptoPan

# Of the sample that comes with the authors' implementation: key, and lines of its trace.
KEY = bytes(
    (
        *(21, 34, 23, 141, 51, 164, 207, 128, 19, 10, 91, 22, 73, 144, 125, 16),
        *(216, 152, 143, 131, 121, 121, 101, 39, 98, 87, 76, 45, 42, 132, 34, 2),
    )
)
SAMPLE = {
    "128.11.68.132": "135.242.180.132",
    "129.118.74.4": "134.136.186.123",
    "130.132.252.244": "133.68.164.234",
    "141.223.7.43": "141.167.8.160",
    "141.233.145.108": "141.129.237.235",
    "152.163.225.39": "151.140.114.167",
}
PAN = CryptoPan(KEY)


def bits(address: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in address)


def common(one: bytes, other: bytes) -> int:
    pairs = zip(bits(one), bits(other), strict=True)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), 8 * len(one))


@pytest.mark.parametrize(
    ("key", "plain", "cipher"),
    [
        # FIPS 197, appendices B and C.1
        (
            "2b7e151628aed2a6abf7158809cf4f3c",
            "3243f6a8885a308d313198a2e0370734",
            "3925841d02dc09fbdc118597196a0b32",
        ),
        (
            "000102030405060708090a0b0c0d0e0f",
            "00112233445566778899aabbccddeeff",
            "69c4e0d86a7b0430d8cdb78070b4c55a",
        ),
    ],
)
def test_aes_is_that_of_the_standard(key: str, plain: str, cipher: str) -> None:
    block = np.frombuffer(bytes.fromhex(plain), np.uint8).reshape(1, 16)
    many = np.repeat(block, 3, axis=0)
    assert [row.tobytes().hex() for row in Aes(bytes.fromhex(key)).encrypt(many)] == [cipher] * 3


def test_addresses_are_those_of_the_authors_sample() -> None:
    packed = [ipaddress.ip_address(text).packed for text in SAMPLE]
    made = [str(ipaddress.ip_address(each)) for each in PAN.anonymized(packed)]
    assert made == list(SAMPLE.values())
    assert PAN.anonymized([]) == []


@pytest.mark.parametrize("size", [4, 16])
def test_addresses_share_as_many_bits_as_before(size: int) -> None:
    chance = random.Random(size)
    first = chance.randbytes(size)
    others = []
    for _ in range(60):
        kept = chance.randrange(8 * size + 1)
        number = int.from_bytes(first, "big") ^ chance.getrandbits(8 * size) >> kept
        others.append(number.to_bytes(size, "big"))
    made, *rest = PAN.anonymized([first, *others])
    assert [common(made, each) for each in rest] == [common(first, each) for each in others]
    assert made != first
