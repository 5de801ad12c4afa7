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

Whatever the policy, a copy with a right checksum wins over one with a wrong one (checksums.py).
Bytes that have left are not held any more: a later copy of them is counted as sent again without
being compared.
"""

from typing import NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import byte
from dissector.jit import inlined, kernel
from dissector.limits import NODE_CHARGE_BYTES, NULL
from dissector.stream import columns, records
from dissector.stream.columns import RangeKind
from dissector.stream.sequence import mix
from dissector.stream.state import StreamState
from dissector.tables import allocate_row, give_row


class SegmentSpan(NamedTuple):
    """Bytes of a segment to insert.

    kind: DATA, GAP_CUT or FIN.
    start, end: stream offsets.
    at: of a byte at offset `start` in the packet's buffer.
    segment_start, segment_end: bounds of their segment.
    is_damaged: 1 if its checksum is wrong.
    """

    kind: int
    start: int
    end: int
    at: int
    segment_start: int
    segment_end: int
    packet: int
    ts_ns: int
    is_damaged: int


class Edges(NamedTuple):
    """A range of stream offsets."""

    start: int
    end: int


class Inserted(NamedTuple):
    """The result of an insertion, in bytes: new, waiting already, and different."""

    fresh: int
    again: int
    conflicts: int


@kernel
def find_before(state: StreamState, direction_index: int, offset: int) -> None:
    """Note, per level, the last node of a side that starts before an offset (-1: none)."""
    nodes = state.nodes
    predecessors = state.predecessors
    last = state.tails[direction_index, 0]
    if last < 0 or nodes.offset[last] < offset:
        for level in range(records.LEVELS):
            predecessors[level] = state.tails[direction_index, level]
        return
    node = -1
    for step in range(records.LEVELS):
        level = records.LEVELS - 1 - step
        ahead = state.heads[direction_index, level] if node < 0 else state.successors[node, level]
        for _ in range(len(nodes.offset)):
            if ahead < 0 or nodes.offset[ahead] >= offset:
                break
            node = ahead
            ahead = state.successors[node, level]
            state.counters.steps[0] += 1
        predecessors[level] = node


@inlined
def _node_after(state: StreamState, direction_index: int) -> int:
    """The node after the position last searched, or -1."""
    before = state.predecessors[0]
    return int(state.heads[direction_index, 0] if before < 0 else state.successors[before, 0])


@inlined
def _step_over(state: StreamState, node: int) -> None:
    """Move the position last searched behind a node that follows it."""
    for level in range(state.nodes.levels[node]):
        state.predecessors[level] = node


@inlined
def _levels(serial: int, seed: int) -> int:
    value = mix(serial ^ seed) >> 7
    levels = 1
    while levels < records.LEVELS and value & 7 == 0:
        levels += 1
        value >>= 3
    return levels


@inlined
def _packet_flags(span: SegmentSpan, start: int, end: int) -> int:
    """Whether start..end of a span are the first or last bytes of their packet."""
    flags = columns.STARTS_PACKET if start == span.segment_start else 0
    return flags | columns.ENDS_PACKET if end == span.segment_end else flags


@kernel
def _link(state: StreamState, direction_index: int, span: SegmentSpan, start: int, end: int) -> int:
    """Link a node for start..end of a span at the position last searched, and step over it."""
    nodes = state.nodes
    heads = state.heads
    successors = state.successors
    counters = state.counters
    node = allocate_row(state.free_nodes)
    counters.nodes_made[0] += 1
    after = _node_after(state, direction_index)
    before = state.predecessors[0]
    edge = state.directions.released[direction_index]
    if before >= 0:
        edge = nodes.offset[before] + nodes.length[before]
    # A hole is as old as the oldest segment behind it: a node that splits one inherits its age.
    opened = counters.clock[0]
    if after >= 0 and nodes.offset[after] > edge:
        opened = min(opened, nodes.opened[after])
    directions = state.directions
    since = directions.acked_since[direction_index]
    is_acked = directions.highest[direction_index] <= start <= directions.acked[direction_index]
    if is_acked and since + state.settings.reorder_window_ns[0] < opened:
        opened = since  # the peer has long had the bytes of the hole
    # Below the highest byte seen it came late; what a repetition has beyond that is new.
    came_late = columns.RETRANSMITTED if start < state.directions.highest[direction_index] else 0
    nodes.offset[node] = start
    nodes.length[node] = end - start
    nodes.heap_at[node] = -1
    nodes.kind[node] = span.kind
    nodes.packet[node] = span.packet
    nodes.ts_ns[node] = span.ts_ns
    nodes.flags[node] = came_late | _packet_flags(span, start, end)
    nodes.arrived[node] = counters.clock[0]
    nodes.opened[node] = opened
    nodes.segment_start[node] = span.segment_start
    nodes.segment_end[node] = span.segment_end
    nodes.is_damaged[node] = span.is_damaged
    nodes.answers[node] = counters.answers[0]
    levels = _levels(counters.nodes_made[0], counters.level_seed[0])
    nodes.levels[node] = levels
    for level in range(levels):
        before = state.predecessors[level]
        if before < 0:
            after = heads[direction_index, level]
            heads[direction_index, level] = node
        else:
            after = successors[before, level]
            successors[before, level] = node
        successors[node, level] = after
        if after < 0:
            state.tails[direction_index, level] = node
    _step_over(state, node)
    _charge(state, direction_index, 1, _charged_bytes(span.kind, end - start))
    return int(node)


@inlined
def _charged_bytes(kind: int, length: int) -> int:
    return NODE_CHARGE_BYTES + (length if kind == RangeKind.DATA else 0)


@inlined
def _charge(state: StreamState, direction_index: int, count: int, charged: int) -> None:
    directions = state.directions
    directions.pending[direction_index] += count
    directions.held_bytes[direction_index] += charged
    state.counters.held_bytes[0] += charged


@kernel
def _keep_bytes(state: StreamState, node: int, data: ByteArray, at: int) -> None:
    """Copy a node's bytes to the heap; the caller ensures the room."""
    nodes = state.nodes
    counters = state.counters
    heap = state.heap
    length = nodes.length[node]
    start = counters.heap_used[0]
    nodes.heap_at[node] = start
    counters.heap_used[0] = start + length
    counters.heap_live[0] += length
    for index in range(length):
        heap[start + index] = data[at + index]


@inlined
def _new_copy_wins(state: StreamState, node: int, span: SegmentSpan) -> bool:
    """Whether a span's bytes replace those of a node, which are there as well."""
    nodes = state.nodes
    policy = state.settings.overlap[0]
    first = nodes.segment_start[node]
    if nodes.is_damaged[node] != span.is_damaged:
        return span.is_damaged == 0
    if policy == records.OVERLAP_FIRST:
        return False
    if policy == records.OVERLAP_LAST:
        return True
    if span.segment_start == first:
        return bool(policy == records.OVERLAP_LINUX and span.segment_end > nodes.segment_end[node])
    return bool(span.segment_start < first)


@inlined
def _differing(
    state: StreamState, node: int, span: SegmentSpan, data: ByteArray, edges: Edges
) -> int:
    """How many bytes of a range differ between a span and a node that has them."""
    nodes = state.nodes
    counters = state.counters
    held = nodes.heap_at[node] + edges.start - nodes.offset[node]
    new = span.at + edges.start - span.start
    differing = 0
    for index in range(edges.end - edges.start):
        if byte(state.heap, held + index) != byte(data, new + index):
            differing += 1
            if counters.conflict_at[0] == NULL:
                counters.conflict_at[0] = edges.start + index
    return differing


@kernel
def _split(state: StreamState, direction_index: int, node: int, offset: int) -> int:
    """Split a node before an offset inside it; the position last searched is then before the second
    part. Returns the second part. The caller ensures a free node."""
    nodes = state.nodes
    _step_over(state, node)
    length = offset - nodes.offset[node]
    kind = nodes.kind[node]
    end = nodes.offset[node] + nodes.length[node]
    segment_start = nodes.segment_start[node]
    segment_end = nodes.segment_end[node]
    span = SegmentSpan(
        kind, offset, end, 0, segment_start, segment_end, nodes.packet[node],
        nodes.ts_ns[node], nodes.is_damaged[node],
    )  # fmt: skip
    # What the second part's link charges the first part gives back.
    moved = end - offset if kind == RangeKind.DATA else 0
    nodes.length[node] = length
    flags = nodes.flags[node]
    nodes.flags[node] = flags & ~columns.ENDS_PACKET
    part = _link(state, direction_index, span, offset, end)
    _charge(state, direction_index, 0, -moved)
    nodes.flags[part] = flags & ~columns.STARTS_PACKET
    nodes.arrived[part] = nodes.arrived[node]
    nodes.opened[part] = nodes.opened[node]
    nodes.answers[part] = nodes.answers[node]
    if kind == RangeKind.DATA:
        nodes.heap_at[part] = nodes.heap_at[node] + length
    return part


@inlined
def _replace_bytes(state: StreamState, node: int, span: SegmentSpan, data: ByteArray) -> None:
    """Replace all bytes of a node by those of a span, which covers it."""
    nodes = state.nodes
    heap = state.heap
    start = nodes.offset[node]
    length = nodes.length[node]
    new = span.at + start - span.start
    held = nodes.heap_at[node]
    for index in range(length):
        heap[held + index] = data[new + index]
    if nodes.is_damaged[node] > span.is_damaged:
        # Only now are these bytes there.
        nodes.flags[node] = columns.RETRANSMITTED | _packet_flags(span, start, start + length)
        nodes.packet[node] = span.packet
        nodes.ts_ns[node] = span.ts_ns
    nodes.segment_start[node] = span.segment_start
    nodes.segment_end[node] = span.segment_end
    nodes.is_damaged[node] = span.is_damaged


@inlined
def _waits_for_start(state: StreamState, direction_index: int) -> bool:
    """Whether what waits of a side does so for the sake of its start alone: nothing is missing, and
    had the capture begun before, it had left. A copy says nothing of it then."""
    directions = state.directions
    head = state.heads[direction_index, 0]
    held = directions.held_bytes[direction_index]
    held -= directions.pending[direction_index] * NODE_CHARGE_BYTES
    length = directions.highest[direction_index] - state.nodes.offset[head]
    return bool(directions.start_is_open[direction_index] and held == length)


@kernel
def _overlap(
    state: StreamState,
    direction_index: int,
    node: int,
    span: SegmentSpan,
    data: ByteArray,
    edges: Edges,
) -> int:
    """Settle which copy of a range wins that already waits in a node; returns bytes that differ.

    Where the new copy is preferred its bytes take the place of the waiting ones. The position last
    searched is then behind everything up to the range's end.
    """
    nodes = state.nodes
    differing = 0
    # A copy says of a byte alone at the start that it is no keep-alive (deliverable.py).
    is_lone = nodes.offset[node] == 0 and nodes.length[node] == 1
    if is_lone or not _waits_for_start(state, direction_index):
        nodes.flags[node] |= columns.RETRANSMITTED
    wins = False
    if span.kind == RangeKind.DATA and nodes.kind[node] == RangeKind.DATA:
        differing = _differing(state, node, span, data, edges)
        wins = _new_copy_wins(state, node, span)
    if wins:
        if nodes.offset[node] < edges.start:
            node = _split(state, direction_index, node, edges.start)
        if edges.end < nodes.offset[node] + nodes.length[node]:
            _split(state, direction_index, node, edges.end)
        else:
            _step_over(state, node)
        _replace_bytes(state, node, span, data)
    else:
        _step_over(state, node)
    return differing


@kernel
def insert(
    state: StreamState, direction_index: int, span: SegmentSpan, data: ByteArray
) -> Inserted:
    """Let the bytes of a span wait, as far as they do not wait already.

    data: the packet's buffer. The caller has seen to room in heap and nodes.
    """
    nodes = state.nodes
    counters = state.counters
    at = span.start
    again = 0
    conflicts = 0
    fresh = 0
    counters.conflict_at[0] = NULL
    find_before(state, direction_index, at)
    node = state.predecessors[0]
    if node < 0:
        node = _node_after(state, direction_index)
    while at < span.end:
        counters.steps[0] += 1
        if node >= 0 and nodes.offset[node] <= at:
            end = nodes.offset[node] + nodes.length[node]
            if end > at:
                end = min(end, span.end)
                conflicts += _overlap(state, direction_index, node, span, data, Edges(at, end))
                again += end - at
                at = end
            else:
                _step_over(state, node)
        else:
            end = span.end if node < 0 else min(span.end, nodes.offset[node])
            node = _link(state, direction_index, span, at, end)
            if span.kind == RangeKind.DATA:
                _keep_bytes(state, node, data, span.at + at - span.start)
            fresh += end - at
            at = end
        node = _node_after(state, direction_index)
    return Inserted(fresh, again, conflicts)


@kernel
def insert_fin(state: StreamState, direction_index: int, span: SegmentSpan) -> None:
    """Insert the end of a stream before everything at or beyond it."""
    find_before(state, direction_index, span.start)
    _link(state, direction_index, span, span.start, span.start)


@kernel
def drop_first(state: StreamState, direction_index: int) -> None:
    """Remove the first node; its bytes stay in the heap until the heap is compacted."""
    nodes = state.nodes
    node = state.heads[direction_index, 0]
    for level in range(nodes.levels[node]):
        after = state.successors[node, level]
        state.heads[direction_index, level] = after
        if after < 0:
            state.tails[direction_index, level] = -1
    kind = nodes.kind[node]
    length = nodes.length[node]
    if kind == RangeKind.DATA:
        state.counters.heap_live[0] -= length
    _charge(state, direction_index, -1, -_charged_bytes(kind, length))
    nodes.kind[node] = records.NODE_FREE
    give_row(state.free_nodes, node)


@kernel
def shift_offsets(state: StreamState, direction_index: int, by: int) -> None:
    """Add a number to the offsets of all nodes of a side: its offset 0 became known late."""
    nodes = state.nodes
    node = state.heads[direction_index, 0]
    for _ in range(len(nodes.offset)):
        if node < 0:
            return
        state.counters.steps[0] += 1
        nodes.offset[node] += by
        nodes.segment_start[node] += by
        nodes.segment_end[node] += by
        node = state.successors[node, 0]
