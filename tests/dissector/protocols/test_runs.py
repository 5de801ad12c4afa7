"""Runs keep the packets of their bytes when bytes are dropped from the front."""

from dissector.protocols.runs import Piece, Run, replay_of
from tests.wire.ranges import WHOLE


def run_of(*sizes: int) -> Run:
    run = Run()
    offset = 0
    for index, size in enumerate(sizes):
        run.add(Piece(offset, size, index + 1, index * 10, WHOLE), bytes([index]) * size)
        offset += size
    return run


def test_edges_are_packet_starts_and_the_last_end():
    assert run_of(3, 4, 5).edges().tolist() == [0, 3, 7, 12]


def test_dropping_inside_a_piece_keeps_its_packet_but_not_its_start():
    run = run_of(3, 4, 5)
    run.resume = 9
    run.drop(5)
    assert (run.pieces[0].stream_offset, run.pieces[0].length, run.pieces[0].packet) == (5, 2, 2)
    assert run.edges().tolist() == [2, 7]
    assert run.resume == 4
    assert bytes(run.data) == bytes([1, 1, 2, 2, 2, 2, 2])


def test_replays_of_both_directions_go_by_turn():
    first, second = run_of(3, 4), run_of(2)
    first.pieces[1].packet = 9
    second.pieces[0].packet = 5
    replay = replay_of([(2, first), (3, second)], 77, 100, 12)
    assert replay.ranges.packet.tolist() == [1, 5, 9]
    assert replay.ranges.side.tolist() == [0, 1, 0]
    assert replay.ranges.offset.tolist() == [100, 107, 103]
    replay.move(50)
    assert replay.ranges.offset.tolist() == [50, 57, 53]
