"""The state of all streams as one bundle of arrays, and what makes room in it.

Kernels never allocate: they stop with NEED_HEAP, NEED_NODES or NEED_ROWS, and the functions here,
called between two kernel calls, give more room or squeeze out what is no longer used.
"""

from typing import Final, NamedTuple

import numpy as np

from dissector import limits
from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import spread_rows
from dissector.jit import inlined, kernel
from dissector.states import State
from dissector.stream import layout
from dissector.stream.columns import (
    DATA,
    NoticeColumns,
    RangeColumns,
    new_notice_columns,
    new_range_columns,
)
from dissector.stream.duplicates import DUPLICATE_CELLS
from dissector.stream.index import enter, leave
from dissector.stream.layout import (
    FOLLOWING,
    FREE_ROW,
    NODE_AT,
    NODE_CELLS,
    NODE_FREE,
    NODE_KIND,
    NODE_LENGTH,
    ROW_CELLS,
)

_MS: Final = 1_000_000  # ns
_FIRST_HEAP_BYTES: Final = 1 << 20
_FIRST_NODES: Final = 1 << 10
_FIRST_ROWS: Final = 1 << 8


class StreamOptions(NamedTuple):
    """What a user may choose. Times in ms, sizes in bytes; see dissector.limits for the defaults.

    overlap: first, last, linux or windows: which copy of waiting bytes wins if two differ.
    vlan_in_key: equal addresses in different VLANs or tunnels are always different connections.
    block_rows: ranges handed on at once.
    """

    reorder_window_ms: int = limits.REORDER_WINDOW_MS
    unacked_hole_ms: int = limits.UNACKED_HOLE_MS
    idle_timeout_ms: int = limits.IDLE_TIMEOUT_MS
    held_bytes: int = limits.MAX_HELD_BYTES
    held_bytes_per_connection: int = limits.MAX_HELD_BYTES_PER_CONNECTION
    connections: int = limits.MAX_CONNECTIONS
    brief_connections: int = limits.MAX_BRIEF_CONNECTIONS
    overlap: str = "first"
    vlan_in_key: bool = False
    block_rows: int = 16_384


class StreamState(State):
    """Everything that lives from packet to packet.

    cells: rows of connections (layout.py); nodes: waiting segments; heap: their bytes.
    index: hash table of keys, address of a row or -1; ids: the same of connection ids.
    timers, ready: queues (queue.py); signatures: recent packets (duplicates.py).
    registers: single numbers (layout.py); ranges, notices: output.
    retired: addresses of rows whose connection is over, in order.
    """

    cells: Int64Array
    nodes: Int64Array
    heap: ByteArray
    index: Int64Array
    ids: Int64Array
    timers: Int64Array
    ready: Int64Array
    signatures: Int64Array
    registers: Int64Array
    ranges: RangeColumns
    notices: NoticeColumns
    retired: Int64Array


def new_state(options: StreamOptions) -> StreamState:
    """An empty state with little room; it grows with what is seen."""
    registers = np.zeros(layout.REGISTERS, np.int64)
    registers[layout.CLOCK] = -layout.NEVER
    registers[layout.CLOCK_TICK] = -layout.NEVER
    registers[layout.LEAP_TS] = -layout.NEVER
    registers[layout.FREE_ROW] = -1
    registers[layout.FREE_NODE] = -1
    registers[layout.LIST_HEAD : layout.LIST_HEAD + layout.LISTS] = -1
    registers[layout.LIST_TAIL : layout.LIST_TAIL + layout.LISTS] = -1
    # Every process draws its own: no input can know beforehand where lists are slow.
    registers[layout.LEVEL_SEED] = hash("levels") & 0x7FFF_FFFF
    registers[layout.WINDOW_NS] = options.reorder_window_ms * _MS
    registers[layout.UNACKED_NS] = max(options.unacked_hole_ms, options.reorder_window_ms) * _MS
    registers[layout.IDLE_NS] = options.idle_timeout_ms * _MS
    registers[layout.HELD_LIMIT] = options.held_bytes
    registers[layout.HELD_LIMIT_CONNECTION] = options.held_bytes_per_connection
    registers[layout.CONNECTION_LIMIT] = options.connections
    registers[layout.BRIEF_LIMIT] = options.brief_connections
    registers[layout.OVERLAP] = layout.OVERLAP_NAMES.index(options.overlap)
    registers[layout.VLAN_IN_KEY] = int(options.vlan_in_key)
    rows = spread_rows(options.block_rows)
    state = StreamState(
        cells=np.empty(0, np.int64),
        nodes=np.empty(0, np.int64),
        heap=np.empty(_FIRST_HEAP_BYTES, np.uint8),
        index=np.empty(0, np.int64),
        ids=np.empty(0, np.int64),
        timers=np.zeros(3, np.int64),
        ready=np.zeros(3, np.int64),
        signatures=np.zeros(DUPLICATE_CELLS, np.int64),
        registers=registers,
        ranges=new_range_columns(rows),
        notices=new_notice_columns(rows),
        retired=np.empty(0, np.int64),
    )
    add_nodes(state, _FIRST_NODES)
    add_rows(state, _FIRST_ROWS)
    return state


def _longer(array: Int64Array, length: int, fill: int = 0) -> Int64Array:
    fresh = np.full(length, fill, np.int64)
    fresh[: len(array)] = array
    return fresh


def add_rows(state: StreamState, rows: int) -> None:
    """Make room for `rows` more connections; addresses stay as they are."""
    had = len(state.cells) // ROW_CELLS
    count = had + rows
    size = 1 << (2 * count - 1).bit_length()
    state.grow(
        cells=_longer(state.cells, count * ROW_CELLS),
        index=np.full(size, -1, np.int64),
        ids=np.full(size, -1, np.int64),
        timers=_longer(state.timers, 3 * (2 * count + 2)),
        ready=_longer(state.ready, 3 * (count + 2)),
        retired=_longer(state.retired, count),
    )
    _fill_index(state, had)
    _chain_rows(state.cells, state.registers, had, count)


@kernel
def _fill_index(state: StreamState, rows: int) -> None:
    """Enter every connection into the empty tables."""
    cells = state.cells
    for row in range(rows):
        base = row * ROW_CELLS
        if cells[base + layout.BITS] & layout.CONNECTION_FREE:
            continue
        enter(state.ids, base, cells[base + layout.ID_HASH])
        if not cells[base + layout.BITS] & layout.CONNECTION_DETACHED:
            enter(state.index, base, cells[base + layout.KEY_HASH])


@kernel
def _chain_rows(cells: Int64Array, registers: Int64Array, first: int, end: int) -> None:
    """Put rows first..end-1 into the list of free rows, the lowest on top."""
    for row in range(end - 1, first - 1, -1):
        _free_row(cells, registers, row * ROW_CELLS)


@inlined
def _free_row(cells: Int64Array, registers: Int64Array, base: int) -> None:
    cells[base + layout.BITS] = layout.CONNECTION_FREE
    cells[base + FOLLOWING] = registers[FREE_ROW]
    registers[FREE_ROW] = base
    registers[layout.FREE_ROWS] += 1


@kernel
def free_retired(state: StreamState) -> None:
    """Give the rows of retired connections back."""
    cells = state.cells
    for place in range(state.registers[layout.RETIRED]):
        base = state.retired[place]
        state.registers[layout.STEPS] += leave(state.ids, cells, layout.ID_HASH, base)
        _free_row(cells, state.registers, base)
    state.registers[layout.RETIRED] = 0


def add_nodes(state: StreamState, nodes: int) -> None:
    """Make room for `nodes` more waiting segments; addresses stay as they are."""
    had = len(state.nodes) // NODE_CELLS
    state.grow(nodes=_longer(state.nodes, (had + nodes) * NODE_CELLS))
    _chain_nodes(state.nodes, state.registers, had, had + nodes)


@kernel
def _chain_nodes(nodes: Int64Array, registers: Int64Array, first: int, end: int) -> None:
    for place in range(end - 1, first - 1, -1):
        node = place * NODE_CELLS
        nodes[node + NODE_KIND] = NODE_FREE
        nodes[node + layout.NODE_NEXT] = registers[layout.FREE_NODE]
        registers[layout.FREE_NODE] = node
        registers[layout.FREE_NODES] += 1


def add_heap(state: StreamState, needed: int) -> None:
    """Make room for `needed` more bytes: squeeze the heap; grow it if too little becomes free.

    No range that points into the heap may be in use any more.
    """
    live = int(state.registers[layout.HEAP_LIVE])
    size = len(state.heap)
    heap = state.heap
    while 3 * size < 4 * (live + needed):
        size *= 2
    if size > len(heap):
        heap = np.empty(size, np.uint8)
    kinds = state.nodes[NODE_KIND::NODE_CELLS]
    used = np.flatnonzero(kinds == DATA)
    order = used[np.argsort(state.nodes[NODE_AT::NODE_CELLS][used], kind="stable")]
    state.registers[layout.HEAP_USED] = _squeeze(
        state.nodes, np.ascontiguousarray(order * NODE_CELLS), state.heap, heap
    )
    state.grow(heap=heap)


@kernel
def _squeeze(nodes: Int64Array, order: Int64Array, heap: ByteArray, fresh: ByteArray) -> int:
    """Move the bytes of nodes together, in the order in which they lie; returns the bytes used."""
    used = 0
    for place in range(len(order)):
        node = order[place]
        start = nodes[node + NODE_AT]
        length = nodes[node + NODE_LENGTH]
        for index in range(length):
            fresh[used + index] = heap[start + index]
        nodes[node + NODE_AT] = used
        used += length
    return used
