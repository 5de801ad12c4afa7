"""Room in the state: it grows with what is seen, addresses stay, freed rows come again."""

import numpy as np
import pytest

from dissector.stream.columns import RangeKind
from dissector.stream.records import NODE_FREE, OVERLAP_LINUX
from dissector.stream.state import StreamOptions, add_heap, add_nodes, add_rows, new_state
from dissector.stream.streams import Streams
from tests.wire.segments import SMALL, Packet, columns_of, handshake, streamed


def test_options_become_settings_in_nanoseconds() -> None:
    options = StreamOptions(
        reorder_window_ms=7, unacked_hole_ms=3, idle_timeout_ms=11, held_bytes=13, overlap="linux",
        held_bytes_per_connection=17, connections=19, brief_connections=23, vlan_in_key=True,
        notes_places=True,
    )  # fmt: skip
    settings = new_state(options).settings
    assert {name: int(getattr(settings, name)[0]) for name in settings._fields} == {
        "reorder_window_ns": 7_000_000,
        "unacked_hole_ns": 7_000_000,  # never less than the window
        "idle_timeout_ns": 11_000_000,
        "held_bytes": 13,
        "held_bytes_per_connection": 17,
        "connections": 19,
        "brief_connections": 23,
        "overlap": OVERLAP_LINUX,
        "vlan_in_key": 1,
        "notes_places": 1,
    }


def test_an_unknown_policy_is_an_error() -> None:
    with pytest.raises(ValueError):
        new_state(StreamOptions(overlap="solaris"))


def test_new_rows_and_nodes_are_free() -> None:
    state = new_state(SMALL)
    rows = len(state.connections.matrix)
    assert state.free_connections.free[0] == rows
    add_rows(state, 10)
    assert sorted(state.free_connections.rows.tolist()) == list(range(rows + 10))
    assert state.free_connections.free[0] == rows + 10
    assert len(state.directions.matrix) == 2 * (rows + 10)
    assert len(state.index) >= 2 * (rows + 10) and len(state.index) & (len(state.index) - 1) == 0
    nodes = len(state.nodes.matrix)
    add_nodes(state, 5)
    assert sorted(state.free_nodes.rows.tolist()) == list(range(nodes + 5))
    assert (state.nodes.kind == NODE_FREE).all()


def test_growing_keeps_what_is_there() -> None:
    """More connections than rows, and each waits with data that must survive the growth."""
    packets = []
    for port in range(2000, 3500):
        packets += [*handshake(port=port), Packet(10, 0, 1004, port.to_bytes(3, "big"), port=port)]
    packets += [Packet(20, 0, 1001, b"abc", port=port) for port in range(2000, 3500)]
    packets.sort(key=lambda packet: packet.ms)
    released = streamed(packets)
    assert len(released.connections) == 1500
    for number in range(1500):
        port = released.connections[number]["ports"][0]
        assert released.data(number) == b"abc" + port.to_bytes(3, "big")


def test_a_squeezed_heap_keeps_the_bytes_of_waiting_nodes() -> None:
    state = new_state(SMALL)
    state.heap[:100] = np.arange(100)
    for node, (at, length) in enumerate([(50, 10), (10, 5), (70, 3)]):
        state.nodes.kind[node] = RangeKind.DATA
        state.nodes.heap_at[node] = at
        state.nodes.length[node] = length
    state.counters.heap_live[0] = 18
    state.counters.heap_used[0] = 100
    add_heap(state, 1000)
    assert state.counters.heap_used[0] == 18
    held = []
    for node, length in enumerate([10, 5, 3]):
        at = int(state.nodes.heap_at[node])
        held.append(state.heap[at : at + length].tolist())
    assert held == [list(range(50, 60)), list(range(10, 15)), list(range(70, 73))]


def test_the_heap_stays_in_proportion_to_what_waits() -> None:
    """Holes that open and close for ever do not let it grow."""
    streams = Streams(SMALL)
    step = 3000
    sent = 0
    for round_no in range(60):
        packets = [] if round_no else list(handshake())
        for number in range(30):
            at = 1001 + sent
            packets.append(
                Packet(10 + 40 * round_no + number, 0, at + 1, bytes(step - 1), 5001, ip_id=number)
            )
            packets.append(Packet(10 + 40 * round_no + number, 0, at, b"x", 5001, ip_id=number))
            sent += step
        segments, buffers = columns_of(packets)
        for _ in streams.advance(segments, len(packets), buffers):
            pass
    assert len(streams.heap) == 1 << 20
    assert streams.held_bytes == 0
