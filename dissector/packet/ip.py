"""Parses IPv4 and IPv6: addresses, upper protocol, start and end of the payload on the wire."""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import be16, be32, be64, byte
from dissector.jit import inlined
from dissector.limits import MAX_EXTENSION_HEADERS
from dissector.packet import reasons
from dissector.packet.link import ETHERTYPE_IPV4

# Protocols that an IP packet carries.
TCP_PROTOCOL: Final = 6
UDP_PROTOCOL: Final = 17
AUTHENTICATION: Final = 51
FRAGMENT_HEADER: Final = 44
# IPv6 headers whose second byte counts units of 8 bytes beyond the first: hop-by-hop options,
# routing, destination options, mobility, host identity, shim6.
HOP_BY_HOP: Final = 0
EXTENSIONS: Final = (HOP_BY_HOP, 43, 60, 135, 139, 140)

_MORE_OR_OFFSET: Final = 0x3FFF  # of an IPv4 header: one of several fragments
_MORE_OR_OFFSET_V6: Final = 0xFFF9
JUMBO_OPTION: Final = 0xC204  # type and length of the jumbo payload option
# The option can say 4 GiB; no system sends more than half a megabyte in one piece.
_LONGEST_JUMBO: Final = 1 << 20


class Network(NamedTuple):
    """A parsed network layer.

    reason: USED = it carries TCP, LOOK_CLOSER = another protocol, FRAGMENT, else why the packet is
        not read.
    protocol: what it carries.
    offset: first byte of that.
    wire_end: position after the last byte of the IP packet as it was on the wire, padding of the
        link layer left out, perhaps beyond what was captured. Addresses as in SegmentColumns.
    """

    reason: int
    protocol: int
    offset: int
    wire_end: int
    version: int
    source_high: int
    source_low: int
    destination_high: int
    destination_low: int
    ip_id: int
    hop_limit: int


@inlined
def ending_at(network: Network, wire_end: int) -> Network:
    """The same packet with another end."""
    return Network(
        network.reason,
        network.protocol,
        network.offset,
        wire_end,
        network.version,
        network.source_high,
        network.source_low,
        network.destination_high,
        network.destination_low,
        network.ip_id,
        network.hop_limit,
    )


@inlined
def _not_read(reason: int) -> Network:
    return Network(reason, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


@inlined
def _ipv4(data: ByteArray, offset: int, end: int, wire_end: int) -> Network:
    if end - offset < 20:
        return _not_read(reasons.IP_CUT)
    first = byte(data, offset)
    header_bytes = (first & 15) * 4
    total = be16(data, offset + 2)
    # A sender that leaves the cutting into packets to its network card (TSO) may hand over more
    # than the field can say and then writes 0: the length on the wire is all there is.
    if total == 0:
        total = wire_end - offset
    if first >> 4 != 4 or header_bytes < 20 or total < header_bytes:
        return _not_read(reasons.IP_MALFORMED)
    if end - offset < header_bytes:
        return _not_read(reasons.IP_CUT)
    if be16(data, offset + 6) & _MORE_OR_OFFSET != 0:
        return _not_read(reasons.FRAGMENT)
    protocol = byte(data, offset + 9)
    inner = offset + header_bytes
    if protocol == AUTHENTICATION:
        if end - inner < 2:
            return _not_read(reasons.IP_CUT)
        protocol = byte(data, inner)
        inner += (byte(data, inner + 1) + 2) * 4
    return Network(
        reasons.USED if protocol == TCP_PROTOCOL else reasons.LOOK_CLOSER,
        protocol,
        inner,
        offset + total,
        4,
        0,
        be32(data, offset + 12),
        0,
        be32(data, offset + 16),
        be16(data, offset + 4),
        byte(data, offset + 8),
    )


class _Upper(NamedTuple):
    """What follows the extension headers. reason: USED, or why the walk ended."""

    reason: int
    protocol: int
    offset: int


@inlined
def _skip_extensions(data: ByteArray, protocol: int, offset: int, end: int) -> _Upper:
    """Skip IPv6 extension headers, at most limits.MAX_EXTENSION_HEADERS."""
    for _ in range(MAX_EXTENSION_HEADERS + 1):
        if protocol in EXTENSIONS:
            if end - offset < 2:
                return _Upper(reasons.IP_CUT, protocol, offset)
            size = (byte(data, offset + 1) + 1) * 8
        elif protocol == AUTHENTICATION:
            if end - offset < 2:
                return _Upper(reasons.IP_CUT, protocol, offset)
            size = (byte(data, offset + 1) + 2) * 4
        elif protocol == FRAGMENT_HEADER:
            if end - offset < 4:
                return _Upper(reasons.IP_CUT, protocol, offset)
            # A fragment header on a packet that is whole ("atomic") changes nothing.
            if be16(data, offset + 2) & _MORE_OR_OFFSET_V6 != 0:
                return _Upper(reasons.FRAGMENT, protocol, offset)
            size = 8
        else:
            return _Upper(reasons.USED, protocol, offset)
        protocol = byte(data, offset)
        offset += size
    return _Upper(reasons.EXTENSION_DEPTH, protocol, offset)


@inlined
def _jumbo_bytes(data: ByteArray, offset: int, end: int) -> int:
    """The jumbo payload option if it is first among the hop-by-hop options at offset, else 0."""
    if offset + 8 > end or be16(data, offset + 2) != JUMBO_OPTION:
        return 0
    length = be32(data, offset + 4)
    return length if 0xFFFF < length <= _LONGEST_JUMBO else 0


@inlined
def _ipv6(data: ByteArray, offset: int, end: int, wire_end: int) -> Network:
    if end - offset < 40:
        return _not_read(reasons.IP_CUT)
    if byte(data, offset) >> 4 != 6:
        return _not_read(reasons.IP_MALFORMED)
    length = be16(data, offset + 4)
    # Length 0: a jumbogram, or as with IPv4 a packet not yet cut by the network card.
    if length == 0 and byte(data, offset + 6) == HOP_BY_HOP:
        length = _jumbo_bytes(data, offset + 40, end)
    if length > 0:
        wire_end = offset + 40 + length
    upper = _skip_extensions(data, byte(data, offset + 6), offset + 40, end)
    reason = upper.reason
    if reason == reasons.USED and upper.protocol != TCP_PROTOCOL:
        reason = reasons.LOOK_CLOSER
    return Network(
        reason,
        upper.protocol,
        upper.offset,
        wire_end,
        6,
        be64(data, offset + 8),
        be64(data, offset + 16),
        be64(data, offset + 24),
        be64(data, offset + 32),
        -1,
        byte(data, offset + 7),
    )


@inlined
def ip_layer(data: ByteArray, offset: int, end: int, wire_end: int, ethertype: int) -> Network:
    """Read the IP packet at offset.

    Args:
        end: position after the last captured byte. wire_end: position after the last byte that the
            link layer carried, captured or not.
    """
    if ethertype == ETHERTYPE_IPV4:
        return _ipv4(data, offset, end, wire_end)
    return _ipv6(data, offset, end, wire_end)
