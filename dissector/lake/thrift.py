"""Encodes the part of Thrift's compact protocol that Parquet's headers and footers use."""

import enum
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from dissector.limits import MAX_KEPT_NUMBERS


class _Type(enum.IntEnum):
    """Types of the compact protocol."""

    TRUE = 1
    FALSE = 2
    I16 = 4
    I32 = 5
    I64 = 6
    BINARY = 8
    LIST = 9
    STRUCT = 12


_NEXT_I64: Final = 1 << 4 | _Type.I64
_ONE_BYTE: Final = [bytes([value]) for value in range(128)]


def varint(value: int) -> bytes:
    """Encode a non-negative number as a varint: seven bits per byte."""
    if value < 128:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


@lru_cache(MAX_KEPT_NUMBERS)
def _zigzag(value: int) -> bytes:
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


class Struct:
    """Encoder of one struct; the caller adds fields in ascending order of their numbers."""

    def __init__(self) -> None:
        self._out = bytearray()
        self._last = 0

    def __bytes__(self) -> bytes:
        return bytes(self._out) + b"\0"

    def copy(self) -> "Struct":
        """Return an independent encoder with the same fields."""
        other = Struct()
        other._out, other._last = self._out.copy(), self._last
        return other

    def flag(self, field: int, value: bool) -> "Struct":
        """Add a boolean."""
        return self._add(field, _Type.TRUE if value else _Type.FALSE, b"")

    def i16(self, field: int, value: int) -> "Struct":
        """Add a 16-bit number."""
        return self._add(field, _Type.I16, _zigzag(value))

    def i32(self, field: int, value: int) -> "Struct":
        """Add a 32-bit number."""
        return self._add(field, _Type.I32, _zigzag(value))

    def i64(self, field: int, value: int) -> "Struct":
        """Add a 64-bit number."""
        return self._add(field, _Type.I64, _zigzag(value))

    def i64s_from(self, field: int, *values: int) -> "Struct":
        """Add 64-bit numbers to consecutive fields; one call, as each chunk of a file needs it."""
        self._add(field, _Type.I64, _zigzag(values[0]))
        for value in values[1:]:
            self._out.append(_NEXT_I64)
            self._out += _zigzag(value)
        self._last += len(values) - 1
        return self

    def binary(self, field: int, value: bytes) -> "Struct":
        """Add bytes or text."""
        return self._add(field, _Type.BINARY, varint(len(value)) + value)

    def struct(self, field: int, value: "Struct") -> "Struct":
        """Add a struct."""
        return self.encoded(field, bytes(value))

    def encoded(self, field: int, value: bytes) -> "Struct":
        """Add a struct that is encoded already."""
        return self._add(field, _Type.STRUCT, value)

    def structs(self, field: int, values: Sequence["Struct"]) -> "Struct":
        """Add a list of structs."""
        return self.listed(field, struct_list(values))

    def listed(self, field: int, values: bytes) -> "Struct":
        """Add a list that `struct_list` encoded."""
        return self._add(field, _Type.LIST, values)

    def i32s(self, field: int, values: Sequence[int]) -> "Struct":
        """Add a list of 32-bit numbers."""
        return self._add(field, _Type.LIST, _list(_Type.I32, [_zigzag(value) for value in values]))

    def i64s(self, field: int, values: Sequence[int]) -> "Struct":
        """Add a list of 64-bit numbers."""
        return self._add(field, _Type.LIST, _list(_Type.I64, [_zigzag(value) for value in values]))

    def flags(self, field: int, values: Sequence[bool]) -> "Struct":
        """Add a list of booleans."""
        kinds = [_ONE_BYTE[_Type.TRUE if value else _Type.FALSE] for value in values]
        return self._add(field, _Type.LIST, _list(_Type.TRUE, kinds))

    def binaries(self, field: int, values: Sequence[bytes]) -> "Struct":
        """Add a list of texts."""
        return self._add(
            field, _Type.LIST, _list(_Type.BINARY, [varint(len(v)) + v for v in values])
        )

    def _add(self, field: int, kind: int, data: bytes) -> "Struct":
        step = field - self._last
        assert 1 <= step <= 15, "fields come in order"
        self._out.append(step << 4 | kind)
        self._out += data
        self._last = field
        return self


def struct_list(values: Sequence[Struct]) -> bytes:
    """Encode a list of structs once, for use in many files."""
    return _list(_Type.STRUCT, [bytes(value) for value in values])


def _list(kind: int, items: Sequence[bytes]) -> bytes:
    head = bytes([len(items) << 4 | kind]) if len(items) < 15 else b""
    return (head or bytes([0xF0 | kind]) + varint(len(items))) + b"".join(items)
