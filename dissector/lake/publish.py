"""Publish a lake as Iceberg or Delta Lake tables: make each table's file list equal the lake's.

A table of these formats is a list of Parquet files with their statistics. Publishing lists the
lake's own files in place, with one commit per table. It writes no data file and reads only footers.
A module per format reads the list and commits; this module decides which files to list, and
compares.

A local lake is locked against removals meanwhile, as by any reader. A lake in a store cannot be
locked: its manifests are synced for each table, after the table was read, so a commit never
replaces a newer list by an older one. If another writer commits to a table between our read and our
commit, ours fails and is tried again.

In a store only the last bytes of files, the footers, are read. A name there is never used again, so
a listed name identifies its file.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import InputError, OutputError, UsageError
from dissector.lake import mirror, partitions
from dissector.lake.copies import is_used
from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.lake.manifests import Manifests, UnreadManifest
from dissector.lake.mirror import Mirror
from dissector.lake.reader import Lake, open_lake
from dissector.limits import FOOTER_BYTES, PUBLISH_ATTEMPTS, STORE_REQUESTS
from dissector.schemas import TABLES

DAY: Final = pa.field(partitions.DAY, pa.date32())
# Files of this schema version have no column `capture`, only a folder name.
_WITHOUT_CAPTURE: Final = 1
_ODD_IN_ADDRESSES: Final = "#?%"

Listed = TypeVar("Listed")
Described = TypeVar("Described")


class LakeFile(NamedTuple):
    """A Parquet file of a lake.

    partition: folder of its landing, relative to the table's.
    path: on this machine; for a store, of the local copy, which may not exist.
    day: of its capture's first packet, UTC; None if the capture has no packet.
    rows, bytes: from its manifest.
    """

    landing: str
    partition: str
    path: Path
    day: date | None
    rows: int
    bytes: int

    @property
    def inner(self) -> str:
        """Path relative to the table's folder."""
        return f"{self.partition}/{self.path.name}"


class Leaf(NamedTuple):
    """Footer statistics of a column, or of the elements of a column of lists or maps.

    bytes: compressed. values: count, nulls included. nulls, least, most: None if a row group lacks
    them; long text is cut so that the bounds still hold.
    """

    bytes: int
    values: int
    nulls: int | None
    least: Any
    most: Any


class Difference(NamedTuple):
    """Changes to a file list; a file that changed under its path is in both fields.

    removed: names as in the list.
    """

    added: tuple[LakeFile, ...]
    removed: tuple[str, ...]


class Published(NamedTuple):
    """Result for one table: files and rows listed, files added and removed."""

    table: str
    files: int
    rows: int
    added: int
    removed: int

    @classmethod
    def of(cls, table: str, files: Collection[LakeFile], difference: Difference) -> "Published":
        """Summarize a table of these files after the difference was committed."""
        changes = len(difference.added), len(difference.removed)
        return cls(table, len(files), sum(file.rows for file in files), *changes)


class Held:
    """A lake that is being published.

    root: its address, `file:///…` for a local lake. stored: its mirror, None for a local lake.
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        stored = mirror.of(lake.folder)
        self.stored: Final = stored
        self.root: Final = stored.address if stored else f"file://{lake.folder.absolute()}"
        self._version = stored.version() if stored else ""

    def files(self, table: str) -> list[LakeFile]:
        """Return the files of a table that have rows and a column `capture`. Call it after reading
        the published table.

        Raises:
            InputError: a file is a link or not regular, or the store does not answer.
        """
        if self.stored is None:
            self.lake.part_paths(table)
        else:
            self._resync(self.stored)
        files = []
        for capture in self.lake.captures:
            day = partitions.day_of(capture.first_ts_ns)
            for part in capture.files:
                if part.table == table and part.rows and capture.schema_version > _WITHOUT_CAPTURE:
                    file = LakeFile(
                        capture.capture_id,
                        partitions.partition_of(capture),
                        partitions.part_path(self.lake.folder, capture, part),
                        None if day == partitions.NO_DAY else date.fromisoformat(day),
                        part.rows,
                        part.bytes,
                    )
                    files.append(file)
        return files

    def _resync(self, stored: Mirror) -> None:
        with mirror.current(self.lake.folder):
            if (version := stored.version()) == self._version:
                return
            captures, unread = Manifests(self.lake.folder).all()
        _refuse_newer(unread)
        self.lake = self.lake._replace(captures=tuple(captures), unread=tuple(unread))
        self._version = version

    def described(
        self, how: Callable[[LakeFile], Described], files: Sequence[LakeFile]
    ) -> list[Described]:
        """Apply `how`, which reads footers, to files; for a store with concurrent requests."""
        if self.stored is None:
            return [how(file) for file in files]
        with ThreadPoolExecutor(STORE_REQUESTS) as pool:
            return list(pool.map(how, files))

    def left_out(self) -> list[str]:
        """Return the ids of captures whose files lack the column `capture`."""
        captures = self.lake.captures
        return [c.capture_id for c in captures if c.schema_version <= _WITHOUT_CAPTURE]

    def installed_ns(self, landing: str) -> int:
        """Return the installation time of a local landing, ns since 1970 by the file system."""
        status = os.stat(self.lake.folder / MANIFEST_FOLDER / f"{landing}.json")
        return max(status.st_mtime_ns, status.st_ctime_ns)

    def difference(
        self,
        files: Mapping[str, LakeFile],
        listed: Mapping[str, Listed],
        is_same: Callable[[LakeFile, Listed], bool],
    ) -> Difference:
        """Compare the lake's files with a table's list.

        Args:
            files: the lake's, by name in the list. listed: the list's entries, by name.
            is_same: whether a file still equals its list entry.
        """
        new = [file for name, file in files.items() if name not in listed]
        old = [name for name in listed if name not in files]
        changed = [
            name
            for name, file in files.items()
            if name in listed and not is_same(file, listed[name])
        ]
        if old:
            # What came since the lake was opened, another may have published.
            known = {capture.capture_id for capture in self.lake.captures}
            later = set(Manifests(self.lake.folder).names()) - known
            old = [name for name in old if partitions.id_of(os.path.dirname(name)) not in later]
        return Difference((*new, *(files[name] for name in changed)), (*old, *changed))


class ConflictError(Exception):
    """Another writer committed to the table since it was read."""


class Format(Protocol):
    """A table format: reads and changes the file lists of its tables."""

    name: str

    def listed(self, table: str, root: str) -> set[str]:
        """Return the listed paths, relative to the table's folder; empty if not published.

        Raises:
            OutputError: the list cannot be read.
        """

    def publish(self, table: str, held: Held) -> Published:
        """Make the list of a table equal the lake's.

        Raises:
            ConflictError: another writer committed meanwhile.
            OutputError: the list cannot be written.
            InputError: a file of the lake cannot be read.
        """


def private_folder(path: Path) -> None:
    """Create a folder for file lists; mode 0750, as statistics contain topics and addresses.

    Raises:
        OutputError: the path is a symbolic link, or cannot be created.
    """
    if path.is_symlink():
        raise OutputError(f"{path} is a symbolic link, which is not followed: remove it")
    try:
        path.mkdir(0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {path}: {error.strerror or error}") from None


@contextmanager
def held_lake(folder: Path) -> Iterator[Held]:
    """Open a lake for publishing.

    Raises:
        InputError: there is no lake, or a newer program wrote a manifest: publishing would drop
            the newer program's landings from the tables.
        UsageError: the lake's path has characters that file lists cannot contain.
    """
    is_here = mirror.of(folder) is None
    if set(os.path.abspath(folder) if is_here else mirror.shown(folder)) & set(_ODD_IN_ADDRESSES):
        raise UsageError(
            f"{mirror.shown(folder)}: readers of tables take {' '.join(_ODD_IN_ADDRESSES)} in a "
            f"path for something else; {'rename the folder' if is_here else 'use another name'}"
        )
    with open_lake(folder) as lake:
        _refuse_newer(lake.unread)
        yield Held(lake)


def _refuse_newer(unread: Iterable[UnreadManifest]) -> None:
    for each in unread:
        if each.is_newer:
            raise InputError(each.text)


def publish(held: Held, to: Format) -> Iterator[Published]:
    """Publish all tables of a lake, one after the other.

    Raises:
        OutputError: a list cannot be written; the tables yielded before are published.
        InputError: a file of the lake cannot be read.
    """
    for table in TABLES:
        yield _published(table, held, to)


def still_listed(to: Format, lake: Path, names: Collection[str]) -> Iterator[tuple[str, int]]:
    """Yield the tables that list some of these files of a stored lake, and how many they list.

    Args:
        names: paths relative to the lake.

    Raises:
        OutputError: a list cannot be read.
    """
    for table in TABLES:
        mine = {name.removeprefix(f"{table}/") for name in names if name.startswith(f"{table}/")}
        if mine and (count := len(mine & to.listed(table, mirror.shown(lake)))):
            yield table, count


def _published(table: str, held: Held, to: Format) -> Published:
    for _ in range(PUBLISH_ATTEMPTS):
        try:
            return to.publish(table, held)
        except ConflictError:
            continue
    raise OutputError(
        f"{to.name} table {table}: another commits to it all the time; publish the lake again"
    )


def leaves_of(file: LakeFile) -> tuple[dict[str, Leaf], list[int]]:
    """Read the footer of a file: return statistics by column path, and the byte offset of each row
    group.

    Raises:
        InputError: the file is missing, not readable, or differs from its manifest.
    """
    try:
        size, footer = _footer(file)
    except (OSError, pa.ArrowException) as error:
        raise _damaged(file, getattr(error, "strerror", None) or str(error)) from None
    if (size, footer.num_rows) != (file.bytes, file.rows):
        raise _damaged(file, "it is not what its manifest says")
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    leaves: dict[str, Leaf] = {}
    for number in range(footer.num_columns):
        chunks = [group.column(number) for group in groups]
        leaves[chunks[0].path_in_schema] = _leaf(chunks)
    return leaves, [_begin(group.column(0)) for group in groups]


def _footer(file: LakeFile) -> tuple[int, pq.FileMetaData]:
    """Return the size and the footer of a file."""
    stored = mirror.of(_lake_of(file))
    if stored is None or is_used(file.path, file.bytes):
        return file.path.stat().st_size, pq.read_metadata(file.path)
    end = stored.end_of(file.path, file.bytes, FOOTER_BYTES)
    length = int.from_bytes(end[-8:-4], "little") + 8  # the length field precedes the magic
    if length > len(end):
        end = stored.end_of(file.path, file.bytes, length)
    return file.bytes, pq.read_metadata(pa.BufferReader(end))


def _lake_of(file: LakeFile) -> Path:
    return file.path.parents[file.inner.count("/") + 1]


def _damaged(file: LakeFile, why: str) -> InputError:
    lake = _lake_of(file)
    shown = mirror.shown(lake)
    path = f"{shown}/{file.path.relative_to(lake)}"
    return InputError(f"cannot read {path}: {why}; see: dissector lake verify {shown}")


def _begin(chunk: pq.ColumnChunkMetaData) -> int:
    pages = (chunk.dictionary_page_offset, chunk.data_page_offset)
    return min(int(page) for page in pages if page)


def _leaf(chunks: Iterable[pq.ColumnChunkMetaData]) -> Leaf:
    """Merge a column's statistics over all row groups. If a chunk that has values has no range, the
    merged range is None: any other range would make readers skip these values."""
    size = values = nulls = 0
    least: list[Any] = []
    most: list[Any] = []
    has_nulls = has_range = True
    for chunk in chunks:
        size += chunk.total_compressed_size
        values += chunk.num_values
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count:
            has_nulls = has_range = False
            continue
        nulls += statistics.null_count
        if statistics.has_min_max:
            least.append(statistics.min)
            most.append(statistics.max)
        elif statistics.null_count < chunk.num_values:
            has_range = False
    has_range = has_range and bool(least)
    return Leaf(
        size,
        values,
        nulls if has_nulls else None,
        min(least) if has_range else None,
        max(most) if has_range else None,
    )
