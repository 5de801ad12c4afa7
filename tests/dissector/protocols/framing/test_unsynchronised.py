"""Runs keep the packets of their bytes when bytes are dropped from the front."""

import numpy as np
import pytest

from dissector.dissection import Options
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
)
from dissector.protocols.framing.unsynchronised import Run, replay_of
from dissector.schemas.rows import arrow_batch
from dissector.sources.dissect import dissect
from dissector.sources.rings import chains
from dissector.stream.columns import DATA, GAP_LOST
from tests.busy.traffic import Size, write_capture
from tests.wire.ranges import WHOLE


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
    assert [offset for offset in range(12) if run.is_packet_start(offset)] == [0, 3, 7]
    with pytest.raises(IndexError):
        run.piece_at(12)


def test_dropping_inside_a_piece_keeps_its_packet_but_not_its_start() -> None:
    run = run_of(3, 4, 5)
    run.trail(0).search[RESUME] = 9
    run.drop(5)
    assert (run.pieces[0].stream_offset, run.pieces[0].length, run.pieces[0].packet) == (5, 2, 2)
    assert [offset for offset in range(7) if run.is_packet_start(offset)] == [2]
    assert run.trail(0).search[RESUME] == 4
    assert run.head() == bytes([1, 1, 2, 2, 2, 2, 2])


def test_dropping_bytes_keeps_the_gaps_to_be_by_packets() -> None:
    run = run_of(3, -7, 4, -2, 5)
    run.drop(4)
    assert [(piece.kind, piece.length) for piece in run.pieces] == [
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


def test_a_chain_is_believed_when_it_has_stood_long_enough() -> None:
    late = RESYNC_HOLD_MS * 1_000_000 + 1
    run = chain(run_of(3, 4, 5), 3, 5)
    assert not run.is_believed(0, NOTHING, 0, True)
    assert not run.is_believed(0, LIVE, late, False)
    assert run.is_believed(0, LIVE, late + 10, False)
    assert run.is_believed(0, BLIND, 0, False) and run.is_believed(0, LIVE, 0, True)
    run = chain(run_of(10, RESYNC_HOLD_BYTES), 10, 20, 10 + RESYNC_HOLD_BYTES, total=100)
    assert run.is_believed(0, LIVE, 0, False)


def test_the_end_of_a_long_frame_is_waited_for() -> None:
    run = chain(run_of(10, RESYNC_HOLD_BYTES + 20), 10, 10 + RESYNC_HOLD_BYTES, total=1_000_000)
    assert not run.is_believed(0, LIVE, 10**12, False)


def test_three_frames_that_begin_packets_are_by_packets_by_packets() -> None:
    assert chain(run_of(3, 4, 5, 6), 3, 7, 12).is_confirmed_by_packets(0)
    assert not chain(run_of(3, 4, 5, 6), 3, 7, 11).is_confirmed_by_packets(0)
    assert not chain(run_of(3, 4, 5), 3, 7, 12).is_confirmed_by_packets(0)
    # A header that is not judged yet, and bytes that each begin a packet, tell nothing.
    unjudged = chain(run_of(3, 4, 5, 6), 3, 7, 12)
    unjudged.trail(0).search[FRAMES] = 2
    assert not unjudged.is_confirmed_by_packets(0)
    assert not chain(run_of(*[1] * 40), 3, 16, 29).is_confirmed_by_packets(0)
    assert chain(run_of(3, 4, 9, 4, 9, 6), 3, 16, 29).is_confirmed_by_packets(0)
    # TCP cuts a long payload into equal parts.
    assert not chain(run_of(3, 1448, 1448, 6), 3, 1451, 2899).is_confirmed_by_packets(0)


def test_replays_of_both_directions_go_as_they_arrived() -> None:
    first, second = run_of(3, 4), run_of(2)
    first.pieces[1].order = 9
    second.pieces[0].order = 5
    second.pieces[0].packet = 4
    replay = replay_of([(2, first), (3, second)], 77, 100, 12)
    assert replay.ranges.packet.tolist() == [1, 4, 2]
    assert replay.ranges.side.tolist() == [0, 1, 0]
    assert replay.ranges.offset.tolist() == [100, 107, 103]
    replay.move(50)
    assert replay.ranges.offset.tolist() == [50, 57, 53]


def without_each(capture: bytes, nth: int) -> bytes:
    """A pcap file without each nth packet."""
    kept, at, number = [capture[:24]], 24, 0
    while at < len(capture):
        end = at + 16 + int.from_bytes(capture[at + 8 : at + 12], "little")
        number += 1
        kept += [] if number % nth == 0 else [capture[at:end]]
        at = end
    return b"".join(kept)


def test_a_search_that_is_not_asked_inside_a_frame_finds_the_same(tmp_path, monkeypatch) -> None:
    """The end of a long frame is waited for without a search; rows are those of searches."""
    path = tmp_path / "lossy.pcap"
    write_capture(path, Size(400, message_bytes=(200,) * 4, batch=100))
    path.write_bytes(without_each(path.read_bytes(), 97))
    (chain_of_files,) = chains([str(path)]).chains

    def rows() -> list[tuple]:
        return [
            (block.table, arrow_batch(block).to_pylist())
            for block in dissect(chain_of_files, Options())
            if block.table != "capture_files"
        ]

    answers: list[bool] = []
    asked = Run.is_inside_frame

    def noted(run: Run, protocol: int) -> bool:
        answers.append(asked(run, protocol))
        return answers[-1]

    monkeypatch.setattr(Run, "is_inside_frame", noted)
    found = rows()
    assert any(answers), "the capture has none"
    monkeypatch.setattr(Run, "is_inside_frame", lambda *_: False)
    assert rows() == found
