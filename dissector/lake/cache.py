"""What is kept beside the captures of a lake, so that a report reads only what is new.

It is small tables that queries made of captures, found again by digests of the query and of what it
read.

    LAKE/_sums/<batch>/index.json      which units and tables, with SHA-256 of each file
    LAKE/_sums/<batch>/<table>.parquet or <table>/*.parquet

A unit is what was read together: one capture, or captures that were joined; its digest is of all
that decides what is found in it. A batch is written whole and put into place by one rename. It is
nothing but a memory: what is missing, damaged or of another query is made again, and a lake that
cannot be written gets none. Files are linked into the folder of whoever reads them, so that a
batch may be removed meanwhile.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dissector.lake.install import SUMS_FOLDER as SUMS
from dissector.lake.locks import hold, is_held

_GONE: Final = ".gone"  # what a batch made again took the place of
_INDEX: Final = "index.json"
_LOCK: Final = "_lock"
_VERSION: Final = 1


class CachePartition(NamedTuple):
    """Captures that are read together, by the names that their rows have."""

    digest: str
    captures: tuple[str, ...]


class CachedRows(NamedTuple):
    """Rows of a table for some units: files, and the captures whose rows of them are meant."""

    paths: tuple[str, ...]
    captures: frozenset[str]
    is_all: bool


class _Batch(NamedTuple):
    folder: Path
    cache_partitions: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, tuple[str, Mapping[str, str]]]  # digest, SHA-256 by file


class Cache:
    """The memory of a lake.

    Args:
        lake: its folder.
        work: a folder of the caller, for links.
        folder: of a memory of its own, which lies below that of all else.
    """

    def __init__(self, lake: Path, work: Path, folder: str = "") -> None:
        self._folder = lake / SUMS / folder
        self._work = work
        self._batches = self._read()
        self._added = 0
        self._linked: dict[tuple[Path, str], tuple[str, ...] | None] = {}

    def _read(self) -> list[_Batch]:
        batches = []
        for index in sorted(self._folder.glob(f"*/{_INDEX}")):
            try:
                content = json.loads(index.read_text("utf-8"))
                if content["version"] != _VERSION:
                    continue
                cache_partitions = {
                    digest: tuple(names) for digest, names in content["units"].items()
                }
                tables = {
                    name: (str(each["digest"]), {str(k): str(v) for k, v in each["files"].items()})
                    for name, each in content["tables"].items()
                }
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                continue  # a memory that cannot be read is none
            batches.append(_Batch(index.parent, cache_partitions, tables))
        return batches

    def __len__(self) -> int:
        """How many batches there were, and were added."""
        return len(self._batches) + self._added

    def sources(
        self, table: str, digest: str, cache_partitions: Iterable[CachePartition]
    ) -> tuple[list[CachedRows], list[CachePartition]]:
        """The cached rows of a table for some partitions, and the partitions that have none.

        Args:
            digest: of the query that made the table.

        Raises:
            ValueError: two partitions have one digest.
        """
        left = _by_digest(cache_partitions)
        cached_rows = []
        for batch in reversed(self._batches):
            held = [left[each] for each in batch.cache_partitions if each in left]
            if not held or batch.tables.get(table, ("", {}))[0] != digest:
                continue
            paths = self._files(batch, table)
            if paths is None:
                continue
            names = frozenset(name for cache_partition in held for name in cache_partition.captures)
            cached_rows.append(CachedRows(paths, names, len(held) == len(batch.cache_partitions)))
            for cache_partition in held:
                del left[cache_partition.digest]
        return cached_rows, list(left.values())

    def every(self, table: str, digest: str) -> list[tuple[str, ...]]:
        """The files of each table that a query made, of whatever captures."""
        files = [
            self._files(batch, table)
            for batch in self._batches
            if batch.tables.get(table, ("", {}))[0] == digest
        ]
        return [paths for paths in files if paths]

    def _files(self, batch: _Batch, table: str) -> tuple[str, ...] | None:
        """Links to the files of a table whose bytes are what they were; None if one is not."""
        key = (batch.folder, table)
        if key not in self._linked:
            self._linked[key] = self._verified(batch, table)
        return self._linked[key]

    def _verified(self, batch: _Batch, table: str) -> tuple[str, ...] | None:
        paths = []
        for name, sha256 in batch.tables[table][1].items():
            if Path(name).is_absolute() or ".." in Path(name).parts:
                return None
            target = self._work / "kept" / batch.folder.name / name
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                link(batch.folder / name, target)
                if hashlib.sha256(target.read_bytes()).hexdigest() != sha256:
                    return None
            except OSError:
                return None
            paths.append(str(target))
        return tuple(paths)

    def add(
        self, made: Path, cache_partitions: Collection[CachePartition], digests: Mapping[str, str]
    ) -> bool:
        """Keep tables; whether the lake could be written.

        Args:
            made: a folder with the files of each table, <table>.parquet or <table>/*.parquet.
            cache_partitions: what their rows are of. digests: of each table's query, by its name.

        Raises:
            ValueError: two partitions have one digest.
        """
        tables = {
            name: {"digest": digest, "files": _digests(made, name)}
            for name, digest in sorted(digests.items())
        }
        index = {
            "version": _VERSION,
            "units": {
                digest: list(cache_partition.captures)
                for digest, cache_partition in _by_digest(sorted(cache_partitions)).items()
            },
            "tables": tables,
        }
        text = json.dumps(index, indent=1) + "\n"
        name = hashlib.sha256(text.encode()).hexdigest()[:24]
        stage = self._folder / f".{name}.{os.urandom(6).hex()}"
        gone = self._folder / f"{_GONE}{stage.suffix}"
        lock = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._remove_left()
            stage.mkdir()
            lock = hold(stage / _LOCK)
            for each in tables.values():
                for file in each["files"]:
                    (stage / file).parent.mkdir(parents=True, exist_ok=True)
                    link(made / file, stage / file)
            (stage / _INDEX).write_text(text, "utf-8")
            if (self._folder / name).exists():  # what is made again was damaged there
                (self._folder / name).rename(gone)
            stage.rename(self._folder / name)
            (self._folder / name / _LOCK).unlink()
        except OSError:
            shutil.rmtree(stage, ignore_errors=True)
            return False
        finally:
            shutil.rmtree(gone, ignore_errors=True)
            if lock is not None:
                os.close(lock)
        self._added += 1
        return True

    def _remove_left(self) -> None:
        """Remove what killed runs left unfinished."""
        for stage in self._folder.glob(".*"):
            is_left = (stage / _LOCK).exists() and not is_held(stage / _LOCK)
            if is_left or stage.stem == _GONE:
                shutil.rmtree(stage, ignore_errors=True)

    def forget(self, cache_partitions: Collection[str]) -> None:
        """Remove batches of which no unit is wanted any more. cache_partitions: digests that
        are.
        """
        for batch in self._batches:
            if not batch.cache_partitions.keys() & set(cache_partitions):
                shutil.rmtree(batch.folder, ignore_errors=True)

    def replace_all(self) -> None:
        """Remove every batch that was there: what they held is in a new one."""
        for batch in self._batches:
            shutil.rmtree(batch.folder, ignore_errors=True)


def _by_digest(cache_partitions: Iterable[CachePartition]) -> dict[str, CachePartition]:
    """Partitions by their digests, which must differ: one would silently stand for the other."""
    by_digest: dict[str, CachePartition] = {}
    for cache_partition in cache_partitions:
        other = by_digest.setdefault(cache_partition.digest, cache_partition)
        if other.captures != cache_partition.captures:
            raise ValueError(
                f"{other.captures[0]} and {cache_partition.captures[0]} have one digest"
            )
    return by_digest


def _digests(made: Path, table: str) -> dict[str, str]:
    single = made / f"{table}.parquet"
    files = [single] if single.is_file() else sorted((made / table).glob("*.parquet"))
    return {
        str(file.relative_to(made)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files
    }


def link(source: Path, target: Path) -> None:
    """Give a file a further name, or copy it where that cannot be; a target that is there stays."""
    if target.exists():
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # not every file system has links
        shutil.copyfile(source, target, follow_symlinks=False)
