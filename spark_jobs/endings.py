"""What the rows of connections tell that `frames` does not: events for the replay of captures."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dissector.protocols.columns import EVENT_CLOSE, EVENT_FIN, EVENT_GAP
from dissector.stream.columns import ENDED_FIN, ENDED_NAMES
from spark_jobs import replay
from spark_jobs.links import WAYS, Place, Plan, Row

# Frame number of events that come behind all frames of their packet.
_LATEST: Final = 1 << 62


def place_of(row: Row) -> Place:
    """Where a row of a connection stands."""
    return row["capture"], row["connection_id"]


def cursus_chains(plan: Plan, by_place: Mapping[Place, Row]) -> set[tuple[int, int]]:
    """Group and chain of connections that speak Cursus."""
    ranks = plan.group_of()
    return {
        (ranks[place[0]][0], chain)
        for place, chain in plan.chains.items()
        if by_place[place]["protocol"] == "cursus"
    }


def is_whole(missing: int | None) -> bool:
    """Whether nothing is missing at a seam; a direction without bytes has nothing to miss."""
    return missing is None or missing <= 0


def _event(group: int, rank: int, chain: int, frame_no: int, code: int, **more: Any) -> Row:
    return {
        "group": group, "rank": rank, "chain": chain, "frame_no": frame_no, "kind": replay.EVENT,
        "event_code": code, **more,
    }  # fmt: skip


def ends(plan: Plan, connections: Iterable[Row]) -> list[Row]:
    """Rows of events that the rows of connections tell: ends of directions and of connections, the
    bytes that are missing between two captures, and the legs of proxied pairs."""
    ranks = plan.group_of()
    found: list[Row] = []
    legs = set()
    for row in connections:
        place = (row["capture"], row["connection_id"])
        if place not in plan.chains:
            continue
        where = (*ranks[place[0]], plan.chains[place])
        is_broker_leg = row["leg"] == "broker" and row["twin_connection_id"] is not None
        if is_broker_leg and (where[0], where[2]) not in legs:
            legs.add((where[0], where[2]))
            found.append(_event(*where, 0, 0) | {"kind": replay.LEG})
        for way in WAYS:
            at = row[f"fin_packet_{way}"]
            if at is not None:
                found.append(_event(*where, _LATEST, EVENT_FIN, direction=way, last_packet=at))
        if row["ended_packet"] is not None:
            how = ENDED_NAMES.index(row["ended"])
            found.append(
                _event(*where, _LATEST, EVENT_CLOSE, frames_missing=how, direction="to_client",
                       last_ts_ns=row["last_ts_ns"], last_packet=row["ended_packet"])
            )  # fmt: skip
    found += _ends_of_both_ways(plan, connections)
    for seam in plan.seams:
        if seam.after in plan.chains and not is_whole(seam.missing):
            where = (*ranks[seam.after[0]], plan.chains[seam.after])
            found.append(
                _event(*where, 0, EVENT_GAP, frames_missing=1, direction=seam.direction,
                       stream_offset=-int(seam.missing or 0), frame_bytes=seam.missing)
            )  # fmt: skip
    cursus = cursus_chains(plan, {place_of(row): row for row in connections})
    for row in found:
        row["is_cursus"] = (row["group"], row["chain"]) in cursus
    return found


def _ends_of_both_ways(plan: Plan, connections: Iterable[Row]) -> list[Row]:
    """Ends of connections whose directions ended in different captures: each of these saw a
    connection that was half closed."""
    ranks = plan.group_of()
    parts: dict[tuple[int, int], list[tuple[int, Row]]] = defaultdict(list)
    for row in connections:
        place = (row["capture"], row["connection_id"])
        if place in plan.chains:
            number, rank = ranks[place[0]]
            parts[number, plan.chains[place]].append((rank, row))
    found = []
    for (number, chain), rows in parts.items():
        rows.sort(key=lambda part: part[0])
        fins = [
            next(((n, row) for n, row in rows if row[f"fin_packet_{way}"] is not None), None)
            for way in WAYS
        ]
        is_open = all(row["ended_packet"] is None for _, row in rows)
        if is_open and fins[0] is not None and fins[1] is not None:
            rank, row = max(fins[0], fins[1], key=lambda part: part[0])
            at = max(row[f"fin_packet_{way}"] or 0 for way in WAYS)
            found.append(
                _event(number, rank, chain, _LATEST, EVENT_CLOSE, frames_missing=ENDED_FIN,
                       direction="to_client", last_ts_ns=row["last_ts_ns"], last_packet=at)
            )  # fmt: skip
    return found
