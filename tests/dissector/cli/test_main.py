"""How runs end: exit codes, one line per error, pipes, interrupts; what help loads."""

import errno
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from dissector.cli import main
from dissector.cli.document import all_commands
from dissector.cli.exits import (
    EXIT_DEPENDENCY,
    EXIT_INPUT,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_OUTPUT,
    EXIT_USAGE,
    EXITS,
)
from dissector.errors import DependencyError, InputError, OutputError, UsageError
from tests.dissector.cli.conftest import Command

HEAVY = ("numba", "pyarrow", "pyspark", "numpy", "pandas", "rich")


def one_line(text: str) -> bool:
    return text.startswith("dissector: ") and text.count("\n") == 1 and text.endswith("\n")


def test_exit_codes_are_all_described_once() -> None:
    assert [code for code, _ in EXITS] == [0, 1, 2, 3, 4, 5, 6, 130]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["-h"], *([*name.split(" ")[1:], "--help"] for name, _ in all_commands()[1:])],
    ids=lambda arguments: " ".join(arguments),
)
def test_every_command_has_help_with_an_example(command: Command, arguments: list[str]) -> None:
    found = command(*arguments)
    assert (found.code, found.err) == (EXIT_OK, "")
    assert found.out.startswith("Usage: dissector")
    assert "Example:" in found.out or arguments == ["lake", "--help"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"], ["frames", "--help"], ["frames"], ["frames", "x", "--nope"], ["nope"], [],
        ["frames", "x", "-Y", "a =="], ["frames", "x", "-Y", "nope == 1"], ["lake", "rm", "x"],
        ["frames", "x", "-T", "fields"], ["summary", "x", "--fail-on", "("], ["fields", "nope"],
        ["land", "x"], ["land", "x", "--lake", "y", "-j", "0"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_help_and_usage_errors_load_nothing_heavy(arguments: list[str]) -> None:
    script = (
        "import sys; from dissector.cli.main import run; code = run(sys.argv[1:]);"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=False
    )
    *said, loaded = done.stderr.splitlines()
    assert loaded == "[]"
    if "--help" in arguments:
        assert done.returncode == EXIT_OK
    else:
        assert done.returncode == EXIT_USAGE
        assert not arguments or (len(said) == 1 and said[0].startswith("dissector: "))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nope"], "nope"),
        (["frmes", "x"], "frames"),
        (["frames"], "INPUT"),
        (["frames", "x", "-T", "xml"], "'xml'"),
        (["frames", "x", "-d", "6655"], "6655=pulsar"),
        (["frames", "x", "-e", "topik"], "did you mean topic?"),
        (["frames", "x", "-Y", "topic == "], "character"),
        (["land", "x"], "--lake"),
        (["fields", "frame"], "frames"),
        (["frames", "x", "-q", "-v"], "exclude each other"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_usage_errors_are_one_line_that_names_the_place(
    command: Command, arguments: list[str], words: str
) -> None:
    found = command(*arguments)
    assert (found.code, found.out) == (EXIT_USAGE, "")
    assert one_line(found.err) and words in found.err


def fails(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command()
    @click.option("--debug", is_flag=True)
    def failing(debug: bool) -> None:
        raise error

    monkeypatch.setitem(main.dissector.commands, "failing", failing)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("what\nwhere"), EXIT_USAGE),
        (InputError("no input"), EXIT_INPUT),
        (OutputError("no room"), EXIT_OUTPUT),
        (DependencyError("no Java"), EXIT_DEPENDENCY),
        (ImportError("nothing", name="pyspark"), EXIT_DEPENDENCY),
        (OSError(errno.ENOSPC, "No space left on device", "x"), EXIT_OUTPUT),
        (OSError(errno.ENOENT, "No such file", "x"), EXIT_INPUT),
        (MemoryError(), EXIT_INPUT),
        (ValueError("a mistake of ours \x1b[2J"), EXIT_INPUT),
        (KeyboardInterrupt(), EXIT_INTERRUPTED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_error_is_one_line_and_its_code(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    fails(monkeypatch, error)
    found = command("failing")
    assert found.code == code
    assert one_line(found.err) and found.err[:-1].isprintable()


def test_debug_shows_where_an_error_came_from(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails(monkeypatch, InputError("no input"))
    with pytest.raises(InputError):
        command("failing", "--debug")


def test_a_reader_that_goes_away_ends_the_command_silently() -> None:
    script = f"{sys.executable} -m dissector fields | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("capture_files:")
    assert done.stdout.splitlines()[-1] in ("0", str(128 + signal.SIGPIPE))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_output_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "dissector", "fields"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == EXIT_OUTPUT
    assert one_line(done.stderr)


def test_an_interrupt_ends_with_its_code_and_no_traceback() -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "dissector", "frames", "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    time.sleep(3)  # it waits for input by then; earlier, the interpreter itself would say more
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == EXIT_INTERRUPTED
    assert b"Traceback" not in said and said.startswith(b"dissector: ")


def test_python_dash_m_is_the_same_command(process: Command) -> None:
    found = process("version")
    assert found.code == EXIT_OK and found.out.startswith("dissector ")
