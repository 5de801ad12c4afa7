"""Folders for what a report is made from: one per run, and what killed runs left is removed."""

from pathlib import Path

import pytest

from dissector.report import workspace as workspaces


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
