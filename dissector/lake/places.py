"""Where the files of a capture, or of a compacted group, lie: a folder in that of each table.

    LAKE/<table>/day=2026-01-31/landing=<id>/part-00000.parquet
    LAKE/<table>/landing=<id>/…     schema versions 2 and 3
    LAKE/<table>/capture=<id>/…     version 1, which kept the capture in the name alone, so that
                                    rows of a compacted group had two: the group and their origin

A place is what stands between the table and the file. The day is that of the capture's first
packet, UTC: all of its rows lie in it, also those of later days.
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
# Of captures without a packet. It is what Hive calls null, and its readers take it for that.
NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
NS_PER_DAY: Final = 86_400_000_000_000
_LANDING: Final = "landing"
_OF_VERSION_1: Final = "capture"
_BY_DAY_SINCE: Final = 4
_PLACE: Final = re.compile(rf"(?:{DAY}=[^/]+/)?(?:{_LANDING}|{_OF_VERSION_1})=[^/]+")
_FIRST_DAY: Final = datetime(1970, 1, 1, tzinfo=UTC)


def day_of(first_ts_ns: int | None) -> str:
    """The day of a time, as folders are named by it."""
    if first_ts_ns is None:
        return NO_DAY
    return (_FIRST_DAY + timedelta(days=first_ts_ns // NS_PER_DAY)).strftime("%Y-%m-%d")


def place_of(capture: Manifest) -> str:
    """The place of a capture or group."""
    if capture.schema_version < _BY_DAY_SINCE:
        return places_without_day(capture.capture_id)[capture.schema_version == 1]
    return f"{DAY}={day_of(capture.first_ts_ns)}/{_LANDING}={capture.capture_id}"


def places_without_day(capture: str) -> tuple[str, str]:
    """Where older programs put the files of a capture."""
    return f"{_LANDING}={capture}", f"{_OF_VERSION_1}={capture}"


def id_at(place: str) -> str:
    """The id of what lies at a place."""
    return place.rpartition("/")[2].partition("=")[2]


def is_place(name: object) -> bool:
    """Whether something is a place, and none elsewhere."""
    if not isinstance(name, str) or not _PLACE.fullmatch(name):
        return False
    return all(is_plain_name(part) for part in name.split("/"))


def part_name(capture: Manifest, part: PartFile) -> str:
    """The name of one file of a capture, from its lake on."""
    return f"{part.table}/{place_of(capture)}/{part.name}"


def part_path(lake: Path, capture: Manifest, part: PartFile) -> Path:
    """Where one file of a capture is."""
    return lake / part_name(capture, part)


def places_in(table: Path) -> list[str]:
    """The places of a table's folder at which something lies, links among them."""
    places: list[str] = []
    for name in _folders(table):
        inner = [f"{name}/{each}" for each in _folders(table / name)] if _is_day(name) else [name]
        places += filter(is_place, inner)
    return sorted(places)


def landings_of_days(lake: Path) -> dict[str, int]:
    """How many landings lie in each day of a lake, by its name."""
    table = lake / next(iter(TABLES))
    days = filter(_is_day, _folders(table))
    return {day.partition("=")[2]: len(list(_folders(table / day))) for day in days}


def groups_of_day(lake: Path, capture: Manifest) -> list[str]:
    """The ids of the compacted groups that lie in the day of a capture."""
    folder = (lake / next(iter(TABLES)) / place_of(capture)).parent
    return [name for name in map(id_at, _folders(folder)) if name.startswith(GROUP_PREFIX)]


def links_above(files: Iterable[Path]) -> set[Path]:
    """The folders of files of one table that are links, on whose other side may be anything. Only
    days of these files are looked at."""
    days = {folder.parent for folder in {path.parent for path in files}}
    links = {folder for folder in days if _is_day(folder.name) and folder.is_symlink()}
    for folder in days:
        links |= {Path(entry.path) for entry in _entries(folder) if entry.is_symlink()}
    return links


def _is_day(name: str) -> bool:
    return name.startswith(f"{DAY}=")


def _folders(folder: Path) -> Iterator[str]:
    """The names of folders, and of links to some, in a folder."""
    return (entry.name for entry in _entries(folder) if entry.is_dir())


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What a folder holds, none if it is not there; what is a link needs no further look."""
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


# -- changing them; whoever does holds the lock for it


def put(lake: Path, staged: Path, table: str, place: str) -> tuple[Path, ...]:
    """Rename a staged folder of a table to a place, instead of what is there.

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
    """Remove what lies at places; of a link, only the link. A day without landings goes, too."""
    for place in places:
        for table in tables:
            folder = lake / table / place
            is_in_day = "/" in place
            if is_in_day and folder.parent.is_symlink():
                folder.parent.unlink()
            elif _delete_folder(folder) and is_in_day:
                remove_if_empty(folder.parent)


def _delete_folder(folder: Path) -> bool:
    """Remove a folder, or a link; whether there was one."""
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
    """Remove a folder that holds nothing."""
    try:
        folder.rmdir()
    except OSError:
        return
