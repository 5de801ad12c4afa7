"""Payload that was captured and not used is a loss: the last line and the exit code say so."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_OK, EXIT_PARTIAL
from dissector.cli.main import run
from dissector.limits import MAX_UNCONFIRMED_HOLE
from tests.hard.tape import Packet, Tape, capture
from tests.wire.packets import ACK, FIN, PSH, RST, SYN

SECOND = 1_000_000_000


def conversation() -> Tape:
    tape = Tape()
    tape.open()
    tape.connect()
    for number in range(3):
        tape.publish(number, b"payload")
    return tape


def after(tape: Tape, flags: int = ACK | PSH, by: int = 0, payload: bytes = b"lost words") -> None:
    """A packet of the client with payload so far from where its stream is."""
    tape.now += SECOND
    sequence = (tape.next[0] + by) & 0xFFFF_FFFF
    tape.packets.append(Packet(tape.now, True, sequence, tape.next[1], flags, payload,
                               identification=4000 + len(tape.packets)))  # fmt: skip
    tape.now += SECOND


def behind_the_end(tape: Tape) -> None:
    tape.close()
    after(tape)


def behind_a_reset(tape: Tape) -> None:
    tape.add(True, RST | ACK)
    after(tape)


def behind_a_fin(tape: Tape) -> None:
    tape.add(True, FIN | ACK)
    after(tape)


def waiting_behind_a_fin(tape: Tape) -> None:
    after(tape, by=20)
    tape.packets.append(Packet(tape.now, True, tape.next[0], tape.next[1], FIN | ACK))


def in_a_reset(tape: Tape) -> None:
    after(tape, RST | ACK)


def in_a_stray_syn(tape: Tape) -> None:
    after(tape, SYN, by=-5)


def before_its_stream(tape: Tape) -> None:
    after(tape, by=-50_000)


def a_lone_segment_far_ahead(tape: Tape) -> None:
    """Where no SYN tells how far windows reach."""
    del tape.packets[:3]
    after(tape, by=MAX_UNCONFIRMED_HOLE + 10)


def damaged_and_far(tape: Tape) -> None:
    after(tape, by=1 << 31)
    tape.packets[-1] = tape.packets[-1]._replace(is_damaged=True)


WAYS: list[Callable[[Tape], None]] = [
    behind_the_end, behind_a_reset, behind_a_fin, waiting_behind_a_fin, in_a_reset, in_a_stray_syn,
    before_its_stream, a_lone_segment_far_ahead, damaged_and_far,
]  # fmt: skip


def landed(tape: Tape, folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    path = folder / "tap.pcap"
    path.write_bytes(capture(tape.records()))
    code = run(["land", str(path), "--lake", str(folder / "lake")])
    return code, capsys.readouterr().err


def test_a_whole_conversation_lost_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = landed(conversation(), tmp_path, capsys)
    assert code == EXIT_OK and said.strip().endswith("nothing lost")


@pytest.mark.parametrize("drop", WAYS, ids=lambda drop: drop.__name__)
def test_payload_that_is_thrown_away_is_never_nothing(
    drop: Callable[[Tape], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tape = conversation()
    drop(tape)
    code, said = landed(tape, tmp_path, capsys)
    assert code == EXIT_PARTIAL
    assert "nothing lost" not in said
    assert "10 bytes outside their streams not used" in said


def test_a_stream_that_leaps_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody knows how much lies between."""
    tape = conversation()
    after(tape, by=1 << 31)
    code, said = landed(tape, tmp_path, capsys)
    assert code == EXIT_OK
    assert "1 stream that leaps to far numbers" in said and "never captured" not in said
