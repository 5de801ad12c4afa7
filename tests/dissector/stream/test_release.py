"""What leaves, in which order; what is given up when too much waits; how connections close."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NODE_CHARGE_BYTES
from dissector.stream.columns import RangeKind
from dissector.stream.release import give_up_oldest, relieve
from dissector.stream.state import new_state
from tests.dissector.stream.traffic import Shape, assert_like_naive, conversation
from tests.wire.packets import SYN
from tests.wire.segments import (
    FIN_ACK,
    SMALL,
    SYN_ACK,
    Packet,
    StreamRange,
    handshake,
    is_again,
    streamed,
)


def test_a_connection_opens_gives_its_bytes_and_closes() -> None:
    packets = [
        *handshake(),
        Packet(5, 0, 1001, b"question", 5001),
        Packet(6, 1, 5001, b"answer", 1009),
        Packet(7, 0, 1009, b"", 5007, FIN_ACK),
        Packet(8, 1, 5007, b"", 1010, FIN_ACK),
    ]
    released = streamed(packets)
    rows = [
        (row["kind"], row["endpoint_index"], row["stream_offset"], row["data"], row["packet"])
        for row in released.ranges
    ]
    assert rows == [
        (RangeKind.DATA, 0, 0, b"question", 4),
        (RangeKind.DATA, 1, 0, b"answer", 5),
        (RangeKind.FIN, 0, 8, b"", 6),
        (RangeKind.FIN, 1, 6, b"", 7),
        (RangeKind.CLOSE, 0, 0, b"", 7),
    ]
    assert not any(is_again(row) for row in released.ranges)


@settings(max_examples=40)
@given(st.integers(0, 1 << 32).map(random.Random))
def test_both_sides_leave_merged_by_turn(generator: random.Random) -> None:
    """Within a window no hole is given up: the order is that of turns, side by side."""
    shape = Shape(steps=40, jitter_ms=40, again=0.2, pause_ms=1)
    packets = conversation(generator, shape).packets
    assert packets[-1].ms < 190
    turns = [0, 0]
    last = 0
    for row in streamed(packets).ranges:
        if row["kind"] in (RangeKind.DATA, RangeKind.FIN):
            turns[row["endpoint_index"]] = max(turns[row["endpoint_index"]], row["packet"])
            assert turns[row["endpoint_index"]] >= last
            last = turns[row["endpoint_index"]]


@settings(max_examples=40)
@given(st.integers(0, 1 << 32).map(random.Random))
def test_what_leaves_is_marked_as_sent_again_or_out_of_order(generator: random.Random) -> None:
    shape = Shape(steps=40, jitter_ms=40, again=0.3, copied=0.2, wraps=0)
    packets = conversation(generator, shape).packets
    isn = {packet.endpoint_index: packet.sequence for packet in packets if packet.flags & SYN}
    for endpoint_index in (0, 1):
        must, may = marks(
            [packet for packet in packets if packet.endpoint_index == endpoint_index],
            isn[endpoint_index] + 1,
        )
        marked = {
            offset
            for row in streamed(packets).ranges
            if row["endpoint_index"] == endpoint_index
            and row["kind"] == RangeKind.DATA
            and is_again(row)
            for offset in range(row["stream_offset"], row["stream_offset"] + row["length"])
        }
        assert must <= marked <= may


def marks(packets: list[Packet], origin: int) -> tuple[set[int], set[int]]:
    """Offsets that must be marked, because they came late; those that may be, because their segment
    was sent again in part, or came early."""
    brought: dict[int, set[int]] = {}
    must: set[int] = set()
    may: set[int] = set()
    known: set[int | None] = set()
    top = 0
    for packet in packets:
        if packet.ip_id in known:
            continue  # the tap's copy
        known.add(packet.ip_id)
        start = packet.sequence - origin
        offsets = range(start, start + len(packet.payload))
        fresh = {offset for offset in offsets if offset not in brought}
        must |= {offset for offset in fresh if offset < top}
        for offset in offsets:
            if offset in brought:
                may |= brought[offset]
        brought.update(dict.fromkeys(fresh, fresh))
        if any(offset not in brought for offset in range(start)):
            may |= fresh
        if packet.payload or packet.flags & FIN_ACK == FIN_ACK:
            top = max(top, start + len(packet.payload))
    return must, must | may


def holes(count: int, size: int, port: int = 40000) -> list[Packet]:
    """Segments with a byte missing before each."""
    return [
        Packet(10 + number, 0, 1002 + number * (size + 1), bytes(size), 5001, port=port)
        for number in range(count)
    ]


def test_a_connection_holds_no_more_than_its_limit() -> None:
    options = SMALL._replace(held_bytes_per_connection=10_000)
    packets = [*handshake(), *holes(200, 100)]
    released = streamed(packets, options, cuts=range(len(packets)))
    assert 5_000 < released.held <= 10_000
    assert released.codes().count("held_bytes_limit") > 100
    # Nothing but the missing bytes is lost.
    assert released.stream_ranges(0, 0) == [
        piece
        for number in range(200)
        for piece in (
            StreamRange("lost", 101 * number, 1),
            StreamRange("data", 101 * number + 1, 100, bytes(100)),
        )
    ]


def test_all_connections_together_hold_no_more_than_the_limit() -> None:
    options = SMALL._replace(held_bytes=50_000)
    packets = []
    for port in range(40000, 40040):
        packets += handshake(port=port)
    for number in range(30):
        packets += [
            Packet(10 + number, 0, 1002 + number * 101, bytes(100), 5001, port=port)
            for port in range(40000, 40040)
        ]
    released = streamed(packets, options, cuts=range(len(packets)))
    assert released.held <= 50_000 + 100 + NODE_CHARGE_BYTES
    assert "held_bytes_limit" in released.codes()
    for connection in range(40):
        assert released.direction(connection, 0)["gap_bytes"] == 30
        assert released.data(connection, 0) == bytes(3000)


def test_tiny_segments_are_charged_too() -> None:
    """One far byte per packet may not fill the memory with what is known about it."""
    options = SMALL._replace(held_bytes_per_connection=100_000)
    packets = [*handshake()] + [
        Packet(10, 0, 1002 + 2 * number, b"x", 5001) for number in range(3000)
    ]
    released = streamed(packets, options, cuts=range(0, 3000, 10))
    assert released.held <= 100_000
    assert released.direction(0, 0)["gap_bytes"] == 3000


def test_the_start_of_a_midstream_side_is_settled_under_pressure_without_a_gap() -> None:
    options = SMALL._replace(held_bytes_per_connection=5_000)
    packets = [Packet(1, 0, 9000 + 1000 * n, bytes(1000), 1) for n in range(20)]
    released = streamed(packets, options, cuts=range(20))
    assert released.stream_ranges() == [StreamRange("data", 0, 20_000, bytes(20_000))]
    assert released.held <= 5_000
    assert released.codes() == []


def test_nothing_is_relieved_where_nothing_waits() -> None:
    state = new_state(SMALL)
    assert relieve(state) == 0
    assert not give_up_oldest(state, 0)


def test_a_zero_window_still_open_at_the_end_counts_until_the_last_packet() -> None:
    packets = [
        *handshake(),
        Packet(10, 1, 5001, b"", 1001, window=0),
        Packet(40, 0, 1000, b"", 5001),
    ]
    released = streamed(packets)
    assert released.direction(0, 1)["zero_window_ns"] == 30_000_000
    assert released.direction(0, 0)["zero_window_ns"] == 0
    assert released.connections[0]["history"].endswith("w")


@settings(max_examples=25)
@given(st.integers(0, 1 << 32).map(random.Random))
def test_full_blocks_of_rows_change_nothing(generator: random.Random) -> None:
    """With 64 rows per block one packet's release stops and goes on several times."""
    packets = [Packet(1, 0, 1000, flags=SYN), Packet(2, 1, 5000, b"", 1001, SYN_ACK)]
    order = list(range(1, 300))
    generator.shuffle(order)
    packets += [Packet(3, 0, 1001 + 3 * number, b"abc", 5001) for number in order]
    packets.append(Packet(4, 0, 1001, b"abc", 5001))
    few, many = streamed(packets), streamed(packets, SMALL._replace(block_rows=4096))
    assert (
        few.stream_ranges() == many.stream_ranges() == [StreamRange("data", 0, 900, b"abc" * 300)]
    )
    assert few.times(RangeKind.DATA) == many.times(RangeKind.DATA) == [len(packets)] * 300
    assert_like_naive(few, packets)
    assert few.times(RangeKind.GAP_LOST) == []
