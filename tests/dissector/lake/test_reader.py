"""What a lake holds, whether it is whole, taking captures out."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dissector.errors import InputError, OutputError, UsageError
from dissector.lake.compact import compact
from dissector.lake.landing import Landing
from dissector.lake.reader import open_lake, remove, verify
from dissector.schemas import SCHEMA_VERSION
from tests.dissector.lake.landed import blocks_of, content, folder_of, land, tree
from tests.dissector.lake.test_install import crash_at, steps_to_be_killed_at

_VERSION = f'version": {SCHEMA_VERSION}'  # in a manifest


def problems(lake: Path) -> list[str]:
    with open_lake(lake) as opened:
        return [problem.text for problem in verify(opened)]


@pytest.mark.parametrize("make", [False, True], ids=["missing", "empty folder"])
def test_no_lake_is_an_input_error(tmp_path: Path, make: bool) -> None:
    folder = tmp_path / "lake"
    if make:
        folder.mkdir()
    with pytest.raises(InputError, match="is not a lake"), open_lake(folder):
        pass
    with pytest.raises(InputError, match="is not a lake"):
        remove(folder, ["*"])
    assert folder.exists() == make and not list(tmp_path.glob("lake/*"))


def test_verify_finds_what_is_missing_changed_or_stray(tmp_path: Path) -> None:
    landed = land(tmp_path, "a.pcap", content(700))
    folder = folder_of(tmp_path, "frames", landed.capture_id)
    part = folder / "part-00000.parquet"
    good = part.read_bytes()
    assert problems(tmp_path) == []
    part.write_bytes(good[:-1])
    assert problems(tmp_path) == [f"{len(good) - 1} bytes instead of {len(good)}"]
    part.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    assert problems(tmp_path) == ["its bytes changed: SHA-256 differs from the manifest's"]
    part.unlink()
    assert problems(tmp_path) == ["missing"]
    part.write_bytes(good)
    (folder / "part-00001.parquet").write_bytes(good)
    assert problems(tmp_path) == ["no manifest names this file"]


def test_verify_finds_files_that_are_not_what_the_manifest_says(tmp_path: Path) -> None:
    landed = land(tmp_path, "a.pcap", content(700))
    manifest = tmp_path / "_manifest" / f"{landed.capture_id}.json"
    text = manifest.read_text()
    rows = landed.rows["frames"]
    assert rows not in (landed.rows["permits"] + 1, 1)
    frames = folder_of(tmp_path, "frames", landed.capture_id) / "part-00000.parquet"
    assert pq.read_metadata(frames).num_rows == rows
    manifest.write_text(text.replace(f'"rows": {rows},', f'"rows": {rows + 1},'))
    assert f"{rows} rows instead of {rows + 1}" in problems(tmp_path)


def test_reading_some_columns(tmp_path: Path) -> None:
    land(tmp_path, "a.pcap", content(700))
    with open_lake(tmp_path) as lake:
        table = lake.table("frames", ["frame_no", "topic"])
        assert table.column_names == ["frame_no", "topic"]
        assert lake.table("acks", ["frame_no"]).num_rows == 0


def test_removing_by_id_by_glob_and_by_age(tmp_path: Path) -> None:
    ids = {}
    for name, size in (("a", 300), ("b", 400), ("night-1", 500), ("night-2", 600)):
        ids[name] = land(tmp_path, name, content(size)).capture_id
    assert remove(tmp_path, [ids["a"]]).gone == (ids["a"],)
    assert remove(tmp_path, ["c-night-*"]).gone == (ids["night-1"], ids["night-2"])
    (files,) = (b for b in blocks_of(content(400)) if b.table == "capture_files")
    last = int(files.columns["last_ts_ns"][0])  # type: ignore[index, arg-type]
    with pytest.raises(UsageError, match="no capture"):
        remove(tmp_path, before_ns=last)
    assert remove(tmp_path, before_ns=last + 1).gone == (ids["b"],)
    assert set(tree(tmp_path)) == {"_lock", "_lock_commit"}
    with open_lake(tmp_path) as lake:
        assert lake.captures == () and lake.table("frames").num_rows == 0


def test_a_damaged_manifest_is_named(tmp_path: Path) -> None:
    landed = land(tmp_path, "a.pcap", content(700))
    path = tmp_path / "_manifest" / f"{landed.capture_id}.json"
    path.write_text("{")
    with pytest.raises(InputError, match=landed.capture_id), open_lake(tmp_path):
        pass


def ended_without_a_crash_at(step: int, action: Callable[[], object]) -> bool:
    """Run something in a process of its own, the locks of which go with it."""
    child = os.fork()
    if child == 0:
        with crash_at(step):
            try:
                action()
            except BaseException:
                os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_a_killed_removal_left_the_next_command_removes(tmp_path: Path) -> None:
    start = tmp_path / "start"
    ids = [land(start, name, content(size)).capture_id for name, size in (("a", 300), ("b", 400))]
    wanted = tmp_path / "wanted"
    shutil.copytree(start, wanted)
    steps = steps_to_be_killed_at(partial(remove, wanted, [ids[0]]))
    seen = set()
    for step in steps:
        lake = tmp_path / f"lake{step}"
        shutil.copytree(start, lake)
        if ended_without_a_crash_at(step, partial(remove, lake, [ids[0]])):
            break
        assert problems(lake) == []
        # All of it, or nothing.
        assert tree(lake) in (tree(start), tree(wanted))
        seen.add(tree(lake) == tree(wanted))
        shutil.rmtree(lake)
    assert tree(lake) == tree(wanted) and seen == {False, True} and step > 10


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from dissector.lake.reader import remove
from dissector.schemas import SCHEMA_VERSION
left = [5]
original = shutil.rmtree
def rmtree(*args, **keywords):
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    original(*args, **keywords)
shutil.rmtree = rmtree
remove(Path(sys.argv[1]), ["*"])
"""


def test_a_killed_process_leaves_no_folder_that_stays(tmp_path: Path) -> None:
    land(tmp_path, "a", content(300))
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL and list(tmp_path.glob("*/day=*/landing=*"))
    with open_lake(tmp_path) as lake:
        assert lake.captures == ()
    assert list(tmp_path.glob("*/day=*/landing=*")) == [] and not (tmp_path / "_tmp").exists()


def test_a_full_disk_does_not_keep_captures_from_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = land(tmp_path, "a", content(300))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dissector.lake.install.Stage.make_ready", full)
    assert remove(tmp_path, ["*"]).gone == (landed.capture_id,)
    assert list(tmp_path.glob("*/day=*/landing=*")) == [] and not (tmp_path / "_tmp").exists()


@pytest.mark.parametrize("partition", ["landing", "capture"])
def test_folders_without_a_manifest_are_found_and_removed_by_id(
    tmp_path: Path, partition: str
) -> None:
    landed = land(tmp_path, "a", content(300))
    land(tmp_path, "b", content(400))
    before = tree(tmp_path)
    shutil.copytree(
        folder_of(tmp_path, "frames", landed.capture_id),
        tmp_path / "frames" / f"{partition}=c-left-0123",
    )
    (tmp_path / "acks" / f"{partition}=c-left-0123").mkdir()
    with open_lake(tmp_path) as lake:
        found = verify(lake)
    assert {problem.capture_id for problem in found} == {"c-left-0123"} and len(found) == 2
    assert all("no manifest names this folder" in problem.text for problem in found)
    assert remove(tmp_path, ["c-left-*"]) == ((), ("c-left-0123",), ())
    assert tree(tmp_path) == before and problems(tmp_path) == []


@pytest.mark.parametrize("name", ["_tmp", "_manifest", "_lock", "frames"])
def test_a_symbolic_link_in_a_lake_is_refused_and_not_followed(tmp_path: Path, name: str) -> None:
    lake, elsewhere = tmp_path / "lake", tmp_path / "elsewhere"
    land(lake, "a", content(300))
    elsewhere.mkdir()
    (elsewhere / "x.0123.ready").mkdir()
    (elsewhere / "precious").write_text("x")
    before = tree(elsewhere)
    if (lake / name).is_dir():
        shutil.rmtree(lake / name)
    (lake / name).unlink(missing_ok=True)
    (lake / name).symlink_to(elsewhere)
    for error, command in (
        (OutputError, lambda: Landing(lake, "b")),
        (OutputError, lambda: remove(lake, ["*"])),
        (OutputError, lambda: compact(lake)),
        (InputError, lambda: open_lake(lake).__enter__()),
    ):
        with pytest.raises(error, match=f"{name} is a symbolic link"):
            command()
    assert tree(elsewhere) == before and (elsewhere / "x.0123.ready").is_dir()


def test_what_lies_among_the_stages_and_is_none_is_left_alone(tmp_path: Path) -> None:
    lake, elsewhere = tmp_path / "lake", tmp_path / "elsewhere"
    land(lake, "a", content(300))
    (elsewhere / "frames").mkdir(parents=True)
    (lake / "_tmp").mkdir()
    (lake / "_tmp" / "c-b-01.77.ready").symlink_to(elsewhere)
    (lake / "_tmp" / "note.txt").write_text("x")
    with open_lake(lake) as opened:
        assert len(opened.captures) == 1
    assert (elsewhere / "frames").is_dir() and (lake / "_tmp" / "note.txt").exists()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: "{", "is not a readable manifest"),
        (lambda text: "", "is not a readable manifest"),
        (lambda text: text.replace('"files"', '"film"'), "is not a readable manifest"),
        (lambda text: "[" * 100_000, "is not a readable manifest"),
        (lambda text: text.replace(_VERSION, 'version": 1e999'), "is not a readable manifest"),
        (lambda text: text.replace(_VERSION, 'version": 0'), "it holds odd values"),
        (lambda text: text.replace('"rows": 1,', '"rows": "1",'), "it holds odd values"),
        (lambda text: text.replace('"part-', '"../../part-'), "it names other folders"),
        (lambda text: text.replace('"c-b', '"c-x'), "is the manifest of c-x"),
        (lambda text: text.replace(_VERSION, 'version": 99'), "newer"),
    ],
    ids=[
        *("cut", "empty", "a part missing", "deep", "endless version", "no version", "text"),
        *("other folders", "another id", "newer"),
    ],
)
def test_one_manifest_that_cannot_be_read_hides_no_other_capture(
    tmp_path: Path, damage: Callable[[str], str], said: str
) -> None:
    first, second = (land(tmp_path, name, content(300)).capture_id for name in ("a", "b"))
    path = tmp_path / "_manifest" / f"{second}.json"
    good = path.read_text()
    path.write_text(damage(good))
    with open_lake(tmp_path) as lake:
        assert [capture.capture_id for capture in lake.captures] == [first]
        (unread,) = lake.unread
        assert (unread.capture_id, unread.path) == (second, str(path)) and said in unread.text
        (problem,) = verify(lake)
        assert problem.capture_id == second and unread.text.endswith(problem.text)
        assert problem.path not in problem.text, "it stands before the text"
    if said == "newer":
        # What changes a lake leaves one alone that a newer program wrote to.
        for change in (partial(remove, tmp_path, [first]), partial(compact, tmp_path)):
            with pytest.raises(InputError, match="schema version 99"):
                change()
        return
    # Landing the capture again mends it, and so does taking it out.
    land(tmp_path, "b", content(300))
    assert path.read_text() == good and problems(tmp_path) == []
    path.write_text(damage(good))
    assert remove(tmp_path, [second]).gone == (second,)
    assert problems(tmp_path) == []


@pytest.mark.parametrize("is_folder", [True, False], ids=["a folder", "no UTF-8"])
def test_a_problem_names_a_manifest_that_cannot_be_opened_once(
    tmp_path: Path, is_folder: bool
) -> None:
    capture = land(tmp_path, "a", content(300)).capture_id
    land(tmp_path, "b", content(300))
    path = tmp_path / "_manifest" / f"{capture}.json"
    path.unlink()
    path.mkdir() if is_folder else path.write_bytes(b"\xff")
    with open_lake(tmp_path) as lake:
        (problem,) = verify(lake)
        assert (problem.capture_id, problem.path) == (capture, str(path))
        assert str(path) not in problem.text and "cannot be read" in problem.text
        assert [each.text for each in lake.unread] == [f"{path}: {problem.text}"]


def test_captures_in_a_group_are_removed_with_it_and_no_other_way(tmp_path: Path) -> None:
    ids = [land(tmp_path, f"n{size}", content(size)).capture_id for size in (300, 400, 500)]
    (group,) = compact(tmp_path).groups
    last_of = sorted(inside.last_ts_ns or 0 for inside in group.replaces)
    before = tree(tmp_path)
    with pytest.raises(UsageError, match=f"{ids[1]} of the 3 captures in {group.capture_id} stay"):
        remove(tmp_path, [ids[1]])
    with pytest.raises(UsageError, match="and 1 more of the 3 captures"):
        remove(tmp_path, before_ns=last_of[1] + 1)
    assert tree(tmp_path) == before
    other = land(tmp_path, "z", content(200)).capture_id
    done = remove(tmp_path, [other, ids[0]])
    assert done.gone == (other,) and len(done.notes) == 1 and ids[0] in done.notes[0]
    assert remove(tmp_path, before_ns=last_of[-1] + 1).gone == (group.capture_id,)


def test_of_a_linked_folder_of_a_table_only_the_link_is_removed(tmp_path: Path) -> None:
    lake, elsewhere = tmp_path / "lake", tmp_path / "elsewhere"
    landed = land(lake, "a", content(300))
    folder = folder_of(lake, "frames", landed.capture_id)
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    before = tree(elsewhere)
    assert remove(lake, ["*"]).gone == (landed.capture_id,)
    assert not folder.is_symlink() and tree(elsewhere) == before
    assert problems(lake) == []


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES])
def test_whoever_may_only_read_reads_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    land(tmp_path, "a", content(300))
    (tmp_path / "_tmp" / "c-x.0123").mkdir(parents=True)

    def refused(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("dissector.lake.install.recover", refused)
    with open_lake(tmp_path) as lake:
        assert len(lake.captures) == 1


def test_what_cannot_be_finished_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    land(tmp_path, "a", content(300))
    (tmp_path / "_tmp" / "c-x.0123").mkdir(parents=True)

    def broken(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("dissector.lake.install.recover", broken)
    with pytest.raises(OutputError, match="cannot finish what a crash left"), open_lake(tmp_path):
        pass


def test_verify_finds_rows_that_a_report_would_lose_or_count_twice(tmp_path: Path) -> None:
    """Reports go by the names of captures, in manifests and in rows; each file may be whole."""
    for name, size in (("a.pcap", 700), ("b.pcap", 800)):
        land(tmp_path, name, content(size))
    with open_lake(tmp_path) as opened:
        alone = [capture.capture_id for capture in opened.captures]
    copies = {path: path.read_bytes() for path in tmp_path.glob(f"*/*/*{alone[0]}*/*.parquet")}
    manifests = {path: path.read_bytes() for path in (tmp_path / "_manifest").glob("*.json")}
    (group,) = compact(tmp_path).groups
    assert problems(tmp_path) == []
    path = tmp_path / "_manifest" / f"{group.capture_id}.json"
    whole = path.read_text("utf-8")
    path.write_text(whole.replace(alone[1], "c-other-0123456789ab"), "utf-8")
    texts = problems(tmp_path)
    assert {text for text in texts if "no report" in text} == {
        f"it has rows of {alone[1]}, which its manifest does not name: no report has them",
        "it has no row of c-other-0123456789ab, which its manifest names: no report counts them",
    }
    path.write_text(whole, "utf-8")
    for part, data in copies.items():
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(data)
    for each, data in manifests.items():
        if alone[0] in each.name:
            each.write_bytes(data)
    assert problems(tmp_path) == [f"it is in {alone[0]}, too: reports count its rows twice"]
