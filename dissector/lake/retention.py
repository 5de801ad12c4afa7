"""Upkeep of a lake that grows for years.

Removes whole old days, and compacts the small captures of days with many landings.
"""

import os
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from dissector.errors import DissectorError
from dissector.lake import install, mirror, partitions, reader
from dissector.lake.compact import Choice, Compacted, compact_chosen
from dissector.lake.manifest import Manifest
from dissector.lake.manifests import crowded_days
from dissector.lake.reader import Removed
from dissector.lake.settings import SETTINGS
from dissector.limits import MAX_DAY_LANDINGS

_NICE: Final = 10  # below the tap's own process


def cutoff_ns(days: int, now_s: float | None = None) -> int:
    """Return the midnight (UTC) that begins the last `days` days, today included; ns since 1970.

    Args:
        now_s: seconds since 1970; None for the current time.
    """
    today = int(time.time() if now_s is None else now_s) * 1_000_000_000 // partitions.NS_PER_DAY
    return (today - days + 1) * partitions.NS_PER_DAY


def keep(folder: Path, before_ns: int) -> Removed:
    """Remove the days of which every capture ended before a time.

    A capture belongs to the day of its first packet. If it ends after the time, its whole day
    stays: removing it would remove younger rows.

    Args:
        before_ns: ns since 1970, see cutoff_ns.

    Raises:
        InputError: it is no lake, or a newer program wrote one of the manifests.
    """

    def chosen(captures: Collection[Manifest]) -> tuple[set[str], list[str]]:
        old: dict[str, list[Manifest]] = {}
        for capture in captures:
            day = partitions.day_of(capture.first_ts_ns)
            if (capture.first_ts_ns if capture.first_ts_ns is not None else before_ns) < before_ns:
                old.setdefault(day, []).append(capture)
        gone: set[str] = set()
        notes = []
        for day, of_day in sorted(old.items()):
            last = max(of_day, key=lambda capture: capture.last_ts_ns or 0)
            if (last.last_ts_ns or 0) < before_ns:
                gone |= {capture.capture_id for capture in of_day}
            else:
                end = partitions.day_of(last.last_ts_ns)
                notes.append(f"{day} stays: its capture {last.capture_id} ends on {end}")
        return gone, notes

    return reader.remove_chosen(folder, chosen)


def compact_crowded(folder: Path, days: Collection[str] | None = None) -> Compacted:
    """Compact the small captures of crowded days, unless a process uses the lake just now.

    Args:
        days: only these, if they are crowded; None for all.

    Raises:
        InputError: a newer program wrote one of the manifests.
        OutputError: the lake cannot be written.
    """
    crowded = [day for day in crowded_days(folder) if days is None or day in days]
    if not crowded:
        return Compacted((), ())
    least = MAX_DAY_LANDINGS // 2  # if fewer match, most landings of the day are large already
    choice = Choice(most_bytes=SETTINGS.part_bytes, days=crowded, is_tiered=True, least=least)
    with install.writing_to(folder), mirror.changing(folder, may_wait=False) as is_free:
        pass  # test the lock first: without it, the files would be written in vain
    return compact_chosen(folder, choice, may_wait=False) if is_free else Compacted((), ())


def _main(arguments: list[str]) -> None:
    """Run the upkeep of a tap's lake in a process of its own. Arguments: LAKE and, once a day, the
    number of days to keep (0: all).

    The last line on standard error is the error message, if any.
    """
    folder, is_daily = Path(arguments[0]), len(arguments) > 1
    os.nice(_NICE)
    try:
        if is_daily and (days := int(arguments[1])):
            keep(folder, cutoff_ns(days))
        compact_crowded(folder)
        if is_daily:
            mirror.tidy(folder)
    except DissectorError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    _main(sys.argv[1:])
