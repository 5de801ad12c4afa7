"""What a side can deliver: the first waiting segment, a hole given up on evidence, or nothing yet.

The theory is in reassembly.py.
"""

from typing import Final, NamedTuple

from dissector.jit import inlined, kernel
from dissector.limits import MAX_UNCONFIRMED_HOLE, NULL
from dissector.stream.columns import RETRANSMITTED, RangeKind
from dissector.stream.out_of_order import drop_first
from dissector.stream.records import NEVER, Directions
from dissector.stream.state import StreamState

NOTHING: Final = 0
SEGMENT: Final = 1  # the first node is next in the stream
HOLE: Final = 2  # the hole before the first node is given up
MISSING_END: Final = 3  # acknowledged bytes behind everything seen are given up
IMPLAUSIBLE: Final = 4  # a lone segment far ahead is dropped instead of giving up its hole

# What follows a packet within this time was sent with it: no keep-alive was answered between.
_AT_ONCE_NS: Final = 1_000_000


class Deliverable(NamedTuple):
    """What a side can deliver.

    kind: see above.
    packet: number by which it is ordered; what waits for its peer comes behind all of that.
    bound: ranges of the other side of lower packet numbers may leave now.
    due: clock of the next decision.
    """

    kind: int
    packet: int
    bound: int
    due: int


@inlined
def _is_probe(state: StreamState, direction_index: int, head: int) -> bool:
    """Whether a single byte in the first packet of a side is the made-up one of a keep-alive.

    A connection must have been idle before one: what follows at once continues a byte that was
    sent. If it does not after all, the byte costs less than a real one: frames are found behind it.
    """
    nodes = state.nodes
    if (
        nodes.offset[head] != 0
        or nodes.length[head] != 1
        or nodes.kind[head] != RangeKind.DATA
        or nodes.flags[head] & RETRANSMITTED
    ):
        return False
    after = state.successors[head, 0]
    if after < 0 or nodes.offset[after] != 1:
        return True
    return bool(nodes.ts_ns[after] - nodes.ts_ns[head] > _AT_ONCE_NS)


@inlined
def first_packet(state: StreamState, direction_index: int) -> int:
    """The packet number with which a side's first waiting node can leave, NEVER if none waits."""
    head = state.heads[direction_index, 0]
    if head < 0:
        return NEVER
    return int(max(state.directions.released_packet[direction_index], state.nodes.packet[head]))


@inlined
def _settle_start(state: StreamState, direction_index: int) -> None:
    """Stop waiting for earlier bytes: the stream begins with its first known byte."""
    directions = state.directions
    nodes = state.nodes
    heads = state.heads
    directions.start_is_open[direction_index] = 0
    directions.gives_up[direction_index] = 0
    head = heads[direction_index, 0]
    is_empty = directions.started_empty[direction_index]
    if is_empty and head >= 0 and _is_probe(state, direction_index, head):
        drop_first(state, direction_index)
        directions.keepalive_packets[direction_index] += 1
        head = heads[direction_index, 0]
    if head >= 0:
        directions.released[direction_index] = min(
            directions.released[direction_index], nodes.offset[head]
        )
        if nodes.offset[head] < 0:
            directions.isn[direction_index] = NULL  # what was taken for it is none


@inlined
def _awaits_peer(state: StreamState, peer: int, head: int) -> bool:
    """Whether the first node answers bytes of its peer that are missing: they were sent before it.

    One byte may be a FIN. What came late is not missing: it has the place of its packet.
    """
    directions = state.directions
    nodes = state.nodes
    edge = directions.released[peer]
    if (
        nodes.answers[head] <= edge + 1
        or directions.packets[peer] == 0
        or directions.fin_packet[peer] != NULL
    ):
        return False
    other = state.heads[peer, 0]
    return bool(other < 0 or nodes.offset[other] > edge)


@inlined
def hole_end(state: StreamState, direction_index: int, end: int) -> int:
    """The offset up to which a hole up to `end` is given up: if the other side's first segment
    waits for it, as far as that acknowledges; the rest may have been sent behind that segment."""
    peer = direction_index ^ 1
    head = state.heads[peer, 0]
    if (
        head >= 0
        and state.nodes.offset[head] <= state.directions.released[peer]
        and _awaits_peer(state, direction_index, head)
    ):
        answered = state.nodes.answers[head]
        return int(answered if answered + 1 < end else end)  # one byte alone proves nothing
    return end


@inlined
def _hole_due(state: StreamState, direction_index: int, peer: int, head: int) -> int:
    """The clock at which the hole before the first node is given up."""
    directions = state.directions
    nodes = state.nodes
    settings = state.settings
    window = settings.reorder_window_ns[0]
    opened = nodes.opened[head]
    since = max(opened, directions.progress_at[direction_index])
    if directions.packets[peer] == 0:
        return int(since + window)
    if directions.acked[direction_index] >= nodes.offset[head]:
        # A retransmission may be captured just after the acknowledgement that it caused.
        covered = directions.covered_at[direction_index]
        return int(since + window if covered <= opened + window else max(since, covered) + window)
    return int(since + settings.unacked_hole_ns[0])


@inlined
def _damaged_due(state: StreamState, direction_index: int, peer: int, head: int) -> int:
    """The clock at which a damaged first node is used although no better copy came."""
    directions = state.directions
    nodes = state.nodes
    settings = state.settings
    opened = nodes.opened[head]
    if directions.packets[peer] == 0:
        return int(opened + settings.reorder_window_ns[0])
    end = nodes.offset[head] + nodes.length[head]
    if directions.acked[direction_index] >= end:
        return -NEVER  # its receiver took it
    return int(opened + settings.unacked_hole_ns[0])


@inlined
def _is_implausible(directions: Directions, direction_index: int, end: int) -> bool:
    """Whether a hole is so long that one segment behind it is no proof of it."""
    return bool(
        end - directions.released[direction_index] > MAX_UNCONFIRMED_HOLE
        and directions.acked[direction_index] < end
        and directions.pending[direction_index] < 3
    )


@inlined
def missing_end(directions: Directions, direction_index: int, window_ns: int) -> int:
    """Bytes that the peer acknowledged behind everything seen; 0 if that proves nothing.

    One byte proves nothing: it may be a FIN that was not captured, or a keep-alive. A side of which
    no packet was captured has no gaps. Nor do bytes miss that nobody sent: a side that goes on
    below such an acknowledgement, more than a reorder window after it, did not send them.
    """
    if directions.packets[direction_index] == 0 or directions.fin_seen[direction_index]:
        return 0
    if (
        directions.payload_bytes[direction_index] == 0
        and directions.payload_bytes[direction_index ^ 1] == 0
    ):
        return 0  # numbers alone prove nothing: a host may answer for an older connection
    if directions.denied_at[direction_index] > directions.acked_since[direction_index] + window_ns:
        return 0
    missing = directions.acked[direction_index] - directions.released[direction_index]
    return missing if missing > 1 else 0


@kernel
def next_deliverable(state: StreamState, direction_index: int, is_over: bool) -> Deliverable:
    """What a side can deliver now. is_over: the connection ends, nothing more is waited for."""
    directions = state.directions
    nodes = state.nodes
    peer = direction_index ^ 1
    clock = state.counters.clock[0]
    window = state.settings.reorder_window_ns[0]
    if directions.start_is_open[direction_index]:
        due = directions.start_since[direction_index] + window
        if clock < due and not is_over and not directions.gives_up[direction_index]:
            return Deliverable(NOTHING, NEVER, first_packet(state, direction_index), due)
        _settle_start(state, direction_index)
    head = state.heads[direction_index, 0]
    if head < 0:
        if (
            missing_end(directions, direction_index, window) == 0
            or not directions.has_origin[direction_index]
        ):
            return Deliverable(NOTHING, NEVER, NEVER, NEVER)
        due = NEVER
        if directions.sent[direction_index] > directions.highest[direction_index]:
            due = (
                max(
                    directions.acked_since[direction_index], directions.progress_at[direction_index]
                )
                + window
            )
        if clock >= due or is_over:
            return Deliverable(MISSING_END, NEVER - 1, NEVER - 1, NEVER)
        return Deliverable(NOTHING, NEVER, NEVER, due)
    packet = first_packet(state, direction_index)
    start = nodes.offset[head]
    if (
        start == 1
        and directions.started_empty[direction_index]
        and not directions.has_released[direction_index]
    ):
        directions.released[direction_index] = (
            1  # the first packet was a keep-alive, one byte before the stream
        )
    must_go = is_over or directions.gives_up[direction_index] != 0
    if start <= directions.released[direction_index]:
        if must_go or not nodes.is_damaged[head]:
            if not _awaits_peer(state, peer, head):
                return Deliverable(SEGMENT, packet, packet, NEVER)
            due = nodes.arrived[head] + window
            kind = SEGMENT if must_go or clock >= due else NOTHING
            return Deliverable(kind, NEVER, NEVER, due)
        due = _damaged_due(state, direction_index, peer, head)
        if clock >= due:
            return Deliverable(SEGMENT, packet, packet, NEVER)
    else:
        due = _hole_due(state, direction_index, peer, head)
        if must_go or clock >= due:
            kind = IMPLAUSIBLE if _is_implausible(directions, direction_index, start) else HOLE
            return Deliverable(kind, packet, packet, NEVER)
    hold = nodes.opened[head] + window
    if clock < hold:
        return Deliverable(NOTHING, NEVER, packet, min(hold, due))
    return Deliverable(NOTHING, NEVER, NEVER, due)
