"""Partition folders of a lake: one per table and capture (or compacted group).

    LAKE/<table>/day=2026-01-31/landing=<id>/part-00000.parquet
    LAKE/<table>/landing=<id>/…     schema versions 2 and 3
    LAKE/<table>/capture=<id>/…     version 1: its files lack the column `capture`; rows of a group
                                    name their own capture in `origin_capture`

A place is the path between the table's folder and the file name. The day is that of the capture's
first packet, UTC; it contains all of the capture's rows, also those of later days.
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
_PLACE: Final = re.compile(rf"(?:{DAY}=[^/]+/)?(?:{_LANDING}|{_OF_VERSION_1})=[^/]+")
_FIRST_DAY: Final = datetime(1970, 1, 1, tzinfo=UTC)


def day_of(first_ts_ns: int | None) -> str:
    """Return the day (UTC) of a time in folder names: YYYY-MM-DD, NO_DAY for None."""
    if first_ts_ns is None:
        return NO_DAY
    return (_FIRST_DAY + timedelta(days=first_ts_ns // NS_PER_DAY)).strftime("%Y-%m-%d")


def place_of(capture: Manifest) -> str:
    """Return the place of a capture or group."""
    if capture.schema_version < _BY_DAY_SINCE:
        return places_without_day(capture.capture_id)[capture.schema_version == 1]
    return f"{DAY}={day_of(capture.first_ts_ns)}/{_LANDING}={capture.capture_id}"


def places_without_day(capture: str) -> tuple[str, str]:
    """Return the places of a capture's files in schema versions 2 and 3, and in version 1."""
    return f"{_LANDING}={capture}", f"{_OF_VERSION_1}={capture}"


def id_at(place: str) -> str:
    """Return the id of the capture or group at a place."""
    return place.rpartition("/")[2].partition("=")[2]


def is_place(name: object) -> bool:
    """Whether a value is a well-formed place, which leads nowhere else (no `..`)."""
    if not isinstance(name, str) or not _PLACE.fullmatch(name):
        return False
    return all(is_plain_name(part) for part in name.split("/"))


def part_name(capture: Manifest, part: PartFile) -> str:
    """Return the path of a capture's file relative to the lake."""
    return f"{part.table}/{place_of(capture)}/{part.name}"


def part_path(lake: Path, capture: Manifest, part: PartFile) -> Path:
    """Return the path of a capture's file."""
    return lake / part_name(capture, part)


def places_in(table: Path) -> list[str]:
    """Return the sorted places that exist in a table's folder, symbolic links included."""
    places: list[str] = []
    for name in _folders(table):
        inner = [f"{name}/{each}" for each in _folders(table / name)] if _is_day(name) else [name]
        places += filter(is_place, inner)
    return sorted(places)


def landings_of_days(lake: Path) -> dict[str, int]:
    """Return the number of landings of each day of a lake, by day."""
    table = lake / next(iter(TABLES))
    days = filter(_is_day, _folders(table))
    return {day.partition("=")[2]: len(list(_folders(table / day))) for day in days}


def groups_of_day(lake: Path, capture: Manifest) -> list[str]:
    """Return the ids of the compacted groups in the day of a capture."""
    folder = (lake / next(iter(TABLES)) / place_of(capture)).parent
    return [name for name in map(id_at, _folders(folder)) if name.startswith(GROUP_PREFIX)]


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


def put(lake: Path, staged: Path, table: str, place: str) -> tuple[Path, ...]:
    """Rename a staged folder of a table to a place; deletes what the place contained.

    Returns:
        The folders that changed, for the caller to sync.
    """
    target = lake / table / place
    delete(lake, (place,), (table,))
    try:
        staged.rename(target)
    except FileNotFoundError:  # the first capture of its day, or with this table
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(target)
        return target.parent, lake / table
    return (target.parent,)


def delete(lake: Path, places: Iterable[str], tables: Iterable[str] = tuple(TABLES)) -> None:
    """Delete the folders at places, and days that become empty; of a link, only the link."""
    for place in places:
        for table in tables:
            folder = lake / table / place
            is_in_day = "/" in place
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
