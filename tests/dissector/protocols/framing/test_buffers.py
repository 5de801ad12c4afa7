"""Buffers keep the packets of their bytes when bytes are dropped, and give their ranges back."""

from dissector.limits import SMALL_BUFFER_BYTES, SMALL_BUFFER_RANGES
from dissector.protocols.framing.buffers import (
    begin_buffer,
    give_up,
    requeue,
    resume,
    wait_for_peer,
)
from dissector.protocols.framing.range_pool import (
    LARGE_HELD,
    RANGE_BYTES,
    SMALL_HELD,
    SMALL_LIMIT,
)
from dissector.protocols.framing.resync import range_at
from dissector.protocols.framing.search_state import RESUME
from dissector.protocols.framing.state import COUNTER_REQUEUED, DirectionMode
from dissector.stream.columns import ENDS_PACKET, RangeKind
from dissector.tables import ABSENT
from tests.wire.buffers import Held
from tests.wire.ranges import WHOLE


def held(*parts: bytes | int) -> Held:
    found = Held()
    found.state.pool.counts[SMALL_LIMIT] = 1 << 20
    return found.add(*parts)


def requeued(found: Held) -> list[tuple[int, int, int, bytes]]:
    """Direction, packet, release packet and bytes of the requeued ranges."""
    ranges, row = found.state.pool.ranges, int(found.state.counters[COUNTER_REQUEUED])
    rows = []
    while row != ABSENT:
        at, length = (
            int(ranges.at[row]),
            int(ranges.length[row] * (ranges.kind[row] == RangeKind.DATA)),
        )
        rows.append((
            int(ranges.direction_index[row]), int(ranges.packet[row]),
            int(ranges.release_packet[row]), found.state.arena[at : at + length].tobytes(),
        ))  # fmt: skip
        row = int(ranges.next[row])
    return rows


def test_packet_starts_are_known() -> None:
    buffer = held(b"abc", b"defg", b"hijkl").search_view()
    assert [at for at in range(12) if range_at(buffer, at).offset == 0] == [0, 3, 7]
    assert range_at(buffer, 12).row == ABSENT


def test_dropping_inside_a_range_keeps_its_packet_but_not_its_start() -> None:
    buffered = held(b"abc", b"defg", b"hijkl")
    buffered.search_view().search[RESUME] = 9
    buffered.drop(5)
    assert buffered.rows("stream_offset", "length", "packet", "flags") == [
        (5, 2, 2, ENDS_PACKET), (7, 5, 3, WHOLE),
    ]  # fmt: skip
    assert (buffered.cell(RESUME), buffered.data) == (4, b"fghijkl")
    buffered.add(b"mn")
    assert buffered.data == b"fghijklmn"


def test_dropping_bytes_keeps_the_gaps_to_be_reported() -> None:
    buffered = held(b"abc", 7, b"defg", 2, b"hijkl")
    buffered.drop(4)
    assert buffered.rows("kind", "length") == [
        (RangeKind.GAP_LOST, 7),
        (RangeKind.DATA, 3),
        (RangeKind.GAP_LOST, 2),
        (RangeKind.DATA, 5),
    ]
    buffer = buffered.search_view()
    assert (
        buffer.ranges.begin[buffer.first_gap] - buffer.base == 3
        and buffer.ranges.length[buffer.first_gap] == 2
    )
    buffered.drop(8)
    assert buffered.rows("kind") == [(RangeKind.GAP_LOST,), (RangeKind.GAP_LOST,)]
    assert buffered.search_view().first_gap == ABSENT
    buffered.add(b"x")
    assert buffered.rows("kind") == [
        (RangeKind.GAP_LOST,),
        (RangeKind.GAP_LOST,),
        (RangeKind.DATA,),
    ]


def test_a_buffer_counts_in_one_bound_and_is_large_by_what_it_holds() -> None:
    buffered = held(b"abc", 7)
    counts = buffered.state.pool.counts
    assert counts[[SMALL_HELD, LARGE_HELD]].tolist() == [3 + 2 * RANGE_BYTES, 0]
    buffered.add(*[b"x"] * (SMALL_BUFFER_RANGES - 1))
    assert counts[SMALL_HELD] == 0 and counts[LARGE_HELD] == 18 + 17 * RANGE_BYTES - 0
    other = held(b"abc")
    other.add(bytes(SMALL_BUFFER_BYTES))
    assert other.state.pool.counts[SMALL_HELD] == 0
    third = held()
    third.state.pool.counts[SMALL_LIMIT] = 10
    third.add(b"x")
    assert third.state.pool.counts[LARGE_HELD] == 1 + RANGE_BYTES


def test_what_is_given_up_is_skipped() -> None:
    buffered = held(b"one", 4)
    give_up(buffered.state, 0, DirectionMode.CHAIN)
    state = buffered.state
    assert (state.directions.skipped[0], state.directions.mode[0], state.directions.buffer[0]) == (
        3,
        DirectionMode.CHAIN,
        -1,
    )
    assert state.pool.counts[[SMALL_HELD, LARGE_HELD]].tolist() == [0, 0]
    assert state.pool.free_ranges.free[0] == len(state.pool.free_ranges.rows)
    assert state.pool.free_buffers.free[0] == len(state.pool.free_buffers.rows)


def test_ranges_of_both_directions_come_again_as_they_arrived() -> None:
    buffered = held()
    state, other = buffered.state, Held(direction_index=1, script=buffered.script)
    other.state = state
    state.directions.mode[1] = DirectionMode.CHAIN
    wait_for_peer(other.context(), 1)
    assert state.directions.mode[1] == DirectionMode.HELD
    for each, part in (
        (buffered, b"one"),
        (other, b"two"),
        (buffered, 9),
        (other, b"3"),
        (buffered, b"4"),
    ):
        each.add(part)
    requeue(buffered.context(), 0, 0, False)
    assert requeued(buffered) == [
        (0, 1, 5, b"one"), (1, 2, 5, b"two"), (0, 3, 5, b""), (1, 4, 5, b"3"), (0, 5, 5, b"4"),
    ]  # fmt: skip
    assert state.directions.mode[1] == DirectionMode.CHAIN
    assert state.directions.buffer[:2].tolist() == [ABSENT, ABSENT]
    assert state.pool.counts[[SMALL_HELD, LARGE_HELD]].tolist() == [0, 0]


def test_what_comes_again_later_goes_before_what_did_earlier() -> None:
    buffered = held(b"one")
    requeue(buffered.context(), 0, 0, False)
    begin_buffer(buffered.context(), 0)
    buffered.add(b"two")
    requeue(buffered.context(), 0, 0, False)
    assert [row[3] for row in requeued(buffered)] == [b"two", b"one"]


def test_a_direction_that_waits_goes_back_to_its_mode() -> None:
    buffered = held(b"one")
    state, other = buffered.state, Held(direction_index=1, script=buffered.script)
    other.state = state
    state.directions.mode[1] = DirectionMode.SEARCH
    wait_for_peer(other.context(), 1)
    other.add(b"two")
    resume(other.context(), 0, 1)
    assert state.directions.mode[1] == DirectionMode.SEARCH and buffered.data == b"one"
    assert [row[3] for row in requeued(buffered)] == [b"two"]
