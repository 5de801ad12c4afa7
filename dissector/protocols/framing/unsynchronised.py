"""Unsynchronised bytes: runs of flows whose frames are not found yet, and flows that wait for them.

A flow is one direction of a connection: 2 * slot + side.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from dissector.blocks import ByteArray, Int64Array
from dissector.jit import kept
from dissector.limits import RESYNC_HOLD_BYTES, RESYNC_HOLD_MS
from dissector.protocols.framing.block_output import FrameOutput
from dissector.protocols.framing.first_bytes import Records
from dissector.protocols.framing.replays import Piece, Replay
from dissector.protocols.framing.resync import (
    AT,
    BLIND,
    CURSOR,
    FRAMES,
    HOLE,
    HOLES,
    IS_OPEN,
    LAST,
    NOTHING,
    RESUME,
    RESUME_HOLE,
    SECOND,
    SIZE,
    THIRD,
    TO_GO,
    TOTAL,
    Searched,
    new_search,
)
from dissector.protocols.framing.row_output import SOURCE_ARENA
from dissector.protocols.framing.state import HELD
from dissector.stream.columns import DATA, STARTS_PACKET, RangeColumns

PIECE_BYTES: Final = 256  # counted as held for each range, beside its bytes
_FIRST_BYTES: Final = 1 << 12
_FIRST_HOLES: Final = 4
_SHORT_FRAME_BYTES: Final = 64 << 10
# Bytes of the equal segments into which TCP cuts long payloads, by what links carry: the smallest
# packet that all must, Ethernet with and without tunnels, jumbo frames and offload.
_SEGMENTS: Final = ((512, 600), (1200, 1500), (4000, 1 << 62))
# So many packets say something of two frames, and one more for so many of their bytes.
_FEW_PACKETS: Final = 4
_TINY_PACKET_BYTES: Final = 64
_NS_PER_MS: Final = 1_000_000
_OFFSETS: Final = (AT, CURSOR, LAST, SECOND, THIRD)  # cells that hold an offset or -1
_HOLE_CURSORS: Final = (HOLE, RESUME_HOLE)


@dataclass
class Trail:
    """How far a run is searched for one protocol's frames. marks: as long as the run's buffer."""

    marks: ByteArray
    search: Int64Array = field(default_factory=new_search)
    for_kernel: tuple[Searched, Searched] | None = None  # as it is, and as kernels take it

    def drop(self, count: int, size: int, holes: int) -> None:
        """The first bytes and holes of the run are gone; `size` are left."""
        self.marks[:size] = self.marks[count : count + size].copy()
        self.marks[size : size + count] = 0
        self.search[RESUME] = max(0, self.search[RESUME] - count)
        for cell in _OFFSETS:
            self.search[cell] = max(-1, self.search[cell] - count)
        for cell in _HOLE_CURSORS:
            self.search[cell] = max(0, self.search[cell] - holes)


@dataclass
class Run:
    """Consecutive ranges of one direction, from where its frames are not known.

    A run is searched (see `resync`), or it only waits for the other direction's.

    at_start: the first byte is the first of the connection; is_known_start: and it was seen so,
    from a SYN. mode: what the direction goes back to, of a run that only waits. is_patient: the
    other direction waits for this run's frames; is_hurried: it did so for too long. is_confirmed:
    more than a chain speaks for the frames that were found. has_events: it holds ranges that are
    no bytes and must be reported. records: TLS records found so far, where it may still be TLS.
    """

    pieces: list[Piece] = field(default_factory=list)
    at_start: bool = False
    is_known_start: bool = False
    mode: int | None = None
    is_patient: bool = False
    is_hurried: bool = False
    is_confirmed: bool = False
    size: int = 0
    hole_count: int = 0
    has_events: bool = False
    records: Records | None = None
    _since: tuple[int, int] = (-1, 0)
    _by_packets: tuple[int, bool] = (-1, False)
    trails: dict[int, Trail] = field(default_factory=dict)
    _data: ByteArray = field(default_factory=lambda: np.empty(_FIRST_BYTES, np.uint8))
    _holes: Int64Array = field(default_factory=lambda: np.zeros((2, _FIRST_HOLES), np.int64))

    def add(self, piece: Piece, data: ByteArray) -> None:
        """Append a range with its bytes."""
        self.pieces.append(piece)
        needed = self.size + len(data)
        if needed > len(self._data):
            room = max(needed, 2 * len(self._data))
            self._data = _grown(self._data, room)
            for trail in self.trails.values():
                trail.marks = _grown(trail.marks, room)
        self._data[self.size : needed] = data
        self.size = needed

    def add_hole(self, piece: Piece) -> None:
        """Append a range without bytes."""
        self.pieces.append(piece)
        self.has_events = True
        if not piece.length:
            return
        if self.hole_count == self._holes.shape[1]:
            self._holes = np.concatenate((self._holes, np.zeros_like(self._holes)), axis=1)
        self._holes[:, self.hole_count] = self.size, piece.length
        self.hole_count += 1

    def trail(self, protocol: int) -> Trail:
        """The search for a protocol's frames."""
        found = self.trails.get(protocol)
        if found is None:
            found = self.trails[protocol] = Trail(np.zeros(len(self._data), np.uint8))
        return found

    def searched(self, protocol: int) -> Searched:
        """What a search for a protocol's frames needs."""
        trail = self.trail(protocol)
        trail.search[SIZE] = self.size
        trail.search[HOLES] = self.hole_count
        return Searched(self._data, trail.marks, trail.search, self._holes)

    def for_kernel(self, protocol: int) -> Searched:
        """The same for a kernel alone: its words are found again only after an array has grown."""
        seen, trail = self.searched(protocol), self.trail(protocol)
        before = trail.for_kernel
        if before is None or any(old is not new for old, new in zip(before[0], seen, strict=True)):
            before = trail.for_kernel = (seen, kept(seen))
        return before[1]

    def is_inside_frame(self, protocol: int) -> bool:
        """Whether the last frame of a search's chain goes on behind all bytes so far, without a
        hole: then no search can tell more than it did."""
        search = self.trail(protocol).search
        is_behind_holes = search[HOLE] >= self.hole_count
        is_longer = search[CURSOR] + search[TO_GO] > self.size
        return bool(search[AT] >= 0 and is_behind_holes and is_longer)

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
        self.piece_at(0)[0].is_judged = True
        self.is_confirmed = True
        return 1

    def head(self, stop: int | None = None) -> bytes:
        """Its first bytes."""
        return self._data[: self.size if stop is None else min(stop, self.size)].tobytes()

    def last_bytes(self, count: int) -> bytes:
        """Its last bytes, if it has so many."""
        return self._data[max(0, self.size - count) : self.size].tobytes()

    def drop(self, count: int) -> None:
        """Forget the first bytes, and the holes among them; their gaps are still to be reported."""
        if not count:
            return
        left = self.size - count
        self._data[:left] = self._data[count : self.size].copy()
        gone = int(np.count_nonzero(self._holes[0, : self.hole_count] <= count))
        self._holes[:, : self.hole_count - gone] = self._holes[:, gone : self.hole_count].copy()
        self.hole_count -= gone
        self._holes[0, : self.hole_count] -= count
        for trail in self.trails.values():
            trail.drop(count, left, gone)
        self.size = left
        self.at_start = False
        self._since = (-1, 0)
        self._by_packets = (-1, False)
        self._drop_pieces(count)

    def _drop_pieces(self, count: int) -> None:
        kept = []
        for index, piece in enumerate(self.pieces):
            if count == 0:
                kept += self.pieces[index:]
                break
            if piece.kind != DATA:
                kept.append(piece)
            elif piece.length > count:
                piece.stream_offset += count
                piece.length -= count
                piece.flags &= ~STARTS_PACKET
                count = 0
                kept.append(piece)
            else:
                count -= piece.length
        self.pieces = kept

    def piece_at(self, offset: int) -> tuple[Piece, int]:
        """The range that holds a byte of the run, and the byte's offset in it."""
        for piece in self.pieces:
            if piece.kind == DATA:
                if offset < piece.length:
                    return piece, offset
                offset -= piece.length
        raise IndexError(offset)

    def is_believed(self, protocol: int, status: int, ts_ns: int, is_final: bool) -> bool:
        """Whether the chain of a search may go out.

        It does where packets confirm it, where nothing can contradict it any more, and where it
        has stood for long enough: RESYNC_HOLD_BYTES or RESYNC_HOLD_MS. A long frame at its end is
        waited for: if it is none, it would cover the frames that it says it holds.
        """
        search = self.trail(protocol).search
        if status == NOTHING:
            return False
        if status == BLIND or is_final or self.is_confirmed_by_packets(protocol):
            return True
        held = int(search[LAST] - search[AT])
        if held >= RESYNC_HOLD_BYTES:
            return bool(search[IS_OPEN] == 0 or search[TOTAL] <= _SHORT_FRAME_BYTES)
        if search[IS_OPEN] == 1 and search[TOTAL] > _SHORT_FRAME_BYTES:
            return False
        return int(search[FRAMES]) > 1 and ts_ns - self._began(search) > RESYNC_HOLD_MS * _NS_PER_MS

    @property
    def is_live(self) -> bool:
        """Whether some search has a chain."""
        return any(trail.search[AT] >= 0 for trail in self.trails.values())

    def has_some(self, protocol: int, frames: int) -> bool:
        """Whether a search has a chain of so many frames, and no long one at its end."""
        search = self.trail(protocol).search
        is_long = search[IS_OPEN] == 1 and search[TOTAL] > _SHORT_FRAME_BYTES
        return bool(search[AT] >= 0 and search[FRAMES] >= frames and not is_long)

    def _began(self, search: Int64Array) -> int:
        """When the first packet of a chain was captured."""
        at = int(search[AT])
        if self._since[0] != at:
            self._since = (at, self.piece_at(at)[0].ts_ns)
        return self._since[1]

    def is_confirmed_by_packets(self, protocol: int) -> bool:
        """Whether three frames of a search's chain in a row begin packets.

        No payload decides how TCP cuts it, but for long payloads, which are cut into equal parts.
        Where packets are tiny, any byte begins one, which proves nothing.
        """
        search = self.trail(protocol).search
        starts = [int(search[cell]) for cell in (AT, SECOND, THIRD)]
        if starts[2] < 0 or starts[2] >= self.size or search[FRAMES] < 3:
            return False
        if self._by_packets[0] != starts[0]:
            first, second = starts[1] - starts[0], starts[2] - starts[1]
            is_uneven = first != second or not any(low <= first < high for low, high in _SEGMENTS)
            most = _FEW_PACKETS + (starts[2] - starts[0]) // _TINY_PACKET_BYTES
            is_by_packets = (
                is_uneven
                and all(self.is_packet_start(start) for start in starts)
                and self._packets_between(starts[0], starts[2]) <= most
            )
            self._by_packets = (starts[0], is_by_packets)
        return self._by_packets[1]

    def _packets_between(self, start: int, stop: int) -> int:
        """How many packets begin in a part of the run."""
        count = offset = 0
        for piece in self.pieces:
            if offset >= stop:
                break
            if piece.kind == DATA:
                count += offset >= start and bool(piece.flags & STARTS_PACKET)
                offset += piece.length
        return count

    def is_packet_start(self, offset: int) -> bool:
        """Whether a byte of the run is the first of its packet."""
        piece, at = self.piece_at(offset)
        return at == 0 and bool(piece.flags & STARTS_PACKET)


def _grown(array: ByteArray, room: int) -> ByteArray:
    fresh = np.zeros(room, np.uint8)
    fresh[: len(array)] = array
    return fresh


def replay_of(
    runs: Sequence[tuple[int, Run]], connection: int, at: int, release_packet: int
) -> Replay:
    """The pieces of one or both directions as ranges, in the order in which they arrived.

    Args:
        runs: direction's index in the framing's state, and run; at: where the bytes of the first
            stand in the arena, those of the second behind them.
    """
    pieces: list[tuple[Piece, int, int]] = []
    position = at
    for flow, run in runs:
        for piece in run.pieces:
            pieces.append((piece, flow & 1, position))
            position += piece.length if piece.kind == DATA else 0
    pieces.sort(key=lambda each: each[0].order)
    ranges = RangeColumns.new(len(pieces))
    for row, (piece, side, offset) in enumerate(pieces):
        ranges.connection[row] = connection
        ranges.side[row] = side
        ranges.kind[row] = piece.kind
        ranges.stream_offset[row] = piece.stream_offset
        ranges.length[row] = piece.length
        ranges.source[row] = SOURCE_ARENA
        ranges.offset[row] = offset
        ranges.packet[row] = piece.packet
        ranges.ts_ns[row] = piece.ts_ns
        ranges.flags[row] = piece.flags
        ranges.cause[row] = piece.cause
        ranges.release_packet[row] = release_packet
    return Replay(ranges, len(pieces), at, position - at, [piece for piece, _, _ in pieces])


def is_waited_for(run: Run | None) -> bool:
    """Whether the other direction waits for the frames of a run."""
    return run is not None and run.is_patient


class UnsynchronisedFlows(dict[int, Run]):
    """Runs by direction (2 * slot + side).

    size: what all of them hold, bytes; arrivals: ranges that came for the first time.
    """

    def __init__(self, output: FrameOutput) -> None:
        super().__init__()
        self._output = output
        self.size = 0
        self.arrivals = 0

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
            self.size -= run.size + PIECE_BYTES * len(run.pieces)
        self._output.state.connections.is_slow[flow >> 1] = int((flow ^ 1) in self)
        return run

    def drop(self, flow: int, run: Run, count: int) -> None:
        """Bytes of a run that belong to no frame."""
        self._output.state.flows.skipped[flow] += count
        self.size -= run.size + PIECE_BYTES * len(run.pieces)
        run.drop(count)
        self.size += run.size + PIECE_BYTES * len(run.pieces)
        run.is_known_start &= count == 0

    def piece_of(self, current: Replay) -> Piece:
        """The range at the cursor, or what is left of it, as a piece of a run."""
        ranges, row, position = current.ranges, current.cursor, current.position
        if current.pieces and position == 0:
            return current.pieces[row]
        self.arrivals += 0 if current.pieces else 1
        order = current.pieces[row].order if current.pieces else self.arrivals
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
