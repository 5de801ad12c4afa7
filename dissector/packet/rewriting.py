"""Other addresses and other payloads in packets, in place, at equal length, sums made right.

A sum that was right is right again, one that was wrong is wrong, and says nothing about what was
there; one that a network card was to put in later is what a system leaves there.
"""

from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.integers import be16, be32, be64, byte
from dissector.codecs.ones_sum import folded, ones_sum
from dissector.codecs.pseudonyms import permute
from dissector.codecs.siphash import fill_noise, following, siphash
from dissector.codecs.wrapping import product, total
from dissector.jit import inlined, kernel
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.places import AT, IP4, IP6, KIND, MAC, MACS, PACKET_ROW, REST, UDP_HEADER
from dissector.packet.tcp import SYN
from dissector.states import State

_TCP: Final = 6
_TCP_HEADER: Final = 20
_SUM_AT: Final = 16
_FACTOR: Final = 0x2545_F491_4F6C_DD1D
_NO_OPTION: Final = 1
_HALF: Final = 1 << 31
_WHOLE: Final = 1 << 32
_POSITIVE: Final = (1 << 62) - 1
# Columns of the table of addresses: version (0: free), halves before, halves after, is it known.
_CELLS: Final = 6


class Rewriting(State):
    """addresses: int64[2^n, 6], hash table; counts: int64[2], addresses in it, and those without an
    answer; missing: int64[rows], their rows; key, noise_key: int64[2]; cells: int64[16]; scratch:
    uint8[256]."""

    addresses: Int64Array
    counts: Int64Array
    missing: Int64Array
    key: Int64Array
    noise_key: Int64Array
    cells: Int64Array
    scratch: ByteArray


class Runs(State):
    """What streams hold now. first, last: int64[streams], their rows in the next three; starts,
    ends, positions: int64[runs], offsets in the stream, rising, and where the bytes lie; near:
    int64[streams], an offset close to the last one seen; before, after: uint8[]."""

    first: Int64Array
    last: Int64Array
    starts: Int64Array
    ends: Int64Array
    positions: Int64Array
    near: Int64Array
    before: ByteArray
    after: ByteArray


def new_rewriting(names: Int64Array, noise: Int64Array, rows: int = 1 << 10) -> Rewriting:
    """A table for addresses under these keys; rows: a power of two."""
    return Rewriting(
        addresses=np.zeros((rows, _CELLS), np.int64),
        counts=np.zeros(2, np.int64),
        missing=np.zeros(rows, np.int64),
        key=names,
        noise_key=noise,
        cells=np.zeros(16, np.int64),
        scratch=np.zeros(256, np.uint8),
    )


@kernel
def _row_of(table: Int64Array, version: int, high: int, low: int) -> int:
    """The row of an address, or the free one where it belongs."""
    value = product(total(high ^ version, _FACTOR), _FACTOR)
    value = product(total(value ^ (value >> 31) ^ low, _FACTOR), _FACTOR)
    mask = len(table) - 1
    at = (value >> 20) & mask
    while table[at, 0] != 0:
        if table[at, 0] == version and table[at, 1] == high and table[at, 2] == low:
            break
        at = (at + 1) & mask
    return int(at)


@kernel
def _note(state: Rewriting, version: int, high: int, low: int) -> None:
    table = state.addresses
    row = _row_of(table, version, high, low)
    if table[row, 0] == 0:
        table[row, 0] = version
        table[row, 1] = high
        table[row, 2] = low
        state.missing[state.counts[1]] = row
        state.counts[0] += 1
        state.counts[1] += 1


@kernel
def note_addresses(data: ByteArray, places: Int64Array, count: int, state: Rewriting) -> int:
    """Put the addresses of headers into the table; returns how many places were looked at: fewer
    than `count` when the table is half full."""
    for row in range(count):
        if 2 * (state.counts[0] + 4) > len(state.addresses):
            return row
        at = places[row, AT]
        if places[row, KIND] == IP4:
            _note(state, 4, 0, be32(data, at + 12))
            _note(state, 4, 0, be32(data, at + 16))
        elif places[row, KIND] == IP6:
            _note(state, 6, be64(data, at + 8), be64(data, at + 16))
            _note(state, 6, be64(data, at + 24), be64(data, at + 32))
    return count


def grown(state: Rewriting) -> None:
    """Twice the room for addresses."""
    before = state.addresses
    after = np.zeros((2 * len(before), _CELLS), np.int64)
    for row in before[before[:, 0] != 0]:
        after[_row_of(after, int(row[0]), int(row[1]), int(row[2]))] = row
    missing = np.zeros(len(after), np.int64)
    waiting = np.flatnonzero((after[:, 0] != 0) & (after[:, 5] == 0))
    missing[: len(waiting)] = waiting
    state.counts[1] = len(waiting)
    state.grow(addresses=after, missing=missing)


@inlined
def _words_of(high: int, low: int) -> int:
    """Sum of the 16-bit words of an address."""
    value = 0
    for shift in (0, 16, 32, 48):
        value += (high >> shift) & 0xFFFF
        value += (low >> shift) & 0xFFFF
    return value


@inlined
def _put16(data: ByteArray, at: int, value: int) -> None:
    data[at] = (value >> 8) & 0xFF
    data[at + 1] = value & 0xFF


@inlined
def _put64(data: ByteArray, at: int, value: int) -> None:
    for place in range(8):
        data[at + place] = (value >> (56 - 8 * place)) & 0xFF


@kernel
def _rename_mac(data: ByteArray, at: int, state: Rewriting) -> None:
    """Another hardware address; whether it is of a group, and who gave it, stays."""
    bits = 0
    for place in range(6):
        bits += int(byte(data, at + place) == 0xFF) + 8 * int(byte(data, at + place) == 0)
    if bits in (6, 48):  # everybody, nobody
        return
    values = state.cells[:8]
    radixes = state.cells[8:]
    values[0] = byte(data, at) >> 2
    radixes[0] = 64
    for place in range(1, 6):
        values[place] = byte(data, at + place)
        radixes[place] = 256
    permute(values, radixes, 6, state.key[0], state.key[1], state.scratch)
    data[at] = values[0] << 2 | (byte(data, at) & 3)
    for place in range(1, 6):
        data[at + place] = values[place]


@kernel
def _readdress4(data: ByteArray, at: int, end: int, state: Rewriting) -> None:
    size = (byte(data, at) & 15) * 4
    is_there = 20 <= size <= end - at
    stored = be16(data, at + 10)
    is_right = is_there and folded(ones_sum(data, at, at + size)) == 0xFFFF
    table = state.addresses
    for place in (at + 12, at + 16):
        value = table[_row_of(table, 4, 0, be32(data, place)), 4]
        _put16(data, place, value >> 16)
        _put16(data, place + 2, value)
    for place in range(at + 20, min(at + size, end)):
        data[place] = _NO_OPTION  # routes are addresses
    if not is_there or stored == 0:
        return
    _put16(data, at + 10, 0)
    value = 0xFFFF - ones_sum(data, at, at + size)
    _put16(data, at + 10, value if is_right else (value + 1) & 0xFFFF)


@kernel
def readdress(
    data: ByteArray, packets: PacketColumns, places: Int64Array, count: int, state: Rewriting
) -> None:
    """Put the answers of the table into headers, and other hardware addresses into theirs."""
    table = state.addresses
    for row in range(count):
        kind = places[row, KIND]
        at = places[row, AT]
        if kind == MACS:
            _rename_mac(data, at, state)
            _rename_mac(data, at + 6, state)
        elif kind == MAC:
            _rename_mac(data, at, state)
        elif kind == IP4:
            packet = places[row, PACKET_ROW]
            _readdress4(data, at, packets.offset[packet] + packets.captured_bytes[packet], state)
        elif kind == IP6:
            for place in (at + 8, at + 24):
                found = _row_of(table, 6, be64(data, place), be64(data, place + 8))
                _put64(data, place, table[found, 3])
                _put64(data, place + 8, table[found, 4])


@kernel
def blank(data: ByteArray, packets: PacketColumns, places: Int64Array, count: int) -> int:
    """Empty what is behind the headers of packets without a segment, and sums of UDP: 0 is none.

    Returns:
        How many bytes were emptied.
    """
    emptied = 0
    for row in range(count):
        at = places[row, AT]
        packet = places[row, PACKET_ROW]
        end = packets.offset[packet] + packets.captured_bytes[packet]
        if places[row, KIND] == UDP_HEADER:
            _put16(data, at + 6, 0)
        elif places[row, KIND] == REST:
            for place in range(at, end):
                emptied += int(data[place] != 0)
                data[place] = 0
    return emptied


@kernel
def _patch(
    data: ByteArray, start: int, end: int, stream: int, offset: int, runs: Runs, state: Rewriting
) -> None:
    """What the stream holds now for data[start:end], which begins at an offset of it."""
    place = start
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
    while place < end:
        at = offset + place - start
        if row < last and runs.starts[row] <= at:
            stop = min(end, place + runs.ends[row] - at)
            source = runs.positions[row] + at - runs.starts[row]
            for position in range(place, stop):
                step = position - place
                value = runs.after[source + step]
                if data[position] != runs.before[source + step]:
                    # It contradicts the stream, and does so afterwards.
                    drawn = following(state.noise_key[0], (at + step) * 256 + data[position])
                    value ^= 1 + (drawn & _POSITIVE) % 255
                data[position] = value & 0xFF
            row += 1
        else:
            stop = end if row >= last else min(end, place + runs.starts[row] - at)
            seed = siphash(state.noise_key[0], state.noise_key[1], data, place, stop)
            fill_noise(data, place, stop, seed)
        place = stop


@kernel
def rewrite_segment(
    data: ByteArray, ends: Int64Array, stream: int, offset: int, runs: Runs, state: Rewriting
) -> None:
    """Another payload for a segment, and the sum of TCP that belongs to it.

    Args:
        ends: int64[], TCP header, payload, its end there, its end on the wire, sums of the words of
            the addresses before and after. stream: -1: of none. offset: of the payload.
    """
    header, payload, end, wire_end = ends[0], ends[1], ends[2], ends[3]
    size = wire_end - header
    fixed = _TCP + (size & 0xFFFF) + (size >> 16)
    pseudo = ends[4] + fixed
    stored = be16(data, header + _SUM_AT) if header + 18 <= end else -1
    is_right = end < wire_end or folded(pseudo + ones_sum(data, header, end)) == 0xFFFF
    is_unfinished = not is_right and stored in (folded(pseudo), folded(ends[4] + _TCP))
    _patch(data, payload, end, stream, offset, runs, state)
    if stored < 0 or (stored == 0 and not is_right):
        return
    pseudo = ends[5] + fixed
    if is_unfinished:
        _put16(data, header + _SUM_AT, folded(pseudo))
        return
    _put16(data, header + _SUM_AT, 0)
    value = 0xFFFF - folded(pseudo + ones_sum(data, header, end))
    _put16(data, header + _SUM_AT, value if is_right else (value + 1) & 0xFFFF)


@kernel
def address_sum(version: int, high: int, low: int, state: Rewriting) -> int:
    """The sum of the words of what stands for an address now."""
    if state.counts[0] == 0:  # addresses stay
        return _words_of(high, low)
    row = _row_of(state.addresses, version, high, low)
    return _words_of(state.addresses[row, 3], state.addresses[row, 4])


@kernel
def rewrite_segments(
    data: ByteArray, segments: SegmentColumns, bounds: Int64Array, of: Int64Array, runs: Runs,
    state: Rewriting,
) -> None:  # fmt: skip
    """Rewrite the segments that lie in data, from their columns.

    Args:
        bounds: int64[16], how many there are, then room. of: int64[3, rows], stream of each, -1 for
            none, the sequence number of that stream's offset 0, where its TCP header begins.
    """
    for row in range(bounds[0]):
        if segments.source[row] != 0:
            continue
        ends = bounds[1:]
        ends[1] = segments.offset[row]
        ends[0] = of[2, row]
        ends[2] = ends[1] + segments.captured_bytes[row]
        ends[3] = ends[1] + segments.wire_bytes[row]
        version = segments.ip_version[row]
        source = segments.source_high[row], segments.source_low[row]
        target = segments.destination_high[row], segments.destination_low[row]
        ends[4] = _words_of(source[0], source[1]) + _words_of(target[0], target[1])
        ends[5] = address_sum(version, source[0], source[1], state)
        ends[5] += address_sum(version, target[0], target[1], state)
        stream = of[0, row]
        offset = 0
        if stream >= 0:
            near = runs.near[stream]
            # A SYN counts as a byte before those that come with it.
            sequence = segments.sequence[row] + ((segments.flags[row] & SYN) >> 1)
            offset = near + (sequence - of[1, row] - near + _HALF) % _WHOLE - _HALF
            runs.near[stream] = offset
        rewrite_segment(data, ends, stream, offset, runs, state)


@kernel
def blank_behind(
    data: ByteArray, packets: PacketColumns, segments: SegmentColumns, count: int, first: int
) -> None:
    """Empty what lies behind the segments in their packets: padding may hold anything."""
    for row in range(count):
        if segments.source[row] == 0:
            packet = segments.packet[row] - first
            start = segments.offset[row] + segments.captured_bytes[row]
            for place in range(start, packets.offset[packet] + packets.captured_bytes[packet]):
                data[place] = 0


@kernel
def pack_packets(
    data: ByteArray, packets: PacketColumns, bounds: Int64Array, numbers: Int64Array, out: ByteArray
) -> int:
    """Enhanced packet blocks of pcapng, little-endian, times in ns.

    Args:
        bounds: int64[2], the next packet, which moves on, and how many there are. numbers: of
            interfaces in what is written, by interface.

    Returns:
        How many bytes of `out` were written.
    """
    at = 0
    while bounds[0] < bounds[1]:
        row = bounds[0]
        size = packets.captured_bytes[row]
        padded = (size + 3) & ~3
        whole = padded + 32
        if at + whole > len(out):
            break
        bounds[0] += 1
        time = max(packets.ts_ns[row], 0)
        _put_le32(out, at, 6)
        _put_le32(out, at + 4, whole)
        interface = packets.interface[row]
        _put_le32(out, at + 8, numbers[interface] if interface >= 0 else -1)
        _put_le32(out, at + 12, time >> 32)
        _put_le32(out, at + 16, time)
        _put_le32(out, at + 20, size)
        _put_le32(out, at + 24, packets.wire_bytes[row])
        start = packets.offset[row]
        for place in range(size):
            out[at + 28 + place] = data[start + place]
        for place in range(size, padded):
            out[at + 28 + place] = 0
        _put_le32(out, at + 28 + padded, whole)
        at += whole
    return at


@inlined
def _put_le32(data: ByteArray, at: int, value: int) -> None:
    for place in range(4):
        data[at + place] = (value >> (8 * place)) & 0xFF
