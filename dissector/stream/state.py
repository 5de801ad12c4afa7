"""The state of all streams as one bundle of arrays, and the functions that grow and compact it.

Kernels never allocate: they stop with NEED_HEAP, NEED_NODES or NEED_ROWS, and the functions here,
called between two kernel calls, grow the arrays or compact the heap.
"""

import enum
from typing import Final, NamedTuple

import numpy as np

from dissector import limits
from dissector.blocks import ByteArray, Int64Array
from dissector.codecs.keyed_hash import following_secret, hash_of_five, hash_of_words, new_secret
from dissector.jit import inlined, kernel
from dissector.notice_rows import Notices, new_notices
from dissector.states import State
from dissector.stream import records
from dissector.stream.columns import RangeColumns, RangeKind
from dissector.stream.duplicates import SIGNATURES, FirstPackets, Signatures
from dissector.stream.index import leave, new_index
from dissector.stream.queue import Queue, grown_queue, new_queue
from dissector.stream.records import (
    Connections,
    Counters,
    Directions,
    StreamSettings,
    WaitingRanges,
)
from dissector.tables import ListHeads, Pool, give_row, grown_pool, new_ends, new_pool


class StreamStatus(enum.IntEnum):
    """Why a kernel returned."""

    DONE = 0
    FULL = 1  # ranges or notices must be taken away first
    NEED_HEAP = 2
    NEED_NODES = 3
    NEED_ROWS = 4


_MS: Final = 1_000_000  # ns
_FIRST_HEAP_BYTES: Final = 1 << 20
_FIRST_NODES: Final = 1 << 10
_FIRST_ROWS: Final = 1 << 8
_FIRST_BLOCK_ROWS: Final = 1 << 10
_FIRST_PACKETS: Final = 1 << 14


class StreamOptions(NamedTuple):
    """Options of the user. Times in ms, sizes in bytes; see dissector.limits for the defaults.

    overlap: first, last, linux or windows: which copy of waiting bytes wins if two differ.
    vlan_in_key: equal addresses in different VLANs or tunnels are always different connections.
    notes_places: write each segment's stream and offset to its row; off by default, as few need it.
    block_rows: ranges per block, at most.
    hash_key: of hash tables.
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
    notes_places: bool = False
    block_rows: int = 16_384
    hash_key: int = 0


class StreamState(State):
    """The state between packets; records as in `records.py`.

    free_connections, free_nodes: rows that are free.
    index: connections by key_hash, ids: by id_hash (`index.py`).
    lru: lists of least recent use.
    timers: sides by the clock at which they are looked at again, ready: connections with work by
        connection_id (`queue.py`).
    heap: bytes of nodes.
    heads, tails: int64[directions, LEVELS], first and last node of each level of a side.
    successors: int64[nodes, LEVELS].
    predecessors: int64[LEVELS], the nodes before the position last searched; -1 none.
    signatures: recent packets (`duplicates.py`).
    first_packets: of recent connections (`translations.py`).
    ranges, notices: output.
    retired: connections that are over, in order.
    secret: of hashes.
    endpoint_secret: of the hashes of endpoints, which leave; it never changes.
    """

    connections: Connections
    directions: Directions
    free_connections: Pool
    index: Int64Array
    ids: Int64Array
    lru: ListHeads
    timers: Queue
    ready: Queue
    nodes: WaitingRanges
    free_nodes: Pool
    heads: Int64Array
    tails: Int64Array
    successors: Int64Array
    predecessors: Int64Array
    heap: ByteArray
    signatures: Signatures
    first_packets: FirstPackets
    counters: Counters
    settings: StreamSettings
    ranges: RangeColumns
    notices: Notices
    retired: Int64Array
    secret: Int64Array
    endpoint_secret: Int64Array


def new_state(options: StreamOptions) -> StreamState:
    """An empty, small state; it grows with the traffic."""
    block_rows = min(options.block_rows, _FIRST_BLOCK_ROWS)
    secret = new_secret(options.hash_key)
    state = StreamState(
        connections=Connections.new(0),
        directions=Directions.new(0),
        free_connections=new_pool(0),
        index=np.full(2, -1, np.int64),
        ids=np.full(2, -1, np.int64),
        lru=new_ends(records.LRU_LISTS),
        timers=new_queue(0),
        ready=new_queue(0),
        nodes=WaitingRanges.new(0),
        free_nodes=new_pool(0),
        heads=np.empty((0, records.LEVELS), np.int64),
        tails=np.empty((0, records.LEVELS), np.int64),
        successors=np.empty((0, records.LEVELS), np.int64),
        predecessors=np.full(records.LEVELS, -1, np.int64),
        heap=np.empty(_FIRST_HEAP_BYTES, np.uint8),
        signatures=Signatures.new(SIGNATURES),
        first_packets=FirstPackets.new(_FIRST_PACKETS),
        counters=_new_counters(secret),
        settings=_settings(options),
        ranges=RangeColumns.new(block_rows),
        notices=new_notices(block_rows),
        retired=np.empty(0, np.int64),
        secret=secret,
        endpoint_secret=secret.copy(),
    )
    add_nodes(state, _FIRST_NODES)
    add_rows(state, _FIRST_ROWS)
    return state


def _new_counters(secret: Int64Array) -> Counters:
    counters = Counters.new(1)
    for clock in (counters.clock, counters.second, counters.leap_ts_ns):
        clock[0] = -records.NEVER
    # A random seed: no input can predict where lists are slow.
    counters.level_seed[0] = int(secret[-1]) & 0x7FFF_FFFF
    return counters


def _settings(options: StreamOptions) -> StreamSettings:
    settings = StreamSettings.new(1)
    settings.reorder_window_ns[0] = options.reorder_window_ms * _MS
    settings.unacked_hole_ns[0] = max(options.unacked_hole_ms, options.reorder_window_ms) * _MS
    settings.idle_timeout_ns[0] = options.idle_timeout_ms * _MS
    settings.held_bytes[0] = options.held_bytes
    settings.held_bytes_per_connection[0] = options.held_bytes_per_connection
    settings.connections[0] = options.connections
    settings.brief_connections[0] = options.brief_connections
    settings.overlap[0] = records.OVERLAP_NAMES.index(options.overlap)
    settings.vlan_in_key[0] = options.vlan_in_key
    settings.notes_places[0] = options.notes_places
    return settings


def _longer(array: Int64Array, length: int) -> Int64Array:
    """A copy with `length` rows, the new ones filled with -1."""
    fresh = np.full((length, *array.shape[1:]), -1, np.int64)
    fresh[: len(array)] = array
    return fresh


def add_rows(state: StreamState, rows: int) -> None:
    """Make room for `rows` more connections."""
    count = len(state.connections.matrix) + rows
    state.grow(
        connections=state.connections.grown(count),
        directions=state.directions.grown(2 * count),
        free_connections=grown_pool(state.free_connections, count),
        heads=_longer(state.heads, 2 * count),
        tails=_longer(state.tails, 2 * count),
        timers=grown_queue(state.timers, 2 * count),
        ready=grown_queue(state.ready, count),
        retired=_longer(state.retired, count),
    )
    _enter_again(state, 1 << (2 * count - 1).bit_length())


def _enter_again(state: StreamState, slots: int) -> None:
    """Put all rows into new indexes with so many slots, in the order of their connections."""
    connections = state.connections
    ids, listed = known_rows(state), state.index[state.index >= 0]
    listed = listed[np.argsort(connections.connection_id[listed])]
    state.grow(
        index=new_index(connections.key_hash, listed, slots),
        ids=new_index(connections.id_hash, ids, slots),
    )


def known_rows(state: StreamState) -> Int64Array:
    """The rows of all connections that were not recycled, by connection id."""
    rows = state.ids[state.ids >= 0]
    return rows[np.argsort(state.connections.connection_id[rows])]


def settle_indexes(state: StreamState) -> None:
    """Rebuild the indexes with another secret if a search in them took too long."""
    if state.counters.crowded[0] > state.counters.crowded_before[0]:
        state.counters.crowded_before[0] = state.counters.crowded[0]
        state.secret[:] = following_secret(state.secret)
        _hash_again(state.secret, state.connections, known_rows(state))
        _enter_again(state, len(state.index))


@inlined
def hash_of_id(secret: Int64Array, connection_id: int) -> int:
    """The hash of a connection id, for the index of ids."""
    return hash_of_words(secret, connection_id, 0, 0, 0)


@kernel
def _hash_again(secret: Int64Array, connections: Connections, rows: Int64Array) -> None:
    for row in rows:
        connections.id_hash[row] = hash_of_id(secret, connections.connection_id[row])
        connections.key_hash[row] = hash_of_five(
            secret,
            connections.lower_low[row],
            connections.upper_low[row],
            connections.ports[row],
            connections.lower_high[row],
            connections.upper_high[row],
        )


def add_block_rows(state: StreamState, most: int) -> None:
    """Double the block of ranges, up to `most` rows; its contents are lost."""
    rows = len(state.ranges.packet)
    if rows < most:
        longer = min(2 * rows, most)
        state.grow(ranges=RangeColumns.new(longer), notices=new_notices(longer))


@kernel
def free_retired(state: StreamState) -> None:
    """Free the rows of retired connections."""
    counters = state.counters
    for number in range(counters.retired[0]):
        row = state.retired[number]
        counters.steps[0] += leave(state.ids, state.connections.id_hash, row)
        give_row(state.free_connections, row)
    counters.retired[0] = 0


def add_nodes(state: StreamState, nodes: int) -> None:
    """Make room for `nodes` more waiting segments."""
    had = len(state.nodes.matrix)
    state.grow(
        nodes=state.nodes.grown(had + nodes),
        free_nodes=grown_pool(state.free_nodes, had + nodes),
        successors=_longer(state.successors, had + nodes),
    )
    state.nodes.kind[had:] = records.NODE_FREE


def add_heap(state: StreamState, needed: int) -> None:
    """Make room for `needed` more bytes: squeeze the heap; grow it if too little becomes free.

    No range that points into the heap may be in use any more.
    """
    live = int(state.counters.heap_live[0])
    size = len(state.heap)
    heap = state.heap
    while 3 * size < 4 * (live + needed):
        size *= 2
    if size > len(heap):
        heap = np.empty(size, np.uint8)
    used = np.flatnonzero(state.nodes.kind == RangeKind.DATA)
    order = used[np.argsort(state.nodes.heap_at[used], kind="stable")]
    state.counters.heap_used[0] = _squeeze(state.nodes, order, state.heap, heap)
    state.grow(heap=heap)


@kernel
def _squeeze(nodes: WaitingRanges, order: Int64Array, heap: ByteArray, fresh: ByteArray) -> int:
    """Move the bytes of nodes together, in the order in which they lie; returns the bytes used."""
    used = 0
    for node in order:
        start = nodes.heap_at[node]
        length = nodes.length[node]
        for index in range(length):
            fresh[used + index] = heap[start + index]
        nodes.heap_at[node] = used
        used += length
    return used
