"""Split stream bytes into frames: find the protocol, the frames' starts and the client."""

from dissector.protocols.framing.assembly import Framing, FramingOptions
from dissector.protocols.framing.connection_table import find_connections
from dissector.protocols.framing.first_bytes import HeadVerdict, hello_layout, look
from dissector.protocols.framing.other_protocols import named
from dissector.protocols.framing.state import (
    OPAQUE_NAMES,
    ROLE_SOURCE_NAMES,
    TLS,
    UNKNOWN,
    RoleSource,
    RoleState,
)

__all__ = (
    "OPAQUE_NAMES",
    "ROLE_SOURCE_NAMES",
    "TLS",
    "UNKNOWN",
    "Framing",
    "FramingOptions",
    "HeadVerdict",
    "RoleSource",
    "RoleState",
    "find_connections",
    "hello_layout",
    "look",
    "named",
)
