"""Copies of a lake in a store are kept within a bound, but for what somebody reads."""

import os
from pathlib import Path

import pytest

from dissector import limits
from dissector.lake import copies
from dissector.lake.locks import shared_lock

NAMES = ("a", "b", "c", "d")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four files of ten bytes, `a` used first; there is room for two."""
    monkeypatch.setattr(limits, "STORED_LAKE_BYTES", 20)
    for second, name in enumerate(NAMES, start=1):
        path = file_of(tmp_path, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(10))
        os.utime(path, (second, second))
    return tmp_path


def file_of(folder: Path, name: str) -> Path:
    return folder / "frames" / "day=2026-01-31" / f"{name}.parquet"


def left(folder: Path) -> str:
    return "".join(name for name in NAMES if file_of(folder, name).exists())


def test_what_was_not_used_longest_goes(folder: Path) -> None:
    assert copies.is_used(file_of(folder, "a"), 10)
    assert not copies.is_used(file_of(folder, "b"), 9)
    assert not copies.is_used(file_of(folder, "none"), 10)
    copies.trim(folder)
    assert left(folder) == "ad"


def test_nothing_goes_while_somebody_reads_the_lake(folder: Path) -> None:
    with shared_lock(folder):
        copies.trim(folder)
        with copies.held(folder):
            pass
        assert left(folder) == "abcd"


def test_what_tasks_use_stays_while_they_run(folder: Path) -> None:
    """Two that overlap; each trims at its end."""
    with copies.held(folder):
        for name in ("a", "b"):
            assert copies.is_used(file_of(folder, name), 10)
        with copies.held(folder):
            assert copies.is_used(file_of(folder, "c"), 10)
            copies.trim(folder)
            assert left(folder) == "abc"
        assert left(folder) == "abc"
    assert left(folder) == "bc"
    assert not any((folder / "_tasks").iterdir())


def test_a_task_that_was_killed_holds_nothing(folder: Path) -> None:
    def task() -> None:
        with copies.held(folder):
            for name in NAMES:
                copies.is_used(file_of(folder, name), 10)
            os._exit(9)

    child = os.fork()
    if child == 0:
        task()
    os.waitpid(child, 0)
    assert len(list((folder / "_tasks").iterdir())) == 1
    copies.trim(folder)
    assert len(left(folder)) == 2 and not any((folder / "_tasks").iterdir())
