"""Other addresses and other payloads in packets, in place, at equal length, sums made right.

A sum that was right is right again, one that was wrong is wrong, and says nothing about what was
there; one that a network card was to put in later is what a system leaves there.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle, Records
from dissector.capture.pcapng import PACKET_OFFSET, BlockType
from dissector.codecs.integers import be16, be32, be64, byte
from dissector.codecs.keyed_hash import hash_of_words, new_secret
from dissector.codecs.ones_sum import folded, ones_sum
from dissector.codecs.siphash import fill_noise, following, siphash
from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.packet import header_offsets
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.header_offsets import Headers, PacketsLeft
from dissector.packet.tcp import CHECKSUM_AT, SYN, address_sum
from dissector.states import State

_NO_OPTION: Final = 1
_HALF: Final = 1 << 31
_WHOLE: Final = 1 << 32
_POSITIVE: Final = (1 << 62) - 1


class Addresses(Records):
    """Addresses and what stands for them, a hash table of 2^n records.

    version: 4 or 6, 0 where free.
    high, low: halves before.
    new_high, new_low: after, if is_known.
    """

    version: Int64Array
    high: Int64Array
    low: Int64Array
    new_high: Int64Array
    new_low: Int64Array
    is_known: Int64Array


class AddressCounts(Records):
    """One record.

    all: addresses in the table.
    missing: those without an answer.
    """

    all: Int64Array
    missing: Int64Array


class Rewriting(State):
    """missing: int64[rows], rows of addresses without an answer; key, noise_key: int64[2]. secret:
    of hashes. fill: int64[1], the byte that stands for what is not in a stream, or contradicts it;
    NULL: noise does."""

    addresses: Addresses
    counts: AddressCounts
    missing: Int64Array
    key: Int64Array
    noise_key: Int64Array
    secret: Int64Array
    fill: Int64Array


class SegmentStreams(Bundle):
    """Of segments, int64[segments] each: their stream, -1 for none; base: sequence number of its
    offset 0."""

    stream: Int64Array
    base: Int64Array


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
    near: int64[streams], an offset close to the last one seen.
    before, after: uint8[].
    """

    first: Int64Array
    last: Int64Array
    starts: Int64Array
    ends: Int64Array
    positions: Int64Array
    near: Int64Array
    before: ByteArray
    after: ByteArray


def new_rewriting(
    names: Int64Array, noise: Int64Array, fill: int = NULL, rows: int = 1 << 10
) -> Rewriting:
    """A table for addresses under these keys; rows: a power of two."""
    return Rewriting(
        addresses=Addresses.new(rows),
        counts=AddressCounts.new(1),
        missing=np.zeros(rows, np.int64),
        key=names,
        noise_key=noise,
        secret=new_secret(int.from_bytes(names.tobytes(), "little")),
        fill=np.array([fill], np.int64),
    )


@kernel
def _row_of(table: Addresses, secret: Int64Array, version: int, high: int, low: int) -> int:
    """The row of an address, or the free one where it belongs."""
    mask = len(table.version) - 1
    at = hash_of_words(secret, version, high, low, 0) & mask
    for _ in range(mask):
        if table.version[at] == 0 or (
            table.version[at] == version and table.high[at] == high and table.low[at] == low
        ):
            break
        at = (at + 1) & mask
    return int(at)


@kernel
def _add_address(state: Rewriting, version: int, high: int, low: int) -> None:
    table = state.addresses
    counts = state.counts
    row = _row_of(table, state.secret, version, high, low)
    if table.version[row] == 0:
        table.version[row] = version
        table.high[row] = high
        table.low[row] = low
        state.missing[counts.missing[0]] = row
        counts.all[0] += 1
        counts.missing[0] += 1


@kernel
def add_addresses(data: ByteArray, headers: Headers, first: int, state: Rewriting) -> int:
    """Put the addresses of headers into the table, from one header on; returns the next one, which
    is not the end when the table is half full."""
    table = state.addresses
    for number in range(first, len(headers.row)):
        if 2 * (state.counts.all[0] + 4) > len(table.version):
            return number
        at = headers.offset[number]
        if headers.kind[number] == header_offsets.IP4:
            _add_address(state, 4, 0, be32(data, at + 12))
            _add_address(state, 4, 0, be32(data, at + 16))
        elif headers.kind[number] == header_offsets.IP6:
            _add_address(state, 6, be64(data, at + 8), be64(data, at + 16))
            _add_address(state, 6, be64(data, at + 24), be64(data, at + 32))
    return len(headers.row)


def grow_addresses(state: Rewriting) -> None:
    """Double the capacity of the table of addresses."""
    before = state.addresses
    after = Addresses.new(2 * len(before.matrix))
    for row in before.matrix[before.version != 0]:
        after.matrix[_row_of(after, state.secret, *row[:3].tolist())] = row
    missing = np.zeros(len(after.matrix), np.int64)
    waiting = np.flatnonzero((after.version != 0) & (after.is_known == 0))
    missing[: len(waiting)] = waiting
    state.counts.missing[0] = len(waiting)
    state.grow(addresses=after, missing=missing)


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
    table = state.addresses
    for field in (at + 12, at + 16):
        value = table.new_low[_row_of(table, state.secret, 4, 0, be32(data, field))]
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
def readdress(data: ByteArray, packets: PacketColumns, headers: Headers, state: Rewriting) -> None:
    """Replace IP addresses by the table's, and hardware addresses by hashes of them."""
    table = state.addresses
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
                high, low = be64(data, field), be64(data, field + 8)
                row = _row_of(table, state.secret, 6, high, low)
                _put64(data, field, table.new_high[row])
                _put64(data, field + 8, table.new_low[row])


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
def _new_address(state: Rewriting, version: int, high: int, low: int) -> tuple[int, int]:
    """The halves of what stands for an address now."""
    if state.counts.all[0] == 0:  # addresses stay
        return high, low
    table = state.addresses
    row = _row_of(table, state.secret, version, high, low)
    return table.new_high[row], table.new_low[row]


@kernel
def rewrite_segments(
    data: ByteArray, segments: SegmentColumns, count: int, of: SegmentStreams, runs: Runs,
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
        high, low = _new_address(state, version, high, low)
        other_high, other_low = _new_address(state, version, other_high, other_low)
        bounds = _Bounds(
            payload - 4 * ((segments.flags[row] >> 12) & 15),
            payload,
            payload + segments.captured_bytes[row],
            payload + segments.wire_bytes[row],
            before,
            address_sum(high, low, other_high, other_low),
        )
        stream = of.stream[row]
        offset = 0
        if stream >= 0:
            # A SYN counts as a byte before those that come with it.
            sequence = segments.sequence[row] + ((segments.flags[row] & SYN) >> 1)
            near = runs.near[stream]
            offset = near + (sequence - of.base[row] - near + _HALF) % _WHOLE - _HALF
            runs.near[stream] = offset
        _rewrite_segment(data, bounds, stream, offset, runs, state)


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
