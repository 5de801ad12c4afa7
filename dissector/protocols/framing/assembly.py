"""The framing of a capture: calls the splitting kernel, grows its arrays, reads names.

The kernel (`splitting`) returns when an array is full. It decides everything itself, by the ranges
alone and never by how they were grouped into blocks.
"""

from typing import Any

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import callback, prepacked
from dissector.limits import MAX_LARGE_BUFFER_BYTES, MAX_PENDING_ARENA_BYTES, MAX_SMALL_BUFFER_BYTES
from dissector.notice_log import NoticeLog
from dissector.protocols.columns import CUT_BY_GAP
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.block_output import FrameOutput, FrameSink
from dissector.protocols.framing.connection_table import grown_connections, release_connections
from dissector.protocols.framing.detection import Detection, FramingOptions
from dissector.protocols.framing.range_pool import LARGE_HELD, LARGE_LIMIT, SMALL_LIMIT
from dissector.protocols.framing.resync import MOST_PROTOCOLS
from dissector.protocols.framing.row_output import Callbacks, PassContext
from dissector.protocols.framing.splitting import split
from dissector.protocols.framing.state import FramingState, RoleState, SplitStatus
from dissector.protocols.framing.unsynchronised import decide_largest
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE, Specs
from dissector.stream.columns import RangeColumns
from dissector.tables import ABSENT

__all__ = ["Framing", "FramingOptions"]


class Framing:
    """Turns blocks of ranges into blocks of frames.

    Args:
        specs: the protocols, in order of recognition.
        sink: is called with each block of frames while its bytes are valid.

    proxied, server_names, broker_ports: see `detection.Detection`.

    Raises:
        ValueError: there are more protocols than the marks of a searched byte have bits for.
    """

    def __init__(self, specs: Specs, sink: FrameSink, options: FramingOptions) -> None:
        if len(specs) > MOST_PROTOCOLS:
            raise ValueError(f"at most {MOST_PROTOCOLS} protocols are told apart")
        check = tuple(callback(CHECK_SIGNATURE, spec.check) for spec in specs)
        one_way = tuple(callback(SPAN_SIGNATURE, spec.one_way) for spec in specs)
        prove = tuple(callback(SPAN_SIGNATURE, spec.prove) for spec in specs)
        limit = tuple(callback(SPAN_SIGNATURE, spec.announced_limit) for spec in specs)
        self._calls = prepacked(Callbacks(check, prove, one_way, limit))
        self._output = FrameOutput(sink, options.hash_key, len(specs))
        self._detection = Detection(specs, options)
        self._detection.apply_options(self.state)
        self.proxied, self.server_names = self._detection.proxied, self._detection.server_names
        self.broker_ports = self._detection.broker_ports
        self.notices = NoticeLog()
        counts = self.state.pool.counts
        counts[SMALL_LIMIT], counts[LARGE_LIMIT] = MAX_SMALL_BUFFER_BYTES, MAX_LARGE_BUFFER_BYTES

    @property
    def state(self) -> FramingState:
        """The kernel's state of connections and directions, by row."""
        return self._output.state

    def advance(
        self, ranges: RangeColumns, rows: int, sources: tuple[ByteArray, ByteArray, ByteArray]
    ) -> None:
        """Split a block of ranges; each full block of frames goes to the sink."""
        self._output.sources = sources
        self.state.counters[[framing_state.COUNTER_CURSOR, framing_state.COUNTER_POSITION]] = 0
        status = SplitStatus.FULL
        while status != SplitStatus.DONE:
            status = self._split(ranges, rows)
            if status == SplitStatus.FULL:
                self._output.flush()
            elif status == SplitStatus.ARENA_FULL:
                self._reserve(ranges)
            elif status == SplitStatus.CONNECTIONS_FULL:
                self._output.state = grown_connections(self.state)
            elif status == SplitStatus.POOLS_FULL:
                self._output.state = framing_state.grown_pools(self.state)
            elif status == SplitStatus.BUFFERS_FULL:
                self._decide_largest()

    def _split(self, ranges: RangeColumns, rows: int) -> SplitStatus:
        state, sources = self._output.for_kernel()
        output = self._output
        output.rows, status = split(
            state, ranges, rows, sources, output.frames, output.rows, self._calls
        )
        if self.state.notices.used[0]:
            self.notices.drain(self.state.notices)
        if self.state.counters[framing_state.COUNTER_NAMING]:
            self._detection.read_names(self.state)
        return SplitStatus(status)

    def _reserve(self, ranges: RangeColumns) -> None:
        """Grow the arena; at its bound, cut the unfinished frame that needs the room.

        Its buffered bytes are emitted as a cut frame; its length tells where the next one begins.
        """
        needed = int(self.state.counters[framing_state.COUNTER_ARENA_NEEDED])
        self._output.grow_arena(needed)
        state, directions = self.state, self.state.directions
        is_requeued = state.counters[framing_state.COUNTER_REQUEUED] != ABSENT
        row = 0 if is_requeued else int(state.counters[framing_state.COUNTER_CURSOR])
        of_range: RangeColumns = state.requeued if is_requeued else ranges
        connection_index = int(state.counters[framing_state.COUNTER_CONNECTION])
        direction_index = 2 * connection_index + int(of_range.endpoint_index[row])
        used = int(state.counters[framing_state.COUNTER_ARENA_USED])
        if used + needed <= MAX_PENDING_ARENA_BYTES or directions.total[direction_index] == 0:
            return
        directions.broken[direction_index] = CUT_BY_GAP
        directions.skip[direction_index] = (
            directions.total[direction_index] - directions.have[direction_index]
        )
        connections, direction = state.connections, 2
        if connections.role[connection_index] == RoleState.DECIDED:
            direction = int(connections.client_endpoint[connection_index] != (direction_index & 1))
        self.notices.note(
            "unfinished_frames_limit",
            ts_ns=int(of_range.ts_ns[row]),
            connection_id=int(connections.connection_id[connection_index]),
            direction=direction,
            packet=int(of_range.packet[row]),
            stream_offset=int(directions.frame_start[direction_index]),
            bytes=used,
            value=used,
        )

    def _decide_largest(self) -> None:
        """Over the memory limit of large buffers: decide the largest ones by the bytes they hold.

        The buffers are sorted once for each eighth of the limit.
        """
        limit, eighth = MAX_LARGE_BUFFER_BYTES, MAX_LARGE_BUFFER_BYTES // 8
        pool, directions = self.state.pool, self.state.directions
        order = np.flatnonzero(directions.buffer != ABSENT)
        order = order[pool.buffers.is_large[directions.buffer[order]] != 0]
        size = pool.buffers.size[directions.buffer[order]]
        ids = self.state.connections.connection_id[order >> 1]
        order = order[np.lexsort((order, ids, -size))]
        while len(order):
            state, sources = self._output.for_kernel()
            context: Any = PassContext(
                state, self.state.requeued, sources, self._output.frames, self._calls, ABSENT
            )
            decided = decide_largest(context, order, limit - eighth)
            order = order[decided:]
            self.notices.drain(self.state.notices)
            self._output.state = framing_state.grown_pools(self.state)
            if self.state.pool.counts[LARGE_HELD] <= limit - eighth:
                break
        held = int(self.state.pool.counts[LARGE_HELD])
        self.state.pool.counts[LARGE_LIMIT] = max(limit, held + eighth)

    def flush(self) -> None:
        """Send the frames so far to the sink; afterwards no row points into any buffer."""
        self._output.flush()

    def close(self) -> None:
        """Refuse further frames: the last range was handled."""
        self._output.close()

    def release(self, connections: Int64Array) -> None:
        """Free the rows of closed connections whose own table rows are written."""
        release_connections(self.state, connections)

    def pending_bytes(self) -> int:
        """Bytes in the arena: unfinished frames, buffers and waiting frames."""
        return int(self.state.counters[framing_state.COUNTER_ARENA_USED])
