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
from dissector.stream.columns import ENDED_FIN, ENDED_RST, RangeKind
from dissector.stream.out_of_order import SegmentSpan, insert_fin
from dissector.stream.records import Directions
from dissector.stream.segment import Segment
from dissector.stream.sequence import offset_near
from dissector.stream.state import StreamState


@kernel
def receive_fin(state: StreamState, direction_index: int, segment: Segment, at: int) -> None:
    """Insert a FIN among the waiting nodes. at: the stream offset after the last byte."""
    connections = state.connections
    directions = state.directions
    connection = direction_index >> 1
    if directions.fin_seen[direction_index]:
        if segment.wire_bytes == 0:
            if at == directions.fin_offset[direction_index]:
                directions.retransmitted_packets[direction_index] += 1
            else:
                directions.stray_packets[direction_index] += 1
        return
    if at < directions.released[direction_index]:
        directions.stray_packets[direction_index] += 1
        return
    directions.fin_seen[direction_index] = 1
    directions.fin_offset[direction_index] = at
    directions.highest[direction_index] = max(directions.highest[direction_index], at)
    if connections.closed_first[connection] < 0:
        connections.closed_first[connection] = direction_index & 1
    insert_fin(
        state,
        direction_index,
        SegmentSpan(RangeKind.FIN, at, at, 0, at + 1, at - 1, segment.packet, segment.ts_ns, 0),
    )


@inlined
def _is_in_window(directions: Directions, direction_index: int, peer: int, at: int) -> bool:
    if directions.packets[direction_index] == 1:
        return True  # the answer to a SYN, or all that was captured of this side
    low = directions.released[direction_index] - RST_REACH_BYTES
    if directions.packets[peer] > 0:
        low = directions.acked[direction_index] - 1
    high = (
        max(directions.highest[direction_index], directions.acked[direction_index])
        + RST_REACH_BYTES
    )
    return bool(low <= at <= high)


@kernel
def receive_rst(state: StreamState, direction_index: int, segment: Segment) -> None:
    """Close the connection unless the RST lies outside the window; see above."""
    connections = state.connections
    directions = state.directions
    connection = direction_index >> 1
    peer = direction_index ^ 1
    at = offset_near(
        segment.sequence, directions.origin[direction_index], directions.released[direction_index]
    )
    if not _is_in_window(directions, direction_index, peer, at):
        directions.stray_packets[direction_index] += 1
        return
    if directions.packets[direction_index] > 1:
        directions.reset_offset[direction_index] = max(directions.reset_offset[direction_index], at)
    if connections.closed_first[connection] < 0:
        connections.closed_first[connection] = direction_index & 1
    if connections.closing[connection] < 0:
        both = directions.fin_seen[direction_index] and directions.fin_seen[peer]
        connections.closing[connection] = ENDED_FIN if both else ENDED_RST
        connections.close_due[connection] = (
            state.counters.clock[0] + state.settings.reorder_window_ns[0]
        )
