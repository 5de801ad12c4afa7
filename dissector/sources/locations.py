"""Where input files lie: on this machine, or in a store. Whoever reads captures asks here."""

import glob
import io
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import IO, Final, NamedTuple

from dissector.storage.addresses import Address, is_stored, parsed
from dissector.storage.stores import entries_below, entry_of

_MAGIC: Final = re.compile(r"[*?[]")


def open_raw(path: str) -> IO[bytes]:
    """A file that is read without a buffer of its own.

    Raises:
        OSError: it cannot be opened.
    """
    if not is_stored(path):
        return open(path, "rb", buffering=0)
    from dissector.storage.stored_file import StoredFile

    file: IO[bytes] = StoredFile(path)  # type: ignore[assignment]
    return file


def open_seekable(path: str) -> IO[bytes]:
    """A file that is read here and there, with a buffer.

    Raises:
        OSError: it cannot be opened.
    """
    return io.BufferedReader(open_raw(path))  # type: ignore[type-var]


def is_regular(path: str) -> bool:
    """Whether a path names a file that is there as a whole, and can be read twice."""
    return is_stored(path) or os.path.isfile(path)


class State(NamedTuple):
    """size: bytes, as they are stored. changed_s: seconds since 1970."""

    size: int
    changed_s: float


def state_of(path: str) -> State:
    """How large a file is, and when that changed.

    Raises:
        OSError: it is not there.
    """
    if is_stored(path):
        entry = entry_of(path)
        return State(entry.size, entry.changed_s)
    status = os.stat(path)
    return State(status.st_size, status.st_mtime)


def identity_of(path: str) -> tuple[int, int] | str:
    """What two names of one file have in common.

    Raises:
        OSError: it is not there.
    """
    if is_stored(path):
        return entry_of(path).path
    status = os.stat(path)
    return status.st_dev, status.st_ino


def folder_of(path: str) -> str:
    """The folder that a file lies in, the same text for all its files."""
    return os.path.dirname(path if is_stored(path) else os.path.realpath(path))


def absolute(path: str) -> str:
    """A path as processes in other folders find it."""
    return path if is_stored(path) else os.path.abspath(path)


def matches(text: str) -> list[str]:
    """The files and folders that a pattern stands for; what is there under this very name, or is no
    pattern, is itself.

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
    """Whether a name fits a pattern, both cut at slashes, as on a disk: what is hidden fits only
    what begins with a dot, and two stars are folders at any depth."""
    if not names or not parts:
        return not names and not parts
    is_shown = not names[0].startswith(".")
    if parts[0] != "**":
        is_seen = is_shown or parts[0].startswith(".")
        return is_seen and fnmatchcase(names[0], parts[0]) and _fits(names[1:], parts[1:])
    if len(parts) == 1:
        return not any(name.startswith(".") for name in names)
    return _fits(names, parts[1:]) or (is_shown and len(names) > 1 and _fits(names[1:], parts))


def files_in(path: str) -> list[str] | None:
    """Files below a folder in the order of their paths, hidden ones left out; None if it is none.

    Raises:
        OSError: the store that it names does not answer.
    """
    if is_stored(path):
        return _files_in_store(path)
    if not os.path.isdir(path):
        return None
    found = []
    for here, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [os.path.join(here, name) for name in sorted(files) if not name.startswith(".")]
    return found


def _files_in_store(path: str) -> list[str] | None:
    """An address is a folder where it ends so, or no object has its name and others lie below."""
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
