"""Addresses, keys and Community IDs of many connections at once; `endpoints` has one at a time.

In a scan every packet is a connection, so a row must cost almost nothing. Texts are written one
behind the other; a Community ID is SHA-1 over 16 or 40 bytes, a single block.
"""

import ipaddress
from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array, Spans
from dissector.codecs.integers import byte
from dissector.jit import inlined, kernel
from dissector.packet.ip import TCP_PROTOCOL
from dissector.tables import ABSENT, TAKEN, HashTable, fill_slot, find_slot

_ROOM: Final = 136  # bytes of one connection: a key of 105, an id of 30
_ADDRESS_ROOM: Final = 48
_WORDS: Final = 80  # of SHA-1's message schedule
_LOW_32: Final = 0xFFFF_FFFF
_DIGEST_BYTES: Final = 20
_BASE64: Final = np.frombuffer(
    bytearray(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"), np.uint8
)
# Newer Pythons write ::ffff:1.2.3.4, older ones ::ffff:102:304; tables agree with the running one.
_IS_MAPPED_DOTTED: Final = "." in str(ipaddress.ip_address("::ffff:1.2.3.4"))
_COLON, _DOT, _SPACE, _OPEN, _CLOSE = b":. []"


class EndpointPairs(NamedTuple):
    """Both endpoints of connections, int64[rows] each; see `endpoints.Endpoint`."""

    ip_version: Int64Array
    high: Int64Array
    low: Int64Array
    port: Int64Array
    other_high: Int64Array
    other_low: Int64Array
    other_port: Int64Array


class EndpointTexts(NamedTuple):
    """Texts of connections: key without tunnel, Community ID."""

    key: Spans
    community_id: Spans


class _Scratch(NamedTuple):
    """text: output; block: input of SHA-1; words: its schedule; digest: its result; groups: the
    eight parts of an IPv6 address."""

    text: ByteArray
    block: ByteArray
    words: Int64Array
    digest: ByteArray
    groups: Int64Array
    base64: ByteArray


def end_texts(ends: EndpointPairs) -> EndpointTexts:
    """The texts of connections."""
    rows = len(ends.ip_version)
    scratch = _scratch_for(rows * _ROOM)
    bounds = np.zeros((3, rows), np.int64)
    _write_texts(ends, scratch, bounds, int(_IS_MAPPED_DOTTED))
    text = scratch.text[: int(bounds[2].max(initial=0))].copy()
    return EndpointTexts(*(Spans(text, bounds[n], bounds[n + 1] - bounds[n]) for n in (0, 1)))


def new_addresses(
    ends: EndpointPairs, table: HashTable
) -> tuple[Int64Array, ByteArray, Int64Array]:
    """Numbers of addresses, and the texts of new addresses.

    Args:
        table: numbers by address, with room for all; new addresses get the following numbers.

    Returns:
        The numbers of both sides, int64[2, rows]; the new texts, concatenated, as bytes; and their
        starts with the end of the last: int64[texts + 1].
    """
    rows = len(ends.ip_version)
    text, groups = np.empty(2 * rows * _ADDRESS_ROOM, np.uint8), np.zeros(8, np.int64)
    out = np.zeros((2, 2 * rows + 1), np.int64)
    count = _number_addresses(ends, table, text, groups, out, int(_IS_MAPPED_DOTTED))
    bounds = out[1, : count + 1]
    return out[0, :-1].reshape(-1, 2).T, text[: bounds[-1]], bounds


def _scratch_for(size: int) -> _Scratch:
    return _Scratch(
        np.empty(size, np.uint8),
        np.zeros(64, np.uint8),
        np.zeros(_WORDS, np.int64),
        np.zeros(_DIGEST_BYTES + 1, np.uint8),
        np.zeros(8, np.int64),
        _BASE64,
    )


@kernel
def _number_addresses(
    ends: EndpointPairs,
    table: HashTable,
    text: ByteArray,
    groups: Int64Array,
    out: Int64Array,
    is_mapped_dotted: int,
) -> int:
    """Write numbers and texts for `new_addresses`; return how many texts were written.

    Args:
        groups: int64[8], scratch.
        out: int64[2, 2 * rows + 1], numbers by row and side; starts of texts and end of the last.
    """
    count, bounds = 0, out[1]
    for row in range(len(ends.ip_version)):
        version, high, low = ends.ip_version[row], ends.high[row], ends.low[row]
        for side in range(2):
            slot = find_slot(table, version, high, low, 0)
            if table.values[slot] == ABSENT:
                fill_slot(table, slot, version, high, low, 0, table.counts[TAKEN])
                address = version, high, low
                bounds[count + 1] = _write_address(
                    text, groups, bounds[count], address, is_mapped_dotted
                )
                count += 1
            out[0, 2 * row + side] = table.values[slot]
            high, low = ends.other_high[row], ends.other_low[row]
    return count


@kernel
def _write_texts(
    ends: EndpointPairs, scratch: _Scratch, bounds: Int64Array, is_mapped_dotted: int
) -> None:
    """Write the texts of all rows.

    Args:
        bounds: int64[3, rows], starts of both texts of a row, and the end of the second.
    """
    at = 0
    for row in range(len(ends.ip_version)):
        version = ends.ip_version[row]
        bounds[0, row] = at
        one = ends.high[row], ends.low[row], ends.port[row]
        other = ends.other_high[row], ends.other_low[row], ends.other_port[row]
        if _is_below(other, one):
            one, other = other, one
        at = _write_end(scratch, at, version, one, is_mapped_dotted)
        scratch.text[at] = _SPACE
        at = _write_end(scratch, at + 1, version, other, is_mapped_dotted)
        bounds[1, row] = at
        size = _fill_block(
            scratch.block, version, other, _fill_block(scratch.block, version, one, 2)
        )
        at = _write_community_id(scratch, at, size, one[2], other[2])
        bounds[2, row] = at


@inlined
def _is_below(one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether an endpoint's bytes sort before another one's: halves are unsigned."""
    flip = -0x8000_0000_0000_0000
    if one[0] != other[0]:
        return bool((one[0] ^ flip) < (other[0] ^ flip))
    if one[1] != other[1]:
        return bool((one[1] ^ flip) < (other[1] ^ flip))
    return bool(one[2] < other[2])


@inlined
def _write_number(text: ByteArray, at: int, value: int) -> int:
    """Write a number from 0 to 65535 in decimal digits; return the offset after it."""
    size = 1 + (value > 9) + (value > 99) + (value > 999) + (value > 9999)
    for index in range(size):
        text[at + size - 1 - index] = 48 + value % 10
        value //= 10
    return at + size


@inlined
def _write_dotted(text: ByteArray, at: int, low: int) -> int:
    for shift in range(24, -8, -8):
        at = _write_number(text, at, (low >> shift) & 255)
        if shift:
            text[at] = _DOT
            at += 1
    return at


@kernel
def _write_address(
    text: ByteArray, groups: Int64Array, at: int, address: tuple[int, int, int], is_dotted: int
) -> int:
    """Write an address in its usual notation; return the offset after it.

    Args:
        groups: int64[8], scratch.
        address: version and both halves. is_dotted: whether IPv4 inside IPv6 is dotted.
    """
    version, high, low = address
    if version == 4:
        return _write_dotted(text, at, low)
    for index in range(4):
        groups[index] = (high >> (48 - 16 * index)) & 0xFFFF
        groups[4 + index] = (low >> (48 - 16 * index)) & 0xFFFF
    is_mapped = is_dotted and high == 0 and (low >> 32) == 0xFFFF
    left, length = _longest_zeros(groups)
    index = 0
    while index < 8:
        if index == left:
            text[at] = _COLON
            text[at + 1] = _COLON
            at += 2
            index += length
            continue
        if index > 0 and index != left + length:
            text[at] = _COLON
            at += 1
        if index == 6 and is_mapped:
            return _write_dotted(text, at, low)
        value = groups[index]
        for shift in range(12, -4, -4):
            if shift == 0 or value >> shift:
                digit = (value >> shift) & 15
                text[at] = digit + (48 if digit < 10 else 87)
                at += 1
        index += 1
    return at


@inlined
def _longest_zeros(groups: Int64Array) -> tuple[int, int]:
    """Start and length of the first longest run of two or more zero groups."""
    best, best_length = -9, 1
    begun, length = 0, 0
    for index in range(8):
        if groups[index]:
            length = 0
            continue
        if length == 0:
            begun = index
        length += 1
        if length > best_length:
            best, best_length = begun, length
    return best, best_length


@inlined
def _write_end(
    scratch: _Scratch, at: int, version: int, end: tuple[int, int, int], is_mapped_dotted: int
) -> int:
    """Write address, in brackets if it is IPv6, and port. end: halves of the address, port."""
    text = scratch.text
    if version == 6:
        text[at] = _OPEN
        at += 1
    address = version, end[0], end[1]
    at = _write_address(text, scratch.groups, at, address, is_mapped_dotted)
    if version == 6:
        text[at] = _CLOSE
        at += 1
    text[at] = _COLON
    return _write_number(text, at + 1, end[2])


@inlined
def _fill_block(block: ByteArray, version: int, address: tuple[int, int, int], at: int) -> int:
    """Write an address in network byte order; return the offset after it."""
    if version == 6:
        for shift in range(56, -8, -8):
            block[at] = (address[0] >> shift) & 255
            at += 1
        for shift in range(56, 24, -8):
            block[at] = (address[1] >> shift) & 255
            at += 1
    for shift in range(24, -8, -8):
        block[at] = (address[1] >> shift) & 255
        at += 1
    return at


@kernel
def _write_community_id(scratch: _Scratch, at: int, size: int, port: int, other_port: int) -> int:
    """Write version and base64 of the digest of seed, addresses, protocol and ports, lower first.

    size: bytes of the block with the seed, two zeros, and the addresses.
    """
    block, digest, text = scratch.block, scratch.digest, scratch.text
    block[size] = TCP_PROTOCOL
    block[size + 1] = 0
    block[size + 2] = port >> 8
    block[size + 3] = port & 255
    block[size + 4] = other_port >> 8
    block[size + 5] = other_port & 255
    _sha1(block, size + 6, scratch.words, digest)
    text[at] = 49
    text[at + 1] = _COLON
    at += 2
    digest[_DIGEST_BYTES] = 0
    for index in range(0, _DIGEST_BYTES + 1, 3):
        three = (
            (byte(digest, index) << 16) | (byte(digest, index + 1) << 8) | byte(digest, index + 2)
        )
        for shift in range(18, -6, -6):
            text[at] = byte(scratch.base64, (three >> shift) & 63)
            at += 1
    text[at - 1] = 61  # 20 bytes are 27 digits and a padding
    return at


@inlined
def _rotated(value: int, count: int) -> int:
    return ((value << count) | (value >> (32 - count))) & _LOW_32


@kernel
def _sha1(data: ByteArray, size: int, words: Int64Array, digest: ByteArray) -> None:
    """SHA-1 of data[:size], at most 55 bytes: one block. words: int64[80], scratch."""
    for index in range(16):
        words[index] = 0
    for index in range(size):
        words[index >> 2] |= byte(data, index) << (24 - 8 * (index & 3))
    words[size >> 2] |= 0x80 << (24 - 8 * (size & 3))
    words[15] = 8 * size
    for index in range(16, _WORDS):
        words[index] = _rotated(
            words[index - 3] ^ words[index - 8] ^ words[index - 14] ^ words[index - 16], 1
        )
    a, b, c, d, e = 0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0
    for index in range(_WORDS):
        if index < 20:
            mixed, constant = (b & c) | ((b ^ _LOW_32) & d), 0x5A827999
        elif index < 40:
            mixed, constant = b ^ c ^ d, 0x6ED9EBA1
        elif index < 60:
            mixed, constant = (b & c) | (b & d) | (c & d), 0x8F1BBCDC
        else:
            mixed, constant = b ^ c ^ d, 0xCA62C1D6
        total = (_rotated(a, 5) + mixed + e + constant + words[index]) & _LOW_32
        a, b, c, d, e = total, a, _rotated(b, 30), c, d
    _put32(digest, 0, (a + 0x67452301) & _LOW_32)
    _put32(digest, 4, (b + 0xEFCDAB89) & _LOW_32)
    _put32(digest, 8, (c + 0x98BADCFE) & _LOW_32)
    _put32(digest, 12, (d + 0x10325476) & _LOW_32)
    _put32(digest, 16, (e + 0xC3D2E1F0) & _LOW_32)


@inlined
def _put32(data: ByteArray, at: int, value: int) -> None:
    for index in range(4):
        data[at + index] = (value >> (24 - 8 * index)) & 255
