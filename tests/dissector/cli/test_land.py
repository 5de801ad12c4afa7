"""land: what it prints, what it leaves, and how it ends."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dissector.cli.exits import EXIT_INPUT, EXIT_INTERRUPTED, EXIT_OK, EXIT_OUTPUT, EXIT_PARTIAL
from tests.dissector.cli.conftest import SAMPLES, Command, wait_until_read


def test_the_id_of_each_capture_is_printed(command: Command, tmp_path: Path, nacks: Path) -> None:
    other = SAMPLES / "java-j61_txn_abort.pcap"
    result = command("land", nacks, other, "--lake", tmp_path)
    assert result.code == EXIT_OK
    assert [line[:-12] for line in result.lines] == [
        "c-java-j12_nack-pcap-",
        "c-java-j61_txn_abort-pcap-",
    ]
    assert result.err.splitlines()[-1].startswith("dissector: read 248 packets in 2 files: ")
    assert command("land", nacks, "--lake", tmp_path, "-q").err == ""
    assert "was there already" in command("land", nacks, "--lake", tmp_path, "-v").err


def test_captures_that_the_lake_has_are_counted_in_one_line(
    command: Command, tmp_path: Path, nacks: Path
) -> None:
    first = command("land", nacks, "--lake", tmp_path, "--cluster", "east")
    assert "already" not in first.err and "again" not in first.err
    again = command("land", nacks, "--lake", tmp_path, "--cluster", "east")
    name = first.lines[0]
    assert again.err.splitlines()[0] == f"dissector: {name} was in the lake already, unchanged"
    other = SAMPLES / "java-j61_txn_abort.pcap"
    command("land", nacks, other, "--lake", tmp_path)
    both = command("land", nacks, other, "--lake", tmp_path)
    assert both.err.splitlines()[0] == "dissector: 2 captures were in the lake already, unchanged"


def test_a_capture_that_is_landed_again_otherwise_says_what_differs(
    command: Command, tmp_path: Path, nacks: Path
) -> None:
    name = command("land", nacks, "--lake", tmp_path, "--cluster", "east").lines[0]
    again = command("land", nacks, "--lake", tmp_path).err.splitlines()
    assert again[0] == (
        f"dissector: {name} was in the lake with other options and is replaced "
        "(cluster: east, now none)"
    )


def test_partial_input_is_landed_and_told(command: Command, tmp_path: Path, nacks: Path) -> None:
    cut = tmp_path / "cut.pcap"
    cut.write_bytes(nacks.read_bytes()[:-5])
    result = command("land", cut, tmp_path / "missing.pcap", "--lake", tmp_path / "lake")
    assert result.code == EXIT_PARTIAL and len(result.lines) == 1
    assert "missing.pcap" in result.err and "cut.pcap ends inside" in result.err
    strict = command("land", cut, "--lake", tmp_path / "strict", "--strict")
    assert (strict.code, strict.out) == (EXIT_INPUT, "")
    assert not list((tmp_path / "strict").rglob("*.parquet"))


def test_a_lake_that_cannot_be_made_is_an_output_error(
    command: Command, tmp_path: Path, nacks: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    result = command("land", nacks, "--lake", tmp_path / "file" / "lake")
    assert result.code == EXIT_OUTPUT and result.err.count("\n") == 1


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupt_keeps_what_is_complete(tmp_path: Path, nacks: Path, jobs: str) -> None:
    """The second input is a pipe that nobody writes to the end."""
    lake = tmp_path / "lake"
    running = subprocess.Popen(
        [sys.executable, "-m", "dissector", "land", nacks, "-", "--lake", lake, "-j", jobs],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert running.stdin is not None
    running.stdin.write(nacks.read_bytes()[:5000])
    wait_until_read(running)  # by then the first one has landed
    running.send_signal(signal.SIGINT)
    out, said = running.communicate(timeout=60)
    assert running.returncode == EXIT_INTERRUPTED
    assert out.startswith(b"c-java-j12_nack-pcap-") and out.count(b"\n") == 1
    assert b"Traceback" not in said and b"read 97 packets in 1 file" in said
    assert [path.name for path in lake.glob("_tmp/*")] == []
    assert len(list(lake.glob("_manifest/*.json"))) == 1


def rights_of(lake: Path) -> set[int]:
    return {stat.S_IMODE(path.stat().st_mode) for path in lake.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("umask", "private", "most"),
    [(0, (), 0o640), (0o022, (), 0o640), (0, ("--private",), 0o600), (0o067, (), 0o600)],
    ids=["no umask", "usual umask", "private", "narrow umask"],
)
def test_what_went_over_the_wire_is_not_for_everybody_to_read(
    command: Command, nacks: Path, tmp_path: Path, umask: int, private: tuple[str], most: int
) -> None:
    before = os.umask(umask)
    try:
        result = command("land", nacks, "--lake", tmp_path / "lake", *private)
        assert os.umask(umask) == umask, "later commands of a process have their own"
    finally:
        os.umask(before)
    assert result.code == EXIT_OK, result.err
    assert not any(mode & 0o007 for mode in rights_of(tmp_path / "lake"))
    files = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "lake").rglob("*.parquet")}
    assert files == {most}


@pytest.mark.parametrize("place", ["frames/capture=c-x", "_manifest", "_tmp", "capture_files"])
def test_inputs_in_the_folders_of_the_lake_are_refused(
    command: Command, nacks: Path, tmp_path: Path, place: str
) -> None:
    inside = tmp_path / "lake" / place / "night.pcap"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(nacks.read_bytes())
    for arguments in (("land", inside, "--lake"), ("tap", "--replay", inside, "--lake")):
        result = command(*arguments, tmp_path / "lake")
        assert result.code == EXIT_OUTPUT and "is an input and lies in" in result.err
    assert [path for path in (tmp_path / "lake").rglob("*") if path.is_file()] == [inside]
    beside = inside.rename(tmp_path / "lake" / "night.pcap")
    assert command("land", beside, "--lake", tmp_path / "lake").code == EXIT_OK
