"""The framing of a capture: the splitting kernel, and all that is too rare for it.

The kernel (`protocols.framing`) returns where it cannot go on: first bytes of a connection that are
not plainly a frame, a search for the next frame, frames that wait for the role. This module decides
and lets the kernel go on. All decisions depend on the ranges alone, never on how they were grouped.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import callback
from dissector.limits import (
    FRAME_BLOCK_ROWS,
    MAX_FRAME_BYTES,
    MAX_HEAD_BYTES,
    MAX_ROLE_WAIT_FRAMES,
    NULL,
    RESYNC_HOLD_BYTES,
)
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import COLUMN_NUMBER, new_frame_columns
from dissector.protocols.framing import Callbacks, split
from dissector.protocols.framing_state import (
    ARENA_FULL,
    ATTENTION,
    CHAIN,
    COUNTER_ARENA_USED,
    COUNTER_ARENA_WANTED,
    COUNTER_CURSOR,
    COUNTER_FRAME_LIMIT,
    COUNTER_FRAME_NO,
    COUNTER_POSITION,
    DONE,
    FULL,
    HEAD,
    HTTP,
    OPAQUE,
    ROLE_BY_FIRST_SEEN,
    ROLE_BY_PORT,
    ROLE_DECIDED,
    ROLE_WAIT,
    SEARCH,
    SLOTS_FULL,
    TLS,
    UNDECIDED,
    UNKNOWN,
    grown_slots,
    new_state,
)
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE, FrameBlock, Specs
from dissector.protocols.recognition import (
    IS_HTTP,
    IS_PROXY_HEADER,
    IS_TLS,
    look,
    server_name,
)
from dissector.protocols.resync import Chain, find_chain
from dissector.protocols.runs import Piece, Replay, Run, replay_of
from dissector.protocols.slots import compact_arena, find_slot, give_back_slots
from dissector.stream.columns import CLOSE, DATA, GAP_CUT, GAP_LOST, RangeColumns

ARENA_BYTES = 8 << 20
SLOTS = 1 << 10
RELEASE = COLUMN_NUMBER["release_packet"]
EMPTY = np.empty(0, np.uint8)

Sink = Callable[[FrameBlock], None]


class WaitingFrame(NamedTuple):
    """A frame whose direction is not known yet: its columns and its bytes."""

    values: Int64Array
    data: bytes


class FramingOptions(NamedTuple):
    """forced: protocol place by port (-d), any: place for every connection (--protocol)."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    forced: Mapping[int, int] = {}
    only: int | None = None


class Notice(NamedTuple):
    """A notice of the framing, None where not known."""

    kind: int
    ts_ns: int
    connection_id: int
    side: int
    packet: int
    stream_offset: int
    bytes: int
    value: int


class Framing:
    """Turns blocks of ranges into blocks of frames.

    Args:
        specs: the protocols, in order of recognition.
        ports_of: (connection id) -> ports of side 0 and side 1.
        sink: takes each block of frames while its bytes are valid.
    """

    def __init__(
        self,
        specs: Specs,
        ports_of: Callable[[int], tuple[int, int]],
        sink: Sink,
        options: FramingOptions,
    ) -> None:
        self._specs = specs
        self._ports_of = ports_of
        self._sink = sink
        self._options = options
        self._calls = Callbacks(
            tuple(callback(CHECK_SIGNATURE, spec.check) for spec in specs),
            tuple(callback(SPAN_SIGNATURE, spec.one_way) for spec in specs),
            tuple(callback(SPAN_SIGNATURE, spec.announced_limit) for spec in specs),
        )
        self._prove = tuple(callback(SPAN_SIGNATURE, spec.prove) for spec in specs)
        self.state = new_state(SLOTS, ARENA_BYTES, 8)
        self.state.counters[COUNTER_FRAME_LIMIT] = options.max_frame_bytes
        self._matrix, self._frames = new_frame_columns(FRAME_BLOCK_ROWS)
        self._rows = 0
        self._sources: tuple[ByteArray, ByteArray, ByteArray] = (EMPTY, EMPTY, EMPTY)
        self._replays: list[Replay] = []
        self._runs: dict[int, Run] = {}
        self._waiting: dict[int, list[WaitingFrame]] = {}
        self.notices: list[Notice] = []
        self.proxied: dict[int, str] = {}
        self.server_names: dict[int, str] = {}

    # -- driving the kernel

    def advance(
        self, ranges: RangeColumns, rows: int, sources: tuple[ByteArray, ByteArray, ByteArray]
    ) -> None:
        """Take a block of ranges; frames go to the sink as blocks fill up."""
        self._sources = sources
        main = Replay(ranges, rows, 0, 0)
        while True:
            current = self._replays[-1] if self._replays else main
            status = self._split(current)
            if status == DONE:
                if current is main:
                    return
                self._replays.pop()
            elif status == FULL:
                self.flush()
            elif status == ARENA_FULL:
                self._grow_arena(int(self.state.counters[COUNTER_ARENA_WANTED]))
            elif status == SLOTS_FULL:
                self.state = grown_slots(self.state)
            elif status == ROLE_WAIT:
                self._handle_role()
            elif status == ATTENTION:
                self._attend(current)

    def _split(self, current: Replay) -> int:
        counters = self.state.counters
        counters[COUNTER_CURSOR] = current.cursor
        counters[COUNTER_POSITION] = current.position
        self._rows, status = split(
            self.state,
            current.ranges,
            current.rows,
            (*self._sources, self.state.arena),
            self._frames,
            self._rows,
            self._calls,
        )
        current.cursor = int(counters[COUNTER_CURSOR])
        current.position = int(counters[COUNTER_POSITION])
        return int(status)

    def flush(self) -> None:
        """Hand the frames so far to the sink; afterwards no row points into any buffer."""
        if self._rows:
            block = FrameBlock(
                self._matrix, self._frames, self._rows, (*self._sources, self.state.arena)
            )
            self._sink(block)
            self._matrix[:, : self._rows] = NULL
            self._rows = 0
        if self.state.counters[COUNTER_ARENA_USED] > len(self.state.arena) // 2:
            self._compact(len(self.state.arena))

    def release(self, connections: Int64Array) -> None:
        """Forget closed connections whose rows are written."""
        give_back_slots(self.state, connections)

    def _compact(self, size: int) -> None:
        """Move what is still needed to a fresh arena; only between blocks of frames."""
        fresh = np.empty(size, np.uint8)
        used = int(compact_arena(self.state, fresh))
        for replay in self._replays:
            fresh[used : used + replay.size] = self.state.arena[
                replay.at : replay.at + replay.size
            ]
            replay.move(used)
            used += replay.size
        self.state.counters[COUNTER_ARENA_USED] = used
        self.state = self.state._replace(arena=fresh)

    def _grow_arena(self, wanted: int) -> None:
        self.flush()
        used = int(self.state.counters[COUNTER_ARENA_USED])
        size = len(self.state.arena)
        if used + wanted > size // 2:
            while used + wanted > size // 2:
                size *= 2
            self._compact(max(size, ARENA_BYTES))

    def pending_bytes(self) -> int:
        """Bytes that the framing holds for unfinished frames and searches."""
        return int(self.state.counters[COUNTER_ARENA_USED]) + sum(
            len(run.data) for run in self._runs.values()
        )

    # -- the slow path

    def _way(self, ranges: RangeColumns, row: int) -> tuple[int, int]:
        slot = int(find_slot(self.state, ranges.connection[row]))
        return slot, 2 * slot + int(ranges.side[row])

    def _attend(self, current: Replay) -> None:
        """Handle the range at the cursor that the kernel does not."""
        ranges, row = current.ranges, current.cursor
        slot, way = self._way(ranges, row)
        kind = int(ranges.kind[row])
        if kind == DATA:
            self._attend_data(current, slot, way)
        elif kind in (GAP_LOST, GAP_CUT):
            self._attend_gap(current, slot, way)
        elif kind == CLOSE:
            self._attend_close(current, slot)
        else:
            raise AssertionError(f"range kind {kind} needs no attention")

    def _note(
        self, code: str, ranges: RangeColumns, row: int, offset: int, value: int
    ) -> None:
        self.notices.append(
            Notice(
                NOTICE_NUMBER[code],
                int(ranges.ts_ns[row]),
                int(ranges.connection[row]),
                int(ranges.side[row]),
                int(ranges.packet[row]),
                offset,
                value,
                value,
            )
        )

    def _run(self, slot: int, way: int) -> Run:
        run = self._runs.get(way)
        if run is None:
            run = self._runs[way] = Run()
            self.state.connections.is_slow[slot] = 1
        return run

    def _attend_data(self, current: Replay, slot: int, way: int) -> None:
        state = self.state
        ways = state.directions
        ranges, row = current.ranges, current.cursor
        if ways.mode[way] == CHAIN:
            self._break_chain(current, slot, way)
        run = self._run(slot, way)
        position = current.position
        start = int(ranges.offset[row]) + position
        size = int(ranges.length[row]) - position
        sources = (*self._sources, state.arena)
        data = sources[int(ranges.source[row])][start : start + size]
        offset = int(ranges.stream_offset[row]) + position
        if not run.pieces and ways.mode[way] == HEAD:
            run.at_start = offset == 0
            run.is_known_start = offset == 0 and bool(state.connections.is_from_syn[slot])
        flags = int(ranges.flags[row]) if position == 0 else int(ranges.flags[row]) & ~2
        run.add(
            Piece(offset, size, int(ranges.packet[row]), int(ranges.ts_ns[row]), flags),
            data.tobytes(),
        )
        current.cursor += 1
        current.position = 0
        self._look_for_frames(ranges, row, slot, way, is_final=False)

    def _break_chain(self, current: Replay, slot: int, way: int) -> None:
        """A header that cannot be one: what is gathered of it and what follows is searched."""
        ways = self.state.directions
        ranges, row = current.ranges, current.cursor
        have = int(ways.have[way])
        offset = int(ranges.stream_offset[row]) + current.position - have
        self._note("desync", ranges, row, offset, have)
        ways.mode[way] = SEARCH
        ways.have[way] = 0
        ways.total[way] = 0
        run = self._run(slot, way)
        # The first byte is known to start no frame.
        run.resume = 1
        if have:
            at = int(ways.arena_at[way])
            run.add(
                Piece(offset, have, int(ways.first_packet[way]), int(ways.first_ts[way]), 0),
                self.state.arena[at : at + have].tobytes(),
            )

    def _look_for_frames(
        self, ranges: RangeColumns, row: int, slot: int, way: int, is_final: bool
    ) -> bool:
        """Recognise or search the run of a direction; True if its frames were found."""
        known = self.state.connections
        if known.protocol[slot] == UNDECIDED:
            self._recognise(ranges, row, slot, way)
        run = self._runs.get(way)
        if run is None:
            return False
        if known.protocol[slot] >= len(self._specs):
            self._give_up(slot, way, OPAQUE)
            return False
        places = (
            range(len(self._specs))
            if known.protocol[slot] == UNDECIDED
            else (int(known.protocol[slot]),)
        )
        chain, place = self._search(run, way, places, is_final)
        if chain.offset >= 0:
            self._accept(ranges, row, slot, way, place, chain)
            return True
        if not is_final:
            self._bound(ranges, row, slot, way, chain)
        return False

    def _direction(self, slot: int, way: int) -> int:
        known = self.state.connections
        if known.role[slot] != ROLE_DECIDED:
            return 2
        return 0 if known.client_side[slot] == (way & 1) else 1

    def _search(
        self, run: Run, way: int, places: "range | tuple[int, ...]", is_final: bool
    ) -> tuple[Chain, int]:
        """The first protocol's chain in a run, or how far the run is searched."""
        data = run.array()
        edges = run.edges()
        best = Chain(-1, len(data), 0)
        for place in places:
            if run.is_known_start and self.state.connections.protocol[way >> 1] == UNDECIDED:
                # Behind a SYN a broker protocol starts with a frame: no search, a strict header.
                total = self._calls.check[place](
                    data, 0, len(data), 2, self._options.max_frame_bytes, 1
                )
                found = Chain(0 if total > 0 else -1, 0 if total == 0 else len(data), 0)
            else:
                found = Chain(
                    *find_chain(
                        data,
                        run.resume,
                        len(data),
                        edges,
                        self._direction(way >> 1, way),
                        int(self.state.directions.limit[way]),
                        self._calls.check,
                        self._prove,
                        place,
                        int(is_final),
                    )
                )
            if found.offset >= 0:
                return found, place
            if found.resume < best.resume:
                best = found
        return best, -1

    def _recognise(self, ranges: RangeColumns, row: int, slot: int, way: int) -> None:
        """Decide a connection's protocol where options, TLS, HTTP or a PROXY header decide it."""
        known = self.state.connections
        forced = self._forced(int(known.connection_id[slot]))
        if forced is not None:
            known.protocol[slot] = forced
        run = self._runs[way]
        while run.pieces:
            head = look(bytes(run.data[:4096]), run.at_start)
            if head.verdict == IS_PROXY_HEADER:
                if head.client_ip:
                    self.proxied[int(known.connection_id[slot])] = head.client_ip
                was_known = run.is_known_start
                run.drop(head.header_bytes)
                run.at_start = True
                run.is_known_start = was_known
                continue
            if forced is None and head.verdict in (IS_TLS, IS_HTTP):
                name = server_name(bytes(run.data[:4096])) if head.verdict == IS_TLS else None
                if name:
                    self.server_names[int(known.connection_id[slot])] = name
                known.protocol[slot] = TLS if head.verdict == IS_TLS else HTTP
            return

    def _forced(self, connection: int) -> int | None:
        for port in self._ports_of(connection):
            if port in self._options.forced:
                return self._options.forced[port]
        return self._options.only

    def _is_hinted(self, connection: int) -> bool:
        ports = self._ports_of(connection)
        return any(port in spec.ports for spec in self._specs for port in ports)

    def _give_up(self, slot: int, way: int, mode: int) -> None:
        """Count a direction's held bytes as skipped and stop looking (OPAQUE) or look on."""
        run = self._runs.pop(way, None)
        if run is not None:
            self.state.directions.skipped[way] += len(run.data)
        self.state.directions.mode[way] = mode
        if (way ^ 1) not in self._runs and not self.state.connections.waiting[slot]:
            self.state.connections.is_slow[slot] = 0

    def _bound(
        self, ranges: RangeColumns, row: int, slot: int, way: int, chain: Chain
    ) -> None:
        """Keep a run within its bound: drop what can hold no frame, or give the direction up."""
        known = self.state.connections
        ways = self.state.directions
        run = self._runs[way]
        run.resume = chain.resume
        connection = int(known.connection_id[slot])
        is_open = known.protocol[slot] == UNDECIDED
        refused = run.is_known_start and is_open and chain.resume >= len(run.data) > 32
        looked_at = int(ways.skipped[way]) + len(run.data)
        if refused or (is_open and looked_at > MAX_HEAD_BYTES and not self._is_hinted(connection)):
            self._give_up(slot, way, OPAQUE)
            other = way ^ 1
            if ways.mode[other] == OPAQUE or not ways.is_seen[other] or refused:
                self._note("not_recognised", ranges, row, NULL, looked_at)
                known.protocol[slot] = UNKNOWN
                self._give_up(slot, other, OPAQUE)
            return
        if len(run.data) <= RESYNC_HOLD_BYTES:
            return
        if chain.frames == 0:
            ways.skipped[way] += chain.resume
            run.drop(chain.resume)
        elif len(run.data) - chain.resume > int(ways.limit[way]) + RESYNC_HOLD_BYTES:
            ways.skipped[way] += chain.resume + 1
            run.drop(chain.resume + 1)

    def _accept(
        self, ranges: RangeColumns, row: int, slot: int, way: int, place: int, chain: Chain
    ) -> None:
        """Frames start at an offset of the run: let the kernel take it from there."""
        state = self.state
        ways = state.directions
        run = self._runs.pop(way)
        skipped = int(ways.skipped[way]) + chain.offset
        run.drop(chain.offset)
        if skipped:
            code = "midstream_start" if ways.is_first[way] else "resync"
            self._note(code, ranges, row, run.pieces[0].stream_offset, skipped)
        ways.skipped[way] = 0
        ways.mode[way] = CHAIN
        ways.verify[way] = 1
        was_undecided = state.connections.protocol[slot] == UNDECIDED
        state.connections.protocol[slot] = place
        if (way ^ 1) not in self._runs and not state.connections.waiting[slot]:
            state.connections.is_slow[slot] = 0
        self._replay(run, int(state.connections.connection_id[slot]), way, ranges, row)
        other = way ^ 1
        if was_undecided and ways.mode[other] == OPAQUE:
            ways.mode[other] = SEARCH
        if was_undecided and other in self._runs:
            self._look_for_frames(ranges, row, slot, other, is_final=False)

    def _replay(
        self, run: Run, connection: int, way: int, ranges: RangeColumns, row: int
    ) -> None:
        size = len(run.data)
        used = int(self.state.counters[COUNTER_ARENA_USED])
        if used + size > len(self.state.arena):
            self._grow_arena(size)
            used = int(self.state.counters[COUNTER_ARENA_USED])
        self.state.arena[used : used + size] = np.frombuffer(bytes(run.data), np.uint8)
        self.state.counters[COUNTER_ARENA_USED] = used + size
        release = int(ranges.release_packet[row])
        self._replays.append(replay_of(run, connection, way & 1, used, release))

    def _attend_gap(self, current: Replay, slot: int, way: int) -> None:
        """A gap ends a run: its best chain is taken, or its bytes are skipped."""
        ranges, row = current.ranges, current.cursor
        known = self.state.connections
        ways = self.state.directions
        if way in self._runs:
            if self._look_for_frames(ranges, row, slot, way, is_final=True):
                return  # the run is replayed first, then the gap comes again, in a chain
            if ways.mode[way] != OPAQUE:
                self._give_up(slot, way, int(ways.mode[way]))
        if known.protocol[slot] == UNDECIDED or ways.mode[way] == OPAQUE:
            current.cursor += 1
            current.position = 0
            return
        # The kernel's own gap code turns a chain without an unfinished frame into a search.
        ways.mode[way] = CHAIN
        ways.have[way] = 0
        ways.skip[way] = 0

    def _attend_close(self, current: Replay, slot: int) -> None:
        """The last chance of runs and waiting frames before the connection's last row."""
        ranges, row = current.ranges, current.cursor
        known = self.state.connections
        client = int(known.client_side[slot])
        for side in (client, 1 - client):
            way = 2 * slot + side
            if way in self._runs:
                if self._look_for_frames(ranges, row, slot, way, is_final=True):
                    return
                self._give_up(slot, way, OPAQUE)
        if known.protocol[slot] == UNDECIDED and self.state.directions.is_seen[
            2 * slot : 2 * slot + 2
        ].any():
            known.protocol[slot] = UNKNOWN
        if known.waiting[slot]:
            self._settle_by_port(slot)
            self._release_waiting(slot, int(ranges.release_packet[row]))
        known.is_slow[slot] = 0

    # -- the role of a connection

    def _handle_role(self) -> None:
        """The last row has no direction yet, or decided it: hold it back, or let all out."""
        row = self._rows - 1
        connection = int(self._frames.connection_id[row])
        slot = int(find_slot(self.state, connection))
        known = self.state.connections
        values = self._matrix[:, row].copy()
        if known.role[slot] == ROLE_DECIDED:
            if known.is_from_syn[slot] and known.role_source[slot]:
                self._note_row("role_flipped", row)
            if not known.waiting[slot]:
                return
            data = self._row_data(row)
            self._unwrite(row)
            waiting = self._waiting.setdefault(slot, [])
            waiting.append(WaitingFrame(values, data))
            self._release_waiting(slot, int(values[RELEASE]))
            return
        waiting = self._waiting.setdefault(slot, [])
        waiting.append(WaitingFrame(values, self._row_data(row)))
        self._unwrite(row)
        known.waiting[slot] = len(waiting)
        known.is_slow[slot] = 1
        if len(waiting) >= MAX_ROLE_WAIT_FRAMES:
            self._settle_by_port(slot)
            self._release_waiting(slot, int(values[RELEASE]))

    def _note_row(self, code: str, row: int) -> None:
        frames = self._frames
        self.notices.append(
            Notice(
                NOTICE_NUMBER[code],
                int(frames.last_ts_ns[row]),
                int(frames.connection_id[row]),
                int(frames.side[row]),
                int(frames.last_packet[row]),
                int(frames.stream_offset[row]),
                NULL,
                NULL,
            )
        )

    def _row_data(self, row: int) -> bytes:
        sources = (*self._sources, self.state.arena)
        at = int(self._frames.data_offset[row])
        size = int(self._frames.data_bytes[row])
        return sources[int(self._frames.source[row])][at : at + size].tobytes()

    def _unwrite(self, row: int) -> None:
        self._matrix[:, row] = NULL
        self._rows = row
        self.state.counters[COUNTER_FRAME_NO] -= 1

    def _settle_by_port(self, slot: int) -> None:
        """Without a one-way command the SYN decides, else a protocol's port, else who spoke."""
        known = self.state.connections
        if known.is_from_syn[slot]:
            known.role[slot] = ROLE_DECIDED
            return
        spec = self._specs[int(known.protocol[slot])]
        ports = self._ports_of(int(known.connection_id[slot]))
        hinted = [side for side in (0, 1) if ports[side] in spec.ports]
        if len(hinted) == 1:
            known.client_side[slot] = 1 - hinted[0]
            known.role[slot] = ROLE_DECIDED
            known.role_source[slot] = ROLE_BY_PORT
        else:
            known.role_source[slot] = ROLE_BY_FIRST_SEEN

    def _release_waiting(self, slot: int, release_packet: int) -> None:
        """Write the waiting rows of a connection, now with their direction."""
        known = self.state.connections
        waiting = self._waiting.pop(slot, [])
        known.waiting[slot] = 0
        if not any(2 * slot + side in self._runs for side in (0, 1)):
            known.is_slow[slot] = 0
        for frame in waiting:
            if self._rows >= FRAME_BLOCK_ROWS - 4:
                self.flush()
            size = len(frame.data)
            used = int(self.state.counters[COUNTER_ARENA_USED])
            if used + size > len(self.state.arena):
                self._grow_arena(size)
                used = int(self.state.counters[COUNTER_ARENA_USED])
            self.state.arena[used : used + size] = np.frombuffer(frame.data, np.uint8)
            self.state.counters[COUNTER_ARENA_USED] = used + size
            self.state.counters[COUNTER_FRAME_NO] += 1
            row = self._rows
            self._matrix[:, row] = frame.values
            columns = self._frames
            side = int(columns.side[row])
            columns.direction[row] = self._direction(slot, 2 * slot + side)
            columns.frame_no[row] = self.state.counters[COUNTER_FRAME_NO]
            columns.release_packet[row] = release_packet
            columns.source[row] = 3
            columns.data_offset[row] = used
            self._rows = row + 1

