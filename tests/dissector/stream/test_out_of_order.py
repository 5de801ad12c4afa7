"""Waiting segments against a dictionary of bytes; which copy wins where two differ."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissector.limits import NODE_CHARGE_BYTES
from dissector.stream.columns import RETRANSMITTED, RangeKind
from dissector.stream.out_of_order import SegmentSpan, drop_first, find_before, insert, insert_fin
from dissector.stream.records import LEVELS, OVERLAP_NAMES
from dissector.stream.state import StreamState, add_heap, add_nodes, new_state
from tests.wire.segments import SMALL, Packet, handshake, streamed

SIDE = 1


def first_of(state: StreamState) -> int:
    return int(state.heads[SIDE, 0])


def nodes_of(state: StreamState) -> list[tuple[int, int, int, bytes]]:
    """Kind, first offset, end and bytes of all waiting nodes, in order."""
    found = []
    node = first_of(state)
    nodes = state.nodes
    while node >= 0:
        kind, start, length, at = (
            int(field[node]) for field in (nodes.kind, nodes.offset, nodes.length, nodes.heap_at)
        )
        data = state.heap[at : at + length].tobytes() if kind == RangeKind.DATA else b""
        found.append((kind, start, start + length, data))
        node = int(state.successors[node, 0])
    return found


def put(
    state: StreamState, start: int, payload: bytes, kind: int = RangeKind.DATA
) -> tuple[int, int, int]:
    """Insert a segment, making room as the streams do."""
    if state.free_nodes.free[0] < len(payload) + 4:
        add_nodes(state, len(payload) + 4)
    if state.counters.heap_used[0] + len(payload) > len(state.heap):
        add_heap(state, len(payload))
    end = start + len(payload)
    data = np.frombuffer(payload or b"\0", np.uint8).copy()
    inserted = insert(state, SIDE, SegmentSpan(kind, start, end, 0, start, end, 1, 1, 0), data)
    return inserted.fresh, inserted.again, inserted.conflicts


def test_copies_mark_what_waits_for_more_than_its_start() -> None:
    """Of a side seen from the middle on nothing leaves at first; a capture that had begun before
    would have let it."""
    state = new_state(SMALL)
    state.directions.start_is_open[SIDE] = 1

    def sent(start: int, payload: bytes) -> list[int]:
        put(state, start, payload)
        highest = state.directions.highest
        highest[SIDE] = max(highest[SIDE], start + len(payload))
        flags, node = [], first_of(state)
        while node >= 0:
            flags.append(int(state.nodes.flags[node]) & RETRANSMITTED)
            node = int(state.successors[node, 0])
        return flags

    assert sent(0, b"abc") == [0]
    assert sent(0, b"abc") == [0]
    assert sent(3, b"de") == [0, 0]
    assert sent(1, b"bcd") == [0, 0]
    assert sent(7, b"x") == [0, 0, 0]
    assert sent(0, b"abc") == [RETRANSMITTED, 0, 0]
    state.directions.start_is_open[SIDE] = 0
    assert sent(3, b"de") == [RETRANSMITTED, RETRANSMITTED, 0]


@settings(max_examples=80)
@given(st.integers(0, 1 << 32).map(random.Random), st.sampled_from(["first", "last"]))
def test_nodes_hold_what_a_dictionary_holds(generator: random.Random, overlap: str) -> None:
    state = new_state(SMALL)
    state.settings.overlap[0] = OVERLAP_NAMES.index(overlap)
    expected: dict[int, int | None] = {}
    for _ in range(generator.randint(1, 60)):
        start = generator.randrange(0, 300)
        payload = generator.choice([b"a", b"b", b"c"]) * generator.randint(1, 30)
        is_cut = generator.random() < 0.2
        old = [offset for offset in range(start, start + len(payload)) if offset in expected]
        differing = [
            offset for offset in old if not is_cut and expected[offset] not in (None, payload[0])
        ]
        counts = put(state, start, payload, RangeKind.GAP_CUT if is_cut else RangeKind.DATA)
        assert counts == (len(payload) - len(old), len(old), len(differing))
        for offset in range(start, start + len(payload)):
            if offset not in expected:
                expected[offset] = None if is_cut else payload[0]
            elif offset in differing and overlap == "last":
                expected[offset] = payload[0]
        _check(state, expected)
    while first_of(state) >= 0:
        _, start, end, _ = nodes_of(state)[0]
        drop_first(state, SIDE)
        for offset in range(start, end):
            del expected[offset]
        _check(state, expected)
    assert state.counters.heap_live[0] == state.counters.held_bytes[0] == 0
    assert (state.tails[SIDE] == -1).all()


def _check(state: StreamState, expected: dict[int, int | None]) -> None:
    nodes = nodes_of(state)
    held = {
        offset: data[offset - start] if kind == RangeKind.DATA else None
        for kind, start, end, data in nodes
        for offset in range(start, end)
    }
    assert held == expected
    edges = [edge for _, start, end, _ in nodes for edge in (start, end)]
    assert edges == sorted(edges)
    data_bytes = sum(value is not None for value in expected.values())
    assert state.directions.pending[SIDE] == len(nodes)
    assert state.directions.held_bytes[SIDE] == NODE_CHARGE_BYTES * len(nodes) + data_bytes
    assert state.counters.heap_live[0] == data_bytes


@settings(max_examples=30)
@given(st.integers(0, 1 << 32).map(random.Random))
def test_the_node_before_an_offset_is_found_on_every_level(generator: random.Random) -> None:
    state = new_state(SMALL)
    starts = generator.sample(range(0, 4000, 2), 600)
    for start in starts:
        put(state, start, b"x")
    starts.sort()
    levels = [(start, _levels_of(state, start)) for _, start, _, _ in nodes_of(state)]
    for offset in generator.sample(range(4001), 50):
        find_before(state, SIDE, offset)
        before = [start for start in starts if start < offset]
        node = int(state.predecessors[0])
        found = int(state.nodes.offset[node]) if node >= 0 else None
        assert found == (before[-1] if before else None)
        for level in range(1, LEVELS):
            node = int(state.predecessors[level])
            tall = [
                start for start, count in levels if start < offset and count > level
            ] if node >= 0 or level == 1 else []  # fmt: skip
            found = int(state.nodes.offset[node]) if node >= 0 else None
            assert found == (tall[-1] if tall else None)


def _levels_of(state: StreamState, start: int) -> int:
    nodes = state.nodes
    (node,) = np.flatnonzero((nodes.offset == start) & (nodes.kind == RangeKind.DATA))
    return int(nodes.levels[node])


def test_a_fin_stands_before_what_begins_at_its_place() -> None:
    state = new_state(SMALL)
    put(state, 10, b"abc")
    put(state, 20, b"late")
    insert_fin(state, SIDE, SegmentSpan(RangeKind.FIN, 20, 20, 0, 21, 19, 1, 1, 0))
    assert [(start, end) for _, start, end, _ in nodes_of(state)] == [(10, 13), (20, 20), (20, 24)]
    drop_first(state, SIDE)
    assert state.nodes.kind[first_of(state)] == RangeKind.FIN


# Where the new copy starts and ends against the waiting one 10..20; policies under which it wins.
OVERLAPS = {
    "the same": (10, 20, "last"),
    "earlier, as far": (5, 20, "last linux windows"),
    "earlier, farther": (5, 25, "last linux windows"),
    "earlier, less far": (5, 15, "last linux windows"),
    "equally, farther": (10, 25, "last linux"),
    "equally, less far": (10, 15, "last"),
    "later, as far": (15, 20, "last"),
    "later, farther": (15, 25, "last"),
    "inside": (13, 17, "last"),
}


def owner(policy: str, one: tuple[int, int, int], other: tuple[int, int, int]) -> bool:
    """Whether a later segment takes bytes from an earlier one. one, other: start, end, number."""
    (start, end, _), (held_start, held_end, _) = one, other
    if policy in ("first", "last"):
        return policy == "last"
    longer = policy == "linux" and start == held_start and end > held_end
    return start < held_start or longer


@settings(max_examples=150)
@given(st.integers(0, 1 << 32).map(random.Random), st.sampled_from(OVERLAP_NAMES))
def test_each_byte_has_the_owner_that_the_policy_says(
    generator: random.Random, policy: str
) -> None:
    """Byte by byte, over many segments: only the bounds of whole segments decide."""
    state = new_state(SMALL)
    state.settings.overlap[0] = OVERLAP_NAMES.index(policy)
    owners: dict[int, tuple[int, int, int]] = {}
    for number in range(1, generator.randint(2, 25)):
        start = generator.randrange(0, 120)
        end = start + generator.randint(1, 40)
        put(state, start, bytes([number]) * (end - start))
        for offset in range(start, end):
            held = owners.get(offset)
            if held is None or owner(policy, (start, end, number), held):
                owners[offset] = (start, end, number)
        _check(state, {offset: number for offset, (_, _, number) in owners.items()})


@pytest.mark.parametrize("policy", OVERLAP_NAMES)
@pytest.mark.parametrize("case", OVERLAPS.values(), ids=OVERLAPS)
def test_which_copy_wins(case: tuple[int, int, str], policy: str) -> None:
    start, end, winners = case
    front = min(start, 10)
    packets = [
        *handshake(),
        Packet(10, 0, 1001 + 10, b"o" * 10, 5001),
        Packet(11, 0, 1001 + start, b"N" * (end - start), 5001),
        Packet(12, 0, 1001, b"." * front, 5001),
    ]
    released = streamed(packets, SMALL._replace(overlap=policy))
    both = range(max(10, start), min(20, end))
    expected = bytearray(b"." * front + b"N" * (10 - front) + b"o" * 10 + b"N" * (end - 20))
    if policy in winners.split():
        for offset in both:
            expected[offset] = ord("N")
    assert released.data() == bytes(expected)
    assert released.direction()["conflict_bytes"] == len(both)
