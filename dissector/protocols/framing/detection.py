"""Decide a connection's protocol where options, TLS, HTTP or a PROXY header decide it.

What the user says of a port, or of all connections, decides before any content, as in Wireshark:
the connection is read so, whatever that gives. Where its first bytes are plainly another
protocol's, a notice says so. A PROXY header is no content, and comes off first.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from dissector.jit import callback
from dissector.limits import MAX_FRAME_BYTES
from dissector.notice_log import Notice
from dissector.notices import NOTICE_NUMBER
from dissector.protocols.columns import UNKNOWN_DIRECTION
from dissector.protocols.framing.first_bytes import (
    IS_HTTP,
    IS_PROXY_HEADER,
    IS_TLS,
    MORE_NEEDED,
    NOT_KNOWN,
    look,
    server_name,
)
from dissector.protocols.framing.state import HTTP, TLS, UNDECIDED, ConnectionState
from dissector.protocols.framing.unsynchronised import Run
from dissector.protocols.interface import CHECK_SIGNATURE, HEADER_WINDOW, Specs

HEAD_BYTES: Final = 4096  # of a direction, looked at for TLS, HTTP and PROXY headers
_MORE: Final = -2  # the next bytes tell
_STRICT: Final = 1
_KNOWN_PORTS: Final = 4096  # connections whose ports are at hand


class FramingOptions(NamedTuple):
    """What the user chose.

    forced: number of the protocol by port (-d); only: that of every connection (--protocol);
    hash_key: of hash tables.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    forced: Mapping[int, int] = {}
    only: int | None = None
    hash_key: int = 0


class Detection:
    """What the first bytes of connections say.

    proxied: by connection, the client that a PROXY header named; server_names: that TLS asked for;
    broker_ports: where brokers listen, as protocols have it and as the user says.
    """

    def __init__(
        self,
        specs: Specs,
        ports_of: Callable[[int], tuple[int, int]],
        options: FramingOptions,
        findings: list[Notice],
    ) -> None:
        self._check = tuple(callback(CHECK_SIGNATURE, spec.check) for spec in specs)
        # Asked for each range while a direction is searched; a connection's do not change.
        self._ports_of = lru_cache(_KNOWN_PORTS)(ports_of)
        self._options = options
        self._findings = findings
        self.proxied: dict[int, str] = {}
        self.server_names: dict[int, str] = {}
        known = frozenset(port for spec in specs for port in spec.ports)
        self.broker_ports = known | options.forced.keys()

    def recognise(self, known: ConnectionState, slot: int, run: Run, is_final: bool) -> bool:
        """Set the protocol if the head of a direction, or an option, decides it.

        Returns:
            Whether the head must be longer to be judged.
        """
        connection = int(known.connection_id[slot])
        forced = self._forced(connection)
        found = self._opaque(connection, run, is_final)
        if found == UNDECIDED and forced is not None:
            found = self._begun(forced, run, is_final)
        if found == _MORE:
            return True
        if forced is not None and found not in (UNDECIDED, forced):
            first = run.pieces[0]
            self._findings.append(
                Notice(
                    NOTICE_NUMBER["read_as_asked"],
                    ts_ns=first.ts_ns,
                    connection_id=connection,
                    packet=first.packet,
                )
            )
        known.protocol[slot] = found if forced is None else forced
        return False

    def _opaque(self, connection: int, run: Run, is_final: bool) -> int:
        """TLS or HTTP, UNDECIDED, or _MORE. Takes PROXY headers off."""
        if run.is_tls():
            return TLS
        while run.size:
            head = look(run.head(HEAD_BYTES), run.at_start)
            needed = HEAD_BYTES if head.verdict == MORE_NEEDED else head.header_bytes
            if head.verdict == IS_PROXY_HEADER:
                if head.client_ip:
                    self.proxied[connection] = head.client_ip
                run.drop(head.header_bytes)
                run.at_start = True
                continue
            if run.size < min(needed, HEAD_BYTES) and not is_final:
                return _MORE  # the rest of a ClientHello may name the server
            if head.verdict == IS_TLS:
                name = server_name(run.head(HEAD_BYTES))
                if name:
                    self.server_names[connection] = name
                return TLS
            return HTTP if head.verdict == IS_HTTP else UNDECIDED
        return UNDECIDED

    def is_settled(self, run: Run) -> bool:
        """Whether more bytes of a direction, the protocol of which is open, leave it open, unless
        they are TLS records or a chain of frames."""
        if self.is_asked or run.is_known_start or run.size < HEAD_BYTES:
            return False
        return look(run.head(HEAD_BYTES), run.at_start).verdict == NOT_KNOWN

    def _begun(self, forced: int, run: Run, is_final: bool) -> int:
        """The protocol of the frame with which a head begins, UNDECIDED, or _MORE.

        The one that the user named comes first.
        """
        if not run.at_start:
            return UNDECIDED
        head = np.frombuffer(run.head(HEADER_WINDOW), np.uint8)
        protocols = sorted(range(len(self._check)), key=lambda protocol: protocol != forced)
        for protocol in protocols:
            limit = self._options.max_frame_bytes
            judged = self._check[protocol](head, 0, len(head), UNKNOWN_DIRECTION, limit, _STRICT)
            if judged > 0:
                return protocol
            if judged == 0 and len(head) < HEADER_WINDOW and not is_final:
                return _MORE
        return UNDECIDED

    @property
    def is_asked(self) -> bool:
        """Whether the user names the protocol of some connection."""
        return bool(self._options.forced) or self._options.only is not None

    def _forced(self, connection: int) -> int | None:
        for port in self._ports_of(connection):
            if port in self._options.forced:
                return self._options.forced[port]
        return self._options.only

    def is_hinted(self, connection: int) -> bool:
        """Whether a port of the connection is one of a known protocol's."""
        return any(port in self.broker_ports for port in self._ports_of(connection))
