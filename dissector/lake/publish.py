"""A lake as tables that other tools read: the lists of files of these made those of the lake.

A table of Iceberg or Delta Lake is a list of Parquet files, with what is known of each. Publishing
makes it the list of a lake's own files, where they lie, by one commit for each table; none of them
is written, and only footers are read. Each format has a module of its own, which knows what is
listed and how to commit; what should be listed, and what differs, is here.

A lake of this machine is held against removals meanwhile, as by any reader. One in a store cannot
be: it is looked at once more for each table, after the table was; so a list is never made older
than one that another made. Whoever commits to a table between our look and our commit makes ours
fail: then we look again.

Of a store only the ends of files are read, where their footers are. No name of a file is used again
there, so what is listed under a name is that file.
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
from dissector.lake import mirror, places
from dissector.lake.copies import is_used
from dissector.lake.manifest import MANIFEST_FOLDER
from dissector.lake.manifests import Manifests, UnreadManifest
from dissector.lake.mirror import Mirror
from dissector.lake.reader import Lake, open_lake
from dissector.limits import FOOTER_BYTES, PUBLISH_ATTEMPTS, STORE_REQUESTS
from dissector.schemas import TABLES

DAY: Final = pa.field(places.DAY, pa.date32())
# Such files have no column `capture`: it is in the names of their folders alone.
_WITHOUT_CAPTURE: Final = 1
_ODD_IN_ADDRESSES: Final = "#?%"

Listed = TypeVar("Listed")
Described = TypeVar("Described")


class LakeFile(NamedTuple):
    """A Parquet file of a lake.

    place: of its landing, below the folder of the table. path: on this machine, or where a copy
    of one in a store would be.
    day: of its capture's first packet, UTC; None where the capture has none.
    rows, bytes: as its manifest says.
    """

    landing: str
    place: str
    path: Path
    day: date | None
    rows: int
    bytes: int

    @property
    def inner(self) -> str:
        """Its path below the folder of the table."""
        return f"{self.place}/{self.path.name}"


class Leaf(NamedTuple):
    """What the footer of a file says of a column, or of what a column of lists or maps holds.

    bytes: compressed. values: nulls among them. nulls, least, most: None where a row group does not
    say it; long text is cut so that it is below and above.
    """

    bytes: int
    values: int
    nulls: int | None
    least: Any
    most: Any


class Difference(NamedTuple):
    """What a list has to be told; a file that changed under its path is in both.

    removed: as the list names them.
    """

    added: tuple[LakeFile, ...]
    removed: tuple[str, ...]


class Published(NamedTuple):
    """A table as it is listed now, and how many files were added and removed for that."""

    table: str
    files: int
    rows: int
    added: int
    removed: int

    @classmethod
    def of(cls, table: str, files: Collection[LakeFile], difference: Difference) -> "Published":
        """A table of these files, after a difference was told."""
        changes = len(difference.added), len(difference.removed)
        return cls(table, len(files), sum(file.rows for file in files), *changes)


class Held:
    """A lake that is being published.

    root: its address, `file:///…` where it lies on this machine. stored: it, where that is a store.
    """

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        stored = mirror.of(lake.folder)
        self.stored: Final = stored
        self.root: Final = stored.address if stored else f"file://{lake.folder.absolute()}"
        self._version = stored.version() if stored else ""

    def files(self, table: str) -> list[LakeFile]:
        """The files of a table that have rows and name their captures; to be asked for after the
        table itself was looked at.

        Raises:
            InputError: one is a link, or no file; the store does not answer.
        """
        if self.stored is None:
            self.lake.part_paths(table)
        else:
            self._look_again(self.stored)
        found = []
        for capture in self.lake.captures:
            day = places.day_of(capture.first_ts_ns)
            for part in capture.files:
                if part.table == table and part.rows and capture.schema_version > _WITHOUT_CAPTURE:
                    file = LakeFile(
                        capture.capture_id,
                        places.place_of(capture),
                        places.part_path(self.lake.folder, capture, part),
                        None if day == places.NO_DAY else date.fromisoformat(day),
                        part.rows,
                        part.bytes,
                    )
                    found.append(file)
        return found

    def _look_again(self, stored: Mirror) -> None:
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
        """What needs the footers of files: of a store several are asked for at once."""
        if self.stored is None:
            return [how(file) for file in files]
        with ThreadPoolExecutor(STORE_REQUESTS) as pool:
            return list(pool.map(how, files))

    def left_out(self) -> list[str]:
        """The ids of captures whose files do not name them."""
        captures = self.lake.captures
        return [c.capture_id for c in captures if c.schema_version <= _WITHOUT_CAPTURE]

    def installed_ns(self, landing: str) -> int:
        """When a landing of this machine got its files, ns since 1970, by the clock of the file
        system."""
        status = os.stat(self.lake.folder / MANIFEST_FOLDER / f"{landing}.json")
        return max(status.st_mtime_ns, status.st_ctime_ns)

    def difference(
        self,
        files: Mapping[str, LakeFile],
        listed: Mapping[str, Listed],
        is_same: Callable[[LakeFile, Listed], bool],
    ) -> Difference:
        """What a list has to be told.

        Args:
            files: what it should name, by the names. listed: what it names, likewise.
            is_same: whether a file is still what is known of the one under its name.
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
            old = [name for name in old if places.id_at(os.path.dirname(name)) not in later]
        return Difference((*new, *(files[name] for name in changed)), (*old, *changed))


class ConflictError(Exception):
    """Another committed to the table since it was looked at."""


class Format(Protocol):
    """A format of tables: where their lists are, and how one is changed."""

    name: str

    def listed(self, table: str, root: str) -> set[str]:
        """What the list of a table of a lake names now, below the folder of the table; nothing
        where it is not published.

        Raises:
            OutputError: it cannot be read.
        """

    def publish(self, table: str, held: Held) -> Published:
        """Make the list of a table that of the lake.

        Raises:
            ConflictError: another came between.
            OutputError: it cannot be written.
            InputError: a file of the lake cannot be read.
        """


def private_folder(path: Path) -> None:
    """Make a folder for lists of files, which hold topics and addresses: not for everybody.

    Raises:
        OutputError: it is a link, or cannot be made.
    """
    if path.is_symlink():
        raise OutputError(f"{path} is a symbolic link, which is not followed: remove it")
    try:
        path.mkdir(0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make {path}: {error.strerror or error}") from None


@contextmanager
def held_lake(folder: Path) -> Iterator[Held]:
    """Hold a lake that is to be published.

    Raises:
        InputError: there is no lake, or a newer program wrote some of it: what that landed would
            be taken out of tables.
        UsageError: its path cannot be written in lists of files.
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
    """Make the lists of all tables those of a lake, one after the other.

    Raises:
        OutputError: one cannot be written; those before it are.
        InputError: a file of the lake cannot be read.
    """
    for table in TABLES:
        yield _published(table, held, to)


def still_listed(to: Format, lake: Path, names: Collection[str]) -> Iterator[tuple[str, int]]:
    """Tables that list some files of a lake in a store, and how many of them.

    Args:
        names: of the files, from the lake on.

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
    """What the footer of a file says of its columns, by their paths in it, and where its row groups
    begin.

    Raises:
        InputError: it is missing, not readable, or not what its manifest says.
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
    """The size and the footer of a file."""
    stored = mirror.of(_lake_of(file))
    if stored is None or is_used(file.path, file.bytes):
        return file.path.stat().st_size, pq.read_metadata(file.path)
    end = stored.end_of(file.path, file.bytes, FOOTER_BYTES)
    length = int.from_bytes(end[-8:-4], "little") + 8  # it stands in front of the last four bytes
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
    """A column over all row groups. One without a range, unless it holds nulls alone, leaves the
    whole without: readers would skip what it has."""
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
