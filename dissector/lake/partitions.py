"""Partition folders of a lake: one per table and capture (or compacted group).

    LAKE/<table>/day=2026-01-31/landing=<id>/part-00000.parquet
    LAKE/<table>/landing=<id>/…     schema versions 2 and 3
    LAKE/<table>/capture=<id>/…     version 1: its files lack the column `capture`; rows of a group
                                    name their own capture in `origin_capture`

A partition is named by the path between the table's folder and the file name. The day is that of
the capture's first packet, UTC; it contains all of the capture's rows, also those of later days.
"""

import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from dissector.lake.manifest import GROUP_PREFIX, Manifest, PartFile, is_plain_name
from dissector.schemas import TABLES

DAY: Final = "day"
# The day of captures without a packet: Hive's name of a null partition, which readers know.
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
NS_PER_DAY: Final = 86_400_000_000_000
_LANDING: Final = "landing"
_OF_VERSION_1: Final = "capture"
_BY_DAY_SINCE: Final = 4
_PARTITION: Final = re.compile(rf"(?:{DAY}=[^/]+/)?(?:{_LANDING}|{_OF_VERSION_1})=[^/]+")
_FIRST_DAY: Final = datetime(1970, 1, 1, tzinfo=UTC)


def day_of(first_ts_ns: int | None) -> str:
    """Return the day (UTC) of a time in folder names: YYYY-MM-DD, NO_DAY for None."""
    if first_ts_ns is None:
        return NO_DAY
    return (_FIRST_DAY + timedelta(days=first_ts_ns // NS_PER_DAY)).strftime("%Y-%m-%d")


def partition_of(capture: Manifest) -> str:
    """Return the partition of a capture or group: the path between a table and its files."""
    if capture.schema_version < _BY_DAY_SINCE:
        return partitions_without_day(capture.capture_id)[capture.schema_version == 1]
    return f"{DAY}={day_of(capture.first_ts_ns)}/{_LANDING}={capture.capture_id}"


def partitions_without_day(capture: str) -> tuple[str, str]:
    """Return the partitions of a capture's files in schema versions 2 and 3, and in version 1."""
    return f"{_LANDING}={capture}", f"{_OF_VERSION_1}={capture}"


def id_of(partition: str) -> str:
    """Return the id of the capture or group of a partition."""
    return partition.rpartition("/")[2].partition("=")[2]


def is_partition(name: object) -> bool:
    """Whether a value is a well-formed path of a partition, which leads nowhere else (no `..`)."""
    if not isinstance(name, str) or not _PARTITION.fullmatch(name):
        return False
    return all(is_plain_name(part) for part in name.split("/"))


def part_name(capture: Manifest, part: PartFile) -> str:
    """Return the path of a capture's file relative to the lake."""
    return f"{part.table}/{partition_of(capture)}/{part.name}"


def part_path(lake: Path, capture: Manifest, part: PartFile) -> Path:
    """Return the path of a capture's file."""
    return lake / part_name(capture, part)


def partitions_in(table: Path) -> list[str]:
    """Return the sorted partitions that exist in a table's folder, symbolic links included."""
    partitions: list[str] = []
    for name in _folders(table):
        inner = [f"{name}/{each}" for each in _folders(table / name)] if _is_day(name) else [name]
        partitions += filter(is_partition, inner)
    return sorted(partitions)


def landings_of_days(lake: Path) -> dict[str, int]:
    """Return the number of landings of each day of a lake, by day."""
    table = lake / next(iter(TABLES))
    days = filter(_is_day, _folders(table))
    return {day.partition("=")[2]: len(list(_folders(table / day))) for day in days}


def groups_of_day(lake: Path, capture: Manifest) -> list[str]:
    """Return the ids of the compacted groups in the day of a capture."""
    folder = (lake / next(iter(TABLES)) / partition_of(capture)).parent
    return [name for name in map(id_of, _folders(folder)) if name.startswith(GROUP_PREFIX)]


def links_above(files: Iterable[Path]) -> set[Path]:
    """Return the day and landing folders that are symbolic links, in the days of these files of one
    table. Their targets are not trusted."""
    days = {folder.parent for folder in {path.parent for path in files}}
    links = {folder for folder in days if _is_day(folder.name) and folder.is_symlink()}
    for folder in days:
        links |= {Path(entry.path) for entry in _entries(folder) if entry.is_symlink()}
    return links


def _is_day(name: str) -> bool:
    return name.startswith(f"{DAY}=")


def _folders(folder: Path) -> Iterator[str]:
    """Yield the names of a folder's subfolders, links to folders included."""
    return (entry.name for entry in _entries(folder) if entry.is_dir())


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; empty if it does not exist."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


# -- changing the folders; the caller holds the lock for it


def put(lake: Path, staged: Path, table: str, partition: str) -> tuple[Path, ...]:
    """Rename a staged folder of a table to a partition; deletes what that contained.

    Returns:
        The folders that changed, for the caller to sync.
    """
    target = lake / table / partition
    delete(lake, (partition,), (table,))
    try:
        staged.rename(target)
    except FileNotFoundError:  # the first capture of its day, or with this table
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(target)
        return target.parent, lake / table
    return (target.parent,)


def delete(lake: Path, partitions: Iterable[str], tables: Iterable[str] = tuple(TABLES)) -> None:
    """Delete the folders of partitions, and days that become empty; of a link, only the link."""
    for partition in partitions:
        for table in tables:
            folder = lake / table / partition
            is_in_day = "/" in partition
            if is_in_day and folder.parent.is_symlink():
                folder.parent.unlink()
            elif _delete_folder(folder) and is_in_day:
                remove_if_empty(folder.parent)


def _delete_folder(folder: Path) -> bool:
    """Delete a folder or a link; return whether it existed."""
    try:
        mode = os.lstat(folder).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if stat.S_ISLNK(mode):
        folder.unlink()
    elif stat.S_ISDIR(mode):
        shutil.rmtree(folder)
    return True


def remove_if_empty(folder: Path) -> None:
    """Delete a folder if it is empty."""
    try:
        folder.rmdir()
    except OSError:
        return
