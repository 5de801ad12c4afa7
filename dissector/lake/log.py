"""The log of a lake in a store: what was added to it and taken away, in one order for all.

    LAKE/_log/0/<number>.zst    an entry: one change of the lake
    LAKE/_log/<k>/<number>.zst  a bundle: what 16 of the level below, in their order, come to

An entry is written if nobody has its number: that is the commit. Who lost reads what came before
and decides anew. Entries are never changed or removed, so the first number that is not there is the
end, whatever a store's listings say of it; listings are not asked. Bundles hold nothing of their
own: they spare requests (10,000 captures are read in 16), and one that is missing is no harm.
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
    """What becomes of a lake: first captures go, then others come.

    removed: ids. added: texts of manifests by id. schema_version: of those who wrote it, at most.
    by: whose it is, which no other change has; empty in a bundle.
    """

    removed: frozenset[str]
    added: Mapping[str, str]
    schema_version: int = SCHEMA_VERSION
    by: str = ""

    def then(self, later: "Change") -> "Change":
        """What this one and a later one come to."""
        kept = {name: text for name, text in self.added.items() if name not in later.removed}
        return Change(
            self.removed | later.removed,
            {**kept, **later.added},
            max(self.schema_version, later.schema_version),
        )


NOTHING: Final = Change(frozenset(), {}, 1)


class Read(NamedTuple):
    """change: what came since. end: number of the entry that will come next."""

    change: Change
    end: int


class Log:
    """The log of one lake.

    Args:
        store: where it lies. prefix: in front of the names in it, with a slash at its end or empty.
        shown: the lake's address, for messages.

    Methods raise OSError of the store.
    """

    def __init__(self, store: Store, prefix: str, shown: str) -> None:
        self._store = store
        self._prefix = f"{prefix}{FOLDER}/"
        self._shown = shown

    def name(self, level: int, number: int) -> str:
        """The name in the store of an entry or a bundle."""
        return f"{self._prefix}{level}/{number:012d}.zst"

    def read(self, start: int, until: int | None = None) -> Read:
        """What was changed from the entry of a number on, before another one or to the end.

        Raises:
            InputError: something of it is damaged, or of a newer program.
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
        """The bytes of an entry, None if there is none."""
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
            return None  # its entries say the same

    def append(self, number: int, data: bytes) -> bool:
        """Commit an entry of a number; False where another one has it.

        Raises:
            OSError: that cannot be told, or the store is none for a lake.
        """
        try:
            if self._store.put_new(self.name(0, number), data):
                self._see_that_it_stays(number, data)
                return True
        except OSError as error:
            if error.errno == errno.ENOTSUP:
                raise
            # The answer may be lost and the entry written, now or later.
            if self._is_missing(number):
                reason = f"{error.strerror or error}; whether it is in the lake is not known yet"
                raise OSError(errno.EIO, reason) from None
        there = self.bytes_at(number)
        if there is None:
            raise OSError(errno.EIO, "the store refuses an entry of its log that is not there")
        return there == data

    def _see_that_it_stays(self, number: int, data: bytes) -> None:
        """Refuse a store that takes no notice of the condition of a write, at a lake's first."""
        if number == 0 and self._store.put_new(self.name(0, number), data):
            self._store.delete([self.name(0, number)])
            raise OSError(errno.ENOTSUP, "the store knows no conditional writes, as a lake needs")

    def _is_missing(self, number: int) -> bool:
        try:
            return self.bytes_at(number) is None
        except OSError:
            return True

    def bundle(self, end: int) -> None:
        """Write the bundles that end before a number; nothing is lost where one is not written."""
        with suppress(OSError, InputError):
            for level in range(1, _HIGHEST + 1):
                size = _BASE**level
                if end % size:
                    return
                whole = self.read(end - size, end)
                if whole.end == end:
                    self._store.put_new(self.name(level, end // size - 1), encoded(whole.change))


def encoded(change: Change) -> bytes:
    """The bytes of an entry or a bundle."""
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
    """What an entry or a bundle says.

    Raises:
        InputError: it is damaged, or of a newer program.
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
