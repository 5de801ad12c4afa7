"""Files of a lake in a store on their way to this machine: many at once, each whole or absent."""

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

_TOLD_SECONDS: Final = 0.2


@dataclass
class Fetching:
    """A file that is wanted at a path: how much of it came, or why it cannot be had."""

    path: Path
    entry: Entry
    sha256: str
    bytes: int = 0
    problem: str = ""


class Fetched(NamedTuple):
    """bytes: of files of a lake. of, requests: of files that were read in ranges, their size, and
    how often the store was asked."""

    bytes: int = 0
    of: int = 0
    requests: int = 0


_fetched: Final[dict[Path, Fetched]] = {}


def fetched(lake: Path) -> Fetched:
    """What this process fetched of a lake in a store. lake: its folder."""
    return _fetched.get(lake, Fetched())


def count(lake: Path, size: int, of: int = 0, requests: int = 0) -> None:
    """Count what was fetched."""
    before = fetched(lake)
    _fetched[lake] = Fetched(before.bytes + size, before.of + of, before.requests + requests)


def fetch_all(store: Store, files: Sequence[Fetching], shown: str) -> None:
    """Fetch files, or say of each why it cannot be had.

    Args:
        shown: the address of the lake.

    Raises:
        OSError: the store does not answer; what is whole by then stays.
    """
    total = sum(file.entry.size for file in files)
    with ThreadPoolExecutor(limits.STORE_REQUESTS) as pool:
        running = {pool.submit(fetch_one, store, file) for file in files}
        left = running
        try:
            while left:
                done, left = wait(left, _TOLD_SECONDS, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                progress.tell(sum(file.bytes for file in files), total, shown)
        finally:
            for future in running:
                future.cancel()
            progress.tell(total, total, shown)


def fetch_one(store: Store, file: Fetching) -> None:
    """Fetch a file, or say why it cannot be had.

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
    """What is wrong with a file of a lake; empty if the store did not give it."""
    if isinstance(error, FileNotFoundError):
        return f"{entry.path} is missing: it was removed meanwhile, run it again"
    if error.errno == errno.ESTALE:
        return f"{entry.path} is not what its manifest says: {error.strerror}"
    return ""
