"""Opens folders and files that no other user can write, to load machine code and launchers from.

A user who can write a file that we execute can execute anything as us. So a folder is used only if
it and every folder on its path from the root belong to this user or to root and no other user can
write them; a file, only if the same is true of it and it has one hard link. A folder with the
sticky bit such as /tmp, where others can create but not rename files, may be on the path, but not
at its end. A group with write permission counts as another user, even a group of one member, as
membership changes. (Permissions of an access control list show in the group's bits, so they count.)

Each step of the path is opened relative to the descriptor of the previous step, symbolic links are
resolved by our own code, and checks apply to the opened descriptor. So nothing can be replaced
between check and use. New files and folders get a random name first, and mode 0600 or 0700.
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
    """Another user could have written a folder or file; the text names it and the remedy."""


def private_folder_of_user() -> Path:
    """Return the folder in the temporary folder that replaces a home that cannot be used."""
    base = os.environ.get("TMPDIR") or "/tmp"
    return Path(base) / f"pulsar-dissector-{os.geteuid()}"


def open_folder(path: Path, *, make: bool = False) -> int:
    """Open a trusted folder; return its descriptor, which the caller closes.

    Args:
        make: create missing folders, with mode 0700.

    Raises:
        DistrustedError: other users can write it, or a folder on its path.
        OSError: it is missing, or is no folder.
    """
    steps = _Steps()
    try:
        steps.walk(path, make)
        return os.dup(steps.descriptors[-1])
    finally:
        steps.close()


def open_below(folder: int, name: str, path: Path, *, make: bool = False) -> int:
    """Open a trusted subfolder of an open folder. path: its path, for messages."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
    return _checked_folder(_open(folder, name, _STEP, path), path, may_be_shared=False)


def read_file(folder: int, name: str, path: Path, *, may_have_links: bool = False) -> bytes:
    """Read a file in an open folder. path: its path, for messages.

    Args:
        may_have_links: accept several hard links, which some installers create.

    Raises:
        DistrustedError: another user may have written it.
        OSError: it is missing, or cannot be read.
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
    """Write a file atomically to an open folder.

    Raises:
        OSError: it could not be written; no temporary file remains.
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
    """Context manager around `open_folder`."""
    descriptor = open_folder(path, make=make)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _Steps:
    """A path from the root to a folder: a descriptor for each step, symbolic links resolved."""

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
        """Return the target of a step that is a symbolic link; None if it is no link or missing."""
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
    """Check that other users cannot change the folder (or that it is sticky, if `may_be_shared`);
    return its descriptor."""
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
