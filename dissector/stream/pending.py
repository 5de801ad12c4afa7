"""Segments that wait: per side a sorted list of nodes that never overlap.

A node is a run of stream bytes of one packet (DATA, with its bytes copied to the heap), of bytes
the snap length cut off (GAP_CUT), or the end of the stream (FIN, length 0). Nodes leave at the
front only, and new ones cover only what no node covers, so an insertion never moves anything.

The list is a skip list of four levels (one node in eight rises a level, by a hash of a running
number, so the same input gives the same list). Appending, by far the most frequent, is constant
time; other places are found in logarithmic time up to some 4,000 nodes of a side and in 1/500 of
the nodes beyond. A segment costs one step per node that it overlaps, which is at most one per byte
compared. How far ahead a sequence number jumps costs nothing. Nodes and bytes are bounded together:
every node is charged NODE_CHARGE_BYTES beside its bytes against the limits of held bytes.

Two copies of waiting bytes that differ are a conflict: counted, and the overlap policy says which
copy stays, by where the new segment starts and ends: `first` the waiting one; `last` the new one;
`linux` the new one if it starts earlier, or equally and ends later; `windows` the new one if it
starts earlier and ends later. Bytes that have left are not held any more: a later copy of them is
counted as sent again without being compared.
"""

from typing import NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import byte
from dissector.jit import inlined, kernel
from dissector.limits import NODE_CHARGE_BYTES
from dissector.stream import layout
from dissector.stream.columns import (
    DATA,
    ENDS_PACKET,
    FIN,
    RETRANSMITTED,
    STARTS_PACKET,
)
from dissector.stream.layout import (
    BEFORE,
    CLOCK,
    HEAD,
    HEAP_USED,
    HELD,
    HELD_TOTAL,
    LEVELS,
    NEXT,
    NODE_AT,
    NODE_FLAGS,
    NODE_KIND,
    NODE_LENGTH,
    NODE_NEXT,
    NODE_OFFSET,
    NODE_OPENED,
    NODES,
    OVERLAP,
    OVERLAP_FIRST,
    OVERLAP_LAST,
    OVERLAP_LINUX,
    TAIL,
    TOP,
)
from dissector.stream.sequence import mix
from dissector.stream.state import StreamState


class Span(NamedTuple):
    """Bytes of a segment that shall wait.

    kind: DATA, GAP_CUT or FIN; start, end: stream offsets; at: of a byte at offset `start` in the
    packet's buffer; whole_start, whole_end: the segment they are part of.
    """

    kind: int
    start: int
    end: int
    at: int
    whole_start: int
    whole_end: int
    packet: int
    ts_ns: int


class Taken(NamedTuple):
    """What an insertion did, in bytes: new ones, ones that waited already, ones that differed."""

    fresh: int
    again: int
    conflicts: int


@kernel
def find_before(state: StreamState, side: int, offset: int) -> None:
    """Note, per level, the last node of a side that starts before an offset (-1: none)."""
    cells = state.cells
    nodes = state.nodes
    registers = state.registers
    last = cells[side + TAIL]
    if last < 0 or nodes[last + NODE_OFFSET] < offset:
        for level in range(LEVELS):
            registers[BEFORE + level] = cells[side + TAIL + level]
        return
    at = -1
    for step in range(LEVELS):
        level = LEVELS - 1 - step
        following = cells[side + HEAD + level] if at < 0 else nodes[at + NODE_NEXT + level]
        while following >= 0 and nodes[following + NODE_OFFSET] < offset:
            at = following
            following = nodes[at + NODE_NEXT + level]
        registers[BEFORE + level] = at


@inlined
def _node_after(state: StreamState, side: int) -> int:
    """The node after the place last searched, or -1."""
    before = state.registers[BEFORE]
    return int(state.cells[side + HEAD] if before < 0 else state.nodes[before + NODE_NEXT])


@inlined
def _step_over(state: StreamState, node: int) -> None:
    """Move the place last searched behind a node that follows it."""
    for level in range(state.nodes[node + layout.NODE_LEVELS]):
        state.registers[BEFORE + level] = node


@inlined
def _levels(serial: int) -> int:
    value = mix(serial) >> 7
    levels = 1
    while levels < LEVELS and value & 7 == 0:
        levels += 1
        value >>= 3
    return levels


@kernel
def _link(state: StreamState, side: int, span: Span, start: int, end: int) -> int:
    """Make a node for start..end of a span at the place last searched, and step over it."""
    cells = state.cells
    nodes = state.nodes
    registers = state.registers
    node = registers[layout.FREE_NODE]
    registers[layout.FREE_NODE] = nodes[node + NODE_NEXT]
    registers[layout.FREE_NODES] -= 1
    registers[layout.NODE_SERIAL] += 1
    after = _node_after(state, side)
    before = registers[BEFORE]
    edge = cells[side + NEXT]
    if before >= 0:
        edge = nodes[before + NODE_OFFSET] + nodes[before + NODE_LENGTH]
    # A hole is as old as the oldest segment behind it: a node that splits one inherits its age.
    opened = registers[CLOCK]
    if after >= 0 and nodes[after + NODE_OFFSET] > edge:
        opened = min(opened, nodes[after + NODE_OPENED])
    # Below the highest byte seen it came late; what a repetition has beyond that is new.
    flags = RETRANSMITTED if start < cells[side + TOP] else 0
    if start == span.whole_start:
        flags |= STARTS_PACKET
    if end == span.whole_end:
        flags |= ENDS_PACKET
    nodes[node + NODE_OFFSET] = start
    nodes[node + NODE_LENGTH] = end - start
    nodes[node + NODE_AT] = -1
    nodes[node + NODE_KIND] = span.kind
    nodes[node + layout.NODE_PACKET] = span.packet
    nodes[node + layout.NODE_TS] = span.ts_ns
    nodes[node + NODE_FLAGS] = flags
    nodes[node + NODE_OPENED] = opened
    levels = _levels(registers[layout.NODE_SERIAL])
    nodes[node + layout.NODE_LEVELS] = levels
    for level in range(levels):
        before = registers[BEFORE + level]
        if before < 0:
            following = cells[side + HEAD + level]
            cells[side + HEAD + level] = node
        else:
            following = nodes[before + NODE_NEXT + level]
            nodes[before + NODE_NEXT + level] = node
        nodes[node + NODE_NEXT + level] = following
        if following < 0:
            cells[side + TAIL + level] = node
    _step_over(state, node)
    _charge(state, side, 1, _charged_bytes(span.kind, end - start))
    return int(node)


@inlined
def _charged_bytes(kind: int, length: int) -> int:
    return NODE_CHARGE_BYTES + (length if kind == DATA else 0)


@inlined
def _charge(state: StreamState, side: int, count: int, charged: int) -> None:
    state.cells[side + NODES] += count
    state.cells[side + HELD] += charged
    state.registers[HELD_TOTAL] += charged


@kernel
def _keep_bytes(state: StreamState, node: int, data: ByteArray, at: int) -> None:
    """Copy a node's bytes to the heap; the caller has seen to the room."""
    heap = state.heap
    length = state.nodes[node + NODE_LENGTH]
    start = state.registers[HEAP_USED]
    state.nodes[node + NODE_AT] = start
    state.registers[HEAP_USED] = start + length
    state.registers[layout.HEAP_LIVE] += length
    for index in range(length):
        heap[start + index] = data[at + index]


@inlined
def _new_copy_wins(policy: int, span: Span, start: int, end: int) -> bool:
    """Whether a span's bytes replace those of a node start..end."""
    if policy == OVERLAP_FIRST:
        return False
    if policy == OVERLAP_LAST:
        return True
    if policy == OVERLAP_LINUX:
        return span.whole_start < start or (span.whole_start == start and span.whole_end > end)
    return span.whole_start < start and span.whole_end > end


@kernel
def _compare(
    state: StreamState, node: int, span: Span, data: ByteArray, start: int, end: int
) -> int:
    """Compare start..end of a span with a waiting node; returns the bytes that differ.

    Where the policy prefers the new copy its bytes are written over the waiting ones.
    """
    nodes = state.nodes
    heap = state.heap
    if span.kind != DATA or nodes[node + NODE_KIND] != DATA:
        return 0
    first = nodes[node + NODE_OFFSET]
    held = nodes[node + NODE_AT] + start - first
    new = span.at + start - span.start
    wins = _new_copy_wins(state.registers[OVERLAP], span, first, first + nodes[node + NODE_LENGTH])
    differing = 0
    for index in range(end - start):
        if byte(heap, held + index) != byte(data, new + index):
            differing += 1
            if wins:
                heap[held + index] = data[new + index]
    return differing


@kernel
def insert(state: StreamState, side: int, span: Span, data: ByteArray) -> Taken:
    """Let the bytes of a span wait, as far as they do not wait already.

    data: the packet's buffer. The caller has seen to room in heap and nodes.
    """
    nodes = state.nodes
    at = span.start
    again = 0
    conflicts = 0
    fresh = 0
    find_before(state, side, at)
    following = state.registers[BEFORE]
    if following < 0:
        following = _node_after(state, side)
    while at < span.end:
        if following >= 0 and nodes[following + NODE_OFFSET] <= at:
            end = nodes[following + NODE_OFFSET] + nodes[following + NODE_LENGTH]
            if end > at:
                end = min(end, span.end)
                conflicts += _compare(state, following, span, data, at, end)
                again += end - at
                nodes[following + NODE_FLAGS] |= RETRANSMITTED
                at = end
            _step_over(state, following)
        else:
            end = span.end if following < 0 else min(span.end, nodes[following + NODE_OFFSET])
            node = _link(state, side, span, at, end)
            if span.kind == DATA:
                _keep_bytes(state, node, data, span.at + at - span.start)
            fresh += end - at
            at = end
        following = _node_after(state, side)
    return Taken(fresh, again, conflicts)


@kernel
def insert_fin(state: StreamState, side: int, span: Span) -> None:
    """Let the end of a stream wait before everything at or beyond it."""
    find_before(state, side, span.start)
    _link(state, side, span, span.start, span.start)


@kernel
def drop_first(state: StreamState, side: int) -> None:
    """Take the first node out; its bytes stay in the heap until the heap is squeezed."""
    cells = state.cells
    nodes = state.nodes
    node = cells[side + HEAD]
    for level in range(nodes[node + layout.NODE_LEVELS]):
        following = nodes[node + NODE_NEXT + level]
        cells[side + HEAD + level] = following
        if following < 0:
            cells[side + TAIL + level] = -1
    kind = nodes[node + NODE_KIND]
    length = nodes[node + NODE_LENGTH]
    if kind == DATA:
        state.registers[layout.HEAP_LIVE] -= length
    _charge(state, side, -1, -_charged_bytes(kind, length))
    nodes[node + NODE_KIND] = layout.NODE_FREE
    nodes[node + NODE_NEXT] = state.registers[layout.FREE_NODE]
    state.registers[layout.FREE_NODE] = node
    state.registers[layout.FREE_NODES] += 1


@kernel
def shift_offsets(state: StreamState, side: int, by: int) -> None:
    """Add a number to the offsets of all nodes of a side: its offset 0 became known late."""
    node = state.cells[side + HEAD]
    while node >= 0:
        state.nodes[node + NODE_OFFSET] += by
        node = state.nodes[node + NODE_NEXT]


@inlined
def is_fin(state: StreamState, node: int) -> bool:
    """Whether a node is the end of its stream."""
    return bool(state.nodes[node + NODE_KIND] == FIN)
