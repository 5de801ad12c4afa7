"""Ranges that are gathered ahead of their turn give the frames that they give one by one."""

import random
from typing import Any

import pytest

from dissector.protocols.framing.replays import DUE, GATHERED
from dissector.protocols.framing.searching import MAX_RUN_BYTES, Searches
from tests.wire.ranges import WHOLE, Ranges, framed
from tests.wire.toy import EITHER, PROVEN, SPEC, TO_BROKER, TO_CLIENT, frame

SPECS = (SPEC,)
CONNECTIONS = 4
Found = tuple[list[dict[str, Any]], list[Any]]


def lossy(seed: int, packets: int = 1500) -> Ranges:
    """Connections of which packets are lost, now and then cut, and whose payloads hold frames."""
    chance = random.Random(seed)
    script = Ranges()
    streams: dict[tuple[int, int], bytes] = {}
    for connection in range(CONNECTIONS):
        script.open(connection, from_syn=chance.random() < 0.7)
    for _ in range(packets):
        connection, side = chance.randrange(CONNECTIONS), chance.randrange(2)
        one_way = TO_BROKER if side == 0 else TO_CLIENT
        stream = streams.pop((connection, side), b"")
        while len(stream) < 200:
            inner = frame(EITHER) * chance.randrange(3)
            body = inner + chance.randbytes(chance.choice((0, 3, 20, 150)))
            stream += frame(chance.choice((one_way, PROVEN, EITHER)), body)
        size = chance.randrange(1, 200)
        fate = chance.random()
        if fate < 0.03:
            script.lose(size, side, connection)
        elif fate < 0.04:
            script.cut(size, side, connection)
        elif fate < 0.042:
            script.send(chance.randbytes(size), side, connection)
        else:
            script.send(stream[:size], side, connection)
        if chance.random() < 0.002:
            script.packet += 1_500_000  # a second and a half
        streams[connection, side] = stream[size:]
    for connection in range(CONNECTIONS):
        script.close(connection)
    return script


def found_by(script: Ranges, edges: list[int]) -> Found:
    collected, framing = framed(SPECS, script, edges)
    rows = [
        {name: value for name, value in row.items() if name not in ("data_offset", "source")}
        for row in collected.rows
    ]
    return rows, framing.findings


def opaque(seed: int) -> Ranges:
    """Connections from within: TLS records whose payloads begin like long frames, and frames."""
    chance = random.Random(seed)
    script = Ranges()
    for connection in range(CONNECTIONS):
        script.open(connection, from_syn=False)
    for number in range(300):
        connection, side = chance.randrange(CONNECTIONS), chance.randrange(2)
        script.offsets.setdefault((connection, side), 1_000)
        header = frame(EITHER, bytes(chance.choice((300, 3_000, 9_000))))[:6]
        payload = header + chance.randbytes(chance.choice((40, 150, 600)))
        record = b"\x17\3\3" + len(payload).to_bytes(2, "big") + payload
        is_tls = number > 100 and connection % 2 and chance.random() < 0.3
        flags = chance.choice((WHOLE, WHOLE, WHOLE, 0))
        script.send(record if is_tls else payload, side, connection, flags=flags)
    for connection in range(CONNECTIONS):
        script.close(connection)
    return script


@pytest.mark.parametrize("most_bytes", [MAX_RUN_BYTES, 20_000])
@pytest.mark.parametrize("seed", range(20))
def test_connections_whose_protocol_is_open_are_gathered_alike(
    seed: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Near the bound runs go through the kernel and are searched again: see `starts_chain`."""
    monkeypatch.setattr("dissector.protocols.framing.assembly.MAX_OPENING_BYTES", 0)
    monkeypatch.setattr("dissector.protocols.framing.searching.MAX_RUN_BYTES", most_bytes)
    monkeypatch.setattr("dissector.protocols.framing.detection.HEAD_BYTES", 100)
    script = opaque(seed)
    kinds = gathered_kinds(monkeypatch)
    edges = sorted(random.Random(seed).sample(range(len(script.rows)), 10))
    whole, cut = found_by(script, []), found_by(script, edges)
    assert GATHERED in kinds and (DUE in kinds or most_bytes < MAX_RUN_BYTES)
    monkeypatch.setattr(Searches, "_gather", lambda *_: None)
    assert found_by(script, []) == whole == cut


@pytest.mark.parametrize("most_bytes", range(5_000, 9_000, 250))
def test_headers_that_began_before_count_in_the_bound_before_their_turn(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One connection is searched while headers of others, of which bytes were there, break."""
    monkeypatch.setattr("dissector.protocols.framing.searching.MAX_RUN_BYTES", most_bytes)
    others = range(1, 12)
    script = Ranges()
    for connection in range(12):
        script.open(connection).send(frame(TO_BROKER), 0, connection)
        script.send(frame(TO_CLIENT), 1, connection)
    script.lose(9).send(frame(EITHER, b"x" * 100)[:-1]).send(b"x")
    for connection in others:
        script.send(b"\xff\0\0\0", 0, connection)
    edge = len(script.rows)
    long = frame(EITHER, b"y" * 60)
    for connection in others:
        script.send(b"\x40\x42\3", 0, connection)
        if connection in (3, 6, 9):
            script.send(
                long[:22] if connection == 3 else long[22:44] if connection == 6 else long[44:]
            )
    script.send(frame(EITHER, b"z" * 40))
    for connection in range(12):
        script.close(connection)
    found = found_by(script, [edge])
    monkeypatch.setattr(Searches, "_gather", lambda *_: None)
    assert found == found_by(script, [])


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most_bytes", [MAX_RUN_BYTES, 60_000])
def test_gathered_ranges_give_the_same_in_the_same_order_wherever_blocks_end(
    seed: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dissector.protocols.framing.searching.MAX_RUN_BYTES", most_bytes)
    script = lossy(seed)
    edges = sorted(random.Random(seed).sample(range(len(script.rows)), 20))
    kinds = gathered_kinds(monkeypatch)
    bounds = calls_of(monkeypatch, "_believe_longest")
    whole, cut = found_by(script, []), found_by(script, edges)
    assert {GATHERED, DUE} <= kinds
    assert bool(bounds) == (most_bytes < MAX_RUN_BYTES)
    monkeypatch.setattr(Searches, "_gather", lambda *_: None)
    assert found_by(script, []) == whole == cut
    assert sum(row["frame_no"] > 0 for row in whole[0]) > 100


def calls_of(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a method, from now on."""
    calls: list[tuple[Any, ...]] = []
    method = getattr(Searches, name)

    def noted(self: Searches, *arguments: Any) -> Any:
        calls.append(arguments)
        return method(self, *arguments)

    monkeypatch.setattr(Searches, name, noted)
    return calls


def gathered_kinds(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The kinds of ranges after each time that some may have been gathered."""
    kinds: set[int] = set()
    gather = Searches._gather

    def noted(self: Searches, current: Any, row: int, slot: int) -> None:
        gather(self, current, row, slot)
        kinds.update(current.ranges.kind.tolist())

    monkeypatch.setattr(Searches, "_gather", noted)
    return kinds


@pytest.mark.parametrize("packets", [1_000, 4_000])
def test_a_search_is_attended_to_a_few_times_however_long_it_is(
    packets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets that end where no frame does confirm no chain: it is believed at the end."""
    script = Ranges().open().send(frame(TO_BROKER)).send(frame(TO_CLIENT), side=1).lose(5)
    stream = frame(EITHER, bytes(20)) * packets
    for start in range(0, len(stream), 19):
        script.send(stream[start : start + 19]).send(frame(EITHER), side=1)
        script.packet = 10  # at one time
    rows = len(script.close().rows)
    attended = calls_of(monkeypatch, "_attend")
    collected, _ = framed(SPECS, script)
    assert len(collected.frames()) == packets + rows // 2
    assert len(attended) < 30 < rows


@pytest.mark.parametrize("chains", [500, 2_000])
def test_runs_are_sorted_a_few_times_where_most_of_them_have_no_chain(
    chains: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections of which half a header was seen hold all that searches may hold, for ever."""
    monkeypatch.setattr("dissector.protocols.framing.assembly.MAX_OPENING_BYTES", 0)
    monkeypatch.setattr("dissector.protocols.framing.searching.MAX_RUN_BYTES", 300 * 260)
    script = Ranges()
    for connection in range(300):
        script.open(connection, from_syn=False).send(b"\0\0\0\x09", 0, connection)
    for connection in range(300, 300 + chains):
        script.open(connection, from_syn=False).send(frame(EITHER, b"abc") * 2, 0, connection)
    sorts = calls_of(monkeypatch, "_believe_longest")
    _, framing = framed(SPECS, script)
    assert 0 < len(sorts) <= chains // 30 + 2
    assert framing._searches.bytes < 2 * 300 * 260
