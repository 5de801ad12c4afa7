"""Parses TCP headers: fields, relevant options, offset of the payload."""

import enum
from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16, be32, byte
from dissector.codecs.ones_sum import folded, ones_sum
from dissector.jit import inlined, kernel
from dissector.packet.ip import TCP_PROTOCOL, Network
from dissector.packet.reasons import TCP_CUT, TCP_MALFORMED, USED

HEADER_BYTES: Final = 20
CHECKSUM_AT: Final = 16  # in a header
_NEEDED_BYTES: Final = 16  # up to the window: less of a header places nothing in a stream
_FLAGS: Final = 0xF1FF  # without three bits that mean nothing
_OPTION_END: Final = 0
_OPTION_NOTHING: Final = 1
_OPTION_TIME_STAMPS: Final = 8
_TIME_STAMPS_BYTES: Final = 10
_TIME_STAMPS_ALIGNED: Final = 0x0101_080A  # two fillers, then time stamps: what everyone sends
SYN: Final = 2


class ChecksumVerdict(enum.IntEnum):
    """Results of a checksum test of a segment."""

    RIGHT = 0
    UNFINISHED = 1  # captured before the network card put it in
    WRONG = 2


class TimeStamps(NamedTuple):
    """The TCP time stamp option; -1 each if there is none."""

    value: int
    echo: int


class Transport(NamedTuple):
    """A parsed TCP header.

    reason: USED, or why the packet is not read.
    payload: position of the first payload byte.
    flags: nine flag bits, and in the highest four the header's length in words.
    """

    reason: int
    payload: int
    flags: int


@inlined
def tcp_layer(data: ByteArray, offset: int, end: int, wire_end: int) -> Transport:
    """Read the TCP header at offset; wire_end: position after the segment on the wire.

    A header that the snap length cut inside its options is still usable: the payload's position in
    the stream is known, but none of it was captured.
    """
    if wire_end - offset < HEADER_BYTES:
        return Transport(TCP_MALFORMED, 0, 0)
    if end - offset < _NEEDED_BYTES:
        return Transport(TCP_CUT, 0, 0)
    packed = be16(data, offset + 12)
    header_bytes = (packed >> 12) * 4
    if header_bytes < HEADER_BYTES or header_bytes > wire_end - offset:
        return Transport(TCP_MALFORMED, 0, 0)
    return Transport(USED, offset + header_bytes, packed & _FLAGS)


@kernel
def find_option(data: ByteArray, offset: int, end: int, wanted: int, wanted_bytes: int) -> int:
    """Where among the options in data[offset:end] one of a kind and size begins, -1: nowhere.

    Each step advances by at least a byte.
    """
    while offset < end:
        kind = byte(data, offset)
        if kind == _OPTION_END:
            break
        if kind == _OPTION_NOTHING:
            offset += 1
            continue
        if offset + 2 > end:
            break
        size = byte(data, offset + 1)
        if size < 2 or size > end - offset:
            break
        if kind == wanted and size == wanted_bytes:
            return offset
        offset += size
    return -1


@inlined
def time_stamps(data: ByteArray, offset: int, end: int) -> TimeStamps:
    """The time stamp option among the options in data[offset:end]."""
    if offset >= end:
        return TimeStamps(-1, -1)
    if end - offset >= 12 and be32(data, offset) == _TIME_STAMPS_ALIGNED:
        return TimeStamps(be32(data, offset + 4), be32(data, offset + 8))
    at = find_option(data, offset, end, _OPTION_TIME_STAMPS, _TIME_STAMPS_BYTES)
    if at < 0:
        return TimeStamps(-1, -1)
    return TimeStamps(be32(data, at + 2), be32(data, at + 6))


@inlined
def _words_of(half: int) -> int:
    """The sum of the four 16-bit words of an address half."""
    total = (half & 0xFFFF) + ((half >> 16) & 0xFFFF)
    return total + ((half >> 32) & 0xFFFF) + ((half >> 48) & 0xFFFF)


@inlined
def address_sum(high: int, low: int, other_high: int, other_low: int) -> int:
    """Return the part of a connection's TCP checksums from addresses and protocol."""
    one = _words_of(high) + _words_of(low)
    return TCP_PROTOCOL + one + _words_of(other_high) + _words_of(other_low)


@kernel
def check_sum(data: ByteArray, network: Network) -> int:
    """Judge the checksum of a wholly captured TCP segment.

    The ones' complement sum over pseudo header and segment, checksum included, is 0xFFFF if it is
    right. A system that leaves the sum to its network card puts the sum of the pseudo header there
    (Windows, for segments still to be cut, without the length), or nothing.

    Returns:
        CHECKSUM_RIGHT, CHECKSUM_UNFINISHED or CHECKSUM_WRONG.
    """
    size = network.wire_end - network.offset
    addresses = address_sum(
        network.source_high, network.source_low, network.destination_high, network.destination_low
    )
    pseudo = folded(addresses + (size & 0xFFFF) + (size >> 16))
    if folded(pseudo + ones_sum(data, network.offset, network.wire_end)) == 0xFFFF:
        return ChecksumVerdict.RIGHT
    stored = be16(data, network.offset + CHECKSUM_AT) if size >= HEADER_BYTES else 0
    is_unfinished = stored in (0, pseudo, folded(addresses))
    return ChecksumVerdict.UNFINISHED if is_unfinished else ChecksumVerdict.WRONG
