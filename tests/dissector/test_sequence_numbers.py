"""Wherever sequence numbers begin, the rows are the same: they may begin anew at any place."""

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.anycut import at_random, differences, rows_of
from tests.choosing import LOOKS_AT_ALL, examples
from tests.dissector.observed import CAPTURES, Tables
from tests.dissector.test_lost_packets import whole
from tests.wire.packets import FIN
from tests.wire.recut import Way, beginning_at, out_of_order, records, recut, with_losses
from tests.wire.renumbered import Numbered, numbers_of, renumbered

NUMBERS: Final = tuple(
    f"{number}_{way}"
    for number in ("isn", "first_seq", "last_seq")
    for way in ("to_broker", "to_client")
)
RANGE: Final = 1 << 32
# Losses, copies, the middle of connections, one direction, large frames, both protocols.
FEW: Final = (
    "cursus/go-consume_streaming.pcap",
    "pulsar/cpp-s24_big.pcap",
    "pulsar/tap-caploss.pcap",
    "pulsar/tap-oneway.pcap",
    "pulsar-apache/java-j72_midstream.pcap",
    "pulsar-apache/mut-dup-java-j12_nack_batch.pcap",
)
ALL: Final = tuple(f"{each.parent.name}/{each.name}" for each in CAPTURES.glob("*/*.pcap*"))
each_sample = pytest.mark.parametrize("name", sorted(ALL) if LOOKS_AT_ALL else FEW)

# The number that becomes 0, of the packets of a direction.
Place = Callable[[list[Numbered], random.Random], int]


def _of_data(sent: list[Numbered]) -> Numbered:
    return next((each for each in sent if each.size), sent[0])


def _of_end(sent: list[Numbered]) -> int:
    return next((each.sequence + each.size for each in sent if each.flags & FIN), sent[-1].sequence)


def _drawn(sent: list[Numbered], chance: random.Random) -> int:
    """At a segment's begin, right before or behind it, inside it, or beyond its end."""
    drawn = chance.choice(sent)
    inside = chance.randrange(drawn.size + 1)
    return drawn.sequence + chance.choice((-1, 0, 1, inside, drawn.size + 50))


PLACES: Final[dict[str, Place]] = {
    "behind the first packet": lambda sent, _: sent[0].sequence + 1,
    "at the first packet": lambda sent, _: sent[0].sequence,
    "in the first frame": lambda sent, _: _of_data(sent).sequence + 2,
    "in the middle": lambda sent, _: sent[len(sent) // 2].sequence,
    "at the end": lambda sent, _: _of_end(sent),
    "behind the end": lambda sent, _: _of_end(sent) + 1,
    "half of all numbers away": lambda sent, _: sent[0].sequence + RANGE // 2,
    "drawn": _drawn,
}


def moved(capture: bytes, place: Place, seed: str) -> bytes:
    """A capture in which the numbers of each direction begin anew at a place."""
    chance = random.Random(seed)
    shifts = {way: -place(sent, chance) % RANGE for way, sent in numbers_of(capture).items()}

    def shift_of(way: Way) -> int:
        return shifts.setdefault(way, chance.randrange(RANGE))  # not captured, but acknowledged

    return renumbered(capture, shift_of)


def without_numbers(tables: Tables) -> Tables:
    rows = [
        {name: value for name, value in row.items() if name not in NUMBERS}
        for row in tables["connections"]
    ]
    return tables | {"connections": rows}


def differs(tables: Tables, capture: bytes) -> dict[str, Any]:
    return differences(without_numbers(tables), without_numbers(rows_of(capture)))


@pytest.mark.parametrize("place", PLACES)
@each_sample
def test_sequence_numbers_may_begin_anew_anywhere(name: str, place: str) -> None:
    data, tables = whole(name)
    assert differs(tables, moved(data, PLACES[place], name)) == {}


def lossy(capture: bytes, name: str) -> bytes:
    return with_losses(capture, 0.08, name)


def disordered(capture: bytes, name: str) -> bytes:
    """With segments that come twice, too."""
    return out_of_order(recut(capture, at_random(3)), random.Random(name))


def begun(capture: bytes, name: str) -> bytes:
    """From the middle on, with losses."""
    count = sum(1 for _ in records(capture))
    return with_losses(beginning_at(capture, count // 3), 0.05, name)


@pytest.mark.parametrize("way", [lossy, disordered, begun])
@each_sample
def test_numbers_may_begin_anew_in_a_hole_or_between_copies(
    name: str, way: Callable[[bytes, str], bytes]
) -> None:
    changed = way(whole(name)[0], name)
    tables = rows_of(changed)
    for seed in range(examples(3, 1)):
        assert differs(tables, moved(changed, _drawn, f"{name} {seed}")) == {}


@each_sample
def test_numbers_are_those_of_the_packets(name: str) -> None:
    """What is told of sequence numbers moves with them."""
    data, tables = whole(name)
    shift = 0x9000_0001
    rows = rows_of(renumbered(data, lambda way: shift))
    for row, before in zip(rows["connections"], tables["connections"], strict=True):
        for column in NUMBERS:
            expected = before[column]
            assert row[column] == (None if expected is None else (expected + shift) % RANGE)
