"""Local copies of a stored lake's files, in its folder (`mirror`): marks their use and trims them.

A copy's mtime is the time of its last use. Each running task locks a file of its own, whose mtime
is the start of the task; copies used since the oldest running task started are not deleted.
"""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dissector import limits
from dissector.lake import partitions
from dissector.lake.locks import exclusive_lock, hold, is_held
from dissector.lake.manifest import Manifest, PartFile
from dissector.schemas import TABLES

_TASKS: Final = "_tasks"
# Name of a file relative to the lake, and its entry in the manifest.
Copy = tuple[str, PartFile]


def copies_of(capture: Manifest) -> Iterator[Copy]:
    """Return the names and manifest entries of a capture's files."""
    return ((partitions.part_name(capture, part), part) for part in capture.files)


def is_used(path: Path, size: int) -> bool:
    """Whether a file exists with this size; if so, set its mtime to now."""
    try:
        if path.stat().st_size != size:
            return False
        os.utime(path)
    except OSError:
        return False
    return True


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep copies that the body fetches or uses from being trimmed; trim when the body ends."""
    lock = None
    while lock is None:  # another task may remove the file before it is locked
        mark = folder / _TASKS / os.urandom(6).hex()
        mark.parent.mkdir(exist_ok=True)
        lock = hold(mark)
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)
        os.close(lock)
    trim(folder)


def trim(folder: Path) -> None:
    """Delete the least recently used copies that no running task uses, down to STORED_LAKE_BYTES or
    half of the disk space available to them. Does nothing while a process reads the lake here."""
    with exclusive_lock(folder, may_wait=False) as is_ours:
        if not is_ours:
            return
        used_ns = _oldest_task_ns(folder)
        files = []
        for table in TABLES:
            for path in (folder / table).rglob("*.parquet"):
                status = path.stat()
                files.append((status.st_mtime_ns, status.st_size, path))
        size = sum(each for _, each, _ in files)
        bound = min(limits.STORED_LAKE_BYTES, (shutil.disk_usage(folder).free + size) // 2)
        for changed_ns, each, path in sorted(files):
            if size <= bound or changed_ns >= used_ns:
                return
            path.unlink()
            size -= each


def _oldest_task_ns(folder: Path) -> float:
    """Return the start of the oldest running task, ns since 1970; infinity if none runs."""
    began_ns = math.inf
    for mark in (folder / _TASKS).glob("*"):
        with suppress(FileNotFoundError):
            if is_held(mark):
                began_ns = min(began_ns, mark.stat().st_mtime_ns)
            else:  # its task was killed
                mark.unlink()
    return began_ns
