"""What a side has to give: the first waiting node, a hole given up on evidence, or nothing yet.

The theory is in reassembly.py.
"""

from typing import Final, NamedTuple

from dissector.blocks import Int64Array
from dissector.jit import inlined, kernel
from dissector.limits import MAX_UNCONFIRMED_HOLE, NULL
from dissector.stream import layout
from dissector.stream.columns import DATA, RETRANSMITTED
from dissector.stream.layout import (
    ACKED,
    CLOCK,
    HEAD,
    NEVER,
    NEXT,
    NODE_DOUBTFUL,
    NODE_LENGTH,
    NODE_OFFSET,
    NODE_OPENED,
    NODE_PACKET,
    NODES,
    SIDE_BITS,
    SIDE_GIVE_UP,
    SIDE_RELEASED,
    SIDE_RESYNC,
    SIDE_START_OPEN,
    TURN,
    WINDOW_NS,
)
from dissector.stream.pending import drop_first
from dissector.stream.state import StreamState

NOTHING: Final = 0
NODE: Final = 1  # the first node is next in the stream
HOLE: Final = 2  # the hole before the first node is given up
MISSING_END: Final = 3  # acknowledged bytes behind everything seen are given up
UNBELIEVED: Final = 4  # a lone segment far ahead is dropped instead of giving up its hole

# What follows a packet within this time was sent with it: no keep-alive was answered between.
_AT_ONCE_NS: Final = 1_000_000


class Offer(NamedTuple):
    """What a side has to give. what: see above; turn: its turn, if it has something.

    bound: turns of the other side below it may leave now; due: clock of the next decision.
    """

    what: int
    turn: int
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
        nodes[head + NODE_OFFSET] != 0
        or nodes[head + NODE_LENGTH] != 1
        or nodes[head + layout.NODE_KIND] != DATA
        or nodes[head + layout.NODE_FLAGS] & RETRANSMITTED
    ):
        return False
    following = nodes[head + layout.NODE_NEXT]
    if following < 0 or nodes[following + NODE_OFFSET] != 1:
        return True
    return bool(nodes[following + layout.NODE_TS] - nodes[head + layout.NODE_TS] > _AT_ONCE_NS)


@inlined
def _settle_start(state: StreamState, side: int) -> None:
    """Nothing earlier is waited for any more: the stream begins with what is there."""
    cells = state.cells
    nodes = state.nodes
    cells[side + SIDE_BITS] &= ~(SIDE_START_OPEN | SIDE_GIVE_UP)
    head = cells[side + HEAD]
    is_empty = cells[side + SIDE_BITS] & layout.SIDE_STARTED_EMPTY
    if is_empty and head >= 0 and _is_probe(state, side, head):
        drop_first(state, side)
        cells[side + layout.KEEPALIVE_PACKETS] += 1
        head = cells[side + HEAD]
    if head >= 0:
        cells[side + NEXT] = min(cells[side + NEXT], nodes[head + NODE_OFFSET])
        if nodes[head + NODE_OFFSET] < 0:
            cells[side + layout.ISN] = NULL  # what was taken for it is none


@inlined
def _hole_due(state: StreamState, side: int, peer: int, head: int) -> int:
    """The clock at which the hole before the first node is given up."""
    cells = state.cells
    window = state.registers[WINDOW_NS]
    opened = state.nodes[head + NODE_OPENED]
    since = max(opened, cells[side + layout.PROGRESS])
    if cells[peer + layout.PACKETS] == 0:
        return int(since + window)
    if cells[side + ACKED] >= state.nodes[head + NODE_OFFSET]:
        # A retransmission may be captured just after the acknowledgement that it caused.
        covered = cells[side + layout.COVERED]
        return int(since + window if covered <= opened + window else max(since, covered) + window)
    return int(since + state.registers[layout.UNACKED_NS])


@inlined
def _doubt_due(state: StreamState, side: int, peer: int, head: int) -> int:
    """The clock at which a doubtful first node is used although no better copy came."""
    cells = state.cells
    opened = state.nodes[head + NODE_OPENED]
    if cells[peer + layout.PACKETS] == 0:
        return int(opened + state.registers[WINDOW_NS])
    end = state.nodes[head + NODE_OFFSET] + state.nodes[head + NODE_LENGTH]
    if cells[side + ACKED] >= end:
        return -NEVER  # its receiver took it
    return int(opened + state.registers[layout.UNACKED_NS])


@inlined
def _is_unbelieved(cells: Int64Array, side: int, end: int) -> bool:
    """Whether a hole is so long that one segment behind it is no proof of it."""
    return bool(
        end - cells[side + NEXT] > MAX_UNCONFIRMED_HOLE
        and cells[side + ACKED] < end
        and cells[side + NODES] < 3
    )


@inlined
def missing_end(cells: Int64Array, side: int) -> int:
    """Bytes that the peer acknowledged behind everything seen; 0 if that proves nothing.

    One byte proves nothing: it may be a FIN that was not captured, or a keep-alive. A side of which
    no packet was captured has no gaps.
    """
    if cells[side + layout.PACKETS] == 0 or cells[side + SIDE_BITS] & layout.SIDE_FIN_SEEN:
        return 0
    missing = cells[side + ACKED] - cells[side + NEXT]
    return missing if missing > 1 else 0


@kernel
def offer_of(state: StreamState, side: int, peer: int, is_over: bool) -> Offer:
    """What a side gives now. is_over: the connection ends, nothing more is waited for."""
    cells = state.cells
    nodes = state.nodes
    clock = state.registers[CLOCK]
    window = state.registers[WINDOW_NS]
    turn = cells[side + TURN]
    head = cells[side + HEAD]
    first_turn = max(turn, nodes[head + NODE_PACKET]) if head >= 0 else NEVER
    bits = cells[side + SIDE_BITS]
    if bits & SIDE_START_OPEN:
        due = cells[side + layout.START_SINCE] + window
        if clock < due and not is_over and not bits & SIDE_GIVE_UP:
            return Offer(NOTHING, NEVER, first_turn, due)
        _settle_start(state, side)
        bits = cells[side + SIDE_BITS]
        head = cells[side + HEAD]
        first_turn = max(turn, nodes[head + NODE_PACKET]) if head >= 0 else NEVER
    if head < 0:
        if missing_end(cells, side) == 0 or not bits & layout.SIDE_HAS_ORIGIN:
            return Offer(NOTHING, NEVER, NEVER, NEVER)
        due = cells[side + layout.ACK_SINCE] + window
        if clock >= due or is_over:
            return Offer(MISSING_END, turn, turn, NEVER)
        return Offer(NOTHING, NEVER, NEVER, due)
    end = nodes[head + NODE_OFFSET]
    if end == 1 and bits & layout.SIDE_STARTED_EMPTY and not bits & SIDE_RELEASED:
        cells[side + NEXT] = 1  # the first packet was a keep-alive, one byte before the stream
    is_pressed = is_over or bits & (SIDE_GIVE_UP | SIDE_RESYNC) != 0
    if end <= cells[side + NEXT]:
        if is_pressed or not nodes[head + NODE_DOUBTFUL]:
            return Offer(NODE, first_turn, first_turn, NEVER)
        due = _doubt_due(state, side, peer, head)
        if clock >= due:
            return Offer(NODE, first_turn, first_turn, NEVER)
    else:
        due = _hole_due(state, side, peer, head)
        if is_pressed or clock >= due:
            what = UNBELIEVED if _is_unbelieved(cells, side, end) else HOLE
            return Offer(what, turn, turn, NEVER)
    hold = nodes[head + NODE_OPENED] + window
    if clock < hold:
        return Offer(NOTHING, NEVER, first_turn, min(hold, due))
    return Offer(NOTHING, NEVER, NEVER, due)
