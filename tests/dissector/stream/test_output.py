"""Rows of ranges and notices as the kernels write them."""

from dissector.limits import NULL
from dissector.notices import NOTICE_NUMBER
from dissector.stream.columns import (
    ENDPOINT_BITS,
    ENDPOINT_MASK,
    TWO_WAY,
    RangeColumns,
    RangeKind,
)
from dissector.stream.output import Range, note, put_range
from dissector.stream.state import StreamState, new_state
from tests.wire.segments import SMALL


def state_of_connection_7() -> StreamState:
    state = new_state(SMALL)
    state.connections.connection_id[0] = 7
    state.connections.last_ts_ns[0] = 123
    state.counters.packet[0] = 55
    return state


def test_a_range_is_a_row_of_its_connection_and_the_packet_at_hand() -> None:
    state = state_of_connection_7()
    put_range(state, 1, Range(RangeKind.DATA, 100, 20, 2, 30, 50, 40, 3, 0))
    put_range(state, 0, Range(RangeKind.DATA, 0, 1, 0, 0, 51, 41, 0, 4))
    assert state.counters.ranges[0] == 2
    found = {name: getattr(state.ranges, name)[:2].tolist() for name in state.ranges._fields}
    assert found == {
        "connection": [7, 7],
        "endpoint_index": [1, 0],
        "kind": [RangeKind.DATA, RangeKind.DATA],
        "stream_offset": [100, 0],
        "length": [20, 1],
        "source": [2, 0],
        "offset": [30, 0],
        "packet": [50, 51],
        "ts_ns": [40, 41],
        "flags": [3, 0],
        "cause": [0, 4],
        "opener": [0, 0],
        "ports": [0, 0],
        "endpoint_hashes": [0, 0],
        "release_packet": [55, 55],
    }


def test_a_range_says_whether_both_directions_have_packets() -> None:
    state = state_of_connection_7()
    for packets, flags in (((0, 0), 3), ((1, 0), 3), ((0, 1), 3), ((1, 1), 3 | TWO_WAY)):
        state.directions.packets[:2] = packets
        put_range(state, 1, Range(RangeKind.DATA, 0, 1, 0, 0, 51, 41, 3, 4))
        assert state.ranges.flags[state.counters.ranges[0] - 1] == flags


def test_a_range_says_ports_and_hashes_of_both_sides() -> None:
    state = state_of_connection_7()
    state.connections.ports[0] = 4 << 32 | 6650 << 16 | 40000
    state.connections.endpoint_hashes[0] = ENDPOINT_MASK << ENDPOINT_BITS | 3
    for is_upper, ports, hashes in (
        (0, (6650, 40000), (ENDPOINT_MASK, 3)), (1, (40000, 6650), (3, ENDPOINT_MASK)),
    ):  # fmt: skip
        state.connections.endpoint0_is_upper[0] = is_upper
        put_range(state, 1, Range(RangeKind.DATA, 0, 1, 0, 0, 51, 41, 0, 4))
        row = int(state.counters.ranges[0]) - 1
        assert divmod(int(state.ranges.ports[row]), 1 << 16) == ports
        assert divmod(int(state.ranges.endpoint_hashes[row]), 1 << ENDPOINT_BITS) == hashes


def test_a_notice_counts_bytes_only_where_it_has_a_place() -> None:
    state = state_of_connection_7()
    note(state, 0, NOTICE_NUMBER["gap_lost"], 1, 200, 12)
    note(state, 0, NOTICE_NUMBER["connection_limit"], NULL, NULL, 3)
    assert state.notices.used[0] == 2
    notices = state.notices.rows
    assert notices.bytes[:2].tolist() == [12, NULL]
    assert notices.value[:2].tolist() == [12, 3]
    assert notices.direction[:2].tolist() == [1, NULL]
    assert notices.packet[:2].tolist() == [55, 55]
    assert notices.ts_ns[:2].tolist() == [123, 123]
    assert notices.frame_no[:2].tolist() == [NULL, NULL]


def test_columns_have_the_room_that_was_asked_for() -> None:
    assert RangeColumns.new(9).matrix.shape == (len(RangeColumns._fields), 9)
