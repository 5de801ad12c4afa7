"""The captures of a lake that a report reads: the requested ones, without copies of files."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dissector.errors import UsageError
from dissector.joining.files import digests as digests_of
from dissector.lake.manifest import Manifest
from dissector.lake.reader import Lake

Log = Callable[[str], None]


def chosen_captures(captures: Sequence[Manifest], wanted: Sequence[str] = ()) -> list[Manifest]:
    """The requested captures. wanted: ids; none = all.

    Raises:
        UsageError: an id is not in the lake, or the lake has no capture.
    """
    by_id = {capture.capture_id: capture for capture in captures}
    unknown = [name for name in wanted if name not in by_id]
    for capture in captures:
        if unknown and any(inside.capture_id == unknown[0] for inside in capture.replaces):
            raise UsageError(
                f"{unknown[0]} is in the compacted group {capture.capture_id}: a report can be of "
                "the whole group"
            )
    if unknown:
        raise UsageError(f"no capture {unknown[0]} in the lake: `dissector lake list` shows them")
    if not captures:
        raise UsageError("the lake has no captures: `dissector land` puts some there")
    return [by_id[name] for name in sorted(set(wanted))] if wanted else list(captures)


def held_elsewhere(captures: Sequence[Manifest]) -> dict[str, str]:
    """Captures whose files are all in another capture, by any name; values: that other capture.
    Reading both would count twice. Of captures with equal files the lowest id counts."""
    files = {
        inside.capture_id: frozenset(source.sha256 for source in inside.sources)
        for capture in captures
        for inside in capture.captures()
    }
    by_file: dict[str, list[str]] = {}
    for name, mine in sorted(files.items()):
        for sha256 in mine:
            by_file.setdefault(sha256, []).append(name)
    held_by = {}
    for name, mine in files.items():
        # A capture with all of these files has any one of them.
        for other in by_file[min(mine)] if mine else ():
            if mine < files[other] or (mine == files[other] and other < name):
                held_by[name] = other
                break
    for name, other in held_by.items():
        while other in held_by:  # the other capture may itself be held by a third one
            other = held_by[other]
        held_by[name] = other
    return dict(sorted(held_by.items()))


def held_twice(captures: Sequence[Manifest]) -> list[str]:
    """What to say where the rows of all captures are read: those that are there twice."""
    held = held_elsewhere(captures)
    return [
        f"rows of {name} are there twice: all its files are in {other}, too"
        for name, other in held.items()
    ]


class Counted(NamedTuple):
    """The captures of a report. lake: restricted to the requested captures; digests: of the counted
    ones, by the names in their rows; twice: the others, as from `held_elsewhere`."""

    lake: Lake
    digests: dict[str, str]
    twice: dict[str, str]


def captures_that_count(lake: Lake, wanted: Sequence[str] = (), log: Log | None = None) -> Counted:
    """The captures of a lake that a report counts.

    wanted: ids; none = all. log: gets a line for each capture whose files are in another one, too.

    Raises:
        UsageError: as `chosen_captures` does.
    """
    twice = {} if wanted else held_elsewhere(lake.captures)
    lake = lake._replace(captures=tuple(chosen_captures(lake.captures, wanted)))
    if log is not None:
        for line in held_twice(lake.captures) if wanted else ():
            log(line)
        for name, other in twice.items():
            log(f"{name} is not counted: all its files are in {other}")
    digests = digests_of(lake.captures)
    counting = {name: text for name, text in digests.items() if name not in twice}
    return Counted(lake, counting, twice)


def counted_lake(lake: Lake, wanted: Sequence[str] = ()) -> Lake:
    """The lake of the captures that count; compacted groups of which any counts are whole.

    Raises:
        UsageError: as `chosen_captures` does.
    """
    lake, digests, _ = captures_that_count(lake, wanted)
    counting = (
        one
        for one in lake.captures
        if any(inside.capture_id in digests for inside in one.captures())
    )
    return lake._replace(captures=tuple(counting))
