"""Read a lake, verify it, and remove captures from it."""

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import InputError, OutputError, UsageError
from dissector.lake import install, mirror, partitions
from dissector.lake.copies import Copy, copies_of
from dissector.lake.delivery import deliver
from dissector.lake.fetching import fetched
from dissector.lake.file_rows import is_schema_of, names_of_rows, read_rows
from dissector.lake.locks import shared_lock
from dissector.lake.manifest import MANIFEST_FOLDER, Manifest, PartFile
from dissector.lake.manifests import Manifests, UnreadManifest, is_named
from dissector.schemas import SINCE, TABLES
from dissector.schemas.arrow import arrow_schema
from dissector.schemas.small_tables import no_rows

if TYPE_CHECKING:
    from dissector.lake.ranges import Ranges

FILES: Final = "capture_files"
_STRAY: Final = "no manifest names this file"
_ORPHAN: Final = "no manifest names this folder: `dissector lake rm` removes it by its id"


class LakeProblem(NamedTuple):
    """A defect of a lake: the capture, the file or folder, and a description."""

    capture_id: str
    path: str
    text: str


class Lake(NamedTuple):
    """A lake that is open for reading. captures: ordered by id. unread: unreadable manifests."""

    folder: Path
    captures: tuple[Manifest, ...]
    unread: tuple[UnreadManifest, ...] = ()

    def rows(self) -> int:
        """Return the number of rows of all tables together, from the manifests."""
        return sum(part.rows for capture in self.captures for part in capture.files)

    @property
    def last_ts_ns(self) -> int | None:
        """Time of the last packet of all captures, ns since 1970; None if there is no packet."""
        times = (capture.last_ts_ns for capture in self.captures)
        return max((each for each in times if each is not None), default=None)

    def part_paths(self, table: str, ranges: "Ranges | None" = None) -> list[str]:
        """Return the Parquet files of a table, older schema versions first: DuckDB reads the
        columns that the first file has, and later versions have more.

        Args:
            ranges: reader of a stored lake's files; files that are not on this machine are then
                returned as addresses. Without it, they are fetched.

        Raises:
            InputError: a file is a link, which a reader would follow, or not regular, on which it
                could block.
        """
        if ranges is not None:
            return ranges.names(self.copies(table))
        self.fetch(table)
        paths = [self.folder / name for name, _ in self.copies(table)]
        links = partitions.links_above(paths)
        for path in paths:
            text = _odd(path, not links.isdisjoint(path.parents[:2]))
            if text:
                raise InputError(f"{path} is {text}; see: dissector lake verify {self.shown}")
        return [*map(str, paths)]

    def days(self) -> dict[str, str]:
        """Return the days of files whose partition lacks one, by name relative to the lake."""
        return {
            name: day
            for capture in self.captures
            if "/" not in partitions.partition_of(capture)
            and (day := partitions.day_of(capture.first_ts_ns)) != partitions.NO_DAY
            for name, _ in copies_of(capture)
        }

    def ranges(self) -> "Ranges | None":
        """Return a range reader of a stored lake's files; None for a local lake."""
        stored = mirror.of(self.folder)
        return None if stored is None else stored.ranges()

    def copies(self, table: str) -> Iterator[Copy]:
        """Yield the files of a table as copies, in the order of `part_paths`."""
        for capture in sorted(self.captures, key=lambda each: each.schema_version):
            for copy in copies_of(capture):
                if copy[1].table == table:
                    yield copy

    def fetch(self, table: str) -> None:
        """Fetch the files of a table that are not on this machine.

        Raises:
            InputError: a file cannot be fetched.
        """
        mirror.fetch(self.folder, self.copies(table))

    def waiting(self) -> int:
        """Return the number of landings that wait on this machine for upload to the store."""
        return len(install.ready_stages(self.folder)) if mirror.of(self.folder) else 0

    @property
    def shown(self) -> str:
        """The lake's path or address, for messages."""
        return mirror.shown(self.folder)

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read all rows of a table; for small lakes and tests."""
        wanted = list(columns) if columns is not None else [c.name for c in TABLES[table].columns]
        schema = pa.schema([arrow_schema(table).field(name) for name in wanted])
        tables = [no_rows(schema)]
        self.fetch(table)
        for capture in self.captures:
            for part in capture.files:
                if part.table == table:
                    file = pq.ParquetFile(partitions.part_path(self.folder, capture, part))
                    tables.append(read_rows(file, capture, table, wanted))
        return pa.concat_tables(tables)


def must_be_a_lake(folder: Path) -> None:
    """Refuse a folder without captures.

    Raises:
        InputError: it is not a lake.
    """
    if not (folder / MANIFEST_FOLDER).is_dir() and not install.needs_recovery(folder):
        text = f"{mirror.shown(folder)} is not a lake: it has no captures; `land` writes one"
        raise InputError(text)


@contextmanager
def open_lake(folder: Path, manifests: Manifests | None = None) -> Iterator[Lake]:
    """Open a lake for reading: a snapshot, whose files are not removed while the body runs.

    Args:
        manifests: of a previous opening; only changed ones are read again.

    Raises:
        InputError: there is no lake, or no manifest can be read.
        OutputError: the recovery after a crash failed.
    """
    install.refuse_links(folder, InputError)
    must_be_a_lake(folder)
    if install.needs_recovery(folder):
        try:
            install.finish_interrupted(folder)
            with suppress(OSError):  # of a store that is read-only for us
                deliver(folder)
        except OSError as error:
            # A process with read permission only reads what is installed.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise OutputError(
                    f"cannot finish what a crash left in {folder}: {error.strerror or error}"
                ) from error
    with shared_lock(folder):
        with mirror.current(folder):
            captures, unread = (manifests or Manifests(folder)).all()
        if unread and not captures:
            raise InputError(unread[0].text)
        yield Lake(folder, tuple(captures), tuple(unread))
    if fetched(folder).bytes:
        mirror.trim(folder)


def verify(lake: Lake) -> list[LakeProblem]:
    """Check every file against its manifest: it exists, its bytes, row count and schema are equal,
    and its rows are of the manifest's captures."""
    problems = [LakeProblem(each.capture_id, each.path, each.fault) for each in lake.unread]
    stored = mirror.of(lake.folder)
    copies = (copy for capture in lake.captures for copy in copies_of(capture))
    unfetched = {} if stored is None else stored.fetched(copies, is_fresh=True)
    for capture in lake.captures:
        named: dict[str, set[str]] = {}
        for part in capture.files:
            path = partitions.part_path(lake.folder, capture, part)
            text = unfetched.get(path) or _wrong(path, part, capture, named)
            if text:
                problems.append(LakeProblem(capture.capture_id, str(path), text))
        due = {table for table in TABLES if SINCE.get(table, 1) <= capture.schema_version}
        without = due - {part.table for part in capture.files}
        problems.extend(
            LakeProblem(capture.capture_id, table, "the table has no file")
            for table in sorted(without)
        )
        if FILES in named:  # reports list captures by this table
            text = _without_row(named[FILES], capture)
            problems += [LakeProblem(capture.capture_id, FILES, text)] if text else []
    return problems + _held_twice(lake) + ([] if stored else _strays(lake))


def _unnamed(names: AbstractSet[str], capture: Manifest) -> str:
    """Describe captures in a file's rows that its manifest lacks; empty if there are none."""
    others = sorted(names - {inside.capture_id for inside in capture.captures()})
    if not others:
        return ""
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    return f"it has rows of {others[0]}{more}, which its manifest does not name: no report has them"


def _without_row(names: AbstractSet[str], capture: Manifest) -> str:
    """Describe captures of the manifest that have no row in capture_files; empty if all have."""
    missing = sorted({inside.capture_id for inside in capture.captures()} - names)
    if not missing:
        return ""
    more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
    return f"it has no row of {missing[0]}{more}, which its manifest names: no report counts them"


def _held_twice(lake: Lake) -> list[LakeProblem]:
    """Return the captures that two manifests contain: reports count their rows twice."""
    owners: dict[str, str] = {}
    problems = []
    for capture in lake.captures:
        for inside in capture.captures():
            other = owners.setdefault(inside.capture_id, capture.capture_id)
            if other != capture.capture_id:
                text = f"it is in {other}, too: reports count its rows twice"
                problems.append(LakeProblem(capture.capture_id, inside.capture_id, text))
    return problems


def _odd(path: Path, is_in_link: bool) -> str:
    """Describe a path that is a link or not a regular file; empty if it is one, or is missing."""
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG
    if is_in_link or stat.S_ISLNK(mode):
        return "a link: what a lake holds lies inside it"
    return "" if stat.S_ISREG(mode) else "no file"


def _wrong(path: Path, part: PartFile, capture: Manifest, named: dict[str, set[str]]) -> str:
    """Describe the defect of a file; empty if it has none. Adds the captures of its rows to `named`
    under its table."""
    text = _odd(path, any(folder.is_symlink() for folder in path.parents[:2]))
    if text:
        return text
    try:
        size = path.stat().st_size
        if size != part.bytes:
            return f"{size} bytes instead of {part.bytes}"
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        if sha256 != part.sha256:
            return "its bytes changed: SHA-256 differs from the manifest's"
        metadata = pq.read_metadata(path)
        schema = metadata.schema.to_arrow_schema()
    except FileNotFoundError:
        return "missing"
    except (OSError, pa.ArrowException) as error:
        return f"not readable: {error}"
    if metadata.num_rows != part.rows:
        return f"{metadata.num_rows} rows instead of {part.rows}"
    if not is_schema_of(schema, part.table, capture.schema_version):
        return "its columns are not those of this schema version"
    names = names_of_rows(path, metadata, capture)
    named.setdefault(part.table, set()).update(names)
    return _unnamed(names, capture)


def _strays(lake: Lake) -> list[LakeProblem]:
    """Return folders and files that no manifest names; skips those of unreadable manifests."""
    folders = {
        partitions.part_path(lake.folder, c, part).parent for c in lake.captures for part in c.files
    }
    files = {partitions.part_path(lake.folder, c, part) for c in lake.captures for part in c.files}
    unread = {each.capture_id for each in lake.unread}
    landings = [
        (lake.folder / table / partition, partitions.id_of(partition))
        for table in TABLES
        for partition in partitions.partitions_in(lake.folder / table)
    ]
    # A capture that is being added has a ready stage, and later a manifest.
    added = install.ready_ids(lake.folder) | set(Manifests(lake.folder).names())
    added -= {capture.capture_id for capture in lake.captures}
    problems = []
    for folder, capture in landings:
        if folder in folders:
            others = sorted(set(folder.iterdir()) - files)
            problems += [LakeProblem(capture, str(path), _STRAY) for path in others]
        elif capture not in unread and capture not in added:
            problems.append(LakeProblem(capture, str(folder), _ORPHAN))
    return problems + [
        LakeProblem(
            install.STAGE_FOLDER, str(stage), "it waits to be installed, but its list is damaged"
        )
        for stage in install.stages(lake.folder)
        if install.replaced_by(stage) is None
    ]


def _manifests_to_change(folder: Path) -> Manifests:
    """Read the manifests of a lake before locking it; under the lock only changed ones are read."""
    install.refuse_links(folder, OutputError)
    must_be_a_lake(folder)
    manifests = Manifests(folder)
    manifests.all()
    return manifests


class Removed(NamedTuple):
    """Result of a removal.

    gone: ids of removed captures.
    orphans: ids of removed files that had no manifest.
    notes: sentences about captures that stay, and why.
    """

    gone: tuple[str, ...]
    orphans: tuple[str, ...]
    notes: tuple[str, ...]


def remove(folder: Path, patterns: Sequence[str] = (), before_ns: int | None = None) -> Removed:
    """Remove captures and whole compacted groups from a lake.

    Args:
        patterns: ids, or globs over ids (`c-night-*`); they also match captures whose manifest is
            damaged, and files without a manifest.
        before_ns: remove also captures whose last packet is older (ns since 1970).

    Raises:
        UsageError: no capture matches.
        InputError: a newer program wrote one of the manifests.
    """

    def chosen(
        captures: Sequence[Manifest], unread: Sequence[UnreadManifest]
    ) -> tuple[Removed, Collection[str]]:
        chosen = {c.capture_id for c in captures if is_named(c.capture_id, patterns)}
        chosen |= {each.capture_id for each in unread if is_named(each.capture_id, patterns)}
        if before_ns is not None:
            chosen |= {c.capture_id for c in captures if (c.last_ts_ns or before_ns) < before_ns}
        ids = {c.capture_id for c in captures} | {each.capture_id for each in unread}
        partitions_of: dict[str, set[str]] = {each.capture_id: set() for each in unread}
        tables = () if mirror.of(folder) else TABLES  # files of a mirror are only copies
        for partition in {p for table in tables for p in partitions.partitions_in(folder / table)}:
            partitions_of.setdefault(partitions.id_of(partition), set()).add(partition)
        orphans = sorted(name for name in partitions_of.keys() - ids if is_named(name, patterns))
        kept = [c for c in captures if c.replaces and c.capture_id not in chosen]
        notes = [note for c in kept if (note := _kept_note(c, patterns, before_ns))]
        if not chosen and not orphans:
            hint = "; ".join(notes) or "`dissector lake list` shows them"
            raise UsageError(f"no capture of the lake fits: {hint}")
        gone = {
            partitions.partition_of(capture) for capture in captures if capture.capture_id in chosen
        }
        for name in (*(chosen & {each.capture_id for each in unread}), *orphans):
            gone |= partitions_of[name] or {partitions.partitions_without_day(name)[0]}
        return Removed(tuple(sorted(chosen)), tuple(orphans), tuple(notes)), gone

    return _remove(folder, chosen)


def remove_chosen(
    folder: Path, choose: Callable[[Sequence[Manifest]], tuple[set[str], list[str]]]
) -> Removed:
    """Remove the captures that `choose` returns: ids, and notes about captures that stay.

    Raises:
        InputError: it is no lake, or a newer program wrote one of the manifests.
    """

    def chosen(
        captures: Sequence[Manifest], _: Sequence[UnreadManifest]
    ) -> tuple[Removed, Collection[str]]:
        ids, notes = choose(captures)
        gone = [partitions.partition_of(each) for each in captures if each.capture_id in ids]
        return Removed(tuple(sorted(ids)), (), tuple(notes)), gone

    return _remove(folder, chosen)


def _remove(
    folder: Path,
    choose: Callable[
        [Sequence[Manifest], Sequence[UnreadManifest]], tuple[Removed, Collection[str]]
    ],
) -> Removed:
    """Remove the partitions that `choose` returns, under the lock for removing."""
    manifests = _manifests_to_change(folder)

    def recover_and_remove() -> Removed:
        install.recover(folder, is_alone=True)
        removed, gone = choose(*manifests.to_change())
        if gone:
            install.remove_captures(folder, sorted(gone))
        return removed

    with install.writing_to(folder), mirror.changing(folder):
        return mirror.retry_overtaken(folder, recover_and_remove)


def _kept_note(group: Manifest, patterns: Sequence[str], before_ns: int | None) -> str:
    """Explain why a group stays though captures in it match; empty if none match."""
    matching = [
        c.capture_id
        for c in group.replaces
        if is_named(c.capture_id, patterns)
        or (before_ns is not None and (c.last_ts_ns or before_ns) < before_ns)
    ]
    if not matching:
        return ""
    return (
        f"{matching[0]}{f' and {len(matching) - 1} more' if len(matching) > 1 else ''} of the "
        f"{len(group.replaces)} captures in {group.capture_id} stay: a compacted group is removed "
        "as a whole, by its own id or when all of it is older"
    )
