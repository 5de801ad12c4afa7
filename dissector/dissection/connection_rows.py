"""Rows of the table `connections`; addresses and directions of connections for other tables."""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np

from dissector.blocks import CLIENTS, Coded, Column, Int64Array, Lists, Spans, TableBlock
from dissector.dissection.address_codes import AddressCodes
from dissector.dissection.copied_connections import with_translations
from dissector.dissection.endpoint_texts import EndpointPairs, end_texts
from dissector.dissection.held_notices import HeldNotices
from dissector.endpoints import Endpoint
from dissector.limits import MAX_HISTORY_TEXTS, MAX_NOTICES, NULL
from dissector.notice_rows import NoticeRows
from dissector.packet.link import VLAN_COUNT_SHIFT, VLAN_ID_BITS
from dissector.protocols.columns import UNKNOWN_DIRECTION
from dissector.protocols.framing import (
    OPAQUE_NAMES,
    ROLE_SOURCE_NAMES,
    TLS,
    UNKNOWN,
    Framing,
    RoleSource,
    RoleState,
    find_connections,
    named,
)
from dissector.protocols.interface import ConnectionFacts, Hosts, Specs
from dissector.schemas.connections import TCP_COLUMNS
from dissector.schemas.enums import OTHER_PROTOCOLS
from dissector.schemas.spans import gather_spans
from dissector.stream.columns import ENDED_CAPTURE_END, ENDED_NAMES
from dissector.stream.streams import ConnectionEnds, ConnectionRows, Streams
from dissector.tls.facts import tls_columns
from dissector.tls.room import TlsRoom

_DIRECTION: Final = NoticeRows._fields.index("direction")
_STARTED_NAMES: Final = ("midstream", "syn")
_CLOSER_NAMES: Final = ("broker", "client")


class _Roles(NamedTuple):
    """The roles in connections, int64[rows] each.

    client: side 0 or 1.
    source: index in ROLE_SOURCE_NAMES.
    connection_index: row in the framing, -1 if it has none.
    protocol: number in the framing, or NULL.
    """

    client: Int64Array
    source: Int64Array
    connection_index: Int64Array
    protocol: Int64Array


class ConnectionTable:
    """The rows of connections when they close; holds notices until the roles are known.

    Rows are computed column by column: in a scan every packet is a connection.
    """

    def __init__(
        self,
        streams: Streams,
        framing: Framing,
        specs: Specs,
        tunnel_names: Callable[[int, int], list[str]],
        tls: TlsRoom,
        key: int = 0,
    ) -> None:
        """tunnel_names: (first number, number after the last) -> names; key: of hash tables."""
        self._streams = streams
        self._tunnel_names = tunnel_names
        self._tunnel_codes = np.full(1, NULL)  # by number of the tunnels, in the texts
        self._tunnel_texts: list[str] = []
        self._tunnels_by_text: dict[str, int] = {}
        self._framing = framing
        self._tls = tls
        self._specs = specs
        self._held = HeldNotices()
        self._malformed: dict[int, int] = {}  # by direction: 2 * connection + side
        self._addresses = AddressCodes(key)
        self._protocol_codes = {
            **{protocol: protocol for protocol in range(len(specs))},
            **{number: len(specs) + n for n, number in enumerate(OPAQUE_NAMES)},
        }
        self._protocol_names = (
            *(spec.name for spec in specs), *OPAQUE_NAMES.values(), *OTHER_PROTOCOLS, "none",
        )  # fmt: skip
        self._histories: dict[str, int] = {}
        self._history_names: list[str] = []

    def hold(self, notices: Int64Array) -> None:
        """Hold notices until their direction is known, at the latest when their connection closes.

        Args:
            notices: the matrix of NoticeRows; their column `direction` has the endpoint_index.
        """
        self._held.add(notices)

    def count_malformed(self, connection: int, endpoint_index: int, size: int) -> None:
        """Subtract a frame of `size` bytes that cannot be parsed from the decoded bytes."""
        direction_index = 2 * connection + endpoint_index
        self._malformed[direction_index] = self._malformed.get(direction_index, 0) + size

    def addresses(self, connections: Int64Array) -> dict[str, Column]:
        """Columns client_ip and broker_ip for rows of connections, open or just closed."""
        return self._addresses.columns(connections, self._ends_of)

    def hosts(self, connections: Int64Array) -> Hosts:
        """Addresses of client and broker of connections, open or just closed."""
        if not len(connections):
            return {}
        texts = self._addresses.texts_of(self._ends_of(connections))
        return dict(zip(connections.tolist(), zip(*texts, strict=True), strict=True))

    def clients(self, connections: Int64Array) -> TableBlock:
        """The clients of connections, open or just closed: address, port, and the address in a
        PROXY header."""
        ends = self._ends_of(connections)
        client_ip = self._addresses.columns_of(ends)["client_ip"]
        columns: dict[str, Column] = {
            "connection_id": connections, "client_ip": client_ip, "client_port": ends.port,
            "proxied_client_ip": _texts_of(self._framing.proxied, connections.tolist()),
        }  # fmt: skip
        return TableBlock(CLIENTS, len(connections), columns)

    def ends_of(self, connection: int) -> tuple[Endpoint, Endpoint] | None:
        """Client and broker of an open connection, else None."""
        connection_indexes = self._streams.rows_of(np.array([connection], np.int64))
        if connection_indexes[0] < 0:
            return None
        rows = self._streams.connection_ends(connection_indexes)
        client = int(self._roles(rows).client[0])
        return _endpoint(rows, 0, client), _endpoint(rows, 0, 1 - client)

    def _ends_of(self, connections: Int64Array) -> EndpointPairs:
        connection_indexes = self._streams.rows_of(connections)
        assert (connection_indexes >= 0).all(), "a connection whose rows are to come is known"
        rows = self._streams.connection_ends(connection_indexes)
        return _ends(rows, self._roles(rows).client)

    def _connection_indexes_of(self, connections: Int64Array) -> Int64Array:
        """The rows of connections in the framing, -1 if it has none."""
        connection_indexes = np.empty(len(connections), np.int64)
        find_connections(self._framing.state, connections, connection_indexes)
        return connection_indexes

    def _roles(self, rows: ConnectionEnds) -> _Roles:
        """The roles in connections, by framing, SYN, port or first packet."""
        states = self._framing.state.connections
        connection_index = self._connection_indexes_of(rows.connections.connection_id)
        is_kept = connection_index >= 0
        is_decided = is_kept & (states.role[connection_index] == RoleState.DECIDED)
        opener = rows.connections.opener
        ports = sorted(self._framing.broker_ports)
        hinted = [np.isin(port, ports) for port in rows.port]
        is_by_port = hinted[0] != hinted[1]
        cases = [is_decided, opener >= 0, is_by_port]
        return _Roles(
            np.select(
                cases,
                [states.client_endpoint[connection_index], opener, hinted[0].astype(np.int64)],
                0,
            ),
            np.select(
                cases,
                [states.role_source[connection_index], RoleSource.BY_SYN, RoleSource.BY_PORT],
                RoleSource.BY_FIRST_SEEN,
            ),
            connection_index,
            np.where(is_kept, states.protocol[connection_index], NULL),
        )

    def with_frames(self, connections: Int64Array) -> Int64Array:
        """The connections whose protocol is decoded."""
        connection_index = self._connection_indexes_of(connections)
        protocol = self._framing.state.connections.protocol[connection_index]
        is_known = (connection_index >= 0) & (protocol >= 0) & (protocol < len(self._specs))
        return connections[is_known]

    def close(
        self, rows: ConnectionRows, facts: Mapping[int, ConnectionFacts]
    ) -> tuple[TableBlock, Int64Array]:
        """The rows of closed connections, and the matrix of their held notices.

        Args:
            facts: by connection, from its frames.
        """
        roles, connections = self._roles(rows), rows.connections.connection_id.copy()
        block = self.block(rows, facts, roles)
        notices = self._pop_notices(connections, roles)
        self._forget(connections)
        return block, notices

    def open_rows(self) -> ConnectionRows:
        """Open connections with frames, as if the capture ended now."""
        rows = self._streams.connection_rows(self._streams.open_rows())
        connections = rows.connections.connection_id
        chosen = self._streams.rows_of(self.with_frames(connections))
        rows = self._streams.connection_rows(np.sort(chosen))
        closing = rows.connections.closing
        closing[closing < 0] = ENDED_CAPTURE_END
        return rows

    def block(
        self,
        rows: ConnectionRows,
        facts: Mapping[int, ConnectionFacts],
        roles: _Roles | None = None,
    ) -> TableBlock:
        """The rows of connections as a block; facts: as of `close`."""
        roles = self._roles(rows) if roles is None else roles
        connections = rows.connections.connection_id.copy()
        columns = {
            "connection_id": connections,
            **self._identity_columns(rows, roles),
            **self._ending_columns(rows, roles),
            **self._protocol_columns(
                connections.tolist(), with_translations(rows.connections, facts), roles
            ),
        }
        for suffix, endpoint_index in (
            ("to_broker", roles.client),
            ("to_client", 1 - roles.client),
        ):
            columns.update(
                self._direction_columns(rows, roles.connection_index, endpoint_index, suffix)
            )
        return TableBlock("connections", len(connections), columns)

    def _forget(self, connections: Int64Array) -> None:
        """Drop the state of closed connections whose rows are written."""
        self._framing.release(connections)
        if not self._tls.is_empty:
            self._tls.forget(connections.tolist())
        for by_key, keys_each in (
            (self._framing.proxied, 1), (self._framing.server_names, 1),
            (self._malformed, 2),
        ):  # fmt: skip
            if by_key:
                keys = keys_each * connections[:, None] + np.arange(keys_each)
                for key in keys.ravel().tolist():
                    by_key.pop(key, None)

    def _identity_columns(self, rows: ConnectionRows, roles: _Roles) -> dict[str, Column]:
        """Columns of addresses and keys, VLANs and tunnels."""
        ends = _ends(rows, roles.client)
        texts = end_texts(ends)
        tunnel = self._tunnels(rows.connections.tunnel)
        return {
            "connection_key": _with_tunnel(texts.key, tunnel, rows.connections.is_native),
            "community_id": texts.community_id,
            "client_port": ends.port,
            "broker_port": ends.other_port,
            **self._addresses.columns_of(ends),
            "role_source": Coded(roles.source, ROLE_SOURCE_NAMES),
            "vlan_ids": _vlans(rows.connections.vlans),
            "tunnel_id": tunnel,
        }

    def _tunnels(self, numbers: Int64Array) -> Coded:
        """Names of tunnels, each text once: in a flood every connection may have its own."""
        first_new, stop = len(self._tunnel_codes), int(numbers.max(initial=0)) + 1
        if stop > first_new:
            codes, texts = self._tunnels_by_text, self._tunnel_texts
            names = self._tunnel_names(first_new, stop)
            new = [codes.setdefault(name, len(codes)) for name in names]
            texts.extend(islice(codes, len(texts), None))
            new += [NULL] * (stop - first_new - len(new))
            self._tunnel_codes = np.concatenate((self._tunnel_codes, new))
        return Coded(self._tunnel_codes[numbers], self._tunnel_texts)

    def _ending_columns(self, rows: ConnectionRows, roles: _Roles) -> dict[str, Column]:
        """Columns of the start and end of connections, and of their protocols."""
        connections = rows.connections
        first = connections.closed_first
        # A side that sent nothing, in a connection from before the capture, may have closed before.
        began_here = connections.opener >= 0
        was_open = [
            (side.stream_bytes > 0) | (side.fin_seen > 0) | (began_here & (side.packets > 0))
            for side in rows.directions
        ]
        is_known = (first >= 0) & np.where(first == 0, was_open[1], was_open[0])
        closer = np.where(is_known, (first == roles.client).astype(np.int64), NULL)
        is_cut = connections.closing == ENDED_CAPTURE_END
        return {
            "protocol": self._protocols(rows, roles),
            "started": Coded((connections.opener >= 0).astype(np.int64), _STARTED_NAMES),
            "ended": Coded(connections.closing.copy(), ENDED_NAMES),
            "closed_first_by": Coded(closer, _CLOSER_NAMES),
            # Copies: these are views of the streams' matrix.
            "first_ts_ns": connections.first_ts_ns.copy(),
            "last_ts_ns": connections.last_ts_ns.copy(),
            "handshake_rtt_ns": connections.handshake_rtt_ns.copy(),
            "history": self._history(rows.history),
            "ended_packet": np.where(is_cut, NULL, connections.ended_packet),
        }

    def _history(self, texts: Sequence[str]) -> Coded:
        if len(self._histories) > MAX_HISTORY_TEXTS:
            self._histories, self._history_names = {}, []
        codes = [self._histories.setdefault(text, len(self._histories)) for text in texts]
        names = self._history_names
        names.extend(list(self._histories)[len(names) :])
        return Coded(np.array(codes, np.int64), names)

    def _protocols(self, rows: ConnectionRows, roles: _Roles) -> Coded:
        """Names of protocols: recognised by the framing or by prefix, else unknown, or none
        without payload."""
        has_payload = (rows.directions[0].stream_bytes > 0) | (rows.directions[1].stream_bytes > 0)
        unknown = self._protocol_codes[UNKNOWN]
        codes = np.where(has_payload, unknown, len(self._protocol_names) - 1)
        for number, code in self._protocol_codes.items():
            codes[roles.protocol == number] = code
        at = np.flatnonzero((codes == unknown) & (roles.connection_index >= 0))
        if len(at):
            ports = (rows.port[0][at], rows.port[1][at])
            other = named(self._framing.state.directions, roles.connection_index[at], ports)
            first = self._protocol_names.index(next(iter(OTHER_PROTOCOLS)))
            codes[at] = np.where(other >= 0, first + other, unknown)
        return Coded(codes, self._protocol_names)

    def _protocol_columns(
        self, connections: Sequence[int], facts: Mapping[int, ConnectionFacts], roles: _Roles
    ) -> dict[str, Column]:
        """Columns from frames, TLS and first bytes; columns without a value are left out."""
        framing = self._framing
        proxied = _texts_of(framing.proxied, connections)
        names = _texts_of(framing.server_names, connections)
        columns: dict[str, list[Any]] = {"tls_sni": names, "proxied_client_ip": proxied}
        is_tls = roles.protocol == TLS
        if not self._tls.is_empty or is_tls.any():
            tls_facts = [self._tls.facts(number) for number in connections]
            columns |= tls_columns(tls_facts, names, is_tls.tolist())
        if facts:
            for name in ConnectionFacts._fields:
                columns.setdefault(name, [None] * len(connections))
            for row, connection in enumerate(connections):
                if connection in facts:
                    for name, value in zip(ConnectionFacts._fields, facts[connection], strict=True):
                        if columns[name][row] is None:
                            columns[name][row] = value
        # A column that is missing in a block is null.
        return {
            name: values for name, values in columns.items() if values.count(None) < len(values)
        }

    def _direction_columns(
        self,
        rows: ConnectionRows,
        connection_index: Int64Array,
        endpoint_index: Int64Array,
        suffix: str,
    ) -> dict[str, Column]:
        """The columns of one direction. endpoint_index: its side, by row."""
        connections = rows.connections.connection_id
        one, other = rows.directions
        tcp = {
            name: _of_endpoint((getattr(one, name), getattr(other, name)), endpoint_index)
            for name in TCP_COLUMNS
        }
        directions = self._framing.state.directions
        is_kept, direction_index = connection_index >= 0, 2 * connection_index + endpoint_index
        decoded = np.where(is_kept, directions.decoded_bytes[direction_index], 0)
        if self._malformed:
            keys = (2 * connections + endpoint_index).tolist()
            decoded -= np.array([self._malformed.get(key, 0) for key in keys], np.int64)
        present = tcp["stream_bytes"] - tcp["gap_bytes"] - tcp["snaplen_cut_bytes"]
        overhead = self._overhead(connections, endpoint_index)
        if overhead is not None:
            tcp["tls_overhead_bytes"] = overhead
            present -= np.where(overhead == NULL, 0, overhead)
        return {
            **{f"{name}_{suffix}": values for name, values in tcp.items()},
            f"decoded_bytes_{suffix}": decoded,
            f"frames_{suffix}": np.where(is_kept, directions.frames[direction_index], 0),
            f"unparsed_bytes_{suffix}": present - decoded,
            f"fin_packet_{suffix}": _of_endpoint(
                (one.fin_packet, other.fin_packet), endpoint_index
            ),
        }

    def _overhead(self, connections: Int64Array, endpoint_index: Int64Array) -> Int64Array | None:
        """TLS overhead of a direction, bytes; NULL if not decrypted; None if no connection was."""
        if self._tls.is_empty:
            return None
        overhead = np.full(len(connections), NULL)
        for row, number in enumerate(connections.tolist()):
            facts = self._tls.facts(number)
            if facts is not None and facts.overhead is not None:
                overhead[row] = facts.overhead[int(endpoint_index[row])]
        return overhead

    def _pop_notices(self, connections: Int64Array, roles: _Roles) -> Int64Array:
        """Remove and return the held notices of connections, with their direction."""
        rows, owners = self._held.pop(connections.tolist())
        endpoint_index = rows[:, _DIRECTION]
        is_guessed = roles.source[owners] == RoleSource.BY_FIRST_SEEN
        direction = np.where(is_guessed, UNKNOWN_DIRECTION, endpoint_index != roles.client[owners])
        rows[:, _DIRECTION] = np.where(endpoint_index == NULL, NULL, direction)
        return rows

    def decided_notices(self) -> Int64Array:
        """Remove and return the held notices of open connections whose client is certain.

        If more than MAX_NOTICES are held, those of all connections.
        """
        must_go = self._held.count > MAX_NOTICES
        waiting = self._held.connections()
        rows = self._streams.connection_ends(self._streams.rows_of(waiting))
        roles = self._roles(rows)
        states = self._framing.state.connections
        is_decided = (roles.connection_index >= 0) & (
            states.role[roles.connection_index] == RoleState.DECIDED
        )
        chosen = np.flatnonzero(must_go | (is_decided & (roles.source != RoleSource.BY_FIRST_SEEN)))
        return self._pop_notices(waiting[chosen], _Roles(*(each[chosen] for each in roles)))

    def remaining_notices(self) -> Int64Array:
        """Remove and return the notices of connections that did not close."""
        notices, _ = self._held.pop(self._held.connections().tolist())
        notices[:, _DIRECTION] = UNKNOWN_DIRECTION
        return notices


def _of_endpoint(values: tuple[Int64Array, Int64Array], endpoint_index: Int64Array) -> Int64Array:
    """The value of one side, by row."""
    return np.where(endpoint_index == 0, *values)


def _ends(rows: ConnectionEnds, client: Int64Array) -> EndpointPairs:
    """Client and broker of connections. client: its side, by row."""
    high, low, port = rows.address_high, rows.address_low, rows.port
    broker = 1 - client
    return EndpointPairs(
        rows.ip_version,
        _of_endpoint(high, client), _of_endpoint(low, client), _of_endpoint(port, client),
        _of_endpoint(high, broker), _of_endpoint(low, broker), _of_endpoint(port, broker),
    )  # fmt: skip


def _texts_of(texts: dict[int, str], connections: Sequence[int]) -> list[str | None]:
    return [texts.get(connection) if texts else None for connection in connections]


def _with_tunnel(keys: Spans, tunnel: Coded, native: Int64Array) -> Spans:
    """Connection keys, with the tunnel in front if all packets were inside it.

    A key is the same in other captures of the connection.
    """
    is_around = (tunnel.codes >= 0) & (native == 0)
    if not is_around.any():
        return keys
    used, inverse = np.unique(np.where(is_around, tunnel.codes, NULL), return_inverse=True)
    prefixes = [
        b"" if code < 0 else b"%s " % str(tunnel.names[code]).encode() for code in used.tolist()
    ]
    sizes = np.fromiter(map(len, prefixes), np.int64, len(prefixes))
    data = np.concatenate((np.frombuffer(b"".join(prefixes), np.uint8), keys.data))
    starts = np.stack(((np.cumsum(sizes) - sizes)[inverse], int(sizes.sum()) + keys.starts), 1)
    lengths = np.stack((sizes[inverse], keys.lengths), 1)
    total_sizes = lengths.sum(axis=1)
    text = np.empty(int(total_sizes.sum()), np.uint8)
    gather_spans(data, starts.ravel(), lengths.ravel(), text)
    return Spans(text, np.cumsum(total_sizes) - total_sizes, total_sizes)


def _endpoint(rows: ConnectionEnds, row: int, endpoint_index: int) -> Endpoint:
    return Endpoint(
        int(rows.ip_version[row]),
        int(rows.address_high[endpoint_index][row]),
        int(rows.address_low[endpoint_index][row]),
        int(rows.port[endpoint_index][row]),
    )


def _vlans(packed: Int64Array) -> Lists:
    """VLAN ids, outermost first; null without VLANs."""
    counts = packed >> VLAN_COUNT_SHIFT & 7
    most = int(counts.max(initial=0))
    ids = np.stack([packed >> (VLAN_ID_BITS * n) & 0xFFF for n in range(most or 1)], axis=1)
    return Lists(
        ids.reshape(-1),
        np.arange(len(packed)) * ids.shape[1],
        np.where(counts > 0, counts, -1),
    )
