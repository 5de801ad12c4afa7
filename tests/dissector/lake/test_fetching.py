"""Files come whole or not at all; how far it is, is told; what has no room is not begun."""

import errno
import hashlib
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dissector import limits
from dissector.errors import InputError
from dissector.lake.fetching import Fetching, fetch_all
from dissector.lake.reader import open_lake
from dissector.storage import progress
from tests.dissector.lake.stored import ROOT, Machines, MemoryStore, machines
from tests.dissector.lake.test_mirror import begin, rows_of

__all__ = ["machines"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int, str]]]:
    """What a listener hears."""
    heard: list[tuple[int, int, str]] = []
    monkeypatch.setattr(limits, "STORE_RANGE_BYTES", 10)
    progress.listen(lambda *each: heard.append(each))
    yield heard
    progress.listen(None)


def wanted(store: MemoryStore, folder: Path, *sizes: int) -> list[Fetching]:
    files = []
    for number, size in enumerate(sizes):
        data = bytes([number % 256]) * size
        store.files[f"f{number}"] = data, 0.0
        digest = hashlib.sha256(data).hexdigest()
        files.append(Fetching(folder / f"x/f{number}", store.entry(f"f{number}"), digest))
    return files


def test_all_come_and_how_far_it_is_is_told(
    tmp_path: Path, told: list[tuple[int, int, str]]
) -> None:
    store = MemoryStore()
    files = wanted(store, tmp_path, 0, 5, 10, 35)
    fetch_all(store, files, ROOT)
    assert [file.path.read_bytes() for file in files] == [d for d, _ in store.files.values()]
    assert told[-1] == (50, 50, ROOT)
    assert sorted(told) == told and {each[1:] for each in told} == {(50, ROOT)}
    assert len(list((tmp_path / "x").iterdir())) == 4


def test_each_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    store = MemoryStore()
    files = wanted(store, tmp_path, 5, 6, 7)
    store.files["f1"] = b"xxxxxx", 0.0
    del store.files["f2"]
    fetch_all(store, files, ROOT)
    assert [file.problem.removeprefix(f"{ROOT}/") for file in files] == [
        "",
        "f1 is not what its manifest says: its bytes changed",
        "f2 is missing: it was removed meanwhile, run it again",
    ]
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["f0"]


def test_a_store_that_fails_ends_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STORE_REQUESTS", 2)
    store = MemoryStore()
    files = wanted(store, tmp_path, *[5] * 500)

    is_over = threading.Event()
    progress.listen(lambda done, total, _: is_over.set() if done == total else None)

    def fail(what: str, name: str) -> None:
        if name == "f0":
            raise OSError(errno.EIO, "503")
        assert is_over.wait(60)

    store.before, store.asked = fail, []
    with pytest.raises(OSError, match="503"):
        fetch_all(store, files, ROOT)
    assert len(store.asked) <= 3 and is_over.is_set()  # the line on the terminal goes


def test_what_has_no_room_is_refused_before_anything_is_fetched(
    machines: Machines, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(machines)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=5000))
    with machines.on("reader") as lake, open_lake(lake):
        machines.store.asked.clear()
        said = r"5.42 KiB of s3://bucket/some/lake are to be fetched, and 4.88 KiB are free in "
        with pytest.raises(InputError, match=said):
            rows_of(lake)
        assert not any(asked.startswith("read ") for asked in machines.store.asked)


def test_nobody_need_listen(tmp_path: Path) -> None:
    progress.listen(None)
    store = MemoryStore()
    (file,) = wanted(store, tmp_path, 3)
    fetch_all(store, [file], ROOT)
    assert file.bytes == 3
