"""What a store can do, and what it says of a file."""

import errno
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    """A file in a store. path: its address. changed_s: seconds since 1970.

    version: what another one of the same name does not have; None if the store says none.
    """

    path: str
    size: int
    changed_s: float
    version: str | None


def other_size() -> OSError:
    """What is raised where a file has another size than its entry says."""
    return OSError(errno.ESTALE, "it has another size")


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
        """Bytes [start, end) of a file, of the version that the entry says if it says one; end is
        within it."""

    def look(self, entry: Entry, start: int, end: int) -> tuple[Entry, bytes]:
        """Bytes [start, end) of a file, and which version that is. errno is ESTALE where the file
        has another size than the entry, or is of another version."""

    def load(self, name: str) -> bytes:
        """A small file, whole, as it is now."""

    def put_new(self, name: str, data: bytes) -> bool:
        """Write a file whole, if none has its name; whether it was written. Where this raises, it
        may have been written all the same, or may be later."""

    def upload(self, name: str, path: str) -> None:
        """Write a file of this machine under a name that no other has."""

    def delete(self, names: Sequence[str]) -> None:
        """Remove files; those that are not there are none."""
