"""The compiled pass over a block of packets: each ends as a segment or with a reason."""

from dissector.blocks import ByteArray, Int64Array
from dissector.capture.columns import INTERFACE_LIMIT as BEYOND_LIMIT
from dissector.codecs.integers import be16, be32
from dissector.jit import inlined, kernel
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.ip import Network, ip_layer
from dissector.packet.link import link_layer
from dissector.packet.reasons import BAD_TCP_CHECKSUM, INTERFACE_LIMIT, NO_INTERFACE, USED
from dissector.packet.tcp import (
    HEADER_BYTES,
    Transport,
    checksum_ok,
    tcp_layer,
    time_stamps,
)


@inlined
def _write(
    data: ByteArray,
    end: int,
    network: Network,
    transport: Transport,
    segments: SegmentColumns,
    row: int,
) -> None:
    """Fill one row of segments; packet number, time and VLAN ids are the caller's."""
    tcp = network.offset
    stop = min(end, network.wire_end)
    segments.source[row] = 0
    segments.offset[row] = min(transport.payload, stop)
    segments.captured_bytes[row] = max(0, stop - transport.payload)
    segments.wire_bytes[row] = network.wire_end - transport.payload
    segments.ip_version[row] = network.version
    segments.source_high[row] = network.source_high
    segments.source_low[row] = network.source_low
    segments.destination_high[row] = network.destination_high
    segments.destination_low[row] = network.destination_low
    segments.source_port[row] = be16(data, tcp)
    segments.destination_port[row] = be16(data, tcp + 2)
    segments.tunnel[row] = 0
    segments.sequence[row] = be32(data, tcp + 4)
    segments.acknowledgement[row] = be32(data, tcp + 8)
    segments.flags[row] = transport.flags
    segments.window[row] = be16(data, tcp + 14)
    segments.ip_id[row] = network.ip_id
    segments.hop_limit[row] = network.hop_limit
    stamps = time_stamps(data, tcp + HEADER_BYTES, min(transport.payload, stop))
    segments.tsval[row] = stamps.value
    segments.tsecr[row] = stamps.echo


@kernel
def read_packets(
    data: ByteArray,
    packets: PacketColumns,
    reasons: Int64Array,
    link_types: Int64Array,
    numbering: tuple[int, int],
    segments: SegmentColumns,
) -> int:
    """Decode packets, each to a segment or to a reason.

    Args:
        packets: as many rows as `reasons` has. reasons: written; USED where the packet became a
            segment. link_types: by interface. numbering: number of the first packet, and 1 if TCP
            checksums are to be verified. segments: written, at least as many rows as packets.

    Returns:
        How many segments there are.
    """
    first_packet, verify = numbering
    found = 0
    for row in range(len(reasons)):
        offset = packets.offset[row]
        end = offset + packets.captured_bytes[row]
        interface = packets.interface[row]
        if interface < 0:
            reasons[row] = INTERFACE_LIMIT if interface == BEYOND_LIMIT else NO_INTERFACE
            continue
        link = link_layer(data, offset, end, link_types[interface])
        reasons[row] = link.reason
        if link.reason != USED:
            continue
        wire_end = offset + packets.wire_bytes[row]
        network = ip_layer(data, link.offset, end, wire_end, link.ethertype)
        reasons[row] = network.reason
        if network.reason != USED:
            continue
        transport = tcp_layer(data, network.offset, end, network.wire_end)
        reasons[row] = transport.reason
        if transport.reason != USED:
            continue
        if verify and network.wire_end <= end and not checksum_ok(data, network):
            reasons[row] = BAD_TCP_CHECKSUM
            continue
        _write(data, end, network, transport, segments, found)
        segments.vlans[found] = link.vlans
        segments.packet[found] = first_packet + row
        segments.ts_ns[found] = packets.ts_ns[row]
        found += 1
    return found
