"""Thrift's compact protocol: bytes written by hand."""

import pytest

from dissector.lake.thrift import Struct, varint


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (1 << 35, "808080808001")],
)
def test_varints(value: int, wanted: str) -> None:
    assert varint(value).hex() == wanted


def test_a_struct_of_every_kind_of_field() -> None:
    inner = Struct().i32(2, -1)
    struct = Struct().flag(1, True).flag(2, False).i16(4, 1).i32(5, -300).i64(6, 1 << 40)
    struct.binary(8, b"ab").struct(9, inner).structs(10, [inner, inner])
    struct.i32s(11, [1, -1]).binaries(12, [b"x", b""])
    assert bytes(struct).hex(" ") == (
        "11 12 24 02 15 d7 04 16 80 80 80 80 80 40 28 02 61 62 1c 25 01 00 "
        "19 2c 25 01 00 25 01 00 19 25 02 01 19 28 01 78 00 00"
    )


def test_long_lists_carry_their_length_apart() -> None:
    found = bytes(Struct().i32s(1, [0] * 15))
    assert found == bytes([0x19, 0xF5, 15]) + bytes(15) + b"\0"


def test_fields_come_in_order() -> None:
    with pytest.raises(AssertionError):
        Struct().i32(2, 0).i32(1, 0)
