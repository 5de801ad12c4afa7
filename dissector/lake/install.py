"""Install a capture in a lake atomically, also across crashes.

    staging   LAKE/_tmp/<name>.<unique>          tables are being written; the writer holds a lock
                                                 on a file inside
    ready     LAKE/_tmp/<id>.<unique>.ready      complete and on disk, with the manifest and the
                                                 list of captures that it replaces
    installed LAKE/_manifest/<id>.json           readers see it; tables are in their `partitions`

One rename turns staging into ready. Installing a ready stage: remove the manifests of the replaced
captures, replace the table folders, rename the manifest into place, delete the rest. Each step is
idempotent: the next process that opens the lake after a crash repeats them all (`recover`), so no
ready stage is lost and no reader sees a partial state. Removing captures is a ready stage without a
manifest, which replaces them by nothing.

A capture that replaces nothing is installed while others read: files that they opened stay. A stage
that removes files becomes ready only under the exclusive lock, when nobody reads.
"""

import errno
import json
import os
import secrets
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dissector.errors import DissectorError, OutputError
from dissector.lake import locks, mirror, partitions
from dissector.lake import manifest as lake_manifest
from dissector.lake.manifest import Manifest
from dissector.lake.manifests import Manifests, mark_version
from dissector.lake.partitions import remove_if_empty
from dissector.schemas import TABLES

STAGE_FOLDER: Final = "_tmp"
# Cache of computed rows (`lake.cache`); may be deleted at any time.
SUMS_FOLDER: Final = "_sums"
# All folders of a lake.
FOLDERS: Final = (*TABLES, STAGE_FOLDER, SUMS_FOLDER, lake_manifest.MANIFEST_FOLDER)
_REMOVAL: Final = "rm"
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)
_READY: Final = ".ready"
WRITER_LOCK: Final = "writer.lock"
MANIFEST: Final = "manifest.json"
_REPLACES: Final = "replaces.json"
_TEMPORARY: Final = "_temporary"
# Upper limit of file modes; the umask may narrow it. Rows contain what was sent on the wire.
_MOST_RIGHTS: Final = 0o640


def begin_temporary(lake: Path) -> None:
    """Create a lake that is deleted when the command ends. Its files are not synced, and not
    compressed, as most columns are read at once and many times."""
    lake.mkdir()
    (lake / _TEMPORARY).touch()


def is_temporary(lake: Path) -> bool:
    """Whether a lake is deleted when the command ends."""
    return os.path.exists(lake / _TEMPORARY)


@contextmanager
def writing_to(lake: Path) -> Iterator[None]:
    """Convert the system's OSError to OutputError: the lake could not be written."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        next_step = "nothing of this capture was kept, make room or choose another folder"
        if mirror.of(lake) and error.errno == errno.ENXIO:
            next_step = "make it, or name another"
        elif mirror.of(lake):
            next_step = "run it again: what is in the lake by then stays as it is"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            next_step = "what is in it stays as it is; let this user write there, or name another"
        shown = mirror.shown(lake)
        raise OutputError(f"cannot write to the lake {shown}: {reason}; {next_step}") from error


class Stage:
    """A folder for one capture that is being written.

    It needs no lock of the lake: a process deletes an abandoned stage only while it holds the
    stage's own lock, and a stage that is deleted before its writer locks it is created again.
    """

    def __init__(self, lake: Path, name: str) -> None:
        self.lake = lake
        self._ready_name = _REMOVAL
        self._partition = ""
        self._uploaded: list[str] = []
        self._manifest: Manifest | None = None
        self._lock: int | None = None
        while self._lock is None:
            self.folder = _new_folder(lake / STAGE_FOLDER, name)
            self._lock = locks.hold(self.folder / WRITER_LOCK)

    def describe(self, manifest: Manifest | None) -> None:
        """Write the manifest and sync the stage to disk; see `prepare`."""
        if manifest is not None:
            self._ready_name = manifest.capture_id
            self._partition = partitions.partition_of(manifest)
            (self.folder / MANIFEST).write_text(lake_manifest.to_json(manifest), "utf-8")
        _sync_tree(self.lake, self.folder)

    def prepare(self, manifest: Manifest | None) -> None:
        """Sync the stage to disk, or upload it to the store. This is slow: call it without holding
        a lock of the lake.

        Args:
            manifest: None if captures are removed without a replacement.
        """
        stored = mirror.of(self.lake)
        if stored is None:
            self.describe(manifest)
        elif manifest is not None:
            self._manifest = manifest.of_attempt(secrets.token_hex(6))
            self._uploaded = stored.names(self._manifest)
            stored.upload(self.folder, self._manifest)

    def install(self, replaces: Iterable[str]) -> bool:
        """Install a prepared stage, see the function `install`.

        Args:
            replaces: partitions of the captures that it replaces.

        Raises:
            Overtaken: the lake is in a store, and its log has grown since the last sync.
        """
        stored = mirror.of(self.lake)
        if stored is None:
            return install(self.lake, self.make_ready(replaces))
        manifest = self._manifest
        if manifest is not None and stored.has(manifest):
            return False
        uploaded, self._uploaded = self._uploaded, []  # even if it fails, a log entry may name them
        try:
            stored.commit(manifest, set(map(partitions.id_of, replaces)), self.folder.name)
        except mirror.Overtaken:
            self._uploaded = uploaded
            raise
        if manifest is not None:
            stored.keep(self.folder, manifest)
        return True

    def make_ready(self, replaces: Iterable[str]) -> Path:
        """Turn a prepared stage into a ready one; this or any other process will install it.

        Args:
            replaces: partitions of the captures that it replaces.

        Returns:
            The ready folder.
        """
        name = self._ready_name
        path = self.folder / _REPLACES
        path.write_text(json.dumps(sorted(set(replaces) - {self._partition})), "utf-8")
        _sync(self.lake, path, os.O_RDONLY | os.O_NOFOLLOW, _MOST_RIGHTS)
        _sync_folder(self.lake, self.folder)
        unique = self.folder.name.rpartition(".")[2]
        ready = self.folder.with_name(f"{name}.{unique}{_READY}")
        self.folder.rename(ready)
        _sync_folder(self.lake, ready.parent)
        self.folder = ready
        return ready

    def discard(self) -> None:
        """Delete the stage unless it is ready, and release its lock."""
        if self._lock is None:
            return
        if not self.folder.name.endswith(_READY):
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = None
        remove_if_empty(self.lake / STAGE_FOLDER)
        if self._uploaded and (stored := mirror.of(self.lake)):
            stored.remove(self._uploaded)


def needs_recovery(lake: Path) -> bool:
    """Whether there are ready or abandoned stages."""
    folder = lake / STAGE_FOLDER
    return folder.is_dir() and any(
        stage.name.endswith(_READY) or not locks.is_held(stage / WRITER_LOCK)
        for stage in stages(lake)
    )


def stages(lake: Path) -> list[Path]:
    """Return all stages: the directories in `_tmp`, symbolic links excluded."""
    folder = lake / STAGE_FOLDER
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in sorted(names)]


def ready_stages(lake: Path) -> list[Path]:
    """Return the ready stages; some may be in the middle of their installation."""
    return [stage for stage in stages(lake) if stage.name.endswith(_READY)]


def ready_ids(lake: Path) -> set[str]:
    """Return the ids under which ready stages will be installed."""
    return {_id_of(stage) for stage in ready_stages(lake)}


def recover(lake: Path, *, is_alone: bool) -> bool:
    """Install ready stages and delete abandoned ones. Ready stages for a store stay (`delivery`).

    Args:
        is_alone: the caller holds the exclusive lock; else the lock for adding.

    Returns:
        False if a stage that removes files needs the exclusive lock and was not installed.
    """
    is_all = True
    delete_abandoned(lake)
    for stage in ready_stages(lake) if mirror.of(lake) is None else ():
        if (replaced := replaced_by(stage)) is not None:
            if is_alone or not removes_files(lake, stage, _id_of(stage), replaced):
                install(lake, stage)
            else:
                is_all = False
    remove_if_empty(lake / STAGE_FOLDER)
    return is_all


def finish_interrupted(lake: Path) -> None:
    """Recover after killed runs; waits for readers only if files are to be removed."""
    with locks.adding_lock(lake):
        is_all = recover(lake, is_alone=False)
    if not is_all:
        with locks.exclusive_lock(lake):
            recover(lake, is_alone=True)


def delete_abandoned(lake: Path) -> None:
    """Delete abandoned stages; needs no lock of the lake. Ready stages stay: one may be partly
    installed."""
    for stage in stages(lake):
        lock = stage / WRITER_LOCK
        was_locked = lock.exists()  # tested first: a writer may create it meanwhile
        if stage.name.endswith(_READY):
            continue
        with locks.left_behind(lock) as is_dead:
            if is_dead and was_locked:
                shutil.rmtree(stage, ignore_errors=True)
            elif is_dead:
                remove_if_empty(stage)  # new, or its writer was killed before it locked the stage


def removes_files(lake: Path, stage: Path, capture: str, replaces: Collection[str]) -> bool:
    """Whether installing a stage removes files that a process may be reading.

    Args:
        replaces: partitions of the replaced captures.
    """
    if mirror.of(lake):
        return False  # files in a store stay for a while
    target = lake / lake_manifest.MANIFEST_FOLDER / f"{capture}.json"
    staged = stage / MANIFEST
    is_changed = staged.is_file() and target.is_file() and not _is_there(lake, staged, target)
    return bool(replaces) or is_changed


def _id_of(ready: Path) -> str:
    return ready.name.removesuffix(_READY).rpartition(".")[0]


def install(lake: Path, ready: Path) -> bool:
    """Do or repeat all steps from ready to installed. The caller holds the exclusive lock, or the
    lock for adding if the stage removes no files.

    Returns:
        False if the lake had the same capture already; then the stage is deleted.
    """
    capture = _id_of(ready)
    staged = ready / MANIFEST
    manifests = lake / lake_manifest.MANIFEST_FOLDER
    manifests.mkdir(exist_ok=True)
    target = manifests / f"{capture}.json"
    replaced = replaced_by(ready) or ()
    names = {*map(partitions.id_of, replaced)} - {capture}
    if staged.is_file():
        manifest = manifest_at(staged)
        partition = partitions.partition_of(manifest)
        if _is_there(lake, staged, target) or is_in_group(lake, manifest):
            delete(ready)
            return False
        mark_version(lake)
        _delete_manifests(lake, (capture, *names))
        for table in filter(lambda name: (ready / name).is_dir(), TABLES):
            for folder in partitions.put(lake, ready / table, table, partition):
                _sync_folder(lake, folder)
        os.replace(staged, target)
        _sync_folder(lake, manifests)
    else:
        _delete_manifests(lake, names)
    partitions.delete(lake, (*partitions.partitions_without_day(capture), *replaced))
    delete(ready)
    return True


def remove_captures(lake: Path, gone: Collection[str]) -> None:
    """Remove captures from the lake, all or none; the caller holds the exclusive lock.

    If this process is killed, the next command that opens the lake completes the removal.

    Args:
        gone: partitions of the captures.
    """
    try:
        stage = Stage(lake, _REMOVAL)
        try:
            stage.prepare(None)
            stage.install(gone)
        finally:
            stage.discard()
    except OSError as error:
        if error.errno not in _NO_ROOM or mirror.of(lake):
            raise
        # The disk is too full for a stage, probably the reason for the removal: remove directly.
        _delete_manifests(lake, map(partitions.id_of, gone))
        partitions.delete(lake, gone)


def _delete_manifests(lake: Path, captures: Iterable[str]) -> None:
    for capture in captures:
        (lake / lake_manifest.MANIFEST_FOLDER / f"{capture}.json").unlink(missing_ok=True)
    _sync_folder(lake, lake / lake_manifest.MANIFEST_FOLDER)


def refuse_links(lake: Path, error: type[DissectorError]) -> None:
    """Refuse a lake with symbolic links: a user who can create one there would choose what we
    delete.

    Raises:
        error: one of its folders, or its lock, is a link.
    """
    for name in (*FOLDERS, locks.LOCK_FILE, locks.COMMIT_LOCK_FILE):
        path = os.path.join(lake, name)
        if os.path.islink(path):
            raise error(
                f"{path} is a symbolic link, which is not followed: remove it; a lake may be "
                "linked to as a whole, not in parts"
            )


def replaced_by(ready: Path) -> tuple[str, ...] | None:
    """Return the partitions of the captures that a ready stage replaces.

    None if its list is damaged: then it cannot be installed. Older programs listed ids.
    """
    path = ready / _REPLACES
    if not path.is_file():
        return ()
    try:
        names = json.loads(path.read_text("utf-8"))
    except ValueError:
        return None
    if not isinstance(names, list):
        return None
    replaced: list[str] = []
    for name in names:
        if partitions.is_partition(name):
            replaced.append(name)
        elif lake_manifest.is_plain_name(name):
            replaced += partitions.partitions_without_day(name)
        else:
            return None
    return tuple(replaced)


def _is_there(lake: Path, staged: Path, target: Path) -> bool:
    """Whether the lake has an equal manifest and all of its files at their size."""
    if not target.is_file() or target.read_bytes() != staged.read_bytes():
        return False
    return has_all_files(lake, manifest_at(staged))


def has_all_files(lake: Path, manifest: Manifest) -> bool:
    """Whether a lake has all files of a capture at their size; always true for a store, whose
    files outlive their manifests."""
    if mirror.of(lake):
        return True
    for part in manifest.files:
        path = partitions.part_path(lake, manifest, part)
        if not path.is_file() or path.stat().st_size != part.bytes:
            return False
    return True


def is_in_group(lake: Path, manifest: Manifest) -> bool:
    """Whether a compacted group of the same day contains a capture. Landing does not compare a
    rotation of a repeated replay, so this does."""
    if manifest.replaces:
        return False
    name = f'"capture_id": "{manifest.capture_id}"'.encode()
    if mirror.of(lake) is None:
        groups = partitions.groups_of_day(lake, manifest)
    else:  # files of a store may not be here
        groups = Manifests(lake).names(lake_manifest.GROUP_PREFIX)
    for group in groups:
        path = lake / lake_manifest.MANIFEST_FOLDER / f"{group}.json"
        if path.is_file() and name in path.read_bytes():
            return True
    return False


def manifest_at(staged: Path) -> Manifest:
    return lake_manifest.from_json(staged.read_text("utf-8"), str(staged))


def delete(ready: Path) -> None:
    """Delete an installed stage; the list of replaced captures last, so that it can be repeated."""
    for entry in ready.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != _REPLACES:
            entry.unlink()
    shutil.rmtree(ready)
    remove_if_empty(ready.parent)


def _sync_tree(lake: Path, folder: Path) -> None:
    for inner, _, names in os.walk(folder, onerror=_raise):
        for name in names:
            _sync(lake, os.path.join(inner, name), os.O_RDONLY | os.O_NOFOLLOW, _MOST_RIGHTS)
        _sync_folder(lake, inner)


def _raise(error: OSError) -> None:
    raise error


def _sync_folder(lake: Path, folder: str | Path) -> None:
    _sync(lake, folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(lake: Path, path: str | Path, flags: int, most_rights: int = 0o7777) -> None:
    """Limit the mode of a file or folder to `most_rights`, and sync it to disk."""
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
        if mode & ~most_rights:
            os.fchmod(descriptor, mode & most_rights)
        if not is_temporary(lake):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _new_folder(parent: Path, name: str) -> Path:
    """Create a folder `name.<unique>`; retries if another writer removes the empty parent."""
    while True:
        parent.mkdir(parents=True, exist_ok=True)
        folder = parent / f"{name}.{secrets.token_hex(6)}"
        try:
            folder.mkdir(0o750)
        except (FileNotFoundError, FileExistsError):
            continue
        return folder
