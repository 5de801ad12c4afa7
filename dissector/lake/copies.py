"""Copies of files of a lake in a store, in the folder of it (`mirror`): used, held, and trimmed.

What is used has the time of its last use. A task holds a file of its own while it runs, as old as
the task: what was used since the oldest of them began stays.
"""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dissector import limits
from dissector.lake import places
from dissector.lake.locks import exclusive_lock, hold, is_held
from dissector.lake.manifest import Manifest, PartFile
from dissector.schemas import TABLES

_TASKS: Final = "_tasks"
# A file of a lake by its name from there on, and what its manifest says of it.
Copy = tuple[str, PartFile]


def copies_of(capture: Manifest) -> Iterator[Copy]:
    """The files of a capture."""
    return ((places.part_name(capture, part), part) for part in capture.files)


def is_used(path: Path, size: int) -> bool:
    """Whether a file is there; it is then one that was used now."""
    try:
        if path.stat().st_size != size:
            return False
        os.utime(path)
    except OSError:
        return False
    return True


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """What the body fetches, or finds, stays while it runs, whoever trims; then it is done here."""
    lock = None
    while lock is None:  # another task may take it for one that was left
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
    """Remove those copies that were not used longest, and not by tasks that run, beyond a bound, or
    half of the disk that is left for them; nothing if somebody reads the lake here."""
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
    """When the oldest task that runs began."""
    began_ns = math.inf
    for mark in (folder / _TASKS).glob("*"):
        with suppress(FileNotFoundError):
            if is_held(mark):
                began_ns = min(began_ns, mark.stat().st_mtime_ns)
            else:  # its task was killed
                mark.unlink()
    return began_ns
