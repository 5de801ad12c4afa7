"""The file locks of a lake.

`_lock` protects files against removal: readers hold it shared while they read, writers that add a
capture hold it shared while they add; a writer that removes or replaces captures holds it
exclusively. `_lock_commit` admits one adding writer at a time. A writer locks it before `_lock`,
and never while it holds `_lock` exclusively: this excludes deadlock, and lets a removing writer
lock `_lock` between two adding ones.
"""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "_lock"
COMMIT_LOCK_FILE: Final = "_lock_commit"


@contextmanager
def shared_lock(lake: Path) -> Iterator[None]:
    """Hold the shared lock for reading; a lake that this process cannot write needs no lock."""
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
def exclusive_lock(lake: Path, *, may_wait: bool = True) -> Iterator[bool]:
    """Hold the exclusive lock; yields whether it is held.

    Args:
        may_wait: wait for readers and writers; else yield False if there are any.
    """
    descriptor = _open_lock(lake, must_write=True)
    assert descriptor is not None
    with ExitStack() as stack:
        stack.callback(os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if may_wait else fcntl.LOCK_NB))
            is_ours = True
        except BlockingIOError:
            is_ours = False
        yield is_ours


@contextmanager
def adding_lock(lake: Path) -> Iterator[None]:
    """Hold the lock for adding; waits for writers, not for readers."""
    with _adding(lake, 0) as is_ours:
        assert is_ours
        yield


@contextmanager
def adding_lock_if_free(lake: Path) -> Iterator[bool]:
    """Hold the lock for adding unless a writer holds it; yields whether it is held."""
    with _adding(lake, fcntl.LOCK_NB) as is_ours:
        yield is_ours


@contextmanager
def _adding(lake: Path, flags: int) -> Iterator[bool]:
    with ExitStack() as stack:
        is_ours = True
        for name, kind in ((COMMIT_LOCK_FILE, fcntl.LOCK_EX), (LOCK_FILE, fcntl.LOCK_SH)):
            descriptor = os.open(lake / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o660)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, kind | flags)
            except BlockingIOError:
                is_ours = False
                break
        yield is_ours


def hold(path: Path) -> int | None:
    """Create a file and lock it for the life of this process.

    Returns:
        The descriptor; closing it, or the end of the process, releases the lock. None if another
        process removed the file before it was locked.
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
    """Yield whether no process holds the lock of `hold`; if so, no process gets it in the body.

    Yields False if we lack permission to open the file, True if the file does not exist.
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
    """Whether a process holds the lock of `hold`; also true if we lack permission to test it."""
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
