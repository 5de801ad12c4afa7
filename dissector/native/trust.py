"""Folders and files that nobody else can write: what machine code and launchers are loaded from.

Whoever can write a file that we run can run anything as us. So a folder is used only if it, and
every folder on the way to it from the root, belongs to this user or to root and can be written by
nobody else, and a file only if the same is true of it and it has one name. A folder such as /tmp,
where everybody may write but nobody may rename what is another's (the sticky bit), may be on the
way, never the end of it. A group that can write is somebody else, also a group with one member: who
is in a group is not ours to know, and it changes. (Rights that an access control list gives show
in the group's bits, so they count too.)

Each step of the way is opened below the descriptor of the step before, links are read by hand, and
what was opened is what is looked at: there is no moment between looking and using in which another
could put something else there. What is made here gets a random name first, mode 0600 or 0700.
"""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MAX_LINKS: Final = 40  # as the kernel has it
_STEP: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class DistrustedError(Exception):
    """Somebody else could have written it; the text says which folder or file, and the remedy."""


def private_folder_of_user() -> Path:
    """The folder below the temporary folder that stands in for a home that cannot be used."""
    base = os.environ.get("TMPDIR") or "/tmp"
    return Path(base) / f"pulsar-dissector-{os.geteuid()}"


def open_folder(path: Path, *, make: bool = False) -> int:
    """A descriptor of a folder that can be trusted; the caller closes it.

    Args:
        make: folders that are missing are made, for this user alone.

    Raises:
        DistrustedError: it, or a folder on the way, may be written by others.
        OSError: it is not there, or is no folder.
    """
    steps = _Steps()
    try:
        steps.walk(path, make)
        return os.dup(steps.descriptors[-1])
    finally:
        steps.close()


def open_below(folder: int, name: str, path: Path, *, make: bool = False) -> int:
    """The same for a folder in one that was opened before; path: of it, for messages."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
    return _checked_folder(_open(folder, name, _STEP, path), path, may_be_shared=False)


def read_file(folder: int, name: str, path: Path, *, may_have_links: bool = False) -> bytes:
    """The content of a file in a folder that was opened before; path: of it, for messages.

    Args:
        may_have_links: the file may have more names, as installers give one that keep a copy.

    Raises:
        DistrustedError: somebody else may have written it.
        OSError: it is not there, or cannot be read.
    """
    descriptor = _open(folder, name, _READ, path)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DistrustedError(f"{path} is no plain file: remove it")
        _check_owner(status, path)
        if status.st_mode & _OTHERS_WRITE:
            raise DistrustedError(f"{path} {_who_writes(status)}: remove it")
        if status.st_nlink != 1 and not may_have_links:
            raise DistrustedError(f"{path} has {status.st_nlink} names (hard links): remove it")
        return file.read()


def write_file(folder: int, name: str, data: bytes, mode: int = 0o600) -> None:
    """Put a file into a folder that was opened before, at once or not at all.

    Raises:
        OSError: it could not be written; nothing is left of it.
    """
    fresh = f".{name[:100]}.{os.urandom(8).hex()}"
    descriptor = os.open(fresh, _NEW, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(fresh, dir_fd=folder)
        raise


@contextmanager
def folder(path: Path, *, make: bool = False) -> Iterator[int]:
    """`open_folder` for the time of a block."""
    descriptor = open_folder(path, make=make)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Steps:
    """The way from the root to a folder: a descriptor for each step, links resolved."""

    def __init__(self) -> None:
        self.descriptors: list[int] = []
        self._names: list[str] = []
        self._links = 0

    def close(self) -> None:
        for descriptor in self.descriptors:
            os.close(descriptor)

    def walk(self, path: Path, make: bool) -> None:
        self._begin()
        waiting = [*reversed(path.absolute().parts[1:])]
        while waiting:
            name = waiting.pop()
            if name == "..":
                self._back()
                continue
            target = self._link(name)
            if target is None:
                self._step(name, make)
                continue
            if target.startswith("/"):
                self.close()
                self._begin()
            waiting.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
        status = os.fstat(self.descriptors[-1])
        if status.st_mode & _OTHERS_WRITE:
            raise _shared(status, self._path)

    @property
    def _path(self) -> Path:
        return Path("/", *self._names)

    def _begin(self) -> None:
        self._names = []
        self.descriptors = []
        self.descriptors.append(_checked_folder(os.open("/", _STEP), Path("/"), True))

    def _back(self) -> None:
        if self._names:
            self._names.pop()
            os.close(self.descriptors.pop())

    def _link(self, name: str) -> str | None:
        """Where a step leads if it is a link, None if it is none or is not there."""
        at = self.descriptors[-1]
        try:
            status = os.stat(name, dir_fd=at, follow_symlinks=False)
        except FileNotFoundError:
            return None
        if not stat.S_ISLNK(status.st_mode):
            return None
        _check_owner(status, self._path / name)
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(self._path / name))
        return os.readlink(name, dir_fd=at)

    def _step(self, name: str, make: bool) -> None:
        at, path = self.descriptors[-1], self._path / name
        try:
            descriptor = _open(at, name, _STEP, path)
        except FileNotFoundError:
            if not make:
                raise
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
            descriptor = _open(at, name, _STEP, path)
        self.descriptors.append(_checked_folder(descriptor, path, may_be_shared=True))
        self._names.append(name)


def _open(at: int, name: str, flags: int, path: Path) -> int:
    try:
        return os.open(name, flags, dir_fd=at)
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _is_link(at, name)):
            raise DistrustedError(f"{path} is a link: remove it") from None
        raise OSError(error.errno, error.strerror, str(path)) from None


def _is_link(at: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _checked_folder(descriptor: int, path: Path, may_be_shared: bool) -> int:
    """The same descriptor, of a folder that others cannot change; sticky ones may be on the way."""
    try:
        status = os.fstat(descriptor)
        _check_owner(status, path)
        is_sticky = bool(status.st_mode & stat.S_ISVTX)
        if status.st_mode & _OTHERS_WRITE and not (may_be_shared and is_sticky):
            raise _shared(status, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _shared(status: os.stat_result, path: Path) -> DistrustedError:
    return DistrustedError(f"{path} {_who_writes(status)}: run chmod go-w {path}")


def _who_writes(status: os.stat_result) -> str:
    who = "everybody" if status.st_mode & stat.S_IWOTH else "its group"
    return f"can be written by {who} (mode {stat.S_IMODE(status.st_mode):04o})"


def _check_owner(status: os.stat_result, path: Path) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise DistrustedError(
            f"{path} belongs to user {status.st_uid}, not to {os.geteuid()} who runs this"
        )
