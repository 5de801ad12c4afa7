"""Cuts the smallest set of packets in which the selected frames decode as in the whole capture.

The packets are dissected by themselves, and the rows of the selected frames are compared with those
of the whole capture. If rows differ, their connection gets more packets: first all between its
first and last chosen frame, then all.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from dissector.dissection import Options
from dissector.endpoints import Endpoint, FlowKey
from dissector.evidence.frame_selection import SELECTED, SET_UP, Chosen
from dissector.evidence.streams import memory_file
from dissector.lake.land import land_chain
from dissector.lake.reader import Lake, open_lake
from dissector.limits import MAX_EVIDENCE_PACKETS
from dissector.queries.duckdb_engine import quoted
from dissector.queries.sandbox import sandbox_over
from dissector.sources.bundled import PACKETS
from dissector.sources.rings import Chain
from dissector.sources.slice import FlowSpan, PacketSelection, flows_of, write_slice

if TYPE_CHECKING:
    from dissector.queries.sandbox import Sandbox

BASE_NAME: Final = "packets"
FRAMES_ONLY: Final = 0
BETWEEN: Final = 1
WHOLE: Final = 2
# Columns that must be equal: of a frame, its exchange, its delivery, its change of permits.
_OF_FRAME: Final = (
    *("command", "status", "request_id", "producer_id", "consumer_id", "sequence_id"),
    *("ledger_id", "entry_id", "message_count", "permits", "redelivery_count", "error_code"),
    *("checksum", "frame_bytes", "compression", "is_batch", "metadata_bytes", "payload_bytes"),
)
_OF_EXCHANGE: Final = (
    *("outcome", "latency_ns", "transmit_ns", "response_command", "error_code", "attempt"),
)
_OF_DELIVERY: Final = ("outcome", "ack_latency_ns", "is_redelivered", "redelivery_cause")
_OF_PERMIT: Final = ("event", "delta", "available_after")
_OWN: Final = ("frame_no", "first_packet", "last_packet", "place")
_FACTS: Final = ", ".join(
    f"{table}.{column} AS {table}_{column}"
    for table, columns in (
        ("f", _OF_FRAME), ("e", _OF_EXCHANGE), ("d", _OF_DELIVERY), ("p", _OF_PERMIT),
    )
    for column in columns
)  # fmt: skip
Key = tuple[int, int, int]


class Cut(NamedTuple):
    """Packets cut out of a capture.

    data: a file of the packets.
    taken: their packet numbers in the capture.
    levels: FRAMES_ONLY, BETWEEN or WHOLE by connection.
    selected: number of selected frames.
    differing: number of these whose rows differ from the whole capture's.
    """

    data: BinaryIO
    taken: tuple[int, ...]
    levels: dict[int, int]
    selected: int
    differing: int


@contextmanager
def reread(file: BinaryIO, options: Options) -> Iterator[tuple[Lake, "Sandbox"]]:
    """Land a file of packets, in memory or named, in a temporary lake; yield it and an engine."""
    file.flush()
    with TemporaryDirectory(prefix="dissector-") as folder:
        lake, named = Path(folder) / "lake", Path(folder) / PACKETS
        named.symlink_to(path_of(file))  # reports name their files
        land_chain(Chain((str(named),), BASE_NAME), lake, options)
        with open_lake(lake) as opened, sandbox_over(opened, has_ready_views=False) as engine:
            yield opened, engine


def path_of(file: BinaryIO) -> str:
    """Return a path of an open file."""
    return f"/proc/{os.getpid()}/fd/{file.fileno()}"


def cut(
    engine: "Sandbox", chain: Chain, chosen: Chosen, options: Options, *, has_permits: bool,
    lacking: Callable[["Sandbox"], int] = lambda own: 0,
) -> Cut:  # fmt: skip
    """Cut the packets of the chosen frames and of their findings out of a capture.

    Args:
        has_permits: balances of permits must be equal, which requires all earlier deliveries.
        lacking: number of findings that packets do not show by themselves. While it is not 0, add
            packets: all of the connections, then of connections with the same topics, then all.
            Returns the smallest cut that shows the most findings.
    """
    frames = _frames(engine, chosen)
    frame_rows = _rows_of(engine, chosen)
    before, selected = _facts(frame_rows), set(chosen.of_role(SELECTED))
    wanted_keys = {_key(row) for row in frame_rows if row["frame_no"] in selected}
    connections = _connections(engine, chosen)
    levels = dict.fromkeys(connections, FRAMES_ONLY)
    # All frames of a pair of packets are of one connection.
    of = {(row["first_packet"], row["last_packet"]): row["connection_id"] for row in frames}
    wider = _wider(engine, chosen)
    best: tuple[int, Cut] | None = None
    while True:
        selection = _selection(frames, connections, levels, chosen)
        file = memory_file()
        write_slice(chain, selection, file, False)
        with reread(file, options) as (_, own):
            after = _facts(own.rows(_ALL_NUMBERED), selection.taken)
            missing = lacking(own)
        differing = {
            key for key in wanted_keys if not _is_shown(before[key], after.get(key), has_permits)
        }
        widened = {of[key[:2]] for key in differing if levels[of[key[:2]]] < WHOLE}
        if not widened:
            candidate = Cut(
                file, tuple(selection.taken), dict(levels), len(wanted_keys), len(differing)
            )
            best = _better(best, (missing, candidate))
            if missing:
                widened = {number for number, level in levels.items() if level < WHOLE}
                more = {} if widened else next(wider, {})
                connections |= more
                levels |= dict.fromkeys(more, WHOLE)
                widened |= more.keys()
            if not widened:
                return best[1]
        else:
            file.close()
        for connection in widened:
            levels[connection] = min(levels[connection] + 1, WHOLE)


def _better(best: tuple[int, Cut] | None, candidate: tuple[int, Cut]) -> tuple[int, Cut]:
    """Return the cut that shows more findings; of equal ones the first, which has fewer packets."""
    if best is None:
        return candidate
    better, other = (candidate, best) if candidate[0] < best[0] else (best, candidate)
    other[1].data.close()
    return better


def _wider(engine: "Sandbox", chosen: Chosen) -> Iterator[dict[int, dict[str, Any]]]:
    """Yield further connections: those with the topics of the chosen frames, then all; skips sets
    of more than MAX_EVIDENCE_PACKETS."""
    name = quoted(chosen.capture)
    for condition in (
        "connection_id IN (SELECT r.connection_id FROM frames AS r JOIN (SELECT DISTINCT f.topic "
        "FROM frames AS f JOIN chosen AS c ON c.frame_no = f.frame_no "
        f"WHERE f.capture = {name}) AS t ON t.topic = r.topic WHERE r.capture = {name})",
        "true",
    ):
        connections = _connections(engine, chosen, condition)
        packets = sum(row["packets"] for row in connections.values())
        if packets <= MAX_EVIDENCE_PACKETS:
            yield connections


def _is_shown(before: dict[str, Any], after: dict[str, Any] | None, has_permits: bool) -> bool:
    """Whether a frame's rows are equal in the cut and in the whole capture."""
    if after is None:
        return False
    names = [name for name in before if has_permits or not name.startswith("p_")]
    return all(before[name] == after[name] for name in names)


def roles_in(
    own: "Sandbox", taken: Sequence[int], engine: "Sandbox", chosen: Chosen
) -> dict[str, list[int]]:
    """Return the frame numbers of chosen frames in a slice, by role; matched by their packets.

    Args:
        own: engine of the slice. taken: packet numbers of the slice in the capture of `engine`.
    """
    numbers = {_key(row, taken): row["frame_no"] for row in own.rows(_ALL_NUMBERED)}
    keys = {row["frame_no"]: _key(row) for row in _rows_of(engine, chosen)}
    roles: dict[str, list[int]] = {}
    for number, (_, role) in chosen.roles.items():
        if keys.get(number) in numbers:
            roles.setdefault(role, []).append(numbers[keys[number]])
    return {role: sorted(each) for role, each in roles.items()}


def _key(row: dict[str, Any], taken: Sequence[int] | None = None) -> Key:
    first, last = row["first_packet"], row["last_packet"]
    if taken is not None:
        first, last = taken[first - 1], taken[last - 1]
    return first, last, row["place"]


def _frames(engine: "Sandbox", chosen: Chosen) -> list[dict[str, Any]]:
    """Query connection, packets and times of the chosen frames."""
    return engine.rows(
        "SELECT f.connection_id, f.frame_no, f.direction, f.first_packet, f.last_packet, "
        "f.first_ts_ns, f.last_ts_ns, f.command FROM frames AS f JOIN chosen AS c "
        f"ON c.frame_no = f.frame_no WHERE f.capture = {quoted(chosen.capture)}",
    )


def _connections(
    engine: "Sandbox", chosen: Chosen,
    condition: str = "connection_id IN (SELECT connection_id FROM chosen)",
) -> dict[int, dict[str, Any]]:  # fmt: skip
    """Query the connections of the chosen frames, or others of the capture, by id."""
    connection_rows = engine.rows(
        "SELECT connection_id, client_ip, client_port, broker_ip, broker_port, first_ts_ns, "
        "last_ts_ns, packets_to_broker + packets_to_client AS packets FROM connections "
        f"WHERE {condition} AND capture = {quoted(chosen.capture)}",
    )
    return {row["connection_id"]: row for row in connection_rows}


_NUMBERED: Final = (
    "WITH numbered AS (SELECT *, row_number() OVER (PARTITION BY first_packet, last_packet "
    "ORDER BY connection_id, stream_offset) AS place FROM frames AS r WHERE {}) "
    f"SELECT f.frame_no, f.first_packet, f.last_packet, f.place, {_FACTS} FROM numbered AS f "
    "LEFT JOIN exchanges AS e ON e.capture = f.capture AND e.request_frame_no = f.frame_no "
    "LEFT JOIN deliveries AS d ON d.capture = f.capture AND d.frame_no = f.frame_no "
    "LEFT JOIN permits AS p ON p.capture = f.capture AND p.frame_no = f.frame_no "
    "ORDER BY f.frame_no, e.request_command, e.outcome, p.event, p.consumer_id"
)
_ALL_NUMBERED: Final = _NUMBERED.format("true")


def _rows_of(engine: "Sandbox", chosen: Chosen) -> list[dict[str, Any]]:
    """Query the compared columns of all frames in the packets of chosen ones."""
    name = quoted(chosen.capture)
    condition = (
        f"r.capture = {name} AND (r.first_packet, r.last_packet) IN (SELECT (g.first_packet, "
        f"g.last_packet) FROM frames AS g JOIN chosen AS c ON c.frame_no = g.frame_no "
        f"WHERE g.capture = {name})"
    )
    return engine.rows(_NUMBERED.format(condition))


def _facts(
    rows: list[dict[str, Any]], taken: Sequence[int] | None = None
) -> dict[Key, dict[str, Any]]:
    """Map rows by key. taken: packet numbers of a slice in the capture."""
    return {_key(row, taken): {name: row[name] for name in row if name not in _OWN} for row in rows}


def _flows(connection: dict[str, Any], direction: str = "") -> tuple[FlowKey, ...]:
    client, broker = (
        Endpoint.of(connection[f"{end}_ip"], connection[f"{end}_port"])
        for end in ("client", "broker")
    )
    return flows_of(client, broker, direction)


def _selection(
    frames: list[dict[str, Any]],
    connections: dict[int, dict[str, Any]],
    levels: dict[int, int],
    chosen: Chosen,
) -> PacketSelection:
    """Select the packets of frames, and of their connections as the levels require."""
    selection = PacketSelection()
    spans: dict[int, list[int]] = {}
    for frame in frames:
        for flow in _flows(connections[frame["connection_id"]], frame["direction"]):
            selection.add(flow, frame["first_packet"], frame["last_packet"])
        if chosen.roles[frame["frame_no"]][1] != SET_UP:
            times = spans.setdefault(frame["connection_id"], [])
            times += [frame["first_ts_ns"], frame["last_ts_ns"]]
    for number, connection in connections.items():
        first, last = connection["first_ts_ns"], connection["last_ts_ns"]
        inner = spans.get(number, [first, last])
        for flow in _flows(connection):
            selection.spans.append(FlowSpan(flow, first, last, True))
            if levels[number] == BETWEEN:
                selection.spans.append(FlowSpan(flow, min(inner), max(inner), False))
            elif levels[number] == WHOLE:
                selection.spans.append(FlowSpan(flow, first, last, False))
    return selection
