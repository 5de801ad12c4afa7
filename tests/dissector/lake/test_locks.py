"""Readers share the lock, writers have it alone."""

import fcntl
import os
import time
from pathlib import Path

import pytest

from dissector.lake.locks import (
    COMMIT_LOCK_FILE,
    LOCK_FILE,
    adding_lock,
    adding_lock_if_free,
    exclusive_lock,
    hold,
    is_held,
    left_behind,
    shared_lock,
)


def could_lock(lake: Path, how: int) -> bool:
    descriptor = os.open(lake / LOCK_FILE, os.O_RDWR)
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_readers_share_and_writers_are_alone(tmp_path: Path) -> None:
    with shared_lock(tmp_path), shared_lock(tmp_path):
        assert could_lock(tmp_path, fcntl.LOCK_SH) and not could_lock(tmp_path, fcntl.LOCK_EX)
    with exclusive_lock(tmp_path):
        assert not could_lock(tmp_path, fcntl.LOCK_SH)
    assert could_lock(tmp_path, fcntl.LOCK_EX)


def test_a_held_file_is_held_until_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert not is_held(path)
    descriptor = hold(path)
    assert is_held(path)
    os.close(descriptor)
    assert not is_held(path)


def test_one_adds_at_a_time_beside_those_who_read(tmp_path: Path) -> None:
    with shared_lock(tmp_path), adding_lock(tmp_path):
        assert could_lock(tmp_path, fcntl.LOCK_SH) and not could_lock(tmp_path, fcntl.LOCK_EX)
        with adding_lock_if_free(tmp_path) as is_ours:
            assert not is_ours
    with exclusive_lock(tmp_path), adding_lock_if_free(tmp_path) as is_ours:
        assert not is_ours
    with adding_lock_if_free(tmp_path) as is_ours:
        assert is_ours and not could_lock(tmp_path, fcntl.LOCK_EX)
    assert could_lock(tmp_path, fcntl.LOCK_EX)


def test_who_waits_to_add_does_not_keep_out_who_removes(tmp_path: Path) -> None:
    """Else a stream of small captures would never leave a moment for a removal."""
    with exclusive_lock(tmp_path):
        pass
    adding = os.open(tmp_path / COMMIT_LOCK_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(adding, fcntl.LOCK_EX)
    waiting = os.fork()
    if waiting == 0:
        os.close(adding)
        with adding_lock(tmp_path):
            os._exit(0)
    time.sleep(0.2)
    assert could_lock(tmp_path, fcntl.LOCK_EX)
    os.close(adding)
    assert os.waitpid(waiting, 0)[1] == 0


def test_what_is_cleared_before_it_is_locked_is_not_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hold(tmp_path / "gone" / "x") is None
    lock = fcntl.flock

    def late(descriptor: int, how: int) -> None:
        (tmp_path / "x").unlink(missing_ok=True)
        lock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    assert hold(tmp_path / "x") is None


def test_nobody_gets_a_lock_while_what_was_left_is_cleared(tmp_path: Path) -> None:
    with left_behind(tmp_path / "x") as is_free:
        assert is_free  # nothing is there
    (tmp_path / "x").touch()
    with left_behind(tmp_path / "x") as is_free:
        assert is_free and is_held(tmp_path / "x")


def test_a_lake_that_cannot_be_written_is_read_without_a_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with shared_lock(tmp_path):
        pass
    with pytest.raises(PermissionError), exclusive_lock(tmp_path):
        pass
