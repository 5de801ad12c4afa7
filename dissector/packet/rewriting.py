"""Replaces addresses and payloads of packets in place, at equal length, and corrects checksums.

A correct checksum is corrected; a wrong one stays wrong, without revealing the original bytes; one
that was left to the network card becomes the value that a system leaves there.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle
from dissector.capture.pcapng import PACKET_OFFSET, BlockType
from dissector.codecs.integers import be16, be32, be64, byte, wrapped
from dissector.codecs.ones_sum import folded, ones_sum
from dissector.codecs.siphash import SipHashKey, fill_noise, following, siphash, siphash_of_row
from dissector.jit import inlined, kernel
from dissector.limits import MAX_EXTENSION_HEADERS, NULL
from dissector.packet import header_offsets
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.header_offsets import Headers, PacketsLeft
from dissector.packet.ip import (
    AUTHENTICATION,
    EXTENSIONS,
    FRAGMENT_HEADER,
    HOP_BY_HOP,
    JUMBO_OPTION,
)
from dissector.packet.tcp import CHECKSUM_AT, HEADER_BYTES, address_sum
from dissector.states import State

_NO_OPTION: Final = 1
_ROUTING: Final = 43
_KEPT_EXTENSIONS: Final = (AUTHENTICATION, FRAGMENT_HEADER)
# Options of TCP that stay: sizes, windows, acknowledgements, times. Others can name somebody, as
# those in which load balancers write the client's address.
_TCP_OPTIONS: Final = (2, 3, 4, 5, 8)
_KNOWN: Final = 1 << 12
_POSITIVE: Final = (1 << 62) - 1


class Rewriting(State):
    """key, noise_key: int64[2]. keeps: int64[1], whether addresses stay. known: int64[rows, 5],
    addresses asked for lately: version, halves before, halves after. prefix: int64[1, 3], the bits
    in hand. fill: int64[1], the byte that stands for what is not in a stream, or contradicts it;
    NULL: noise does."""

    key: Int64Array
    noise_key: Int64Array
    keeps: Int64Array
    known: Int64Array
    prefix: Int64Array
    fill: Int64Array


class SegmentPositions(Bundle):
    """Of segments, int64[segments] each: their stream, -1 for none, and the offset of their payload
    in it."""

    stream: Int64Array
    offset: Int64Array


class _Bounds(NamedTuple):
    """Where a segment lies: TCP header, payload, its end, the end it had on the wire.

    sum_before, sum_after: of its addresses, see `tcp.address_sum`.
    """

    header: int
    payload: int
    end: int
    wire_end: int
    sum_before: int
    sum_after: int


class Runs(State):
    """What streams hold now.

    first, last: int64[streams], their rows in the next three.
    starts, ends, positions: int64[runs], offsets in the stream, rising, and where the bytes lie.
    before, after: uint8[].
    """

    first: Int64Array
    last: Int64Array
    starts: Int64Array
    ends: Int64Array
    positions: Int64Array
    before: ByteArray
    after: ByteArray


def new_rewriting(
    names: SipHashKey, noise: SipHashKey, fill: int = NULL, *, keeps_addresses: bool = False
) -> Rewriting:
    """What rewrites under these keys."""
    return Rewriting(
        key=np.array(names, np.int64),
        noise_key=np.array(noise, np.int64),
        keeps=np.array([keeps_addresses], np.int64),
        known=np.zeros((_KNOWN, 5), np.int64),
        prefix=np.zeros((1, 3), np.int64),
        fill=np.array([fill], np.int64),
    )


@kernel
def new_address(state: Rewriting, version: int, high: int, low: int) -> tuple[int, int]:
    """The halves of what stands for an address: each bit turned by a hash of those before it, so
    that two addresses which share their first n bits share exactly n afterwards."""
    if state.keeps[0]:
        return high, low
    known = state.known
    row = following(high ^ low, version) & (_KNOWN - 1)
    if known[row, 0] == version and known[row, 1] == high and known[row, 2] == low:
        return known[row, 3], known[row, 4]
    new_high, new_low = high, low
    prefix = state.prefix
    prefix[0, 0] = prefix[0, 1] = 0
    for bit in range(96 if version == 4 else 0, 128):
        prefix[0, 2] = bit
        turned = siphash_of_row(state.key[0], state.key[1], prefix, 0) & 1
        shift = 63 - (bit & 63)
        if bit < 64:
            new_high ^= wrapped(turned << shift)
            prefix[0, 0] |= wrapped((high >> shift & 1) << shift)
        else:
            new_low ^= wrapped(turned << shift)
            prefix[0, 1] |= wrapped((low >> shift & 1) << shift)
    known[row, 0], known[row, 1], known[row, 2] = version, high, low
    known[row, 3], known[row, 4] = new_high, new_low
    return new_high, new_low


def other_address(state: Rewriting, packed: bytes) -> bytes:
    """What stands for an address of 4 or 16 bytes."""
    longer = packed.rjust(16, b"\0")
    halves = (int.from_bytes(longer[at : at + 8], "big", signed=True) for at in (0, 8))
    made = new_address(state, 4 if len(packed) == 4 else 6, *halves)
    return np.array(made, ">i8").tobytes()[-len(packed) :]


@inlined
def _put16(data: ByteArray, at: int, value: int) -> None:
    data[at] = (value >> 8) & 0xFF
    data[at + 1] = value & 0xFF


@inlined
def _put64(data: ByteArray, at: int, value: int) -> None:
    for index in range(8):
        data[at + index] = (value >> (56 - 8 * index)) & 0xFF


@kernel
def _rename_mac(data: ByteArray, at: int, state: Rewriting) -> None:
    """Replace a hardware address; the bits for group and local administration stay."""
    bits = 0
    for index in range(6):
        bits += int(byte(data, at + index) == 0xFF) + 8 * int(byte(data, at + index) == 0)
    if bits in (6, 48):  # everybody, nobody
        return
    other = siphash(state.key[0], state.key[1], data, at, at + 6)
    data[at] = (other & 0xFC) | (byte(data, at) & 3)
    for index in range(1, 6):
        data[at + index] = (other >> (8 * index)) & 0xFF


@kernel
def _readdress4(data: ByteArray, at: int, end: int, state: Rewriting) -> None:
    size = (byte(data, at) & 15) * 4
    is_there = 20 <= size <= end - at
    stored = be16(data, at + 10)
    is_right = is_there and folded(ones_sum(data, at, at + size)) == 0xFFFF
    for field in (at + 12, at + 16):
        _, value = new_address(state, 4, 0, be32(data, field))
        _put16(data, field, value >> 16)
        _put16(data, field + 2, value)
    for index in range(at + 20, min(at + size, end)):
        data[index] = _NO_OPTION  # routes are addresses
    if not is_there or stored == 0:
        return
    _put16(data, at + 10, 0)
    value = 0xFFFF - ones_sum(data, at, at + size)
    _put16(data, at + 10, value if is_right else (value + 1) & 0xFFFF)


@kernel
def _empty_extensions(data: ByteArray, at: int, end: int) -> None:
    """Empty headers of IPv6 between the one at a place and what is carried: routes and homes are
    addresses. Their kinds, their sizes and a jumbo length stay."""
    protocol, at = byte(data, at + 6), at + 40
    for _ in range(MAX_EXTENSION_HEADERS + 1):
        if at + 8 > end or (protocol not in EXTENSIONS and protocol not in _KEPT_EXTENSIONS):
            break
        size = kept = (byte(data, at + 1) + 1) * 8
        if protocol == AUTHENTICATION:
            size = kept = (byte(data, at + 1) + 2) * 4
        elif protocol == FRAGMENT_HEADER:
            size = kept = 8
        elif protocol == _ROUTING:
            kept = 4
        elif protocol != HOP_BY_HOP or be16(data, at + 2) != JUMBO_OPTION:
            kept = 2
        for index in range(at + kept, min(at + size, end)):
            data[index] = 0
        protocol, at = byte(data, at), at + size


@kernel
def _drop_options(data: ByteArray, start: int, end: int) -> bool:
    """Put nothing in the place of options of TCP but those that count, and of what is behind them;
    returns whether there was anything."""
    is_changed = False
    at = start
    for _ in range(start, end):
        if at >= end:
            break
        kind = byte(data, at)
        size = 1
        if kind > _NO_OPTION:
            size = byte(data, at + 1) if at + 1 < end else 0
        is_last = kind == 0 or size > end - at or (kind > _NO_OPTION and size < 2)
        size = end - at if is_last else size
        if is_last or (kind > _NO_OPTION and kind not in _TCP_OPTIONS):
            for index in range(at, at + size):
                is_changed |= data[index] != min(kind, _NO_OPTION)
                data[index] = min(kind, _NO_OPTION)
        at += size
    return is_changed


@kernel
def readdress(data: ByteArray, packets: PacketColumns, headers: Headers, state: Rewriting) -> None:
    """Replace IP addresses, and hardware addresses by hashes of them, unless they stay."""
    if state.keeps[0]:
        return
    for number in range(len(headers.row)):
        kind = headers.kind[number]
        at = headers.offset[number]
        if kind == header_offsets.MACS:
            _rename_mac(data, at, state)
            _rename_mac(data, at + 6, state)
        elif kind == header_offsets.MAC:
            _rename_mac(data, at, state)
        elif kind == header_offsets.IP4:
            packet = headers.row[number]
            _readdress4(data, at, packets.offset[packet] + packets.captured_bytes[packet], state)
        elif kind == header_offsets.IP6:
            for field in (at + 8, at + 24):
                high, low = new_address(state, 6, be64(data, field), be64(data, field + 8))
                _put64(data, field, high)
                _put64(data, field + 8, low)
            packet = headers.row[number]
            end = packets.offset[packet] + packets.captured_bytes[packet]
            _empty_extensions(data, at, end)


@kernel
def blank(data: ByteArray, packets: PacketColumns, headers: Headers) -> int:
    """Empty what is behind the headers of packets without a segment, and sums of UDP: 0 is none.

    Returns:
        How many bytes were emptied.
    """
    emptied = 0
    for number in range(len(headers.row)):
        at = headers.offset[number]
        packet = headers.row[number]
        end = packets.offset[packet] + packets.captured_bytes[packet]
        if headers.kind[number] == header_offsets.UDP_HEADER:
            _put16(data, at + 6, 0)
        elif headers.kind[number] == header_offsets.REST:
            for index in range(at, end):
                emptied += int(data[index] != 0)
                data[index] = 0
    return emptied


@inlined
def _stranger(state: Rewriting, was: int, value: int, place: int) -> int:
    """What stands for a byte that contradicts its stream, and does so afterwards.

    Args:
        value: that the stream has now; place: in it.
    """
    if state.fill[0] != NULL:
        return int(state.fill[0])
    drawn = following(state.noise_key[0], place * 256 + was)
    return value ^ (1 + (drawn & _POSITIVE) % 255)


@kernel
def _fill(data: ByteArray, start: int, end: int, state: Rewriting) -> None:
    """Replace bytes that are in no stream."""
    if state.fill[0] != NULL:
        for position in range(start, end):
            data[position] = state.fill[0] & 0xFF
        return
    seed = siphash(state.noise_key[0], state.noise_key[1], data, start, end)
    fill_noise(data, start, end, seed)


@kernel
def _patch(
    data: ByteArray, start: int, end: int, stream: int, offset: int, runs: Runs, state: Rewriting
) -> bool:
    """Replace data[start:end] by what the stream holds now from an offset on; returns whether that
    is something else."""
    is_changed = False
    begin = start
    row = runs.first[stream] if stream >= 0 else 0
    last = runs.last[stream] if stream >= 0 else 0
    low, high = row, last
    while low < high:
        middle = (low + high) // 2
        if runs.ends[middle] <= offset:
            low = middle + 1
        else:
            high = middle
    row = low
    while begin < end:
        at = offset + begin - start
        if row < last and runs.starts[row] <= at:
            stop = min(end, begin + runs.ends[row] - at)
            source = runs.positions[row] + at - runs.starts[row]
            for position in range(begin, stop):
                step = position - begin
                was = data[position]
                value = runs.after[source + step]
                if was != runs.before[source + step]:
                    value = _stranger(state, was, value, at + step)
                data[position] = value & 0xFF
                is_changed = is_changed or data[position] != was
            row += 1
        else:
            stop = end if row >= last else min(end, begin + runs.starts[row] - at)
            _fill(data, begin, stop, state)
            is_changed = True
        begin = stop
    return is_changed


@kernel
def _rewrite_segment(
    data: ByteArray, bounds: _Bounds, stream: int, offset: int, runs: Runs, state: Rewriting
) -> None:
    """Replace the payload of a segment, and put in the checksum that belongs to it.

    Args:
        stream: -1: of none. offset: of the payload.
    """
    header, end = bounds.header, bounds.end
    at = header + CHECKSUM_AT
    size = bounds.wire_end - header
    length = (size & 0xFFFF) + (size >> 16)
    pseudo = bounds.sum_before + length
    stored = be16(data, at) if at + 2 <= end else -1
    is_right = end < bounds.wire_end or folded(pseudo + ones_sum(data, header, end)) == 0xFFFF
    is_unfinished = not is_right and stored in (folded(pseudo), folded(bounds.sum_before))
    is_changed = _patch(data, bounds.payload, end, stream, offset, runs, state)
    is_changed = is_changed or bounds.sum_before != bounds.sum_after
    if not state.keeps[0]:
        last = min(bounds.payload, end)
        is_changed = _drop_options(data, header + HEADER_BYTES, last) or is_changed
    if not is_changed or stored < 0 or (stored == 0 and not is_right):
        return
    pseudo = bounds.sum_after + length
    if is_unfinished:
        _put16(data, at, folded(pseudo))
        return
    _put16(data, at, 0)
    value = 0xFFFF - folded(pseudo + ones_sum(data, header, end))
    _put16(data, at, value if is_right else (value + 1) & 0xFFFF)


@kernel
def rewrite_segments(
    data: ByteArray, segments: SegmentColumns, count: int, positions: SegmentPositions, runs: Runs,
    state: Rewriting,
) -> None:  # fmt: skip
    """Rewrite those of the first `count` segments that lie in data, from their columns."""
    for row in range(count):
        if segments.source[row] != 0:
            continue
        payload = segments.offset[row]
        version = segments.ip_version[row]
        high, low = segments.source_high[row], segments.source_low[row]
        other_high, other_low = segments.destination_high[row], segments.destination_low[row]
        before = address_sum(high, low, other_high, other_low)
        high, low = new_address(state, version, high, low)
        other_high, other_low = new_address(state, version, other_high, other_low)
        bounds = _Bounds(
            payload - 4 * ((segments.flags[row] >> 12) & 15),
            payload,
            payload + segments.captured_bytes[row],
            payload + segments.wire_bytes[row],
            before,
            address_sum(high, low, other_high, other_low),
        )
        _rewrite_segment(data, bounds, positions.stream[row], positions.offset[row], runs, state)


@kernel
def blank_behind(
    data: ByteArray, packets: PacketColumns, segments: SegmentColumns, count: int, first: int
) -> None:
    """Empty what lies behind the segments in their packets: padding may hold anything."""
    for row in range(count):
        if segments.source[row] == 0:
            packet = segments.packet[row] - first
            start = segments.offset[row] + segments.captured_bytes[row]
            for index in range(start, packets.offset[packet] + packets.captured_bytes[packet]):
                data[index] = 0


@kernel
def pack_packets(
    data: ByteArray, packets: PacketColumns, left: PacketsLeft, numbers: Int64Array, out: ByteArray
) -> int:
    """Write packets as enhanced packet blocks of pcapng, little-endian, times in ns.

    Args:
        left: moves on. numbers: of interfaces in what is written, by interface.

    Returns:
        How many bytes of `out` were written.
    """
    at = 0
    while left.row[0] < left.rows[0]:
        row = left.row[0]
        size = packets.captured_bytes[row]
        padded = (size + 3) & ~3
        whole = PACKET_OFFSET + padded + 4
        if at + whole > len(out):
            break
        left.row[0] += 1
        time = max(packets.ts_ns[row], 0)
        _put_le32(out, at, BlockType.ENHANCED_PACKET)
        _put_le32(out, at + 4, whole)
        interface = packets.interface[row]
        _put_le32(out, at + 8, numbers[interface] if interface >= 0 else -1)
        _put_le32(out, at + 12, time >> 32)
        _put_le32(out, at + 16, time)
        _put_le32(out, at + 20, size)
        _put_le32(out, at + 24, packets.wire_bytes[row])
        start = packets.offset[row]
        body = at + PACKET_OFFSET
        for index in range(size):
            out[body + index] = data[start + index]
        for index in range(size, padded):
            out[body + index] = 0
        _put_le32(out, body + padded, whole)
        at += whole
    return at


@inlined
def _put_le32(data: ByteArray, at: int, value: int) -> None:
    for index in range(4):
        data[at + index] = (value >> (8 * index)) & 0xFF
