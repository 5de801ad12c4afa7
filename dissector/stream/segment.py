"""One TCP packet as plain numbers: the form in which kernels pass it to each other."""

from typing import NamedTuple

from dissector.jit import inlined
from dissector.packet.columns import SegmentColumns
from dissector.stream.records import TCP_ACK, TCP_FIN, TCP_RST, TCP_SYN, TCP_URG

_USED_FLAGS = TCP_FIN | TCP_SYN | TCP_RST | TCP_ACK | TCP_URG


class Segment(NamedTuple):
    """A row of SegmentColumns without the addresses.

    flags: FIN, SYN, RST, ACK and URG only.
    header_bytes: of TCP, right before the payload if nothing of it is missing; 0: not known.
    """

    packet: int
    ts_ns: int
    source: int
    offset: int
    captured_bytes: int
    wire_bytes: int
    sequence: int
    acknowledgement: int
    flags: int
    window: int
    ip_id: int
    tsval: int
    header_bytes: int


@inlined
def segment_at(segments: SegmentColumns, row: int) -> Segment:
    """The segment of a row; PSH and the rest of the flags are left out."""
    captured = segments.captured_bytes[row]
    return Segment(
        segments.packet[row],
        segments.ts_ns[row],
        segments.source[row],
        segments.offset[row],
        captured,
        max(captured, segments.wire_bytes[row]),
        segments.sequence[row],
        segments.acknowledgement[row],
        segments.flags[row] & _USED_FLAGS,
        segments.window[row],
        segments.ip_id[row],
        segments.tsval[row],
        (segments.flags[row] >> 12) * 4,
    )
