"""What tunnels are called in tables: kinds and ids, outermost first."""

import ipaddress
import struct
from collections.abc import Sequence
from typing import Final

from dissector.packet.walk import NO_ID, NO_KIND, TUNNEL_KINDS

# Labels and ids that differ by direction are left out, so that a connection has one name.
_ONE_DIRECTION: Final = ("mpls", "gtp", "pptp")


def _address(high: int, low: int) -> str:
    if high == 0 and 0 <= low < 1 << 32:
        return str(ipaddress.IPv4Address(low))
    return str(ipaddress.IPv6Address(struct.pack(">qq", high, low)))


def _entry(kind: int, number: int, ends: Sequence[int]) -> str:
    name = TUNNEL_KINDS[kind]
    if name in _ONE_DIRECTION:
        return name
    if number != NO_ID:
        return f"{name}:{number}"
    return f"{name}:{_address(*ends[:2])}-{_address(*ends[2:])}"


def tunnel_name(stack: Sequence[Sequence[int]]) -> str:
    """Such as `vxlan:5` or `gre:192.0.2.1-192.0.2.2/vxlan:7`. stack: rows of a TunnelStack."""
    return "/".join(_entry(kind, number, ends) for kind, number, *ends in stack if kind != NO_KIND)
