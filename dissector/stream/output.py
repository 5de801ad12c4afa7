"""Rows on their way out of the stream kernels: ranges and notices."""

from typing import NamedTuple

from dissector.jit import kernel
from dissector.limits import NULL
from dissector.stream import layout
from dissector.stream.state import StreamState


class Piece(NamedTuple):
    """A range without its place in the output; fields as in RangeColumns."""

    side_no: int
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
def put_range(state: StreamState, base: int, piece: Piece) -> None:
    """Append a range; the caller has seen to the room."""
    ranges = state.ranges
    row = state.registers[layout.ROWS_OUT]
    state.registers[layout.ROWS_OUT] = row + 1
    ranges.connection[row] = state.cells[base + layout.CONNECTION_ID]
    ranges.side[row] = piece.side_no
    ranges.kind[row] = piece.kind
    ranges.stream_offset[row] = piece.stream_offset
    ranges.length[row] = piece.length
    ranges.source[row] = piece.source
    ranges.offset[row] = piece.offset
    ranges.packet[row] = piece.packet
    ranges.ts_ns[row] = piece.ts_ns
    ranges.flags[row] = piece.flags
    ranges.cause[row] = piece.cause
    ranges.release_packet[row] = state.registers[layout.PACKET]


@kernel
def note(
    state: StreamState, base: int, kind: int, side_no: int, stream_offset: int, value: int
) -> None:
    """Append a notice about a connection at the packet being processed.

    The caller has seen to the room. side_no and stream_offset may be NULL; value: its number,
    which is also its `bytes` where it counts bytes.
    """
    notices = state.notices
    row = state.registers[layout.NOTICES_OUT]
    state.registers[layout.NOTICES_OUT] = row + 1
    notices.kind[row] = kind
    notices.ts_ns[row] = state.cells[base + layout.LAST_TS]
    notices.connection_id[row] = state.cells[base + layout.CONNECTION_ID]
    notices.side[row] = side_no
    notices.frame_no[row] = NULL
    notices.packet[row] = state.registers[layout.PACKET]
    notices.stream_offset[row] = stream_offset
    notices.bytes[row] = value if stream_offset != NULL else NULL
    notices.value[row] = value
    notices.value2[row] = NULL
