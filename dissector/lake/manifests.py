"""Reads the manifests of a lake: all, or only those of one base name.

A decision made without the lake's lock is checked again under the lock. This costs one directory
listing: only manifests whose file changed are read again.
"""

import fnmatch
import gc
import json
import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from dissector.errors import InputError
from dissector.lake import manifest, mirror, partitions
from dissector.lake.locks import LOCK_FILE
from dissector.lake.manifest import Manifest, NewerLake
from dissector.limits import MAX_DAY_LANDINGS, MAX_SCHEMA_VERSION_DIGITS
from dissector.schemas import SCHEMA_VERSION

_SUFFIX: Final = ".json"


class UnreadManifest(NamedTuple):
    """A manifest that this program cannot read.

    fault: the reason, and what to do. is_newer: a newer program wrote the manifest.
    """

    capture_id: str
    path: str
    fault: str
    is_newer: bool = False

    @property
    def text(self) -> str:
        """The file and its fault."""
        return f"{self.path}: {self.fault}"


class _Read(NamedTuple):
    """file: inode, size, mtime and ctime when the file was read. content: the parsed file."""

    file: tuple[int, ...]
    content: Manifest | UnreadManifest


class Manifests:
    """The manifests of a lake; each is read once, and again if its file changed."""

    def __init__(self, lake: Path) -> None:
        self._folder = os.path.join(lake, manifest.MANIFEST_FOLDER)
        self._read: dict[str, _Read] = {}

    def all(self) -> tuple[list[Manifest], list[UnreadManifest]]:
        """Return all captures of the lake, ordered by id, and the manifests that cannot be read."""
        # None of the new objects is garbage; collection would use a quarter of the time.
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            contents = self._of(self.names())
        finally:
            if is_collecting:
                gc.enable()
        captures = [content for content in contents if isinstance(content, Manifest)]
        return captures, [content for content in contents if isinstance(content, UnreadManifest)]

    def to_change(self) -> tuple[list[Manifest], list[UnreadManifest]]:
        """Return what `all` returns, for callers that change the lake.

        Raises:
            InputError: a newer program, which may have other rules, wrote one of the manifests.
        """
        captures, unread = self.all()
        _refuse_newer(unread)
        return captures, unread

    def of_base_name(self, base_name: str) -> list[Manifest]:
        """Return the captures of a base name, and the groups that contain such captures.

        Other manifests are not parsed: ids of captures begin with their base name, and a group's
        manifest is parsed only if its bytes contain the name.

        Raises:
            InputError: a newer program, which may have other rules, wrote one of the manifests.
        """
        begin = f"c-{manifest.clean_base_name(base_name)}-"
        size = len(begin) + manifest.ID_DIGITS
        names = self.names((begin, manifest.GROUP_PREFIX))
        groups = [name for name in names if name.startswith(manifest.GROUP_PREFIX)]
        wanted = [name for name in names if name.startswith(begin) and len(name) == size]
        wanted += [name for name in groups if self._names_within(name, base_name)]
        contents = self._of(wanted)
        _refuse_newer(contents)
        return [content for content in contents if isinstance(content, Manifest)]

    def names(self, begins: str | tuple[str, ...] = "") -> list[str]:
        """Return the sorted ids of all manifests whose id begins with `begins`."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        some = (name for name in names if name.startswith(begins))
        return sorted(name.removesuffix(_SUFFIX) for name in some if name.endswith(_SUFFIX))

    def _of(self, names: Iterable[str]) -> list[Manifest | UnreadManifest]:
        """Read the manifests of these ids; ids whose manifest was removed meanwhile are omitted."""
        contents: list[Manifest | UnreadManifest] = []
        for name in names:
            path = self._path(name)
            try:
                status = os.stat(path)
                file = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                known = self._read.get(name)
                if known is None or known.file != file:
                    known = self._read[name] = _Read(file, _content(name, path))
            except FileNotFoundError:
                continue
            except OSError as error:
                contents.append(UnreadManifest(name, path, _unreadable(error.strerror or error)))
                continue
            contents.append(known.content)
        return contents

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name + _SUFFIX)

    def _names_within(self, group: str, base_name: str) -> bool:
        """Whether the manifest of a group may contain a base name: searching the bytes of a long
        manifest costs a hundredth of parsing it."""
        try:
            with open(self._path(group), "rb") as file:
                text = file.read()
        except OSError:
            return True  # `_of` reports why it cannot be read
        plain = json.dumps(base_name, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return plain in text or json.dumps(base_name).encode() in text


def _content(name: str, path: str) -> Manifest | UnreadManifest:
    """Parse a manifest file; if that fails, return the reason.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            capture = manifest.from_json(file.read().decode("utf-8"), "it")
        if capture.capture_id != name:
            raise InputError(f"it is the manifest of {capture.capture_id}: rename it")
    except InputError as error:
        return UnreadManifest(name, path, str(error), isinstance(error, NewerLake))
    except UnicodeDecodeError as error:
        return UnreadManifest(name, path, _unreadable(error))
    return capture


def _unreadable(why: object) -> str:
    return f"it cannot be read: {why}; {manifest.MEND}"


def is_named(capture: str, patterns: Iterable[str]) -> bool:
    """Whether an id matches one of the glob patterns (`c-night-*`)."""
    return any(fnmatch.fnmatchcase(capture, pattern) for pattern in patterns)


def _refuse_newer(contents: Iterable[Manifest | UnreadManifest]) -> None:
    for content in contents:
        if isinstance(content, UnreadManifest) and content.is_newer:
            raise InputError(content.text)


def crowded_days(lake: Path) -> list[str]:
    """Return the sorted days that hold more than MAX_DAY_LANDINGS landings."""
    if mirror.of(lake) is None:
        days = partitions.landings_of_days(lake)
    else:  # the folder may lack files of the store; parsing manifests is slower than a listing
        there = Manifests(lake)
        is_small = len(there.names()) <= MAX_DAY_LANDINGS
        captures = () if is_small else there.all()[0]
        days = Counter(partitions.day_of(capture.first_ts_ns) for capture in captures)
    return sorted(day for day, landings in days.items() if landings > MAX_DAY_LANDINGS)


# -- the schema version of a lake, for callers that do not read all of its manifests


def refuse_newer(lake: Path) -> None:
    """Refuse a lake that a newer program wrote to. The lake's lock file contains the highest schema
    version ever landed there; in older lakes it is empty.

    Raises:
        NewerLake: the lake's version is higher than this program's.
    """
    version = _version(lake / LOCK_FILE)
    if version > SCHEMA_VERSION:
        raise NewerLake(
            f"{mirror.shown(lake)} has schema version {version}, this program reads up to "
            f"{SCHEMA_VERSION}: use the version of dissector that wrote the lake, or a newer one"
        )


def mark_version(lake: Path) -> None:
    """Write this schema version to the lock file; the caller holds a lock for changes."""
    path = lake / LOCK_FILE
    if _version(path) < SCHEMA_VERSION:
        path.write_text(f"{SCHEMA_VERSION}\n", "ascii")


def _version(path: Path) -> int:
    try:
        with path.open("rb") as file:
            text = file.read(MAX_SCHEMA_VERSION_DIGITS + 1).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() else 0
