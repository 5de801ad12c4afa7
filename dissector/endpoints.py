"""An end of a connection: an address and a port. `endpoint_texts` writes many at once."""

import ipaddress
import struct
from typing import NamedTuple


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
