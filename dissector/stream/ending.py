"""FIN and RST: how streams and connections end.

A FIN is the last position of its stream: it waits like data until everything before it has left.
When both have left, the connection is closed (`fin`), whatever comes then; the RST after two FINs,
with which the Java client ends, changes nothing.

An RST closes only from inside the window: not below what the peer has acknowledged, not far beyond
what was seen. Others are counted. A valid one closes at once if nothing is missing on either side;
otherwise late packets have the reorder window to turn up. Its payload is text, not stream.
"""

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import RST_REACH_BYTES
from dissector.stream import layout
from dissector.stream.columns import ENDED_FIN, ENDED_RST, FIN
from dissector.stream.connections import side_at
from dissector.stream.layout import (
    ACKED,
    CLOSED_FIRST,
    CLOSING,
    FIN_OFFSET,
    NEXT,
    ORIGIN,
    PACKETS,
    RETRANSMITTED_PACKETS,
    SIDE_BITS,
    SIDE_FIN_SEEN,
    STRAY_PACKETS,
    TOP,
)
from dissector.stream.pending import Span, insert_fin
from dissector.stream.segment import Segment
from dissector.stream.sequence import offset_near
from dissector.stream.state import StreamState


@kernel
def take_fin(state: StreamState, base: int, side_no: int, segment: Segment, at: int) -> None:
    """A FIN. at: the stream offset after the last byte."""
    cells = state.cells
    side = side_at(base, side_no)
    if cells[side + SIDE_BITS] & SIDE_FIN_SEEN:
        if segment.wire_bytes == 0:
            again = RETRANSMITTED_PACKETS if at == cells[side + FIN_OFFSET] else STRAY_PACKETS
            cells[side + again] += 1
        return
    if at < cells[side + NEXT]:
        cells[side + STRAY_PACKETS] += 1
        return
    cells[side + SIDE_BITS] |= SIDE_FIN_SEEN
    cells[side + FIN_OFFSET] = at
    cells[side + TOP] = max(cells[side + TOP], at)
    if cells[base + CLOSED_FIRST] < 0:
        cells[base + CLOSED_FIRST] = side_no
    insert_fin(state, side, Span(FIN, at, at, 0, at + 1, at - 1, segment.packet, segment.ts_ns, 0))


@inlined
def _is_in_window(cells: Int64Array, side: int, peer: int, at: int) -> bool:
    if cells[side + PACKETS] == 1:
        return True  # the answer to a SYN, or all that was captured of this side
    low = cells[side + NEXT] - RST_REACH_BYTES
    if cells[peer + PACKETS] > 0:
        low = cells[side + ACKED] - 1
    high = max(cells[side + TOP], cells[side + ACKED]) + RST_REACH_BYTES
    return bool(low <= at <= high)


@kernel
def take_reset(state: StreamState, base: int, side_no: int, segment: Segment) -> None:
    """An RST."""
    cells = state.cells
    side = side_at(base, side_no)
    peer = side_at(base, 1 - side_no)
    at = offset_near(segment.sequence, cells[side + ORIGIN], cells[side + NEXT])
    if not _is_in_window(cells, side, peer, at):
        cells[side + STRAY_PACKETS] += 1
        return
    if cells[side + PACKETS] > 1:
        cells[side + layout.RESET_OFFSET] = max(cells[side + layout.RESET_OFFSET], at)
    if cells[base + CLOSED_FIRST] < 0:
        cells[base + CLOSED_FIRST] = side_no
    if cells[base + CLOSING] == 0:
        both = cells[side + SIDE_BITS] & cells[peer + SIDE_BITS] & SIDE_FIN_SEEN
        cells[base + CLOSING] = (ENDED_FIN if both else ENDED_RST) + 1
        cells[base + layout.CLOSE_DUE] = (
            state.registers[layout.CLOCK] + state.registers[layout.WINDOW_NS]
        )
