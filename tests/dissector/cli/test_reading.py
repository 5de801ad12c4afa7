"""Readings and output: all or nothing, standard input twice."""

import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_INPUT, EXIT_OK, EXIT_USAGE
from dissector.cli.options import Common
from dissector.cli.reading import LineOutput, Reading, rereadable
from dissector.errors import InputError
from tests.dissector.cli.conftest import Command


def test_strict_output_waits_until_it_is_released(capsys: pytest.CaptureFixture[str]) -> None:
    with LineOutput(is_strict=True) as output:
        output.line("one")
        assert capsys.readouterr().out == ""
        output.release()
        assert capsys.readouterr().out == "one\n"
    with LineOutput(is_strict=True) as output:
        output.line("two")
    assert capsys.readouterr().out == ""
    with LineOutput(is_strict=False) as output:
        output.line("three")
    assert capsys.readouterr().out == "three\n"


def test_standard_input_can_be_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(b"bytes")

    monkeypatch.setattr(sys, "stdin", Input())
    with rereadable(["a", "-"]) as inputs:
        assert inputs[0] == "a"
        spooled = Path(inputs[1])
        assert spooled.read_bytes() == b"bytes" and spooled.name == "stdin"
    assert not spooled.exists()
    with rereadable(["a"]) as inputs:
        assert inputs == ["a"]


@pytest.mark.parametrize(
    ("arguments", "is_over"),
    [
        (("frames", "-w", "{folder}/one.pcapng"), False),
        (("anonymize", "-o", "{folder}/two.pcapng"), False),
        (("evidence", "--frames", "5", "-o", "{folder}/three.zip"), False),
        (("follow", "--connection", "0"), False),
        (("frames", "--since", "-5s"), True),  # it says so, and reads nothing
    ],
)
def test_a_pipe_with_a_name_is_read_like_standard_input(
    process: Command, nacks: Path, tmp_path: Path, arguments: tuple[str, ...], is_over: bool
) -> None:
    """Opened for a second time it would wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = None if is_over else subprocess.Popen(["cp", nacks, pipe])
    if is_over:
        descriptor = os.open(pipe, os.O_RDWR)  # else opening it would wait
    done = process(arguments[0], pipe, *(one.format(folder=tmp_path) for one in arguments[1:]))
    if writer is not None:
        assert (done.code, writer.wait()) == (EXIT_OK, 0)
    else:
        os.close(descriptor)
        assert done.code == EXIT_USAGE and "which a pipe does not tell" in done.err


def test_messages_about_a_pipe_name_it_as_it_was_given(process: Command, tmp_path: Path) -> None:
    """What reads twice reads a copy."""
    pipe, output = tmp_path / "pipe", tmp_path / "out.pcap"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["cp", __file__, pipe])
    done = process("frames", pipe, "-w", output)
    assert (done.code, writer.wait()) == (EXIT_INPUT, 0)
    assert done.err.startswith(f"dissector: {pipe}: not a capture, it begins with text")
    done = process("frames", "-", "-w", output, stdin=b"no capture")
    assert done.code == EXIT_INPUT and done.err.startswith("dissector: stdin: not a capture, ")


def test_a_pipe_in_a_folder_is_passed_over(process: Command, nacks: Path, tmp_path: Path) -> None:
    """It may wait for its writer for ever."""
    shutil.copy(nacks, tmp_path)
    os.mkfifo(tmp_path / "pipe.pcap")
    done = process("connections", tmp_path)
    assert done.code == EXIT_OK and "in 1 file: 1 connection" in done.err
    (tmp_path / nacks.name).unlink()
    assert process("connections", tmp_path).code == EXIT_INPUT


def test_inputs_that_cannot_be_read_are_told_or_refused(nacks: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Reading([str(tmp_path / "missing")], Common())
    reading = Reading([str(nacks), str(tmp_path / "missing")], Common(loudness=0))
    assert reading.account.is_partial and len(reading.chains) == 1
    assert reading.total_bytes == nacks.stat().st_size
    reading.refuse_if_partial()
    strict = Reading([str(nacks), str(tmp_path / "missing")], Common(is_strict=True))
    with pytest.raises(InputError, match="--strict"):
        strict.refuse_if_partial()
