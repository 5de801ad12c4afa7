"""Bytes of capture files: pcap in all its variants and pcapng block by block."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

ETHERNET = 1
LINUX_SLL = 113
LINUX_SLL2 = 276
RAW = 101
NULL = 0
LOOP = 108

MICROSECONDS = 0xA1B2C3D4
NANOSECONDS = 0xA1B23C4D
MODIFIED = 0xA1B2CD34
IXIA_HARDWARE = 0x1C0001AC
IXIA_SOFTWARE = 0x1C0001AB
OF_NANOSECONDS = (NANOSECONDS, IXIA_HARDWARE)
VERSION = (2, 4)
SWAPPED_LENGTHS = (2, 2)  # the last version whose records have the wire length first


class Record(NamedTuple):
    """One captured packet. ts_ns: since 1970; wire_bytes: None = as many as are there."""

    ts_ns: int
    data: bytes
    wire_bytes: int | None = None


def pcap_header(
    *,
    link_type: int = ETHERNET,
    snaplen: int = 262144,
    magic: int = NANOSECONDS,
    order: str = "<",
    version: tuple[int, int] = VERSION,
) -> bytes:
    """The header of a pcap file; order: "<" little-endian, ">" big-endian."""
    head = struct.pack(f"{order}IHHiIII", magic, *version, 0, 0, snaplen, link_type)
    return head + (bytes(4) if magic in (IXIA_HARDWARE, IXIA_SOFTWARE) else b"")


def pcap_record(
    record: Record,
    *,
    magic: int = NANOSECONDS,
    order: str = "<",
    version: tuple[int, int] = VERSION,
) -> bytes:
    """One record of a pcap file."""
    seconds, rest = divmod(record.ts_ns, 1_000_000_000)
    fraction = rest if magic in OF_NANOSECONDS else rest // 1000
    wire_bytes = len(record.data) if record.wire_bytes is None else record.wire_bytes
    lengths = (len(record.data), wire_bytes)
    if version <= SWAPPED_LENGTHS:
        lengths = lengths[::-1]
    head = struct.pack(f"{order}IIII", seconds, fraction, *lengths)
    if magic == MODIFIED:
        head += struct.pack(f"{order}IHBB", 2, 0x0800, 0, 0)
    return head + record.data


def pcap(
    records: Iterable[Record],
    *,
    link_type: int = ETHERNET,
    snaplen: int = 262144,
    magic: int = NANOSECONDS,
    order: str = "<",
    version: tuple[int, int] = VERSION,
) -> bytes:
    """A whole pcap file."""
    head = pcap_header(
        link_type=link_type, snaplen=snaplen, magic=magic, order=order, version=version
    )
    return head + b"".join(
        pcap_record(record, magic=magic, order=order, version=version) for record in records
    )


def option(code: int, value: bytes, order: str = "<") -> bytes:
    """One option of a pcapng block, padded."""
    return struct.pack(f"{order}HH", code, len(value)) + value + b"\0" * (-len(value) % 4)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """A pcapng block of any type, padded."""
    body += b"\0" * (-len(body) % 4)
    size = struct.pack(f"{order}I", len(body) + 12)
    return struct.pack(f"{order}I", kind) + size + body + size


def section(
    order: str = "<", major: int = 1, section_bytes: int = -1, options: bytes = b""
) -> bytes:
    """A section header block."""
    body = struct.pack(f"{order}IHHq", 0x1A2B3C4D, major, 0, section_bytes) + options
    return block(0x0A0D0D0A, body, order)


def interface(
    *,
    link_type: int = ETHERNET,
    snaplen: int = 0,
    resolution: int | None = None,
    offset_seconds: int | None = None,
    order: str = "<",
    options: bytes = b"",
) -> bytes:
    """An interface description block. resolution: the if_tsresol byte, None = microseconds."""
    if resolution is not None:
        options += option(9, bytes([resolution]), order)
    if offset_seconds is not None:
        options += option(14, struct.pack(f"{order}q", offset_seconds), order)
    if options:
        options += option(0, b"", order)
    return block(1, struct.pack(f"{order}HHI", link_type, 0, snaplen) + options, order)


def enhanced_packet(
    units: int,
    data: bytes,
    *,
    interface_id: int = 0,
    wire_bytes: int | None = None,
    options: bytes = b"",
    order: str = "<",
) -> bytes:
    """An enhanced packet block; units: time in the interface's own resolution."""
    wire = len(data) if wire_bytes is None else wire_bytes
    body = struct.pack(
        f"{order}IIIII", interface_id, units >> 32, units & 0xFFFFFFFF, len(data), wire
    )
    return block(6, body + data + b"\0" * (-len(data) % 4) + options, order)


def simple_packet(data: bytes, wire_bytes: int | None = None, order: str = "<") -> bytes:
    """A simple packet block: no interface, no time."""
    wire = len(data) if wire_bytes is None else wire_bytes
    return block(3, struct.pack(f"{order}I", wire) + data, order)


def old_packet(
    units: int, data: bytes, *, interface_id: int = 0, drops: int = 0xFFFF, order: str = "<"
) -> bytes:
    """The packet block that the enhanced one replaced."""
    body = struct.pack(
        f"{order}HHIIII",
        interface_id,
        drops,
        units >> 32,
        units & 0xFFFFFFFF,
        len(data),
        len(data),
    )
    return block(2, body + data, order)


def statistics(
    *,
    interface_id: int = 0,
    dropped: int | None = None,
    os_dropped: int | None = None,
    order: str = "<",
) -> bytes:
    """An interface statistics block with its drop counts."""
    options = b""
    if dropped is not None:
        options += option(5, struct.pack(f"{order}Q", dropped), order)
    if os_dropped is not None:
        options += option(7, struct.pack(f"{order}Q", os_dropped), order)
    return block(5, struct.pack(f"{order}III", interface_id, 0, 0) + options, order)


def pcapng(records: Iterable[Record], *, link_type: int = ETHERNET, order: str = "<") -> bytes:
    """A whole pcapng file of one section and one interface with nanoseconds."""
    out = [section(order), interface(link_type=link_type, resolution=9, order=order)]
    out += [
        enhanced_packet(record.ts_ns, record.data, wire_bytes=record.wire_bytes, order=order)
        for record in records
    ]
    return b"".join(out)
