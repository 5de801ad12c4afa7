"""The log of a lake in a store: one total order of the additions and removals of captures.

    LAKE/_log/0/<number>.zst    an entry: one change of the lake
    LAKE/_log/<k>/<number>.zst  a bundle: 16 files of the level below, merged in order

A conditional write that creates the next entry is the commit. A writer whose number exists already
reads the new entries and decides again. Entries are never changed or removed, so the first missing
number is the end of the log; listings, which may be stale, are not used. Bundles are redundant:
they save requests (10,000 captures are read in 16), and a missing one does no harm.
"""

import errno
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import zstandard

from dissector.errors import InputError
from dissector.lake.manifest import NewerLake, is_plain_name
from dissector.limits import MAX_LOG_ENTRY_BYTES
from dissector.schemas import SCHEMA_VERSION
from dissector.storage.store import Store

FOLDER: Final = "_log"
_VERSION: Final = 1
_BASE: Final = 16
_HIGHEST: Final = 3  # a bundle of 4,096 is some ten MB
_LEVEL: Final = 3  # of the compression


class Change(NamedTuple):
    """A change of a lake: remove captures, then add captures.

    removed: ids. added: texts of manifests by id. schema_version: the writers' maximum.
    by: unique name of the attempt that wrote it; empty in a bundle.
    """

    removed: frozenset[str]
    added: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION
    by: str = ""

    def then(self, later: "Change") -> "Change":
        """Merge this change with a later one."""
        kept = {name: text for name, text in self.added.items() if name not in later.removed}
        return Change(
            self.removed | later.removed,
            {**kept, **later.added},
            max(self.schema_version, later.schema_version),
        )


NOTHING: Final = Change(frozenset(), {}, 1)


class Read(NamedTuple):
    """change: the merged entries. end: number of the entry after the last one read."""

    change: Change
    end: int


class Log:
    """The log of one lake.

    Args:
        store: of the lake. prefix: of all names in the store; empty or ending in a slash.
        shown: the lake's address, for messages.

    Methods raise OSError of the store.
    """

    def __init__(self, store: Store, prefix: str, shown: str) -> None:
        self._store = store
        self._prefix = f"{prefix}{FOLDER}/"
        self._shown = shown

    def name(self, level: int, number: int) -> str:
        """Return the name in the store of an entry (level 0) or a bundle."""
        return f"{self._prefix}{level}/{number:012d}.zst"

    def read(self, start: int, until: int | None = None) -> Read:
        """Read and merge the entries [start, until), or up to the end of the log.

        Raises:
            InputError: an entry is damaged, or a newer program wrote it.
        """
        change, at = NOTHING, start
        for size, step in self._steps(start, until):
            change, at = change.then(step), at + size
        return Read(change, at)

    def _steps(self, at: int, until: int | None) -> Iterator[tuple[int, Change]]:
        while until is None or at < until:
            for level in range(_HIGHEST, -1, -1):
                size = _BASE**level
                if at % size or (until is not None and at + size > until):
                    continue
                change = self._load(level, at // size)
                if change is not None:
                    yield size, change
                    at += size
                    break
            else:
                return

    def bytes_at(self, number: int) -> bytes | None:
        """Return the bytes of an entry; None if it does not exist."""
        try:
            return self._store.load(self.name(0, number))
        except FileNotFoundError:
            return None

    def _load(self, level: int, number: int) -> Change | None:
        name = self.name(level, number)
        try:
            data = self._store.load(name)
        except FileNotFoundError:
            return None
        try:
            return decoded(data, f"{self._shown}: {FOLDER}{name[len(self._prefix) - 1 :]}")
        except InputError:
            if level == 0:
                raise
            return None  # the bundle is redundant: read its entries

    def append(self, number: int, data: bytes) -> bool:
        """Commit an entry; return False if the number has a different entry.

        Raises:
            OSError: the result is unknown, or the store lacks conditional writes.
        """
        try:
            if self._store.put_new(self.name(0, number), data):
                self._see_that_it_stays(number, data)
                return True
        except OSError as error:
            if error.errno == errno.ENOTSUP:
                raise
            # The response may be lost although the entry was written, or is written later.
            if self._is_missing(number):
                reason = f"{error.strerror or error}; whether it is in the lake is not known yet"
                raise OSError(errno.EIO, reason) from None
        there = self.bytes_at(number)
        if there is None:
            raise OSError(errno.EIO, "the store refuses an entry of its log that is not there")
        return there == data

    def _see_that_it_stays(self, number: int, data: bytes) -> None:
        """At a lake's first entry, refuse a store that ignores the condition of a write."""
        if number == 0 and self._store.put_new(self.name(0, number), data):
            self._store.delete([self.name(0, number)])
            raise OSError(errno.ENOTSUP, "the store knows no conditional writes, as a lake needs")

    def _is_missing(self, number: int) -> bool:
        try:
            return self.bytes_at(number) is None
        except OSError:
            return True

    def bundle(self, end: int) -> None:
        """Write the bundles that end before entry number `end`; errors are ignored."""
        with suppress(OSError, InputError):
            for level in range(1, _HIGHEST + 1):
                size = _BASE**level
                if end % size:
                    return
                whole = self.read(end - size, end)
                if whole.end == end:
                    self._store.put_new(self.name(level, end // size - 1), encoded(whole.change))


def encoded(change: Change) -> bytes:
    """Encode an entry or a bundle."""
    content = {
        "version": _VERSION,
        "schema_version": change.schema_version,
        "by": change.by,
        "removed": sorted(change.removed),
        "added": dict(sorted(change.added.items())),
    }
    text = json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return zstandard.ZstdCompressor(_LEVEL).compress(text)


def decoded(data: bytes, where: str) -> Change:
    """Decode an entry or a bundle.

    Raises:
        InputError: it is damaged, or a newer program wrote it.
    """
    try:
        if not 0 <= zstandard.frame_content_size(data) <= MAX_LOG_ENTRY_BYTES:
            raise ValueError("its size is odd")
        content = json.loads(zstandard.ZstdDecompressor().decompress(data))
        version = int(content["version"])
        if version == _VERSION:
            return _change(content)
    except (ValueError, KeyError, TypeError, RecursionError, zstandard.ZstdError) as error:
        raise InputError(f"{where} is damaged: {error}; dissector lake verify tells more") from None
    raise NewerLake(
        f"{where} has version {version}, this program reads {_VERSION}: use the version of "
        "dissector that wrote the lake, or a newer one"
    )


def _change(content: dict[str, Any]) -> Change:
    removed, added = content["removed"], dict(content["added"])
    if not all(map(is_plain_name, (*removed, *added))):
        raise ValueError("it names other folders")
    if not all(isinstance(text, str) for text in added.values()):
        raise TypeError("a manifest is no text")
    return Change(frozenset(removed), added, int(content["schema_version"]), str(content["by"]))
