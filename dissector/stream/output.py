"""Rows on their way out of the stream kernels: ranges and notices."""

from typing import NamedTuple

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.stream.state import StreamState


class Range(NamedTuple):
    """A range to be put out; fields as in RangeColumns."""

    kind: int
    stream_offset: int
    length: int
    source: int
    offset: int
    packet: int
    ts_ns: int
    flags: int
    cause: int


@kernel
def put_range(state: StreamState, side: int, fields: Range) -> None:
    """Append a range of a side; the caller has seen to the room."""
    registers = state.registers
    ranges = state.ranges
    row = registers.ranges[0]
    registers.ranges[0] = row + 1
    ranges.connection[row] = state.connections.connection_id[side >> 1]
    ranges.side[row] = side & 1
    ranges.kind[row] = fields.kind
    ranges.stream_offset[row] = fields.stream_offset
    ranges.length[row] = fields.length
    ranges.source[row] = fields.source
    ranges.offset[row] = fields.offset
    ranges.packet[row] = fields.packet
    ranges.ts_ns[row] = fields.ts_ns
    ranges.flags[row] = fields.flags
    ranges.cause[row] = fields.cause
    ranges.opener[row] = state.connections.opener[side >> 1]
    ports = state.connections.ports[side >> 1] & 0xFFFF_FFFF
    if state.connections.side0_is_upper[side >> 1]:
        ports = (ports & 0xFFFF) << 16 | ports >> 16
    ranges.ports[row] = ports
    ranges.release_packet[row] = registers.packet[0]


@kernel
def note(
    state: StreamState, connection: int, kind: int, side_no: int, stream_offset: int, value: int
) -> None:
    """Append a notice about a connection at the packet being processed.

    The caller has seen to the room. side_no and stream_offset may be NULL; value: its number,
    which is also its `bytes` where it counts bytes.
    """
    connections = state.connections
    registers = state.registers
    notices = state.notices
    row = registers.notices[0]
    registers.notices[0] = row + 1
    notices.kind[row] = kind
    notices.ts_ns[row] = connections.last_ts_ns[connection]
    notices.connection_id[row] = connections.connection_id[connection]
    notices.side[row] = side_no
    notices.frame_no[row] = NULL
    notices.packet[row] = registers.packet[0]
    notices.stream_offset[row] = stream_offset
    notices.bytes[row] = value if stream_offset != NULL else NULL
    notices.value[row] = value
    notices.value2[row] = NULL


@inlined
def note_side(state: StreamState, side: int, kind: int, stream_offset: int, value: int) -> None:
    """Append a notice about a side; see `note`."""
    note(state, side >> 1, kind, side & 1, stream_offset, value)
