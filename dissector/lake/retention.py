"""The upkeep of a lake that grows for years.

Days that are old go as a whole; of those that hold many captures, the small ones become a group.
"""

import os
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

from dissector.errors import DissectorError
from dissector.lake import install, mirror, places, reader
from dissector.lake.compact import Choice, Compacted, compact_chosen
from dissector.lake.manifest import Manifest
from dissector.lake.manifests import crowded_days
from dissector.lake.reader import Removed
from dissector.lake.settings import SETTINGS
from dissector.limits import MAX_DAY_LANDINGS

_NICE: Final = 10  # packets go first


def cutoff_ns(days: int, now_s: float | None = None) -> int:
    """The midnight (UTC) with which the last days begin, today included, in ns since 1970.

    Args:
        now_s: seconds since 1970, else the clock's.
    """
    today = int(time.time() if now_s is None else now_s) * 1_000_000_000 // places.NS_PER_DAY
    return (today - days + 1) * places.NS_PER_DAY


def keep(folder: Path, before_ns: int) -> Removed:
    """Remove whole days from a lake: those of which every capture ended before a time.

    A capture belongs to the day of its first packet. One that goes on after the time keeps its day,
    as rows of its later days would be gone too early.

    Args:
        before_ns: ns since 1970, see cutoff_ns.

    Raises:
        InputError: it is no lake, or a newer program wrote some of it.
    """

    def chosen(captures: Collection[Manifest]) -> tuple[set[str], list[str]]:
        old: dict[str, list[Manifest]] = {}
        for capture in captures:
            day = places.day_of(capture.first_ts_ns)
            if (capture.first_ts_ns if capture.first_ts_ns is not None else before_ns) < before_ns:
                old.setdefault(day, []).append(capture)
        gone: set[str] = set()
        notes = []
        for day, of_day in sorted(old.items()):
            last = max(of_day, key=lambda capture: capture.last_ts_ns or 0)
            if (last.last_ts_ns or 0) < before_ns:
                gone |= {capture.capture_id for capture in of_day}
            else:
                end = places.day_of(last.last_ts_ns)
                notes.append(f"{day} stays: its capture {last.capture_id} ends on {end}")
        return gone, notes

    return reader.remove_chosen(folder, chosen)


def compact_crowded(folder: Path, days: Collection[str] | None = None) -> Compacted:
    """Put together the small captures of days that hold many, if nobody uses the lake just now.

    Args:
        days: only these, if they are crowded; None for all.

    Raises:
        InputError: a newer program wrote some of the lake.
        OutputError: the lake cannot be written.
    """
    some = [day for day in crowded_days(folder) if days is None or day in days]
    if not some:
        return Compacted((), ())
    least = MAX_DAY_LANDINGS // 2  # fewer are not worth it: the others are large already
    choice = Choice(most_bytes=SETTINGS.part_bytes, days=some, is_tiered=True, least=least)
    with install.writing_to(folder), mirror.changing(folder, may_wait=False) as is_free:
        pass  # else all would be written for nothing
    return compact_chosen(folder, choice, may_wait=False) if is_free else Compacted((), ())


def _main(arguments: list[str]) -> None:
    """The upkeep of a tap's lake, in a process of its own: LAKE and, once a day, how many days of
    it stay (0: all).

    What goes wrong is the last line of what it writes to standard error.
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
