"""Fetch files of a stored lake to this machine, concurrently; each arrives whole or not at all."""

import errno
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from dissector import limits
from dissector.storage import progress
from dissector.storage.store import Entry, Store

_PROGRESS_SECONDS: Final = 0.2


@dataclass
class Fetching:
    """A file to fetch to a path. bytes: fetched so far. problem: why it failed, else empty."""

    path: Path
    entry: Entry
    sha256: str
    bytes: int = 0
    problem: str = ""


class Fetched(NamedTuple):
    """bytes: fetched of a lake's files. of: total size of the files that are read in ranges.
    requests: number of range requests."""

    bytes: int = 0
    of: int = 0
    requests: int = 0


_fetched: Final[dict[Path, Fetched]] = {}


def fetched(lake: Path) -> Fetched:
    """Return this process's totals for a lake in a store. lake: its mirror folder."""
    return _fetched.get(lake, Fetched())


def count(lake: Path, size: int, of: int = 0, requests: int = 0) -> None:
    """Add to this process's totals for a lake."""
    before = fetched(lake)
    _fetched[lake] = Fetched(before.bytes + size, before.of + of, before.requests + requests)


def fetch_all(store: Store, files: Sequence[Fetching], shown: str) -> None:
    """Fetch files; set `problem` of those that are missing or damaged.

    Args:
        shown: the address of the lake, for progress.

    Raises:
        OSError: the store does not answer; files that are complete by then stay.
    """
    total = sum(file.entry.size for file in files)
    with ThreadPoolExecutor(limits.STORE_REQUESTS) as pool:
        running = {pool.submit(fetch_one, store, file) for file in files}
        left = running
        try:
            while left:
                done, left = wait(left, _PROGRESS_SECONDS, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                progress.tell(sum(file.bytes for file in files), total, shown)
        finally:
            for future in running:
                future.cancel()
            progress.tell(total, total, shown)


def fetch_one(store: Store, file: Fetching) -> None:
    """Fetch a file; set its `problem` if it is missing or damaged.

    Raises:
        OSError: the store does not answer.
    """
    path, entry = file.path, file.entry
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_path = path.with_name(f".{path.name}.{os.urandom(6).hex()}")
    digest = hashlib.sha256()
    try:
        with partial_path.open("xb", buffering=0) as target:
            for start in range(0, entry.size, limits.STORE_RANGE_BYTES):
                end = min(start + limits.STORE_RANGE_BYTES, entry.size)
                data = store.read(entry, start, end)
                digest.update(data)
                target.write(data)
                file.bytes = end
            os.fsync(target.fileno())
        if digest.hexdigest() == file.sha256:
            partial_path.rename(path)
        else:
            file.problem = f"{entry.path} is not what its manifest says: its bytes changed"
    except OSError as error:
        file.problem = problem_of(entry, error)
        if not file.problem:
            raise
    finally:
        partial_path.unlink(missing_ok=True)


def problem_of(entry: Entry, error: OSError) -> str:
    """Describe an error that concerns the file itself; empty if the store did not answer."""
    if isinstance(error, FileNotFoundError):
        return f"{entry.path} is missing: it was removed meanwhile, run it again"
    if error.errno == errno.ESTALE:
        return f"{entry.path} is not what its manifest says: {error.strerror}"
    return ""
