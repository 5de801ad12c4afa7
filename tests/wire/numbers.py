"""Captured TCP packets with other sequence numbers, as of half-open hosts and rewriting boxes.

Packets are Ethernet and IPv4; checksums are computed again.
"""

import struct
from typing import NamedTuple

from tests.wire.packets import ACK, RST, SYN, internet_checksum
from tests.wire.recut import records

_ETHERNET_BYTES = 14
_MASK = 0xFFFFFFFF
SECOND = 1_000_000


class Record(NamedTuple):
    """A packet of a capture. us: its time."""

    us: int
    data: bytes


def packets_of(capture: bytes) -> list[Record]:
    """The packets of a little-endian pcap file of microseconds."""
    packets = []
    for time, data, _ in records(capture):
        seconds, micros = struct.unpack("<II", time)
        packets.append(Record(seconds * SECOND + micros, data))
    return packets


def capture_of(head: bytes, packets: list[Record]) -> bytes:
    """A pcap file with the header of another one."""
    out = [head[:24]]
    for us, data in packets:
        out.append(struct.pack("<IIII", us // SECOND, us % SECOND, len(data), len(data)) + data)
    return b"".join(out)


def _tcp_at(data: bytes) -> int:
    return _ETHERNET_BYTES + 4 * (data[_ETHERNET_BYTES] & 15)


def numbers_of(data: bytes) -> tuple[int, int, int]:
    """Sequence number, acknowledgement and flags of a packet."""
    at = _tcp_at(data)
    sequence, acknowledgement = struct.unpack_from(">II", data, at + 4)
    return sequence, acknowledgement, data[at + 13]


def renumbered(data: bytes, sequence: int, acknowledgement: int, flags: int | None = None) -> bytes:
    """A packet with other numbers, and flags."""
    at = _tcp_at(data)
    made = bytearray(data)
    struct.pack_into(">II", made, at + 4, sequence & _MASK, acknowledgement & _MASK)
    if flags is not None:
        made[at + 13] = flags
    struct.pack_into(">H", made, at + 16, 0)
    (length,) = struct.unpack_from(">H", data, _ETHERNET_BYTES + 2)
    end = _ETHERNET_BYTES + length
    pseudo = bytes(made[_ETHERNET_BYTES + 12 : _ETHERNET_BYTES + 20])
    pseudo += struct.pack(">HH", 6, end - at)
    struct.pack_into(">H", made, at + 16, internet_checksum(pseudo + bytes(made[at:end])))
    return bytes(made)


def identified(data: bytes, ip_id: int) -> bytes:
    """A packet with another IP identification; its IP checksum is left as it is."""
    made = bytearray(data)
    struct.pack_into(">H", made, _ETHERNET_BYTES + 4, ip_id)
    return bytes(made)


class HalfOpen(NamedTuple):
    """A failed handshake before the successful one. by: the broker's sequence number less its true
    one; kind: `challenge` (an ACK of an older connection), `answer` (a SYN-ACK of another
    number), `data` (payload of an older connection); acked: what a challenge acknowledges, from
    the client's true number; resets: the client answers with RST."""

    kind: str
    by: int
    acked: int = 1_936_894_356
    resets: bool = True


def with_attempt(capture: bytes, before: HalfOpen) -> bytes:
    """The capture with a failed handshake before its first one."""
    packets = packets_of(capture)
    syn, answer = packets[0], packets[1]
    isn, _, flags = numbers_of(syn.data)
    theirs, _, _ = numbers_of(answer.data)
    assert flags & (SYN | ACK) == SYN
    acked = isn + 1 if before.kind == "answer" else isn + before.acked
    flags = SYN | ACK if before.kind == "answer" else ACK
    first = answer.data
    if before.kind == "data":
        first = next(each.data for each in packets[2:] if each.data[26:30] == answer.data[26:30]
                     and len(each.data) > len(answer.data))  # fmt: skip
    lead = [
        Record(syn.us - 3_000, identified(syn.data, 101)),
        Record(syn.us - 2_000, identified(renumbered(first, theirs + before.by, acked, flags), 77)),
    ]
    if before.resets:
        reset = identified(renumbered(syn.data, acked, 0, RST), 102)
        lead.append(Record(syn.us - 1_000, reset))
    return capture_of(capture, [*lead, *packets])


def through_a_box(
    capture: bytes, broker_by: int, client_by: int, delay_us: int = 20, *, first: bool = False
) -> bytes:
    """Both sides of a box that adds to the numbers of either side. first: the box's inner side
    comes before the outer one for packets of the broker, as where a tap sits on both of its links.
    """
    packets = packets_of(capture)
    broker = packets[1].data[26:30]
    found = []
    for us, data in packets:
        sequence, acknowledgement, flags = numbers_of(data)
        mine, theirs = (broker_by, client_by) if data[26:30] == broker else (client_by, broker_by)
        other = acknowledgement + theirs if flags & ACK else 0
        copy = bytearray(renumbered(data, sequence + mine, other))
        copy[_ETHERNET_BYTES + 8] -= 1
        pair = [data, bytes(copy)]
        if first and data[26:30] == broker:
            pair.reverse()
        found += [Record(us, pair[0]), Record(us + delay_us, pair[1])]
    return capture_of(capture, found)
