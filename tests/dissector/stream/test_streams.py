"""The streams of a capture as their user sees them: blocks, slots, rows, recycling."""

import numpy as np

from dissector.limits import NULL
from dissector.stream.columns import ENDED_CAPTURE_END, ENDED_FIN, RangeKind
from dissector.stream.streams import Streams
from tests.wire.segments import FIN_ACK, SMALL, Packet, StreamRange, columns_of, handshake, streamed


def advanced(streams: Streams, packets: list[Packet]) -> int:
    """Take packets in; returns how many ranges came out."""
    segments, buffers = columns_of(packets)
    return sum(rows for _, rows in streams.advance(segments, len(packets), buffers))


def test_blocks_are_no_longer_than_asked_for() -> None:
    packets = list(handshake())
    packets += [Packet(10 + n, 0, 1001 + n, b"x", 5001) for n in range(1000)]
    segments, buffers = columns_of(packets)
    sizes = [rows for _, rows in Streams(SMALL).advance(segments, len(packets), buffers)]
    assert sum(sizes) == 1000
    assert max(sizes) <= 72 and len(sizes) >= 14


def test_a_block_size_of_one_still_works() -> None:
    packets = [*handshake(), Packet(10, 0, 1001, b"abc", 5001)]
    assert streamed(packets, SMALL._replace(block_rows=1)).data() == b"abc"


def test_slots_are_known_from_the_first_packet_to_the_recycling() -> None:
    streams = Streams(SMALL)
    for number, port in enumerate((40000, 40001, 40002)):
        advanced(streams, handshake(ms=10 * number, port=port))
    assert streams.connections_seen == 3
    slots = streams.rows_of(np.array([0, 1, 2, 3, -1]))
    assert (slots[:3] >= 0).all() and slots[3:].tolist() == [-1, -1]
    rows = streams.connection_rows(slots[:3])
    assert rows.port[0].tolist() == [40000, 40001, 40002]
    assert rows.connections.connection_id.tolist() == [0, 1, 2]
    assert rows.connections.closing.tolist() == [-1] * 3
    for ranges, count in streams.finish():
        kinds = ranges.kind[:count].tolist()
        assert kinds == [RangeKind.CLOSE] * 3
        retired = streams.retired()
        assert sorted(retired.tolist()) == sorted(slots[:3].tolist())
        assert (streams.connection_rows(retired).connections.closing == ENDED_CAPTURE_END).all()
    streams.recycle()
    assert streams.retired().tolist() == []
    assert streams.rows_of(np.array([0, 1, 2])).tolist() == [-1, -1, -1]


def test_rows_are_copies() -> None:
    streams = Streams(SMALL)
    advanced(streams, handshake())
    before = streams.connection_rows(streams.rows_of(np.array([0])))
    packets = before.directions[0].packets.copy()
    advanced(streams, [Packet(10, 0, 1001, b"abc", 5001)])
    assert (before.directions[0].packets == packets).all()


def test_endpoints_are_those_of_the_sides() -> None:
    streams = Streams(SMALL)
    advanced(streams, handshake())
    # The lower endpoint is the client here; below it is the broker.
    advanced(streams, [Packet(5, 1, 77, b"x", 1, port=5000)])
    rows = streams.connection_rows(streams.rows_of(np.array([0, 1])))
    assert rows.port[0].tolist() == [40000, 6650] and rows.port[1].tolist() == [6650, 5000]
    assert rows.address_low[0].tolist() == [0x0A000001, 0x0A000002]
    assert rows.address_low[1].tolist() == [0x0A000002, 0x0A000001]
    assert rows.ip_version.tolist() == [4, 4]


def test_what_is_not_known_of_a_side_is_null() -> None:
    released = streamed([Packet(1, 0, 9000, b"abc", 1)])
    silent = released.direction(0, 1)
    assert (silent["isn"], silent["first_seq"], silent["last_seq"]) == (NULL, NULL, NULL)
    mine = released.direction(0, 0)
    assert (mine["isn"], mine["first_seq"], mine["last_seq"]) == (NULL, 9000, 9003)


def test_bytes_that_wait_are_told() -> None:
    streams = Streams(SMALL)
    advanced(streams, [*handshake(), Packet(10, 0, 1004, bytes(1000), 5001)])
    assert 1000 < streams.held_bytes < 1200
    advanced(streams, [Packet(11, 0, 1001, b"abc", 5001)])
    assert streams.held_bytes == 0


def test_rebuilt_fragments_are_read_from_their_own_buffer() -> None:
    segments, buffers = columns_of([*handshake(), Packet(10, 0, 1001, b"abc", 5001)])
    segments.source[3] = 1
    segments.offset[3] = 2
    endpoint_index = np.frombuffer(b"..xyz", np.uint8).copy()
    streams = Streams(SMALL)
    found = [
        (int(ranges.source[row]), int(ranges.offset[row]), int(ranges.length[row]))
        for ranges, rows in streams.advance(segments, 4, buffers._replace(assembled=endpoint_index))
        for row in range(rows)
        if ranges.length[row]
    ]
    # The first bytes of a connection go through the heap.
    assert found == [(1, found[0][1], 3)]
    at = found[0][1]
    assert streams.heap[at : at + 3].tobytes() == b"xyz"


def test_a_closed_connection_keeps_counting_until_it_is_forgotten() -> None:
    streams = Streams(SMALL)
    packets = [
        *handshake(),
        Packet(10, 0, 1001, b"", 5001, FIN_ACK),
        Packet(11, 1, 5001, b"", 1002, FIN_ACK),
    ]
    advanced(streams, packets)
    advanced(streams, [Packet(12, 0, 1002, b"", 5002)])
    rows = streams.connection_rows(streams.rows_of(np.array([0])))
    assert rows.connections.closing.tolist() == [ENDED_FIN]
    assert rows.directions[0].packets.tolist() == [4]


def test_one_user_s_streams_are_not_another_s() -> None:
    packets = [*handshake(), Packet(10, 0, 1001, b"abc", 5001)]
    assert streamed(packets).stream_ranges() == streamed(packets).stream_ranges() == [
        StreamRange("data", 0, 3, b"abc")
    ]  # fmt: skip
