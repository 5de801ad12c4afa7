"""What tests of commands share: sample captures with their truths, and a way to run commands."""

import fcntl
import json
import subprocess
import sys
import termios
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dissector.cli import bundling
from dissector.cli.main import run

SAMPLES = Path(__file__).resolve().parents[3] / "captures" / "pulsar-apache"


class Result(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Command = Callable[..., Result]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process."""

    def run_here(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Result(code, printed.out, printed.err)

    return run_here


@pytest.fixture
def process() -> Command:
    """Run a command in a process of its own, as a shell would."""

    def run_there(*arguments: object, stdin: bytes = b"", **environment: str) -> Result:
        import os

        done = subprocess.run(
            [sys.executable, "-m", "dissector", *map(str, arguments)],
            input=stdin,
            capture_output=True,
            env={**os.environ, **environment},
            timeout=300,
            check=False,
        )
        return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run_there


@pytest.fixture
def without_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of a bundle is a third of its time: where frames are chosen, nobody asks for it.

    Those that are made and verified with it are `lost` of test_evidence, those with planted names
    and the docs'.
    """
    monkeypatch.setattr(bundling, "numbers", lambda lake: {})


def wait_until_read(process: "subprocess.Popen[bytes]", seconds: float = 120) -> None:
    """Until a process has taken all that was written to its input, and waits for more."""
    pipe, end = process.stdin, time.monotonic() + seconds
    assert pipe is not None
    pipe.flush()
    left = array("i", [1])
    while True:
        fcntl.ioctl(pipe, termios.FIONREAD, left)
        if left[0] == 0:
            return
        assert process.poll() is None and time.monotonic() < end, f"{left[0]} bytes were not read"
        time.sleep(0.02)


@pytest.fixture
def nacks() -> Path:
    """A small capture: 20 messages sent, 10 of them asked for again."""
    return SAMPLES / "java-j12_nack.pcap"


def truth(capture: Path) -> dict[str, Any]:
    """What the manifest says about a capture, which an independent decoder counted."""
    manifest: list[dict[str, Any]] = json.loads((SAMPLES / "manifest.json").read_text("utf-8"))
    return next(entry for entry in manifest if entry["file"] == capture.name)
