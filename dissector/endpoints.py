"""Addresses as text, and the keys under which other captures and tools know a connection."""

import base64
import hashlib
import ipaddress
import struct
from typing import Final, NamedTuple

_TCP: Final = 6


class Endpoint(NamedTuple):
    """An address as two signed 64-bit halves (IPv4: the low 32 bits of `low`) and a port."""

    ip_version: int
    high: int
    low: int
    port: int

    def packed(self) -> bytes:
        """The address in network byte order."""
        if self.ip_version == 4:
            return struct.pack(">I", self.low & 0xFFFF_FFFF)
        return struct.pack(">QQ", self.high & (1 << 64) - 1, self.low & (1 << 64) - 1)

    def text(self) -> str:
        """The address as people write it."""
        return str(ipaddress.ip_address(self.packed()))


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
