"""The interface of a store, and its description of a file."""

import errno
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """A file in a store. path: its address. changed_s: seconds since 1970.

    version: unique among versions of the same name; None if unknown.
    """

    path: str
    size: int
    changed_s: float
    version: str | None


def other_size() -> OSError:
    """Return the error of a file whose size differs from its entry."""
    return OSError(errno.ESTALE, "it has another size")


class Store(Protocol):
    """A bucket, a container, or a file system of a cluster.

    Methods raise OSError, FileNotFoundError if the name does not exist; `strerror` is a short
    reason, and quotes no more of a response than its status.
    """

    def entry(self, name: str) -> Entry:
        """Return the entry of a file."""

    def entries(self, folder: str) -> Iterator[Entry]:
        """Yield all files below a folder (no trailing slash; empty for all), unordered."""

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        """Read bytes [start, end) of a file, in the entry's version if it has one; end is at most
        the size."""

    def look(self, entry: Entry, start: int, end: int) -> tuple[Entry, bytes]:
        """Read as `read`; return the entry with the version read, and the bytes. errno is ESTALE if
        the file's size or version differs from the entry's."""

    def load(self, name: str) -> bytes:
        """Read the current version of a small file whole."""

    def put_new(self, name: str, data: bytes) -> bool:
        """Create a file atomically; return False if the name exists. After an exception the file
        may exist nevertheless, now or later."""

    def upload(self, name: str, path: str) -> None:
        """Upload a local file under an unused name."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete files; missing ones are ignored."""
