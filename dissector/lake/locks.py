"""The locks of a lake.

`_lock` keeps files from being taken away: readers share it for as long as they read, and whoever
adds a capture while it adds; whoever removes or replaces captures has it alone. `_lock_commit` is
for one at a time of those who add. It is taken before `_lock`, and nobody who has `_lock` alone
takes it, so that nobody waits in a circle, and those who remove find a moment between two who add.
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
def exclusive_lock(lake: Path, *, may_wait: bool = True) -> Iterator[bool]:
    """Hold the lake alone, waiting until nobody reads or changes it; gives whether it is held.

    Args:
        may_wait: else it is not held while somebody reads or changes it.
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
    """Hold what adding captures takes, waiting for others who add, or who remove; readers go on."""
    with _adding(lake, 0) as is_ours:
        assert is_ours
        yield


@contextmanager
def adding_lock_if_free(lake: Path) -> Iterator[bool]:
    """The same if nobody adds or removes just now; gives whether it is so."""
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
