"""Cache of query results in a lake, so that a report reads only new captures.

It stores small tables that queries computed from captures, keyed by digests of the query and of its
input.

    LAKE/_sums/<batch>/index.json      partitions ("units") and tables, with SHA-256 of each file
    LAKE/_sums/<batch>/<table>.parquet or <table>/*.parquet

A partition is a set of captures that are read together: one capture, or captures that were joined;
its digest covers all that determines the rows. A batch is written whole and installed by one
rename. Rows that are missing, damaged or of another query are computed again; a lake that cannot be
written gets no cache. A reader links the files into its own folder, so that a batch may be removed
meanwhile.
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

_GONE: Final = ".gone"  # suffix of a damaged batch that a new one replaces
_INDEX: Final = "index.json"
_LOCK: Final = "_lock"
_VERSION: Final = 1


class CachePartition(NamedTuple):
    """Captures that are read together. captures: values of the column `capture`."""

    digest: str
    captures: tuple[str, ...]


class CachedRows(NamedTuple):
    """Cached rows of a table: the rows of `captures` in the files. is_all: the files have only
    these."""

    paths: tuple[str, ...]
    captures: frozenset[str]
    is_all: bool


class _Batch(NamedTuple):
    folder: Path
    cache_partitions: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, tuple[str, Mapping[str, str]]]  # digest, SHA-256 by file


class Cache:
    """The cache of a lake.

    Args:
        lake: its folder.
        work: a folder of the caller, for links.
        folder: subfolder of `_sums` for a separate cache.
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
                continue  # ignore an unreadable batch
            batches.append(_Batch(index.parent, cache_partitions, tables))
        return batches

    def __len__(self) -> int:
        """Number of batches, added ones included."""
        return len(self._batches) + self._added

    def sources(
        self, table: str, digest: str, cache_partitions: Iterable[CachePartition]
    ) -> tuple[list[CachedRows], list[CachePartition]]:
        """Return the cached rows of a table for some partitions, and the partitions without rows.

        Args:
            digest: of the query that computes the table.

        Raises:
            ValueError: two partitions have one digest.
        """
        left = _by_digest(cache_partitions)
        cached_rows = []
        for batch in reversed(self._batches):
            cached = [left[each] for each in batch.cache_partitions if each in left]
            if not cached or batch.tables.get(table, ("", {}))[0] != digest:
                continue
            paths = self._files(batch, table)
            if paths is None:
                continue
            names = frozenset(name for partition in cached for name in partition.captures)
            cached_rows.append(CachedRows(paths, names, len(cached) == len(batch.cache_partitions)))
            for cache_partition in cached:
                del left[cache_partition.digest]
        return cached_rows, list(left.values())

    def every(self, table: str, digest: str) -> list[tuple[str, ...]]:
        """Return, per batch, the files of a table that a query computed, for any captures."""
        files = [
            self._files(batch, table)
            for batch in self._batches
            if batch.tables.get(table, ("", {}))[0] == digest
        ]
        return [paths for paths in files if paths]

    def _files(self, batch: _Batch, table: str) -> tuple[str, ...] | None:
        """Return verified links to the files of a table; None if a file is missing or changed."""
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
        """Store tables as a batch; return whether the lake could be written.

        Args:
            made: a folder with the files of each table, <table>.parquet or <table>/*.parquet.
            cache_partitions: of their rows. digests: of each table's query, by table name.

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
            if (self._folder / name).exists():  # it is damaged, else its rows would have been used
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
        """Delete unfinished batches of killed runs."""
        for stage in self._folder.glob(".*"):
            is_abandoned = (stage / _LOCK).exists() and not is_held(stage / _LOCK)
            if is_abandoned or stage.stem == _GONE:
                shutil.rmtree(stage, ignore_errors=True)

    def forget(self, cache_partitions: Collection[str]) -> None:
        """Delete batches that have none of these partitions. cache_partitions: digests to keep."""
        for batch in self._batches:
            if not batch.cache_partitions.keys() & set(cache_partitions):
                shutil.rmtree(batch.folder, ignore_errors=True)

    def replace_all(self) -> None:
        """Delete all batches but the ones added by this object, which contain their rows."""
        for batch in self._batches:
            shutil.rmtree(batch.folder, ignore_errors=True)


def _by_digest(cache_partitions: Iterable[CachePartition]) -> dict[str, CachePartition]:
    """Map partitions by digest; digests must differ, else one partition would replace another."""
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
    """Create a hard link, or a copy if links are not possible; an existing target stays."""
    if target.exists():
        return
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:  # some file systems lack hard links
        shutil.copyfile(source, target, follow_symlinks=False)
