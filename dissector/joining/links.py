"""Plan which captures of a lake are joined, and which of their connections are one.

A connection that lasted over a file's end has a row in each capture: open at the end of one, begun
midstream in the next, between the same endpoints, with continuing sequence numbers. Captures are
also grouped if the same message was published, stored or delivered in both. Captures of one *group*
are read in order (`stitching`); connections that continue each other are one *chain*, named by the
capture and number of its first connection, its *root*.
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from dissector.limits import MAX_HANDOVER_BYTES, MAX_SILENCE_NS
from dissector.schemas.enums import BOTH_DIRECTIONS

Row = dict[str, Any]
ConnectionId = tuple[str, int]

_WRAP: Final = 1 << 32
# How far the clocks of two files may differ.
SLACK_NS: Final = 1_000_000_000

COLUMNS: Final = (
    "capture", "connection_id", "connection_key", "protocol", "leg", "started", "ended",
    "first_ts_ns", "last_ts_ns",
    *(f"{name}_{direction}"
      for name in ("isn", "first_seq", "last_seq", "fin_packet", "stream_bytes")
      for direction in BOTH_DIRECTIONS),
)  # fmt: skip


class Handover(NamedTuple):
    """One direction of a connection that continues in another capture; missing: its bytes between
    both captures, negative if both have some of them, None if unknown."""

    before: ConnectionId
    after: ConnectionId
    direction: str
    missing: int | None


class CaptureGroup(NamedTuple):
    """Captures in the order in which they are read. floors: the earliest time of each capture's
    frames in ns (0: any): they come behind the frames of the capture that it continues.
    is_in_turn: see `in_turn`."""

    number: int
    captures: tuple[str, ...]
    floors: tuple[int, ...]
    is_in_turn: bool


class JoinPlan(NamedTuple):
    """Groups of two captures or more, and their handovers.

    moved: the root of each connection that continues another one (all others are roots).
    copies: captures that show the same traffic as another one; they are in no group.
    proxy_peers: their connections that the other capture has, too.
    copied: the proxy_peers that are the same connection, captured twice.
    """

    groups: tuple[CaptureGroup, ...]
    moved: dict[ConnectionId, ConnectionId]
    handovers: tuple[Handover, ...]
    copies: tuple[str, ...]
    proxy_peers: frozenset[ConnectionId] = frozenset()
    copied: frozenset[ConnectionId] = frozenset()

    @property
    def captures(self) -> frozenset[str]:
        """All captures that are in a group."""
        return frozenset(name for group in self.groups for name in group.captures)

    @property
    def wholes(self) -> dict[str, str]:
        """The first capture of the group of each grouped capture."""
        return {name: group.captures[0] for group in self.groups for name in group.captures}


NOTHING: Final = JoinPlan((), {}, (), ())


def distance(before: int | None, after: int | None) -> int | None:
    """Bytes from one sequence number to another; negative if the second is lower."""
    if before is None or after is None:
        return None
    difference = (after - before) % _WRAP
    return difference - _WRAP if difference >= _WRAP // 2 else difference


def end_of(row: Row, direction: str) -> int | None:
    """The next sequence number of a direction; SYN and FIN take one each."""
    last: int | None = row[f"last_seq_{direction}"]
    if last is None and row[f"isn_{direction}"] is not None:
        last = (row[f"isn_{direction}"] + 1) % _WRAP
    if last is not None and row[f"fin_packet_{direction}"] is not None:
        last = (last + 1) % _WRAP
    return last


def begin_of(row: Row, direction: str) -> int | None:
    """The sequence number of the first byte of a direction that began before its capture.

    The first captured packet may not be the first of the stream: a retransmitted or reordered one
    may come behind it.
    """
    first: int | None = row[f"first_seq_{direction}"]
    last, length = row[f"last_seq_{direction}"], row.get(f"stream_bytes_{direction}")
    if first is None or last is None or length is None:
        return first
    least: int = (last - length) % _WRAP
    ahead = distance(least, first)
    return least if ahead is not None and 0 < ahead <= MAX_HANDOVER_BYTES else first


def missing(before: Row, after: Row, direction: str) -> int | None:
    """Bytes of a direction between the end of one connection row and the start of another."""
    return distance(end_of(before, direction), begin_of(after, direction))


def continues(before: Row, after: Row) -> bool:
    """Whether a connection row continues another one of the same endpoints."""
    if before["capture"] == after["capture"]:
        return False
    if after["started"] != "midstream" and not _is_answer_to_syn(before, after):
        return False
    silence = after["first_ts_ns"] - before["last_ts_ns"]
    if silence < -SLACK_NS:
        return False
    known = [
        missing_bytes
        for direction in BOTH_DIRECTIONS
        if (missing_bytes := missing(before, after, direction)) is not None
    ]
    if before["ended"] != "capture_end":
        # Acknowledgements and retransmissions of the end come behind it.
        is_tail = after["protocol"] == "none" and silence <= MAX_SILENCE_NS and bool(known)
        return is_tail and all(abs(missing_bytes) <= 1 for missing_bytes in known)
    if not known:
        return bool(silence <= MAX_SILENCE_NS)
    return all(abs(missing_bytes) <= MAX_HANDOVER_BYTES for missing_bytes in known)


def _is_answer_to_syn(before: Row, after: Row) -> bool:
    """Whether a capture ends within a handshake: one row ends with a SYN, and the other one has its
    SYN-ACK."""
    has_syn_only = before["isn_to_broker"] is not None and before["isn_to_client"] is None
    is_same = before["isn_to_broker"] == after["isn_to_broker"]
    return has_syn_only and is_same and after["isn_to_client"] is not None


def is_copy(one: Row, other: Row) -> bool:
    """Whether two connection rows of the same endpoints have more than half of the shorter one's
    bytes in common."""
    if one["capture"] == other["capture"]:
        return False
    for direction in BOTH_DIRECTIONS:
        spans = []
        for row in (one, other):
            length = distance(row[f"first_seq_{direction}"], row[f"last_seq_{direction}"])
            spans.append(length)
        shift = distance(one[f"first_seq_{direction}"], other[f"first_seq_{direction}"])
        if shift is None or None in spans:
            continue
        first, second = (int(span or 0) for span in spans)
        shared = min(first, shift + second) - max(0, shift)
        if min(first, second) > 0 and 2 * shared > min(first, second):
            return True
    return False


class _Sets:
    """Disjoint sets of names (union-find)."""

    def __init__(self) -> None:
        self._above: dict[str, str] = {}

    def top(self, name: str) -> str:
        while (above := self._above.get(name, name)) != name:
            self._above[name] = self._above.get(above, above)
            name = above
        return name

    def join(self, one: str, other: str) -> None:
        first, second = sorted((self.top(one), self.top(other)))
        self._above[second] = first


def _by_key(connections: Iterable[Row]) -> list[list[Row]]:
    rows_by_key: dict[str, list[Row]] = defaultdict(list)
    for row in connections:
        rows_by_key[row["connection_key"]].append(row)
    for rows in rows_by_key.values():
        rows.sort(key=lambda row: (row["first_ts_ns"], row["last_ts_ns"], row["capture"]))
    return [
        rows for _, rows in sorted(rows_by_key.items()) if len({r["capture"] for r in rows}) > 1
    ]


def is_at_once(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Whether two spans of time overlap in at least half of the shorter one. Two taps of the same
    traffic run at once; bytes that are retransmitted right behind a capture's end are no copy."""
    shared = min(one[1], other[1]) - max(one[0], other[0])
    shorter = min(one[1] - one[0], other[1] - other[0])
    return shared > 0 and 2 * shared >= shorter


def _span(row: Row) -> tuple[int, int]:
    return row["first_ts_ns"], row["last_ts_ns"]


def find_proxy_peers(connections: Iterable[Row]) -> dict[ConnectionId, Row]:
    """Connections whose bytes another capture, earlier by name, has too, with the row there."""
    proxy_peers: dict[ConnectionId, Row] = {}
    for rows in _by_key(connections):
        for index, row in enumerate(rows):
            for other in rows[index + 1 :]:
                if other["first_ts_ns"] > row["last_ts_ns"]:
                    break
                if is_at_once(_span(row), _span(other)) and is_copy(row, other):
                    kept, later = sorted((row, other), key=lambda connection: connection["capture"])
                    proxy_peers.setdefault((later["capture"], later["connection_id"]), kept)
    return proxy_peers


def _missing_since(before: Row, after: Row, direction: str, end: int | None) -> int | None:
    """The missing bytes of a handover. end: where the direction ended in the last capture that has
    bytes of it, which tells no more than that some are missing."""
    if before["ended"] != "capture_end":
        return None
    if end_of(before, direction) is not None:
        return missing(before, after, direction)
    found = distance(end, begin_of(after, direction))
    return found if found is not None and 0 < found <= MAX_HANDOVER_BYTES else None


def find_handovers(connections: Iterable[Row]) -> list[Handover]:
    """The handovers of connections from one capture to the next, one per direction."""
    handovers = []
    roots: dict[ConnectionId, ConnectionId] = {}
    # Where each direction of a root ended so far, for captures that have no bytes of it.
    ends: dict[tuple[ConnectionId, str], int] = {}
    for rows in _by_key(connections):
        waiting: list[Row] = []
        for row in rows:
            # A client that reuses one port has many rows, of which few began midstream. A row with
            # a handshake can continue only the row right before it, if that ends with a SYN.
            is_midstream = row["started"] == "midstream"
            earlier = reversed(waiting) if is_midstream else iter(waiting[-1:])
            before = next((other for other in earlier if continues(other, row)), None)
            key = (row["capture"], row["connection_id"])
            if before is not None:
                waiting.remove(before)
                first = (before["capture"], before["connection_id"])
                root = roots[key] = roots.get(first, first)
                handovers += [
                    Handover(first, key, direction,
                             _missing_since(before, row, direction, ends.get((root, direction))))
                    for direction in BOTH_DIRECTIONS
                ]  # fmt: skip
            for direction in BOTH_DIRECTIONS:
                if (end := end_of(row, direction)) is not None:
                    ends[roots.get(key, key), direction] = end
            waiting.append(row)
    return handovers


def _in_order(
    captures: Iterable[str], spans: dict[str, tuple[int, int]], after: dict[str, set[str]]
) -> list[str]:
    """Captures by their first packet, but each behind those that it continues."""
    names = set(captures)
    left = {name: len(after[name] & names) for name in names}
    followers: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for before in after[name] & names:
            followers[before].append(name)
    ready = [(spans[name][0], name) for name in names if not left[name]]
    heapq.heapify(ready)
    ordered: list[str] = []
    while ready:
        _, name = heapq.heappop(ready)
        ordered.append(name)
        for follower in followers[name]:
            left[follower] -= 1
            if not left[follower]:
                heapq.heappush(ready, (spans[follower][0], follower))
    # Captures that continue each other both ways have no such order.
    return ordered + sorted(names - set(ordered), key=lambda name: (spans[name][0], name))


def _group(
    number: int, names: Iterable[str], spans: dict[str, tuple[int, int]], after: dict[str, set[str]]
) -> CaptureGroup:
    ordered = _in_order(names, spans, after)
    ends: dict[str, int] = {}
    floors = []
    for name in ordered:
        floor = max((ends.get(before, 0) for before in after[name]), default=0)
        floors.append(floor)
        ends[name] = max(floor, spans[name][1])
    is_in_turn = in_turn(floors, [spans[name] for name in ordered])
    return CaptureGroup(number, tuple(ordered), tuple(floors), is_in_turn)


def in_turn(floors: Iterable[int], spans: Iterable[tuple[int, int]]) -> bool:
    """Whether no capture begins before an earlier one ends. floors: see `CaptureGroup`."""
    latest = None
    for floor, (first, last) in zip(floors, spans, strict=True):
        if latest is not None and max(floor, first) < latest:
            return False
        latest = max(latest or 0, floor, last)
    return True


def wholes(connections: Sequence[Row], spans: dict[str, tuple[int, int]]) -> dict[str, str]:
    """The sequence of captures that each capture belongs to by its connections, named by one of its
    captures. Captures of the same time stay alone, as they may show the same traffic."""
    copies = {key[0] for key in find_proxy_peers(connections)}
    sets = _Sets()
    for handover in find_handovers([row for row in connections if row["capture"] not in copies]):
        sets.join(handover.before[0], handover.after[0])
    members: dict[str, list[str]] = defaultdict(list)
    for name in sorted(spans, key=lambda name: spans[name]):
        members[sets.top(name)].append(name)
    whole_of: dict[str, str] = {}
    for top, names in members.items():
        is_one = not any(is_at_once(spans[one], spans[two]) for one, two in pairwise(names))
        whole_of |= {name: top if is_one else name for name in names}
    return whole_of


def plan(
    connections: Sequence[Row],
    spans: dict[str, tuple[int, int]],
    shared: Iterable[Iterable[str]] = (),
    views: Iterable[Sequence[str]] = (),
    proxy_peers: Iterable[ConnectionId] = (),
) -> JoinPlan:
    """The plan of groups.

    Args:
        connections: rows with COLUMNS, at least of connections with endpoints in several captures.
        spans: times of the first and the last packet of each capture, ns.
        shared: captures that have messages in common.
        views: captures that show the same messages at once; the first of each set is read, if the
            captures were made at once.
        proxy_peers: connections of the other views that the first one has, too.
    """
    seen_twice = {
        name for names in views for name in names[1:] if is_at_once(spans[names[0]], spans[name])
    }
    twins = find_proxy_peers(connections)
    # A copy of a proxy's broker side counts as that side, not as a copy.
    copied = frozenset(key for key, kept in twins.items() if kept["leg"] != "broker")
    peers = {*twins, *(key for key in proxy_peers if key[0] in seen_twice)}
    copies = seen_twice | {key[0] for key in peers}
    rows = [row for row in connections if row["capture"] not in copies]
    handovers = find_handovers(rows)
    sets = _Sets()
    after: dict[str, set[str]] = defaultdict(set)
    for handover in handovers:
        sets.join(handover.before[0], handover.after[0])
        after[handover.after[0]].add(handover.before[0])
    for names in shared:
        known = [name for name in names if name not in copies]
        for name in known[1:]:
            sets.join(known[0], name)
    members: dict[str, list[str]] = defaultdict(list)
    for name in spans:
        members[sets.top(name)].append(name)
    groups = [
        _group(number, names, spans, after)
        for number, (_, names) in enumerate(
            sorted((top, names) for top, names in members.items() if len(names) > 1)
        )
    ]
    moved = _moved(groups, handovers)
    return JoinPlan(
        tuple(groups), moved, tuple(handovers), tuple(sorted(copies)), frozenset(peers),
        copied,
    )  # fmt: skip


def _moved(
    groups: Sequence[CaptureGroup], handovers: Iterable[Handover]
) -> dict[ConnectionId, ConnectionId]:
    """The root of each connection that continues one of an earlier capture."""
    before = {handover.after: handover.before for handover in handovers}
    ranks = {name: rank for group in groups for rank, name in enumerate(group.captures)}
    moved: dict[ConnectionId, ConnectionId] = {}
    for key in sorted(before, key=lambda key: (ranks[key[0]], key)):
        earlier = before[key]
        if ranks[earlier[0]] < ranks[key[0]]:
            moved[key] = moved.get(earlier, earlier)
    return moved
