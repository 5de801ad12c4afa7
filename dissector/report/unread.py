"""Frames that were seen but not read: their command is known, what it was about is not.

A packet that was cut short may show that a MESSAGE passed and not to whom. No table but `frames`
has a row of it. A count of deliveries would then say less than happened, or nothing at all.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow.compute as pc

from dissector.report.names import without_twins
from dissector.report.numbers import Row, unseen
from dissector.report.parts import Parts
from dissector.report.tallies import FRAMES, TALLIES, add_up


def unread(parts: Parts, command: str, tally: str, counted: str) -> int:
    """Frames of a command less what a tally counted of them, connection by connection.

    Args:
        command: of Pulsar, with a row of its own in another table for every frame that was read.
        tally: one with connections. counted: its sum that says how many were read.
    """
    keys = ["capture", "connection_id"]
    frames = parts.tables["frames"]
    is_asked = pc.and_(
        pc.equal(frames.column("protocol"), "pulsar"), pc.equal(frames.column("command"), command)
    )
    sent = without_twins(frames.filter(is_asked), parts.names)
    found: Counter[tuple[Any, ...]] = Counter()
    for row in add_up(sent, FRAMES, keys).to_pylist():
        found[_place(parts, row)] += row["frames"] or 0
    for row in add_up(parts.tables[tally], TALLIES[tally], keys).to_pylist():
        found[_place(parts, row)] -= row[counted] or 0
    return sum(count for count in found.values() if count > 0)


def _place(parts: Parts, row: Row) -> tuple[Any, ...]:
    """The connection as it counts: frames lie where they were captured, rows where they joined."""
    place = (row["capture"], row["connection_id"])
    return parts.heads.get(place, place)


def unread_requests(parts: Parts, commands: Iterable[str]) -> int:
    """Frames of some commands, which only clients send, without a row in `exchanges`."""
    requests = parts.tables["requests"]
    found = 0
    for command in commands:
        of_command = requests.filter(pc.equal(requests.column("request_command"), command))
        mine = parts._replace(tables=parts.tables | {"requests": of_command})
        found += unread(mine, command, "requests", "requests")
    return found


def with_unread(section: Row, reason: str, count: int, counted: str, keys: Iterable[str]) -> Row:
    """A section whose total tells the frames that were not read; None where none could be.

    Args:
        section: with `total` and lists of the same keys.
        reason: of `count` in not_judged. counted: the number of those that were read.
        keys: what is counted in such frames.
    """
    if not count:
        return section
    total = section["total"]
    total["not_judged"] = dict(sorted((total["not_judged"] | {reason: count}).items()))
    if total[counted]:
        return section
    return section | {"total": unseen(total, *keys)}
