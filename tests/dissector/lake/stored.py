"""A store in memory that fails as it is told, and machines that share it."""

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from dissector import limits
from dissector.errors import InputError
from dissector.lake import mirror, partitions
from dissector.lake.reader import open_lake, verify
from dissector.storage.addresses import parsed
from dissector.storage.store import Entry
from dissector.storage.stores import store_of

ROOT: Final = "s3://bucket"
ADDRESS: Final = f"{ROOT}/some/lake"


# Requests that change what is in a store. Of the others it is all the same whether they fail before
# or after they are done: nobody has the answer.
CHANGING: Final = ("put_new", "upload", "delete")


class Dead(BaseException):
    """The process was killed here."""


class MemoryStore:
    """A `Store`. Before each operation `before` is called, after it `after`, with its name and the
    name of the file; `late` names are in no listing."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, float]] = {}
        self.before: Callable[[str, str], None] = _nothing
        self.after: Callable[[str, str], None] = _nothing
        self.late: Callable[[str], bool] = lambda name: False
        self.asked: list[str] = []

    @contextmanager
    def _asked(self, what: str, name: str) -> Iterator[None]:
        self.asked.append(f"{what} {name}")
        self.before(what, name)
        yield
        self.after(what, name)

    def entry(self, name: str) -> Entry:
        with self._asked("entry", name):
            data, changed_s = self._file(name)
            return Entry(f"{ROOT}/{name}", len(data), changed_s, None)

    def entries(self, folder: str) -> Iterator[Entry]:
        with self._asked("entries", folder):
            for name, (data, changed_s) in sorted(self.files.items()):
                if name.startswith(f"{folder}/") and not self.late(name):
                    yield Entry(f"{ROOT}/{name}", len(data), changed_s, None)

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        name = entry.path[len(ROOT) + 1 :]
        with self._asked("read", name):
            data, changed_s = self._file(name)
            if entry.version not in (None, str(changed_s)):
                raise OSError(errno.ESTALE, "it was changed while it was read")
            return data[start:end]

    def look(self, entry: Entry, start: int, end: int) -> tuple[Entry, bytes]:
        name = entry.path[len(ROOT) + 1 :]
        data = self.read(entry, start, end)
        size, changed_s = len(self._file(name)[0]), self._file(name)[1]
        if size != entry.size or entry.version not in (None, str(changed_s)):
            raise OSError(errno.ESTALE, "it was changed while it was read")
        return Entry(entry.path, size, changed_s, str(changed_s)), data

    def load(self, name: str) -> bytes:
        with self._asked("load", name):
            return self._file(name)[0]

    def put_new(self, name: str, data: bytes) -> bool:
        with self._asked("put_new", name):
            if name in self.files:
                return False
            self.files[name] = data, time.time()
        return True

    def upload(self, name: str, path: str) -> None:
        with self._asked("upload", name):
            assert name not in self.files, "names are never used again"
            self.files[name] = Path(path).read_bytes(), time.time()

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            with self._asked("delete", name):
                self.files.pop(name, None)

    def _file(self, name: str) -> tuple[bytes, float]:
        try:
            return self.files[name]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "there is no such object") from None

    def data_files(self) -> set[str]:
        """The names of what is no log."""
        return {name for name in self.files if "/_log/" not in name}


def _nothing(what: str, name: str) -> None:
    pass


class Machines:
    """Machines with caches of their own.

    folder: where these are. store: that all of them share.
    """

    def __init__(self, folder: Path, store: MemoryStore, patch: pytest.MonkeyPatch) -> None:
        self.store = store
        self._folder = folder
        self._patch = patch
        patch.setattr(mirror, "store_of", lambda _: store)
        patch.setattr(limits, "STORE_REQUESTS", 2)  # at once: it answers at once, too

    @contextmanager
    def on(self, name: str) -> Iterator[Path]:
        """Work on a machine; gives the folder of the lake there."""
        with self._patch.context() as patch:
            patch.setattr(mirror, "_base", lambda: self._folder / name / "lakes")
            yield mirror.folder_of(ADDRESS)

    def seen(self, name: str) -> list[str]:
        """The captures of the lake as another machine sees them, whose files are all whole."""
        with self.on(name) as lake:
            try:
                with open_lake(lake) as opened:
                    assert verify(opened) == [] and not opened.unread
                    return [inside.base_name for c in opened.captures for inside in c.captures()]
            except mirror.InputError as error:
                assert "is not a lake" in str(error)
                return []

    def tidied(self) -> set[str]:
        """Files that no manifest names, and that are young: tidying removes them; gives them."""
        before = self.store.data_files()
        with self.on("tidier") as lake:
            mirror.refresh(lake)
            with suppress(InputError):  # nothing was ever landed
                mirror.tidy(lake, grace_s=-60)
        return before - self.store.data_files()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    """Machines and an empty store."""
    with pytest.MonkeyPatch.context() as patch:
        yield Machines(tmp_path / "machines", MemoryStore(), patch)


def copy_to_store(lake: Path, address: str) -> None:
    """Put the captures of a lake on a disk into a store, each as a landing does."""
    stored = mirror.of(mirror.folder_of(address))
    assert stored is not None
    with open_lake(lake) as opened:
        for number, capture in enumerate(opened.captures):
            named = capture.of_attempt(f"{number:x}")
            for name, part in zip(stored.names(named), capture.files, strict=True):
                store_of(parsed(address)).upload(
                    name, str(partitions.part_path(lake, capture, part))
                )
            stored.commit(named, (), f"{number}")
