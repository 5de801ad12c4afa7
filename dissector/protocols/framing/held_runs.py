"""All runs of a capture, by direction: what searches hold, and what waits for them."""

from typing import Final

from dissector.protocols.framing.output import FrameOutput
from dissector.protocols.framing.resync import RESUME
from dissector.protocols.framing.runs import Piece, Replay, Run, replay_of
from dissector.protocols.framing.state import HELD
from dissector.stream.columns import DATA, STARTS_PACKET, RangeColumns


def is_waited_for(run: Run | None) -> bool:
    """Whether the other direction waits for the frames of a run."""
    return run is not None and run.is_patient


PIECE_BYTES: Final = 256  # counted as held for each range, beside its bytes


class HeldRuns(dict[int, Run]):
    """Runs by direction (2 * slot + side).

    size: what all of them hold, bytes; arrivals: ranges that came for the first time.
    """

    def __init__(self, output: FrameOutput) -> None:
        super().__init__()
        self._output = output
        self.size = 0
        self.arrivals = 0

    def begin(self, slot: int, way: int) -> Run:
        """The run of a direction, new if there is none."""
        run = self.get(way)
        if run is None:
            run = self[way] = Run()
            self._output.state.connections.is_slow[slot] = 1
        return run

    def end(self, way: int) -> Run | None:
        """Take a run out of the searches."""
        run = self.pop(way, None)
        if run is not None:
            self.size -= run.size + PIECE_BYTES * len(run.pieces)
        self._output.state.connections.is_slow[way >> 1] = int((way ^ 1) in self)
        return run

    def drop(self, way: int, run: Run, count: int) -> None:
        """Bytes of a run that belong to no frame."""
        self._output.state.directions.skipped[way] += count
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

    def take_range(self, current: Replay, run: Run) -> None:
        """The range at the cursor becomes a part of a run."""
        piece = self.piece_of(current)
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

    def wait(self, slot: int, way: int) -> Run:
        """Let a direction wait."""
        run = self.begin(slot, way)
        run.mode = int(self._output.state.directions.mode[way])
        self._output.state.directions.mode[way] = HELD
        return run

    def wake(self, way: int) -> Run:
        """A direction waits no longer: its run, to be replayed."""
        run = self.end(way)
        assert run is not None and run.mode is not None
        self._output.state.directions.mode[way] = run.mode
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

    def let_go(self, ranges: RangeColumns, row: int, slot: int, way: int) -> None:
        """A run without a candidate: its gaps, its last bytes and the other direction go on."""
        run = self[way]
        resume = [int(trail.search[RESUME]) for trail in run.trails.values()]
        self.drop(way, run, min([run.size, *resume]))
        self.end(way)
        self.replay(ranges, row, slot, [(way, run)])

    def give_up(self, way: int, mode: int) -> None:
        """Count a direction's held bytes as skipped and stop looking (OPAQUE) or look on."""
        ways = self._output.state.directions
        run = self.end(way)
        if run is not None:
            ways.skipped[way] += run.size
        ways.mode[way] = mode
