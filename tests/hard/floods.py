"""Floods: many packets that a plain reassembler would take ever longer for, as columns.

Made with whole arrays, so that a million packets take a moment.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dissector.blocks import Int64Array
from dissector.notice_rows import Notice
from dissector.packet.columns import PacketBuffers, SegmentColumns
from dissector.stream.columns import RangeColumns
from dissector.stream.state import StreamOptions
from dissector.stream.streams import Streams
from tests.wire.captures import pcap_header
from tests.wire.packets import ACK, FIN, RST, SYN

START_NS = 1_700_000_000_000_000_000
CLIENT, BROKER = 0x0A000001, 0x0A000002
ISN = 1000
Flood = tuple[SegmentColumns, PacketBuffers]

_BUFFERS = PacketBuffers(np.zeros(1 << 16, np.uint8), np.zeros(1, np.uint8))


def columns(
    sequences: Int64Array,
    lengths: Int64Array,
    flags: Int64Array | int = ACK,
    sources: Int64Array | int = CLIENT,
    ports: Int64Array | int = 40000,
) -> Flood:
    """Packets of clients to a broker, a microsecond apart; all bytes are 0."""
    count = len(sequences)
    segments = SegmentColumns.new(count)
    wide = segments.matrix.shape[1]
    assert wide >= count
    segments = SegmentColumns(np.zeros((len(SegmentColumns._fields), count), np.int64))
    numbers = np.arange(count)
    segments.packet[:] = numbers + 1
    segments.ts_ns[:] = START_NS + 1000 * numbers
    segments.captured_bytes[:] = segments.wire_bytes[:] = lengths
    segments.ip_version[:] = 4
    segments.source_low[:] = sources
    segments.destination_low[:] = BROKER
    segments.source_port[:] = ports
    segments.destination_port[:] = 6650
    segments.sequence[:] = sequences & 0xFFFFFFFF
    segments.flags[:] = flags
    segments.window[:] = 1000
    segments.ip_id[:] = numbers & 0xFFFF
    segments.tsval[:] = -1
    return segments, _BUFFERS


def _one_connection(offsets: Int64Array, lengths: Int64Array | int) -> Flood:
    """A SYN, and segments at offsets of its stream."""
    count = len(offsets)
    sequences = np.concatenate([[ISN], ISN + 1 + offsets])
    flags = np.full(count + 1, ACK)
    flags[0] = SYN
    sizes = np.zeros(count + 1, np.int64)
    sizes[1:] = lengths
    return columns(sequences[:count], sizes[:count], flags[:count])


def pieces(count: int) -> Flood:
    """Small pieces in random order behind a hole of one byte."""
    order = np.random.default_rng(1).permutation(count)
    return _one_connection(1 + order * 3, 2)


def backwards(count: int) -> Flood:
    """Small pieces from the last to the first."""
    return _one_connection(1 + np.arange(count, 0, -1) * 3, 2)


def overlapping(count: int) -> Flood:
    """Pieces of 40 bytes at random places that overlap some others, behind a hole."""
    chance = np.random.default_rng(2)
    return _one_connection(1 + chance.integers(0, 30 * count, count), 40)


def ends_of_a_long_list(count: int) -> Flood:
    """A list of pieces, then pieces in its middle and at its front, turn by turn."""
    numbers = np.arange(count)
    far = 1_000_000 + numbers * 4
    middle = 900_000 - numbers * 4
    return _one_connection(np.where(numbers % 2, far, middle), 1)


def jumps(count: int, step: int) -> Flood:
    """Segments of ten bytes, each so many bytes ahead of the one before it."""
    return _one_connection(1 + np.arange(count) * step, 10)


def far_ahead(count: int) -> Flood:
    """Segments anywhere in the half gigabyte behind a hole."""
    return _one_connection(1 + np.random.default_rng(3).integers(0, 1 << 29, count), 10)


def hole(count: int) -> Flood:
    """One byte is never captured, everything behind it is."""
    return _one_connection(1 + 1000 * np.arange(count), 1000)


def syns(count: int) -> Flood:
    """SYNs of as many addresses."""
    numbers = np.arange(count)
    return columns(numbers * 7919, np.zeros(count, np.int64), SYN, 0x0B000000 + numbers, 40000)


def connections(count: int, most: int = 20_000) -> Flood:
    """Many connections, in rounds: a SYN each, an acknowledgement, then segments of 20 bytes."""
    number = min(most, count // 5)
    owners = np.tile(np.arange(number), count // number)
    rounds = np.repeat(np.arange(count // number), number)
    sequences = ISN + owners * 7 + np.where(rounds == 0, 0, 1 + 20 * np.maximum(0, rounds - 2))
    lengths = np.where(rounds >= 2, 20, 0)
    flags = np.where(rounds == 0, SYN, ACK)
    return columns(sequences, lengths, flags, 0x0C000000 + owners, 1024 + owners % 60_000)


def holes_everywhere(count: int, most: int = 10_000) -> Flood:
    """Many connections, each with pieces behind holes, in rounds."""
    number = min(most, max(1, count // 10))
    owners = np.tile(np.arange(number), count // number)
    rounds = np.repeat(np.arange(count // number), number)
    sequences = ISN + np.where(rounds == 0, 0, 2 + 50 * rounds)
    lengths = np.where(rounds == 0, 0, 20)
    flags = np.where(rounds == 0, SYN, ACK)
    return columns(sequences, lengths, flags, 0x0D000000 + owners, 40000)


def _talks(count: int, steps: Sequence[tuple[bool, int]], is_reused: bool = False) -> Flood:
    """Connections one after the other, of packets without payload each: (to the broker, flags).

    is_reused: all between the same addresses and ports; else each has an address of its own.
    """
    numbers = np.arange(count)
    talk, step = numbers // len(steps), numbers % len(steps)
    to_broker = np.array([way for way, _ in steps])[step]
    flags = np.array([bits for _, bits in steps])[step]
    opener, answerer = talk * 70_001, talk * 90_001
    # A SYN and a FIN have a number; a handshake is over after two packets.
    sequences = np.where(to_broker, opener, answerer) + np.maximum(0, (step + 1) // 2)
    others = np.where(to_broker, answerer, opener) + (step + 2) // 2
    client = np.full(count, CLIENT) if is_reused else 0x0B000000 + talk
    port = np.full(count, 40_000) if is_reused else 1024 + talk % 60_000
    flood = columns(sequences, np.zeros(count, np.int64), flags)
    segments = flood[0]
    segments.acknowledgement[:] = np.where(flags & ACK, others & 0xFFFFFFFF, 0)
    segments.source_low[:] = np.where(to_broker, client, BROKER)
    segments.destination_low[:] = np.where(to_broker, BROKER, client)
    segments.source_port[:] = np.where(to_broker, port, 6650)
    segments.destination_port[:] = np.where(to_broker, 6650, port)
    segments.ts_ns[:] = START_NS + 100_000 * numbers  # 10,000 packets a second
    return flood


_ANSWERED = ((True, SYN), (False, SYN | ACK), (True, RST))


def slow_syns(count: int) -> Flood:
    """SYNs of as many addresses, 10,000 a second: they grow old, too."""
    return _talks(count, ((True, SYN),))


def answered_syns(count: int) -> Flood:
    """A scan of an open port: SYN, SYN and ACK, RST."""
    return _talks(count, _ANSWERED)


def reused_ports(count: int) -> Flood:
    """The same between the same addresses and ports, again and again."""
    return _talks(count, _ANSWERED, is_reused=True)


def refused_syns(count: int) -> Flood:
    """A scan of a closed port: SYN, RST."""
    return _talks(count, ((True, SYN), (False, RST | ACK)))


def fins(count: int) -> Flood:
    """FINs of as many addresses, out of nothing."""
    return _talks(count, ((True, FIN),))


def half_open(count: int) -> Flood:
    """Handshakes of as many addresses, and never a byte."""
    return _talks(count, ((True, SYN), (False, SYN | ACK), (True, ACK)))


# Kinds of packets of which each third, or more, makes a connection.
SCANS: dict[str, Callable[[int], Flood]] = {
    "slow syns": slow_syns,
    "answered syns": answered_syns,
    "reused ports": reused_ports,
    "refused syns": refused_syns,
    "fins": fins,
    "half open": half_open,
}
FLOODS: dict[str, Callable[[int], Flood]] = {
    "pieces behind a hole": pieces,
    "pieces backwards": backwards,
    "overlapping pieces": overlapping,
    "both ends of a long list": ends_of_a_long_list,
    "far ahead": far_ahead,
    "a hole that never fills": hole,
    "syns": syns,
    "connections": connections,
    "holes everywhere": holes_everywhere,
    **SCANS,
}


def as_pcap(flood: Flood) -> bytes:
    """A flood of IPv4 packets without payload as a file."""
    segments = flood[0]
    count = len(segments.packet)
    records = np.zeros((count, 16 + 54), np.uint8)
    order, wide = slice(None, None, -1), np.dtype("<u8")

    def put(at: int, width: int, values: Int64Array, step: slice = order) -> None:
        shown = np.ascontiguousarray(values.astype(wide)).view(np.uint8).reshape(count, 8)
        records[:, at : at + width] = shown[:, :width][:, step]

    plain = slice(None)
    put(0, 4, segments.ts_ns // 10**9, plain)
    put(4, 4, segments.ts_ns % 10**9, plain)
    records[:, 8] = records[:, 12] = 54
    records[:, 28] = 8  # IPv4, the length of its header and of all, TCP
    records[:, 30], records[:, 33], records[:, 39] = 0x45, 40, 6
    put(42, 4, segments.source_low)
    put(46, 4, segments.destination_low)
    put(50, 2, segments.source_port)
    put(52, 2, segments.destination_port)
    put(54, 4, segments.sequence)
    put(58, 4, segments.acknowledgement)
    records[:, 62] = 0x50
    records[:, 63] = segments.flags
    put(64, 2, segments.window)
    return pcap_header() + records.tobytes()


WIDE = StreamOptions(block_rows=16_384)


class Outcome:
    """What a flood came to: counters, and the most bytes that waited."""

    def __init__(self, flood: Flood, options: StreamOptions = WIDE) -> None:
        streams = Streams(options)
        self.held = 0
        self.kinds = np.zeros(6, np.int64)
        self.notices: set[int] = set()
        self.lengths = np.zeros(6, np.int64)
        self.closed = 0
        segments, buffers = flood
        rows = len(segments.packet)
        for start in range(0, rows, 4096):
            count = min(4096, rows - start)
            part = SegmentColumns.new(count)
            part.matrix[:, :count] = segments.matrix[:, start : start + count]
            self._collect(streams, streams.advance(part, count, buffers))
        self._collect(streams, streams.finish())
        self.steps = streams.steps
        self.packets = rows
        self.connections = streams.connections_seen
        assert streams.held_bytes == 0

    def _collect(self, streams: Streams, blocks: Iterator[tuple[RangeColumns, int]]) -> None:
        for ranges, rows in blocks:
            kinds = ranges.kind[:rows]
            self.kinds += np.bincount(kinds, minlength=6)
            np.add.at(self.lengths, kinds, ranges.length[:rows])
            self.held = max(self.held, streams.held_bytes)
            self.notices |= {Notice(*row).kind for row in streams.notices().tolist()}
            self.closed += len(streams.retired())
            streams.recycle()
        self.closed += len(streams.retired())
        streams.recycle()
