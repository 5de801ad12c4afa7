"""Unsynchronised bytes: runs of flows whose frames are not found yet, and flows that wait for them.

A flow is one direction of a connection: 2 * slot + side.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import kept
from dissector.protocols.framing.block_output import FrameOutput
from dissector.protocols.framing.first_bytes import IN_A_ROW, NEXT, follow_records
from dissector.protocols.framing.gathering import NO_RUN, WAITS, Following, Side, gather
from dissector.protocols.framing.openings import drop_first, rows_of_opening
from dissector.protocols.framing.replays import PIECE_BYTES, Piece, Pieces, Replay
from dissector.protocols.framing.resync import (
    AT,
    BEGAN_AT,
    CONFIRMED_AT,
    CURSOR,
    HOLE,
    HOLES,
    LAST,
    PIECES,
    RESUME,
    RESUME_HOLE,
    SECOND,
    SIZE,
    THIRD,
    ByteOfPiece,
    Searched,
    new_search,
    piece_at,
)
from dissector.protocols.framing.row_output import SOURCE_ARENA
from dissector.protocols.framing.state import (
    COUNTER_ARRIVALS,
    HELD,
    NO_OPENING,
    SEARCH,
    WAITING,
)
from dissector.stream.columns import DATA, STARTS_PACKET, RangeColumns

_NO_PROTOCOL: Final = -1
_FIRST_BYTES: Final = 1 << 14
_FIRST_HOLES: Final = 4
_FIRST_PIECES: Final = 32
_OFFSETS: Final = (AT, CURSOR, LAST, SECOND, THIRD)  # cells that hold an offset or -1
_HOLE_CURSORS: Final = (HOLE, RESUME_HOLE)
_NO_PIECES: Final = Pieces.new(0)
NO_RECORDS: Final = np.empty(0, np.int64)
_NO_BYTES: Final = np.empty(0, np.uint8)
NOTHING_SEARCHED: Final = kept(
    Searched(_NO_BYTES, _NO_BYTES, new_search(), np.zeros((2, _FIRST_HOLES), np.int64), _NO_PIECES)
)


@dataclass
class Trail:
    """How far a run is searched for one protocol's frames."""

    search: Int64Array = field(default_factory=new_search)
    for_kernel: tuple[Searched, Searched] | None = None  # as it is, and as kernels take it

    def drop(self, count: int, holes: int) -> None:
        """The first bytes and holes of the run are gone."""
        self.search[RESUME] = max(0, self.search[RESUME] - count)
        for cell in _OFFSETS:
            self.search[cell] = max(-1, self.search[cell] - count)
        for cell in _HOLE_CURSORS:
            self.search[cell] = max(0, self.search[cell] - holes)
        self.search[[BEGAN_AT, CONFIRMED_AT]] = -1


@dataclass
class Run:
    """Consecutive ranges of one direction, from where its frames are not known.

    A run is searched (see `resync`), or it only waits for the other direction's.

    pieces: its ranges, of which there are `count`; size: its bytes. at_start: the first byte is the
    first of the connection; is_known_start: and it was seen so, from a SYN. mode: what the
    direction goes back to, of a run that only waits. is_patient: the other direction waits for this
    run's frames; is_hurried: it did so for too long. is_confirmed: more than a chain speaks for the
    frames that were found. has_events: it holds ranges that are no bytes and must be reported.
    records: TLS records found so far, where it may still be TLS; else without cells. trails: by
    protocol; waiting: the cells of a run that is not searched.
    """

    pieces: Pieces = field(default_factory=lambda: Pieces.new(_FIRST_PIECES))
    count: int = 0
    at_start: bool = False
    is_known_start: bool = False
    mode: int | None = None
    is_patient: bool = False
    is_hurried: bool = False
    is_confirmed: bool = False
    size: int = 0
    hole_count: int = 0
    has_events: bool = False
    records: Int64Array = field(default_factory=lambda: NO_RECORDS)
    trails: dict[int, Trail] = field(default_factory=dict)
    waiting: Trail = field(default_factory=Trail)
    _data: ByteArray = field(default_factory=lambda: np.empty(_FIRST_BYTES, np.uint8))
    _marks: ByteArray = field(default_factory=lambda: _NO_BYTES)
    _holes: Int64Array = field(default_factory=lambda: np.zeros((2, _FIRST_HOLES), np.int64))

    def add(self, piece: Piece, data: ByteArray) -> None:
        """Append a range with its bytes."""
        self.make_room(len(data))
        self._append(piece)
        self._data[self.size : self.size + len(data)] = data
        self._marks[self.size : self.size + len(data)] = 0
        self.size += len(data)

    def add_hole(self, piece: Piece) -> None:
        """Append a range without bytes."""
        self.make_room(0)
        self._append(piece)
        self.has_events = True
        if not piece.length:
            return
        if self.hole_count == self._holes.shape[1]:
            self._holes = np.concatenate((self._holes, np.zeros_like(self._holes)), axis=1)
        self._holes[:, self.hole_count] = self.size, piece.length
        self.hole_count += 1

    def _append(self, piece: Piece) -> None:
        self.pieces.matrix[self.count] = piece
        self.count += 1

    def make_room(self, size: int) -> None:
        """Have room for a range more, of so many bytes."""
        if self.count == len(self.pieces.matrix):
            self.pieces = self.pieces.grown(4 * self.count)
        if self.size + size > len(self._data):
            room = max(self.size + size, 4 * len(self._data))
            self._data = _grown(self._data, self.size, room)
            if self.trails:
                self._marks = _grown(self._marks, self.size, room)

    @property
    def held_bytes(self) -> int:
        """What it counts for in the bound of all runs."""
        return self.size + PIECE_BYTES * self.count

    def trail(self, protocol: int) -> Trail:
        """The search for a protocol's frames."""
        found = self.trails.get(protocol)
        if found is None:
            if not self.trails:
                self._marks = np.empty(len(self._data), np.uint8)
                self._marks[: self.size] = 0
            found = self.trails[protocol] = Trail()
        return found

    def searched(self, protocol: int) -> Searched:
        """What a search for a protocol's frames needs."""
        return self._seen(self.trail(protocol), self._marks)

    def _seen(self, trail: Trail, marks: ByteArray) -> Searched:
        trail.search[SIZE], trail.search[HOLES] = self.size, self.hole_count
        trail.search[PIECES] = self.count
        return Searched(self._data, marks, trail.search, self._holes, self.pieces)

    def for_kernel(self, protocol: int = _NO_PROTOCOL) -> Searched:
        """The same for a kernel alone: its words are found again only after an array has grown.

        Args:
            protocol: none of a run that is not searched.
        """
        trail = self.waiting if protocol == _NO_PROTOCOL else self.trail(protocol)
        seen = self._seen(trail, _NO_BYTES if trail is self.waiting else self._marks)
        before = trail.for_kernel
        if before is None or any(old is not new for old, new in zip(before[0], seen, strict=True)):
            before = trail.for_kernel = (seen, kept(seen))
        return before[1]

    def begins_with_frame(
        self, check: Callable[..., int], protocol: int, limit: int, is_strict: int
    ) -> int:
        """Whether it begins behind a SYN, and there with a frame: then that is its chain.

        A strict header is proof enough there, and any header once the other direction has shown
        the protocol.

        Returns:
            1 if so, 0 if more bytes will tell, -1 if not.
        """
        if not (self.is_known_start and self.at_start):
            return -1
        seen = self.searched(protocol)
        end = int(seen.holes[0, 0]) if self.hole_count else self.size
        judged = check(seen.data, 0, end, 2, limit, is_strict)
        if judged <= 0:
            return 0 if judged == 0 and not self.hole_count else -1
        seen.search[AT] = 0
        self.pieces.is_judged[self.piece_at(0).piece] = 1
        self.is_confirmed = True
        return 1

    def head(self, stop: int | None = None) -> bytes:
        """Its first bytes."""
        return self._data[: self.size if stop is None else min(stop, self.size)].tobytes()

    def is_tls(self) -> bool:
        """Whether it carries TLS: looks at its last range."""
        last = self.pieces[self.count - 1]
        if not len(self.records) or last.kind != DATA:
            return False
        start, begins = max(0, self.size - last.length), bool(last.flags & STARTS_PACKET)
        length = self.size - start
        found = follow_records(self.records, self._data, start, length, last.stream_offset, begins)
        self.records[[NEXT, IN_A_ROW]] = found.next, found.in_a_row
        return found.is_tls

    def drop(self, count: int) -> None:
        """Forget the first bytes, and the holes among them; their gaps are still to be reported."""
        if not count:
            return
        left = self.size - count
        self._data[:left] = self._data[count : self.size].copy()
        self._marks[:left] = self._marks[count : self.size].copy()
        gone = int(np.count_nonzero(self._holes[0, : self.hole_count] <= count))
        self._holes[:, : self.hole_count - gone] = self._holes[:, gone : self.hole_count].copy()
        self.hole_count -= gone
        self._holes[0, : self.hole_count] -= count
        for trail in self.trails.values():
            trail.drop(count, gone)
        self.size = left
        self.at_start = False
        self._drop_pieces(count)

    def _drop_pieces(self, count: int) -> None:
        pieces = self.pieces
        first, gone = piece_at(pieces, self.count, count)
        is_kept = pieces.kind[: self.count] != DATA
        if first >= 0:
            is_kept[first:] = True
        if gone and first >= 0:
            pieces.stream_offset[first] += gone
            pieces.length[first] -= gone
            pieces.flags[first] &= ~STARTS_PACKET
        kept = pieces.matrix[: self.count][is_kept]
        self.count = len(kept)
        pieces.matrix[: self.count] = kept

    def piece_at(self, offset: int) -> ByteOfPiece:
        """The range that holds a byte of the run, and the byte's offset in it.

        Raises:
            IndexError: the run has fewer bytes.
        """
        found = piece_at(self.pieces, self.count, offset)
        if found.piece < 0:
            raise IndexError(offset)
        return found

    @property
    def is_live(self) -> bool:
        """Whether some search has a chain."""
        return any(trail.search[AT] >= 0 for trail in self.trails.values())


def _grown(array: ByteArray, used: int, room: int) -> ByteArray:
    fresh = np.empty(room, np.uint8)
    fresh[:used] = array[:used]
    return fresh


def replay_of(
    runs: Sequence[tuple[int, Run]], connection: int, at: int, release_packet: int
) -> Replay:
    """The pieces of one or both directions as ranges, in the order in which they arrived.

    Args:
        runs: direction's index in the framing's state, and run; at: where the bytes of the first
            stand in the arena, those of the second behind them.
    """
    rows = np.concatenate([run.pieces.matrix[: run.count] for _, run in runs])
    sides = np.repeat([flow & 1 for flow, _ in runs], [run.count for _, run in runs])
    pieces = Pieces(rows)
    bytes_of = np.where(pieces.kind == DATA, pieces.length, 0)
    offsets = at + np.cumsum(bytes_of) - bytes_of
    order = np.argsort(pieces.order, kind="stable")
    pieces = Pieces(rows[order])
    ranges = RangeColumns.new(len(rows))
    for name in ("kind", "stream_offset", "length", "packet", "ts_ns", "flags", "cause"):
        getattr(ranges, name)[: len(rows)] = getattr(pieces, name)
    ranges.connection[:] = connection
    ranges.side[: len(rows)] = sides[order]
    ranges.source[:] = SOURCE_ARENA
    ranges.offset[: len(rows)] = offsets[order]
    ranges.release_packet[:] = release_packet
    return Replay(ranges, len(rows), at, int(bytes_of.sum()), pieces)


def is_waited_for(run: Run | None) -> bool:
    """Whether the other direction waits for the frames of a run."""
    return run is not None and run.is_patient


class UnsynchronisedFlows(dict[int, Run]):
    """Runs by direction (2 * slot + side).

    size: what all of them hold, bytes.
    """

    def __init__(self, output: FrameOutput) -> None:
        super().__init__()
        self._output = output
        self.size = 0

    @property
    def arrivals(self) -> int:
        """Ranges that came for the first time."""
        return int(self._output.state.counters[COUNTER_ARRIVALS])

    @arrivals.setter
    def arrivals(self, count: int) -> None:
        self._output.state.counters[COUNTER_ARRIVALS] = count

    def adopt(self, slot: int, flow: int) -> Run:
        """The opening of a direction becomes a run."""
        state = self._output.state
        flows = state.flows
        run = self.begin(slot, flow)
        run.at_start = bool(flows.is_at_start[flow])
        run.records = np.array([flows.next_record[flow], flows.records_in_a_row[flow]])
        at = int(flows.arena_at[flow])
        for row in rows_of_opening(state, flow):
            piece = state.openings.pieces[row]
            run.add(piece, state.arena[at : at + piece.length])
            at += piece.length
        if flows.opening[flow] == WAITING:
            run.mode, run.records, run.pieces.starts_chain[0] = SEARCH, NO_RECORDS, 1
        self.size += run.held_bytes
        drop_first(self._output.for_kernel()[0], flow, run.size)
        flows.opening[flow] = NO_OPENING
        return run

    def begin(self, slot: int, flow: int) -> Run:
        """The run of a direction, new if there is none."""
        run = self.get(flow)
        if run is None:
            run = self[flow] = Run()
            self._output.state.connections.is_slow[slot] = 1
        return run

    def end(self, flow: int) -> Run | None:
        """Take a run out of the searches."""
        run = self.pop(flow, None)
        if run is not None:
            self.size -= run.held_bytes
        self._output.state.connections.is_slow[flow >> 1] = int((flow ^ 1) in self)
        return run

    def drop(self, flow: int, run: Run, count: int) -> None:
        """Bytes of a run that belong to no frame."""
        self._output.state.flows.skipped[flow] += count
        self.size -= run.held_bytes
        run.drop(count)
        self.size += run.held_bytes
        run.is_known_start &= count == 0

    def piece_of(self, current: Replay) -> Piece:
        """The range at the cursor, or what is left of it, as a piece of a run."""
        ranges, row, position = current.ranges, current.cursor, current.position
        if current.pieces is not None and position == 0:
            return current.pieces[row]
        self.arrivals += current.pieces is None
        order = self.arrivals if current.pieces is None else int(current.pieces.order[row])
        flags = int(ranges.flags[row])
        return Piece(
            int(ranges.stream_offset[row]) + position,
            int(ranges.length[row]) - position,
            int(ranges.packet[row]),
            int(ranges.ts_ns[row]),
            flags if position == 0 else flags & ~STARTS_PACKET,
            order,
            int(ranges.kind[row]),
            int(ranges.cause[row]),
        )

    def add_range(self, current: Replay, run: Run, piece: Piece | None = None) -> None:
        """The range at the cursor becomes a part of a run. piece: what it is, if that is known."""
        piece = piece or self.piece_of(current)
        if piece.kind == DATA:
            start = int(current.ranges.offset[current.cursor]) + current.position
            data = self._output.all_sources()[int(current.ranges.source[current.cursor])]
            run.add(piece, data[start : start + piece.length])
            self.size += piece.length
        else:
            run.add_hole(piece)
        self.size += PIECE_BYTES
        current.cursor += 1
        current.position = 0

    def gather(
        self, current: Replay, row: int, slot: int, sides: tuple[Side, Side], most_held: int
    ) -> tuple[int, bool]:
        """Add the ranges behind one to the runs of its connection, where that decides nothing.

        Args:
            most_held: see `gathering.gather`.

        Returns:
            The last range that was taken, and whether the next one waits for room, which is made.
        """
        before = _NO_PIECES if current.pieces is None else current.pieces
        sources = self._output.for_kernel()[1]
        following = Following(
            current.ranges, current.next_rows, current.held_bytes, before, sources
        )
        self.arrivals, row, is_full = gather(following, row, self.arrivals, sides, most_held)
        for flow, side in enumerate(sides, start=2 * slot):
            if side.has != NO_RUN:
                run = self[flow]
                search = (run.waiting if side.has == WAITS else run.trail(side.first)).search
                run.size, run.count = int(search[SIZE]), int(search[PIECES])
        if is_full:
            index = current.next_rows[row]
            flow = 2 * slot + int(current.ranges.side[index])
            self[flow].make_room(int(current.ranges.length[index]))
        return row, is_full

    def wait(self, slot: int, flow: int) -> Run:
        """Let a direction wait."""
        run = self.begin(slot, flow)
        run.mode = int(self._output.state.flows.mode[flow])
        self._output.state.flows.mode[flow] = HELD
        return run

    def wake(self, flow: int) -> Run:
        """A direction waits no longer: its run, to be replayed."""
        run = self.end(flow)
        assert run is not None and run.mode is not None
        self._output.state.flows.mode[flow] = run.mode
        return run

    def replay(
        self, ranges: RangeColumns, row: int, slot: int, runs: list[tuple[int, Run]]
    ) -> None:
        """Let runs, which have ended, go through the kernel, with the direction that waited."""
        other = runs[0][0] ^ 1
        if len(runs) == 1 and other in self and self[other].mode is not None:
            runs.append((other, self.wake(other)))
        at = self._output.keep(b"".join(run.head() for _, run in runs))
        connection = int(self._output.state.connections.connection_id[slot])
        release_packet = int(ranges.release_packet[row])
        self._output.replays.append(replay_of(runs, connection, at, release_packet))

    def abandon(self, ranges: RangeColumns, row: int, slot: int, flow: int) -> None:
        """A run without a candidate: its gaps, its last bytes and the other direction go on."""
        run = self[flow]
        resume = [int(trail.search[RESUME]) for trail in run.trails.values()]
        self.drop(flow, run, min([run.size, *resume]))
        self.end(flow)
        self.replay(ranges, row, slot, [(flow, run)])

    def give_up(self, flow: int, mode: int) -> None:
        """Count a direction's held bytes as skipped and stop looking (OPAQUE) or look on."""
        flows = self._output.state.flows
        run = self.end(flow)
        if run is not None:
            flows.skipped[flow] += run.size
        flows.mode[flow] = mode
