"""A search finds the lowest chain that nothing contradicts, at a cost linear in the bytes."""

import random

import numpy as np
import pytest

from dissector.jit import callback
from dissector.protocols.framing.replays import Piece
from dissector.protocols.framing.resync import (
    AT,
    BLIND,
    FRAMES,
    LIVE,
    NOTHING,
    PROOFS,
    RESUME,
    STEPS,
    SUMMED,
    Rule,
    find_chain,
)
from dissector.protocols.framing.unsynchronised import Run
from dissector.protocols.interface import CHECK_SIGNATURE, SPAN_SIGNATURE
from dissector.stream.columns import GAP_LOST
from tests.wire.ranges import WHOLE
from tests.wire.toy import PROVEN, SPEC, TO_BROKER, frame

CHECKS = (callback(CHECK_SIGNATURE, SPEC.check),)
PROOFS_OF = (callback(SPAN_SIGNATURE, SPEC.prove),)
JUNK = b"\xff" * 9


def run_of(*parts: bytes | int) -> Run:
    """Packets, and holes as their lengths."""
    run = Run()
    for part in parts:
        add(run, part)
    return run


def add(run: Run, part: bytes | int) -> None:
    offset = int(run.pieces.length[: run.count].sum())
    number = run.count + 1
    if isinstance(part, int):
        run.add_hole(Piece(offset, part, number, number, 0, number, GAP_LOST))
    else:
        piece = Piece(offset, len(part), number, number, WHOLE, number)
        run.add(piece, np.frombuffer(part, np.uint8))


def search(run: Run, is_final: int = 0) -> int:
    return find_chain(run.searched(0), Rule(CHECKS, PROOFS_OF, 0, 2, 10_000, is_final, 0, 0))


def cell(run: Run, number: int) -> int:
    return int(run.trail(0).search[number])


def test_one_header_is_a_chain_that_stands_until_something_contradicts_it() -> None:
    run = run_of(JUNK + frame(TO_BROKER))
    assert (search(run), cell(run, AT), cell(run, FRAMES)) == (LIVE, 9, 1)
    add(run, frame(TO_BROKER))
    assert (search(run), cell(run, AT), cell(run, FRAMES)) == (LIVE, 9, 2)
    add(run, JUNK)
    assert (search(run), cell(run, AT)) == (NOTHING, -1)
    assert cell(run, RESUME) > 9


def test_the_chain_behind_a_contradicted_one_is_found() -> None:
    inner = JUNK + frame(TO_BROKER, b"inner") * 2 + frame(TO_BROKER, bytes(30))[:20]
    run = run_of(inner + frame(TO_BROKER, b"outer") * 3)
    assert search(run) == LIVE
    assert cell(run, AT) == len(inner)


def test_a_right_sum_is_counted() -> None:
    run = run_of(JUNK + frame(PROVEN) + frame(TO_BROKER))
    search(run)
    assert cell(run, PROOFS) == 1


def test_a_frame_with_a_wrong_sum_that_is_a_chain_inside_is_none() -> None:
    """The last frame of a recorded stream, cut off, may end by chance where a frame does."""
    true = frame(PROVEN, b"x") * 4
    cut = frame(PROVEN, bytes(10 + len(true)))[:15]
    run = run_of(JUNK + frame(PROVEN, b"recorded") + cut + true + frame(PROVEN))
    assert search(run) == LIVE
    assert cell(run, AT) == 9 + len(frame(PROVEN, b"recorded")) + len(cut)


def test_a_frame_with_a_wrong_sum_alone_contradicts_nothing() -> None:
    wrong = frame(PROVEN, b"wrong")[:-1] + b"\0"
    run = run_of(JUNK + frame(PROVEN) + wrong + frame(PROVEN))
    assert (search(run), cell(run, AT), cell(run, FRAMES)) == (LIVE, 9, 3)


def test_an_end_behind_a_hole_confirms_or_contradicts() -> None:
    long = frame(TO_BROKER, bytes(100))
    run = run_of(JUNK + long[:40], 30, long[70:] + frame(TO_BROKER))
    assert (search(run), cell(run, AT), cell(run, FRAMES)) == (LIVE, 9, 2)
    run = run_of(JUNK + long[:40], 30, long[60:] + frame(TO_BROKER) * 2)
    assert search(run) == LIVE
    assert cell(run, AT) == 9 + 40 + len(long[60:])


def test_a_chain_whose_next_header_lies_in_a_hole_is_blind() -> None:
    long = frame(TO_BROKER, bytes(100))
    left = len(long) - 40
    for hole, expected in ((left - 1, LIVE), (left, LIVE), (left + 1, BLIND), (left + 90, BLIND)):
        run = run_of(JUNK + long[:40], hole, frame(TO_BROKER)[-1:] * (left - hole))
        assert (search(run), cell(run, AT)) == (expected, 9)
    run = run_of(JUNK + long, 10)
    assert (search(run), cell(run, AT)) == (BLIND, 9)


@pytest.mark.parametrize("tail", range(1, 6))
def test_a_header_that_is_not_whole_is_kept_for_more_bytes(tail: int) -> None:
    run = run_of(b"\xff" * 20 + frame(TO_BROKER)[:tail])
    assert search(run) == NOTHING
    assert cell(run, RESUME) <= 20


@pytest.mark.parametrize("seed", range(20))
def test_bytes_may_come_in_any_pieces(seed: int) -> None:
    chance = random.Random(seed)
    parts = []
    for _ in range(12):
        whole = frame(chance.choice([TO_BROKER, PROVEN]), chance.randbytes(chance.randrange(40)))
        parts.append(chance.choice([whole, whole[: chance.randrange(1, len(whole))], JUNK, whole]))
    data = b"".join(parts)
    whole_run = run_of(data)
    expected = search(whole_run)
    pieces = Run()
    for at in range(0, len(data), 7):
        add(pieces, data[at : at + 7])
        found = search(pieces)
    assert (found, cell(pieces, AT)) == (expected, cell(whole_run, AT))
    assert cell(pieces, FRAMES) == cell(whole_run, FRAMES)


def look_alikes(size: int) -> bytes:
    """Headers everywhere: each says that its frame ends far on, where no header stands."""
    head = frame(TO_BROKER, bytes(4000))[:6]
    return head * (size // len(head))


def nearly_a_chain(size: int) -> bytes:
    """Chains that begin everywhere and all break at the same place."""
    return (frame(PROVEN, b"ab") + frame(TO_BROKER)[:3]) * 3 + frame(TO_BROKER) * (size // 6) + JUNK


def wrong_sums(size: int) -> bytes:
    """Long frames with wrong sums inside each other, in a chain that goes on."""
    wrong = frame(PROVEN, bytes(5000))
    data = bytearray(wrong[:-1] + b"\1") * (size // len(wrong))
    for at in range(0, len(data) - 6000, 50):
        if data[at : at + 6] == bytes(6):
            data[at : at + 6] = frame(PROVEN, bytes(3000))[:6]
    return bytes(data)


@pytest.mark.parametrize("make", [look_alikes, nearly_a_chain, wrong_sums])
def test_the_cost_is_linear_in_the_bytes(make: object) -> None:
    steps = []
    for size in (100_000, 400_000):
        run = Run()
        data = make(size)  # type: ignore[operator]
        for at in range(0, len(data), 1000):
            add(run, data[at : at + 1000])
            search(run)
        steps.append(cell(run, STEPS))
        assert steps[-1] <= 6 * len(data) + 100_000
        assert cell(run, SUMMED) <= 5 * len(data) + 100_000
    assert steps[1] <= 4.4 * steps[0] + 1000
