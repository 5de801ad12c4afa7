"""Loads and varints against int.from_bytes and a plain varint reader."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.codecs import integers

LOADS = [
    (integers.byte, 1, "big", False),
    (integers.be16, 2, "big", False),
    (integers.le16, 2, "little", False),
    (integers.be32, 4, "big", False),
    (integers.le32, 4, "little", False),
    (integers.be64, 8, "big", True),
    (integers.le64, 8, "little", True),
]


def as_array(data: bytes) -> np.ndarray:
    """The bytes as kernels see them."""
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    ("load", "width", "order", "signed"), LOADS, ids=[load[0].__name__ for load in LOADS]
)
@given(data=st.binary(min_size=16, max_size=16), offset=st.integers(0, 8))
def test_load_equals_int_from_bytes(load, width, order, signed, data, offset):
    expected = int.from_bytes(data[offset : offset + width], order, signed=signed)
    assert load(as_array(data), offset) == expected


def write_varint(value: int) -> bytes:
    """A protobuf varint, shortest form, of 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@given(value=st.integers(-(1 << 63), (1 << 63) - 1), before=st.integers(0, 3))
def test_varint_reads_back_what_was_written(value, before):
    written = write_varint(value)
    data = b"\xff" * before + written + b"\x01"
    found = integers.varint(as_array(data), before, len(data))
    assert (found.value, found.next) == (value, before + len(written))


@given(value=st.integers(0, (1 << 64) - 1), data=st.data())
def test_varint_cut_by_the_end_is_unreadable(value, data):
    written = write_varint(value)
    end = data.draw(st.integers(0, len(written) - 1))
    assert integers.varint(as_array(written), 0, end).next == -1


def test_varint_longer_than_ten_bytes_is_unreadable():
    assert integers.varint(as_array(b"\x80" * 10 + b"\x01"), 0, 11).next == -1


def test_varint_drops_bits_beyond_64():
    assert integers.varint(as_array(b"\x80" * 9 + b"\x7f"), 0, 10) == (-(1 << 63), 10)


@given(
    st.integers(-(10**18) + 1, 10**18 - 1),
    st.binary(max_size=3).filter(lambda b: not b[:1].isdigit()),
)
def test_decimal_digits_read_back_up_to_what_is_none(value, behind):
    digits = str(value).encode()
    data = np.frombuffer(digits + behind, np.uint8)
    assert integers.decimal(data, 0, len(data)) == (value, len(digits))


@pytest.mark.parametrize("text", [b"", b"-", b"x1"])
def test_what_begins_with_no_digit_is_no_decimal(text):
    data = np.frombuffer(text or b"0", np.uint8)
    assert integers.decimal(data, 0, len(text)).next == -1
