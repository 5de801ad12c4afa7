"""Fixtures of the hard cases: commands in this process, files with given bytes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dissector.cli.main import run
from tests.hard.odd import Command, Ended


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    def run_here(*arguments: object) -> Ended:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Ended(code, printed.out, printed.err)

    return run_here


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Puts bytes into a file."""

    def write(data: bytes, name: str = "night.pcap") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return path

    return write
