"""A capture file to segments by dpkt: slow, another author's, for comparison with the kernels."""

import gzip
import ipaddress
import struct
from typing import NamedTuple

import dpkt


class NaiveSegment(NamedTuple):
    """One TCP packet. packet: from 1; payload: the captured bytes; wire_bytes: by the IP header;
    ip_id: its identification, -1 under IPv6.
    """

    packet: int
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
    tsval: int
    ts_us: int
    ip_id: int


def _open(path: str) -> tuple[int, list[tuple[float, bytes]]]:
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    import io

    universal = dpkt.pcapng.Reader if data[:4] == b"\n\r\r\n" else dpkt.pcap.Reader
    reader = universal(io.BytesIO(data))
    return reader.datalink(), list(reader)


def _ip_bytes(link_type: int, data: bytes) -> bytes | None:
    """The bytes of the IP packet, by link type and VLAN tags."""
    if link_type == 101:
        return data
    place = {1: 12, 113: 14}.get(link_type)
    if link_type == 276:
        kind, data = data[:2], data[20:]
    else:
        kind, data = data[place : place + 2], data[place + 2 :]
    while kind == b"\x81\x00":
        kind, data = data[2:4], data[4:]
    return data if kind in (b"\x08\x00", b"\x86\xdd") else None


def segments(path: str) -> list[NaiveSegment]:
    """All TCP packets of a file whose headers are whole."""
    link_type, packets = _open(path)
    segments = []
    for number, (seconds, data) in enumerate(packets, 1):
        inner = _ip_bytes(link_type, data)
        if inner is None:
            continue
        if inner[0] >> 4 == 4:
            header_bytes = (inner[0] & 15) * 4
            total = struct.unpack(">H", inner[2:4])[0]
            if inner[9] != 6:
                continue
            addresses = inner[12:16], inner[16:20]
        else:
            header_bytes = 40
            total = 40 + struct.unpack(">H", inner[4:6])[0]
            if inner[6] != 6:
                continue
            addresses = inner[8:24], inner[24:40]
        tcp = dpkt.tcp.TCP(inner[header_bytes:total])
        stamps = dict(dpkt.tcp.parse_opts(tcp.opts)).get(dpkt.tcp.TCP_OPT_TIMESTAMP)
        segments.append(
            NaiveSegment(
                number,
                str(ipaddress.ip_address(addresses[0])),
                str(ipaddress.ip_address(addresses[1])),
                tcp.sport,
                tcp.dport,
                tcp.seq,
                tcp.ack,
                tcp.flags,
                tcp.win,
                bytes(tcp.data),
                total - header_bytes - tcp.off * 4,
                struct.unpack(">I", stamps[:4])[0] if stamps else -1,
                round(seconds * 1_000_000),
                struct.unpack(">H", inner[4:6])[0] if inner[0] >> 4 == 4 else -1,
            )
        )
    return segments
