"""Blocks of frames on their way out, and what moves with the arena."""

import numpy as np
import pytest

from dissector.limits import FRAME_BLOCK_ROWS, FRAME_BLOCKS_AT_ONCE, NULL
from dissector.protocols.framing.block_output import ARENA_BYTES, FrameOutput
from dissector.protocols.framing.connection_table import allocate_connection
from dissector.protocols.framing.range_pool import BufferedRanges
from dissector.protocols.framing.state import COUNTER_ARENA_USED, COUNTER_REQUEUED, DirectionMode
from dissector.protocols.interface import FrameBlock
from dissector.tables import ABSENT
from tests.wire.ranges import Collected


def output() -> tuple[FrameOutput, Collected]:
    collected = Collected()
    return FrameOutput(collected, key=0), collected


def keep(out: FrameOutput, data: bytes) -> int:
    """Copy bytes into the arena; where they begin."""
    used = int(out.state.counters[COUNTER_ARENA_USED])
    out.state.arena[used : used + len(data)] = np.frombuffer(data, np.uint8)
    out.state.counters[COUNTER_ARENA_USED] = used + len(data)
    return used


def write(out: FrameOutput, number: int, size: int = 3) -> None:
    """Fill the next row, as the kernel does."""
    if out.rows >= len(out.frames.command) - 4:
        out.flush()
    out.frames.connection_id[out.rows] = 5
    out.frames.frame_no[out.rows] = number
    out.frames.source[out.rows] = 3
    out.frames.data_offset[out.rows] = keep(out, b"x" * size)
    out.frames.data_bytes[out.rows] = size
    out.rows += 1


def test_rows_go_to_the_sink_once_and_leave_nulls() -> None:
    out, collected = output()
    for number in range(3):
        write(out, number + 1, number + 1)
    out.flush()
    out.flush()
    assert [(row["frame_no"], row["data"]) for row in collected.rows] == [
        (1, b"x"), (2, b"xx"), (3, b"xxx"),
    ]  # fmt: skip
    assert out.rows == 0 and (out.matrix[:, :3] == NULL).all()


def test_the_first_block_is_small_as_most_captures_have_few_frames() -> None:
    out, collected = output()
    first = len(out.frames.command)
    for number in range(first + FRAME_BLOCK_ROWS + 10):
        write(out, number + 1)
    assert first < FRAME_BLOCK_ROWS // 8
    assert FRAME_BLOCK_ROWS - 4 <= len(collected.rows) - first <= FRAME_BLOCK_ROWS
    out.flush()
    numbers = [row["frame_no"] for row in collected.rows]
    assert numbers == list(range(1, first + FRAME_BLOCK_ROWS + 11))


def test_many_small_blocks_stay_small() -> None:
    out, collected = output()
    first = len(out.frames.command)
    for _ in range(5):
        for number in range(first // 4):
            write(out, number + 1)
        out.flush()
    assert len(out.frames.command) == first and len(collected.rows) == 5 * (first // 4)


def test_blocks_stay_as_they_are_while_so_many_are_read() -> None:
    """Columns and bytes; then their memory is used again."""
    blocks: list[FrameBlock] = []
    out = FrameOutput(blocks.append, key=0)
    arenas = set()
    for number in range(1, 20):
        for size in (number, ARENA_BYTES // 3, ARENA_BYTES // 4):  # more than half: it is cleared
            write(out, number, size)
        arenas.add(out.state.arena.ctypes.data)
        at = int(out.frames.data_offset[0])
        out.state.arena[at : at + number] = number
        out.flush()
        assert out.state.counters[COUNTER_ARENA_USED] == 0
        for each, block in enumerate(blocks[-FRAME_BLOCKS_AT_ONCE:], number + 1):
            wanted = each - min(FRAME_BLOCKS_AT_ONCE, number)
            assert block.frames.frame_no[:3].tolist() == [wanted] * 3
            at = int(block.frames.data_offset[0])
            assert block.sources[3][at : at + wanted].tolist() == [wanted] * wanted
        out.flush()
    assert len(arenas) == FRAME_BLOCKS_AT_ONCE + 1


@pytest.mark.parametrize("needed", [ARENA_BYTES, 3 * ARENA_BYTES])
def test_a_larger_arena_keeps_all_that_is_still_needed(needed: int) -> None:
    """Unfinished frames, buffers with their marks, requeued ranges, and waiting frames."""
    out, _ = output()
    state = out.state
    for connection in range(3):
        allocate_connection(state, connection, -1, 0, 1000)
    directions, pool, known = state.directions, state.pool, state.connections
    for direction_index, data in ((2, b"second"), (5, b"fifth")):
        directions.mode[direction_index] = DirectionMode.CHAIN
        directions.have[direction_index] = len(data)
        directions.arena_at[direction_index] = keep(out, b"garbage" + data) + 7
    directions.buffer[3] = 6
    pool.buffers.at[6] = keep(out, b"held")
    pool.buffers.size[6] = 4
    state.marks[int(pool.buffers.at[6]) : int(pool.buffers.at[6]) + 4] = (1, 2, 0, 3)
    state.counters[COUNTER_REQUEUED] = 9
    for row, data, following in ((9, b"first", 4), (4, b"next", ABSENT)):
        pool.ranges.at[row] = keep(out, b"garbage" + data) + 7
        pool.ranges.length[row] = len(data)
        pool.ranges.next[row] = following
    known.waiting[1] = 1
    known.first_waiting[1] = known.last_waiting[1] = 8
    state.waiting.data_offset[8] = keep(out, b"waits")
    state.waiting.data_bytes[8] = 5
    out.grow_arena(needed)
    state = out.state
    assert len(state.arena) >= 2 * needed and len(state.marks) == len(state.arena)

    def there(at: int, size: int) -> bytes:
        return state.arena[at : at + size].tobytes()

    for direction_index, data in ((2, b"second"), (5, b"fifth")):
        assert there(int(directions.arena_at[direction_index]), len(data)) == data
    at = int(pool.buffers.at[6])
    assert there(at, 4) == b"held" and state.marks[at : at + 4].tolist() == [1, 2, 0, 3]
    ranges: BufferedRanges = pool.ranges
    assert there(int(ranges.at[9]), 5) == b"first" and there(int(ranges.at[4]), 4) == b"next"
    assert there(int(state.waiting.data_offset[8]), 5) == b"waits"
    kept = "second" + "fifth" + "held" + "first" + "next" + "waits"
    assert state.counters[COUNTER_ARENA_USED] == len(kept)
