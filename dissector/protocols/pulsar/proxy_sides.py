"""Proxied connections that were captured twice: which two are a pair, and which is the proxy's own.

A client of a proxy names the broker in its CONNECT (`proxy_to_broker_url`). The proxy opens a
connection to that broker, gives in its CONNECT its own version (`proxy_version`) and its client's,
and from then on forwards the bytes of both sides unchanged. So the first frame after the handshake
is the same on both connections. If two clients send the same first frame, the handshakes decide:
the proxy's lies inside its client's.

A load balancer that forwards bytes names itself nowhere. So two connections with one CONNECT are a
pair, too, if the client of the second is the broker of the first (one host, the balancer), and the
second handshake lies inside the first. A balancer with different addresses on both sides is not
known as one.

Only these first frames are compared. A connection whose CONNECT was not captured has no peer. Nor
has one on which a proxy answers lookups itself: its frames are on no other connection.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from dissector.protocols.columns import COMPLETE, TO_BROKER, FrameColumns
from dissector.protocols.interface import CLIENT_LEG, PROXY_LEG, Hosts, Sources
from dissector.protocols.pulsar.handshakes import Handshake, HandshakeFrame
from dissector.protocols.pulsar.wire.commands import AUTH_RESPONSE, CONNECT, PING, PONG

# Commands that a proxy or its client sends for itself: they are not forwarded.
_OWN: Final = (CONNECT, AUTH_RESPONSE, PING, PONG)
_NEVER: Final = (1 << 63) - 1


class ProxySide(NamedTuple):
    """A connection's side in a proxied pair.

    name: CLIENT_LEG or PROXY_LEG.
    proxy_peer: connection_id of the other connection.
    """

    name: str
    proxy_peer: int


class _Proxied:
    """A connection to or from a proxy; first_ and last_handshake_frame: frame numbers.

    balancer: address of the proxy if it is known by its address alone, else None.
    """

    def __init__(self, frame: HandshakeFrame, proxy_side: str, balancer: str | None = None) -> None:
        """frame: its CONNECT."""
        self.connection = frame.connection
        self.proxy_side = proxy_side
        self.client_version = frame.handshake.client_version or ""
        self.first_handshake_frame = frame.frame_no
        self.last_handshake_frame = _NEVER
        self.first_frame_digest = b""
        self.balancer = balancer


# What two connections around a balancer have in common: its address, and CONNECT.
_Opening = tuple[str, Handshake]


class ProxySides:
    """All proxied connections of one capture, until they close.

    repeated: connections that are the proxy's side of a pair, or copies of others.
    """

    def __init__(self, protocol: int) -> None:
        """protocol: Pulsar's number in frames.protocol."""
        self._protocol = protocol
        self._proxied: dict[int, _Proxied] = {}
        self._without_first_frame: set[int] = set()
        self._unpaired: dict[bytes, list[_Proxied]] = {}  # by digest of the first frame
        self._proxy_sides: dict[int, ProxySide] = {}
        # Connections whose CONNECT has no answer yet: what is common, how many have that, and which
        # of these are not known as a balancer's clients.
        self._opening: dict[int, _Opening] = {}
        self._openings: dict[_Opening, int] = {}
        self._plain: dict[_Opening, dict[int, HandshakeFrame]] = {}
        self.repeated: set[int] = set()

    def advance(
        self,
        handshakes: Iterable[HandshakeFrame],
        frames: FrameColumns,
        rows: int,
        sources: Sources,
        hosts: Hosts,
    ) -> list[int]:
        """Handle a block of frames and its handshakes.

        Args:
            hosts: of connections that begin in the block.

        Returns:
            The connections that were found to be the proxy's side of a pair, in order.
        """
        for each in handshakes:
            self._handle_handshake(each, hosts)
        if not self._without_first_frame:
            return []
        is_first = np.isin(frames.connection_id[:rows], list(self._without_first_frame))
        is_first &= frames.protocol[:rows] == self._protocol
        is_first &= frames.direction[:rows] == TO_BROKER
        is_first &= frames.status[:rows] == COMPLETE
        is_first &= ~np.isin(frames.command[:rows], _OWN) & (frames.command[:rows] >= 0)
        proxy_side_connections: list[int] = []
        for row in np.flatnonzero(is_first).tolist():
            connection = int(frames.connection_id[row])
            if connection in self._without_first_frame:
                self._without_first_frame.remove(connection)
                at = int(frames.data_offset[row])
                data = sources[int(frames.source[row])]
                content = data[at : at + int(frames.frame_bytes[row])].tobytes()
                proxy_side_connections += self._pair(self._proxied[connection], content)
        return proxy_side_connections

    def _handle_handshake(self, frame: HandshakeFrame, hosts: Hosts) -> None:
        connection = frame.connection
        proxied = self._proxied.get(connection)
        if not frame.is_client:
            self._forget_opening(connection)
            if proxied is not None:
                proxied.last_handshake_frame = min(proxied.last_handshake_frame, frame.frame_no)
            return
        known = (self._proxied, self._proxy_sides, self._opening)
        if any(connection in each for each in known):
            return  # said CONNECT before
        body = frame.handshake
        if body.proxy_to_broker_url is not None or body.proxy_version is not None:
            side = CLIENT_LEG if body.proxy_version is None else PROXY_LEG
            self._add(_Proxied(frame, side))
        elif connection in hosts:
            self._handle_plain(frame, *hosts[connection])

    def _handle_plain(self, frame: HandshakeFrame, client: str, broker: str) -> None:
        """A CONNECT that names no proxy: its client may be a balancer, or its broker."""
        key = client, frame.handshake
        if key in self._openings and client != broker:
            for outer in self._plain.pop(key, {}).values():
                self._add(_Proxied(outer, CLIENT_LEG, client))
            self._add(_Proxied(frame, PROXY_LEG, client))
            return
        key = broker, frame.handshake
        self._opening[frame.connection] = key
        self._openings[key] = self._openings.get(key, 0) + 1
        self._plain.setdefault(key, {})[frame.connection] = frame

    def _forget_opening(self, connection: int) -> None:
        key = self._opening.pop(connection, None)
        if key is None:
            return
        self._openings[key] -= 1
        self._plain.get(key, {}).pop(connection, None)
        if not self._openings[key]:
            del self._openings[key]
            self._plain.pop(key, None)

    def _add(self, proxied: _Proxied) -> None:
        self._proxied[proxied.connection] = proxied
        self._without_first_frame.add(proxied.connection)

    def _pair(self, proxied: _Proxied, content: bytes) -> list[int]:
        """Find the peer of a connection by its first frame; return the proxy's side, if any."""
        digest = hashlib.sha256(proxied.client_version.encode() + b"\0" + content).digest()
        candidates = self._unpaired.setdefault(digest, [])
        matches = [
            each
            for each in candidates
            if each.proxy_side != proxied.proxy_side and each.balancer == proxied.balancer
        ]
        nested = [each for each in matches if _is_nested(*_in_order(proxied, each))]
        if not matches or (proxied.balancer is not None and not nested):
            proxied.first_frame_digest = digest
            candidates.append(proxied)
            return []
        peer = (nested or matches)[0]
        self._remove(peer)
        del self._proxied[proxied.connection]
        client, proxy = _in_order(proxied, peer)
        self._proxy_sides[client.connection] = ProxySide(CLIENT_LEG, proxy.connection)
        self._proxy_sides[proxy.connection] = ProxySide(PROXY_LEG, client.connection)
        self.repeated.add(proxy.connection)
        return [proxy.connection]

    def _remove(self, proxied: _Proxied) -> None:
        del self._proxied[proxied.connection]
        self._without_first_frame.discard(proxied.connection)
        candidates = self._unpaired.get(proxied.first_frame_digest, [])
        if proxied in candidates:
            candidates.remove(proxied)
        if not candidates:
            self._unpaired.pop(proxied.first_frame_digest, None)

    def of(self, connection: int) -> ProxySide | None:
        """The side of a connection, None if it is in no pair."""
        return self._proxy_sides.get(connection)

    def pop(self, connection: int) -> ProxySide | None:
        """Remove a closed connection; return its side, None if it was in no pair."""
        self._forget_opening(connection)
        if connection in self._proxied:
            self._remove(self._proxied[connection])
        self.repeated.discard(connection)
        return self._proxy_sides.pop(connection, None)


def _in_order(one: _Proxied, other: _Proxied) -> tuple[_Proxied, _Proxied]:
    """The client's side and the proxy's."""
    return (one, other) if one.proxy_side == CLIENT_LEG else (other, one)


def _is_nested(client: _Proxied, proxy: _Proxied) -> bool:
    """Whether the proxy's handshake lies inside the client's."""
    return (
        client.first_handshake_frame < proxy.first_handshake_frame
        and proxy.last_handshake_frame <= client.last_handshake_frame
    )
