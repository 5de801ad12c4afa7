"""Runs captures through CaptureReader and PacketReader, cut into buffers in any way."""

import ipaddress
import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dissector.capture.reader import CaptureReader, FileFacts
from dissector.notice_rows import Notice
from dissector.packet.reader import PacketCounts, PacketReader
from dissector.packet.reasons import IGNORED_REASONS


class Packet(NamedTuple):
    """One row of PacketColumns with its bytes."""

    number: int
    ts_ns: int
    data: bytes
    wire_bytes: int
    interface: int


class Segment(NamedTuple):
    """One row of SegmentColumns with its payload bytes and readable addresses."""

    packet: int
    ts_ns: int
    source: str
    destination: str
    source_port: int
    destination_port: int
    sequence: int
    acknowledgement: int
    flags: int
    window: int
    payload: bytes
    wire_bytes: int
    vlans: tuple[int, ...]
    tunnel: str | None
    ip_id: int
    hop_limit: int
    tsval: int
    tsecr: int


class Reading(NamedTuple):
    """All that came out of the files of a capture. reasons: by packet, "used" for segments."""

    packets: list[Packet]
    segments: list[Segment]
    reasons: list[str]
    facts: list[FileFacts]
    counts: list[PacketCounts]
    notices: list[Notice]


def _tunnel_name(reader: PacketReader, number: int) -> str | None:
    """What a tunnel is called; None for 0, which is none, and for those without a name."""
    names = reader.tunnel_names(number, number + 1) if number else []
    return names[0] if names else None


def _address(version: int, high: int, low: int) -> str:
    number = (high & (1 << 64) - 1) << 64 | low & (1 << 64) - 1
    if version == 4:
        return str(ipaddress.IPv4Address(number))
    return str(ipaddress.IPv6Address(number))


def _segments(reader: PacketReader, rows: int, data: np.ndarray) -> list[Segment]:
    columns = reader.segments
    segments = []
    for row in range(rows):
        version = int(columns.ip_version[row])
        offset, size = int(columns.offset[row]), int(columns.captured_bytes[row])
        packed = int(columns.vlans[row])
        content = (data, reader.assembled)[columns.source[row]]
        segments.append(
            Segment(
                int(columns.packet[row]),
                int(columns.ts_ns[row]),
                _address(version, int(columns.source_high[row]), int(columns.source_low[row])),
                _address(
                    version,
                    int(columns.destination_high[row]),
                    int(columns.destination_low[row]),
                ),
                int(columns.source_port[row]),
                int(columns.destination_port[row]),
                int(columns.sequence[row]),
                int(columns.acknowledgement[row]),
                int(columns.flags[row]) & 0x1FF,
                int(columns.window[row]),
                content[offset : offset + size].tobytes(),
                int(columns.wire_bytes[row]),
                tuple(packed >> 12 * place & 0xFFF for place in range(packed >> 48)),
                _tunnel_name(reader, int(columns.tunnel[row])),
                int(columns.ip_id[row]),
                int(columns.hop_limit[row]),
                int(columns.tsval[row]),
                int(columns.tsecr[row]),
            )
        )
    return segments


def whole(size: int) -> list[int]:
    """No cut."""
    return []


def read_capture(
    files: Sequence[bytes],
    cuts: Callable[[int], Sequence[int]] = whole,
    *,
    verify: bool = False,
    block_rows: int = 64,
) -> Reading:
    """Feed files as a chain.

    Args:
        cuts: from a file's size to positions at which its bytes are divided into buffers. What a
            buffer leaves over is put in front of the next one, as the source does it.
    """
    capture = CaptureReader(block_rows)
    reader = PacketReader(verify, block_rows)
    out = Reading([], [], [], [], [], [])
    for file in files:
        capture.start_file()
        bounds = [0, *sorted(cuts(len(file))), len(file)]
        tail = b""
        for number, (start, end) in enumerate(itertools.pairwise(bounds)):
            room = b"\xee" * 5
            # As sources give them: kernels are compiled anew for what may not be written.
            data = np.frombuffer(bytearray(room + tail + file[start:end] + room), np.uint8)
            position, stop = len(room), len(data) - len(room)
            while True:
                scan = capture.feed(data, position, stop, number == len(bounds) - 2)
                assert position <= scan.consumed <= stop
                _take(capture, reader, scan.rows, scan.first_packet, data, out)
                position = scan.consumed
                if not scan.is_more:
                    break
            tail = data[position:stop].tobytes()
        out.facts.append(capture.finish_file())
        out.counts.append(reader.finish_file())
    out.notices.extend([*capture.finish(), *reader.finish()])
    return out


def _take(
    capture: CaptureReader,
    reader: PacketReader,
    rows: int,
    first_packet: int,
    data: np.ndarray,
    out: Reading,
) -> None:
    packets = capture.packets
    for row in range(rows):
        offset, size = int(packets.offset[row]), int(packets.captured_bytes[row])
        assert 5 <= offset <= offset + size <= len(data) - 5
        out.packets.append(
            Packet(
                first_packet + row,
                int(packets.ts_ns[row]),
                data[offset : offset + size].tobytes(),
                int(packets.wire_bytes[row]),
                int(packets.interface[row]),
            )
        )
    if rows:
        link_types = capture.interfaces.columns.link_type
        _, found = reader.read(data, packets, rows, first_packet, link_types)
        out.segments.extend(_segments(reader, found, data))
        out.reasons.extend(IGNORED_REASONS[reason] for reason in reader.reasons[:rows])
