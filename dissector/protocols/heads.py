"""Decide a connection's protocol where options, TLS, HTTP or a PROXY header decide it."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dissector.limits import MAX_FRAME_BYTES
from dissector.protocols.framing_state import HTTP, TLS, ConnectionState
from dissector.protocols.interface import Specs
from dissector.protocols.recognition import (
    IS_HTTP,
    IS_PROXY_HEADER,
    IS_TLS,
    MORE_NEEDED,
    Records,
    look,
    server_name,
)
from dissector.protocols.runs import Run
from dissector.stream.columns import DATA, STARTS_PACKET

HEAD_BYTES: Final = 4096  # of a direction, looked at for TLS, HTTP and PROXY headers


class FramingOptions(NamedTuple):
    """forced: protocol place by port (-d), any: place for every connection (--protocol)."""

    max_frame_bytes: int = MAX_FRAME_BYTES
    forced: Mapping[int, int] = {}
    only: int | None = None


def _is_tls(run: Run, records: Records) -> bool:
    """Whether a direction that was not seen from its start carries TLS: looks at its last range."""
    piece = run.pieces[-1]
    if piece.kind != DATA:
        return False
    data = run.last_bytes(piece.length)
    return records.take(piece.stream_offset, bool(piece.flags & STARTS_PACKET), data)


class Heads:
    """What the first bytes of connections say.

    proxied: by connection, the client that a PROXY header named; server_names: that TLS asked for.
    """

    def __init__(
        self,
        specs: Specs,
        ports_of: Callable[[int], tuple[int, int]],
        options: FramingOptions,
    ) -> None:
        self._specs = specs
        self._ports_of = ports_of
        self._options = options
        self.proxied: dict[int, str] = {}
        self.server_names: dict[int, str] = {}

    def recognise(self, known: ConnectionState, slot: int, run: Run, is_final: bool) -> bool:
        """Set the protocol if the head of a direction, or an option, decides it.

        Returns:
            Whether the head must be longer to be judged.
        """
        connection = int(known.connection_id[slot])
        forced = self._forced(connection)
        if forced is not None:
            known.protocol[slot] = forced
        if forced is None and run.records is not None and _is_tls(run, run.records):
            known.protocol[slot] = TLS
            return False
        while run.size:
            head = look(run.head(HEAD_BYTES), run.at_start)
            if head.verdict == MORE_NEEDED and run.size < HEAD_BYTES and not is_final:
                return True
            if head.verdict == IS_PROXY_HEADER:
                if head.client_ip:
                    self.proxied[connection] = head.client_ip
                run.drop(head.header_bytes)
                run.at_start = True
                continue
            if forced is None and head.verdict in (IS_TLS, IS_HTTP):
                if run.size < min(head.header_bytes, HEAD_BYTES) and not is_final:
                    return True  # the rest of the ClientHello may name the server
                if head.verdict == IS_TLS:
                    name = server_name(run.head(HEAD_BYTES))
                    if name:
                        self.server_names[connection] = name
                known.protocol[slot] = TLS if head.verdict == IS_TLS else HTTP
            break
        return False

    def _forced(self, connection: int) -> int | None:
        for port in self._ports_of(connection):
            if port in self._options.forced:
                return self._options.forced[port]
        return self._options.only

    def is_hinted(self, connection: int) -> bool:
        """Whether a port of the connection is one of a known protocol's."""
        ports = self._ports_of(connection)
        return any(port in spec.ports for spec in self._specs for port in ports)
