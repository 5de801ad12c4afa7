"""A group of captures in stretches: what lands behind it does not make all of it read again.

Connections that go on over midnight put the captures of all nights into one group. One with more
rows than a bound is cut at borders of captures, from its first one on: a *stretch* ends with the
capture with which it reaches the bound, if another one follows. Each is replayed from what stood
open at the end of the one before (`standing`) and has the rows that close in it; the last one also
has those that stay open. So a stretch depends on what comes before, and on where its connections go
on, and is not touched by what lands behind the next one.

A border is one only if everything before it was captured before everything behind it: captures that
lasted at the same time are merged by time. Groups with traffic of Cursus stay whole, since what its
replay remembers is no table of numbers.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from dissector.joining.links import Place, Plan, Seam, in_turn

MAX_ROWS: Final = 20_000_000  # of a stretch, but for its last capture


class Stretch(NamedTuple):
    """Captures of a group that are replayed together.

    part: their plan; its seams are those that begin or end in them. before: the captures of earlier
    stretches, in order; near: captures of other stretches that share connections with these; later:
    heads of connections that go on in later ones. digest: of all that decides its rows.
    """

    part: Plan
    before: tuple[str, ...]
    near: frozenset[str]
    later: tuple[Place, ...]
    is_last: bool
    digest: str

    @property
    def captures(self) -> tuple[str, ...]:
        """Its captures, in order."""
        return self.part.groups[0].captures


class Known(NamedTuple):
    """What decides where a group is cut, by captures: first and last packet in ns, rows of all
    tables, and digests; whole: captures whose group stays in one piece."""

    spans: Mapping[str, tuple[int, int]]
    rows: Mapping[str, int]
    digests: Mapping[str, str]
    whole: frozenset[str]


def stretches(part: Plan, known: Known, max_rows: int) -> list[Stretch]:
    """The stretches of a group, in order; one if it is not cut.

    Args:
        part: the plan of one group.
    """
    (group,) = part.groups
    names = group.captures
    edges = [0, *_borders(part, known, max_rows), len(names)]
    found: list[Stretch] = []
    digest = ""
    for first, last in pairwise(edges):
        own, before = set(names[first:last]), set(names[:first])
        floors = group.floors[first:last]
        mine = group._replace(
            captures=names[first:last],
            floors=floors,
            is_in_turn=in_turn(floors, [known.spans[name] for name in names[first:last]]),
        )
        seams = tuple(s for s in part.seams if s.before[0] in own or s.after[0] in own)
        moved = {place: head for place, head in part.moved.items() if place[0] in own}
        beyond = set(names[last:])
        later = {head for place, head in part.moved.items() if place[0] in beyond}
        going_on = tuple(sorted(head for head in later if head[0] not in beyond))
        digest = _digest(
            digest,
            [(name, known.digests[name]) for name in mine.captures],
            [list(floors), mine.is_in_turn, last == len(names)],
            [sorted(moved.items()), going_on],
            sorted((*s[:3], s.missing or 0, s.missing is None) for s in seams),
        )
        found.append(
            Stretch(
                Plan((mine,), moved, seams, ()),
                names[:first],
                _near(seams, own, before),
                going_on,
                last == len(names),
                digest,
            )
        )
    return found


def _borders(part: Plan, known: Known, max_rows: int) -> list[int]:
    """Behind how many captures of a group it is cut."""
    (group,) = part.groups
    names = group.captures
    if not known.whole.isdisjoint(names):
        return []
    spans = [
        (max(floor, known.spans[name][0]), max(floor, known.spans[name][1]))
        for name, floor in zip(names, group.floors, strict=True)
    ]
    # When the first of those behind each capture begins.
    begins: list[int] = []
    for first, _ in reversed(spans[1:]):
        begins.append(min(first, begins[-1]) if begins else first)
    begins.reverse()
    found = []
    rows, until = 0, 0
    for place, next_begin in enumerate(begins):
        rows += known.rows[names[place]]
        until = max(until, spans[place][1])
        if rows >= max_rows and until <= next_begin:
            found.append(place + 1)
            rows = 0
    return found


def _near(seams: Iterable[Seam], own: set[str], before: set[str]) -> frozenset[str]:
    """Captures of other stretches in which something of these is to be looked up: bytes that are
    there twice, and what tells of a message that goes on there."""
    found = set()
    for seam in seams:
        if seam.after[0] not in own:
            found.add(seam.after[0])
        elif seam.before[0] in before and (seam.missing or 0) < 0:
            found.add(seam.before[0])
    return frozenset(found)


def _digest(*content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
