"""Rows of the table `connections`, and addresses and directions of connections for other tables."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from dissector.blocks import Coded, Column, Int64Array, TableBlock
from dissector.endpoints import Endpoint, community_id, connection_key
from dissector.findings import Finding
from dissector.limits import MAX_NOTICES, NULL
from dissector.protocols.assembly import Framing
from dissector.protocols.columns import EVENT_CLOSE, EVENT_FIN, UNKNOWN_DIRECTION, FrameColumns
from dissector.protocols.framing_state import (
    OPAQUE_NAMES,
    ROLE_BY_FIRST_SEEN,
    ROLE_BY_PORT,
    ROLE_BY_SYN,
    ROLE_DECIDED,
    ROLE_SOURCE_NAMES,
)
from dissector.protocols.interface import ConnectionFacts, Specs
from dissector.stream.columns import ENDED_NAMES
from dissector.stream.streams import ConnectionRows, SideRows, Streams

_NO_FACTS: Final = ConnectionFacts()
_SIDE_COLUMNS: Final = (
    "packets",
    "payload_bytes",
    "stream_bytes",
    "retransmitted_packets",
    "duplicate_packets",
    "out_of_order_packets",
    "keepalive_packets",
    "gaps",
    "gap_bytes",
    "snaplen_cut_bytes",
    "conflict_bytes",
    "zero_window_ns",
    "isn",
    "first_seq",
    "last_seq",
)
_CACHED_CONNECTIONS: Final = 1 << 14  # a power of two
_CACHED_ADDRESSES: Final = 1 << 16
EndsOf = Callable[[int], tuple[str, str]]
_VLAN_BITS: Final = 12
_VLAN_COUNT_AT: Final = 48


class AddressCodes:
    """Codes of the addresses of connections, by connection: a cache, as rows of few connections
    follow each other by the million.

    ends_of, where it is asked for: (connection id) -> addresses of client and broker.
    """

    def __init__(self) -> None:
        self._known = np.full((3, _CACHED_CONNECTIONS), NULL, np.int64)
        self._codes: dict[str, int] = {}
        self._texts: list[str] = []

    def columns(self, connections: Int64Array, ends_of: EndsOf) -> dict[str, Column]:
        """Columns client_ip and broker_ip; all rows of a call share one list of texts."""
        if len(self._texts) > _CACHED_ADDRESSES:
            self._known[:] = NULL
            self._codes, self._texts = {}, []
        places = connections & (_CACHED_CONNECTIONS - 1)
        missing = np.flatnonzero(self._known[0][places] != connections)
        for connection in np.unique(connections[missing]).tolist():
            self._look_up(connection, ends_of)
        known, client, broker = self._known[:, places]
        # Two connections of one call may share a place.
        for row in np.flatnonzero(known != connections).tolist():
            client[row], broker[row] = self._look_up(int(connections[row]), ends_of)
        return {"client_ip": Coded(client, self._texts), "broker_ip": Coded(broker, self._texts)}

    def _look_up(self, connection: int, ends_of: EndsOf) -> tuple[int, int]:
        client, broker = (self._code(text) for text in ends_of(connection))
        self._known[:, connection & (_CACHED_CONNECTIONS - 1)] = connection, client, broker
        return client, broker

    def _code(self, text: str) -> int:
        code = self._codes.setdefault(text, len(self._texts))
        if code == len(self._texts):
            self._texts.append(text)
        return code


class ConnectionTable:
    """What is said of connections when they close; holds back notices until their role is known."""

    def __init__(
        self,
        streams: Streams,
        framing: Framing,
        specs: Specs,
        tunnel_name: Callable[[int], str | None],
    ) -> None:
        self._streams = streams
        self._tunnel_name = tunnel_name
        self._framing = framing
        self._specs = specs
        self._waiting: dict[int, list[tuple[int, Finding]]] = {}
        self._malformed: dict[tuple[int, int], int] = {}
        self._ends: dict[tuple[int, int], int] = {}
        self._addresses = AddressCodes()

    def hold(self, side: int, finding: Finding) -> None:
        """Keep a notice of a side until its direction is known, at the connection's end."""
        self._waiting.setdefault(finding.connection_id, []).append((side, finding))

    def count_malformed(self, connection: int, side: int, size: int) -> None:
        """Frames that cannot be read do not count as decoded."""
        key = (connection, side)
        self._malformed[key] = self._malformed.get(key, 0) + size

    def note_ends(self, frames: FrameColumns, rows: int) -> None:
        """Keep with which packet a direction or a connection ended."""
        commands = frames.command[:rows]
        for row in np.flatnonzero((commands == EVENT_FIN) | (commands == EVENT_CLOSE)).tolist():
            side = 2 if commands[row] == EVENT_CLOSE else int(frames.side[row])
            key = (int(frames.connection_id[row]), side)
            self._ends[key] = int(frames.last_packet[row])

    def addresses(self, connections: Int64Array) -> dict[str, Column]:
        """Columns client_ip and broker_ip for rows of connections that are open or just closed."""
        return self._addresses.columns(connections, self._ends_of)

    def ends_of(self, connection: int) -> tuple[Endpoint, Endpoint] | None:
        """Client and broker of a connection, None if it is over or never was."""
        slots = self._streams.slots_of(np.array([connection], np.int64))
        if slots[0] < 0:
            return None
        rows = self._streams.connection_rows(slots)
        client = self._client_side(rows, 0)[0]
        return _endpoint(rows, 0, client), _endpoint(rows, 0, 1 - client)

    def _ends_of(self, connection: int) -> tuple[str, str]:
        rows = self._streams.connection_rows(
            self._streams.slots_of(np.array([connection], np.int64))
        )
        client = self._client_side(rows, 0)[0]
        return _endpoint(rows, 0, client).text(), _endpoint(rows, 0, 1 - client).text()

    def _client_side(self, rows: ConnectionRows, row: int) -> tuple[int, int]:
        """Which side is the client, and how that was told (place in ROLE_SOURCE_NAMES)."""
        state = self._framing.state.connections
        slot = self._framing.slot_of(int(rows.connection_id[row]))
        if slot >= 0 and state.role[slot] == ROLE_DECIDED:
            return int(state.client_side[slot]), int(state.role_source[slot])
        if rows.started_by_syn[row]:
            return 0, ROLE_BY_SYN
        known = self._framing.broker_ports
        hinted = [side for side in (0, 1) if int(rows.port[side][row]) in known]
        if len(hinted) == 1:
            return 1 - hinted[0], ROLE_BY_PORT
        return 0, ROLE_BY_FIRST_SEEN

    def close(
        self, rows: ConnectionRows, facts: Mapping[int, ConnectionFacts]
    ) -> tuple[TableBlock, list[Finding]]:
        """The rows of connections that are over, and the notices that waited for them.

        Args:
            facts: what their frames say of them, by connection.
        """
        connections = rows.connection_id
        found = [
            self._row(rows, row, facts.get(connection, _NO_FACTS))
            for row, connection in enumerate(connections.tolist())
        ]
        columns: dict[str, Column] = {name: [row[name] for row in found] for name in found[0]}
        findings = [
            each
            for connection, row in zip(connections.tolist(), found, strict=True)
            for each in self._released(connection, row)
        ]
        del columns["_client"]
        self._framing.release(connections)
        return TableBlock("connections", len(found), columns), findings

    def _released(self, connection: int, row: dict[str, Any]) -> Iterable[Finding]:
        is_guessed = row["role_source"] == ROLE_SOURCE_NAMES[ROLE_BY_FIRST_SEEN]
        for side, finding in self._waiting.pop(connection, ()):
            direction = UNKNOWN_DIRECTION if is_guessed else int(side != row["_client"])
            yield finding._replace(direction=NULL if side == NULL else direction)

    def decided(self) -> list[Finding]:
        """Notices that waited, of open connections whose client is known for good by now.

        Those of the others go on waiting, but for more than MAX_NOTICES of them all go.
        """
        must_go = sum(map(len, self._waiting.values())) > MAX_NOTICES
        found: list[Finding] = []
        for connection in list(self._waiting):
            if must_go or self._is_decided(connection):
                slots = self._streams.slots_of(np.array([connection], np.int64))
                client, source = self._client_side(self._streams.connection_rows(slots), 0)
                row = {"_client": client, "role_source": ROLE_SOURCE_NAMES[source]}
                found.extend(self._released(connection, row))
        return found

    def _is_decided(self, connection: int) -> bool:
        state = self._framing.state.connections
        slot = self._framing.slot_of(connection)
        if slot < 0 or state.role[slot] != ROLE_DECIDED:
            return False
        return int(state.role_source[slot]) != ROLE_BY_FIRST_SEEN

    def rest(self) -> list[Finding]:
        """Notices of connections that never closed."""
        left = [
            finding._replace(direction=UNKNOWN_DIRECTION)
            for waiting in self._waiting.values()
            for _, finding in waiting
        ]
        self._waiting.clear()
        return left

    def _row(self, rows: ConnectionRows, row: int, said: ConnectionFacts) -> dict[str, Any]:
        connection = int(rows.connection_id[row])
        client, source = self._client_side(rows, row)
        ends = [_endpoint(rows, row, side) for side in (0, 1)]
        first = int(rows.closed_first[row])
        tunnel = self._tunnel_name(int(rows.tunnel[row]))
        around = None if rows.native[row] else tunnel  # a key that other captures see as well
        found: dict[str, Any] = {
            "_client": client,
            "connection_id": connection,
            "connection_key": connection_key(ends[0], ends[1], around),
            "community_id": community_id(ends[0], ends[1]),
            "protocol": self._protocol(rows, row),
            "client_ip": ends[client].text(),
            "client_port": ends[client].port,
            "broker_ip": ends[1 - client].text(),
            "broker_port": ends[1 - client].port,
            "role_source": ROLE_SOURCE_NAMES[source],
            "vlan_ids": _vlans(int(rows.vlans[row])),
            "tunnel_id": tunnel,
            "started": "syn" if rows.started_by_syn[row] else "midstream",
            "ended": ENDED_NAMES[int(rows.ended[row])],
            "closed_first_by": None if first == NULL else ("broker", "client")[first == client],
            "first_ts_ns": int(rows.first_ts_ns[row]),
            "last_ts_ns": int(rows.last_ts_ns[row]),
            "handshake_rtt_ns": _or_none(rows.handshake_rtt_ns[row]),
            "history": rows.history[row],
            "leg": said.leg,
            "twin_connection_id": said.twin_connection_id,
            "client_version": said.client_version,
            "server_version": said.server_version,
            "protocol_version": said.protocol_version,
            "feature_flags": said.feature_flags,
            "max_message_bytes": said.max_message_bytes,
            "proxied_client_ip": self._framing.proxied.pop(connection, said.proxied_client_ip),
            "tls_sni": self._framing.server_names.pop(connection, None),
            "ended_packet": self._ends.pop((connection, 2), None),
        }
        if found["ended"] == "capture_end":
            found["ended_packet"] = None
        for suffix, side in (("to_broker", client), ("to_client", 1 - client)):
            found.update(self._side(rows.sides[side], row, connection, side, suffix))
            found[f"fin_packet_{suffix}"] = self._ends.pop((connection, side), None)
        return found

    def _protocol(self, rows: ConnectionRows, row: int) -> str:
        slot = self._framing.slot_of(int(rows.connection_id[row]))
        number = int(self._framing.state.connections.protocol[slot]) if slot >= 0 else -1
        if 0 <= number < len(self._specs):
            return self._specs[number].name
        has_payload = any(int(side.stream_bytes[row]) > 0 for side in rows.sides)
        return OPAQUE_NAMES.get(number, "unknown" if has_payload else "none")

    def _side(
        self, values: SideRows, row: int, connection: int, side: int, suffix: str
    ) -> dict[str, Any]:
        found = {f"{name}_{suffix}": _or_none(getattr(values, name)[row]) for name in _SIDE_COLUMNS}
        slot = self._framing.slot_of(connection)
        ways = self._framing.state.directions
        decoded = frames = 0
        if slot >= 0:
            decoded = int(ways.decoded_bytes[2 * slot + side])
            frames = int(ways.frames[2 * slot + side])
        decoded -= self._malformed.pop((connection, side), 0)
        there = int(
            values.stream_bytes[row] - values.gap_bytes[row] - values.snaplen_cut_bytes[row]
        )
        found[f"decoded_bytes_{suffix}"] = decoded
        found[f"frames_{suffix}"] = frames
        found[f"unparsed_bytes_{suffix}"] = there - decoded
        return found


def _or_none(value: Any) -> int | None:
    return None if value == NULL else int(value)


def _endpoint(rows: ConnectionRows, row: int, side: int) -> Endpoint:
    return Endpoint(
        int(rows.ip_version[row]),
        int(rows.address_high[side][row]),
        int(rows.address_low[side][row]),
        int(rows.port[side][row]),
    )


def _vlans(packed: int) -> Sequence[int] | None:
    count = packed >> _VLAN_COUNT_AT & 7
    ids = [packed >> (_VLAN_BITS * place) & 0xFFF for place in range(count)]
    return ids or None
