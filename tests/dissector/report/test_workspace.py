"""Folders for what a report is made from: one per run, and what killed runs left is removed."""

import errno
import re
from pathlib import Path

import pytest

from dissector.cli.main import run
from dissector.errors import InputError, OutputError
from dissector.report import workspace as workspaces
from tests.disks import disk_of
from tests.dissector.lake.samples import SAMPLES, landed


def test_it_goes_with_its_run_and_so_does_what_a_killed_one_left(tmp_path: Path) -> None:
    left = tmp_path / ".report.work.killed"
    left.mkdir()
    with workspaces.workspace(tmp_path / "report") as folder:
        assert folder.is_dir()
        assert not left.exists()
    assert not folder.exists()


def test_the_folder_of_a_run_that_goes_on_stays(tmp_path: Path) -> None:
    with workspaces.workspace(tmp_path / "report") as first:
        with workspaces.workspace(tmp_path / "report") as second:
            assert first.is_dir() and second.is_dir() and first != second
        assert first.is_dir()


def test_a_run_that_ends_while_another_looks_around_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / ".report.work.gone"
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter([gone]))
    with workspaces.workspace(tmp_path / "report") as folder:
        assert folder.is_dir()


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "Error writing bytes to file"),
        OSError(errno.EDQUOT, "no more"),
        InputError('IO Error: Could not write file "x": No space left on device'),
        RuntimeError("Job aborted: java.io.IOException: No space left on device\nat org"),
    ],
)
def test_a_full_disk_is_named_as_that(error: Exception, tmp_path: Path) -> None:
    """By whatever wrote: DuckDB and Spark put it into errors of their own."""
    what = re.escape(f"no room left while writing {tmp_path / 'report'}: ")
    with (
        pytest.raises(OutputError, match=what + "(No space left on|Disk quota)") as told,
        workspaces.workspace(tmp_path / "report"),
    ):
        raise error
    assert "\n" not in str(told.value)
    with pytest.raises(InputError, match="x"), workspaces.workspace(tmp_path / "report"):
        raise InputError("x")


@pytest.mark.parametrize("size", ["64k", "256k", "400k", "700k"])
def test_a_report_on_a_full_disk_ends_with_that_and_leaves_nothing(
    size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever of its steps gets there first."""
    lake = landed(tmp_path / "lake", SAMPLES[:1])
    with disk_of(size, tmp_path) as disk:
        assert run(["report", "--lake", str(lake), "-o", str(disk / "report")]) == 4
        said = capsys.readouterr().err.splitlines()[-1]
        assert said == (
            f"dissector: no room left while writing {disk / 'report'}: No space left on device; "
            "free some space or write elsewhere"
        )
        assert [path.name for path in disk.iterdir()] == ["report"]
        assert list((disk / "report").iterdir()) == []
