"""Recognition and resynchronisation: frames come out where bytes prove them, never invented."""

import random

import pytest

from dissector.limits import RESYNC_HOLD_MS
from dissector.protocols.columns import COMPLETE, CUT_BY_GAP
from dissector.protocols.framing.assembly import Framing, FramingOptions
from dissector.protocols.framing.range_pool import LARGE_HELD
from dissector.protocols.framing.state import HTTP, TLS, UNKNOWN
from tests.wire.ranges import Collected, Ranges, connection_in, framed
from tests.wire.toy import EITHER, PROVEN, SPEC, TO_BROKER, TO_CLIENT, frame

SPECS = (SPEC,)
HELLO = bytes.fromhex(
    "1603010044010000400303" + "00" * 32 + "00" + "0002c02f" + "0100" + "0015" + "0000000f"
    "000d00000a62726f6b65722e6c616e" + "0017" + "0000"
)


def protocol_of(framing, connection=0):
    return int(framing.state.connections.protocol[connection_in(framing, connection)])


def codes(framing):
    return [each.code for each in framing.notices.rows()]


def test_frames_on_any_port_are_recognised():
    output, framing = framed(SPECS, Ranges().open().send(frame(TO_BROKER)).close(), ports=(1, 2))
    assert len(output.frames()) == 1
    assert protocol_of(framing) == 0


@pytest.mark.parametrize(
    ("head", "protocol"),
    [(HELLO, TLS), (b"GET /metrics HTTP/1.1\r\n\r\n", HTTP), (b"\xff" * 64, UNKNOWN)],
    ids=["tls", "http", "unknown"],
)
def test_other_protocols_are_named_and_give_no_frames(head, protocol):
    script = Ranges().open().send(head).send(frame(TO_CLIENT), endpoint_index=1).send(head).close()
    output, framing = framed(SPECS, script)
    assert output.frames() == []
    assert protocol_of(framing) == protocol


def test_a_head_in_single_bytes_is_recognised_alike():
    script = Ranges().open()
    for byte in HELLO:
        script.send(bytes([byte]))
    _, framing = framed(SPECS, script.close())
    assert protocol_of(framing) == TLS
    assert framing.server_names == {0: "broker.lan"}


def test_a_connection_without_a_byte_is_not_kept():
    output, framing = framed(SPECS, Ranges().open().close())
    assert connection_in(framing) < 0 and not output.rows


@pytest.mark.parametrize(
    "header",
    [
        b"PROXY TCP4 10.9.8.7 10.0.0.2 5000 7000\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes([10, 9, 8, 7, 10, 0, 0, 2, 1, 2, 3, 4]),
    ],
    ids=["v1", "v2"],
)
def test_a_proxy_header_is_stripped_and_names_the_client(header):
    script = Ranges().open().send(header + frame(TO_BROKER, b"x")).close()
    output, framing = framed(SPECS, script)
    assert output.values("stream_offset", "status") == [(len(header), COMPLETE)]
    assert framing.proxied == {0: "10.9.8.7"}


def test_a_stream_that_starts_inside_a_frame_is_found_at_the_next_one():
    frames = [frame(PROVEN, bytes([index]) * 20) for index in range(5)]
    stream = b"".join(frames)
    output, framing = framed(SPECS, Ranges().open(from_syn=False).send(stream[7:]).close())
    size = len(frames[0])
    assert output.values("stream_offset") == [(size * index - 7,) for index in range(1, 5)]
    assert codes(framing) == ["midstream_start", "resync_unconfirmed"]
    assert framing.notices.rows()[0].value == size - 7


def test_both_directions_of_a_midstream_start_come_out_by_packet():
    script = Ranges().open(from_syn=False)
    script.send(b"\0\0\0\x50B\1" + bytes(20))  # a frame begins and is not finished yet
    script.send(frame(TO_CLIENT, b"1"), endpoint_index=1)
    script.send(bytes(0x50 - 22))
    script.send(frame(TO_BROKER, b"2")).close()
    output, _ = framed(SPECS, script)
    assert [row["last_packet"] for row in output.frames()] == [3, 4, 5]


def test_random_bytes_give_no_frame():
    generator = random.Random(3)
    script = Ranges().open(from_syn=False)
    for _ in range(60):
        script.send(generator.randbytes(1400))
    output, framing = framed(SPECS, script.close(), ports=(1, 2))
    assert output.frames() == []
    assert codes(framing) == ["not_recognised"]
    assert protocol_of(framing) == UNKNOWN


def test_a_search_on_a_known_port_holds_bounded_memory():
    generator = random.Random(4)
    script = Ranges().open(from_syn=False)
    for _ in range(400):
        script.send(generator.randbytes(1400))
    script.send(frame(PROVEN, b"there")).close()
    output, framing = framed(SPECS, script, ports=(1, 7000))
    assert output.values("data") == [(frame(PROVEN, b"there"),)]
    assert framing.notices.rows()[-1].value == 400 * 1400


def test_a_broken_header_ends_the_chain_and_the_next_proven_frame_begins_one():
    good = frame(TO_BROKER, b"good")
    proven = [frame(PROVEN, bytes([index])) for index in range(3)]
    script = Ranges().open().send(good + b"\xff" * 40 + b"".join(proven)).close()
    output, framing = framed(SPECS, script)
    assert [row["data"] for row in output.frames()] == [good, *proven]
    assert codes(framing) == ["desync", "resync", "resync_unconfirmed"]
    assert framing.notices.rows()[1].value == 40


def test_decode_as_decides_without_evidence():
    script = Ranges().open().send(b"\xff\xff").send(frame(PROVEN)).close()
    _, plain = framed(SPECS, script, ports=(1, 2))
    output, forced = framed(SPECS, script, ports=(1, 2), options=FramingOptions(forced={2: 0}))
    assert len(output.frames()) == 1
    assert protocol_of(forced) == 0
    assert protocol_of(plain) == UNKNOWN


def test_cutting_the_ranges_into_blocks_changes_nothing():
    generator = random.Random(11)
    script = Ranges()
    for connection in range(4):
        script.open(connection, from_syn=connection % 2 == 0)
    for index in range(300):
        connection = generator.randrange(4)
        endpoint_index = generator.randrange(2)
        kind = generator.choice([PROVEN, EITHER, TO_CLIENT if endpoint_index else TO_BROKER])
        data = frame(kind, generator.randbytes(generator.randrange(80)))
        if generator.random() < 0.1:
            script.lose(generator.randrange(1, 60), endpoint_index, connection)
        cut = generator.randrange(len(data) + 1)
        for part in (data[:cut], data[cut:]):
            if part:
                script.send(part, endpoint_index, connection)
        if index % 100 == 99:
            script.fin(endpoint_index, connection)
    for connection in range(4):
        script.close(connection)
    names = (
        "frame_no", "connection_id", "stream_offset", "frame_bytes", "status", "direction",
        "first_packet", "last_packet", "release_packet", "data",
    )  # fmt: skip
    whole, first = framed(SPECS, script)
    assert len(whole.frames()) > 150
    for seed in range(5):
        edges = sorted(random.Random(seed).sample(range(1, len(script.rows)), 40))
        parts, second = framed(SPECS, script, edges)
        assert parts.values(*names) == whole.values(*names)
        assert first.notices.rows() == second.notices.rows()


def test_an_unfinished_frame_is_given_up_when_all_hold_too_much(monkeypatch):
    monkeypatch.setattr("dissector.protocols.framing.assembly.MAX_PENDING_ARENA_BYTES", 9 << 20)
    long = frame(EITHER, bytes(4 << 20))
    script = Ranges()
    for connection in range(4):
        script.open(connection)
    for start in range(0, len(long), 1 << 18):
        for connection in range(4):
            script.send(long[start : start + (1 << 18)], connection=connection)
    for connection in range(4):
        script.send(frame(TO_BROKER, b"behind"), connection=connection).close(connection)
    output, framing = framed(SPECS, script)
    statuses = {}
    for row in output.frames():
        statuses.setdefault(row["connection_id"], []).append(row["status"])
    assert all(each in ([COMPLETE] * 2, [CUT_BY_GAP, COMPLETE]) for each in statuses.values())
    cut = sum(each[0] == CUT_BY_GAP for each in statuses.values())
    assert 0 < cut < 4
    assert codes(framing) == ["unfinished_frames_limit"] * cut
    sizes = [row["frame_bytes"] for row in output.frames() if row["status"] == CUT_BY_GAP]
    assert set(sizes) == {len(long)}


def test_a_direction_does_not_wait_for_a_silent_one_for_ever():
    script = (
        Ranges().open().send(frame(TO_BROKER, b"a")).send(frame(PROVEN, b"b"), endpoint_index=1)
    )
    script.lose(10).send(frame(PROVEN, b"c"))
    for _ in range(3):
        script.send(frame(PROVEN, b"d"), endpoint_index=1)
    script.packet += RESYNC_HOLD_MS * 1000  # a packet takes a microsecond
    script.send(frame(PROVEN, b"e"), endpoint_index=1)
    late = script.packet
    script.packet += 1000
    script.close()
    output, framing = framed(SPECS, script)
    assert [row["data"][6:7] for row in output.frames()] == [
        b"a",
        b"b",
        b"c",
        b"d",
        b"d",
        b"d",
        b"e",
    ]
    assert {row["release_packet"] for row in output.frames()[2:]} == {late}
    assert codes(framing) == ["resync_unconfirmed"]


def test_what_searches_hold_is_bounded_over_all_connections(monkeypatch):
    monkeypatch.setattr("dissector.protocols.framing.assembly.MAX_LARGE_BUFFER_BYTES", 100_000)
    script = Ranges()
    for connection in range(100):
        script.open(connection).send(frame(PROVEN), connection=connection).lose(9, 0, connection)
    for number in range(30):
        for connection in range(100):
            script.send(frame(PROVEN, bytes(100 + number) * 2)[:-1], connection=connection)
    edges = list(range(0, len(script.rows), 50))
    _, framing = framed(SPECS, script, edges)
    assert 0 < framing.state.pool.counts[LARGE_HELD] < 150_000


def test_more_protocols_than_marks_are_refused():
    Framing((SPEC,) * 3, Collected(), FramingOptions())
    with pytest.raises(ValueError, match="at most 3 protocols"):
        framed((SPEC,) * 4, Ranges().open())
