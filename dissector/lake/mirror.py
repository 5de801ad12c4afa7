"""A lake in a store, and the folder of this machine through which it is read and changed.

    CACHE/lakes/<digest of the address>/    a lake as on a disk, of which files may be missing
        _store     the address
        _head      how much of the log (`lake.log`) its manifests are of

Files lie in the store under the names that they have in the folder, and no two attempts have one
name: what is there is never written again, and what was fetched once serves on. A landing is
staged in the folder, its files are uploaded, and an entry of the log makes it exist. So the folder
holds nothing that is not in the store, or was never landed; it may be removed when nobody uses it.

Whoever decides by the manifests of the folder, or changes them, holds the lock for adding.
"""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from dissector import limits
from dissector.errors import InputError, OutputError, needs
from dissector.lake import copies, places
from dissector.lake.copies import Copy, copies_of, is_used
from dissector.lake.fetching import Fetching, count, fetch_all
from dissector.lake.locks import LOCK_FILE, adding_lock, exclusive_lock, shared_lock
from dissector.lake.log import Change, Log, encoded
from dissector.lake.manifest import MANIFEST_FOLDER, Manifest, PartFile, from_json, to_json
from dissector.schemas import SCHEMA_VERSION, TABLES
from dissector.schemas.quantities import bytes_text
from dissector.storage.addresses import parsed, server_of
from dissector.storage.store import Entry, Store
from dissector.storage.stores import store_of

if TYPE_CHECKING:
    from dissector.lake.ranges import Ranges

BASE: Final = "DISSECTOR_LAKES"  # names the folder in which `lakes` lies; else the cache's
_FOLDER: Final = "lakes"
_ADDRESS: Final = "_store"
_HEAD: Final = "_head"
_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_UPLOAD_SECONDS: Final = limits.STORED_LAKE_GRACE_HOURS * 3600 / 2
_DELETED_AT_ONCE: Final = 1000
_Result = TypeVar("_Result")


class Overtaken(Exception):
    """Somebody else changed the lake meanwhile: look again, then decide."""


class StoredFiles(NamedTuple):
    """Files of a lake in a store, by their names from there on: any machine can fetch them."""

    address: str
    parts: dict[str, PartFile]


class Tidied(NamedTuple):
    """files, bytes: that were removed. young: files that no manifest names now, and that stay."""

    files: int
    bytes: int
    young: int


class _Head(NamedTuple):
    """end: number of the next entry. last: digest of the one before. boot: when it was written, as
    manifests are not forced onto the disk."""

    end: int = 0
    last: str = ""
    boot: str = ""


def _base() -> Path:
    if chosen := os.environ.get(BASE):
        return Path(chosen).absolute() / _FOLDER
    from dissector.jit import cache_folder

    return cache_folder() / _FOLDER


def folder_of(text: str) -> Path:
    """The folder of the lake at an address; nothing is asked of the store.

    Raises:
        UsageError: it is no address of a store. OutputError: it cannot be made.
    """
    address = str(parsed(text)).rstrip("/")
    known = f"{address}\n{server_of(parsed(text))}"
    folder = _base() / hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:24]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(0o700, exist_ok=True)  # rows are not for everybody
        (folder / MANIFEST_FOLDER).mkdir(exist_ok=True)
        _put(folder / _ADDRESS, address)
    except OSError as error:
        raise OutputError(
            f"cannot keep copies of {address} in {folder.parent}: {error.strerror or error}; "
            f"set {BASE} to another folder"
        ) from None
    return folder


def of(lake: Path) -> "Mirror | None":
    """The lake in a store that a folder stands for; None for a lake of this machine."""
    if lake.parent.name != _FOLDER:
        return None
    try:
        address = (lake / _ADDRESS).read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    # Of a folder that somebody hands over, the address would be that of their choice.
    return Mirror(lake, address) if lake.parent == _base() else None


def shown(lake: Path) -> str:
    """A lake as its user knows it."""
    mirror = of(lake)
    return str(lake) if mirror is None else mirror.address


@contextmanager
def current(lake: Path) -> Iterator[None]:
    """The manifests of a lake in a store are those that it has now, for as long as the body looks
    at them. Of a lake of this machine they are, if its lock is held.

    Raises:
        InputError: the store does not answer, or nothing was ever landed there.
    """
    mirror = of(lake)
    if mirror is None:
        yield
        return
    with adding_lock(lake):
        with mirror.read_errors():
            if not mirror.sync():
                text = f"{mirror.address} is not a lake: it has no captures; `land` writes one"
                raise InputError(text)
        yield


def refresh(lake: Path) -> None:
    """Learn what a lake in a store has now.

    Raises:
        OSError: of the store.
    """
    mirror = of(lake)
    if mirror is not None:
        lake.mkdir(parents=True, exist_ok=True)
        with adding_lock(lake):
            mirror.sync()


def settled(lake: Path, decide: Callable[[], _Result]) -> _Result:
    """Decide what to do to a lake and do it; once more if somebody was first. A lock that lets
    change it is held."""
    while True:
        mirror = of(lake)
        if mirror is not None:
            mirror.sync()
        with suppress(Overtaken):
            return decide()


@contextmanager
def changing(lake: Path, *, may_wait: bool = True) -> Iterator[bool]:
    """Hold what taking captures out of a lake takes; gives whether it is held.

    Args:
        may_wait: else it is not held while somebody reads or changes a lake of this machine.
    """
    if of(lake) is None:
        with exclusive_lock(lake, may_wait=may_wait) as is_ours:
            yield is_ours
    else:  # what was read from a store stays
        with adding_lock(lake):
            yield True


def may_change(lake: Path) -> bool:
    """Whether whoever asks may write to a lake that has captures; of a store that is one request,
    which changes nothing."""
    mirror = of(lake)
    return os.access(lake, os.W_OK) if mirror is None else mirror.may_change()


def trim(lake: Path) -> None:
    """Keep copies of what is in a store within a bound."""
    if of(lake) is not None:
        copies.trim(lake)


def tidy(
    lake: Path,
    first: Callable[[list[str]], object] = len,
    grace_s: float = limits.STORED_LAKE_GRACE_HOURS * 3600,
) -> Tidied | None:
    """Remove from a store what no manifest names, and none named for a while: somebody may still
    read it, or be about to name it. None for a lake of this machine.

    Args:
        first: told the names, from the lake on, of what is about to go.

    Raises:
        InputError: some manifest cannot be read, so that what it names is not known.
    """
    with current(lake):
        mirror = of(lake)
        if mirror is None:
            return None
        with mirror.read_errors():
            return mirror.tidy(first, grace_s)


def stored_files(lake: Path, captures: Iterable[Manifest]) -> StoredFiles | None:
    """The files of captures; None of a lake of this machine, which others see by its path."""
    mirror = of(lake)
    if mirror is None:
        return None
    return StoredFiles(mirror.address, dict(copy for c in captures for copy in copies_of(c)))


def fetch(lake: Path, wanted: Iterable[Copy]) -> None:
    """See that files of a lake are on this machine.

    Raises:
        InputError: one is not there, or not what its manifest says.
    """
    mirror = of(lake)
    if mirror is not None:
        for text in mirror.fetched(wanted).values():
            raise InputError(text)


class Mirror:
    """The folder of a lake in a store. Methods raise OSError of the store where nothing is said."""

    def __init__(self, folder: Path, address: str) -> None:
        self.folder = folder
        self.address = address
        where = parsed(address)
        self._where = where
        self._prefix = f"{where.name}/" if where.name else ""

    @property
    def _store(self) -> Store:
        return store_of(self._where)

    @property
    def _log(self) -> Log:
        return Log(self._store, self._prefix, self.address)

    @contextmanager
    def read_errors(self) -> Iterator[None]:
        """What the store's errors are to those who read."""
        try:
            yield
        except OSError as error:
            raise InputError(f"cannot read {self.address}: {error.strerror or error}") from None

    # -- manifests

    def sync(self) -> bool:
        """Bring the manifests up to date; whether anything was ever landed. The lock for adding is
        held."""
        head, log = self._head(), self._log
        if head.end and _digest(log.bytes_at(head.end - 1)) != head.last:
            head = _Head()  # another lake lies there now
        read = log.read(head.end)
        if head.end == 0 or read.end != head.end:
            self._apply(read.change, is_all=head.end == 0)
            self._put_head(read.end, _digest(log.bytes_at(read.end - 1)) if read.end else "")
        return read.end > 0

    def commit(self, manifest: Manifest | None, gone: Collection[str], by: str) -> None:
        """Take captures out of the lake and put one into it, at once.

        Args:
            by: what no other attempt has.

        Raises:
            Overtaken: the manifests are no longer those that this was decided by.
        """
        added = {} if manifest is None else {manifest.capture_id: to_json(manifest)}
        change = Change(frozenset(gone), added, SCHEMA_VERSION, by)
        end, data = self._head().end, encoded(change)
        if not self._log.append(end, data):
            raise Overtaken
        self._apply(change, is_all=False)
        self._put_head(end + 1, _digest(data))
        self._log.bundle(end + 1)

    def may_change(self) -> bool:
        """Whether the store lets write entries, as it refuses one whose number is taken."""
        number = max(0, self._head().end - 1)
        try:
            data = self._log.bytes_at(number)
            return data is not None and not self._store.put_new(self._log.name(0, number), data)
        except OSError:
            return False

    def has(self, manifest: Manifest) -> bool:
        """Whether the lake has this very capture, by whatever attempt."""
        path = self.folder / MANIFEST_FOLDER / f"{manifest.capture_id}.json"
        try:
            there = from_json(path.read_text("utf-8"), str(path))
        except (OSError, UnicodeDecodeError, InputError):
            return False
        return to_json(there.plain()) == to_json(manifest.plain())

    def version(self) -> str:
        """What the manifests of the folder are of; changes when they do."""
        return self._head().last

    def _apply(self, change: Change, *, is_all: bool) -> None:
        manifests = self.folder / MANIFEST_FOLDER
        there = {name.removesuffix(".json") for name in os.listdir(manifests)} if is_all else set()
        for name in (there | change.removed) - change.added.keys():
            (manifests / f"{name}.json").unlink(missing_ok=True)
        for name, text in change.added.items():
            _put(manifests / f"{name}.json", text)
        if change.schema_version > SCHEMA_VERSION:
            (self.folder / LOCK_FILE).write_text(f"{change.schema_version}\n")  # in place: a lock

    def _head(self) -> _Head:
        try:
            head = _Head(**json.loads((self.folder / _HEAD).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return _Head()
        return head if head.boot == _boot() else _Head()

    def _put_head(self, end: int, last: str) -> None:
        _put(self.folder / _HEAD, json.dumps(_Head(end, last, _boot())._asdict()))

    # -- files

    def names(self, manifest: Manifest) -> list[str]:
        """The names in the store of the files of a capture."""
        return [f"{self._prefix}{name}" for name, _ in copies_of(manifest)]

    def upload(self, staged: Path, manifest: Manifest) -> None:
        """Write the files of a staged capture to the store; in the stage they have plain names."""
        began_s = time.monotonic()
        paths = [str(staged / part.table / part.name) for part in manifest.plain().files]
        with ThreadPoolExecutor(limits.STORE_REQUESTS) as pool:
            list(pool.map(self._store.upload, self.names(manifest), paths))
        if time.monotonic() - began_s > _UPLOAD_SECONDS:
            raise OSError(errno.ETIMEDOUT, "the upload took so long that files of it may be tidied")

    def keep(self, staged: Path, manifest: Manifest) -> None:
        """Take the files of a capture that was landed as if they had been fetched."""
        for part, plain in zip(manifest.files, manifest.plain().files, strict=True):
            path = places.part_path(self.folder, manifest, part)
            path.parent.mkdir(parents=True, exist_ok=True)
            (staged / part.table / plain.name).rename(path)

    def remove(self, names: Collection[str]) -> None:
        """Remove files that nobody was told of; those that cannot be, `tidy` removes later."""
        with suppress(OSError):
            self._store.delete([*names])

    def fetched(self, wanted: Iterable[Copy], *, is_fresh: bool = False) -> Mapping[Path, str]:
        """Fetch files that are not on this machine; why some cannot be had, by their path.

        Args:
            is_fresh: also those that are.

        Raises:
            InputError: the store does not answer.
        """
        missing = []
        with shared_lock(self.folder):  # nobody trims it
            for name, part in wanted:
                path = self.folder / name
                if is_fresh or not is_used(path, part.bytes):
                    missing.append(Fetching(path, self._entry(path, part.bytes), part.sha256))
        size = sum(each.entry.size for each in missing)
        self._refuse_too_much(size)
        with self.read_errors():
            fetch_all(self._store, missing, self.address)
        wrong = {each.path: each.problem for each in missing if each.problem}
        count(self.folder, size - sum(each.entry.size for each in missing if each.problem))
        return wrong

    def ranges(self) -> "Ranges":
        """What reads files where they lie.

        Raises:
            DependencyError: a library is missing.
        """
        extra = "hdfs" if self._where.scheme == "hdfs" else "objects"
        with needs(extra, "lakes on this machine are read without"):
            from dissector.lake.ranges import Ranges
        return Ranges(self._store, self.address, self.folder, self._entry)

    def _refuse_too_much(self, size: int) -> None:
        """Refuse to fetch what has no room, before anything is fetched.

        Raises:
            InputError: there is less.
        """
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise InputError(
                f"{bytes_text(size)} of {self.address} are to be fetched, and {bytes_text(free)} "
                f"are free in {self.folder.parent}: make room, let {BASE} name another folder, or "
                "read less, with --capture"
            )

    def _entry(self, path: Path, size: int) -> Entry:
        """A file of the store. path: where its copy is, or would be."""
        name = path.relative_to(self.folder)
        return Entry(f"{self._where.root}/{self._prefix}{name}", size, 0, None)

    def end_of(self, path: Path, size: int, wanted: int) -> bytes:
        """The last bytes of a file, all where it has fewer.

        Args:
            path: where its copy would be. size: of the file.
        """
        return self._store.read(self._entry(path, size), max(0, size - wanted), size)

    # -- upkeep

    def tidy(self, first: Callable[[list[str]], object], grace_s: float) -> Tidied:
        """See the function. What lies at no place of a landing is of others: lists of tables."""
        until = time.time() - grace_s
        named, recently = self._named(until)
        gone: list[str] = []
        size = young = 0
        for table in TABLES:
            for entry in self._store.entries(f"{self._prefix}{table}"):
                name = entry.path[len(self._where.root) + 1 :]
                place = os.path.dirname(name)[len(self._prefix) + len(table) + 1 :]
                if name in named or not places.is_place(place):
                    continue
                if entry.changed_s > until or name in recently:
                    young += 1
                else:
                    gone.append(name)
                    size += entry.size
        first([name[len(self._prefix) :] for name in gone])
        for start in range(0, len(gone), _DELETED_AT_ONCE):
            self._store.delete(gone[start : start + _DELETED_AT_ONCE])
        return Tidied(len(gone), size, young)

    def _named(self, since: float) -> tuple[set[str], set[str]]:
        """The names of all files that a manifest names now, and of those that one named since."""
        log = self._log
        times = {
            entry.path: entry.changed_s
            for entry in self._store.entries(log.name(0, 0).rpartition("/")[0])
        }
        at = 0
        # What the listing does not have yet is young.
        while times.get(f"{self._where.root}/{log.name(0, at)}", since + 1) <= since:
            at += 1
        change = log.read(0, at).change
        recently = self._names_of(change)
        while (read := log.read(at, at + 1)).end > at:
            change, at = change.then(read.change), at + 1
            recently |= self._names_of(read.change)
        return self._names_of(change), recently

    def _names_of(self, change: Change) -> set[str]:
        manifests = (from_json(text, self.address) for text in change.added.values())
        return {name for manifest in manifests for name in self.names(manifest)}


def _put(path: Path, text: str) -> None:
    """Write a file, whole for whoever reads it meanwhile."""
    new = path.with_name(f".{os.urandom(6).hex()}")
    new.write_bytes(text.encode("utf-8", "surrogateescape"))
    new.rename(path)


def _digest(data: bytes | None) -> str:
    return "" if data is None else hashlib.sha256(data).hexdigest()


def _boot() -> str:
    try:
        return _BOOT.read_text("ascii").strip()
    except OSError:
        return ""
