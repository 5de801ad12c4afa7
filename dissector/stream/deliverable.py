"""What a side can deliver: the first waiting segment, a hole given up on evidence, or nothing yet.

The theory is in reassembly.py.
"""

from typing import Final, NamedTuple

from dissector.jit import inlined, kernel
from dissector.limits import MAX_UNCONFIRMED_HOLE, NULL
from dissector.stream.columns import DATA, RETRANSMITTED
from dissector.stream.out_of_order import drop_first
from dissector.stream.records import NEVER, Sides
from dissector.stream.state import StreamState

NOTHING: Final = 0
SEGMENT: Final = 1  # the first node is next in the stream
HOLE: Final = 2  # the hole before the first node is given up
MISSING_END: Final = 3  # acknowledged bytes behind everything seen are given up
IMPLAUSIBLE: Final = 4  # a lone segment far ahead is dropped instead of giving up its hole

# What follows a packet within this time was sent with it: no keep-alive was answered between.
_AT_ONCE_NS: Final = 1_000_000


class Deliverable(NamedTuple):
    """What a side can deliver. kind: see above; packet: number by which it is ordered.

    bound: ranges of the other side of lower packet numbers may leave now; due: clock of the next
    decision.
    """

    kind: int
    packet: int
    bound: int
    due: int


@inlined
def _is_probe(state: StreamState, side: int, head: int) -> bool:
    """Whether a single byte in the first packet of a side is the made-up one of a keep-alive.

    A connection must have been idle before one: what follows at once continues a byte that was
    sent. If it does not after all, the byte costs less than a real one: frames are found behind it.
    """
    nodes = state.nodes
    if (
        nodes.offset[head] != 0
        or nodes.length[head] != 1
        or nodes.kind[head] != DATA
        or nodes.flags[head] & RETRANSMITTED
    ):
        return False
    after = state.successors[head, 0]
    if after < 0 or nodes.offset[after] != 1:
        return True
    return bool(nodes.ts_ns[after] - nodes.ts_ns[head] > _AT_ONCE_NS)


@inlined
def _first_packet(state: StreamState, side: int) -> int:
    """The packet number with which a side's first waiting node can leave, NEVER if none waits."""
    head = state.heads[side, 0]
    if head < 0:
        return NEVER
    return int(max(state.sides.released_packet[side], state.nodes.packet[head]))


@inlined
def _settle_start(state: StreamState, side: int) -> None:
    """Stop waiting for earlier bytes: the stream begins with what is there."""
    sides = state.sides
    nodes = state.nodes
    heads = state.heads
    sides.start_is_open[side] = 0
    sides.gives_up[side] = 0
    head = heads[side, 0]
    is_empty = sides.started_empty[side]
    if is_empty and head >= 0 and _is_probe(state, side, head):
        drop_first(state, side)
        sides.keepalive_packets[side] += 1
        head = heads[side, 0]
    if head >= 0:
        sides.released[side] = min(sides.released[side], nodes.offset[head])
        if nodes.offset[head] < 0:
            sides.isn[side] = NULL  # what was taken for it is none


@inlined
def _hole_due(state: StreamState, side: int, peer: int, head: int) -> int:
    """The clock at which the hole before the first node is given up."""
    sides = state.sides
    nodes = state.nodes
    settings = state.settings
    window = settings.reorder_window_ns[0]
    opened = nodes.opened[head]
    since = max(opened, sides.progress_at[side])
    if sides.packets[peer] == 0:
        return int(since + window)
    if sides.acked[side] >= nodes.offset[head]:
        # A retransmission may be captured just after the acknowledgement that it caused.
        covered = sides.covered_at[side]
        return int(since + window if covered <= opened + window else max(since, covered) + window)
    return int(since + settings.unacked_hole_ns[0])


@inlined
def _damaged_due(state: StreamState, side: int, peer: int, head: int) -> int:
    """The clock at which a damaged first node is used although no better copy came."""
    sides = state.sides
    nodes = state.nodes
    settings = state.settings
    opened = nodes.opened[head]
    if sides.packets[peer] == 0:
        return int(opened + settings.reorder_window_ns[0])
    end = nodes.offset[head] + nodes.length[head]
    if sides.acked[side] >= end:
        return -NEVER  # its receiver took it
    return int(opened + settings.unacked_hole_ns[0])


@inlined
def _is_implausible(sides: Sides, side: int, end: int) -> bool:
    """Whether a hole is so long that one segment behind it is no proof of it."""
    return bool(
        end - sides.released[side] > MAX_UNCONFIRMED_HOLE
        and sides.acked[side] < end
        and sides.pending[side] < 3
    )


@inlined
def missing_end(sides: Sides, side: int, window_ns: int) -> int:
    """Bytes that the peer acknowledged behind everything seen; 0 if that proves nothing.

    One byte proves nothing: it may be a FIN that was not captured, or a keep-alive. A side of which
    no packet was captured has no gaps. Nor do bytes miss that nobody sent: a side that goes on
    below such an acknowledgement, more than a reorder window after it, did not send them.
    """
    if sides.packets[side] == 0 or sides.fin_seen[side]:
        return 0
    if sides.payload_bytes[side] == 0 and sides.payload_bytes[side ^ 1] == 0:
        return 0  # numbers alone prove nothing: a host may answer for an older connection
    if sides.denied_at[side] > sides.acked_since[side] + window_ns:
        return 0
    missing = sides.acked[side] - sides.released[side]
    return missing if missing > 1 else 0


@kernel
def next_deliverable(state: StreamState, side: int, is_over: bool) -> Deliverable:
    """What a side can deliver now. is_over: the connection ends, nothing more is waited for."""
    sides = state.sides
    nodes = state.nodes
    peer = side ^ 1
    clock = state.registers.clock[0]
    window = state.settings.reorder_window_ns[0]
    if sides.start_is_open[side]:
        due = sides.start_since[side] + window
        if clock < due and not is_over and not sides.gives_up[side]:
            return Deliverable(NOTHING, NEVER, _first_packet(state, side), due)
        _settle_start(state, side)
    released_packet = sides.released_packet[side]
    head = state.heads[side, 0]
    if head < 0:
        if missing_end(sides, side, window) == 0 or not sides.has_origin[side]:
            return Deliverable(NOTHING, NEVER, NEVER, NEVER)
        due = NEVER
        if sides.sent[side] > sides.highest[side]:
            due = max(sides.acked_since[side], sides.progress_at[side]) + window
        if clock >= due or is_over:
            return Deliverable(MISSING_END, released_packet, released_packet, NEVER)
        return Deliverable(NOTHING, NEVER, NEVER, due)
    packet = _first_packet(state, side)
    start = nodes.offset[head]
    if start == 1 and sides.started_empty[side] and not sides.has_released[side]:
        sides.released[side] = 1  # the first packet was a keep-alive, one byte before the stream
    must_go = is_over or sides.gives_up[side] != 0
    if start <= sides.released[side]:
        if must_go or not nodes.is_damaged[head]:
            return Deliverable(SEGMENT, packet, packet, NEVER)
        due = _damaged_due(state, side, peer, head)
        if clock >= due:
            return Deliverable(SEGMENT, packet, packet, NEVER)
    else:
        due = _hole_due(state, side, peer, head)
        if must_go or clock >= due:
            kind = IMPLAUSIBLE if _is_implausible(sides, side, start) else HOLE
            return Deliverable(kind, released_packet, released_packet, NEVER)
    hold = nodes.opened[head] + window
    if clock < hold:
        return Deliverable(NOTHING, NEVER, packet, min(hold, due))
    return Deliverable(NOTHING, NEVER, NEVER, due)
