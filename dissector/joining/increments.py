"""A group of captures in increments, so that a new capture does not cause a full re-read.

Connections that last over midnight put the captures of all nights into one group. A group with more
rows than a bound is cut between captures, from its first one on: an *increment* ends with the
capture with which it reaches the bound, if another one follows. Each increment is stitched from the
open state of the one before (`stitching`) and has the rows that close in it; the last one also has
the rows that stay open. So an increment depends on the captures before it and on the captures of
the next minutes, never on a capture that lands later.

A group is cut only where everything before was captured before everything behind: captures of the
same time are merged by time. Groups with Cursus traffic are not cut, as its open state is not
carried from one increment to the next.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from dissector.joining.files import digest_of
from dissector.joining.links import ConnectionId, Handover, JoinPlan, in_turn
from dissector.limits import MAX_SILENCE_NS

# A connection continues in the next capture or in one that begins within this time behind the cut;
# packets of an ended connection come no later.
NEAR_NS: Final = MAX_SILENCE_NS


class Increment(NamedTuple):
    """Captures of a group that are stitched together.

    part: their plan; its handovers end in these captures, or begin in them and end soon behind.
    before: the captures of earlier increments, in order.
    near: captures of other increments in which handovers begin or end.
    later: roots of connections that are known to continue.
    digest: of everything that decides its rows.
    """

    part: JoinPlan
    before: tuple[str, ...]
    near: frozenset[str]
    later: tuple[ConnectionId, ...]
    is_last: bool
    digest: str

    @property
    def captures(self) -> tuple[str, ...]:
        """Its captures, in order."""
        return self.part.groups[0].captures


class CaptureSizes(NamedTuple):
    """The inputs of cutting a group, by capture: first and last packet in ns, rows of all tables,
    and digests; whole: captures whose group is not cut."""

    spans: Mapping[str, tuple[int, int]]
    rows: Mapping[str, int]
    digests: Mapping[str, str]
    whole: frozenset[str]


def increments(part: JoinPlan, known: CaptureSizes, max_rows: int) -> list[Increment]:
    """The increments of a group, in order; one if it is not cut.

    Args:
        part: the plan of one group.
    """
    (group,) = part.groups
    names = group.captures
    spans = [
        (max(floor, known.spans[name][0]), max(floor, known.spans[name][1]))
        for name, floor in zip(names, group.floors, strict=True)
    ]
    is_whole = not known.whole.isdisjoint(names)
    rows = [known.rows[name] for name in names]
    edges = [0, *([] if is_whole else _boundaries(spans, rows, max_rows)), len(names)]
    group_increments: list[Increment] = []
    digest = ""
    for first, last in pairwise(edges):
        until = max(end for _, end in spans[:last]) + NEAR_NS
        soon = {name for name, span in zip(names, spans, strict=True) if span[0] <= until}
        soon = (soon - {*names[:last]}).union(names[last : last + 1])
        increment = _increment(part, known, (first, last), soon)
        digest = digest_of([digest, _content(increment, known)])
        group_increments.append(increment._replace(digest=digest))
    return group_increments


def _increment(
    part: JoinPlan, known: CaptureSizes, edges: tuple[int, int], soon: set[str]
) -> Increment:
    """The increment of captures edges[0]:edges[1] of a group. soon: later ones that begin soon."""
    (group,) = part.groups
    before, names = group.captures[: edges[0]], group.captures[edges[0] : edges[1]]
    floors = group.floors[edges[0] : edges[1]]
    own = frozenset(names)
    increment_group = group._replace(
        captures=names,
        floors=floors,
        is_in_turn=in_turn(floors, [known.spans[name] for name in names]),
    )
    handovers = [
        handover
        for handover in part.handovers
        if handover.after[0] in own or (handover.before[0] in own and handover.after[0] in soon)
    ]
    moved = {key: root for key, root in part.moved.items() if key[0] in own}
    so_far = {*before, *names}
    later = {root for key, root in part.moved.items() if key[0] in soon and root[0] in so_far}
    return Increment(
        JoinPlan((increment_group,), moved, tuple(handovers), ()),
        before,
        _near(handovers, own, frozenset(before)),
        tuple(sorted(later)),
        edges[1] == len(group.captures),
        "",
    )


def _content(increment: Increment, known: CaptureSizes) -> object:
    """Everything that decides the rows of an increment, except for the earlier increments."""
    (group,) = increment.part.groups
    return [
        [(name, known.digests[name]) for name in group.captures],
        [list(group.floors), group.is_in_turn, increment.is_last],
        [sorted(increment.part.moved.items()), increment.later],
        sorted((*s[:3], s.missing or 0, s.missing is None) for s in increment.part.handovers),
    ]


def _boundaries(spans: Sequence[tuple[int, int]], rows: Sequence[int], max_rows: int) -> list[int]:
    """The numbers of captures behind which a group is cut; spans, rows: of its captures."""
    # The earliest begin of the captures behind each capture, from the last one back.
    begins: list[int] = []
    for first, _ in reversed(spans[1:]):
        begins.append(min(first, begins[-1]) if begins else first)
    boundaries = []
    row_count, until = 0, 0
    for index, next_begin in enumerate(reversed(begins)):
        row_count += rows[index]
        until = max(until, spans[index][1])
        if row_count >= max_rows and until <= next_begin:
            boundaries.append(index + 1)
            row_count = 0
    return boundaries


def _near(
    handovers: Iterable[Handover], own: frozenset[str], before: frozenset[str]
) -> frozenset[str]:
    """Captures of other increments that this increment must read: captures with the same bytes, and
    captures in which a message continues."""
    captures = set()
    for handover in handovers:
        if handover.after[0] not in own:
            captures.add(handover.after[0])
        elif handover.before[0] in before and (handover.missing or 0) < 0:
            captures.add(handover.before[0])
    return frozenset(captures)
