"""A crash at any step of installing: the next command that opens the lake completes it."""

import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from dissector.lake import install as installing
from dissector.lake.install import STAGE_FOLDER, Stage, needs_recovery
from dissector.lake.landing import Landed, Landing
from dissector.lake.reader import open_lake, verify
from tests.choosing import LOOKS_AT_ALL
from tests.dissector.lake.landed import content, feed, land, tree

# What is done to a file or folder, and the lines of the program that do it.
Change = tuple[str, tuple[tuple[CodeType, int], ...]]
NEVER = sys.maxsize


class Crash(BaseException):
    """The process ends here."""


@contextmanager
def crash_at(step: int) -> Iterator[list[Change]]:
    """Let the step-th change of the file system fail like a crash, and all after it."""
    patch = pytest.MonkeyPatch()
    done: list[Change] = []

    def wrap(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def changed(*args: Any, **keywords: Any) -> Any:
            lines = tuple((at.f_code, line) for at, line in traceback.walk_stack(None))
            done.append((name, lines))
            if len(done) >= step:
                raise Crash
            return original(*args, **keywords)

        patch.setattr(owner, name, changed)

    for owner, name in (
        (Path, "rename"),
        (Path, "unlink"),
        (Path, "rmdir"),
        (os, "replace"),
        (shutil, "rmtree"),
    ):
        wrap(owner, name)
    try:
        yield done
    finally:
        patch.undo()


def steps_to_be_killed_at(action: Callable[[], object]) -> list[int]:
    """Run something, and say before which of its changes of files another run of it is killed.

    Of those that the same lines of the program make these are the first and the last: before it
    nothing of what they do is done, and all but a part. Where all are looked at it is each of them.
    Behind them comes one that is never reached.
    """
    with crash_at(NEVER) as done:
        action()
    ends: dict[Any, tuple[int, int]] = {}
    for step, change in enumerate(done, start=1):
        ends[change] = ends.get(change, (step,))[0], step
    every = range(1, len(done) + 1)
    chosen = every if LOOKS_AT_ALL else sorted({step for both in ends.values() for step in both})
    return [*chosen, len(done) + 1]


def lost(landing: Landing) -> None:
    """What the end of the process does: the writing thread ends, locks go, files stay."""
    landing._writer._stop()
    os.close(landing._stage._lock)


@pytest.mark.parametrize("before", ["nothing", "shorter", "other options"])
def test_a_crash_at_any_step_loses_nothing(tmp_path: Path, before: str) -> None:
    start, wanted = tmp_path / "start", tmp_path / "wanted"
    other = land(start, "other", content(444)).capture_id
    earlier = None
    if before == "shorter":
        earlier = land(start, "ring", content(700)).capture_id
    elif before == "other options":
        earlier = land(start, "ring", content(1500), options={"x": 1}).capture_id
    shutil.copytree(start, wanted)
    with Landing(wanted, "ring") as landing:
        feed(landing, content(1500))
        landing.seal()
        made: list[Landed] = []
        steps = steps_to_be_killed_at(lambda: made.append(landing.commit({})))
    new = made[0].capture_id
    trees = [tree(start), tree(wanted)]
    seen = set()
    for step in steps:
        lake = tmp_path / f"lake{step}"
        shutil.copytree(start, lake)
        landing = Landing(lake, "ring")
        feed(landing, content(1500))
        landing.seal()
        with crash_at(step):
            try:
                landing.commit({})
                break
            except Crash:
                lost(landing)
        with open_lake(lake) as opened:
            ids = {capture.capture_id for capture in opened.captures}
            assert verify(opened) == []
        # The earlier version, or the new one; never both, never neither.
        assert ids in ({other, earlier or other}, {other, new})
        left = tree(lake)
        assert left in trees
        seen.add(left == trees[1])
        shutil.rmtree(lake)
    assert tree(lake) == trees[1]
    assert seen == {False, True} and step > 15


def test_a_stage_that_was_ready_is_installed_by_the_next_command(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "ring")
    feed(landing, content(900))
    landing.seal()
    patch = pytest.MonkeyPatch()
    patch.setattr("dissector.lake.install.install", lambda *_: (_ for _ in ()).throw(Crash()))
    with pytest.raises(Crash):
        landing.commit({})
    patch.undo()
    lost(landing)
    assert needs_recovery(tmp_path)
    with Landing(tmp_path, "other"):
        pass  # a landing that is not done leaves it
    with open_lake(tmp_path) as lake:
        assert len(lake.captures) == 1 and verify(lake) == []
    land(tmp_path / "fresh", "ring", content(900))
    assert tree(tmp_path / "fresh") == {
        name: data for name, data in tree(tmp_path).items() if not name.startswith("fresh")
    }


def test_stages_of_living_writers_are_left_alone(tmp_path: Path) -> None:
    with Landing(tmp_path, "b") as landing:
        feed(landing, content(300))
        land(tmp_path, "a", content(200))
        assert not needs_recovery(tmp_path)
        with open_lake(tmp_path) as lake:
            assert len(lake.captures) == 1
        landing.commit({})
    with open_lake(tmp_path) as lake:
        assert len(lake.captures) == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from dissector.lake.landing import Landing
from tests.dissector.lake.landed import content, feed
landing = Landing(Path(sys.argv[1]), "b")
feed(landing, content(300))
landing.seal()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_stage_of_a_killed_writer_is_deleted(tmp_path: Path) -> None:
    land(tmp_path, "a", content(200))
    before = tree(tmp_path)
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert needs_recovery(tmp_path) and tree(tmp_path) != before
    with open_lake(tmp_path):
        pass
    assert tree(tmp_path) == before and not (tmp_path / STAGE_FOLDER).exists()


def test_a_stage_begins_though_another_writer_removes_the_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Path.mkdir, []

    def racing(self: Path, *args: Any, **keywords: Any) -> None:
        calls.append(self)
        if len(calls) == 2:
            installing.remove_if_empty(self.parent)
        original(self, *args, **keywords)

    monkeypatch.setattr(Path, "mkdir", racing)
    stage = Stage(tmp_path, "c-x")
    assert stage.folder.is_dir() and len(calls) == 4
    stage.discard()
    stage.discard()
    assert not stage.folder.exists()


@pytest.mark.parametrize("text", ["{", '"c-x"', '["../../x"]', "[3]"])
def test_a_stage_whose_list_is_damaged_waits_and_blocks_nothing(tmp_path: Path, text: str) -> None:
    """What it names is deleted: only names of captures may be."""
    land(tmp_path, "a", content(200))
    precious = tmp_path / "precious"
    precious.mkdir()
    stage = tmp_path / STAGE_FOLDER / "rm.0123.ready"
    stage.mkdir(parents=True)
    (stage / "replaces.json").write_text(text)
    land(tmp_path, "b", content(300))
    with open_lake(tmp_path) as lake:
        assert len(lake.captures) == 2
        (problem,) = verify(lake)
    assert problem.path == str(stage) and "list is damaged" in problem.text
    assert stage.is_dir() and precious.is_dir()
    shutil.rmtree(stage)
    with open_lake(tmp_path) as lake:
        assert verify(lake) == []
