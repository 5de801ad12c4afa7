"""Frames inside payloads: not taken for frames where the bytes decide, else told by a notice."""

import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hard.damage import Tap
from tests.hard.framing_cases import data_packets, opened, recorded, without
from tests.hard.tape import Tables, Tape, capture, codes, dissected, send
from tests.naive.frames import Verdict, judge, streams_of

# What a message may carry that was a Pulsar stream: cut at its end, or not; several, as a batch
# or a bridge to another cluster has them; compressed.
KINDS = ("cut", "whole", "beheaded", "batch", "bridged", "compressed")
DECIDED = ("cut", "batch", "bridged", "compressed")  # kinds whose end contradicts what is inside


def payload(kind: str, chance: random.Random) -> bytes:
    """A payload of a kind."""
    stream = recorded(chance.randrange(1000), chance.choice([3, 20, 60]), chance.choice([20, 400]))
    if kind == "cut":
        return stream[chance.randrange(30) : len(stream) - chance.randrange(1, 20)]
    if kind == "beheaded":
        return stream[chance.randrange(30) :]
    if kind == "batch":
        head = b"\x18" + bytes([len(stream) & 0x7F])
        return b"".join(struct.pack(">I", len(head)) + head + stream for _ in range(3)) + b"\0"
    if kind == "bridged":
        # A replicator's message: what another broker stored, metadata and payload, not its frame.
        return send(7, stream)[8:] + b"end"
    return zlib.compress(stream) if kind == "compressed" else stream


def conversation(kind: str, seed: int, count: int = 6) -> Tape:
    """Messages with such payloads, and others between them."""
    chance = random.Random(seed)
    tape = opened()
    for number in range(count):
        tape.publish(number, payload(kind, chance))
        for more in range(chance.randrange(4)):
            tape.publish(1000 * number + more, chance.randbytes(chance.choice([10, 100, 2000])))
    tape.close()
    return tape


def held_against(tape: Tape, bad: Tap) -> tuple[Verdict, Tables]:
    whole = Tap.read(capture(tape.records()))
    tables = dissected(bad.bytes())
    return judge(streams_of(whole.segments()), bad.segments(), tables), tables


def is_told(tables: Tables) -> bool:
    return "resync_unconfirmed" in codes(tables)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 10_000), st.sampled_from([0.01, 0.03, 0.1]))
def test_b49_frames_in_payloads_under_loss(kind: str, seed: int, share: float) -> None:
    tape = conversation(kind, seed)
    found, tables = held_against(tape, Tap.read(capture(tape.records())).without(share, seed))
    assert found.missed == []
    assert found.invented == [] or is_told(tables)


@pytest.mark.parametrize("kind", DECIDED)
@pytest.mark.parametrize("lost", [1, 2, 3])
def test_b49_the_end_of_a_payload_contradicts_what_is_inside(kind: str, lost: int) -> None:
    for seed in range(8):
        chance = random.Random(seed)
        tape = opened()
        tape.publish(0, b"before")
        first = len(data_packets(tape))
        tape.publish(
            1, bytes(2000) + payload(kind, chance) + bytes(chance.randrange(20, 29)) + b"\1"
        )
        for number in range(2, 12):
            tape.publish(number, bytes([number]) * (50 + 9 * number))
        tape.close()
        whole = Tap.read(capture(tape.records()))
        without(tape, *data_packets(tape)[first : first + lost])
        bad = Tap.read(capture(tape.records()))
        judged = judge(streams_of(whole.segments()), bad.segments(), dissected(bad.bytes()))
        assert (judged.missed, judged.invented) == ([], []), seed


def test_b49_a_recorded_frame_that_reaches_over_true_ones_is_none() -> None:
    """The last recorded frame is cut off and says that it is longer: true frames follow."""
    for size in (300, 4000, 200_000):
        tape = opened()
        tape.publish(0, b"before")
        first = len(data_packets(tape))
        stream = recorded(5, 10) + send(99, bytes(size))[:90]
        tape.publish(1, bytes(2000) + stream)
        for number in range(2, 400):
            tape.frame(True, send(number, bytes([number & 0xFF]) * (700 + number)), is_acked=False)
        tape.close()
        whole = Tap.read(capture(tape.records()))
        without(tape, data_packets(tape)[first])
        bad = Tap.read(capture(tape.records()))
        judged = judge(streams_of(whole.segments()), bad.segments(), dissected(bad.bytes()))
        assert (judged.missed, judged.invented) == ([], []), size


def test_b49_what_nothing_contradicts_comes_out_with_a_notice() -> None:
    """Whole recorded frames up to the end of the payload: the next true frame follows on them."""
    tape = opened()
    tape.publish(0, bytes(2000) + recorded(6, 10))
    tape.publish(1, b"behind")
    tape.close()
    whole = Tap.read(capture(tape.records()))
    without(tape, data_packets(tape)[2])
    bad = Tap.read(capture(tape.records()))
    tables = dissected(bad.bytes())
    judged = judge(streams_of(whole.segments()), bad.segments(), tables)
    assert judged.missed == [] and judged.invented
    assert codes(tables).count("resync_unconfirmed") == 1
