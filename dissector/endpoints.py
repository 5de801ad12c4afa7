"""The ends of a connection: addresses and ports. `endpoint_texts` writes many at once."""

import ipaddress
import struct
from typing import NamedTuple


class Endpoint(NamedTuple):
    """An address as two signed 64-bit halves (IPv4: the low 32 bits of `low`) and a port."""

    ip_version: int
    high: int
    low: int
    port: int

    @classmethod
    def of(cls, address: str, port: int) -> "Endpoint":
        """From an address as the tables show it.

        Raises:
            ValueError: it is not an address.
        """
        ip = ipaddress.ip_address(address)
        if ip.version == 4:
            return cls(4, 0, int(ip), int(port))
        high, low = struct.unpack(">qq", ip.packed)
        return cls(6, high, low, int(port))

    def packed(self) -> bytes:
        """The address in network byte order."""
        if self.ip_version == 4:
            return struct.pack(">I", self.low & 0xFFFF_FFFF)
        return struct.pack(">QQ", self.high & (1 << 64) - 1, self.low & (1 << 64) - 1)

    def text(self) -> str:
        """The address as people write it."""
        return str(ipaddress.ip_address(self.packed()))


class FlowKey(NamedTuple):
    """One direction of a connection by its ends, as segments name them; see `Endpoint`."""

    source_high: int
    source_low: int
    source_port: int
    destination_high: int
    destination_low: int
    destination_port: int

    @classmethod
    def between(cls, source: Endpoint, destination: Endpoint) -> "FlowKey":
        """What one end sends to the other."""
        return cls(*source[1:], *destination[1:])

    def mirrored(self) -> "FlowKey":
        """The other direction of the same connection."""
        return FlowKey(*self[3:], *self[:3])
