"""Loads integers from bytes: the only way in which kernels read a buffer.

Every load returns a signed 64-bit number (an int if kernels run uncompiled), so that compiled and
uncompiled runs agree. A load reads only its own bytes; the caller must first compare offset and
width with the end of the buffer.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray
from dissector.jit import compiled, inlined, kernel

MAX_VARINT_BYTES: Final = 10  # 64 bits in groups of seven
_MAX_DIGITS: Final = 18  # as many always fit
_MASK_64: Final = 0xFFFF_FFFF_FFFF_FFFF
_SIGN_64: Final = 1 << 63


class Varint(NamedTuple):
    """A varint.

    value: signed 64 bits.
    next: offset after it, -1 if it cannot be read.
    """

    value: int
    next: int


if compiled():
    # The index is unsigned because a signed one costs a test for negative indices per byte; then
    # the compiler turns the bytes of one number into a single load.

    @inlined
    def byte(data: ByteArray, offset: int) -> int:
        """The byte at offset, 0 to 255."""
        return np.int64(data[np.uint64(offset)])  # type: ignore[return-value]

    @inlined
    def be16(data: ByteArray, offset: int) -> int:
        """Two bytes, most significant first, 0 to 65535."""
        return (byte(data, offset) << 8) | byte(data, offset + 1)

    @inlined
    def le16(data: ByteArray, offset: int) -> int:
        """Two bytes, least significant first, 0 to 65535."""
        return (byte(data, offset + 1) << 8) | byte(data, offset)

    @inlined
    def be32(data: ByteArray, offset: int) -> int:
        """Four bytes, most significant first, 0 to 2^32-1."""
        return (
            (byte(data, offset) << 24)
            | (byte(data, offset + 1) << 16)
            | (byte(data, offset + 2) << 8)
            | byte(data, offset + 3)
        )

    @inlined
    def le32(data: ByteArray, offset: int) -> int:
        """Four bytes, least significant first, 0 to 2^32-1."""
        return (
            (byte(data, offset + 3) << 24)
            | (byte(data, offset + 2) << 16)
            | (byte(data, offset + 1) << 8)
            | byte(data, offset)
        )

    @inlined
    def be64(data: ByteArray, offset: int) -> int:
        """Eight bytes, most significant first, as a signed number."""
        return (be32(data, offset) << 32) | be32(data, offset + 4)

    @inlined
    def le64(data: ByteArray, offset: int) -> int:
        """Eight bytes, least significant first, as a signed number."""
        return (le32(data, offset + 4) << 32) | le32(data, offset)

    @inlined
    def wrapped(value: int) -> int:
        """The low 64 bits of a number as a signed number."""
        return value

else:
    # Plain twins: the same numbers as Python ints, which never wrap by themselves.

    def byte(data: ByteArray, offset: int) -> int:
        """The byte at offset, 0 to 255."""
        return _plain(data, offset, 1, "big")

    def be16(data: ByteArray, offset: int) -> int:
        """Two bytes, most significant first, 0 to 65535."""
        return _plain(data, offset, 2, "big")

    def le16(data: ByteArray, offset: int) -> int:
        """Two bytes, least significant first, 0 to 65535."""
        return _plain(data, offset, 2, "little")

    def be32(data: ByteArray, offset: int) -> int:
        """Four bytes, most significant first, 0 to 2^32-1."""
        return _plain(data, offset, 4, "big")

    def le32(data: ByteArray, offset: int) -> int:
        """Four bytes, least significant first, 0 to 2^32-1."""
        return _plain(data, offset, 4, "little")

    def be64(data: ByteArray, offset: int) -> int:
        """Eight bytes, most significant first, as a signed number."""
        return wrapped(_plain(data, offset, 8, "big"))

    def le64(data: ByteArray, offset: int) -> int:
        """Eight bytes, least significant first, as a signed number."""
        return wrapped(_plain(data, offset, 8, "little"))

    def wrapped(value: int) -> int:
        """The low 64 bits of a number as a signed number."""
        return ((int(value) + _SIGN_64) & _MASK_64) - _SIGN_64


def _plain(data: ByteArray, offset: int, width: int, order: str) -> int:
    """Load an unsigned number of `width` bytes.

    Raises:
        IndexError: bytes are missing: the calling kernel lacks a comparison.
    """
    if not 0 <= offset <= len(data) - width:
        raise IndexError(f"{width} bytes at {offset} of {len(data)}")
    return int.from_bytes(
        data[offset : offset + width].tobytes(), "big" if order == "big" else "little"
    )


@kernel
def long_varint(data: ByteArray, offset: int, end: int) -> Varint:
    """Any varint, see varint()."""
    value = 0
    shift = 0
    position = offset
    stop = min(end, offset + MAX_VARINT_BYTES)
    while position < stop:
        part = byte(data, position)
        position += 1
        value |= (part & 0x7F) << shift
        if part < 0x80:
            return Varint(wrapped(value), position)
        shift += 7
    return Varint(0, -1)


@inlined
def varint(data: ByteArray, offset: int, end: int) -> Varint:
    """A protobuf varint at offset, not reading at or beyond end.

    Returns:
        Its value as a signed 64-bit number (bits beyond 64 are dropped, as all protobuf libraries
        do) and the offset after it; next is -1 if end cuts it or it is longer than ten bytes.
    """
    if offset < end:
        first = byte(data, offset)
        if first < 0x80:
            return Varint(first, offset + 1)
    return long_varint(data, offset, end)


@inlined
def decimal(data: ByteArray, at: int, end: int) -> Varint:
    """Parse digits with an optional minus sign: value and offset after them; -1 if none."""
    position = at
    is_negative = position < end and byte(data, position) == 0x2D
    if is_negative:
        position += 1
    value = 0
    digits = 0
    while position < end and digits < _MAX_DIGITS:
        digit = byte(data, position) - 0x30
        if digit < 0 or digit > 9:
            break
        value = 10 * value + digit
        position += 1
        digits += 1
    return Varint(-value if is_negative else value, position if digits > 0 else -1)
