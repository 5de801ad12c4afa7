"""Frames are the same however the stream was cut; gaps cost exactly what they cover."""

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.protocols.columns import COMPLETE, CUT_BY_END, CUT_BY_GAP, CUT_BY_SNAPLEN, FrameEvent
from dissector.stream.columns import TWO_WAY
from tests.wire.ranges import WHOLE, Ranges, framed
from tests.wire.toy import EITHER, LIMIT, SPEC, TO_BROKER, frame

SPECS = (SPEC,)
IDENTITY = ("stream_offset", "frame_bytes", "status", "direction", "data")


def script_of(stream: bytes, cuts: list[int]) -> Ranges:
    script = Ranges().open()
    edges = [0, *sorted(set(cuts) - {0, len(stream)}), len(stream)]
    for start, stop in itertools.pairwise(edges):
        script.send(stream[start:stop])
    return script.close()


def frames_of(sizes: list[int]) -> list[bytes]:
    return [frame(TO_BROKER, bytes(index & 0xFF for index in range(size))) for size in sizes]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 200), min_size=1, max_size=40),
    st.lists(st.integers(0, 5000), max_size=60),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_frames_are_the_same_however_the_stream_is_cut(sizes, cuts, blocks):
    frames = frames_of(sizes)
    stream = b"".join(frames)
    script = script_of(stream, [cut for cut in cuts if cut < len(stream)])
    output, _ = framed(SPECS, script, [block for block in blocks if block < len(script.rows)])
    offset = 0
    expected = []
    for each in frames:
        expected.append((offset, len(each), COMPLETE, 0, each))
        offset += len(each)
    assert output.values(*IDENTITY) == expected
    assert [row["frame_no"] for row in output.frames()] == list(range(1, len(frames) + 1))


def test_every_byte_in_a_packet_of_its_own_gives_the_packets_of_each_frame():
    frames = frames_of([0, 1, 30])
    stream = b"".join(frames)
    output, _ = framed(SPECS, script_of(stream, list(range(1, len(stream)))))
    packet = 2  # the first packet opened the connection
    for row, each in zip(output.frames(), frames, strict=True):
        assert (row["first_packet"], row["last_packet"]) == (packet, packet + len(each) - 1)
        assert (row["first_ts_ns"], row["last_ts_ns"]) == (
            row["first_packet"] * 1000,
            row["last_packet"] * 1000,
        )
        packet += len(each)


def test_frames_and_events_say_whether_both_directions_were_captured_by_then():
    one, two, three = frames_of([1, 2, 3])
    script = Ranges().open().send(one).send(two, flags=WHOLE | TWO_WAY).send(three).fin().close()
    output, _ = framed(SPECS, script)
    assert [row["is_two_way"] for row in output.rows] == [0, 1, 1, 1, 1]


def test_a_gap_inside_a_frame_costs_that_frame_and_no_other():
    first, second, third = frames_of([10, 100, 10])
    script = Ranges().open().send(first + second[:40]).lose(30).send(second[70:] + third).close()
    output, framing = framed(SPECS, script)
    assert output.values("frame_bytes", "status", "data_bytes") == [
        (len(first), COMPLETE, len(first)),
        (len(second), CUT_BY_GAP, 40),
        (len(third), COMPLETE, len(third)),
    ]
    assert [row["command"] for row in output.rows if row["frame_no"] < 0] == [
        FrameEvent.GAP,
        FrameEvent.CLOSE,
    ]
    assert framing.notices.rows() == []


def test_a_gap_says_whether_frames_are_missing_with_it():
    first, second, third, fourth = frames_of([10, 100, 100, 10])
    script = Ranges().open().send(first + second[:40]).lose(10).lose(20).send(second[70:])
    script.send(third[:40]).lose(len(third) - 40).send(fourth).lose(7).send(first)
    script.send(second[:9]).lose(len(second) + 9).send(third).close()
    output, _ = framed(SPECS, script)
    gaps = [row["frames_missing"] for row in output.rows if row["command"] == FrameEvent.GAP]
    assert gaps == [0, 0, 0, 1, 1]


def test_a_gap_over_a_header_is_searched_and_the_skipped_bytes_are_counted():
    frames = frames_of([50] * 8)
    stream = b"".join(frames)
    size = len(frames[0])
    script = Ranges().open().send(stream[: 2 * size + 20]).lose(size).send(stream[3 * size + 20 :])
    output, framing = framed(SPECS, script.close())
    assert [row["stream_offset"] // size for row in output.frames()] == [0, 1, 2, 4, 5, 6, 7]
    assert output.frames()[2]["status"] == CUT_BY_GAP
    reported = [(each.code, each.value) for each in framing.notices.rows()]
    assert reported == [("resync", size - 20), ("resync_unconfirmed", size - 20)]


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_cut_header_of_three_bytes_is_no_frame(lost):
    first, second = frames_of([10, 10])
    script = Ranges().open().send(first + second[:lost]).lose(len(second) - lost).close()
    output, _ = framed(SPECS, script)
    assert output.values("status") == [(COMPLETE,)]


def test_a_header_of_four_bytes_is_a_frame_of_unknown_command():
    first, second = frames_of([10, 10])
    script = Ranges().open().send(first + second[:4]).lose(len(second) - 4).close()
    output, _ = framed(SPECS, script)
    assert output.values("status", "frame_bytes", "data_bytes") == [
        (COMPLETE, len(first), len(first)),
        (CUT_BY_GAP, len(second), 4),
    ]


def test_a_frame_cut_by_the_snap_length_ends_with_the_packet_that_carried_its_end():
    first, second, third = frames_of([100, 100, 10])
    script = Ranges().open().send(first[:60]).cut(46).send(second[:60]).cut(46).send(third).close()
    output, _ = framed(SPECS, script)
    assert output.values("status", "last_packet") == [
        (CUT_BY_SNAPLEN, 3),
        (CUT_BY_SNAPLEN, 5),
        (COMPLETE, 6),
    ]


def test_an_unfinished_frame_comes_out_at_the_end():
    first, second = frames_of([10, 100])
    output, _ = framed(SPECS, Ranges().open().send(first + second[:50]).fin().close())
    assert output.values("status", "data_bytes") == [(COMPLETE, len(first)), (CUT_BY_END, 50)]
    assert [row["command"] for row in output.rows if row["frame_no"] < 0] == [
        FrameEvent.FIN,
        FrameEvent.CLOSE,
    ]


def test_a_length_is_never_believed_before_its_bytes_are_there():
    huge = (5_000_000).to_bytes(4, "big") + bytes([0x42, TO_BROKER])
    script = Ranges().open().send(huge)
    for _ in range(50):
        script.send(b"x" * 100)
    output, framing = framed(SPECS, script)
    assert framing.pending_bytes() < 100_000
    assert output.frames() == []


def test_an_announced_limit_lets_longer_frames_in():
    announced = frame(LIMIT, (20_000_000).to_bytes(4, "big"))
    long = frame(EITHER, bytes(6_000_000))
    script = (
        Ranges()
        .open()
        .send(frame(TO_BROKER))
        .send(announced, endpoint_index=1)
        .send(long, endpoint_index=1)
    )
    output, _ = framed(SPECS, script.close())
    assert output.values("frame_bytes", "status")[-1] == (len(long), COMPLETE)


def test_many_connections_share_one_kernel_without_mixing():
    generator = random.Random(5)
    script = Ranges()
    streams = {}
    for connection in range(3000):
        script.open(connection)
        streams[connection] = b"".join(frames_of([connection % 50, 5]))
    for connection in generator.sample(sorted(streams), len(streams)):
        stream = streams[connection]
        cut = generator.randrange(1, len(stream))
        script.send(stream[:cut], connection=connection)
    for connection, stream in streams.items():
        done = script.offsets[connection, 0]
        script.send(stream[done:] or b"", connection=connection)
    output, _ = framed(SPECS, script, [len(script.rows) // 3, len(script.rows) // 2])
    by_connection: dict[int, list[bytes]] = {}
    for row in output.frames():
        by_connection.setdefault(row["connection_id"], []).append(row["data"])
    assert {key: b"".join(value) for key, value in by_connection.items()} == streams
