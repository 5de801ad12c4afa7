"""A direction waits while the other one is searched, and both go on as they arrived."""

import numpy as np

from dissector.protocols.framing.block_output import FrameOutput
from dissector.protocols.framing.connection_table import allocate_slot
from dissector.protocols.framing.replays import Replay
from dissector.protocols.framing.resync import RESUME
from dissector.protocols.framing.state import CHAIN, HELD
from dissector.protocols.framing.unsynchronised import (
    PIECE_BYTES,
    UnsynchronisedFlows,
    is_waited_for,
)
from tests.wire.ranges import Ranges


def held(script: Ranges) -> tuple[UnsynchronisedFlows, FrameOutput, Replay]:
    output = FrameOutput(lambda _: None, key=0)
    data = np.frombuffer(bytes(script.data), np.uint8)
    output.sources = (data, data[:0], data[:0])
    allocate_slot(output.state, 0, 0, 1000)
    return UnsynchronisedFlows(output), output, Replay(script.columns(), len(script.rows), 0, 0)


def test_a_direction_that_waits_keeps_its_ranges_and_its_mode() -> None:
    script = Ranges().send(b"one").send(b"two", side=1).lose(7, side=1).send(b"three").fin(1)
    runs, output, ranges = held(script)
    flows = output.state.flows
    flows.mode[1] = CHAIN
    searched, waits = runs.begin(0, 0), runs.wait(0, 1)
    assert (flows.mode[1], output.state.connections.is_slow[0]) == (HELD, 1)
    for run in (searched, waits, waits, searched, waits):
        runs.add_range(ranges, run)
    assert runs.size == 11 + 5 * PIECE_BYTES
    runs.drop(0, searched, 3)
    assert (runs.size, flows.skipped[0]) == (8 + 4 * PIECE_BYTES, 3)
    assert runs.end(0) is searched
    runs.replay(ranges.ranges, 4, 0, [(0, searched)])
    assert (runs.size, len(runs), flows.mode[1]) == (0, 0, CHAIN)
    (replay,) = output.replays
    assert replay.ranges.packet.tolist() == [2, 3, 4, 5]
    assert replay.ranges.side.tolist() == [1, 1, 0, 1]
    assert replay.ranges.release_packet.tolist() == [5] * 4
    at = replay.ranges.offset[2]
    assert output.state.arena[at : at + 5].tobytes() == b"three"


def test_a_piece_that_goes_through_twice_keeps_its_place() -> None:
    runs, output, ranges = held(Ranges().send(b"one").send(b"two", side=1))
    first = runs.begin(0, 0)
    runs.add_range(ranges, first)
    runs.end(0)
    runs.replay(ranges.ranges, 0, 0, [(0, first)])
    again = runs.begin(0, 0)
    runs.add_range(output.replays[0], again)
    assert again.pieces[0] == first.pieces[0]
    assert again.head() == b"one"


def test_only_a_patient_run_is_waited_for() -> None:
    runs, _, _ = held(Ranges().send(b"one"))
    assert not is_waited_for(None)
    run = runs.begin(0, 0)
    assert not is_waited_for(run)
    run.is_patient = True
    assert is_waited_for(run)


def test_what_is_given_up_is_skipped() -> None:
    runs, output, ranges = held(Ranges().send(b"one"))
    runs.add_range(ranges, runs.begin(0, 0))
    runs.give_up(0, CHAIN)
    flows = output.state.flows
    assert (runs.size, len(runs), flows.skipped[0], flows.mode[0]) == (0, 0, 3, CHAIN)


def test_a_run_that_is_abandon_keeps_the_bytes_that_may_start_a_frame() -> None:
    runs, output, ranges = held(Ranges().send(b"one").lose(4).send(b"three"))
    run = runs.begin(0, 0)
    for _ in range(3):
        runs.add_range(ranges, run)
    run.trail(0).search[RESUME] = 6
    runs.abandon(ranges.ranges, 2, 0, 0)
    assert output.replays[0].ranges.length.tolist() == [4, 2]
    assert output.state.flows.skipped[0] == 6
