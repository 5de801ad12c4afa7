"""The framing of a capture: the splitting kernel, and all that is too rare for it.

The kernel (`protocols.framing`) returns where it cannot go on: first bytes of a connection that are
not plainly a frame, a search for the next frame, frames that wait for the role. This module decides
and lets the kernel go on. All decisions depend on the ranges alone, never on how they were grouped.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.findings import Finding
from dissector.jit import callback
from dissector.limits import MAX_FRAME_BYTES, MAX_HEAD_BYTES, NULL, RESYNC_HOLD_BYTES
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.emission import Callbacks
from dissector.protocols.framing import split
from dissector.protocols.framing_state import (
    ARENA_FULL,
    ATTENTION,
    CHAIN,
    COUNTER_ARENA_USED,
    COUNTER_ARENA_WANTED,
    COUNTER_CURSOR,
    COUNTER_FRAME_LIMIT,
    COUNTER_POSITION,
    DONE,
    FULL,
    HEAD,
    HTTP,
    OPAQUE,
    ROLE_WAIT,
    SEARCH,
    SLOTS_FULL,
    TLS,
    UNDECIDED,
    UNKNOWN,
    FramingState,
    grown_slots,
)
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE, Specs
from dissector.protocols.output import FrameOutput, Sink
from dissector.protocols.recognition import IS_HTTP, IS_PROXY_HEADER, IS_TLS, look, server_name
from dissector.protocols.resync import Chain, find_chain
from dissector.protocols.roles import Roles
from dissector.protocols.runs import Piece, Replay, Run, replay_of
from dissector.protocols.slots import find_slot, give_back_slots
from dissector.stream.columns import CLOSE, DATA, GAP_CUT, GAP_LOST, STARTS_PACKET, RangeColumns

HEAD_BYTES = 4096  # of a direction, looked at for TLS, HTTP and PROXY headers
REFUSED_BYTES = 32  # behind a SYN this many bytes without a frame header are no broker protocol


class FramingOptions(NamedTuple):
    """forced: protocol place by port (-d), any: place for every connection (--protocol)."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    forced: Mapping[int, int] = {}
    only: int | None = None


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
        self._options = options
        self._calls = Callbacks(
            tuple(callback(CHECK_SIGNATURE, spec.check) for spec in specs),
            tuple(callback(SPAN_SIGNATURE, spec.one_way) for spec in specs),
            tuple(callback(SPAN_SIGNATURE, spec.announced_limit) for spec in specs),
        )
        self._prove = tuple(callback(SPAN_SIGNATURE, spec.prove) for spec in specs)
        self._output = FrameOutput(sink)
        self._output.state.counters[COUNTER_FRAME_LIMIT] = options.max_frame_bytes
        self.findings: list[Finding] = []
        self._roles = Roles(self._output, specs, ports_of, self.findings)
        self._runs: dict[int, Run] = {}
        self.proxied: dict[int, str] = {}
        self.server_names: dict[int, str] = {}

    @property
    def state(self) -> FramingState:
        """What is known of connections and directions, by slot."""
        return self._output.state

    def slot_of(self, connection: int) -> int:
        """The slot of a connection, or -1."""
        return int(find_slot(self._output.state, connection))

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
                self._output.grow_arena(int(self._output.state.counters[COUNTER_ARENA_WANTED]))
            elif status == SLOTS_FULL:
                self._output.state = grown_slots(self._output.state)
            elif status == ROLE_WAIT:
                self._roles.take_last_row()
            elif status == ATTENTION:
                self._attend(current)

    def _split(self, current: Replay) -> int:
        counters = self._output.state.counters
        counters[COUNTER_CURSOR] = current.cursor
        counters[COUNTER_POSITION] = current.position
        self._output.rows, status = split(
            self._output.state,
            current.ranges,
            current.rows,
            self._output.all_sources(),
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
        return int(self._output.state.counters[COUNTER_ARENA_USED]) + sum(
            len(run.data) for run in self._runs.values()
        )

    # -- the slow path

    def _way(self, ranges: RangeColumns, row: int) -> tuple[int, int]:
        slot = int(find_slot(self._output.state, ranges.connection[row]))
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

    def _note(self, code: str, ranges: RangeColumns, row: int, offset: int, value: int) -> None:
        slot, way = self._way(ranges, row)
        self.findings.append(
            Finding(
                NOTICE_NUMBER[code],
                ts_ns=int(ranges.ts_ns[row]),
                connection_id=int(ranges.connection[row]),
                direction=self._roles.direction(slot, way & 1),
                packet=int(ranges.packet[row]),
                stream_offset=offset,
                bytes=value,
                value=value,
            )
        )

    def _run(self, slot: int, way: int) -> Run:
        run = self._runs.get(way)
        if run is None:
            run = self._runs[way] = Run()
            self._output.state.connections.is_slow[slot] = 1
        return run

    def _attend_data(self, current: Replay, slot: int, way: int) -> None:
        state = self._output.state
        ways = state.directions
        ranges, row = current.ranges, current.cursor
        if ways.mode[way] == CHAIN:
            self._break_chain(current, slot, way)
        run = self._run(slot, way)
        position = current.position
        start = int(ranges.offset[row]) + position
        size = int(ranges.length[row]) - position
        sources = self._output.all_sources()
        data = sources[int(ranges.source[row])][start : start + size]
        offset = int(ranges.stream_offset[row]) + position
        if not run.pieces and ways.mode[way] == HEAD:
            run.at_start = offset == 0
            run.is_known_start = offset == 0 and bool(state.connections.is_from_syn[slot])
        flags = int(ranges.flags[row]) if position == 0 else int(ranges.flags[row]) & ~STARTS_PACKET
        run.add(
            Piece(offset, size, int(ranges.packet[row]), int(ranges.ts_ns[row]), flags),
            data.tobytes(),
        )
        current.cursor += 1
        current.position = 0
        self._look_for_frames(ranges, row, slot, way, is_final=False)

    def _break_chain(self, current: Replay, slot: int, way: int) -> None:
        """A header that cannot be one: what is gathered of it and what follows is searched."""
        ways = self._output.state.directions
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
                self._output.state.arena[at : at + have].tobytes(),
            )

    def _look_for_frames(
        self, ranges: RangeColumns, row: int, slot: int, way: int, is_final: bool
    ) -> bool:
        """Recognise or search the run of a direction; True if its frames were found."""
        known = self._output.state.connections
        if known.protocol[slot] == UNDECIDED and self._recognise(slot, way, is_final):
            return False
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

    def _search(
        self, run: Run, way: int, places: "range | tuple[int, ...]", is_final: bool
    ) -> tuple[Chain, int]:
        """The first protocol's chain in a run, or how far the run is searched."""
        data = run.array()
        edges = run.edges()
        best = Chain(-1, len(data), 0)
        for place in places:
            found = self._chain_in(data, run, edges, way, place, is_final)
            if found.offset >= 0:
                return found, place
            if found.resume < best.resume:
                best = found
        return best, -1

    def _chain_in(
        self,
        data: ByteArray,
        run: Run,
        edges: Int64Array,
        way: int,
        place: int,
        is_final: bool,
    ) -> Chain:
        """One protocol's chain in a run."""
        state = self._output.state
        limit = int(state.directions.limit[way])
        if run.is_known_start:
            # Behind a SYN a broker protocol starts with a frame: a strict header is proof enough.
            total = self._calls.check[place](data, 0, len(data), 2, limit, 1)
            if total > 0:
                return Chain(0, 0, 1)
            if state.connections.protocol[way >> 1] == UNDECIDED:
                return Chain(-1, 0 if total == 0 else len(data), 0)
        found = find_chain(
            data,
            run.resume,
            len(data),
            edges,
            self._roles.direction(way >> 1, way & 1),
            limit,
            self._calls.check,
            self._prove,
            place,
            int(is_final),
        )
        return Chain(*map(int, found))

    def _recognise(self, slot: int, way: int, is_final: bool) -> bool:
        """Decide a connection's protocol where options, TLS, HTTP or a PROXY header decide it.

        Returns:
            Whether the head of the direction must be longer to be judged.
        """
        known = self._output.state.connections
        forced = self._forced(int(known.connection_id[slot]))
        if forced is not None:
            known.protocol[slot] = forced
        run = self._runs[way]
        while run.pieces:
            head = look(bytes(run.data[:HEAD_BYTES]), run.at_start)
            if head.verdict == IS_PROXY_HEADER:
                if head.client_ip:
                    self.proxied[int(known.connection_id[slot])] = head.client_ip
                was_known = run.is_known_start
                run.drop(head.header_bytes)
                run.at_start = True
                run.is_known_start = was_known
                continue
            if forced is None and head.verdict in (IS_TLS, IS_HTTP):
                if len(run.data) < min(head.header_bytes, HEAD_BYTES) and not is_final:
                    return True  # the rest of the ClientHello may name the server
                name = server_name(bytes(run.data[:HEAD_BYTES])) if head.verdict == IS_TLS else None
                if name:
                    self.server_names[int(known.connection_id[slot])] = name
                known.protocol[slot] = TLS if head.verdict == IS_TLS else HTTP
            return False
        return False

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
            self._output.state.directions.skipped[way] += len(run.data)
        self._output.state.directions.mode[way] = mode
        if (way ^ 1) not in self._runs:
            self._output.state.connections.is_slow[slot] = 0

    def _bound(self, ranges: RangeColumns, row: int, slot: int, way: int, chain: Chain) -> None:
        """Keep a run within its bound: drop what can hold no frame, or give the direction up."""
        known = self._output.state.connections
        ways = self._output.state.directions
        run = self._runs[way]
        run.resume = chain.resume
        connection = int(known.connection_id[slot])
        is_open = known.protocol[slot] == UNDECIDED
        refused = run.is_known_start and is_open and chain.resume >= len(run.data) > REFUSED_BYTES
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
        """Frames start at an offset of the run: let the kernel take it from there.

        If that decides the protocol, the run of the other direction may hold frames as well: both
        go through the kernel together, by the packets that brought them.
        """
        known = self._output.state.connections
        ways = self._output.state.directions
        was_undecided = known.protocol[slot] == UNDECIDED
        known.protocol[slot] = place
        found = [(way, self._take_run(ranges, row, way, chain))]
        other = way ^ 1
        if was_undecided and ways.mode[other] == OPAQUE:
            ways.mode[other] = SEARCH
        if was_undecided and other in self._runs:
            chain, _ = self._search(self._runs[other], other, (place,), False)
            if chain.offset >= 0:
                found.append((other, self._take_run(ranges, row, other, chain)))
            else:
                self._runs[other].resume = chain.resume
        known.is_slow[slot] = int(other in self._runs)
        at = self._output.keep(b"".join(bytes(run.data) for _, run in found))
        self._output.replays.append(
            replay_of(found, int(known.connection_id[slot]), at, int(ranges.release_packet[row]))
        )

    def _take_run(self, ranges: RangeColumns, row: int, way: int, chain: Chain) -> Run:
        """The run of a direction without what precedes its chain; the direction is in CHAIN."""
        ways = self._output.state.directions
        run = self._runs.pop(way)
        skipped = int(ways.skipped[way]) + chain.offset
        run.drop(chain.offset)
        if skipped:
            code = "midstream_start" if ways.is_first[way] else "resync"
            self._note(code, ranges, row, run.pieces[0].stream_offset, skipped)
        ways.skipped[way] = 0
        ways.mode[way] = CHAIN
        ways.verify[way] = 1
        return run

    def _attend_gap(self, current: Replay, slot: int, way: int) -> None:
        """A gap ends a run: its best chain is taken, or its bytes are skipped."""
        ranges, row = current.ranges, current.cursor
        known = self._output.state.connections
        ways = self._output.state.directions
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
        known = self._output.state.connections
        client = int(known.client_side[slot])
        for side in (client, 1 - client):
            way = 2 * slot + side
            if way in self._runs:
                if self._look_for_frames(ranges, row, slot, way, is_final=True):
                    return
                self._give_up(slot, way, OPAQUE)
        if (
            known.protocol[slot] == UNDECIDED
            and self._output.state.directions.is_seen[2 * slot : 2 * slot + 2].any()
        ):
            known.protocol[slot] = UNKNOWN
        self._roles.settle(slot, int(ranges.release_packet[row]))
        known.is_slow[slot] = 0
