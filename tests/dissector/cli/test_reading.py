"""Readings and output: all or nothing, standard input twice."""

import io
import sys
from pathlib import Path

import pytest

from dissector.cli.options import Common
from dissector.cli.reading import LineOutput, Reading, rereadable
from dissector.errors import InputError


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
