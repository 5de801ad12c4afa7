"""First ranges that the kernel keeps give what they give as runs, at a fraction of the work."""

import random
from typing import Any

import pytest

from dissector.limits import MOST_OPENING_BYTES, MOST_OPENING_RANGES, MOST_OPENING_STEPS
from dissector.protocols.cursus.spec import SPEC as CURSUS
from dissector.protocols.framing.searching import Searches
from dissector.protocols.framing.state import (
    COUNTER_OPENING_BYTES,
)
from dissector.protocols.pulsar.spec import SPEC as PULSAR
from tests.dissector.protocols.framing.test_gathering import found_by, opaque
from tests.wire.ranges import WHOLE, Ranges, framed
from tests.wire.toy import EITHER, PROVEN, SPEC, TO_BROKER, TO_CLIENT, frame

LIMIT = "dissector.protocols.framing.assembly.MAX_OPENING_BYTES"
TLS = b"\x17\3\3\0\x05hello"
PROXY = b"PROXY TCP4 10.0.0.1 10.0.0.2 40000 7000\r\n"
# What a connection that is no broker's may begin with, or one that is.
STARTS = (b"", b"GET / HTTP/1.1\r\n", TLS, 2 * TLS, 3 * TLS, PROXY, b"\x16\3\1", b"\r\n\r\n\0\r")


def from_within(seed: int, connections: int = 12, packets: int = 400) -> Ranges:
    """Connections that began before: frames and parts of them, other protocols, gaps, ends."""
    chance = random.Random(seed)
    script = Ranges()
    streams: dict[tuple[int, int], bytes] = {}
    over: set[tuple[int, int]] = set()
    for connection in range(connections):
        script.open(connection, from_syn=chance.random() < 0.1)
        for side in (0, 1):
            script.offsets[connection, side] = chance.choice((0, 0, 5_000))
            cut = frame(EITHER, chance.randbytes(60))[chance.randrange(1, 40) :]
            streams[connection, side] = chance.choice((b"", cut, chance.choice(STARTS)))
    for _ in range(packets):
        connection, side = chance.randrange(connections), chance.randrange(2)
        key = connection, side
        if key in over:
            continue
        stream = streams[key]
        is_opaque = connection % 6 == 5
        while len(stream) < 300:
            one_way = TO_BROKER if side == 0 else TO_CLIENT
            body = chance.randbytes(chance.choice((0, 3, 20, 150, 150)))
            inner = frame(EITHER) * chance.randrange(2)
            one = frame(chance.choice((one_way, PROVEN, EITHER)), inner + body)
            stream += chance.randbytes(len(one)) if is_opaque else one
        # Most packets end where a frame does.
        ends = int.from_bytes(stream[:4], "big") + 4
        size = ends if ends < 300 and chance.random() < 0.8 else chance.randrange(1, 200)
        fate = chance.random()
        if fate < 0.02:
            script.lose(size, side, connection)
        elif fate < 0.03:
            script.cut(size, side, connection)
        elif fate < 0.05:
            script.fin(side, connection)
            over.add(key)
        else:
            flags = chance.choice((WHOLE, WHOLE, WHOLE, 0))
            script.send(stream[:size], side, connection, flags=flags)
        streams[key] = stream[size:]
        if chance.random() < 0.02:
            script.packet += 400_000  # of a microsecond each
    for connection in range(connections):
        script.close(connection)
    return script


@pytest.mark.parametrize("seed", range(15))
def test_what_comes_out_is_what_runs_give(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script = from_within(seed)
    edges = sorted(random.Random(seed).sample(range(len(script.rows)), 10))
    whole, cut = found_by(script, []), found_by(script, edges)
    monkeypatch.setattr(LIMIT, 0)
    assert found_by(script, []) == whole == cut
    assert any(row["frame_no"] > 0 for row in whole[0])


@pytest.mark.parametrize("seed", range(10))
def test_bytes_of_no_broker_give_what_runs_give(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script = opaque(seed)
    found = found_by(script, [])
    monkeypatch.setattr(LIMIT, 0)
    assert found_by(script, []) == found


def in_turns(seed: int, connections: int = 30) -> Ranges:
    """Connections in which both sides send a few frames by turns: one waits for the other."""
    chance = random.Random(seed)
    script = Ranges()
    turns = []
    for connection in range(connections):
        script.open(connection, from_syn=False)
        share, count = chance.choice((0.2, 0.5, 0.8)), chance.randrange(2, 25)
        turns += [(connection, int(chance.random() < share)) for _ in range(count)]
    chance.shuffle(turns)
    over: set[tuple[int, int]] = set()
    for connection, side in turns:
        if (connection, side) in over:
            continue
        kind = chance.choice((PROVEN, EITHER, TO_CLIENT if side else TO_BROKER))
        data = frame(kind, chance.randbytes(chance.choice((1, 10, 100, 600, 2_000))))
        if chance.random() < 0.05:
            data = data[chance.randrange(len(data)) :]
        fate = chance.random()
        if fate < 0.01:
            script.lose(30, side, connection)
        elif fate < 0.02:
            script.fin(side, connection)
            over.add((connection, side))
        elif fate < 0.04:
            script.close(connection)
            over |= {(connection, 0), (connection, 1)}
        else:
            script.send(data, side, connection)
        if chance.random() < 0.01:
            script.packet += 600_000  # of a microsecond each
    return script


@pytest.mark.parametrize("seed", range(15))
def test_directions_that_wait_for_each_other_give_what_runs_give(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = in_turns(seed)
    edges = sorted(random.Random(seed).sample(range(len(script.rows)), 10))
    whole, cut = found_by(script, []), found_by(script, edges)
    monkeypatch.setattr(LIMIT, 0)
    assert found_by(script, []) == whole == cut


def attended(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One number for each range that the slow path handles, from now on."""
    ranges: list[int] = []
    attend = Searches.attend_range

    def noted(self: Searches, current: Any) -> None:
        ranges.append(current.cursor)
        attend(self, current)

    monkeypatch.setattr(Searches, "attend_range", noted)
    return ranges


@pytest.mark.parametrize("connections", [10, 1_000])
def test_connections_whose_packets_end_with_frames_need_no_slow_path(
    connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a tap sees a broker's port when it begins; three frames of packets confirm a chain."""
    script = Ranges()
    for connection in range(connections):
        script.open(connection, from_syn=False)
    for number in range(5):
        for connection in range(connections):
            script.send(frame(TO_BROKER, b"x" * (20 + number)), 0, connection)
            script.send(frame(TO_CLIENT, b"y" * (5 + number)), 1, connection)
    for connection in range(connections):
        script.close(connection)
    ranges = attended(monkeypatch)
    collected, framing = framed((SPEC,), script)
    assert len(collected.frames()) == 10 * connections
    assert not ranges and not framing.findings


def test_connections_of_no_broker_end_without_the_slow_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(1)
    script = Ranges()
    for connection in range(100):
        script.open(connection, from_syn=False)
        for _ in range(3):
            script.send(bytes(chance.choices(range(128, 256), k=100)), connection % 2, connection)
        script.fin(connection % 2, connection) if connection % 3 else None
        script.close(connection)
    ranges = attended(monkeypatch)
    collected, framing = framed((SPEC,), script)
    assert not collected.frames() and not ranges
    assert framing.state.counters[COUNTER_OPENING_BYTES] == 0
    assert int(framing.state.openings.free.free[0]) == len(framing.state.openings.next_row)


@pytest.mark.parametrize("size", [10, 2_000])
def test_what_is_kept_of_a_direction_is_bounded(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind the bound the slow path goes on with what there is."""
    script = Ranges().open(from_syn=False)
    stream = frame(EITHER, bytes(60_000))
    for number in range(20):
        script.send(stream[number * size : (number + 1) * size])
        script.packet -= 1  # at one time
    ranges = attended(monkeypatch)
    framed((SPEC,), script)
    kept = min(MOST_OPENING_RANGES, MOST_OPENING_BYTES // size)
    assert 0 < len(ranges) <= 20 - kept


def test_bytes_that_are_searched_again_and_again_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each search begins at the first byte: before a long frame there is much to look at."""
    data = bytes([0xFF]) * 8_000 + frame(EITHER, bytes(60_000))
    script = Ranges().open(from_syn=False).send(data[:8_100])
    for number in range(14):
        script.send(data[8_100 + number : 8_101 + number])
        script.packet -= 1  # at one time
    ranges = attended(monkeypatch)
    _, framing = framed((SPEC,), script)
    assert 5 < ranges[0] < 12, "then they are a run, whose search goes on"
    steps = int(framing.state.flows.opening_steps[0])
    assert MOST_OPENING_STEPS < steps < MOST_OPENING_STEPS + 8_100


def test_all_openings_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Ranges()
    for connection in range(500):
        script.open(connection, from_syn=False).send(b"\0\0\0\x09", 0, connection)
    monkeypatch.setattr(LIMIT, 100 * 260)
    ranges = attended(monkeypatch)
    _, framing = framed((SPEC,), script)
    assert framing.state.counters[COUNTER_OPENING_BYTES] == 100 * 260
    assert len(ranges) == 400


@pytest.mark.parametrize("seed", range(6))
def test_several_protocols_are_looked_for(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bytes, which headers of both protocols are told from."""
    chance = random.Random(seed)
    script = Ranges()
    for connection in range(30):
        script.open(connection, from_syn=False)
    for _ in range(300):
        data = chance.choice((b"", b"\0\0\0", b"\0\0\0\x20\0\0")) + chance.randbytes(40)
        script.send(data, chance.randrange(2), chance.randrange(30))
    for connection in range(30):
        script.close(connection)

    def found() -> tuple[Any, Any]:
        collected, framing = framed((PULSAR, CURSUS), script)
        return collected.rows, framing.findings

    kept = found()
    monkeypatch.setattr(LIMIT, 0)
    assert found() == kept
