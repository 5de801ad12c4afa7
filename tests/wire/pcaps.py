"""Pulsar frames of sample captures, read simply with dpkt: without loss or sequence wrap."""

import gzip
import io
import struct
from pathlib import Path

import dpkt


def _segments(path: Path) -> dict[tuple, tuple[int, dict[int, bytes]]]:
    """TCP payloads by direction: first sequence number, and bytes by sequence number."""
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    segments: dict[tuple, tuple[int, dict[int, bytes]]] = {}
    for _, packet in dpkt.pcap.Reader(io.BytesIO(raw)):
        ip = dpkt.ethernet.Ethernet(packet).data
        tcp = getattr(ip, "data", None)
        if not isinstance(tcp, dpkt.tcp.TCP):
            continue
        key = (ip.src, tcp.sport, ip.dst, tcp.dport)
        if tcp.flags & dpkt.tcp.TH_SYN:
            segments[key] = ((tcp.seq + 1) & 0xFFFF_FFFF, {})
        elif key in segments and tcp.data:
            segments[key][1].setdefault(tcp.seq, bytes(tcp.data))
    return segments


def pulsar_frames(path: Path) -> list[list[bytes]]:
    """The frames of each direction up to its first gap, without directions of other protocols."""
    out = []
    for first, segments in _segments(path).values():
        stream = bytearray()
        for offset, data in sorted(((seq - first) & 0xFFFF_FFFF, d) for seq, d in segments.items()):
            if offset > len(stream):
                break
            if offset + len(data) > len(stream):
                stream[offset:] = data
        frames = []
        at = 0
        while at + 9 <= len(stream):
            total, size = struct.unpack_from(">II", stream, at)
            if not 8 <= total < 6_000_000 or size > total - 4 or stream[at + 8] != 8:
                break
            if at + 4 + total > len(stream):
                break
            frames.append(bytes(stream[at : at + 4 + total]))
            at += 4 + total
        if frames:
            out.append(frames)
    return out
