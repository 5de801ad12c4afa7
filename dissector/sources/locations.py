"""File access for all readers of captures, on this machine or in a store."""

import glob
import io
import os
import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import IO, Final, NamedTuple

from dissector.storage.addresses import Address, is_stored, parsed
from dissector.storage.stores import entries_below, entry_of

_MAGIC: Final = re.compile(r"[*?[]")


def open_raw(path: str) -> IO[bytes]:
    """Open a file without buffering.

    Raises:
        OSError: it cannot be opened.
    """
    if not is_stored(path):
        return open(path, "rb", buffering=0)
    from dissector.storage.stored_file import StoredFile

    file: IO[bytes] = StoredFile(path)  # type: ignore[assignment]
    return file


def open_seekable(path: str) -> IO[bytes]:
    """Open a file with buffering, for random access.

    Raises:
        OSError: it cannot be opened.
    """
    return io.BufferedReader(open_raw(path))  # type: ignore[type-var]


def is_regular(path: str) -> bool:
    """Whether a path is a regular file or stored object, which can be read twice."""
    return is_stored(path) or os.path.isfile(path)


class State(NamedTuple):
    """size: bytes as stored. changed_s: modification time, seconds since 1970."""

    size: int
    changed_s: float


def state_of(path: str) -> State:
    """Return size and modification time of a file.

    Raises:
        OSError: it is missing.
    """
    if is_stored(path):
        entry = entry_of(path)
        return State(entry.size, entry.changed_s)
    status = os.stat(path)
    return State(status.st_size, status.st_mtime)


def identity_of(path: str) -> tuple[int, int] | str:
    """Return an identity that is equal for all names of one file.

    Raises:
        OSError: it is missing.
    """
    if is_stored(path):
        return entry_of(path).path
    status = os.stat(path)
    return status.st_dev, status.st_ino


def folder_of(path: str) -> str:
    """Return the folder of a file; the text is equal for all files in it."""
    return os.path.dirname(path if is_stored(path) else os.path.realpath(path))


def absolute(path: str) -> str:
    """Return a path that is valid for processes in other folders."""
    return path if is_stored(path) else os.path.abspath(path)


def matches(text: str) -> list[str]:
    """Return the files and folders that match a pattern; an existing path, or one without pattern
    characters, is returned itself.

    Raises:
        OSError: the store that it names does not answer.
    """
    if is_stored(text):
        return _matches_in_store(parsed(text))
    if os.path.lexists(text) or not glob.has_magic(text):
        return [text]
    return sorted(glob.glob(text, recursive=True))


def _matches_in_store(address: Address) -> list[str]:
    if not _MAGIC.search(address.name):
        return [str(address)]
    plain = _MAGIC.split(address.name)[0]
    above = address._replace(name=plain.rpartition("/")[0])
    parts, skipped = address.name.split("/"), len(address.root) + 1
    below = entries_below(str(above))
    return [entry.path for entry in below if _fits(entry.path[skipped:].split("/"), parts)]


def _fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether a name matches a pattern, both split at slashes, as on a disk: hidden names match
    only patterns that begin with a dot, and `**` matches folders at any depth."""
    if not names or not parts:
        return not names and not parts
    is_shown = not names[0].startswith(".")
    if parts[0] != "**":
        is_seen = is_shown or parts[0].startswith(".")
        return is_seen and fnmatchcase(names[0], parts[0]) and _fits(names[1:], parts[1:])
    if len(parts) == 1:
        return not any(name.startswith(".") for name in names)
    return _fits(names, parts[1:]) or (is_shown and len(names) > 1 and _fits(names[1:], parts))


def files_in(path: str, missed: Callable[[OSError], None] | None = None) -> list[str] | None:
    """Return the files below a folder by path, without hidden ones; None if it is no folder.

    missed: gets the error of each folder that cannot be listed.

    Raises:
        OSError: the store that it names does not answer.
    """
    if is_stored(path):
        return _files_in_store(path)
    if not os.path.isdir(path):
        return None
    paths = []
    for here, folders, files in os.walk(path, onerror=missed):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths += [os.path.join(here, name) for name in sorted(files) if not name.startswith(".")]
    return paths


def _files_in_store(path: str) -> list[str] | None:
    """Treat an address as a folder if it ends in a slash, or if only longer names exist."""
    if not path.endswith("/") and parsed(path).name:
        try:
            entry_of(path, is_fresh=True)
            return None
        except FileNotFoundError:
            pass
    start = len(path.rstrip("/")) + 1
    below = entries_below(path)
    if not below and not path.endswith("/"):
        return None
    parts = [entry.path[start:].split("/") for entry in below]
    # Of a folder first its files, then its folders, as on a disk.
    parts.sort(key=lambda names: [(1, name) for name in names[:-1]] + [(0, names[-1])])
    shown = [names for names in parts if names[-1] and not any(n.startswith(".") for n in names)]
    return [f"{path[: start - 1]}/{'/'.join(names)}" for names in shown]
