"""Serve byte ranges of a stored lake's files to DuckDB, without fetching whole files.

DuckDB selects columns, row groups and pages, merges near ranges, and caches what it read. A file's
name is its address. The first read of a file is of its end, the footer, and fixes the version of
all later reads. A file no longer than that read is fetched whole, as all files are for other
readers.
"""

import errno
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock, local
from typing import Any, Final

from fsspec import AbstractFileSystem

from dissector import limits
from dissector.lake.copies import Copy, is_used
from dissector.lake.fetching import Fetching, count, fetch_one, fetched, problem_of
from dissector.lake.locks import shared_lock
from dissector.storage import progress
from dissector.storage.store import Entry, Store

_PATTERN: Final = re.compile(r"[\[*?]")
# Constant mtime, as no file in a store is overwritten; without one DuckDB would not cache.
_ALWAYS: Final = datetime(2000, 1, 1, tzinfo=UTC)


class Ranges:
    """Reads ranges of one lake's files; thread-safe.

    Args:
        shown: the address of the lake. folder: of its copies. entry: returns a file's store entry
            from the path of its copy and its size.
    """

    def __init__(
        self, store: Store, shown: str, folder: Path, entry: Callable[[Path, int], Entry]
    ) -> None:
        self._store = store
        self._shown = shown
        self._folder = folder
        self._entry = entry
        self._files: dict[str, Fetching] = {}
        self._versions: dict[str, Entry] = {}
        self._ends: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()
        self._problem = ""
        self._reports_progress = False

    def names(self, wanted: Iterable[Copy]) -> list[str]:
        """Register files; return paths of those on this machine, addresses of the others."""
        names: list[str] = []
        with shared_lock(self._folder):  # prevents trimming
            for name, part in wanted:
                copy = self._folder / name
                names.append(str(copy))
                if not is_used(copy, part.bytes):
                    entry = self._entry(copy, part.bytes)
                    # DuckDB would expand a name with these characters as a pattern.
                    names[-1] = _PATTERN.sub(lambda odd: f"%{ord(odd[0]):X}", entry.path)
                    self._files[names[-1]] = Fetching(copy, entry, part.sha256)
        of = sum(self.size(name) for name in names if name in self._files)
        count(self._folder, 0, of=of)
        return names

    def filesystem(self) -> AbstractFileSystem:
        """Return the fsspec file system that DuckDB reads them through."""
        return _Files(self)

    def problem(self) -> str:
        """Return and clear the first read error since the last call; empty if there was none."""
        problem, self._problem = self._problem, ""
        return problem

    @contextmanager
    def told(self) -> Iterator[None]:
        """Report the bytes read to the progress listener while the body runs."""
        self._reports_progress = True
        try:
            yield
        finally:
            self._reports_progress = False
            total = fetched(self._folder).of
            progress.tell(total, total, self._shown)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes.

        Raises:
            FileNotFoundError: the file is not registered.
        """
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "it is no file of the lake", path)
        return self._files[path].entry.size

    def read(self, path: str, start: int, end: int) -> bytes:
        """Read the bytes [start, end) of a file; end is at most its size.

        Raises:
            OSError: they cannot be read; `problem` returns the reason.
        """
        file = self._files[path]
        end_at = max(0, file.entry.size - limits.FOOTER_BYTES)
        try:
            is_known = path in self._versions or not end_at
            last = self._end_of(path) if end > end_at or not is_known else b""
            parts = []
            while start < min(end, end_at):
                until = min(end, end_at, start + limits.STORE_RANGE_BYTES)
                parts.append(self._store.read(self._versions[path], start, until))
                self._note(until - start)
                start = until
            if end > end_at:
                parts.append(last[start - end_at : end - end_at])
        except OSError as error:
            self._problem = self._problem or self._message(file.entry, error)
            raise
        if self._reports_progress:
            so_far = fetched(self._folder)
            progress.tell(min(so_far.bytes, so_far.of - 1), so_far.of, self._shown)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _end_of(self, path: str) -> bytes:
        """Read the last FOOTER_BYTES of a file, which fixes its version."""
        if (data := self._ends.get(path)) is not None:
            return data
        file = self._files[path]
        size = file.entry.size
        if size <= limits.FOOTER_BYTES:
            fetch_one(self._store, file)
            if file.problem:
                raise _Damaged(errno.ESTALE, file.problem)
            data = file.path.read_bytes()
        else:
            entry = self._versions.get(path, file.entry)
            start = size - limits.FOOTER_BYTES
            self._versions[path], data = self._store.look(entry, start, size)
        self._note(len(data))
        with self._lock:
            self._ends[path] = data
            while len(self._ends) > limits.STORE_ENDS:
                self._ends.popitem(last=False)
        return data

    def _note(self, size: int) -> None:
        with self._lock:
            count(self._folder, size, requests=1)

    def _message(self, entry: Entry, error: OSError) -> str:
        if isinstance(error, _Damaged):
            return str(error.strerror)
        return problem_of(entry, error) or f"cannot read {self._shown}: {error.strerror or error}"


class _Damaged(OSError):
    """A file that differs from its manifest; strerror is the whole message."""


class _OpenFile:
    """An open file of DuckDB; each thread has its own position."""

    def __init__(self, ranges: Ranges, path: str, size: int) -> None:
        self._ranges, self._path, self._size = ranges, path, size
        self._at = local()

    def seek(self, offset: int, _whence: int = 0) -> int:
        """Set the position, counted from the start."""
        self._at.position = offset
        return offset

    def tell(self) -> int:
        """Return the position."""
        return int(self._at.position)

    def read(self, size: int) -> bytes:
        """Read `size` bytes, fewer at the end of the file."""
        start = self._at.position
        end = self._at.position = min(start + size, self._size)
        return self._ranges.read(self._path, start, end) if start < end else b""

    def close(self) -> None:
        """Do nothing: there is no resource to release."""


class _Files(AbstractFileSystem):  # type: ignore[misc]
    """The fsspec methods that DuckDB calls."""

    protocol = ("s3", "gs", "az", "abfss", "hdfs")
    cachable = False

    def __init__(self, ranges: Ranges) -> None:
        super().__init__()
        self._ranges = ranges

    def open(self, path: str, mode: str = "rb", **_: Any) -> _OpenFile:
        """Open a file for reading."""
        if mode != "rb":
            raise PermissionError(errno.EROFS, "files of a lake are read, nothing else", path)
        return _OpenFile(self._ranges, path, self._ranges.size(path))

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return the name itself: it is never a pattern."""
        return [path]

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self._ranges.size(path)

    def modified(self, path: str) -> datetime:
        """Return the constant mtime."""
        return _ALWAYS
