"""The user's options for framing, the ports of brokers, and the names in first bytes."""

from collections.abc import Mapping
from typing import NamedTuple

from dissector.limits import MAX_FRAME_BYTES, MAX_ROLE_WAIT_FRAMES
from dissector.protocols.framing import state as framing_state
from dissector.protocols.framing.first_bytes import HeadVerdict, proxied_client, server_name
from dissector.protocols.framing.state import FramingState
from dissector.protocols.interface import Specs


class FramingOptions(NamedTuple):
    """The user's options.

    forced: protocol number by port (-d).
    only: protocol number of all connections (--protocol).
    hash_key: of hash tables.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    forced: Mapping[int, int] = {}
    only: int | None = None
    hash_key: int = 0


class Detection:
    """Applies the user's options to the state; collects names from first bytes.

    proxied: by connection, the client that a PROXY header names.
    server_names: by connection, the server name in a TLS ClientHello.
    broker_ports: ports where brokers listen: those of the protocols and of the options.
    """

    def __init__(self, specs: Specs, options: FramingOptions) -> None:
        self._options = options
        self.proxied: dict[int, str] = {}
        self.server_names: dict[int, str] = {}
        listed_ports = frozenset(port for spec in specs for port in spec.ports)
        self.broker_ports = listed_ports | options.forced.keys()

    def apply_options(self, state: FramingState) -> None:
        """Write the options to the state's counters and port hints, where kernels read them."""
        options, counters = self._options, state.counters
        counters[framing_state.COUNTER_FRAME_LIMIT] = options.max_frame_bytes
        counters[framing_state.COUNTER_IS_FORCED] = bool(options.forced) or options.only is not None
        counters[framing_state.COUNTER_ONLY] = 0 if options.only is None else options.only + 1
        counters[framing_state.COUNTER_MOST_WAITING] = MAX_ROLE_WAIT_FRAMES
        state.port_hints[list(self.broker_ports)] = framing_state.PORT_OF_BROKER
        for port, protocol in options.forced.items():
            state.port_hints[port] |= protocol + 1 << framing_state.PROTOCOL_SHIFT

    def read_names(self, state: FramingState) -> None:
        """Parse the first bytes in `state.naming`; store client and server names; empty it."""
        naming = state.naming
        for row in range(int(state.counters[framing_state.COUNTER_NAMING])):
            at = int(naming.at[row])
            head = state.arena[at : at + int(naming.size[row])].tobytes()
            is_tls = naming.verdict[row] == HeadVerdict.IS_TLS
            name = server_name(head) if is_tls else proxied_client(head)
            if name:
                names = self.server_names if is_tls else self.proxied
                names[int(naming.connection_id[row])] = name
        state.counters[framing_state.COUNTER_NAMING] = 0
