"""The lock of a lake: readers share it, whoever installs or removes captures has it alone."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "_lock"


@contextmanager
def shared_lock(lake: Path) -> Iterator[None]:
    """Hold the lake against changes while reading; a lake that cannot be written needs no lock."""
    descriptor = _open_lock(lake, must_write=False)
    if descriptor is None:
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(lake: Path) -> Iterator[None]:
    """Hold the lake alone, waiting until nobody reads or changes it."""
    descriptor = _open_lock(lake, must_write=True)
    assert descriptor is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock_if_free(lake: Path) -> Iterator[bool]:
    """Hold the lake alone if nobody reads or changes it just now; gives whether it is so."""
    descriptor = _open_lock(lake, must_write=True)
    assert descriptor is not None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = True
    except BlockingIOError:
        is_ours = False
    try:
        yield is_ours
    finally:
        os.close(descriptor)


def hold(path: Path) -> int | None:
    """Create a file and lock it for the life of this process.

    Returns:
        The descriptor; closing it, or the end of the process, gives the lock back. None if somebody
        removed the file before it was locked.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except FileNotFoundError:
        pass
    os.close(descriptor)
    return None


@contextmanager
def left_behind(path: Path) -> Iterator[bool]:
    """Whether nobody holds the lock that `hold` takes; nobody gets it while the body runs.

    Where we must not look, somebody may hold it. Without the file there is nothing to hold.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError) as problem:
        yield isinstance(problem, FileNotFoundError)
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        yield is_free
    finally:
        os.close(descriptor)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock that `hold` took, or may, where we must not look."""
    with left_behind(path) as is_free:
        return not is_free


def _open_lock(lake: Path, must_write: bool) -> int | None:
    path = lake / LOCK_FILE
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
    except OSError as error:
        if must_write or error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
