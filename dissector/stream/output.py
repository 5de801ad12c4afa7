"""The output rows of the stream kernels: ranges and notices."""

from typing import NamedTuple

from dissector.jit import inlined, kernel
from dissector.limits import NULL
from dissector.notice_rows import add_row
from dissector.stream.columns import ENDPOINT_BITS, ENDPOINT_MASK, TWO_WAY
from dissector.stream.state import StreamState


class Range(NamedTuple):
    """A range to emit; fields as in RangeColumns, flags without TWO_WAY."""

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
def put_range(state: StreamState, direction_index: int, fields: Range) -> None:
    """Append a range of a side; the caller ensures the room."""
    counters = state.counters
    ranges = state.ranges
    row = counters.ranges[0]
    counters.ranges[0] = row + 1
    ranges.connection[row] = state.connections.connection_id[direction_index >> 1]
    ranges.endpoint_index[row] = direction_index & 1
    ranges.kind[row] = fields.kind
    ranges.stream_offset[row] = fields.stream_offset
    ranges.length[row] = fields.length
    ranges.source[row] = fields.source
    ranges.offset[row] = fields.offset
    ranges.packet[row] = fields.packet
    ranges.ts_ns[row] = fields.ts_ns
    packets = state.directions.packets
    is_two_way = packets[direction_index] > 0 and packets[direction_index ^ 1] > 0
    ranges.flags[row] = fields.flags | (TWO_WAY if is_two_way else 0)
    ranges.cause[row] = fields.cause
    ranges.opener[row] = state.connections.opener[direction_index >> 1]
    ports = state.connections.ports[direction_index >> 1] & 0xFFFF_FFFF
    hashes = state.connections.endpoint_hashes[direction_index >> 1]
    if state.connections.endpoint0_is_upper[direction_index >> 1]:
        ports = (ports & 0xFFFF) << 16 | ports >> 16
        hashes = (hashes & ENDPOINT_MASK) << ENDPOINT_BITS | hashes >> ENDPOINT_BITS
    ranges.ports[row] = ports
    ranges.endpoint_hashes[row] = hashes
    ranges.release_packet[row] = counters.packet[0]


@kernel
def note(
    state: StreamState,
    connection: int,
    kind: int,
    endpoint_index: int,
    stream_offset: int,
    value: int,
) -> None:
    """Append a notice about a connection at the packet being processed.

    The caller ensures the room. endpoint_index and stream_offset may be NULL; value: its number,
    written as `bytes`, too, if there is a stream_offset.
    """
    connections = state.connections
    row, rows = add_row(state.notices, kind), state.notices.rows
    rows.ts_ns[row] = connections.last_ts_ns[connection]
    rows.connection_id[row] = connections.connection_id[connection]
    rows.direction[row] = endpoint_index
    rows.packet[row] = state.counters.packet[0]
    rows.stream_offset[row] = stream_offset
    rows.bytes[row] = value if stream_offset != NULL else NULL
    rows.value[row] = value


@inlined
def note_direction(
    state: StreamState, direction_index: int, kind: int, stream_offset: int, value: int
) -> None:
    """Append a notice about a side; see `note`."""
    note(state, direction_index >> 1, kind, direction_index & 1, stream_offset, value)
