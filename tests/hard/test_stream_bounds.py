"""What arrives in ten times the number costs ten times the steps, and memory stays below its limit.

Steps are counted where lists are walked whose length the input decides, so a slow machine changes
nothing. What time they take is in `python -m tests.bench --floods`.
"""

import random
from collections.abc import Callable

import numpy as np
import pytest

from dissector.packet.columns import PacketBuffers
from dissector.stream.columns import RangeKind
from dissector.stream.streams import Streams
from tests.hard.floods import FLOODS, WIDE, Flood, Outcome, connections, jumps

STEPS_PER_PACKET = 60  # six levels of a skip list, some ten nodes in each at the most


@pytest.mark.parametrize("make", FLOODS.values(), ids=FLOODS)
def test_ten_times_the_packets_cost_ten_times_the_steps(make: Callable[[int], Flood]) -> None:
    few, many = Outcome(make(4_000)), Outcome(make(40_000))
    assert many.packets == 10 * few.packets
    # Lists grow tenfold between the two: a walk along them would show as a hundredfold.
    assert many.steps <= 10 * few.steps * 1.8 + 10 * many.packets
    assert many.steps <= STEPS_PER_PACKET * many.packets
    assert many.held <= WIDE.held_bytes_per_connection * (2 if many.connections == 1 else 9)


def test_how_far_a_number_jumps_costs_nothing() -> None:
    near, far = (Outcome(jumps(4_000, step)) for step in (20, 200_000))
    assert far.steps == near.steps
    assert far.held == near.held


@pytest.mark.parametrize("seed", range(3))
def test_nobody_knows_where_the_levels_of_a_list_are(seed: int) -> None:
    """Two processes would draw other seeds; what comes out is the same."""
    flood = FLOODS["pieces behind a hole"](3_000)
    outcomes = []
    for value in (random.Random(seed).getrandbits(31), 12345):
        streams = Streams(WIDE)
        streams._state.counters.level_seed[0] = value
        segments, buffers = flood
        rows = len(segments.packet)
        found = [
            ranges.matrix[:, :count].copy()
            for blocks in (streams.advance(segments, rows, buffers), streams.finish())
            for ranges, count in blocks
        ]
        outcomes.append((streams.steps, np.concatenate(found, axis=1)))
    assert outcomes[0][0] != outcomes[1][0]
    assert np.array_equal(outcomes[0][1], outcomes[1][1])


def test_b59_a_million_syns_stay_below_the_limit_of_connections() -> None:
    flood = FLOODS["syns"](1_000_000)
    outcome = Outcome(flood)
    assert outcome.connections == outcome.closed == outcome.kinds[RangeKind.CLOSE] == 1_000_000
    # Every slot that a search, an entry or a removal looks at, in two indexes at most half full.
    assert outcome.steps <= 11_000_000


def test_b59_a_hundred_thousand_interleaved_connections_come_out_whole() -> None:
    outcome = Outcome(connections(500_000, most=100_000))
    assert outcome.connections == 100_000
    assert outcome.kinds[RangeKind.GAP_LOST] == 0
    assert outcome.lengths[RangeKind.DATA] == 100_000 * 3 * 20


def test_b59_a_hole_that_never_fills_is_given_up_at_the_bound() -> None:
    outcome = Outcome(FLOODS["a hole that never fills"](40_000))
    assert outcome.held <= WIDE.held_bytes_per_connection
    assert outcome.kinds[RangeKind.GAP_LOST] == 1
    assert outcome.lengths[RangeKind.GAP_LOST] == 1
    assert outcome.lengths[RangeKind.DATA] == 39_999 * 1000


def test_floods_are_what_they_say() -> None:
    for make in FLOODS.values():
        segments, buffers = make(50)
        assert len(segments.packet) >= 50 and isinstance(buffers, PacketBuffers)
