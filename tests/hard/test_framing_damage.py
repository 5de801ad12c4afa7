"""Real captures under damage: every frame whose bytes are all there comes out, and no other."""

import random
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hard.damage import Tap
from tests.hard.tape import Tables, Tape, capture, dissected, talk
from tests.naive.frames import Stream, headed, judge, placed, streams_of, surviving

CAPTURES = Path(__file__).resolve().parents[2] / "captures"
# Long and short frames, batches, many consumers, big messages; Apache's broker and a small one.
NAMES = (
    "pulsar/cpp-s02_single_1k.pcap",
    "pulsar/cpp-s03_batch_none.pcap",
    "pulsar/cpp-s07_shared_rq1000.pcap",
    "pulsar/cpp-s24_big.pcap",
    "pulsar/go_client.pcap",
    "pulsar-apache/cpp-s08_nack.pcap",
    "pulsar-apache/java-j24_unload.pcap",
    "pulsar-apache/java-j60_txn_commit.pcap",
)
each_capture = pytest.mark.parametrize("name", NAMES)
each_share = pytest.mark.parametrize("share", [0.01, 0.03, 0.1])


@cache
def tap_of(name: str) -> tuple[Tap, dict[object, Stream]]:
    """A capture and its undamaged streams."""
    tap = Tap.read((CAPTURES / name).read_bytes())
    return tap, streams_of(tap.segments())  # type: ignore[return-value]


def statuses(tables: Tables) -> set[str]:
    return {row["status"] for row in tables["frames"]}


@each_capture
def test_undamaged_captures_are_the_reference(name: str) -> None:
    tap, streams = tap_of(name)
    judged = judge(streams, tap.segments(), dissected(tap.bytes()))
    assert (judged.missed, judged.invented) == ([], [])
    assert judged.there == sum(len(stream.frames) for stream in streams.values())


@each_share
@each_capture
def test_b32_lost_packets_cost_only_their_frames(name: str, share: float) -> None:
    tap, streams = tap_of(name)
    for seed in range(3):
        bad = tap.without(share, seed)
        judged = judge(streams, bad.segments(), dissected(bad.bytes()))
        assert (judged.missed, judged.invented) == ([], []), seed


@each_capture
def test_b30_order_and_copies_cost_nothing(name: str) -> None:
    tap, streams = tap_of(name)
    for seed, bad in enumerate(
        (tap.shuffled(3, 0), tap.shuffled(150, 1), tap.doubled(0.3, 2), tap.doubled(1, 3))
    ):
        judged = judge(streams, bad.segments(), dissected(bad.bytes()))
        assert (judged.missed, judged.invented) == ([], []), seed


@each_capture
def test_b26_every_header_that_a_snap_length_leaves_is_a_frame(name: str) -> None:
    tap, streams = tap_of(name)
    for snaplen in (90, 120, 400):
        bad = tap.snapped(snaplen)
        tables = dissected(bad.bytes())
        assert judge(streams, bad.segments(), tables).missed == []
        out = {(flow, span) for flow, span, _ in placed(streams, tables)}
        masks = surviving(streams, bad.segments())
        seen = {
            (flow, span)
            for flow, stream in streams.items()
            for span in headed(stream, masks[flow], 16)
        }
        assert seen <= out
        assert statuses(tables) <= {"complete", "cut_by_snaplen"}


def overlapped(tape: Tape, chance: random.Random) -> Tape:
    """Some packets are sent again with bytes before and behind, and some of those were lost."""
    isn = (1001, 500_001)
    found = []
    for each in tape.packets:
        is_again = bool(each.payload) and chance.random() < 0.3
        if not is_again or chance.random() < 0.5:
            found.append(each)
        if is_again:
            stream = bytes(tape.sent[not each.to_broker])
            at = each.sequence - isn[not each.to_broker]
            start = max(0, at - chance.randrange(40))
            payload = stream[start : at + len(each.payload)]
            again = each._replace(
                sequence=start + isn[not each.to_broker],
                payload=payload,
                identification=each.identification ^ 0x4000,
                ts_ns=each.ts_ns + 1000,
            )
            found.append(again)
    tape.packets = found
    return tape


@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([60, 200, 536, 1448, 9000, 60_000]))
def test_b38_other_segments_and_overlaps_cost_nothing(seed: int, mss: int) -> None:
    tape = talk(12, seed, mss=mss)
    whole = Tap.read(capture(tape.records()))
    bad = Tap.read(capture(overlapped(tape, random.Random(seed)).records()))
    judged = judge(streams_of(whole.segments()), bad.segments(), dissected(bad.bytes()))
    assert (judged.missed, judged.invented) == ([], [])
    assert judged.there == sum(len(frames) for frames in tape.frames)


@settings(max_examples=25, derandomize=True, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([0.01, 0.05, 0.1]), st.sampled_from([60, 200, 1448]))
def test_b32_loss_and_order_and_copies_together(seed: int, share: float, mss: int) -> None:
    whole = Tap.read(capture(talk(12, seed, mss=mss).records()))
    bad = whole.without(share, seed).shuffled(3, seed).doubled(0.1, seed)
    judged = judge(streams_of(whole.segments()), bad.segments(), dissected(bad.bytes()))
    assert (judged.missed, judged.invented) == ([], [])
