"""The role of a connection: by its first one-way command, else SYN, else port, else who spoke."""

import pytest

from dissector.limits import NULL
from dissector.protocols.columns import FrameEvent
from dissector.protocols.framing.state import RoleSource
from tests.wire.ranges import Ranges, connection_in, framed
from tests.wire.toy import EITHER, PROVEN, SPEC, TO_BROKER, TO_CLIENT, frame

SPECS = (SPEC,)


def role_of(framing, connection=0):
    known = framing.state.connections
    connection_index = connection_in(framing, connection)
    return int(known.client_endpoint[connection_index]), int(known.role_source[connection_index])


def codes(framing):
    return [each.code for each in framing.notices.rows()]


def test_the_opener_is_the_client_when_its_first_command_agrees():
    output, framing = framed(SPECS, Ranges().open().send(frame(TO_BROKER)).close())
    assert output.values("direction", "broker") == [(0, 1)]
    assert role_of(framing) == (0, RoleSource.BY_SYN)
    assert codes(framing) == []


def test_a_command_that_contradicts_the_syn_flips_the_role():
    script = Ranges().open().send(frame(EITHER)).send(frame(TO_CLIENT)).send(frame(TO_BROKER), 1)
    output, framing = framed(SPECS, script.close())
    assert output.values("direction", "broker") == [(1, 0), (1, 0), (0, 0)]
    assert role_of(framing) == (1, RoleSource.BY_COMMAND)
    assert codes(framing) == ["role_flipped"]


def test_frames_wait_for_the_command_that_decides_and_keep_their_order():
    script = (
        Ranges()
        .open(from_syn=False)
        .send(frame(PROVEN, b"a"))
        .send(frame(PROVEN, b"b"), endpoint_index=1)
        .send(frame(PROVEN, b"c"))
        .send(frame(PROVEN, b"d"))
        .send(frame(TO_CLIENT, b"e"), endpoint_index=1)
        .send(frame(PROVEN, b"f"))
        .close()
    )
    output, framing = framed(SPECS, script)
    # No packet tells where frames of side 1 begin before the end: side 0 waits for it.
    assert output.values("frame_no", "direction", "release_packet") == [
        (1, 0, 8),
        (2, 1, 8),
        (3, 0, 8),
        (4, 0, 8),
        (5, 1, 8),
        (6, 0, 8),
    ]
    assert {*output.values("broker")} == {(1,)}
    assert [row["data"][6:7] for row in output.frames()] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert role_of(framing) == (0, RoleSource.BY_COMMAND)


@pytest.mark.parametrize(
    ("ports", "client_endpoint", "source", "directions"),
    [
        ((40000, 7000), 0, RoleSource.BY_PORT, [(0,), (1,)]),
        ((7000, 40000), 1, RoleSource.BY_PORT, [(1,), (0,)]),
        ((40000, 40001), 0, RoleSource.BY_FIRST_SEEN, [(2,), (2,)]),
    ],
    ids=["port of side 1", "port of side 0", "no port known"],
)
def test_without_a_one_way_command_the_port_decides_at_the_end(
    ports, client_endpoint, source, directions
):
    script = (
        Ranges()
        .open(from_syn=False)
        .send(frame(PROVEN))
        .send(frame(PROVEN), endpoint_index=1)
        .close()
    )
    output, framing = framed(SPECS, script, ports=ports)
    assert output.values("direction") == directions
    assert role_of(framing) == (client_endpoint, source)


def test_waiting_is_bounded(monkeypatch):
    monkeypatch.setattr("dissector.protocols.framing.detection.MAX_ROLE_WAIT_FRAMES", 3)
    script = Ranges().open(from_syn=False)
    for _ in range(6):
        script.send(frame(PROVEN))
    output, _ = framed(SPECS, script, ports=(1, 2))
    assert output.values("frame_no", "direction") == [(number, 2) for number in range(1, 7)]


def test_the_deciding_frame_may_come_in_a_later_block():
    script = Ranges().open(from_syn=False).send(frame(PROVEN)).send(frame(TO_CLIENT)).close()
    whole, _ = framed(SPECS, script)
    cut, _ = framed(SPECS, script, [1, 2, 3])
    names = ("frame_no", "direction", "release_packet", "data")
    assert whole.values(*names) == cut.values(*names)


def test_holes_wait_with_the_frames_that_they_are_behind():
    script = (
        Ranges()
        .open(from_syn=False)
        .send(frame(PROVEN, b"a"))
        .send(frame(PROVEN, b"b"), endpoint_index=1)
        .send(frame(PROVEN, b"c"))
        .send(frame(PROVEN, b"d"), endpoint_index=1)
        .lose(9, endpoint_index=1)
        .send(frame(PROVEN, b"e"))
        .fin()
        .send(frame(TO_CLIENT, b"f") + frame(PROVEN, b"g"), endpoint_index=1)
        .close()
    )
    for edges in ((), range(1, 8)):
        output, _ = framed(SPECS, script, edges)
        told = [
            row["data"][6:7] if row["frame_no"] > 0 else FrameEvent(row["command"]).name
            for row in output.rows
        ]
        assert told == [b"a", b"b", b"c", b"d", "GAP", b"e", "FIN", b"f", b"g", "CLOSE"]
        events = [row for row in output.rows if row["frame_no"] == NULL]
        assert [row["direction"] for row in events] == [1, 0, 0]
        assert [row["frames_missing"] for row in events[:1]] == [1]
