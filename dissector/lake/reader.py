"""Reading a lake: what it holds, whether it is whole, and taking captures out of it."""

import fnmatch
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from dissector.errors import InputError, UsageError
from dissector.lake.install import (
    delete_tables,
    needs_recovery,
    recover,
    table_folder,
    writing_to,
)
from dissector.lake.locks import exclusive_lock, shared_lock
from dissector.lake.manifest import MANIFEST_FOLDER, Manifest, PartFile, read_manifests
from dissector.schemas import TABLES
from dissector.schemas.arrow import arrow_schema

_HASH_BYTES: Final = 1 << 20


class Problem(NamedTuple):
    """Something wrong in a lake: the capture, the file or folder, and what is wrong with it."""

    capture_id: str
    path: str
    text: str


class Lake(NamedTuple):
    """A lake that is being read; its captures by id."""

    folder: Path
    captures: tuple[Manifest, ...]

    def part_paths(self, table: str) -> list[str]:
        """The Parquet files of a table, of captures that exist."""
        return [
            str(table_folder(self.folder, table, capture.capture_id) / part.name)
            for capture in self.captures
            for part in capture.files
            if part.table == table
        ]

    def table(self, table: str, columns: Sequence[str] | None = None) -> pa.Table:
        """All rows of a table, `capture` as the last column; for small lakes and tests."""
        wanted = list(columns) if columns is not None else [c.name for c in TABLES[table].columns]
        tables = []
        for capture in self.captures:
            for part in capture.files:
                if part.table != table:
                    continue
                path = table_folder(self.folder, table, capture.capture_id) / part.name
                rows = pq.ParquetFile(path).read(columns=wanted)
                ids = pa.repeat(pa.scalar(capture.capture_id), rows.num_rows)
                tables.append(rows.append_column("capture", ids))
        if tables:
            return pa.concat_tables(tables)
        schema = pa.schema([arrow_schema(table).field(name) for name in wanted])
        return schema.append(pa.field("capture", pa.string())).empty_table()


def must_be_a_lake(folder: Path) -> None:
    """Refuse a folder without captures.

    Raises:
        InputError: it is not a lake.
    """
    if not (folder / MANIFEST_FOLDER).is_dir() and not needs_recovery(folder):
        raise InputError(f"{folder} is not a lake: it has no captures; `land` writes one")


@contextmanager
def open_lake(folder: Path) -> Iterator[Lake]:
    """Read a lake; nobody changes it meanwhile.

    Raises:
        InputError: there is no lake, or a newer program wrote it.
    """
    must_be_a_lake(folder)
    if needs_recovery(folder):
        try:
            with exclusive_lock(folder):
                recover(folder)
        except PermissionError:
            pass  # Whoever may only read sees what is installed.
    with shared_lock(folder):
        yield Lake(folder, tuple(read_manifests(folder)))


def verify(lake: Lake) -> list[Problem]:
    """Compare every file with its manifest: there, same bytes, readable, rows and schema right."""
    problems = []
    for capture in lake.captures:
        for part in capture.files:
            path = table_folder(lake.folder, part.table, capture.capture_id) / part.name
            text = _wrong(path, part)
            if text:
                problems.append(Problem(capture.capture_id, str(path), text))
        without = TABLES.keys() - {part.table for part in capture.files}
        problems.extend(
            Problem(capture.capture_id, table, "the table has no file") for table in sorted(without)
        )
    return problems + _strays(lake)


def _wrong(path: Path, part: PartFile) -> str:
    """What is wrong with a file, empty if nothing is."""
    try:
        size = path.stat().st_size
        if size != part.bytes:
            return f"{size} bytes instead of {part.bytes}"
        if _sha256(path) != part.sha256:
            return "its bytes changed: SHA-256 differs from the manifest's"
        metadata = pq.read_metadata(path)
        schema = pq.read_schema(path)
    except FileNotFoundError:
        return "missing"
    except (OSError, pa.ArrowException) as error:
        return f"not readable: {error}"
    if metadata.num_rows != part.rows:
        return f"{metadata.num_rows} rows instead of {part.rows}"
    if not schema.equals(arrow_schema(part.table)):
        return "its columns are not those of this schema version"
    return ""


def _strays(lake: Lake) -> list[Problem]:
    """Folders and files that belong to no capture."""
    named = {
        table_folder(lake.folder, part.table, capture.capture_id) / part.name
        for capture in lake.captures
        for part in capture.files
    }
    problems = []
    for table in TABLES:
        for path in sorted((lake.folder / table).glob("*/*")):
            if path not in named:
                capture = path.parent.name.removeprefix("capture=")
                problems.append(Problem(capture, str(path), "no manifest names this file"))
    return problems


def remove(folder: Path, patterns: Sequence[str] = (), before_ns: int | None = None) -> list[str]:
    """Take captures out of a lake.

    Args:
        patterns: ids, or globs over ids (`c-night-*`).
        before_ns: also those whose last packet is older (ns since 1970).

    Returns:
        The ids of the captures that are gone.

    Raises:
        UsageError: no capture fits.
    """
    must_be_a_lake(folder)
    with writing_to(folder), exclusive_lock(folder):
        recover(folder)
        gone = []
        for capture in read_manifests(folder):
            named = any(fnmatch.fnmatchcase(capture.capture_id, p) for p in patterns)
            last = capture.last_ts_ns
            if named or (before_ns is not None and last is not None and last < before_ns):
                gone.append(capture.capture_id)
        if not gone:
            raise UsageError("no capture of the lake fits: `lake list` shows them")
        for capture_id in gone:
            (folder / MANIFEST_FOLDER / f"{capture_id}.json").unlink()
        for capture_id in gone:
            delete_tables(folder, capture_id)
    return gone


def _sha256(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_HASH_BYTES):
            found.update(data)
    return found.hexdigest()
