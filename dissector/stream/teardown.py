"""FIN and RST: how streams and connections end.

A FIN is the last position of its stream: it waits like data until everything before it has left.
When both have left, the connection is closed (`fin`), whatever comes then; the RST after two FINs,
with which the Java client ends, changes nothing.

An RST closes only from inside the window: not below what the peer has acknowledged, not far beyond
what was seen. Others are counted. A valid one closes at once if nothing is missing on either side;
otherwise late packets have the reorder window to turn up. Its payload is text, not stream.
"""

from dissector.jit import inlined, kernel
from dissector.limits import RST_REACH_BYTES
from dissector.stream.columns import ENDED_FIN, ENDED_RST, FIN
from dissector.stream.out_of_order import Span, insert_fin
from dissector.stream.records import Sides
from dissector.stream.segment import Segment
from dissector.stream.sequence import offset_near
from dissector.stream.state import StreamState


@kernel
def receive_fin(state: StreamState, side: int, segment: Segment, at: int) -> None:
    """Let a FIN wait for all before it. at: the stream offset after the last byte."""
    connections = state.connections
    sides = state.sides
    connection = side >> 1
    if sides.fin_seen[side]:
        if segment.wire_bytes == 0:
            if at == sides.fin_offset[side]:
                sides.retransmitted_packets[side] += 1
            else:
                sides.stray_packets[side] += 1
        return
    if at < sides.released[side]:
        sides.stray_packets[side] += 1
        return
    sides.fin_seen[side] = 1
    sides.fin_offset[side] = at
    sides.highest[side] = max(sides.highest[side], at)
    if connections.closed_first[connection] < 0:
        connections.closed_first[connection] = side & 1
    insert_fin(state, side, Span(FIN, at, at, 0, at + 1, at - 1, segment.packet, segment.ts_ns, 0))


@inlined
def _is_in_window(sides: Sides, side: int, peer: int, at: int) -> bool:
    if sides.packets[side] == 1:
        return True  # the answer to a SYN, or all that was captured of this side
    low = sides.released[side] - RST_REACH_BYTES
    if sides.packets[peer] > 0:
        low = sides.acked[side] - 1
    high = max(sides.highest[side], sides.acked[side]) + RST_REACH_BYTES
    return bool(low <= at <= high)


@kernel
def receive_rst(state: StreamState, side: int, segment: Segment) -> None:
    """Close the connection unless the RST lies outside the window; see above."""
    connections = state.connections
    sides = state.sides
    connection = side >> 1
    peer = side ^ 1
    at = offset_near(segment.sequence, sides.origin[side], sides.released[side])
    if not _is_in_window(sides, side, peer, at):
        sides.stray_packets[side] += 1
        return
    if sides.packets[side] > 1:
        sides.reset_offset[side] = max(sides.reset_offset[side], at)
    if connections.closed_first[connection] < 0:
        connections.closed_first[connection] = side & 1
    if connections.closing[connection] < 0:
        both = sides.fin_seen[side] and sides.fin_seen[peer]
        connections.closing[connection] = ENDED_FIN if both else ENDED_RST
        connections.close_due[connection] = (
            state.registers.clock[0] + state.settings.reorder_window_ns[0]
        )
