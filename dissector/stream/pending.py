"""Segments that wait: per side a sorted list of nodes that never overlap.

A node is a run of stream bytes of one packet (DATA, with its bytes copied to the heap), of bytes
the snap length cut off (GAP_CUT), or the end of the stream (FIN, length 0). Nodes leave at the
front only, and new ones cover only what no node covers, so an insertion never moves anything.

The list is a skip list of six levels (one node in eight rises a level, by a hash of a running
number and a seed that every process draws anew, so that no sender can know where the levels are;
what comes out does not depend on it). Appending, by far the most frequent, is constant time; other
places are found in logarithmic time up to some 260,000 nodes of a side, more than the limits of
held bytes allow. A segment costs one step per node that it overlaps, which is at most one per byte
of it. How far ahead a sequence number jumps costs nothing. Nodes and bytes are bounded together:
every node is charged NODE_CHARGE_BYTES beside its bytes against the limits of held bytes.

Two copies of waiting bytes that differ are a conflict: counted, and the overlap policy says which
copy stays. `first`: the waiting one. `last`: the new one. `windows`: the copy whose segment starts
lower, else the waiting one; BSD and its descendants, Windows and macOS among them, trim the front
of what arrives and keep what they have, but let it run over segments that start behind its start.
`linux`: the same, and of segments that start equally the one that ends later. A node keeps the
bounds of the segment whose copy it is, and is split where only a part of it changes hands.

Whatever the policy, a copy with a right checksum wins over one with a wrong one (doubt.py). Bytes
that have left are not held any more: a later copy of them is counted as sent again without being
compared.
"""

from typing import NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import byte
from dissector.jit import inlined, kernel
from dissector.limits import NODE_CHARGE_BYTES, NULL
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
    NODE_DOUBTFUL,
    NODE_FLAGS,
    NODE_FROM,
    NODE_KIND,
    NODE_LENGTH,
    NODE_NEXT,
    NODE_OFFSET,
    NODE_OPENED,
    NODE_PACKET,
    NODE_TO,
    NODE_TS,
    NODES,
    OVERLAP,
    OVERLAP_FIRST,
    OVERLAP_LAST,
    OVERLAP_LINUX,
    STEPS,
    TAIL,
    TOP,
)
from dissector.stream.sequence import mix
from dissector.stream.state import StreamState


class Span(NamedTuple):
    """Bytes of a segment that shall wait.

    kind: DATA, GAP_CUT or FIN; start, end: stream offsets; at: of a byte at offset `start` in the
    packet's buffer; whole_start, whole_end: the segment they are part of; doubtful: 1 if its
    checksum is wrong.
    """

    kind: int
    start: int
    end: int
    at: int
    whole_start: int
    whole_end: int
    packet: int
    ts_ns: int
    doubtful: int


class Edges(NamedTuple):
    """A range of stream offsets."""

    start: int
    end: int


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
            registers[STEPS] += 1
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
def _levels(serial: int, seed: int) -> int:
    value = mix(serial ^ seed) >> 7
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
    nodes[node + NODE_PACKET] = span.packet
    nodes[node + NODE_TS] = span.ts_ns
    nodes[node + NODE_FLAGS] = flags
    nodes[node + NODE_OPENED] = opened
    nodes[node + NODE_FROM] = span.whole_start
    nodes[node + NODE_TO] = span.whole_end
    nodes[node + NODE_DOUBTFUL] = span.doubtful
    levels = _levels(registers[layout.NODE_SERIAL], registers[layout.LEVEL_SEED])
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
def _new_copy_wins(state: StreamState, node: int, span: Span) -> bool:
    """Whether a span's bytes replace those of a node, which are there as well."""
    nodes = state.nodes
    policy = state.registers[OVERLAP]
    first = nodes[node + NODE_FROM]
    if nodes[node + NODE_DOUBTFUL] != span.doubtful:
        return span.doubtful == 0
    if policy == OVERLAP_FIRST:
        return False
    if policy == OVERLAP_LAST:
        return True
    if span.whole_start == first:
        return bool(policy == OVERLAP_LINUX and span.whole_end > nodes[node + NODE_TO])
    return bool(span.whole_start < first)


@inlined
def _differing(state: StreamState, node: int, span: Span, data: ByteArray, range_of: Edges) -> int:
    """How many bytes of a range differ between a span and a node that has them."""
    held = state.nodes[node + NODE_AT] + range_of.start - state.nodes[node + NODE_OFFSET]
    new = span.at + range_of.start - span.start
    differing = 0
    for index in range(range_of.end - range_of.start):
        if byte(state.heap, held + index) != byte(data, new + index):
            differing += 1
            if state.registers[layout.CONFLICT_AT] == NULL:
                state.registers[layout.CONFLICT_AT] = range_of.start + index
    return differing


@kernel
def _cut_off(state: StreamState, side: int, node: int, offset: int) -> int:
    """Split a node before an offset inside it; the place last searched is then before the second
    part. Returns the second part. The caller has seen to a free node."""
    nodes = state.nodes
    _step_over(state, node)
    length = offset - nodes[node + NODE_OFFSET]
    kind = nodes[node + NODE_KIND]
    end = nodes[node + NODE_OFFSET] + nodes[node + NODE_LENGTH]
    whole_start = nodes[node + NODE_FROM]
    whole_end = nodes[node + NODE_TO]
    span = Span(
        kind, offset, end, 0, whole_start, whole_end, nodes[node + NODE_PACKET],
        nodes[node + NODE_TS], nodes[node + NODE_DOUBTFUL],
    )  # fmt: skip
    # What the second part's link charges the first part gives back.
    moved = end - offset if kind == DATA else 0
    nodes[node + NODE_LENGTH] = length
    flags = nodes[node + NODE_FLAGS]
    nodes[node + NODE_FLAGS] = flags & ~ENDS_PACKET
    part = _link(state, side, span, offset, end)
    _charge(state, side, 0, -moved)
    nodes[part + NODE_FLAGS] = flags & ~STARTS_PACKET
    nodes[part + NODE_OPENED] = nodes[node + NODE_OPENED]
    if kind == DATA:
        nodes[part + NODE_AT] = nodes[node + NODE_AT] + length
    return part


@inlined
def _hand_over(state: StreamState, node: int, span: Span, data: ByteArray) -> None:
    """Let all bytes of a node be those of a span, which covers it."""
    nodes = state.nodes
    heap = state.heap
    start = nodes[node + NODE_OFFSET]
    length = nodes[node + NODE_LENGTH]
    new = span.at + start - span.start
    held = nodes[node + NODE_AT]
    for index in range(length):
        heap[held + index] = data[new + index]
    if nodes[node + NODE_DOUBTFUL] > span.doubtful:
        # Only now are these bytes there.
        flags = RETRANSMITTED
        if start == span.whole_start:
            flags |= STARTS_PACKET
        if start + length == span.whole_end:
            flags |= ENDS_PACKET
        nodes[node + NODE_FLAGS] = flags
        nodes[node + NODE_PACKET] = span.packet
        nodes[node + NODE_TS] = span.ts_ns
    nodes[node + NODE_FROM] = span.whole_start
    nodes[node + NODE_TO] = span.whole_end
    nodes[node + NODE_DOUBTFUL] = span.doubtful


@kernel
def _meet(
    state: StreamState, side: int, node: int, span: Span, data: ByteArray, range_of: Edges
) -> int:
    """A range of a span is waiting already, in a node; returns the bytes that differ.

    Where the new copy is preferred its bytes take the place of the waiting ones. The place last
    searched is then behind everything up to the range's end.
    """
    nodes = state.nodes
    differing = 0
    nodes[node + NODE_FLAGS] |= RETRANSMITTED
    wins = False
    if span.kind == DATA and nodes[node + NODE_KIND] == DATA:
        differing = _differing(state, node, span, data, range_of)
        wins = _new_copy_wins(state, node, span)
    if wins:
        if nodes[node + NODE_OFFSET] < range_of.start:
            node = _cut_off(state, side, node, range_of.start)
        if range_of.end < nodes[node + NODE_OFFSET] + nodes[node + NODE_LENGTH]:
            _cut_off(state, side, node, range_of.end)
        else:
            _step_over(state, node)
        _hand_over(state, node, span, data)
    else:
        _step_over(state, node)
    return differing


@kernel
def insert(state: StreamState, side: int, span: Span, data: ByteArray) -> Taken:
    """Let the bytes of a span wait, as far as they do not wait already.

    data: the packet's buffer. The caller has seen to room in heap and nodes.
    """
    nodes = state.nodes
    registers = state.registers
    at = span.start
    again = 0
    conflicts = 0
    fresh = 0
    registers[layout.CONFLICT_AT] = NULL
    find_before(state, side, at)
    following = registers[BEFORE]
    if following < 0:
        following = _node_after(state, side)
    while at < span.end:
        registers[STEPS] += 1
        if following >= 0 and nodes[following + NODE_OFFSET] <= at:
            end = nodes[following + NODE_OFFSET] + nodes[following + NODE_LENGTH]
            if end > at:
                end = min(end, span.end)
                conflicts += _meet(state, side, following, span, data, Edges(at, end))
                again += end - at
                at = end
            else:
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
        state.registers[STEPS] += 1
        state.nodes[node + NODE_OFFSET] += by
        state.nodes[node + NODE_FROM] += by
        state.nodes[node + NODE_TO] += by
        node = state.nodes[node + NODE_NEXT]


@inlined
def is_fin(state: StreamState, node: int) -> bool:
    """Whether a node is the end of its stream."""
    return bool(state.nodes[node + NODE_KIND] == FIN)
