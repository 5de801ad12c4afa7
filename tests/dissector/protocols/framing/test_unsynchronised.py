"""Bytes without a chain give the same however they come, and all is decided within the kernel."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from dissector.notices import NOTICES
from dissector.protocols.cursus.spec import SPEC as CURSUS
from dissector.protocols.framing import assembly
from dissector.protocols.framing.assembly import FramingOptions
from dissector.protocols.framing.range_pool import LARGE_HELD, SMALL_HELD
from dissector.protocols.pulsar.spec import SPEC as PULSAR
from dissector.stream.columns import RangeKind
from tests.wire.ranges import Ranges, framed
from tests.wire.scripts import from_within, in_turns, lossy, opaque
from tests.wire.toy import EITHER, SPEC, TO_BROKER, TO_CLIENT, frame

SPECS = (SPEC,)
SCRIPTS = (from_within, in_turns, lossy, opaque)
ASKED = (FramingOptions(), FramingOptions(forced={7000: 0}), FramingOptions(only=0))
_LARGE = "dissector.protocols.framing.assembly.MAX_LARGE_BUFFER_BYTES"
_SMALL = "dissector.protocols.framing.assembly.MAX_SMALL_BUFFER_BYTES"


def output_of(
    script: Ranges, edges: list[int], options: FramingOptions | None = None
) -> tuple[Any, ...]:
    """Rows and notices."""
    collected, framing = framed(SPECS, script, edges, options=options)
    rows = [
        {name: value for name, value in row.items() if name not in ("data_offset", "source")}
        for row in collected.rows
    ]
    assert sorted(framing.state.pool.counts[[SMALL_HELD, LARGE_HELD]])[0] >= 0
    return rows, framing.notices.rows(), framing.proxied


@pytest.mark.parametrize("make", SCRIPTS)
@pytest.mark.parametrize("seed", range(3))
def test_ranges_give_the_same_wherever_blocks_end(
    seed: int, make: Callable[[int], Ranges], monkeypatch: pytest.MonkeyPatch
) -> None:
    script, options = make(seed), ASKED[seed % 3]
    edges = sorted(random.Random(seed).sample(range(len(script.rows)), 20))
    whole = output_of(script, [], options)
    assert output_of(script, edges, options) == whole
    assert any(row["frame_no"] > 0 for row in whole[0]) or make is opaque
    # Small buffers and large ones differ in their bound alone.
    monkeypatch.setattr(_SMALL, 0)
    assert output_of(script, [], options) == whole


@pytest.mark.parametrize("make", SCRIPTS)
def test_where_large_buffers_are_decided_does_not_depend_on_blocks(
    make: Callable[[int], Ranges], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_LARGE, 20_000)
    monkeypatch.setattr(_SMALL, 0)
    for seed in range(2):
        script = make(seed)
        edges = sorted(random.Random(seed).sample(range(len(script.rows)), 20))
        assert output_of(script, edges) == output_of(script, [])


@pytest.mark.parametrize("seed", range(3))
def test_several_protocols_are_looked_for(seed: int) -> None:
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
    collected, framing = framed((PULSAR, CURSUS), script)
    parts, again = framed((PULSAR, CURSUS), script, list(range(0, len(script.rows), 7)))
    assert collected.rows == parts.rows or collected.frames() == parts.frames()
    assert framing.notices.rows() == again.notices.rows()


# -- what is decided in Python: nothing


def calls_of(
    script: Ranges, monkeypatch: pytest.MonkeyPatch, options: FramingOptions | None = None
) -> tuple[int, Any, Any]:
    """How often the kernel is called for a script in one block; frames and framing."""
    calls: list[int] = []
    split = assembly.split
    with monkeypatch.context() as patch:
        patch.setattr(assembly, "split", lambda *given: (calls.append(1), split(*given))[1])
        collected, framing = framed(SPECS, script, options=options)
    return len(calls), collected, framing


def holes(connections: int, is_known: bool) -> Ranges:
    """Short bytes between holes, of connections that are known to speak the protocol or not."""
    script = Ranges()
    for connection in range(connections):
        script.open(connection, from_syn=is_known)
        if is_known:
            script.send(frame(TO_BROKER, b"x" * 20), 0, connection)
    for _ in range(20):
        for connection in range(connections):
            script.lose(10, 0, connection).send(b"\xff" * 10, 0, connection)
    for connection in range(connections):
        script.close(connection)
    return script


def lone(connections: int, data: bytes) -> Ranges:
    """Connections from within of which one packet was seen."""
    script = Ranges()
    for connection in range(connections):
        script.open(connection, from_syn=False).send(data, 0, connection)
    for connection in range(connections):
        script.close(connection)
    return script


@pytest.mark.parametrize("options", ASKED, ids=["plain", "-d", "--protocol"])
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
def test_a_hole_needs_no_call_of_its_own(
    is_known: bool, options: FramingOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, *_ = calls_of(holes(10, is_known), monkeypatch, options)
    many, _, framing = calls_of(holes(100, is_known), monkeypatch, options)
    # More room for rows is all that it returns for, and the room doubles.
    assert few < 20 and many < few + 25
    assert framing.state.pool.counts[[SMALL_HELD, LARGE_HELD]].tolist() == [0, 0]


@pytest.mark.parametrize("options", ASKED, ids=["plain", "-d", "--protocol"])
@pytest.mark.parametrize(
    "data",
    [frame(TO_BROKER, b"x"), frame(EITHER), frame(EITHER, bytes(300))[:100], bytes(range(33, 99))],
    ids=["one way", "either way", "cut", "none"],
)
def test_a_close_needs_no_call_of_its_own(
    data: bytes, options: FramingOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, *_ = calls_of(lone(10, data), monkeypatch, options)
    many, collected, framing = calls_of(lone(2_000, data), monkeypatch, options)
    assert few < 20 and many < few + 25
    assert len(collected.frames()) == (2_000 if data[4] == frame(EITHER)[4] else 0)
    assert framing.state.pool.counts[[SMALL_HELD, LARGE_HELD]].tolist() == [0, 0]
    pool = framing.state.pool
    assert pool.free_ranges.free[0] == len(pool.free_ranges.rows)
    assert pool.free_buffers.free[0] == len(pool.free_buffers.rows)
    assert framing.state.free_waiting.free[0] == len(framing.state.free_waiting.rows)


def test_packets_that_end_with_frames_need_no_call_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So a tap sees a broker's port when it begins; three frames of packets confirm a chain."""
    script = Ranges()
    for connection in range(1_000):
        script.open(connection, from_syn=False)
    for number in range(5):
        for connection in range(1_000):
            script.send(frame(TO_BROKER, b"x" * (20 + number)), 0, connection)
            script.send(frame(TO_CLIENT, b"y" * (5 + number)), 1, connection)
    for connection in range(1_000):
        script.close(connection)
    calls, collected, framing = calls_of(script, monkeypatch)
    assert len(collected.frames()) == 10_000 and not framing.notices.rows()
    assert calls < 40


@pytest.mark.parametrize("packets", [1_000, 4_000])
def test_a_long_search_is_one_call(packets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets that end where no frame does confirm no chain: it is believed at the end."""
    script = Ranges().open().send(frame(TO_BROKER)).send(frame(TO_CLIENT), endpoint_index=1).lose(5)
    stream = frame(EITHER, bytes(20)) * packets
    for start in range(0, len(stream), 19):
        script.send(stream[start : start + 19]).send(frame(EITHER), endpoint_index=1)
        script.packet = 10  # at one time
    rows = len(script.close().rows)
    calls, collected, _ = calls_of(script, monkeypatch)
    assert len(collected.frames()) == packets + rows // 2
    assert calls < 40


@pytest.mark.parametrize("chains", [500, 2_000])
def test_large_buffers_are_sorted_a_few_times_where_most_of_them_have_no_chain(
    chains: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections of which half a header was seen hold all that buffers may hold, for ever."""
    monkeypatch.setattr(_SMALL, 0)
    monkeypatch.setattr(_LARGE, 300 * 260)
    script = Ranges()
    for connection in range(300):
        script.open(connection, from_syn=False).send(b"\0\0\0\x09", 0, connection)
    for connection in range(300, 300 + chains):
        script.open(connection, from_syn=False).send(frame(EITHER, b"abc") * 2, 0, connection)
    calls, _, framing = calls_of(script, monkeypatch)
    assert calls <= chains // 30 + 40
    assert framing.state.pool.counts[LARGE_HELD] < 2 * 300 * 260


def test_behind_a_hole_that_cuts_a_frame_whose_role_is_open_no_chain_breaks() -> None:
    """What follows such a hole is searched: a broken chain in the place of that was noted."""
    script = from_within(40)
    ends = {
        (row[0], row[3] + row[4])
        for row in script.rows
        if row[2] in (RangeKind.GAP_LOST, RangeKind.GAP_CUT)
    }
    _, notices, _ = output_of(script, [], FramingOptions(forced={7000: 0}))
    broken = {
        (each.connection_id, each.stream_offset)
        for each in notices
        if NOTICES[each.kind].code == "desync"
    }
    assert not broken & ends
