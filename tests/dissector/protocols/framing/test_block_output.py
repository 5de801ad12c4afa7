"""Blocks of frames on their flow out, and what moves with the arena."""

import numpy as np
import pytest

from dissector.limits import FRAME_BLOCK_ROWS, NULL
from dissector.protocols.framing.block_output import ARENA_BYTES, FrameOutput
from dissector.protocols.framing.state import CHAIN, COUNTER_ARENA_USED, COUNTER_FRAME_NO
from dissector.protocols.framing.unsynchronised import SOURCE_ARENA, Replay
from dissector.stream.columns import RangeColumns
from tests.wire.ranges import Collected


def output() -> tuple[FrameOutput, Collected]:
    collected = Collected()
    return FrameOutput(collected, key=0), collected


def cells_of(out: FrameOutput) -> np.ndarray:
    """A row of one's own, as `pop_row` gives it."""
    values = np.full(out.matrix.shape[0], NULL, np.int64)
    out.matrix[:, 0] = NULL
    out.frames.connection_id[0] = 5
    out.frames.data_bytes[0] = 3
    values[:] = out.matrix[:, 0]
    out.matrix[:, 0] = NULL
    return values


def test_rows_go_to_the_sink_once_and_leave_nulls() -> None:
    out, collected = output()
    values = cells_of(out)
    for number in range(3):
        assert out.write(values, b"abc"[: number + 1] + b"..") == number
    out.flush()
    out.flush()
    assert [row["frame_no"] for row in collected.rows] == [1, 2, 3]
    assert out.rows == 0 and (out.matrix[:, :3] == NULL).all()


def test_kept_rows_carry_their_bytes_in_the_arena() -> None:
    out, collected = output()
    values = cells_of(out)
    row = out.write(values, b"xyz")
    assert out.frames.source[row] == SOURCE_ARENA and out.row_data(row) == b"xyz"
    out.flush()
    assert collected.rows[0]["data"] == b"xyz" and collected.rows[0]["connection_id"] == 5


def test_the_last_row_can_be_taken_back_with_its_number() -> None:
    out, collected = output()
    values = cells_of(out)
    out.write(values, b"one")
    out.write(values, b"two")
    taken = out.pop_row()
    assert out.state.counters[COUNTER_FRAME_NO] == 1 and out.rows == 1
    out.write(taken, b"new")
    out.flush()
    assert [(row["frame_no"], row["data"]) for row in collected.rows] == [(1, b"one"), (2, b"new")]


def test_a_full_block_goes_out_by_itself() -> None:
    """The first one is small, as most captures have few frames."""
    out, collected = output()
    values = cells_of(out)
    first = len(out.frames.command)
    for _ in range(first + FRAME_BLOCK_ROWS + 10):
        out.write(values, b"abc")
    assert first < FRAME_BLOCK_ROWS // 8
    assert FRAME_BLOCK_ROWS - 4 <= len(collected.rows) - first <= FRAME_BLOCK_ROWS
    out.flush()
    numbers = [row["frame_no"] for row in collected.rows]
    assert numbers == list(range(1, first + FRAME_BLOCK_ROWS + 11))


def test_many_small_blocks_stay_small() -> None:
    out, collected = output()
    values = cells_of(out)
    first = len(out.frames.command)
    for _ in range(5):
        for _ in range(first // 4):
            out.write(values, b"abc")
        out.flush()
    assert len(out.frames.command) == first and len(collected.rows) == 5 * (first // 4)


@pytest.mark.parametrize("needed", [ARENA_BYTES, 3 * ARENA_BYTES])
def test_a_larger_arena_keeps_unfinished_frames_and_replays(needed: int) -> None:
    out, _ = output()
    flows = out.state.flows
    for flow, data in ((2, b"second"), (5, b"fifth")):
        flows.mode[flow] = CHAIN
        flows.have[flow] = len(data)
        flows.arena_at[flow] = out.keep(b"garbage" + data) + 7
    ranges = RangeColumns.new(1)
    at = out.keep(b"replayed")
    ranges.offset[0] = at + 2
    out.replays.append(Replay(ranges, 1, at, 8))
    out.grow_arena(needed)
    assert len(out.state.arena) >= 2 * needed
    for flow, data in ((2, b"second"), (5, b"fifth")):
        at = int(out.state.flows.arena_at[flow])
        assert out.state.arena[at : at + len(data)].tobytes() == data
    moved = out.replays[0]
    assert out.state.arena[moved.at : moved.at + 8].tobytes() == b"replayed"
    assert ranges.offset[0] == moved.at + 2
    assert out.state.counters[COUNTER_ARENA_USED] == len("second" + "fifth" + "replayed")


def test_what_is_kept_never_outgrows_the_arena() -> None:
    out, _ = output()
    piece = bytes(1 << 20)
    for _ in range(40):
        at = out.keep(piece)
        assert at + len(piece) <= len(out.state.arena)
        out.flush()
    # Nothing of it is needed any more, so it did not have to grow.
    assert len(out.state.arena) == ARENA_BYTES
