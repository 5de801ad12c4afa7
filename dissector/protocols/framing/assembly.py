"""The framing of a capture: the splitting kernel, and all that is too rare for it.

The kernel (`protocols.framing`) returns where it cannot go on: first bytes of a connection that are
not plainly a frame, a search for the next frame, frames that wait for the role. This module decides
and lets the kernel go on. All decisions depend on the ranges alone, never on how they were grouped.
"""

from collections.abc import Callable
from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.findings import Finding
from dissector.jit import callback, kept
from dissector.limits import (
    MAX_HEAD_BYTES,
    MAX_PENDING_ARENA_BYTES,
    MAX_SEARCH_BYTES,
    NULL,
    RESYNC_HOLD_BYTES,
    RESYNC_HOLD_MS,
)
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import CUT_BY_GAP
from dissector.protocols.framing.emission import HEADER_WINDOW, Callbacks
from dissector.protocols.framing.heads import FramingOptions, Heads
from dissector.protocols.framing.held_runs import PIECE_BYTES, HeldRuns, is_waited_for
from dissector.protocols.framing.output import FrameOutput, Sink
from dissector.protocols.framing.recognition import Records
from dissector.protocols.framing.resync import AT, RESUME, Rule, find_chain
from dissector.protocols.framing.roles import Roles
from dissector.protocols.framing.runs import Piece, Replay, Run
from dissector.protocols.framing.slots import find_slot, give_back_slots, grown_slots
from dissector.protocols.framing.splitting import split
from dissector.protocols.framing.state import (
    ARENA_FULL,
    ATTENTION,
    CHAIN,
    COUNTER_ARENA_USED,
    COUNTER_ARENA_WANTED,
    COUNTER_CURSOR,
    COUNTER_FRAME_LIMIT,
    COUNTER_IS_ASKED,
    COUNTER_POSITION,
    DONE,
    FULL,
    HEAD,
    OPAQUE,
    ROLE_WAIT,
    SEARCH,
    SLOTS_FULL,
    UNDECIDED,
    UNKNOWN,
    FramingState,
)
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE, Specs
from dissector.stream.columns import (
    CLOSE,
    DATA,
    FIN,
    GAP_CUT,
    GAP_LOST,
    RangeColumns,
)

__all__ = ["Framing", "FramingOptions"]

# One connection is found sooner without a call of compiled code.
_find_slot: Final = getattr(find_slot, "py_func", find_slot)

SURE_FRAMES: Final = 3  # in a row: a chain that may be believed where it must be decided
_WAITS: Final = -2  # the next bytes tell whether the connection begins with a frame
# Behind a SYN so many bytes without a frame header are no broker protocol.
REFUSED_BYTES: Final = 32
MAX_WAIT_BYTES: Final = 4 * RESYNC_HOLD_BYTES  # of a direction that waits for the other one's
MAX_RUN_BYTES: Final = 64 << 20  # of all searches together; then a chain is believed at once


class Framing:
    """Turns blocks of ranges into blocks of frames.

    Args:
        specs: the protocols, in order of recognition.
        ports_of: (connection id) -> ports of side 0 and side 1.
        sink: takes each block of frames while its bytes are valid.

    proxied, server_names, broker_ports: see `heads.Heads`.
    """

    def __init__(
        self,
        specs: Specs,
        ports_of: Callable[[int], tuple[int, int]],
        sink: Sink,
        options: FramingOptions,
    ) -> None:
        self._specs = specs
        self._check = tuple(callback(CHECK_SIGNATURE, spec.check) for spec in specs)
        one_way = tuple(callback(SPAN_SIGNATURE, spec.one_way) for spec in specs)
        limit = tuple(callback(SPAN_SIGNATURE, spec.announced_limit) for spec in specs)
        self._calls = kept(Callbacks(self._check, one_way, limit))
        prove = tuple(callback(SPAN_SIGNATURE, spec.prove) for spec in specs)
        self._judges = kept(self._check), kept(prove)
        self._output = FrameOutput(sink)
        self._passed = (self._output.state, kept(self._output.state))
        self._output.state.counters[COUNTER_FRAME_LIMIT] = options.max_frame_bytes
        self.findings: list[Finding] = []
        self._heads = Heads(specs, ports_of, options, self.findings)
        self.proxied, self.server_names = self._heads.proxied, self._heads.server_names
        self.broker_ports = self._heads.broker_ports
        self._output.state.counters[COUNTER_IS_ASKED] = self._heads.is_asked
        self._roles = Roles(self._output, self.broker_ports, ports_of, self.findings)
        self._runs = HeldRuns(self._output)

    @property
    def state(self) -> FramingState:
        """What is known of connections and directions, by slot."""
        return self._output.state

    # -- driving the kernel

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
            elif status == ROLE_WAIT:
                self._roles.take_last_row()
            elif status == ATTENTION:
                self._attend(current)

    def _make_room(self, current: Replay) -> None:
        """More room for unfinished frames; at the bound the one that wants it is given up.

        What was gathered of it comes out as cut, and the next frame is found by its length.
        """
        state = self._output.state
        wanted = int(state.counters[COUNTER_ARENA_WANTED])
        self._output.grow_arena(wanted)
        state = self._output.state
        way = self._way(current.ranges, current.cursor)[1]
        ways = state.directions
        used = int(state.counters[COUNTER_ARENA_USED])
        if used + wanted <= MAX_PENDING_ARENA_BYTES or ways.total[way] == 0:
            return
        ways.broken[way] = CUT_BY_GAP
        ways.skip[way] = ways.total[way] - ways.have[way]
        row = current.cursor
        self._note("unfinished_frames_limit", current.ranges, row, int(ways.frame_start[way]), used)

    def _split(self, current: Replay) -> int:
        counters = self._output.state.counters
        counters[COUNTER_CURSOR] = current.cursor
        counters[COUNTER_POSITION] = current.position
        state, sources = self._output.passed_on()
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
        return int(status)

    def flush(self) -> None:
        """Hand the frames so far to the sink; afterwards no row points into any buffer."""
        self._output.flush()

    def close(self) -> None:
        """No more ranges come, and no frames go out."""
        self._output.close()

    def release(self, connections: Int64Array) -> None:
        """Forget closed connections whose rows are written."""
        give_back_slots(self._output.state, connections)

    def pending_bytes(self) -> int:
        """Bytes that the framing holds for unfinished frames and searches."""
        return int(self._output.state.counters[COUNTER_ARENA_USED]) + self._runs.size

    # -- the slow path

    def _way(self, ranges: RangeColumns, row: int) -> tuple[int, int]:
        slot = int(_find_slot(self._output.state, int(ranges.connection[row])))
        return slot, 2 * slot + int(ranges.side[row])

    def _attend(self, current: Replay) -> None:
        """Handle the range at the cursor that the kernel does not."""
        slot, way = self._way(current.ranges, current.cursor)
        kind = int(current.ranges.kind[current.cursor])
        if kind == CLOSE:
            self._attend_close(current, slot)
            return
        run = self._runs.get(way)
        if run is None and is_waited_for(self._runs.get(way ^ 1)):
            run = self._runs.wait(slot, way)
        if run is not None and run.mode is not None:
            self._keep_waiting(current, slot, way, run)
        elif kind == DATA:
            self._attend_data(current, slot, way)
        elif kind in (GAP_LOST, GAP_CUT):
            self._attend_gap(current, slot, way)
        elif kind == FIN:
            self._attend_fin(current, slot, way)
        else:
            raise AssertionError(f"range kind {kind} needs no attention")

    def _note(self, code: str, ranges: RangeColumns, row: int, offset: int, value: int) -> None:
        way = self._way(ranges, row)[1]
        self._note_way(code, ranges, row, way, offset, value)

    def _note_way(
        self, code: str, ranges: RangeColumns, row: int, way: int, offset: int, value: int
    ) -> None:
        self.findings.append(
            Finding(
                NOTICE_NUMBER[code],
                ts_ns=int(ranges.ts_ns[row]),
                connection_id=int(ranges.connection[row]),
                direction=self._roles.direction(way >> 1, way & 1),
                packet=int(ranges.packet[row]),
                stream_offset=offset,
                bytes=value,
                value=value,
            )
        )

    def _keep_waiting(self, current: Replay, slot: int, way: int, run: Run) -> None:
        """A direction that waits for the other one's search, but not for ever."""
        row = current.cursor
        self._runs.take_range(current, run)
        waited_ns = int(current.ranges.ts_ns[row]) - run.pieces[0].ts_ns
        is_full = run.size > MAX_WAIT_BYTES or self._runs.size > MAX_RUN_BYTES
        if not is_full and waited_ns <= RESYNC_HOLD_MS * 1_000_000:
            return
        other = way ^ 1
        place = int(self._output.state.connections.protocol[slot])
        if self._runs[other].has_some(place, 1):
            self._accept(current.ranges, row, slot, other, place)
            return
        self._runs[other].is_patient, self._runs[other].is_hurried = False, True
        self._runs.replay(current.ranges, row, slot, [(way, self._runs.wake(way))])

    # -- what happens to a direction without a chain

    def _attend_data(self, current: Replay, slot: int, way: int) -> None:
        ways = self._output.state.directions
        ranges, row = current.ranges, current.cursor
        piece = self._runs.piece_of(current)
        if way not in self._runs and piece.starts_chain:
            ways.mode[way] = CHAIN
            ways.verify[way] = int(not piece.is_judged)
            piece.starts_chain = False
            return
        if ways.mode[way] == CHAIN:
            self._break_chain(current, slot, way)
        is_new = way not in self._runs
        run = self._runs.begin(slot, way)
        if is_new and ways.mode[way] == HEAD:
            run.at_start = piece.stream_offset == 0
            is_from_syn = bool(self._output.state.connections.is_from_syn[slot])
            run.is_known_start = run.at_start and is_from_syn
            run.records = None if run.is_known_start else Records()
        self._runs.take_range(current, run)
        self._look_for_frames(ranges, row, slot, way, is_final=False)

    def _break_chain(self, current: Replay, slot: int, way: int) -> None:
        """A header that cannot be one: what is gathered of it and what follows is searched."""
        ways = self._output.state.directions
        ranges, row = current.ranges, current.cursor
        have = int(ways.have[way])
        offset = int(ranges.stream_offset[row]) + current.position - have
        self._note("desync", ranges, row, offset, NULL)
        ways.mode[way] = SEARCH
        ways.have[way] = 0
        ways.total[way] = 0
        run = self._runs.begin(slot, way)
        # The first byte is known to start no frame.
        run.trail(int(self._output.state.connections.protocol[slot])).search[RESUME] = 1
        if have:
            at = int(ways.arena_at[way])
            order = current.pieces[row].order if current.pieces else self._runs.arrivals
            run.add(
                Piece(offset, have, int(ways.first_packet[way]), int(ways.first_ts[way]), 0, order),
                self._output.state.arena[at : at + have],
            )
            self._runs.size += have + PIECE_BYTES

    def _look_for_frames(
        self, ranges: RangeColumns, row: int, slot: int, way: int, is_final: bool
    ) -> bool:
        """Recognise or search the run of a direction; True if it ended and is replayed."""
        known = self._output.state.connections
        run = self._runs[way]
        before = run.size + PIECE_BYTES * len(run.pieces)
        is_open = known.protocol[slot] == UNDECIDED
        needs_more = is_open and self._heads.recognise(known, slot, run, is_final)
        self._runs.size += run.size + PIECE_BYTES * len(run.pieces) - before
        if needs_more:
            return False
        if known.protocol[slot] >= len(self._specs):
            self._runs.give_up(way, OPAQUE)
            return False
        place = self._search(run, way, int(ranges.ts_ns[row]), is_final)
        if place >= 0:
            self._accept(ranges, row, slot, way, place)
            return True
        if is_final or place == _WAITS:
            return False
        if run.has_events and not run.is_live:
            # Nothing in front of the gap: it is told, and so is the other direction.
            self._runs.let_go(ranges, row, slot, way)
            return True
        self._bound(ranges, row, slot, way)
        return False

    def _places(self, way: int) -> tuple[int, ...]:
        protocol = int(self._output.state.connections.protocol[way >> 1])
        return (protocol,) if protocol != UNDECIDED else tuple(range(len(self._specs)))

    def _search(self, run: Run, way: int, ts_ns: int, is_final: bool) -> int:
        """The first protocol whose chain in a run can be believed; else -1, or _WAITS."""
        state = self._output.state
        limit = int(state.directions.limit[way])
        direction = self._roles.direction(way >> 1, way & 1)
        is_open = state.connections.protocol[way >> 1] == UNDECIDED
        is_full = self._runs.size > MAX_RUN_BYTES
        for place in self._places(way):
            begins = run.begins_with_frame(self._check[place], place, limit, int(is_open))
            if begins > 0:
                return place
            if begins == 0 and not is_final and run.size < HEADER_WINDOW:
                return _WAITS
            rule = Rule(*self._judges, place, direction, limit, int(is_final))
            status = find_chain(run.passed_on(place), rule)
            if run.is_known_start and is_open and not run.hole_count:
                continue
            if run.is_believed(place, status, ts_ns, is_final or is_full):
                run.is_confirmed = run.is_told_by_packets(place)
                return place
        return -1

    def _bound(self, ranges: RangeColumns, row: int, slot: int, way: int) -> None:
        """Keep a run within its bound: drop what can hold no frame, or give the direction up."""
        known = self._output.state.connections
        ways = self._output.state.directions
        run = self._runs[way]
        is_live = run.is_live
        places = self._places(way)
        resume = min(int(run.trail(place).search[RESUME]) for place in places)
        is_open = known.protocol[slot] == UNDECIDED
        refused = run.is_known_start and is_open and resume > 0 and run.size > REFUSED_BYTES
        looked_at = int(ways.skipped[way]) + run.size
        most = MAX_HEAD_BYTES
        if is_open and self._heads.is_hinted(int(known.connection_id[slot])):
            most = MAX_SEARCH_BYTES
        if refused or (is_open and not is_live and looked_at > most):
            self._runs.give_up(way, OPAQUE)
            other = way ^ 1
            if ways.mode[other] == OPAQUE or not ways.is_seen[other] or refused:
                said = REFUSED_BYTES if refused else most
                self._note("not_recognised", ranges, row, NULL, said)
                known.protocol[slot] = UNKNOWN
                self._runs.give_up(other, OPAQUE)
            return
        if not is_live and run.is_patient:
            self._runs.let_go(ranges, row, slot, way)
            return
        is_worth_it = not is_live or 2 * resume > max(run.size, RESYNC_HOLD_BYTES // 16)
        if is_worth_it and not (run.is_known_start and is_open):
            self._runs.drop(way, run, resume)
        if is_live and not is_open and not run.is_hurried and not run.is_patient:
            run.is_patient = True
            other = way ^ 1
            if other not in self._runs and ways.mode[other] != OPAQUE:
                self._runs.wait(slot, other)

    def _accept(self, ranges: RangeColumns, row: int, slot: int, way: int, place: int) -> None:
        """Frames start at an offset of the run: let the kernel take it from there.

        If that decides the protocol, the run of the other direction may hold frames as well: both
        go through the kernel together, as they arrived.
        """
        known, ways = self._output.state.connections, self._output.state.directions
        was_undecided = known.protocol[slot] == UNDECIDED
        known.protocol[slot] = place
        found = [(way, self._take_run(ranges, row, way, place))]
        other = way ^ 1
        if was_undecided and ways.mode[other] == OPAQUE:
            ways.mode[other] = SEARCH
        if was_undecided and other in self._runs:
            run = self._runs[other]
            is_found = self._search(run, other, int(ranges.ts_ns[row]), False) >= 0
            if is_found or run.has_some(place, SURE_FRAMES):
                found.append((other, self._take_run(ranges, row, other, place)))
            elif run.is_live:
                self._bound(ranges, row, slot, other)
        self._runs.replay(ranges, row, slot, found)

    def _take_run(self, ranges: RangeColumns, row: int, way: int, place: int) -> Run:
        """The run of a direction without the bytes that precede its chain."""
        ways = self._output.state.directions
        run = self._runs[way]
        self._runs.drop(way, run, int(run.trail(place).search[AT]))
        self._runs.end(way)
        first = run.piece_at(0)[0]
        first.starts_chain = True
        skipped = int(ways.skipped[way])
        if skipped:
            code = "midstream_start" if ways.is_first[way] else "resync"
            self._note_way(code, ranges, row, way, first.stream_offset, skipped)
        if not run.is_confirmed:
            self._note_way("resync_unconfirmed", ranges, row, way, first.stream_offset, skipped)
        ways.skipped[way] = 0
        ways.mode[way] = SEARCH
        return run

    def _attend_gap(self, current: Replay, slot: int, way: int) -> None:
        """A gap in a run: its chain may go on behind it; else the gap is told."""
        ranges, row = current.ranges, current.cursor
        known = self._output.state.connections
        ways = self._output.state.directions
        if way in self._runs:
            self._runs.take_range(current, self._runs[way])
            self._look_for_frames(ranges, row, slot, way, is_final=False)
        elif known.protocol[slot] == UNDECIDED or ways.mode[way] == OPAQUE:
            current.cursor += 1
            current.position = 0
        else:
            # The kernel's own gap code turns a chain without an unfinished frame into a search.
            ways.mode[way] = CHAIN
            ways.have[way] = 0
            ways.skip[way] = 0

    def _attend_fin(self, current: Replay, slot: int, way: int) -> None:
        """No byte follows in this direction: its search ends, and then the event is told."""
        if way in self._runs and self._finish_run(current.ranges, current.cursor, slot, way):
            return
        ways = self._output.state.directions
        if ways.mode[way] != OPAQUE:
            ways.mode[way] = CHAIN
            ways.have[way] = 0
            ways.skip[way] = 0

    def _finish_run(self, ranges: RangeColumns, row: int, slot: int, way: int) -> bool:
        """The last chance of a run; True if something of it goes through the kernel first."""
        if self._look_for_frames(ranges, row, slot, way, is_final=True):
            return True
        run = self._runs.get(way)
        if run is None:
            return False
        is_awaited = (way ^ 1) in self._runs and self._runs[way ^ 1].mode is not None
        if run.has_events or is_awaited:
            for place in self._places(way):
                run.trail(place).search[RESUME] = run.size
            self._runs.let_go(ranges, row, slot, way)
            return True
        self._runs.give_up(way, int(self._output.state.directions.mode[way]))
        return False

    def _attend_close(self, current: Replay, slot: int) -> None:
        """The last chance of runs and waiting frames before the connection's last row."""
        ranges, row = current.ranges, current.cursor
        known = self._output.state.connections
        client = int(known.client_side[slot])
        for side in (client, 1 - client):
            way = 2 * slot + side
            if way in self._runs and self._runs[way].mode is None:
                if self._finish_run(ranges, row, slot, way):
                    return
                self._output.state.directions.mode[way] = OPAQUE
        if (
            known.protocol[slot] == UNDECIDED
            and self._output.state.directions.is_seen[2 * slot : 2 * slot + 2].any()
        ):
            known.protocol[slot] = UNKNOWN
        self._roles.settle(slot, int(ranges.release_packet[row]))
        known.is_slow[slot] = 0
