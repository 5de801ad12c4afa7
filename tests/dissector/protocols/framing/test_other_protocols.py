"""Other protocols, whole and from within: named where they can be told, and never a broker's."""

import random

import pytest

from tests.hard.tape import Tape, capture, dissected
from tests.wire import cursus, others, packets
from tests.wire.others import Talk

NAMED = [(name, talk) for name, talk in others.NAMED.items()]
NAMED.append(("bookkeeper", others.bookkeeper(is_binary=True)))
MADE = 120  # protocols that are made up


def protocols(
    talk: Talk, skip: int = 0, cut: int = 0, mss: int = 1448, is_whole: bool = False
) -> set[str]:
    """What the connection is named.

    Args:
        skip, cut: messages, and bytes of the next one, before the capture. mss: of segments.
    """
    tape = Tape(broker=(packets.BROKER, talk.port), mss=mss)
    if is_whole:
        tape.open()
    for number, (to_server, data) in enumerate(talk.said[skip:]):
        if data := data[0 if number else cut :]:
            tape.say(to_server, data)
    tape.close()
    rows = dissected(capture(tape.records()))["connections"]
    return {row["protocol"] for row in rows}


@pytest.mark.parametrize(("name", "talk"), NAMED)
def test_known_protocols_are_named_whole_and_from_any_message_on(name: str, talk: Talk) -> None:
    assert protocols(talk, is_whole=True) == {name}
    for skip in range(len(talk.said) - 1):
        for mss in (1448, 3):
            assert protocols(talk, skip, mss=mss) == {name}, (skip, mss)


@pytest.mark.parametrize(("name", "talk"), NAMED)
def test_what_is_hard_to_mistake_needs_no_port(name: str, talk: Talk) -> None:
    names = protocols(talk._replace(port=7000), is_whole=True)
    assert names == {"unknown" if name == "bookkeeper" else name}
    assert protocols(Talk(talk.port, others.UNNAMED["redis"].said)) == {"unknown"}


@pytest.mark.parametrize("name", others.UNNAMED)
def test_other_protocols_from_within_are_no_brokers(name: str) -> None:
    talk = others.UNNAMED[name]
    assert protocols(talk, is_whole=True) == {"unknown"}
    for skip in range(len(talk.said)):
        for cut in (0, 1, 3, 5):
            names = protocols(talk, skip, cut)
            assert not names & {"cursus", "pulsar", *others.NAMED}, (skip, cut)


@pytest.mark.parametrize("seed", range(MADE))
def test_bodies_behind_lengths_are_no_cursus(seed: int) -> None:
    talk, chance = others.random_protocol(seed), random.Random(seed)
    skip, cut = chance.randrange(len(talk.said)), chance.choice((0, 0, chance.randrange(20)))
    for mss in (1448, chance.randrange(1, 40)):
        assert not protocols(talk, skip, cut, mss) & {"cursus", "pulsar"}, (skip, cut, mss)


@pytest.mark.parametrize("mss", [1448, 1, 7])
def test_cursus_from_within_is_cursus(mss: int) -> None:
    """A command with a second one behind it, one that is all there is, and a batch that is cut."""
    line, answer = cursus.bare("FETCH_OFFSET topic=a partition=0"), cursus.frame(b"OK offset=7")
    asked = [(True, line), (False, answer)] * 3
    assert protocols(Talk(9000, tuple(asked)), 2, mss=mss) == {"cursus"}
    assert protocols(Talk(9000, tuple(asked)), 2, 5, mss) == {"cursus"}
    assert protocols(Talk(9000, ((True, line), (False, answer)))) == {"cursus"}
    batch = cursus.batch(cursus.records(9))
    assert protocols(Talk(9000, ((True, batch[:-9]),)), mss=mss) == {"cursus"}


def test_the_frames_of_a_direction_that_ends_wait_for_the_other_one_to_tell_the_protocol() -> None:
    """Compressed requests tell nothing: others compress, too. The answers do."""
    request = cursus.frame(b"\x1f\x8b\x08" + bytes(60))
    tape = Tape(broker=(packets.BROKER, 9000))
    tape.say(True, request + request)
    tape.add(True, packets.FIN | packets.ACK)
    tape.say(False, cursus.frame(b"OK offset=1") * 2)
    tape.add(False, packets.FIN | packets.ACK)
    rows = dissected(capture(tape.records()))
    assert [row["protocol"] for row in rows["connections"]] == ["cursus"]
    assert len(rows["frames"]) == 4
    alone = Talk(9000, ((True, request), (True, request), (True, request)))
    assert protocols(alone) == {"unknown"}
