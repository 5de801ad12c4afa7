"""Rows of frames and events, roles and limits, and the arena in which frames are gathered."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissector.limits import MAX_FRAME_BYTES_HARD, NULL
from dissector.protocols.columns import (
    COMPLETE,
    CUT_BY_END,
    CUT_BY_GAP,
    FrameEvent,
    new_frame_columns,
)
from dissector.protocols.framing.connection_table import allocate_connection
from dissector.protocols.framing.row_output import (
    HANDSHAKE_FRAMES,
    append_bytes,
    direction_of,
    emit_frame,
    reserve,
    start_frame,
    touch_frame,
)
from dissector.protocols.framing.state import (
    COUNTER_ARENA_NEEDED,
    COUNTER_ARENA_USED,
    FramingState,
    RoleSource,
    RoleState,
    new_state,
)
from dissector.stream.columns import ENDED_RST, RETRANSMITTED
from tests.wire.ranges import WHOLE, Ranges, framed
from tests.wire.toy import EITHER, LIMIT, SPEC, TO_BROKER, TO_CLIENT, frame


def state_of(arena_bytes: int = 1000) -> FramingState:
    """A state in which connection 7 has row 0."""
    state = new_state(4, arena_bytes)
    assert allocate_connection(state, 7, 0, 0, 100) == 0
    return state


def test_the_direction_is_unknown_until_the_role_is_decided() -> None:
    state = state_of()
    assert state.connections.role[0] == RoleState.PROVISIONAL
    assert [direction_of(state, 0, endpoint_index) for endpoint_index in (0, 1)] == [2, 2]
    state.connections.role[0] = RoleState.DECIDED
    assert [direction_of(state, 0, endpoint_index) for endpoint_index in (0, 1)] == [0, 1]
    state.connections.client_endpoint[0] = 1
    assert [direction_of(state, 0, endpoint_index) for endpoint_index in (0, 1)] == [1, 0]


def test_a_frame_takes_packets_and_times_of_its_first_and_last_byte() -> None:
    state = state_of()
    script = Ranges().send(b"a" * 10).send(b"b" * 10, flags=WHOLE | RETRANSMITTED).send(b"c")
    ranges = script.columns()
    start_frame(state, 1, ranges, 0, 4)
    touch_frame(state, 1, ranges, 1)
    _, out = new_frame_columns(3)
    emit_frame(state, out, 2, 1, 30, COMPLETE)
    row = {name: int(getattr(out, name)[2]) for name in out._fields}
    assert row["stream_offset"] == 4
    assert (row["first_packet"], row["last_packet"]) == (1, 2)
    assert (row["first_ts_ns"], row["last_ts_ns"]) == (1000, 2000)
    assert (row["connection_id"], row["endpoint_index"], row["frame_no"], row["frame_bytes"]) == (
        7,
        1,
        1,
        30,
    )
    assert row["retransmitted"] == RETRANSMITTED and row["command"] == NULL
    assert state.directions.frames[1] == 1 and state.directions.decoded_bytes[1] == 30


def test_a_frame_is_released_by_the_packet_that_let_its_last_bytes_out() -> None:
    script = Ranges().open().send(frame(TO_BROKER, b"12345678")[:7])
    script.send(frame(TO_BROKER, b"12345678")[7:] + frame(EITHER)).send(frame(EITHER, b"1")[:6])
    output, _ = framed((SPEC,), script.fin().close())
    assert output.values("release_packet", "status") == [
        (3, COMPLETE),
        (3, COMPLETE),
        (6, CUT_BY_END),
    ]


def test_an_earlier_packet_does_not_become_the_last_one() -> None:
    """Bytes in the middle may have been captured late."""
    state = state_of()
    ranges = Ranges().send(b"a").send(b"b").columns()
    start_frame(state, 0, ranges, 1, 0)
    touch_frame(state, 0, ranges, 0)
    assert (state.directions.last_packet[0], state.directions.last_ts[0]) == (2, 2000)


@pytest.mark.parametrize("status", [CUT_BY_GAP, CUT_BY_END])
def test_only_whole_frames_count_as_decoded(status: int) -> None:
    state = state_of()
    _, out = new_frame_columns(1)
    emit_frame(state, out, 0, 0, 30, status)
    assert state.directions.decoded_bytes[0] == 0 and state.directions.frames[0] == 1


@given(st.lists(st.tuples(st.integers(0, 7), st.binary(min_size=1, max_size=90)), max_size=80))
def test_the_arena_keeps_the_bytes_of_every_direction(steps: list[tuple[int, bytes]]) -> None:
    state = state_of(4000)
    naive = [b""] * 8
    for direction_index, data in steps:
        needed = len(naive[direction_index]) + len(data)
        used = int(state.counters[COUNTER_ARENA_USED])
        if not reserve(state, direction_index, needed):
            # Nothing was changed, and it says how much would do.
            assert state.counters[COUNTER_ARENA_USED] == used
            assert state.counters[COUNTER_ARENA_NEEDED] >= needed
            break
        append_bytes(state, direction_index, np.frombuffer(b".." + data, np.uint8), 2, len(data))
        naive[direction_index] += data
        for each in range(8):
            at, have = int(state.directions.arena_at[each]), int(state.directions.have[each])
            assert state.arena[at : at + have].tobytes() == naive[each]
            assert have <= state.directions.arena_room[each]
        assert state.counters[COUNTER_ARENA_USED] <= 4000


def test_a_growing_frame_costs_no_more_than_twice_its_bytes() -> None:
    state = state_of(1 << 16)
    buffered = np.zeros(100, np.uint8)
    for number in range(200):
        assert reserve(state, 0, 100 * (number + 1))
        append_bytes(state, 0, buffered, 0, 100)
    assert state.counters[COUNTER_ARENA_USED] <= 2 * 20_000


def test_events_are_rows_without_a_number() -> None:
    script = Ranges().open().send(frame(TO_BROKER)).lose(9).fin().close(cause=ENDED_RST)
    output, _ = framed((SPEC,), script)
    events = [
        (row["command"], row["stream_offset"], row["frame_bytes"], row["data_bytes"])
        for row in output.rows
        if row["frame_no"] == NULL
    ]
    size = len(frame(TO_BROKER))
    end = size + 9
    assert events == [
        (FrameEvent.GAP, size, 9, 0),
        (FrameEvent.FIN, end, 0, 0),
        (FrameEvent.CLOSE, end, 0, 0),
    ]
    assert output.rows[-1]["status"] == ENDED_RST


def test_a_command_confirms_the_role_of_the_syn() -> None:
    output, framing = framed((SPEC,), Ranges().open().send(frame(TO_BROKER)).send(frame(EITHER)))
    assert output.values("direction") == [(0,), (0,)]
    state = framing.state.connections
    assert (state.role[0], state.role_source[0]) == (RoleState.DECIDED, RoleSource.BY_SYN)


def test_a_command_contradicts_the_syn_for_earlier_frames_too() -> None:
    script = Ranges().open().send(frame(EITHER)).send(frame(TO_CLIENT)).send(frame(TO_BROKER), 1)
    output, framing = framed((SPEC,), script)
    assert output.values("endpoint_index", "direction") == [(0, 1), (0, 1), (1, 0)]
    assert framing.state.connections.role_source[0] == RoleSource.BY_COMMAND


def test_limits_are_announced_in_first_frames_only_and_bounded() -> None:
    def limits_after(frames: int, size: int) -> list[int]:
        script = Ranges().open().send(frame(TO_BROKER))
        for _ in range(frames):
            script.send(frame(TO_CLIENT), endpoint_index=1)
        script.send(frame(LIMIT, size.to_bytes(4, "big")), endpoint_index=1)
        _, framing = framed((SPEC,), script)
        limits: list[int] = framing.state.directions.limit[:2].tolist()
        return limits

    default = limits_after(0, 5)  # never lowered
    assert limits_after(0, 20_000_000) == [20_000_000] * 2
    assert limits_after(0, 2_000_000_000) == [MAX_FRAME_BYTES_HARD] * 2
    assert limits_after(HANDSHAKE_FRAMES + 1, 20_000_000) == default
