"""What a store can do, and what it says of a file."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """A file in a store. path: its address. changed_s: seconds since 1970.

    version: what another one of the same name does not have; None if the store says none.
    """

    path: str
    size: int
    changed_s: float
    version: str | None


class Store(Protocol):
    """A bucket, a container, or a file system of a cluster.

    Methods raise OSError, FileNotFoundError where nothing has that name; `strerror` says why in a
    few words, and holds no more of an answer than its status.
    """

    def entry(self, name: str) -> Entry:
        """The file of a name."""

    def entries(self, folder: str) -> Iterator[Entry]:
        """All files below a folder (no slash at its end; empty is all), in no order."""

    def read(self, entry: Entry, start: int, end: int) -> bytes:
        """Bytes [start, end) of a file, of the version that the entry says; end is within it."""
