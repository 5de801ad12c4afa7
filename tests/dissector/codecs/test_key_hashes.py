"""Hashes of keys against published values and plain twins."""

import base64

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dissector.blocks import ByteArray
from dissector.codecs.key_hashes import murmur3, murmur3_of_base64
from dissector.limits import NULL
from tests.naive import key_hashes as naive


def around(data: bytes) -> tuple[ByteArray, int, int]:
    """Bytes in a buffer that goes on before and behind them."""
    return np.frombuffer(bytearray(b"\xa5" * 3 + data + b"=\xa5"), np.uint8), 3, len(data)


# Published values of MurmurHash3_x86_32 with seed 0 (with its sign bit).
@pytest.mark.parametrize(
    ("data", "published"),
    [
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"test", 0xBA6BD213),
        (b"\xff\xff\xff\xff", 0x76293B50),
        (b"\x21\x43\x65\x87", 0xF55B516B),
        (b"\x21\x43\x65", 0x7E4A8634),
        (b"\x21\x43", 0xA0F7B07A),
        (b"\x21", 0x72661CF4),
        (b"\x00\x00\x00\x00", 0x2362F9DE),
    ],
)
def test_murmur3_of_its_published_values(data: bytes, published: int) -> None:
    assert naive.murmur3(data) == published
    assert murmur3(*around(data)) == published & 0x7FFF_FFFF


@given(st.binary(max_size=40))
def test_murmur3_equals_its_twin(data: bytes) -> None:
    assert murmur3(*around(data)) == naive.key_hash(data)


@given(st.binary(max_size=20))
def test_base64_is_hashed_as_what_it_stands_for(data: bytes) -> None:
    text = base64.b64encode(data)
    assert murmur3_of_base64(*around(text)) == naive.key_hash(data)
    assert murmur3_of_base64(*around(text.rstrip(b"="))) == naive.key_hash(data)


@given(st.text("Aaz/+=-_\n ", max_size=9).map(str.encode))
@example(b"AA==")
@example(b"AA=")
@example(b"A=A=")
@example(b"====")
def test_what_is_no_base64_has_no_hash(text: bytes) -> None:
    known = naive.key_hash_of_base64(text)
    assert murmur3_of_base64(*around(text)) == (NULL if known is None else known)
