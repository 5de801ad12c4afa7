"""Keys under which other captures and tools know a connection, one at a time."""

import base64
import hashlib
import struct
from typing import Final

from dissector.endpoints import Endpoint

_TCP: Final = 6


def connection_key(one: Endpoint, other: Endpoint, tunnel: str | None) -> str:
    """Tunnel, addresses and ports, the lower endpoint first."""
    lower, upper = sorted((one, other), key=lambda end: (end.packed(), end.port))
    ends = " ".join(f"{_bracketed(end)}:{end.port}" for end in (lower, upper))
    return f"{tunnel} {ends}" if tunnel else ends


def _bracketed(end: Endpoint) -> str:
    return f"[{end.text()}]" if end.ip_version == 6 else end.text()


def community_id(one: Endpoint, other: Endpoint) -> str:
    """Community ID version 1 with seed 0: base64 of SHA-1 over the ordered five-tuple."""
    lower, upper = sorted((one, other), key=lambda end: (end.packed(), end.port))
    material = (
        b"\0\0"
        + lower.packed()
        + upper.packed()
        + struct.pack(">BBHH", _TCP, 0, lower.port, upper.port)
    )
    return "1:" + base64.b64encode(hashlib.sha1(material, usedforsecurity=False).digest()).decode()
