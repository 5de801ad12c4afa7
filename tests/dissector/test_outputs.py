"""What is there stays: inputs are no outputs, and existing files need --force."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dissector.errors import OutputError
from dissector.outputs import new_file, put, refuse_foreign, refuse_inputs_in, written


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "in" / "own.pcap"
    path.parent.mkdir()
    path.write_bytes(b"packets")
    return path


@pytest.mark.parametrize("is_forced", [False, True])
@pytest.mark.parametrize("given", ["file", "folder", "pattern", "symlink", "hard link"])
@pytest.mark.parametrize("named", ["file", "symlink", "hard link", "other way"])
def test_an_input_is_no_output_by_whatever_name(
    capture: Path, tmp_path: Path, given: str, named: str, is_forced: bool
) -> None:
    (tmp_path / "soft").symlink_to(capture)
    (tmp_path / "hard").hardlink_to(capture)
    names = {
        "file": capture,
        "folder": capture.parent,
        "pattern": capture.parent / "o*.pcap",
        "symlink": tmp_path / "soft",
        "hard link": tmp_path / "hard",
        "other way": capture.parent / ".." / "in" / "own.pcap",
    }
    with pytest.raises(OutputError, match="is an input"):
        new_file(names[named], [str(names[given])], is_forced=is_forced)


def test_standard_input_is_an_input_too(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with capture.open("rb") as file:
        monkeypatch.setattr("dissector.outputs._STDIN_NUMBER", file.fileno())
        with pytest.raises(OutputError, match="is an input, standard input"):
            new_file(capture, ["-"], is_forced=True)


def test_a_file_that_is_there_is_replaced_only_if_that_is_wanted(
    capture: Path, tmp_path: Path
) -> None:
    there = tmp_path / "out.pcapng"
    there.write_bytes(b"old")
    with pytest.raises(OutputError, match="exists: --force replaces it"):
        new_file(there, [str(capture)], is_forced=False)
    place = new_file(there, [str(capture)], is_forced=True)
    with written(place, is_forced=True) as file:
        file.write(b"new")
        assert there.read_bytes() == b"old"
    assert there.read_bytes() == b"new"
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out.pcapng"}


def test_a_link_is_written_through_and_stays(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("out")
    place = new_file(tmp_path / "link", [], is_forced=False)
    with written(place, is_forced=False) as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "out").read_bytes() == b"new"


def test_what_is_no_plain_file_is_never_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        with pytest.raises(OutputError, match="is no plain file"):
            new_file(path, [], is_forced=True)


@pytest.mark.parametrize("has_links", [True, False])
def test_a_file_that_came_meanwhile_stays(
    tmp_path: Path, has_links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "Operation not permitted")

    if not has_links:  # as on some file systems
        monkeypatch.setattr(os, "link", refuse)
    place = new_file(tmp_path / "out", [], is_forced=False)
    with (
        pytest.raises(OutputError, match="out exists"),
        written(place, is_forced=False) as file,
    ):
        file.write(b"ours")
        place.write_bytes(b"theirs")
    assert place.read_bytes() == b"theirs" and [path.name for path in tmp_path.iterdir()] == ["out"]
    (tmp_path / "fresh").write_bytes(b"ours")
    put(tmp_path / "fresh", tmp_path / "other", is_forced=False)
    assert (tmp_path / "other").read_bytes() == b"ours" and not (tmp_path / "fresh").exists()


def test_a_body_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), written(tmp_path / "out", is_forced=False) as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from dissector.outputs import written
with written(Path(sys.argv[1]), is_forced=False) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_the_next_one_removes(tmp_path: Path) -> None:
    out = tmp_path / "out [1]"
    done = subprocess.run([sys.executable, "-c", KILLED, str(out)], check=False)
    assert done.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 1
    other = tmp_path / ".out [1].mine"
    other.touch()
    with written(out, is_forced=True) as first, written(out, is_forced=False) as second:
        # What a living run writes stays.
        assert len(list(tmp_path.iterdir())) == 3
        first.write(b"one")
        second.write(b"two")
    assert {path.name for path in tmp_path.iterdir()} == {"out [1]", ".out [1].mine"}
    assert out.read_bytes() == b"one"


def test_places_that_take_no_file_are_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="there is no folder"):
        new_file(tmp_path / "no" / "out", [], is_forced=False)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OutputError, match="Not a directory"):
        new_file(tmp_path / "file" / "out", [], is_forced=False)


def test_inputs_in_a_folder_that_is_written_to_are_refused(capture: Path, tmp_path: Path) -> None:
    (tmp_path / "soft.pcap").symlink_to(capture)
    for given in (capture, capture.parent, tmp_path, tmp_path / "soft.pcap"):
        with pytest.raises(OutputError, match="is an input and lies in"):
            refuse_inputs_in([capture.parent], [str(given)], "--record")
    refuse_inputs_in([tmp_path / "absent", tmp_path / "in2"], [str(capture)], "--record")


def test_earlier_output_in_a_folder_that_is_read_is_no_input(tmp_path: Path) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "report.json").write_text("{}")
    (tmp_path / "a.pcap").write_bytes(b"packets")
    refuse_inputs_in([tmp_path / "report"], [str(tmp_path)], "-o")


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    assert not refuse_foreign(tmp_path / "absent", {"ours"}, "a report", is_forced=False)
    (tmp_path / "ours").mkdir()
    assert not refuse_foreign(tmp_path, {"ours"}, "a report", is_forced=False)
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"holds other files \(thesis.txt\)"):
        refuse_foreign(tmp_path, {"ours"}, "a report", is_forced=False)
    assert refuse_foreign(tmp_path, {"ours"}, "a report", is_forced=True)
    with pytest.raises(OutputError, match="is a file"):
        refuse_foreign(tmp_path / "thesis.txt", {"ours"}, "a report", is_forced=True)
