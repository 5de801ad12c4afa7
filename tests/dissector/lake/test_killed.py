"""Runs that change a lake are killed at any moment: it stays whole, and nothing of them is left."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from dissector.lake import mirror
from dissector.lake.compact import compact
from dissector.lake.install import SUMS_FOLDER
from dissector.lake.landing import INSTALLED
from dissector.lake.locks import shared_lock
from dissector.lake.reader import open_lake, remove, verify
from tests.choosing import examples
from tests.dissector.lake.landed import content, land, tree
from tests.dissector.lake.test_install import steps_to_be_killed_at
from tests.dissector.lake.test_reader import ended_without_a_crash_at

# Lands new captures, a ring that grows, and the same with other options; compacts; removes; drops
# the day of all of them.
WRITER = """
import random, sys
from contextlib import suppress
from pathlib import Path
from dissector.errors import UsageError
from dissector.lake.compact import compact
from dissector.lake.reader import remove
from dissector.lake.retention import keep
from tests.dissector.lake.landed import content, land
lake, seed = Path(sys.argv[1]), int(sys.argv[2])
print("began", flush=True)
for number in range(1000):
    land(lake, f"new-{seed}-{number}", content(300 + number))
    land(lake, "ring", content(500 + 100 * number))
    land(lake, "same", content(400), options={"x": number})
    with suppress(UsageError):  # there is but one new capture since the last removal
        if number % 2:
            compact(lake, ["c-new-*", "compact-*"])
    if number % 3 == 2:
        remove(lake, ["compact-*", "c-new-*"])
    if number % 5 == 4:
        keep(lake, 10**18)
    print("again", flush=True)
"""


@pytest.mark.parametrize("seed", range(examples(6, 3)))
def test_a_killed_writer_leaves_a_whole_lake(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for round_no in range(2):  # the second one goes on where the first was killed
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path), str(seed + 100 * round_no)],
            stdout=subprocess.PIPE,
        ) as writer:
            assert writer.stdout is not None and writer.stdout.readline() == b"began\n"
            for _ in range(chance.randrange(7)):
                assert writer.stdout.readline() == b"again\n"
            time.sleep(chance.uniform(0, 0.2))  # a turn takes a tenth of a second
            writer.send_signal(signal.SIGKILL)
    if not (tmp_path / "_manifest").exists():
        land(tmp_path, "ring", content(500))
    with open_lake(tmp_path) as lake:
        assert verify(lake) == []
        names = [inside.base_name for each in lake.captures for inside in each.captures()]
    assert len(names) == len(set(names))  # never two versions of one
    assert not (tmp_path / "_tmp").exists()
    assert land(tmp_path, "ring", content(200_000)).outcome == INSTALLED


def test_a_compaction_that_is_killed_at_any_step_is_done_or_was_not_begun(tmp_path: Path) -> None:
    start, wanted = tmp_path / "start", tmp_path / "wanted"
    for size in (300, 400):
        land(start, f"n{size}", content(size))
    shutil.copytree(start, wanted)
    steps = steps_to_be_killed_at(partial(compact, wanted))
    trees = [tree(start), tree(wanted)]
    seen = set()
    for step in steps:
        lake = tmp_path / f"lake{step}"
        shutil.copytree(start, lake)
        is_over = ended_without_a_crash_at(step, partial(compact, lake))
        if is_over:
            break
        land(lake, "n400", content(400))  # which finishes what is ready, too
        with open_lake(lake) as opened:
            assert verify(opened) == []
        left = tree(lake)
        assert left in trees
        seen.add(left == trees[1])
        shutil.rmtree(lake)
    assert tree(lake) == trees[1] and seen == {False, True} and step > 15


def test_what_is_added_while_a_lake_is_read_or_compacted_waits_for_nobody(tmp_path: Path) -> None:
    first = land(tmp_path, "a", content(300)).capture_id
    with open_lake(tmp_path) as lake:
        second = land(tmp_path, "b", content(400)).capture_id
        assert [each.capture_id for each in lake.captures] == [first] and verify(lake) == []
        with open_lake(tmp_path) as later:
            assert [each.capture_id for each in later.captures] == [first, second]


def test_what_takes_files_away_waits_for_those_who_read(tmp_path: Path) -> None:
    land(tmp_path, "ring", content(300))
    grown: list[str] = []
    landing = threading.Thread(
        target=lambda: grown.append(land(tmp_path, "ring", content(900)).capture_id)
    )
    with shared_lock(tmp_path), open_lake(tmp_path) as lake:
        landing.start()
        landing.join(0.5)
        assert landing.is_alive() and verify(lake) == []
    landing.join(60)
    with open_lake(tmp_path) as lake:
        assert [each.capture_id for each in lake.captures] == grown


def test_a_compaction_chooses_again_where_its_captures_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are written while others work: what they removed does not come back."""
    ids = [land(tmp_path, name, content(300 + n)).capture_id for n, name in enumerate("abc")]
    changing, calls = mirror.changing, []

    def late(folder: Path, *, may_wait: bool = True) -> AbstractContextManager[bool]:
        calls.append(1)
        if len(calls) == 1:
            remove(tmp_path, [ids[0]])
            land(tmp_path, "d", content(999))
        return changing(folder, may_wait=may_wait)

    monkeypatch.setattr(mirror, "changing", late)
    (group,) = compact(tmp_path).groups
    assert len(calls) == 3  # one is that of the removal
    assert [inside.base_name for inside in group.replaces] == ["b", "c", "d"]
    with open_lake(tmp_path) as lake:
        assert lake.captures == (group,) and verify(lake) == []
    assert not (tmp_path / "_tmp").exists()


def test_kept_sums_are_no_table_and_in_nobodys_way(tmp_path: Path) -> None:
    for number, name in enumerate("abc"):
        land(tmp_path, name, content(300 + number))
    kept = tmp_path / SUMS_FOLDER / "b-0123"
    kept.mkdir(parents=True)
    (kept / "index.json").write_text("{")
    (kept / "sends.parquet").write_bytes(b"no Parquet")
    sums = tree(kept)
    with open_lake(tmp_path) as lake:
        assert verify(lake) == []
    assert compact(tmp_path, ["c-a-*", "c-b-*"]).groups
    land(tmp_path, "d", content(400))
    remove(tmp_path, ["*"])
    assert tree(kept) == sums and os.listdir(tmp_path / SUMS_FOLDER) == ["b-0123"]
    with open_lake(tmp_path) as lake:
        assert lake.captures == () and verify(lake) == []
