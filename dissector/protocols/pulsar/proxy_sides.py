"""Proxied connections seen twice: which two belong together, and which is the proxy's own.

A client that is sent through a proxy says in CONNECT for which broker (`proxy_to_broker_url`); the
proxy opens a connection to that broker, says in its CONNECT what it is (`proxy_version`) and which
client it stands for, and from then on passes the bytes of both unchanged. So the first frame that
the client sends after the handshake is the first on the other side too. Where two clients begin
alike, the handshakes tell: the proxy's takes place inside its client's.

Only these first frames are compared. A connection whose CONNECT was not captured has no twin, nor
has the one on which a proxy answers lookups itself, whose frames are its own.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from dissector.protocols.columns import COMPLETE, TO_BROKER, FrameColumns
from dissector.protocols.interface import CLIENT_LEG, PROXY_LEG, Sources
from dissector.protocols.pulsar.handshakes import HandshakeFrame
from dissector.protocols.pulsar.wire.commands import AUTH_RESPONSE, CONNECT, PING, PONG

# What either side of a proxy sends on its own account.
_OWN: Final = (CONNECT, AUTH_RESPONSE, PING, PONG)
_NEVER: Final = (1 << 63) - 1


class ProxySide(NamedTuple):
    """Which connection of a proxied pair one is, and the other one.

    name: CLIENT_LEG or PROXY_LEG.
    proxy_peer: connection_id of the other.
    """

    name: str
    proxy_peer: int


class _Hop:
    """A connection that takes part in proxying; its handshake spans these frames."""

    def __init__(
        self, connection: int, proxy_side: str, client_version: str, begun_at: int
    ) -> None:
        self.connection = connection
        self.proxy_side = proxy_side
        self.client_version = client_version
        self.begun_at = begun_at
        self.done_at = _NEVER
        self.first_frame = b""


class ProxySides:
    """All proxied connections of one capture, until they close.

    repeated: the proxy's legs of pairs.
    """

    def __init__(self, protocol: int) -> None:
        """protocol: what frames.protocol holds for Pulsar."""
        self._protocol = protocol
        self._hops: dict[int, _Hop] = {}
        self._waiting: set[int] = set()  # those whose first frame is to come
        self._single: dict[bytes, list[_Hop]] = {}  # by first frame, those without a twin
        self._proxy_sides: dict[int, ProxySide] = {}
        self.repeated: set[int] = set()

    def advance(
        self,
        handshakes: Iterable[HandshakeFrame],
        frames: FrameColumns,
        rows: int,
        sources: Sources,
    ) -> list[int]:
        """Take a block of frames and the handshakes among them.

        Returns:
            The connections that turned out to be the proxy's leg of a pair, in order.
        """
        for each in handshakes:
            self._handle_handshake(each)
        if not self._waiting:
            return []
        is_first = np.isin(frames.connection_id[:rows], list(self._waiting))
        is_first &= frames.protocol[:rows] == self._protocol
        is_first &= frames.direction[:rows] == TO_BROKER
        is_first &= frames.status[:rows] == COMPLETE
        is_first &= ~np.isin(frames.command[:rows], _OWN) & (frames.command[:rows] >= 0)
        proxy_side_connections: list[int] = []
        for row in np.flatnonzero(is_first).tolist():
            connection = int(frames.connection_id[row])
            if connection in self._waiting:
                self._waiting.remove(connection)
                at = int(frames.data_offset[row])
                data = sources[int(frames.source[row])]
                content = data[at : at + int(frames.frame_bytes[row])].tobytes()
                proxy_side_connections += self._handle_first(self._hops[connection], content)
        return proxy_side_connections

    def _handle_handshake(self, frame: HandshakeFrame) -> None:
        hop = self._hops.get(frame.connection)
        if not frame.is_client:
            if hop is not None:
                hop.done_at = min(hop.done_at, frame.frame_no)
            return
        body = frame.handshake
        if body.proxy_to_broker_url is None and body.proxy_version is None:
            return
        if hop is None and frame.connection not in self._proxy_sides:
            proxy_side = CLIENT_LEG if body.proxy_version is None else PROXY_LEG
            version = body.client_version or ""
            self._hops[frame.connection] = _Hop(
                frame.connection, proxy_side, version, frame.frame_no
            )
            self._waiting.add(frame.connection)

    def _handle_first(self, hop: _Hop, content: bytes) -> list[int]:
        """Look for the twin of a connection by its first frame; the proxy's leg if there is one."""
        digest = hashlib.sha256(hop.client_version.encode() + b"\0" + content).digest()
        alike = self._single.setdefault(digest, [])
        others = [each for each in alike if each.proxy_side != hop.proxy_side]
        if not others:
            hop.first_frame = digest
            alike.append(hop)
            return []
        nested = [each for each in others if _is_nested(*_in_order(hop, each))]
        other = (nested or others)[0]
        self._forget(other)
        del self._hops[hop.connection]
        client, proxy = _in_order(hop, other)
        self._proxy_sides[client.connection] = ProxySide(CLIENT_LEG, proxy.connection)
        self._proxy_sides[proxy.connection] = ProxySide(PROXY_LEG, client.connection)
        self.repeated.add(proxy.connection)
        return [proxy.connection]

    def _forget(self, hop: _Hop) -> None:
        del self._hops[hop.connection]
        self._waiting.discard(hop.connection)
        alike = self._single.get(hop.first_frame, [])
        if hop in alike:
            alike.remove(hop)
        if not alike:
            self._single.pop(hop.first_frame, None)

    def is_proxy_side(self, connection: int) -> bool:
        """Whether a connection is the proxy's own leg of a pair."""
        return connection in self.repeated

    def of(self, connection: int) -> ProxySide | None:
        """The leg of a connection, None if it is in no pair."""
        return self._proxy_sides.get(connection)

    def pop(self, connection: int) -> ProxySide | None:
        """The leg of a connection that is over; forgets the connection."""
        if connection in self._hops:
            self._forget(self._hops[connection])
        self.repeated.discard(connection)
        return self._proxy_sides.pop(connection, None)


def _in_order(one: _Hop, other: _Hop) -> tuple[_Hop, _Hop]:
    """The client's leg and the proxy's."""
    return (one, other) if one.proxy_side == CLIENT_LEG else (other, one)


def _is_nested(client: _Hop, proxy: _Hop) -> bool:
    """Whether the proxy's handshake lies inside the client's."""
    return client.begun_at < proxy.begun_at and proxy.done_at <= client.done_at
