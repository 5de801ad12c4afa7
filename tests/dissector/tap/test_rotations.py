"""Rotations on their way into a lake: whole or absent, and never in the way of the packets."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dissector.blocks import TableBlock
from dissector.errors import InputError, OutputError
from dissector.lake.landing import Landing
from dissector.lake.locks import LOCK_FILE, adding_lock, exclusive_lock, shared_lock
from dissector.lake.reader import open_lake, verify
from dissector.limits import MAX_DAY_LANDINGS
from dissector.tap.rotations import Rotations


def permits(rows: int) -> TableBlock:
    numbers = np.arange(rows, dtype=np.int64)
    return TableBlock("permits", rows, {"connection_id": numbers, "frame_no": numbers})


def files(ns: int | None = None) -> TableBlock:
    """By the row of its file reports know that there is a rotation; ns: of its packets."""
    times = {} if ns is None else dict.fromkeys(("first_ts_ns", "last_ts_ns"), np.array([ns]))
    return TableBlock("capture_files", 1, {"file_index": np.zeros(1, np.int64), **times})


def opened(lake: Path, may_wait: bool = False, queue_bytes: int = 1 << 20) -> Rotations:
    rotations = Rotations(lake, "Eth0.5", {}, may_wait, queue_bytes)
    rotations.begin_run(77)
    return rotations


def test_each_rotation_is_a_capture_with_a_number(tmp_path):
    rotations = opened(tmp_path)
    for rows in (3, 5):
        rotations.write(files())
        rotations.write(permits(rows))
        rotations.end(10 * rows)
    rotations.end(99)  # nothing was written: no rotation
    fates = rotations.close()
    assert [fate.capture_id for fate in fates] == ["c-eth0-5-77-00000", "c-eth0-5-77-00001"]
    assert [(fate.packets, fate.rows, fate.problem) for fate in fates] == [
        (30, 4, None), (50, 6, None)
    ]  # fmt: skip
    with open_lake(tmp_path) as lake:
        assert not verify(lake) and len(lake.captures) == 2
        assert all(capture.sha256 is None for capture in lake.captures)


def test_small_rotations_of_a_day_are_put_together_and_old_days_go(tmp_path, monkeypatch):
    monkeypatch.setattr("dissector.tap.rotations.crowded_days", lambda lake: ["1970-01-01"])
    old = Rotations(tmp_path, "old", {}, True, keep_days=None)
    old.begin_run(77)
    for _ in range(MAX_DAY_LANDINGS + 1):
        old.write(files(1_000))
        old.end(1)
    old.close()
    assert old.upkeep_problem is None
    new = Rotations(tmp_path, "new", {}, True)
    new.begin_run(78)
    new.write(files(time.time_ns()))
    new.end(1)
    new.close()
    with open_lake(tmp_path) as lake:
        assert not verify(lake)
        assert sum(len(each.captures()) for each in lake.captures) == MAX_DAY_LANDINGS + 2
        assert any(len(each.replaces) > 30 for each in lake.captures)
    newer = Rotations(tmp_path, "newer", {}, True, keep_days=2)
    newer.begin_run(79)
    newer.write(files(time.time_ns()))
    newer.end(1)
    newer.close()
    assert newer.upkeep_problem is None
    with open_lake(tmp_path) as lake:
        assert not verify(lake)
        assert {each.base_name for each in lake.captures} == {"new", "newer"}


@pytest.mark.parametrize("lock", [shared_lock, adding_lock, exclusive_lock])
def test_a_lake_that_is_read_or_changed_is_not_waited_for(tmp_path, lock):
    opened(tmp_path).close()
    with lock(tmp_path):
        rotations = opened(tmp_path)
        for rows in (3, 5):
            rotations.write(files())
            rotations.write(permits(rows))
            rotations.end(rows)
        assert [fate.problem for fate in rotations.close()] == [None, None]
        # They take nothing away from readers; beside those who change the lake they wait.
        assert len(list(tmp_path.glob("_manifest/*"))) == (2 if lock is shared_lock else 0)
    with open_lake(tmp_path) as lake:
        assert not verify(lake) and len(lake.captures) == 2


def write_after(wait: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each block of rows wait before it is written."""
    write = Landing.write

    def slowly(self: Landing, block: TableBlock) -> None:
        wait()
        write(self, block)

    monkeypatch.setattr(Landing, "write", slowly)


def test_a_live_tap_waits_for_what_is_slow_and_moves(tmp_path, monkeypatch):
    write_after(lambda: time.sleep(0.01), monkeypatch)
    rotations = opened(tmp_path, queue_bytes=100_000)
    for _ in range(30):
        rotations.write(permits(1000))
    rotations.end(12)
    (fate,) = rotations.close()
    assert fate.problem is None and fate.rows == 30_000


def test_a_rotation_without_an_end_is_absent(tmp_path):
    rotations = opened(tmp_path)
    rotations.write(permits(3))
    assert rotations.close() == []
    assert not list(tmp_path.glob("_manifest/*")) and not (tmp_path / "_tmp").exists()


def test_b61_a_live_tap_gives_a_rotation_up_where_the_queue_is_full(tmp_path, monkeypatch):
    may_go_on = threading.Event()
    write_after(lambda: may_go_on.wait(20), monkeypatch)
    rotations = opened(tmp_path, queue_bytes=100_000)
    for _ in range(20):
        rotations.write(permits(1000))
    assert rotations.queued_bytes <= 100_000
    rotations.end(12)
    may_go_on.set()
    while rotations.queued_bytes:
        pass
    rotations.write(permits(7))
    rotations.end(5)
    fates = rotations.close()
    assert [fate.packets for fate in fates] == [12, 5]
    assert "too slowly" in fates[0].problem and fates[1].problem is None
    assert (rotations.lost, rotations.lost_packets, rotations.landed) == (1, 12, 1)
    with open_lake(tmp_path) as lake:
        assert [capture.capture_id for capture in lake.captures] == ["c-eth0-5-77-00001"]


def test_a_replay_waits_where_the_queue_is_full(tmp_path):
    rotations = opened(tmp_path, may_wait=True, queue_bytes=50_000)
    for _ in range(200):
        rotations.write(permits(1000))
    rotations.end(1)
    (fate,) = rotations.close()
    assert fate.problem is None and fate.rows == 200_000


@pytest.mark.parametrize("may_wait", [False, True])
def test_b61_a_full_disk_stops_a_rotation_not_the_tap(tmp_path, monkeypatch, may_wait):
    write = Landing.write
    full = [True]

    def fail(self: Landing, block: TableBlock) -> None:
        if full[0]:
            raise OutputError("no space left")
        write(self, block)

    monkeypatch.setattr(Landing, "write", fail)
    rotations = opened(tmp_path, may_wait)
    rotations.write(permits(2))
    rotations.end(4)
    if may_wait:
        with pytest.raises(OutputError, match="no space left"):
            rotations.close()
        return
    while rotations.lost == 0:
        rotations.fates()
    assert rotations.problem == "no space left"
    full[0] = False
    rotations.write(permits(2))
    rotations.end(4)
    assert rotations.close()[-1].problem is None and rotations.problem is None


def test_a_lake_of_a_newer_program_is_refused_at_once(tmp_path):
    opened(tmp_path).close()
    (tmp_path / LOCK_FILE).write_text("99\n")
    with pytest.raises(InputError, match="99"):
        opened(tmp_path)
