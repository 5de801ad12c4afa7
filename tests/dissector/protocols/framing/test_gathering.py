"""Ranges that are gathered ahead of their turn give the frames that they give one by one."""

import random
from typing import Any

import pytest

from dissector.protocols.framing.replays import DUE, GATHERED
from dissector.protocols.framing.searching import MAX_RUN_BYTES, Searches
from tests.wire.ranges import Ranges, framed
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
