"""Connections: which packets belong together, how long they live, how many there may be."""

import pytest

from dissector.codecs.keyed_hash import new_secret
from dissector.limits import (
    CLOCK_LEAP_MS,
    IDLE_TIMEOUT_MS,
    REORDER_WINDOW_MS,
    SYN_ONLY_TIMEOUT_MS,
)
from dissector.packet.columns import PacketBuffers
from dissector.stream.columns import RangeKind
from dissector.stream.connections import key_at
from dissector.stream.streams import Streams
from tests.wire.packets import SYN
from tests.wire.segments import SMALL, Packet, columns_of, handshake, streamed

VLAN_7 = 7 | 1 << 48
VLAN_8 = 8 | 1 << 48


def test_both_directions_have_one_key() -> None:
    segments, _ = columns_of([Packet(0, 0, 1), Packet(0, 1, 1), Packet(0, 0, 1, port=40001)])
    one, other, another = (key_at(segments, row, new_secret(1)) for row in range(3))
    assert one[:-1] == other[:-1] and one.is_upper != other.is_upper
    assert one.hash != another.hash and one.ports != another.ports
    assert (one.lower_low, one.upper_low) == (0x0A000001, 0x0A000002)


@pytest.mark.parametrize("column", ["source_high", "destination_low", "source_port", "ip_version"])
def test_every_part_of_the_key_tells_connections_apart(column: str) -> None:
    segments, buffers = columns_of([Packet(0, 0, 1, b"a"), Packet(1, 0, 1, b"b")])
    getattr(segments, column)[1] += 1
    streams = Streams(SMALL)
    for _ in streams.advance(segments, 2, buffers):
        pass
    assert streams.connections_seen == 2


def test_vlans_tell_connections_apart_on_request_only() -> None:
    packets = [
        *(packet._replace(vlans=VLAN_7) for packet in handshake()),
        Packet(10, 0, 1001, b"abc", 5001, vlans=VLAN_7),
        Packet(11, 1, 5001, b"xyz", 1004, vlans=VLAN_8),
    ]
    released = streamed(packets)
    assert released.data(0, 0) == b"abc" and released.data(0, 1) == b"xyz"
    assert released.connections[0]["vlans"] == VLAN_7
    assert len(streamed(packets, SMALL._replace(vlan_in_key=True)).connections) == 2


def test_one_direction_may_be_without_vlan() -> None:
    packets = [
        Packet(0, 0, 1000, flags=SYN),
        Packet(1, 1, 5000, b"", 1001, SYN | 16, vlans=VLAN_7),
        Packet(2, 0, 1001, b"abc", 5001),
    ]
    assert streamed(packets).connections[0]["vlans"] == VLAN_7


@pytest.mark.parametrize("silence_ms", [IDLE_TIMEOUT_MS - 2000, IDLE_TIMEOUT_MS + 2000])
def test_a_silent_connection_is_over_after_a_time(silence_ms: int) -> None:
    # The clock follows a leap only when a second packet confirms it.
    packets = [*handshake(), Packet(10, 0, 1001, b"abc", 5001)]
    packets += [Packet(step, 0, 1, b"", 1, port=50000) for step in range(20, silence_ms, 1_700_000)]
    packets += [Packet(10 + silence_ms, 0, 1004, b"def", 5001)]
    released = streamed(packets)
    mine = [row for row in released.connections.values() if row["ports"][0] == 40000]
    if silence_ms < IDLE_TIMEOUT_MS:
        assert [row["ended"] for row in mine] == ["capture_end"]
        assert released.data() == b"abcdef"
    else:
        assert [row["ended"] for row in mine] == ["idle", "capture_end"]
        assert released.data() == b"abc"


def test_an_unanswered_syn_is_forgotten_earlier() -> None:
    packets = [Packet(0, 0, 1000, flags=SYN)]
    packets += [
        Packet(ms, 0, 1, b"", 1, port=50000) for ms in range(0, SYN_ONLY_TIMEOUT_MS + 3000, 1000)
    ]
    released = streamed(packets, is_finished=False)
    assert [row["ended"] for row in released.connections.values()] == ["idle"]


def test_a_wild_time_stamp_ends_nothing() -> None:
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(10 * CLOCK_LEAP_MS, 0, 1, b"", 1, port=50000),
        Packet(12, 0, 1007, b"ghi", 5001),
        Packet(13, 0, 1004, b"def", 5001),
    ]
    released = streamed(packets)
    assert released.data() == b"abcdefghi"
    assert released.connections[0]["ended"] == "capture_end"
    assert released.times(RangeKind.GAP_LOST) == []


def test_after_a_pause_the_second_packet_may_have_an_earlier_time_than_the_first() -> None:
    """Queues of a network card are read one after the other."""
    later = [packet._replace(port=50_000) for packet in handshake(ms=CLOCK_LEAP_MS + 10_000)]
    later[1] = later[1]._replace(ms=later[0].ms - 0.6)
    released = streamed([*handshake(), *later])
    assert [row["history"] for row in released.connections.values()] == ["ShA", "ShA"]


def test_a_leap_that_a_second_packet_confirms_counts() -> None:
    later = 3 * IDLE_TIMEOUT_MS
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"abc", 5001),
        Packet(later, 0, 1, b"", 1, port=50000),
        Packet(later + 1, 0, 1, b"", 1, port=50000),
    ]
    released = streamed(packets)
    assert released.connections[0]["ended"] == "idle"
    assert released.times(RangeKind.CLOSE) == [6]


def test_time_that_goes_back_ends_nothing_and_starts_no_wait() -> None:
    packets = [*handshake(ms=10_000)]
    packets += [
        Packet(10_010 - 100 * number, 0, 1001 + 3 * number, b"abc", 5001) for number in range(50)
    ]
    released = streamed(packets)
    assert released.data() == b"abc" * 50
    assert released.codes() == []


def test_only_so_many_connections_live_at_once() -> None:
    options = SMALL._replace(connections=10, brief_connections=100)
    packets = []
    for number in range(30):
        packets += handshake(ms=10 * number, port=40000 + number)
    released = streamed(packets, options)
    assert len(released.connections) == 30
    ended = [row["ended"] for _, row in sorted(released.connections.items())]
    assert ended == ["idle"] * 20 + ["capture_end"] * 10
    # Said at 1, 2, 4, 8 and 16, so that a scan does not fill the notices.
    assert [row["value"] for row in released.notices] == [1, 2, 4, 8, 16]


def test_a_scan_pushes_out_no_connection_that_talks() -> None:
    options = SMALL._replace(connections=50, brief_connections=20)
    packets = [*handshake(), Packet(9, 0, 1001, b"abc", 5001)]
    packets += [Packet(10 + n, 0, 99, flags=SYN, port=41000 + n) for n in range(500)]
    packets += [Packet(600, 0, 1004, b"def", 5001)]
    released = streamed(packets, options)
    assert released.data() == b"abcdef"
    assert released.connections[0]["ended"] == "capture_end"


def test_the_rows_of_a_scan_are_used_again() -> None:
    options = SMALL._replace(brief_connections=64)
    streams = Streams(options)
    for start in range(0, 20_000, 1000):
        packets = [Packet(start + n, 0, 99, flags=SYN, port=1024 + start + n) for n in range(1000)]
        segments, buffers = columns_of(packets)
        for _ in streams.advance(segments, 1000, buffers):
            streams.recycle()
    assert streams.connections_seen == 20_000
    assert len(streams._state.connections.matrix) <= 512


def test_holes_of_an_idle_connection_are_given_up_before_it_closes() -> None:
    packets = [*handshake(), Packet(10, 0, 1004, b"def", 5001)]
    packets += [
        Packet(ms, 0, 1, b"", 1, port=50000) for ms in range(1000, 2 * IDLE_TIMEOUT_MS, 1_700_000)
    ]
    released = streamed(packets)
    assert [(piece.kind, piece.length) for piece in released.stream_ranges()] == [
        ("lost", 3),
        ("data", 3),
    ]
    assert released.connections[0]["ended"] == "idle"


def test_connections_made_ready_by_one_packet_leave_in_the_order_of_their_ids() -> None:
    packets = []
    for port in (40002, 40000, 40001):
        packets += handshake(port=port)
    for port in (40000, 40001, 40002):
        packets += [
            Packet(10, 0, 1004, b"def", 5001, port=port),
            Packet(11, 1, 5001, b"", 1007, port=port),
        ]
    packets.append(Packet(100 + REORDER_WINDOW_MS, 0, 1, b"", 1, port=50000))
    released = streamed(packets)
    gaps = [row["connection"] for row in released.ranges if row["kind"] == RangeKind.GAP_LOST]
    assert gaps == [0, 1, 2]


def test_nothing_in_gives_nothing_out() -> None:
    segments, buffers = columns_of([])
    streams = Streams(SMALL)
    assert list(streams.advance(segments, 0, PacketBuffers(*buffers))) == []
    assert list(streams.finish()) == []
    assert streams.connections_seen == 0
