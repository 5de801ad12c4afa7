"""Names of tunnels in tables: kinds and ids, outermost first."""

import ipaddress
import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from dissector.blocks import Int64Array
from dissector.limits import MAX_TUNNEL_DEPTH
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


def tunnel_names(stacks: Int64Array) -> list[str]:
    """Such as `vxlan:5` or `gre:192.0.2.1-192.0.2.2/vxlan:7`. stacks: rows of TunnelStack,
    MAX_TUNNEL_DEPTH of each."""
    names: list[list[str]] = [[] for _ in range(len(stacks) // MAX_TUNNEL_DEPTH)]
    used = np.flatnonzero(stacks[:, 0] != NO_KIND)
    for row, (kind, number, *ends) in zip(used.tolist(), stacks[used].tolist(), strict=True):
        names[row // MAX_TUNNEL_DEPTH].append(_entry(kind, number, ends))
    return list(map("/".join, names))
