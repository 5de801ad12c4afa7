"""What becomes of the bytes of a direction whose frames are not known.

They are added to a run (`unsynchronised`), which is recognised or searched until a chain of frames
can be believed; then the run goes through the splitting kernel once more, from the chain on.
"""

from typing import Final

from dissector.jit import callback, kept
from dissector.limits import MAX_HEAD_BYTES, MAX_RUN_BYTES, MAX_SEARCH_BYTES, NULL, REFUSED_BYTES
from dissector.protocols.framing.block_output import FrameOutput
from dissector.protocols.framing.chains import Chains
from dissector.protocols.framing.detection import Detection
from dissector.protocols.framing.first_bytes import new_records
from dissector.protocols.framing.gathering import (
    NO_RUN,
    SEARCHED,
    WAITS,
    Side,
    is_worth_dropping,
    waits_too_long,
)
from dissector.protocols.framing.openings import replay_of_openings
from dissector.protocols.framing.replays import DUE, PIECE_BYTES, Piece, Replay
from dissector.protocols.framing.resync import (
    AT,
    RESUME,
    SURE_FRAMES,
    find_chain,
    has_some,
    is_believed,
    is_confirmed_by_packets,
)
from dissector.protocols.framing.roles import Roles
from dissector.protocols.framing.state import (
    CHAIN,
    CONFIRMED,
    COUNTER_OPENING_BYTES,
    FOUND,
    HEAD,
    NO_OPENING,
    OPAQUE,
    SEARCH,
    UNDECIDED,
    UNKNOWN,
    WAITING,
    ConnectionState,
    FlowState,
)
from dissector.protocols.framing.unsynchronised import (
    NO_RECORDS,
    NOTHING_SEARCHED,
    Run,
    UnsynchronisedFlows,
    is_waited_for,
)
from dissector.protocols.interface import CHECK_SIGNATURE, HEADER_WINDOW, SPAN_SIGNATURE, Specs
from dissector.stream.columns import CLOSE, DATA, FIN, GAP_CUT, GAP_LOST, RangeColumns

_WAITS: Final = -2  # the next bytes tell whether the connection begins with a frame


class Searches:
    """Directions without a chain, and how each of them gets one.

    Args:
        output: where frames go, with the state of the splitting kernel.
    """

    def __init__(
        self, specs: Specs, output: FrameOutput, detection: Detection, roles: Roles
    ) -> None:
        self._specs = specs
        self._check = tuple(callback(CHECK_SIGNATURE, spec.check) for spec in specs)
        self._output = output
        self._detection = detection
        self._roles = roles
        self._runs = UnsynchronisedFlows(output)
        prove = tuple(callback(SPAN_SIGNATURE, spec.prove) for spec in specs)
        judges = kept(self._check), kept(prove)
        self._chains = Chains(self._runs, output, roles, judges, len(specs))
        self._most_bytes = MAX_RUN_BYTES

    @property
    def bytes(self) -> int:
        """What all runs hold."""
        return self._runs.size

    @property
    def _flows(self) -> FlowState:
        return self._output.state.flows

    @property
    def _known(self) -> ConnectionState:
        return self._output.state.connections

    def pass_gathered(self, size: int) -> None:
        """The kernel passed ranges that runs had taken before: now they count in the bound."""
        self._runs.size += size

    def attend_range(self, current: Replay) -> None:
        """Handle the range at the cursor, and add to a search what follows in its connection."""
        row = current.cursor
        slot, flow = self._output.stopped_at(current)
        replays = len(self._output.replays)
        self._adopt(slot)
        self._attend(current, slot, flow)
        if self._runs.size > self._most_bytes:
            self._believe_longest(current.ranges, row)
        is_alone = len(self._output.replays) == replays
        if is_alone and current.cursor > row and self._known.is_slow[slot]:
            self._gather(current, row, slot)

    def _adopt(self, slot: int) -> None:
        """Openings of a connection become runs, searched as far as the openings were."""
        opening = self._flows.opening
        is_waiting = [bool(opening[flow] == WAITING) for flow in (2 * slot, 2 * slot + 1)]
        for flow in (2 * slot, 2 * slot + 1):
            if opening[flow] == NO_OPENING:
                continue
            run = self._runs.adopt(slot, flow)
            if run.mode is None:
                run.is_patient = any(is_waiting)
                for protocol in self._chains.protocols(flow):
                    find_chain(run.for_kernel(protocol), self._chains.rule(flow, protocol, 0))

    def _believe_longest(self, ranges: RangeColumns, row: int) -> None:
        """All searches hold too much: the chains of those that hold most go out, or are given up if
        they do not tell their protocol. Runs are sorted once for each eighth of the bound.
        """
        ids, eighth = self._known.connection_id, MAX_RUN_BYTES // 8
        held = {flow: (-run.size, int(ids[flow >> 1])) for flow, run in self._runs.items()}
        for flow in sorted(held, key=lambda flow: (*held[flow], flow)):
            if self._runs.size <= MAX_RUN_BYTES - eighth:
                break
            found = self._chains.protocols_of(flow)
            told = [each for each in found if self._chains.tells(flow, each, 0)]
            if told:
                self._accept(ranges, row, flow >> 1, flow, told[0])
            elif found:
                self._refuse(ranges, row, flow >> 1, flow, self._runs[flow].size)
        self._most_bytes = max(MAX_RUN_BYTES, self._runs.size + eighth)

    def _gather(self, current: Replay, row: int, slot: int) -> None:
        """Add what follows a range to the runs of its connection."""
        # At the bound runs end as they are by then: what may reach it waits for its turn. An
        # opening may become a run before.
        held = self._runs.size + int(self._output.state.counters[COUNTER_OPENING_BYTES])
        most_held = int(current.held_bytes[row]) + self._most_bytes - held
        is_full = True
        while is_full:
            sides = self._side(slot, 2 * slot), self._side(slot, 2 * slot + 1)
            if SEARCHED not in (sides[0].has, sides[1].has):
                return
            row, is_full = self._runs.gather(current, row, slot, sides, most_held)

    def _side(self, slot: int, flow: int) -> Side:
        """A direction as ranges are gathered for it."""
        run, protocols, count = self._runs.get(flow), self._chains.protocols(flow), len(self._specs)
        rule = self._chains.rule(flow, protocols[0], 0)
        if run is not None and run.mode is not None:
            return Side(WAITS, 0, 0, (run.for_kernel(),) * count, rule, NO_RECORDS)
        if run is None or protocols[0] >= count or not self._is_settled(run, slot):
            return Side(NO_RUN, 0, 0, (NOTHING_SEARCHED,) * count, rule, NO_RECORDS)
        if self._known.protocol[slot] == UNDECIDED:
            runs = tuple([run.for_kernel(protocol) for protocol in protocols])
            return Side(SEARCHED, 0, count, runs, rule, run.records)
        (first,) = protocols
        return Side(SEARCHED, first, first + 1, (run.for_kernel(first),) * count, rule, NO_RECORDS)

    def _is_settled(self, run: Run, slot: int) -> bool:
        """Whether more bytes decide nothing, unless they change a chain, or are TLS records."""
        if run.is_known_start and run.at_start:
            return False
        if self._known.protocol[slot] == UNDECIDED:
            return self._detection.is_settled(run)
        return run.is_patient or run.is_hurried

    def _attend(self, current: Replay, slot: int, flow: int) -> None:
        """Handle the range at the cursor that the kernel does not."""
        kind = int(current.ranges.kind[current.cursor])
        if kind == CLOSE:
            self._attend_close(current, slot)
            return
        if kind == DUE:
            self._decide(current, slot, flow)
            return
        run = self._runs.get(flow)
        if run is None and is_waited_for(self._runs.get(flow ^ 1)):
            run = self._runs.wait(slot, flow)
        if run is not None and run.mode is not None:
            self._keep_waiting(current, slot, flow, run)
        elif kind == DATA:
            self._attend_data(current, slot, flow)
        elif kind in (GAP_LOST, GAP_CUT):
            self._attend_gap(current, slot, flow)
        elif kind == FIN:
            self._attend_fin(current, slot, flow)
        else:
            raise AssertionError(f"range kind {kind} needs no attention")

    def _decide(self, current: Replay, slot: int, flow: int) -> None:
        """The turn of a range that was gathered: what its bytes decide."""
        row, run = current.cursor, self._runs[flow]
        self._runs.size += int(current.ranges.length[row]) + PIECE_BYTES
        current.cursor += 1
        if run.mode is None:
            self._look_for_frames(current.ranges, row, slot, flow, is_final=False)
        else:
            self._end_wait(current.ranges, row, slot, flow)

    def _keep_waiting(self, current: Replay, slot: int, flow: int, run: Run) -> None:
        """A direction that waits for the other one's search, but not for ever."""
        row = current.cursor
        self._runs.add_range(current, run)
        if waits_too_long(run.pieces, run.size, int(current.ranges.ts_ns[row])):
            self._end_wait(current.ranges, row, slot, flow)

    def _end_wait(self, ranges: RangeColumns, row: int, slot: int, flow: int) -> None:
        """A direction waited long enough: the other one's chain goes out, or is not waited for."""
        other = flow ^ 1
        protocol = int(self._known.protocol[slot])
        if has_some(self._runs[other].for_kernel(protocol), 1):
            self._accept(ranges, row, slot, other, protocol)
            return
        self._runs[other].is_patient, self._runs[other].is_hurried = False, True
        self._runs.replay(ranges, row, slot, [(flow, self._runs.wake(flow))])

    # -- what happens to a direction without a chain

    def _attend_data(self, current: Replay, slot: int, flow: int) -> None:
        flows = self._flows
        ranges, row = current.ranges, current.cursor
        piece = self._runs.piece_of(current)
        if flow not in self._runs and piece.starts_chain:
            flows.mode[flow] = CHAIN
            flows.verify[flow] = int(not piece.is_judged)
            assert current.pieces is not None, "only what was searched before starts a chain"
            current.pieces.starts_chain[row] = 0
            return
        if flows.mode[flow] == CHAIN:
            self._break_chain(current, slot, flow)
        is_new = flow not in self._runs
        run = self._runs.begin(slot, flow)
        if is_new and flows.mode[flow] == HEAD:
            run.at_start = piece.stream_offset == 0
            is_from_syn = bool(self._known.is_from_syn[slot])
            run.is_known_start = run.at_start and is_from_syn
            run.records = NO_RECORDS if run.is_known_start else new_records()
        self._runs.add_range(current, run, piece)
        self._look_for_frames(ranges, row, slot, flow, is_final=False)

    def _break_chain(self, current: Replay, slot: int, flow: int) -> None:
        """A header that cannot be one: what is gathered of it and what follows is searched."""
        flows = self._flows
        ranges, row = current.ranges, current.cursor
        have = int(flows.have[flow])
        offset = int(ranges.stream_offset[row]) + current.position - have
        self._roles.note("desync", ranges, row, flow, offset, NULL)
        flows.mode[flow] = SEARCH
        flows.have[flow] = 0
        flows.total[flow] = 0
        run = self._runs.begin(slot, flow)
        # The first byte is known to start no frame.
        run.trail(int(self._known.protocol[slot])).search[RESUME] = 1
        if have:
            at = int(flows.arena_at[flow])
            pieces = current.pieces
            order = self._runs.arrivals if pieces is None else int(pieces.order[row])
            packet, ts_ns = int(flows.first_packet[flow]), int(flows.first_ts[flow])
            piece = Piece(offset, have, packet, ts_ns, 0, order)
            run.add(piece, self._output.state.arena[at : at + have])
            self._runs.size += have + PIECE_BYTES

    def _look_for_frames(
        self, ranges: RangeColumns, row: int, slot: int, flow: int, is_final: bool
    ) -> bool:
        """Recognise or search the run of a direction; True if it ended and is replayed."""
        known = self._known
        run = self._runs[flow]
        before = run.held_bytes
        is_open = known.protocol[slot] == UNDECIDED
        needs_more = is_open and self._detection.recognise(known, slot, run, is_final)
        self._runs.size += run.held_bytes - before
        if needs_more:
            return False
        if known.protocol[slot] >= len(self._specs):
            self._runs.give_up(flow, OPAQUE)
            return False
        protocol = self._search(run, flow, int(ranges.ts_ns[row]), is_final)
        if protocol >= 0:
            self._accept(ranges, row, slot, flow, protocol)
            return True
        if is_final or protocol == _WAITS:
            return False
        if run.has_events and not run.is_live:
            # No frame before the gap: the gap is reported, and the other direction ends as well.
            self._runs.abandon(ranges, row, slot, flow)
            return True
        self._bound(ranges, row, slot, flow)
        return False

    def _search(self, run: Run, flow: int, ts_ns: int, is_final: bool) -> int:
        """The first protocol whose chain in a run can be believed; else -1, or _WAITS."""
        limit = int(self._flows.limit[flow])
        is_open = self._known.protocol[flow >> 1] == UNDECIDED
        for protocol in self._chains.protocols(flow):
            begins = run.begins_with_frame(self._check[protocol], protocol, limit, int(is_open))
            if begins > 0:
                return protocol
            if begins == 0 and not is_final and run.size < HEADER_WINDOW:
                return _WAITS
            searched, rule = (
                run.for_kernel(protocol),
                self._chains.rule(flow, protocol, int(is_final)),
            )
            status = find_chain(searched, rule)
            if self._chains.begin_with(run, flow):
                continue
            if is_believed(searched, rule, status, ts_ns):
                run.is_confirmed = is_confirmed_by_packets(searched)
                return protocol
        return -1

    def _bound(self, ranges: RangeColumns, row: int, slot: int, flow: int) -> None:
        """Keep a run within its bound: drop what can hold no frame, or give the direction up."""
        known = self._known
        flows = self._flows
        run, other = self._runs[flow], flow ^ 1
        is_live = run.is_live
        protocols = self._chains.protocols(flow)
        resume = min(int(run.trail(protocol).search[RESUME]) for protocol in protocols)
        is_open = known.protocol[slot] == UNDECIDED
        refused = run.is_known_start and is_open and resume > 0 and run.size > REFUSED_BYTES
        looked_at = int(flows.skipped[flow]) + run.size
        most = MAX_HEAD_BYTES
        if is_open and self._detection.is_hinted(int(known.connection_id[slot])):
            most = MAX_SEARCH_BYTES
        if refused or (is_open and not is_live and looked_at > most):
            if refused:
                self._runs.give_up(other, OPAQUE)
            self._refuse(ranges, row, slot, flow, REFUSED_BYTES if refused else most)
            return
        if not is_live and run.is_patient:
            self._runs.abandon(ranges, row, slot, flow)
            return
        is_worth_it = not is_live or is_worth_dropping(resume, run.size)
        if is_worth_it and not (run.is_known_start and is_open):
            self._runs.drop(flow, run, resume)
        if is_live and not is_open and not run.is_hurried and not run.is_patient:
            run.is_patient = True
            if other not in self._runs and flows.mode[other] != OPAQUE:
                self._runs.wait(slot, other)

    def _refuse(
        self, ranges: RangeColumns, row: int, slot: int, flow: int, looked_for: int
    ) -> None:
        """Look no further for frames of a direction: if there is none of the other one, either, the
        protocol stays unknown.

        Args:
            looked_for: bytes in which none were found.
        """
        flows, other = self._flows, flow ^ 1
        self._runs.give_up(flow, OPAQUE)
        if flows.mode[other] == OPAQUE or not flows.is_seen[other]:
            self._roles.note("not_recognised", ranges, row, flow, NULL, looked_for)
            self._known.protocol[slot] = UNKNOWN
            self._runs.give_up(other, OPAQUE)

    def _accept(self, ranges: RangeColumns, row: int, slot: int, flow: int, protocol: int) -> None:
        """Frames start at an offset of the run: let the kernel take it from there.

        If that decides the protocol, the run of the other direction may hold frames as well: both
        go through the kernel together, as they arrived.
        """
        known, flows = self._known, self._flows
        was_undecided = known.protocol[slot] == UNDECIDED
        known.protocol[slot] = protocol
        found = [(flow, self._end_run(ranges, row, flow, protocol))]
        other = flow ^ 1
        if was_undecided and flows.mode[other] == OPAQUE:
            flows.mode[other] = SEARCH
        if was_undecided and other in self._runs:
            run = self._runs[other]
            is_found = self._search(run, other, int(ranges.ts_ns[row]), False) >= 0
            if is_found or has_some(run.for_kernel(protocol), SURE_FRAMES):
                found.append((other, self._end_run(ranges, row, other, protocol)))
            elif run.is_live:
                self._bound(ranges, row, slot, other)
        self._runs.replay(ranges, row, slot, found)

    def _end_run(self, ranges: RangeColumns, row: int, flow: int, protocol: int) -> Run:
        """The run of a direction without the bytes that precede its chain."""
        flows = self._flows
        run = self._runs[flow]
        self._runs.drop(flow, run, int(run.trail(protocol).search[AT]))
        self._runs.end(flow)
        first = run.piece_at(0).piece
        run.pieces.starts_chain[first] = 1
        flows.mode[flow] = SEARCH
        self._roles.note_start(
            ranges, row, flow, int(run.pieces.stream_offset[first]), run.is_confirmed
        )
        return run

    def replay_openings(self, current: Replay) -> None:
        """Frames were found in openings of a connection, with the range before the cursor."""
        ranges, row, slot = current.ranges, current.cursor - 1, self._output.slot_stopped_at
        flows, begun = self._flows, 2 * slot + int(ranges.side[row])
        for flow in (begun, begun ^ 1):
            if flows.to_note[flow]:
                is_confirmed = bool(flows.to_note[flow] == CONFIRMED)
                self._roles.note_start(
                    ranges, row, flow, int(flows.frame_start[flow]), is_confirmed
                )
                flows.to_note[flow] = 0
        if flows.opening[begun] == FOUND:
            replay = replay_of_openings(self._output, slot, int(ranges.release_packet[row]))
            self._output.replays.append(replay)

    def _attend_gap(self, current: Replay, slot: int, flow: int) -> None:
        """A gap in a run: its chain may go on behind it; else the gap is reported."""
        ranges, row = current.ranges, current.cursor
        known = self._known
        flows = self._flows
        if flow in self._runs:
            self._runs.add_range(current, self._runs[flow])
            self._look_for_frames(ranges, row, slot, flow, is_final=False)
        elif known.protocol[slot] == UNDECIDED or flows.mode[flow] == OPAQUE:
            current.cursor += 1
            current.position = 0
        else:
            # The kernel's own gap code turns a chain without an unfinished frame into a search.
            flows.mode[flow] = CHAIN
            flows.have[flow] = 0
            flows.skip[flow] = 0

    def _attend_fin(self, current: Replay, slot: int, flow: int) -> None:
        """No byte follows in this direction: its search ends, and then the event is reported.

        A chain that does not tell the protocol waits: the other direction may.
        """
        run = self._runs.get(flow)
        if run is not None and run.is_live and self._known.protocol[slot] == UNDECIDED:
            if self._accept_what_tells(current.ranges, current.cursor, slot, flow):
                return
            if run.is_live and not run.is_known_start:
                self._runs.add_range(current, run)
                return
        if run is not None and self._finish_run(current.ranges, current.cursor, slot, flow):
            return
        flows = self._flows
        if flows.mode[flow] != OPAQUE:
            flows.mode[flow] = CHAIN
            flows.have[flow] = 0
            flows.skip[flow] = 0

    def _accept_what_tells(self, ranges: RangeColumns, row: int, slot: int, flow: int) -> bool:
        """Accept a chain of a direction that ends if it tells its protocol; whether one does."""
        protocol = self._chains.told(flow)
        if protocol is not None:
            self._accept(ranges, row, slot, flow, protocol)
        return protocol is not None

    def _finish_run(self, ranges: RangeColumns, row: int, slot: int, flow: int) -> bool:
        """The last chance of a run; True if something of it goes through the kernel first."""
        if self._look_for_frames(ranges, row, slot, flow, is_final=True):
            return True
        run = self._runs.get(flow)
        if run is None:
            return False
        is_awaited = (flow ^ 1) in self._runs and self._runs[flow ^ 1].mode is not None
        if run.has_events or is_awaited:
            for protocol in self._chains.protocols(flow):
                run.trail(protocol).search[RESUME] = run.size
            self._runs.abandon(ranges, row, slot, flow)
            return True
        self._runs.give_up(flow, int(self._flows.mode[flow]))
        return False

    def _attend_close(self, current: Replay, slot: int) -> None:
        """The last chance of runs and waiting frames before the connection's last row."""
        ranges, row = current.ranges, current.cursor
        known = self._known
        client = int(known.client_side[slot])
        flows = (2 * slot + client, 2 * slot + 1 - client)
        if known.protocol[slot] == UNDECIDED and any(
            self._accept_what_tells(ranges, row, slot, flow) for flow in flows
        ):
            return
        for flow in flows:
            if flow in self._runs and self._runs[flow].mode is None:
                if self._finish_run(ranges, row, slot, flow):
                    return
                self._flows.mode[flow] = OPAQUE
        if known.protocol[slot] == UNDECIDED and self._flows.is_seen[2 * slot : 2 * slot + 2].any():
            known.protocol[slot] = UNKNOWN
        self._roles.decide(slot, int(ranges.release_packet[row]))
        known.is_slow[slot] = 0
