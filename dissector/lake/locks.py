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


def hold(path: Path) -> int:
    """Create a file and lock it for the life of this process.

    Returns:
        The descriptor; closing it, or the end of the process, gives the lock back.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def is_held(path: Path) -> bool:
    """Whether some process holds the lock that `hold` took, or may, where we must not look."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except PermissionError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _open_lock(lake: Path, must_write: bool) -> int | None:
    path = lake / LOCK_FILE
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if must_write or error.errno not in (errno.EACCES, errno.EROFS, errno.EPERM):
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
