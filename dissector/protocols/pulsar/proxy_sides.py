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
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from dissector.limits import MAX_CHAIN_STEPS
from dissector.protocols.columns import COMPLETE, TO_BROKER, FrameColumns
from dissector.protocols.interface import CLIENT_LEG, PROXY_LEG, Hosts, Sources
from dissector.protocols.pulsar.handshakes import Handshake, HandshakeFrame
from dissector.protocols.pulsar.wire.commands import AUTH_RESPONSE, CONNECT, PING, PONG

# Commands that a proxy or its client sends for itself: they are not forwarded.
_OWN: Final = (CONNECT, AUTH_RESPONSE, PING, PONG)
_NEVER: Final = (1 << 63) - 1
_OTHER: Final = {CLIENT_LEG: PROXY_LEG, PROXY_LEG: CLIENT_LEG}


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
        self.waits_as: _Waiting | None = None
        self.balancer = balancer


# What waits for its peer: digest of the first frame, side and balancer.
_Waiting = tuple[bytes, str, str | None]
# What two connections around a balancer have in common: its address, and CONNECT.
_Opening = tuple[str, Handshake]


class ProxySides:
    """All proxied connections of one capture, until they close.

    repeated: connections that are the proxy's side of a pair, or copies of others.
    """

    def __init__(self, protocol: int) -> None:
        """protocol: Pulsar's number in frames.protocol."""
        self._protocol = protocol
        # A connection may be the client's side of one proxy and another proxy's side.
        self._proxied: dict[int, list[_Proxied]] = {}
        self._without_first_frame: set[int] = set()
        self._unpaired: dict[_Waiting, dict[int, _Proxied]] = {}
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
                for proxied in [*self._proxied[connection]]:
                    proxy_side_connections += self._pair(proxied, content)
        return proxy_side_connections

    def _handle_handshake(self, frame: HandshakeFrame, hosts: Hosts) -> None:
        connection = frame.connection
        if not frame.is_client:
            self._forget_opening(connection)
            for proxied in self._proxied.get(connection, ()):
                proxied.last_handshake_frame = min(proxied.last_handshake_frame, frame.frame_no)
            return
        known = (self._proxied, self._proxy_sides, self._opening)
        if any(connection in each for each in known):
            return  # said CONNECT before
        body = frame.handshake
        if body.proxy_to_broker_url is not None or body.proxy_version is not None:
            side = CLIENT_LEG if body.proxy_version is None else PROXY_LEG
            self._add(_Proxied(frame, side))
        if connection in hosts:
            self._look_for_balancer(frame, *hosts[connection])

    def _look_for_balancer(self, frame: HandshakeFrame, client: str, broker: str) -> None:
        """The client of a CONNECT may be a balancer, or its broker, or both."""
        key = client, frame.handshake
        if key in self._openings and client != broker:
            for outer in self._plain.pop(key, {}).values():
                self._add(_Proxied(outer, CLIENT_LEG, client))
            self._add(_Proxied(frame, PROXY_LEG, client))
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
        self._proxied.setdefault(proxied.connection, []).append(proxied)
        self._without_first_frame.add(proxied.connection)

    def _pair(self, proxied: _Proxied, content: bytes) -> list[int]:
        """Find the peer of a connection by its first frame; return the proxy's side, if any."""
        digest = hashlib.sha256(proxied.client_version.encode() + b"\0" + content).digest()
        side, other = proxied.proxy_side, _OTHER[proxied.proxy_side]
        waiting = self._unpaired.get((digest, other, proxied.balancer), {})
        peers = [*islice(waiting.values(), MAX_CHAIN_STEPS)]
        nested = [each for each in peers if _is_nested(*_in_order(proxied, each))]
        if not nested and (proxied.balancer is not None or not peers):
            proxied.waits_as = digest, side, proxied.balancer
            self._unpaired.setdefault(proxied.waits_as, {})[proxied.connection] = proxied
            return []
        peer = (nested or peers)[0]
        self._remove(peer)
        self._remove(proxied)
        client, proxy = _in_order(proxied, peer)
        self._proxy_sides.setdefault(client.connection, ProxySide(CLIENT_LEG, proxy.connection))
        self._proxy_sides[proxy.connection] = ProxySide(PROXY_LEG, client.connection)
        is_new = proxy.connection not in self.repeated
        self.repeated.add(proxy.connection)
        return [proxy.connection] if is_new else []

    def _remove(self, proxied: _Proxied) -> None:
        connection = proxied.connection
        self._proxied[connection].remove(proxied)
        if not self._proxied[connection]:
            del self._proxied[connection]
            self._without_first_frame.discard(connection)
        if proxied.waits_as is not None:
            self._unpaired[proxied.waits_as].pop(connection)
            if not self._unpaired[proxied.waits_as]:
                del self._unpaired[proxied.waits_as]

    def of(self, connection: int) -> ProxySide | None:
        """The side of a connection, None if it is in no pair."""
        return self._proxy_sides.get(connection)

    def pop(self, connection: int) -> ProxySide | None:
        """Remove a closed connection; return its side, None if it was in no pair."""
        self._forget_opening(connection)
        for proxied in [*self._proxied.get(connection, ())]:
            self._remove(proxied)
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
