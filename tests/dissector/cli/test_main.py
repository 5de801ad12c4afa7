"""How runs end: exit codes, one line per error, pipes, interrupts; what help loads."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pyarrow.parquet as pq
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
from tests.dissector.cli.conftest import SAMPLES, Command, wait_until_read
from tests.wire.captures import pcap

NACKS = SAMPLES / "java-j12_nack.pcap"
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
    result = command(*arguments)
    assert (result.code, result.err) == (EXIT_OK, "")
    assert result.out.startswith("Usage: dissector")
    assert "Example:" in result.out or arguments == ["lake", "--help"]


LIGHT = [
    ["--help"], ["frames", "--help"], ["frames"], ["frames", "x", "--nope"], ["nope"], [],
    ["frames", "x", "-Y", "a =="], ["frames", "x", "-Y", "nope == 1"], ["lake", "rm", "x"],
    ["frames", "x", "-T", "fields"], ["summary", "x", "--fail-on", "("], ["fields", "nope"],
    ["land", "x"], ["land", "x", "--lake", "y", "-j", "0"],
]  # fmt: skip


def test_help_and_usage_errors_load_nothing_heavy() -> None:
    """One process runs them all, one after the other, and says what is loaded behind each."""
    script = (
        "import sys; from dissector.cli.main import run\n"
        f"for arguments in {LIGHT}:\n"
        "    code = run(arguments)\n"
        f"    loaded = [name for name in {HEAVY} if name in sys.modules]\n"
        "    print('ran', code, loaded, file=sys.stderr, flush=True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    said: list[list[str]] = [[]]
    for line in done.stderr.splitlines():
        said[-1].append(line)
        if line.startswith("ran "):
            said.append([])
    for arguments, (*lines, ran) in zip(LIGHT, said[:-1], strict=True):
        code = EXIT_OK if "--help" in arguments else EXIT_USAGE
        assert ran == f"ran {code} []", arguments
        if code == EXIT_USAGE and arguments:
            assert len(lines) == 1 and lines[0].startswith("dissector: "), arguments


def test_what_reads_and_reports_imports_no_pandas(tmp_path: Path) -> None:
    """pyarrow looks for it as soon as it makes an array of Python objects: a third of a second.

    A report makes none where it is made and kept, nor where it is found.
    """
    lake, output = str(tmp_path / "lake"), str(tmp_path / "report")
    lines = [
        *([name, str(NACKS)] for name in ("summary", "findings", "frames", "connections")),
        ["land", str(NACKS), "--lake", lake],
        *[["report", "--lake", lake, "-o", output]] * 2,
    ]
    script = (
        "import sys; from dissector.cli.main import run\n"
        "for line in " + repr(lines) + ":\n"
        "    code = run(line)\n"
        "    print(line[0], 'pandas' in sys.modules or code, file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = [line for line in done.stderr.splitlines() if line.endswith((" 0", " True"))]
    assert said == [f"{line[0]} 0" for line in lines]


def test_landing_one_capture_starts_without_what_it_does_not_need(tmp_path: Path) -> None:
    """Parsers of mail, tools for processes, what reads Parquet: each takes as long as a capture."""
    heavy = {"email", "importlib.metadata", "multiprocessing", "numba", "pyarrow.parquet", "ssl"}
    script = (
        "import sys; from dissector.cli.main import run; code = run(sys.argv[1:]);"
        f"print(*{heavy} & {{*sys.modules}}, code)"
    )
    command = [sys.executable, "-c", script, "land", str(NACKS), "--lake", str(tmp_path / "lake")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"


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
    result = command(*arguments)
    assert (result.code, result.out) == (EXIT_USAGE, "")
    assert one_line(result.err) and words in result.err


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
    result = command("failing")
    assert result.code == code
    assert one_line(result.err) and result.err[:-1].isprintable()


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


@pytest.mark.parametrize("name", ["frames", "summary", "connections", "findings"])
def test_an_interrupt_ends_with_its_code_and_no_traceback(name: str) -> None:
    """While it reads, and while it lands what it asks for numbers."""
    running = subprocess.Popen(
        [sys.executable, "-m", "dissector", name, "-"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert running.stdin is not None
    running.stdin.write(pcap([]))
    wait_until_read(running)  # before it reads, the interpreter itself would say more
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == EXIT_INTERRUPTED
    lines = said.decode().splitlines()
    assert lines and all(line.startswith("dissector: ") for line in lines)
    assert not any("error" in line or "lake" in line for line in lines), lines


def test_a_query_of_a_report_may_be_interrupted() -> None:
    """DuckDB makes an error of it that names nobody, where the thread of the command works itself:
    while it waits for another one, it does not look."""
    program = (
        "import click, os, signal, sys, threading\n"
        "from dissector.cli.main import run\n"
        "from dissector.queries.duckdb_engine import DuckdbEngine\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def ask():\n"
        "    with DuckdbEngine(threads=1) as db:\n"
        "        db.table('SELECT 1')\n"
        "        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "        db.table(sys.argv[1])\n"
        "sys.exit(run([], click.Command('ask', callback=ask)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "SELECT sum(range) FROM range(9999999999999)"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (EXIT_INTERRUPTED, "dissector: interrupted\n")


def test_a_command_that_is_none_names_the_nearest_one(process: Command) -> None:
    """In a process of its own: no command was imported before."""
    result = process("frmaes", "x")
    assert result.code == EXIT_USAGE
    assert result.err == "dissector: no command frmaes; did you mean frames?\n"


def test_python_dash_m_is_the_same_command(process: Command) -> None:
    result = process("version")
    assert result.code == EXIT_OK and result.out.startswith("dissector ")


# -- streams that are closed, names that are not UTF-8


def closed(*arguments: object, number: int) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell does with `>&-`; what is not closed is caught."""
    signs = {0: "<&-", 1: ">&-", 2: "2>&-"}[number]
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {signs}', "sh", sys.executable, "-m", "dissector",
         *map(str, arguments)],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [("version",), ("--help",), ("frames", "--help"), ("fields",), ("connections", NACKS),
     ("frames", NACKS, "-q"), ("summary", NACKS, "--json"), ("completion", "bash")],
    ids=lambda value: value[0],
)  # fmt: skip
def test_a_closed_standard_output_is_output_that_could_not_be_written(
    arguments: tuple[object, ...],
) -> None:
    done = closed(*arguments, number=1)
    assert done.returncode == EXIT_OUTPUT
    assert done.stderr.splitlines()[-1].startswith("dissector: standard output is closed")
    assert done.stderr.count("standard output") == 1 and "internal" not in done.stderr


def test_who_prints_nothing_needs_no_standard_output(tmp_path: Path) -> None:
    done = closed("tap", "--replay", NACKS, "--lake", tmp_path / "lake", number=1)
    assert done.returncode == EXIT_OK, done.stderr
    assert (tmp_path / "lake" / "_manifest").is_dir()


@pytest.mark.parametrize(
    ("arguments", "code"), [(("connections", NACKS), 0), (("frames", "nothing"), 2), ((), 1)]
)
def test_words_do_not_get_among_the_data_where_standard_error_is_closed(
    arguments: tuple[object, ...], code: int
) -> None:
    done = closed(*arguments, number=2)
    assert done.returncode == code and "dissector:" not in done.stdout


def test_a_closed_standard_input_is_said(tmp_path: Path) -> None:
    for more in ((), ("-w", tmp_path / "part.pcapng")):
        done = closed("frames", "-", *more, number=0)
        assert done.returncode == EXIT_INPUT and "stdin" in done.stderr, done.stderr
    assert closed("connections", NACKS, number=0).returncode == EXIT_OK


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A capture whose name is not UTF-8."""
    path = tmp_path / os.fsdecode(b"n\xff\xe4.pcap")
    path.write_bytes(NACKS.read_bytes())
    return path


@pytest.mark.parametrize("kind", ["text", "jsonl", "csv"])
def test_a_name_that_is_not_utf8_is_shown_escaped(command: Command, odd: Path, kind: str) -> None:
    other = odd.parent / "other.pcap"
    other.write_bytes((SAMPLES / "java-j61_txn_abort.pcap").read_bytes())
    result = command("connections", odd, other, "-T", kind)
    assert result.code == EXIT_OK and "internal" not in result.err
    names = "n-xff-xe4-pcap" if kind != "text" else "# n-xff-xe4-pcap"
    assert names in result.out
    assert result.out.encode() and result.err.encode()


def test_a_capture_of_such_a_name_is_landed_counted_and_reported(
    command: Command, odd: Path, tmp_path: Path
) -> None:
    summary = command("summary", odd, "--json")
    assert summary.code == EXIT_OK, summary.err
    (source,) = json.loads(summary.out)["sources"]
    assert source["file_name"] == r"n\xff\xe4.pcap"
    assert command("summary", odd).code == EXIT_OK
    landed = command("land", odd, "--lake", tmp_path / "lake", "--cluster", os.fsdecode(b"c\xff"))
    assert landed.code == EXIT_OK and landed.out.startswith("c-n-xff-xe4-pcap-")
    rows = pq.read_table(next((tmp_path / "lake" / "capture_files").rglob("*.parquet"))).to_pylist()
    assert (rows[0]["file_name"], rows[0]["cluster"]) == (r"n\xff\xe4.pcap", r"c\xff")
    odd.write_bytes(b"no capture, but a text")
    said = command("frames", odd)
    assert said.code == EXIT_INPUT and r"n\xff\xe4.pcap: not a capture" in said.err


def test_such_a_name_that_cannot_be_used_is_said_in_one_line(
    command: Command, tmp_path: Path
) -> None:
    """DuckDB could not read a lake of such a name, so none is written."""
    lake = tmp_path / os.fsdecode(b"lake\xff")
    result = command("land", NACKS, "--lake", lake)
    assert result.code == EXIT_USAGE and not lake.exists()
    assert "not UTF-8" in result.err and result.err.count("\n") == 1
    result = command("lake", "verify", lake)
    assert result.code in (EXIT_USAGE, EXIT_INPUT) and "internal" not in result.err


def test_an_encoding_that_lacks_a_letter_ends_no_run(process: Command) -> None:
    result = process("fields", "frames", PYTHONIOENCODING="ascii:strict", PYTHONUTF8="0")
    assert result.code == EXIT_OK, result.err


def test_who_has_neither_home_nor_name_can_work(tmp_path: Path) -> None:
    """As in a container that runs under any number; a namespace of its own has no such name."""
    inside = ["unshare", "--user", "--map-user=12345", "--map-group=12345"]
    try:
        subprocess.run([*inside, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no user namespace can be made here")
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    for arguments in (["version"], ["doctor"], ["connections", NACKS]):
        done = subprocess.run(
            [*inside, sys.executable, "-m", "dissector", *map(str, arguments)],
            env=environment | {"TMPDIR": str(tmp_path), "NUMBA_DISABLE_JIT": "1"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == EXIT_OK and "internal" not in done.stderr, done.stderr
        assert "Traceback" not in done.stderr and done.stdout
