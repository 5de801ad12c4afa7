"""The framing of a capture: the splitting kernel, and all that is too rare for it.

The kernel (`splitting`) returns where it cannot go on: first bytes of a connection that are
not plainly a frame, a search for the next frame (`searching`), frames that wait for the role
(`roles`), want of room. All decisions depend on the ranges alone, never on how they were grouped.
"""

from collections.abc import Callable

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import callback, kept
from dissector.limits import MAX_OPENING_BYTES, MAX_PENDING_ARENA_BYTES
from dissector.notice_log import Notice
from dissector.protocols.columns import CUT_BY_GAP
from dissector.protocols.framing.block_output import FrameOutput, FrameSink
from dissector.protocols.framing.connection_table import grown_slots, release_slots
from dissector.protocols.framing.detection import Detection, FramingOptions
from dissector.protocols.framing.replays import Replay
from dissector.protocols.framing.roles import Roles
from dissector.protocols.framing.row_output import Callbacks
from dissector.protocols.framing.searching import Searches
from dissector.protocols.framing.splitting import split
from dissector.protocols.framing.state import (
    ARENA_FULL,
    ATTENTION,
    CHAIN_FOUND,
    COUNTER_ARENA_NEEDED,
    COUNTER_ARENA_USED,
    COUNTER_CURSOR,
    COUNTER_FRAME_LIMIT,
    COUNTER_GATHERED,
    COUNTER_IS_ASKED,
    COUNTER_OPENING_LIMIT,
    COUNTER_POSITION,
    DONE,
    FULL,
    OPENINGS_FULL,
    ROLE_WAIT,
    SLOTS_FULL,
    FramingState,
    grown_openings,
)
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE, Specs
from dissector.stream.columns import RangeColumns

__all__ = ["Framing", "FramingOptions"]


class Framing:
    """Turns blocks of ranges into blocks of frames.

    Args:
        specs: the protocols, in order of recognition.
        ports_of: (connection id) -> ports of side 0 and side 1.
        sink: takes each block of frames while its bytes are valid.

    proxied, server_names, broker_ports: see `detection.Detection`.
    """

    def __init__(
        self,
        specs: Specs,
        ports_of: Callable[[int], tuple[int, int]],
        sink: FrameSink,
        options: FramingOptions,
    ) -> None:
        check = tuple(callback(CHECK_SIGNATURE, spec.check) for spec in specs)
        one_way = tuple(callback(SPAN_SIGNATURE, spec.one_way) for spec in specs)
        prove = tuple(callback(SPAN_SIGNATURE, spec.prove) for spec in specs)
        limit = tuple(callback(SPAN_SIGNATURE, spec.announced_limit) for spec in specs)
        self._calls = kept(Callbacks(check, prove, one_way, limit))
        self._output = FrameOutput(sink, options.hash_key)
        self._output.state.counters[COUNTER_FRAME_LIMIT] = options.max_frame_bytes
        self.findings: list[Notice] = []
        detection = Detection(specs, ports_of, options, self.findings)
        self.proxied, self.server_names = detection.proxied, detection.server_names
        self.broker_ports = detection.broker_ports
        self._output.state.counters[COUNTER_IS_ASKED] = detection.is_asked
        self._roles = Roles(self._output, self.broker_ports, ports_of, self.findings)
        self._searches = Searches(specs, self._output, detection, self._roles)

    @property
    def state(self) -> FramingState:
        """What is known of connections and directions, by slot."""
        return self._output.state

    def advance(
        self, ranges: RangeColumns, rows: int, sources: tuple[ByteArray, ByteArray, ByteArray]
    ) -> None:
        """Take a block of ranges; frames go to the sink as blocks fill up."""
        self._output.sources = sources
        main = Replay(ranges, rows, 0, 0)
        while True:
            current = self._output.replays[-1] if self._output.replays else main
            status = self._split(current)
            if status == DONE:
                if current is main:
                    return
                self._output.replays.pop()
            elif status == FULL:
                self._output.flush()
            elif status == ARENA_FULL:
                self._make_room(current)
            elif status == SLOTS_FULL:
                self._output.state = grown_slots(self._output.state)
            elif status == OPENINGS_FULL:
                state = self._output.state
                self._output.state = state._replace(openings=grown_openings(state.openings))
            elif status == CHAIN_FOUND:
                self._searches.replay_openings(current)
            elif status == ROLE_WAIT:
                self._roles.hold_last_row()
            elif status == ATTENTION:
                self._searches.attend_range(current)

    def _make_room(self, current: Replay) -> None:
        """More room for unfinished frames; at the bound the one that wants it is given up.

        What was gathered of it comes out as cut, and the next frame is found by its length.
        """
        needed = int(self._output.state.counters[COUNTER_ARENA_NEEDED])
        self._output.grow_arena(needed)
        state = self._output.state
        _, flow = self._output.stopped_at(current)
        flows = state.flows
        used = int(state.counters[COUNTER_ARENA_USED])
        if used + needed <= MAX_PENDING_ARENA_BYTES or flows.total[flow] == 0:
            return
        flows.broken[flow] = CUT_BY_GAP
        flows.skip[flow] = flows.total[flow] - flows.have[flow]
        offset = int(flows.frame_start[flow])
        self._roles.note(
            "unfinished_frames_limit", current.ranges, current.cursor, flow, offset, used
        )

    def _split(self, current: Replay) -> int:
        counters = self._output.state.counters
        counters[COUNTER_CURSOR] = current.cursor
        counters[COUNTER_POSITION] = current.position
        # What comes once more is part of a run, or follows one.
        counters[COUNTER_OPENING_LIMIT] = MAX_OPENING_BYTES if current.pieces is None else 0
        state, sources = self._output.for_kernel()
        self._output.rows, status = split(
            state,
            current.ranges,
            current.rows,
            sources,
            self._output.frames,
            self._output.rows,
            self._calls,
        )
        current.cursor = int(counters[COUNTER_CURSOR])
        current.position = int(counters[COUNTER_POSITION])
        self._searches.pass_gathered(int(counters[COUNTER_GATHERED]))
        counters[COUNTER_GATHERED] = 0
        return int(status)

    def flush(self) -> None:
        """Hand the frames so far to the sink; afterwards no row points into any buffer."""
        self._output.flush()

    def close(self) -> None:
        """No more ranges come, and no frames go out."""
        self._output.close()

    def release(self, connections: Int64Array) -> None:
        """Forget closed connections whose rows are written."""
        release_slots(self._output.state, connections)

    def pending_bytes(self) -> int:
        """Bytes that the framing holds for unfinished frames and searches."""
        return int(self._output.state.counters[COUNTER_ARENA_USED]) + self._searches.bytes
