"""Runs keep the packets of their bytes when bytes are dropped from the front."""

import numpy as np
import pytest

from dissector.jit import callback
from dissector.limits import RESYNC_HOLD_BYTES, RESYNC_HOLD_MS
from dissector.protocols.framing.replays import Piece
from dissector.protocols.framing.resync import (
    AT,
    BLIND,
    FRAMES,
    IS_OPEN,
    LAST,
    LIVE,
    NOTHING,
    RESUME,
    SECOND,
    THIRD,
    TOTAL,
    Rule,
    is_believed,
    is_confirmed_by_packets,
)
from dissector.protocols.framing.unsynchronised import Run, replay_of
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE
from dissector.stream.columns import DATA, ENDS_PACKET, GAP_LOST
from tests.wire.ranges import WHOLE
from tests.wire.toy import SPEC

CHECKS = (callback(CHECK_SIGNATURE, SPEC.check),)
PROOFS_OF = (callback(SPAN_SIGNATURE, SPEC.prove),)


def run_of(*sizes: int) -> Run:
    """Packets of so many bytes; a negative size is a hole."""
    run = Run()
    offset = 0
    for index, size in enumerate(sizes):
        if size < 0:
            run.add_hole(Piece(offset, -size, index + 1, index * 10, 0, index, GAP_LOST))
        else:
            piece = Piece(offset, size, index + 1, index * 10, WHOLE, index)
            run.add(piece, np.full(size, index, np.uint8))
        offset += abs(size)
    return run


def test_packet_starts_are_known() -> None:
    run = run_of(3, 4, 5)
    starts = [offset for offset in range(12) if run.piece_at(offset).offset == 0]
    assert starts == [0, 3, 7]
    with pytest.raises(IndexError):
        run.piece_at(12)


def test_dropping_inside_a_piece_keeps_its_packet_but_not_its_start() -> None:
    run = run_of(3, 4, 5)
    run.trail(0).search[RESUME] = 9
    run.drop(5)
    assert run.pieces[0] == Piece(5, 2, 2, 10, ENDS_PACKET, 1)
    assert run.pieces[1] == Piece(7, 5, 3, 20, WHOLE, 2)
    assert run.trail(0).search[RESUME] == 4
    assert run.head() == bytes([1, 1, 2, 2, 2, 2, 2])


def test_dropping_bytes_keeps_the_gaps_to_be_by_packets() -> None:
    run = run_of(3, -7, 4, -2, 5)
    run.drop(4)
    assert [(run.pieces[row].kind, run.pieces[row].length) for row in range(run.count)] == [
        (GAP_LOST, 7), (DATA, 3), (GAP_LOST, 2), (DATA, 5),
    ]  # fmt: skip
    holes = run.searched(0).holes
    assert (run.hole_count, holes[:, 0].tolist()) == (1, [3, 2])


def chain(run: Run, *starts: int, total: int = 0) -> Run:
    """Say that a search found frames at these offsets."""
    search = run.trail(0).search
    search[AT], search[FRAMES], search[LAST] = starts[0], len(starts), starts[-1]
    search[SECOND] = starts[1] if len(starts) > 1 else -1
    search[THIRD] = starts[2] if len(starts) > 2 else -1
    search[TOTAL], search[IS_OPEN] = total, int(total > 0)
    return run


def rule(is_final: int = 0, is_open: int = 0, skipped: int = 0) -> Rule:
    return Rule(CHECKS, PROOFS_OF, 0, 2, 10_000, is_final, is_open, skipped)


def test_a_chain_is_believed_when_it_has_stood_long_enough() -> None:
    late = RESYNC_HOLD_MS * 1_000_000 + 1
    run = chain(run_of(3, 4, 5), 3, 5)
    assert not is_believed(run.searched(0), rule(1), NOTHING, 0)
    assert not is_believed(run.searched(0), rule(), LIVE, late)
    assert is_believed(run.searched(0), rule(), LIVE, late + 10)
    assert is_believed(run.searched(0), rule(), BLIND, 0)
    assert is_believed(run.searched(0), rule(1), LIVE, 0)
    run = chain(run_of(10, RESYNC_HOLD_BYTES), 10, 20, 10 + RESYNC_HOLD_BYTES, total=100)
    assert is_believed(run.searched(0), rule(), LIVE, 0)


def test_the_end_of_a_long_frame_is_waited_for() -> None:
    run = chain(run_of(10, RESYNC_HOLD_BYTES + 20), 10, 10 + RESYNC_HOLD_BYTES, total=1_000_000)
    assert not is_believed(run.searched(0), rule(), LIVE, 10**12)


def is_confirmed(run: Run) -> bool:
    return is_confirmed_by_packets(run.searched(0))


def test_three_frames_that_begin_packets_are_by_packets_by_packets() -> None:
    assert is_confirmed(chain(run_of(3, 4, 5, 6), 3, 7, 12))
    assert not is_confirmed(chain(run_of(3, 4, 5, 6), 3, 7, 11))
    assert not is_confirmed(chain(run_of(3, 4, 5), 3, 7, 12))
    # A header that is not judged yet, and bytes that each begin a packet, tell nothing.
    unjudged = chain(run_of(3, 4, 5, 6), 3, 7, 12)
    unjudged.trail(0).search[FRAMES] = 2
    assert not is_confirmed(unjudged)
    assert not is_confirmed(chain(run_of(*[1] * 40), 3, 16, 29))
    assert is_confirmed(chain(run_of(3, 4, 9, 4, 9, 6), 3, 16, 29))
    # TCP cuts a long payload into equal parts.
    assert not is_confirmed(chain(run_of(3, 1448, 1448, 6), 3, 1451, 2899))


def test_replays_of_both_directions_go_as_they_arrived() -> None:
    first, second = run_of(3, 4), run_of(2)
    first.pieces.order[1] = 9
    second.pieces.order[0] = 5
    second.pieces.packet[0] = 4
    replay = replay_of([(2, first), (3, second)], 77, 100, 12)
    assert replay.ranges.packet.tolist() == [1, 4, 2]
    assert replay.ranges.side.tolist() == [0, 1, 0]
    assert replay.ranges.offset.tolist() == [100, 107, 103]
    replay.move(50)
    assert replay.ranges.offset.tolist() == [50, 57, 53]
