"""Streams: all connections of a capture, from segments to ranges in order. No I/O, no clock."""

from collections.abc import Iterator

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.packet.columns import PacketBuffers, SegmentColumns
from dissector.stream import state as stream_state
from dissector.stream.columns import RangeColumns
from dissector.stream.connections import find_rows
from dissector.stream.history import history_text
from dissector.stream.reassembly import advance, end_all
from dissector.stream.records import Connections, Directions
from dissector.stream.state import StreamOptions, StreamStatus

_SMALLEST_BLOCK = 64


class ConnectionEnds:
    """Copied records of connections, and their endpoints.

    connections: their records. The others are int64[rows] each, of side 0 (opened it, or seen
        first) and side 1: addresses as in SegmentColumns.
    """

    def __init__(self, rows: Connections) -> None:
        self.connections = rows
        self.ip_version = rows.ports >> 32
        self.address_high = _by_direction(rows, rows.lower_high, rows.upper_high)
        self.address_low = _by_direction(rows, rows.lower_low, rows.upper_low)
        self.port = _ports(rows)


class ConnectionRows(ConnectionEnds):
    """Connections with the records of both sides.

    directions: their records. history: one text per row.
    """

    def __init__(self, rows: Connections, directions: tuple[Directions, Directions]) -> None:
        super().__init__(rows)
        self.directions = directions
        histories = (rows.history, rows.history_more, rows.history_length)
        self.history = [
            history_text(*each) for each in zip(*map(np.ndarray.tolist, histories), strict=True)
        ]


class Streams:
    """Segments in, ranges out, block by block.

    `advance` and `finish` yield blocks; each must be used before the next is asked for, because
    its arrays, and the bytes in `heap` that its ranges name, are used again. When `advance` is
    exhausted nothing points into the caller's buffers any more. Connections that are over wait in
    `retired` until `recycle` says that their rows were written.
    """

    def __init__(self, options: StreamOptions | None = None) -> None:
        chosen = StreamOptions() if options is None else options
        self._block_rows = max(chosen.block_rows, _SMALLEST_BLOCK)
        self._state = stream_state.new_state(chosen._replace(block_rows=self._block_rows))
        self._no_segments = SegmentColumns.new(0)
        self._no_buffers = PacketBuffers(np.empty(0, np.uint8), np.empty(0, np.uint8))

    @property
    def heap(self) -> ByteArray:
        """The bytes that ranges with source 1 point into; ask anew with every block."""
        return self._state.heap

    @property
    def connections_seen(self) -> int:
        """How many connection ids were assigned."""
        return int(self._state.counters.next_id[0])

    @property
    def held_bytes(self) -> int:
        """Bytes waiting now, each waiting segment charged in addition."""
        return int(self._state.counters.held_bytes[0])

    @property
    def steps(self) -> int:
        """Steps taken so far along lists whose length the input decides: a measure of cost."""
        return int(self._state.counters.steps[0])

    def advance(
        self, segments: SegmentColumns, rows: int, buffers: PacketBuffers
    ) -> Iterator[tuple[RangeColumns, int]]:
        """Process the first `rows` segments; yield blocks of ranges, each with its number of rows.

        buffers: what the segments' source and offset point into (writable arrays).
        """
        state = self._state
        counters = state.counters
        counters.row[0] = 0
        stream_state.settle_indexes(state)
        while True:
            if counters.heap_live[0] == 0:
                counters.heap_used[0] = 0
            counters.ranges[0] = 0
            state.notices.used[0] = 0
            status = advance(state, segments, rows, buffers)
            if counters.ranges[0] or state.notices.used[0]:
                yield state.ranges, int(counters.ranges[0])
            if status == StreamStatus.DONE:
                return
            self._reserve(status, segments)

    @property
    def crowded(self) -> int:
        """How many searches of a hash table took more than limits.MAX_PROBES slots."""
        return int(self._state.counters.crowded[0])

    def notices(self) -> Int64Array:
        """The notices that came with the block last yielded, as the matrix of NoticeRows."""
        notices = self._state.notices
        return notices.rows.matrix[: int(notices.used[0])]

    def finish(self) -> Iterator[tuple[RangeColumns, int]]:
        """End the capture: everything waiting leaves or is given up, every connection closes."""
        end_all(self._state)
        yield from self.advance(self._no_segments, 0, self._no_buffers)

    def retired(self) -> Int64Array:
        """int64[], indexes of connections that are over, in order of their ends; see `recycle`."""
        return self._state.retired[: int(self._state.counters.retired[0])]

    def recycle(self) -> None:
        """Free the retired connections: their rows were written."""
        stream_state.free_retired(self._state)

    def rows_of(self, connection_ids: Int64Array) -> Int64Array:
        """Indexes of connections that were not recycled, -1 for others."""
        connection_indexes = np.empty(len(connection_ids), np.int64)
        find_rows(self._state, connection_ids, connection_indexes)
        return connection_indexes

    def open_rows(self) -> Int64Array:
        """Indexes of all connections that were not recycled, by connection id."""
        return stream_state.known_rows(self._state)

    def open_gaps(self) -> tuple[int, int]:
        """Holes that were given up, and their bytes, of all connections that are still open."""
        rows = self.open_rows()
        directions = np.concatenate((2 * rows, 2 * rows + 1))
        records = self._state.directions
        return int(records.gaps[directions].sum()), int(records.gap_bytes[directions].sum())

    def connection_ends(self, connection_indexes: Int64Array) -> ConnectionEnds:
        """The endpoints of connections. connection_indexes: as `retired` returns them."""
        return ConnectionEnds(Connections(self._state.connections.matrix[connection_indexes]))

    def connection_rows(self, connection_indexes: Int64Array) -> ConnectionRows:
        """The facts of connections. connection_indexes: as `retired` returns them."""
        rows = Connections(self._state.connections.matrix[connection_indexes])
        directions, first = self._state.directions.matrix, 2 * connection_indexes
        return ConnectionRows(
            rows, (Directions(directions[first]), Directions(directions[first + 1]))
        )

    def _reserve(self, status: int, segments: SegmentColumns) -> None:
        state = self._state
        if status == StreamStatus.NEED_HEAP:
            stream_state.add_heap(state, int(segments.captured_bytes[int(state.counters.row[0])]))
        elif status == StreamStatus.NEED_NODES:
            stream_state.add_nodes(state, len(state.nodes.matrix))
        elif status == StreamStatus.NEED_ROWS:
            stream_state.add_rows(
                state, len(state.connections.matrix) // 2
            )  # memory, not time, is short
        elif status == StreamStatus.FULL:
            stream_state.add_block_rows(state, self._block_rows)


def _by_direction(
    rows: Connections, lower: Int64Array, upper: Int64Array
) -> tuple[Int64Array, Int64Array]:
    """Values of the lower and the upper endpoint as values of side 0 and side 1."""
    is_upper = rows.endpoint0_is_upper
    return np.where(is_upper, upper, lower), np.where(is_upper, lower, upper)


def _ports(rows: Connections) -> tuple[Int64Array, Int64Array]:
    return _by_direction(rows, rows.ports >> 16 & 0xFFFF, rows.ports & 0xFFFF)
