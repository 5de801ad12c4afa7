"""What is said while kernels are compiled: at once, how far, and how to do it beforehand."""

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from dissector.cli import terminal
from dissector.cli.compiling import KERNELS, Compiling, is_needed
from dissector.cli.terminal import NORMAL, QUIET, Messages
from dissector.jit import compiled, program_digest
from dissector.limits import MAX_UNCOMPILED_BYTES
from dissector.native.code import keep_list
from tests.dissector.cli.conftest import Command

needs_compiler = pytest.mark.skipif(not compiled(), reason="nothing is compiled")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that a test decides."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache without code."""
    monkeypatch.setenv("DISSECTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_first_kernel_is_announced_before_it_is_compiled(cold: Path) -> None:
    stream, clock = io.StringIO(), Clock()
    listener = Compiling(Messages(NORMAL, stream), True, stream, clock)
    listener("dissector.packet.decode.read_packets")
    (line,) = stream.getvalue().splitlines()
    assert f"once; all {KERNELS} take one or two minutes" in line
    assert "dissector doctor --warm" in line
    listener(None)
    for _ in range(2):
        clock.now += 15
        listener("dissector.packet.tcp.read")
        listener(None)
    assert stream.getvalue().splitlines()[1:] == [
        f"dissector: compiling kernel 3 of about {KERNELS}"
    ]


def test_once_is_said_only_where_code_is_kept(cold: Path) -> None:
    cold.mkdir()
    cold.chmod(0o777)
    stream = io.StringIO()
    Compiling(Messages(NORMAL, stream), True, stream, Clock())("dissector.packet.tcp.read")
    assert "each run compiles again" in stream.getvalue() and "--warm" not in stream.getvalue()


def test_more_kernels_than_usual_are_counted_on(cold: Path) -> None:
    stream, clock = io.StringIO(), Clock()
    listener = Compiling(Messages(NORMAL, stream), True, stream, clock)
    for _ in range(KERNELS + 2):
        listener("dissector.packet.tcp.read")
        clock.now += 60
        listener(None)
    assert stream.getvalue().splitlines()[-1].endswith(f"{KERNELS + 2} of about {KERNELS + 2}")


def test_a_terminal_has_one_line_that_changes(cold: Path) -> None:
    stream = Terminal()
    listener = Compiling(Messages(NORMAL, stream), True, stream, Clock())
    listener("dissector.packet.decode.read_packets")
    assert stream.getvalue().endswith(
        f"\r\x1b[Kdissector: compiling kernel 1 of about {KERNELS}: packet.decode.read_packets"
    )
    listener(None)
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_bar_on_the_terminal_says_it_in_place_of_its_title(
    cold: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(terminal._Shown, "instead", told.append)
    stream = Terminal()
    listener = Compiling(Messages(NORMAL, stream), True, stream, Clock())
    listener("dissector.packet.decode.read_packets")
    listener(None)
    assert told[0].startswith("dissector: compiling kernel 1") and told[1] == ""
    assert "\r" not in stream.getvalue()


def test_who_wants_quiet_has_quiet(cold: Path) -> None:
    stream = io.StringIO()
    listener = Compiling(Messages(QUIET, stream), True, stream, Clock())
    listener("dissector.packet.decode.read_packets")
    listener(None)
    assert stream.getvalue() == ""


def test_a_rare_kernel_of_a_warm_program_is_not_worth_a_word(cold: Path) -> None:
    keep_list(program_digest(), ["a"])
    stream = io.StringIO()
    listener = Compiling(Messages(NORMAL, stream), True, stream, Clock())
    listener("dissector.packet.decode.read_packets")
    listener(None)
    assert stream.getvalue() == ""


@needs_compiler
def test_it_is_worth_doing_beforehand_only_where_it_can_be_kept(cold: Path) -> None:
    assert is_needed()
    cold.chmod(0o777)
    assert not is_needed()
    cold.chmod(0o700)
    keep_list(program_digest(), ["a"])
    assert not is_needed()


@needs_compiler
def test_several_processes_find_kernels_that_one_compiled(
    cold: Path, command: Command, nacks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would compile all of them, and say nothing."""
    done: list[bool] = []
    monkeypatch.setattr("dissector.cli.warming.warm_up", lambda processes: done.append(True))
    monkeypatch.setattr("dissector.lake.land.processes_for", lambda chains, jobs: jobs // 2)
    monkeypatch.setattr("dissector.lake.land.land_chains", lambda *_: iter(()))
    assert command("land", nacks, "--lake", tmp_path / "lake", "-j", 1).code == 0
    assert done == []
    assert command("land", nacks, "--lake", tmp_path / "lake", "-j", 2).code == 0
    assert done == [True]


@needs_compiler
@pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "terminal"])
def test_a_command_says_at_once_that_it_compiles(tmp_path: Path, is_terminal: bool) -> None:
    """In a process of its own, without code, until it has said so."""
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    sample = Path(__file__).resolve().parents[3] / "captures/pulsar-apache/java-j12_nack.pcap"
    large = tmp_path / "large.pcap"
    packets = sample.read_bytes()
    large.write_bytes(packets + packets[24:] * (MAX_UNCOMPILED_BYTES // len(packets) + 1))
    with subprocess.Popen(
        [sys.executable, "-m", "dissector", "connections", str(large)],
        stdout=subprocess.DEVNULL, stderr=theirs,
        env={**os.environ, "DISSECTOR_CACHE": str(tmp_path / "cache")},
    ) as process:  # fmt: skip
        os.close(theirs)
        told = b""
        wanted = b"compiling kernel 1 of" if is_terminal else b"--warm"
        while wanted not in told:
            piece = os.read(ours, 1000)
            assert piece, told
            told += piece
        process.kill()
    os.close(ours)
    assert told.startswith(b"dissector: compiling kernels for ")


def test_help_loads_no_compiler() -> None:
    program = (
        "import sys\n"
        "from dissector.cli.main import run\n"
        "run(['--help']); run(['frames', '--help']); run(['frames'])\n"
        "print(sorted({'numba', 'llvmlite', 'pyarrow'} & set(sys.modules)),"
        " file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr.splitlines()[-1] == "[]"
