"""A lake in an object store or HDFS, and its local folder (the mirror) for reading and changing it.

    CACHE/lakes/<digest of the address>/    a lake as on a disk; data files may be missing
        _store     the address
        _head      the position in the log (`lake.log`) that the manifests correspond to

A file has the same name in the store and in the folder, and each landing attempt uses names of its
own. So no file in the store is ever overwritten, and a fetched file stays valid. A landing is
staged in the folder, its files are uploaded, and a log entry commits it. The folder holds only
copies and landings not committed yet; it may be removed while no process uses it.

A caller that reads or changes the folder's manifests to make a decision holds the lock for adding.
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
from dissector.lake import copies, partitions
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
    """Another process changed the lake meanwhile: sync, then decide again."""


class StoredFiles(NamedTuple):
    """Files of a lake in a store that any machine can fetch. parts: by name below the address."""

    address: str
    parts: dict[str, PartFile]


class Tidied(NamedTuple):
    """files, bytes: removed. young: files without a manifest, too recent to remove."""

    files: int
    bytes: int
    young: int


class _Head(NamedTuple):
    """end: number of the next log entry. last: digest of the entry before it. boot: boot id of the
    writer; after a reboot the manifests may be incomplete, as they are not synced to disk."""

    end: int = 0
    last: str = ""
    boot: str = ""


def _base() -> Path:
    if chosen := os.environ.get(BASE):
        return Path(chosen).absolute() / _FOLDER
    from dissector.jit import cache_folder

    return cache_folder() / _FOLDER


def folder_of(text: str) -> Path:
    """Return (and create) the mirror folder of the lake at an address; sends no request.

    Raises:
        UsageError: `text` is no address of a store. OutputError: the folder cannot be created.
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
    """Return the lake in a store that this folder mirrors; None for a local lake."""
    if lake.parent.name != _FOLDER:
        return None
    try:
        address = (lake / _ADDRESS).read_text("utf-8", "surrogateescape")
    except OSError:
        return None
    # A folder elsewhere is not trusted: its owner could have written any address.
    return Mirror(lake, address) if lake.parent == _base() else None


def shown(lake: Path) -> str:
    """Return the lake's path or address for messages."""
    mirror = of(lake)
    return str(lake) if mirror is None else mirror.address


@contextmanager
def current(lake: Path) -> Iterator[None]:
    """Sync the manifests of a lake in a store and keep them unchanged while the body runs. A local
    lake needs only its lock, which the caller holds.

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
    """Sync the manifests of a lake in a store.

    Raises:
        OSError: of the store.
    """
    mirror = of(lake)
    if mirror is not None:
        lake.mkdir(parents=True, exist_ok=True)
        with adding_lock(lake):
            mirror.sync()


def retry_overtaken(lake: Path, decide: Callable[[], _Result]) -> _Result:
    """Call `decide` and return its result; sync and call it again if it raises Overtaken. The
    caller holds a lock that permits the change."""
    while True:
        mirror = of(lake)
        if mirror is not None:
            mirror.sync()
        with suppress(Overtaken):
            return decide()


@contextmanager
def changing(lake: Path, *, may_wait: bool = True) -> Iterator[bool]:
    """Hold the lock for removing captures; yields whether it is held.

    Args:
        may_wait: if false, yield False at once while a process reads or changes a local lake.
    """
    if of(lake) is None:
        with exclusive_lock(lake, may_wait=may_wait) as is_ours:
            yield is_ours
    else:  # no need to exclude readers: files in a store outlive their manifests
        with adding_lock(lake):
            yield True


def may_change(lake: Path) -> bool:
    """Whether this process may write to a lake that has captures; for a store this sends one
    request, which changes nothing."""
    mirror = of(lake)
    return os.access(lake, os.W_OK) if mirror is None else mirror.may_change()


def trim(lake: Path) -> None:
    """Delete local copies of a stored lake's files beyond the size limit."""
    if of(lake) is not None:
        copies.trim(lake)


def tidy(
    lake: Path,
    first: Callable[[list[str]], object] = len,
    grace_s: float = limits.STORED_LAKE_GRACE_HOURS * 3600,
) -> Tidied | None:
    """Delete the files of a store that no manifest has named for `grace_s` seconds. Younger files
    stay: a reader may still use one, a writer may be about to commit it. None for a local lake.

    Args:
        first: called with the names, relative to the lake, before they are deleted.

    Raises:
        InputError: a manifest cannot be read, so the files that it names are unknown.
    """
    with current(lake):
        mirror = of(lake)
        if mirror is None:
            return None
        with mirror.read_errors():
            return mirror.tidy(first, grace_s)


def stored_files(lake: Path, captures: Iterable[Manifest]) -> StoredFiles | None:
    """Return the files of captures; None for a local lake, whose path other processes can read."""
    mirror = of(lake)
    if mirror is None:
        return None
    return StoredFiles(mirror.address, dict(copy for c in captures for copy in copies_of(c)))


def fetch(lake: Path, wanted: Iterable[Copy]) -> None:
    """Fetch the files of a stored lake that are not on this machine.

    Raises:
        InputError: a file is missing in the store, or differs from its manifest.
    """
    mirror = of(lake)
    if mirror is not None:
        for text in mirror.fetched(wanted).values():
            raise InputError(text)


class Mirror:
    """The local folder of a lake in a store. Methods raise the store's OSError unless documented
    otherwise."""

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
        """Convert the store's OSError to InputError, for readers."""
        try:
            yield
        except OSError as error:
            raise InputError(f"cannot read {self.address}: {error.strerror or error}") from None

    # -- manifests

    def sync(self) -> bool:
        """Update the manifests from the log; return whether the log has any entry. The caller holds
        the lock for adding."""
        head, log = self._head(), self._log
        if head.end and _digest(log.bytes_at(head.end - 1)) != head.last:
            head = _Head()  # the lake at this address was replaced by another
        read = log.read(head.end)
        if head.end == 0 or read.end != head.end:
            self._apply(read.change, is_all=head.end == 0)
            self._put_head(read.end, _digest(log.bytes_at(read.end - 1)) if read.end else "")
        return read.end > 0

    def commit(self, manifest: Manifest | None, gone: Collection[str], by: str) -> None:
        """Remove captures and add one, in one log entry.

        Args:
            by: a name that is unique to this attempt.

        Raises:
            Overtaken: the log has grown since the last sync.
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
        """Whether the store permits writing log entries; tested with an entry that exists."""
        number = max(0, self._head().end - 1)
        try:
            data = self._log.bytes_at(number)
            return data is not None and not self._store.put_new(self._log.name(0, number), data)
        except OSError:
            return False

    def has(self, manifest: Manifest) -> bool:
        """Whether the lake has this capture with equal content, from any attempt."""
        path = self.folder / MANIFEST_FOLDER / f"{manifest.capture_id}.json"
        try:
            there = from_json(path.read_text("utf-8"), str(path))
        except (OSError, UnicodeDecodeError, InputError):
            return False
        return to_json(there.plain()) == to_json(manifest.plain())

    def version(self) -> str:
        """Return the digest of the last log entry applied; changes whenever the manifests do."""
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
        """Return the names of a capture's files in the store."""
        return [f"{self._prefix}{name}" for name, _ in copies_of(manifest)]

    def upload(self, staged: Path, manifest: Manifest) -> None:
        """Upload the files of a staged capture; the staged names lack the attempt's suffix."""
        began_s = time.monotonic()
        paths = [str(staged / part.table / part.name) for part in manifest.plain().files]
        with ThreadPoolExecutor(limits.STORE_REQUESTS) as pool:
            list(pool.map(self._store.upload, self.names(manifest), paths))
        if time.monotonic() - began_s > _UPLOAD_SECONDS:
            raise OSError(errno.ETIMEDOUT, "the upload took so long that files of it may be tidied")

    def keep(self, staged: Path, manifest: Manifest) -> None:
        """Move the staged files of a committed capture to the paths of fetched copies."""
        for part, plain in zip(manifest.files, manifest.plain().files, strict=True):
            path = partitions.part_path(self.folder, manifest, part)
            path.parent.mkdir(parents=True, exist_ok=True)
            (staged / part.table / plain.name).rename(path)

    def remove(self, names: Collection[str]) -> None:
        """Delete uncommitted files from the store; `tidy` deletes any that remain later."""
        with suppress(OSError):
            self._store.delete([*names])

    def fetched(self, wanted: Iterable[Copy], *, is_fresh: bool = False) -> Mapping[Path, str]:
        """Fetch files that are not on this machine; return the problems of failed files by path.

        Args:
            is_fresh: fetch also files that are on this machine.

        Raises:
            InputError: the store does not answer.
        """
        missing = []
        with shared_lock(self.folder):  # prevents trimming
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
        """Return a reader of byte ranges of files in the store.

        Raises:
            DependencyError: a library is missing.
        """
        extra = "hdfs" if self._where.scheme == "hdfs" else "objects"
        with needs(extra, "lakes on this machine are read without"):
            from dissector.lake.ranges import Ranges
        return Ranges(self._store, self.address, self.folder, self._entry)

    def _refuse_too_much(self, size: int) -> None:
        """Check the free disk space before anything is fetched.

        Raises:
            InputError: less than `size` bytes are free.
        """
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise InputError(
                f"{bytes_text(size)} of {self.address} are to be fetched, and {bytes_text(free)} "
                f"are free in {self.folder.parent}: make room, let {BASE} name another folder, or "
                "read less, with --capture"
            )

    def _entry(self, path: Path, size: int) -> Entry:
        """Return the store entry of a file. path: its local copy's, which may not exist."""
        name = path.relative_to(self.folder)
        return Entry(f"{self._where.root}/{self._prefix}{name}", size, 0, None)

    def end_of(self, path: Path, size: int, wanted: int) -> bytes:
        """Read the last `wanted` bytes of a file, or all if it is shorter.

        Args:
            path: of its local copy, which may not exist. size: of the file.
        """
        return self._store.read(self._entry(path, size), max(0, size - wanted), size)

    # -- upkeep

    def tidy(self, first: Callable[[list[str]], object], grace_s: float) -> Tidied:
        """See the function `tidy`. Files outside landings (metadata of published tables) stay."""
        until = time.time() - grace_s
        named, recently = self._named(until)
        gone: list[str] = []
        size = young = 0
        for table in TABLES:
            for entry in self._store.entries(f"{self._prefix}{table}"):
                name = entry.path[len(self._where.root) + 1 :]
                partition = os.path.dirname(name)[len(self._prefix) + len(table) + 1 :]
                if name in named or not partitions.is_partition(partition):
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
        """Return the names of files in current manifests, and in manifests current after `since`
        (s since 1970)."""
        log = self._log
        times = {
            entry.path: entry.changed_s
            for entry in self._store.entries(log.name(0, 0).rpartition("/")[0])
        }
        at = 0
        # An entry that the listing lacks is newer than `since`.
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
    """Replace a file atomically: concurrent readers see the old or the new text."""
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
