"""The compiled pass over a block of packets: each ends as a segment or with a reason.

TCP in IP behind a link header is read here; `unwrap` walks through everything else. A fragment
stops the pass: the caller puts packets together again, reads them with `read_walk` and goes on.
"""

from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.capture.columns import INTERFACE_LIMIT as BEYOND_LIMIT
from dissector.codecs.integers import be16, be32
from dissector.jit import inlined, kernel
from dissector.limits import MAX_TUNNELS
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.ip import Network, ip_layer
from dissector.packet.link import link_layer
from dissector.packet.reasons import (
    BAD_TCP_CHECKSUM,
    DETAIL_SHIFT,
    FRAGMENT,
    INTERFACE_LIMIT,
    LOOK_CLOSER,
    NO_INTERFACE,
    USED,
)
from dissector.packet.tcp import (
    CHECKSUM_UNFINISHED,
    CHECKSUM_WRONG,
    HEADER_BYTES,
    SYN,
    Transport,
    check_sum,
    tcp_layer,
    time_stamps,
)
from dissector.packet.unwrap import begin, network_of, unwrap
from dissector.packet.walk import (
    DEPTH,
    DETAIL,
    END,
    FIRST_OFFLOADED,
    FIRST_PACKET,
    FOUND,
    FOUND_FRAGMENT,
    FOUND_TCP,
    HASH,
    OFFLOADED,
    PACKET,
    ROW,
    ROWS,
    SOURCE,
    STACK,
    TS_NS,
    TUNNELS,
    VERIFY,
    VLANS,
    WALK_CELLS,
    PacketState,
)

# What stops the pass.
DONE: Final = 0
AT_FRAGMENT: Final = 1


@inlined
def _write(
    data: ByteArray,
    end: int,
    network: Network,
    transport: Transport,
    segments: SegmentColumns,
    row: int,
) -> None:
    """Fill one row of segments but for number, time, source, VLAN ids and tunnel."""
    tcp = network.offset
    stop = min(end, network.wire_end)
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
def _is_refused(data: ByteArray, end: int, network: Network, walk: Int64Array) -> bool:
    """Look at the checksum of a segment that is all there: whether it may not be used.

    A packet captured before its card put the checksum in is not damaged, and counted.
    """
    if network.wire_end > end:
        return False
    said = check_sum(data, network)
    if said == CHECKSUM_UNFINISHED:
        if walk[OFFLOADED] == 0:
            walk[FIRST_OFFLOADED] = walk[PACKET]
        walk[OFFLOADED] += 1
    return said == CHECKSUM_WRONG and walk[VERIFY] != 0


@kernel
def _tunnel(state: PacketState) -> int:
    """The number of the tunnels around the packet being walked, 0 for none; the caller of the pass
    has made room for one per packet."""
    walk = state.walk
    if walk[DEPTH] == 0:
        return 0
    table = state.tunnels
    value = walk[HASH] if walk[HASH] != 0 else 1
    mask = len(table) - 2
    at = (value >> 20) & mask & ~1
    while table[at] != 0:
        if table[at] == value:
            return int(table[at + 1])
        at = (at + 2) & mask
    if walk[TUNNELS] >= MAX_TUNNELS - 1:
        return MAX_TUNNELS
    width = WALK_CELLS - STACK + 1
    start = walk[TUNNELS] * width
    state.stacks[start] = walk[DEPTH]
    for place in range(1, width):
        state.stacks[start + place] = walk[STACK + place - 1]
    walk[TUNNELS] += 1
    table[at] = value
    table[at + 1] = walk[TUNNELS]
    return int(walk[TUNNELS])


@kernel
def read_walk(data: ByteArray, state: PacketState) -> int:
    """Walk on from where the walk is; what is TCP becomes the next segment.

    Returns:
        A reason with its detail, or FOUND_FRAGMENT: the IP header of a fragment begins at OFFSET.
    """
    walk = state.walk
    said = unwrap(data, walk)
    if said == FOUND_FRAGMENT:
        return said
    if said != FOUND_TCP:
        return int(said | (walk[DETAIL] << DETAIL_SHIFT))
    network = network_of(walk)
    end = walk[END]
    transport = tcp_layer(data, network.offset, end, network.wire_end)
    if transport.reason != USED:
        return transport.reason
    if (walk[VERIFY] or transport.flags & SYN) and _is_refused(data, end, network, walk):
        return BAD_TCP_CHECKSUM
    row = walk[FOUND]
    segments = state.segments
    _write(data, end, network, transport, segments, row)
    segments.source[row] = walk[SOURCE]
    segments.tunnel[row] = _tunnel(state)
    segments.vlans[row] = walk[VLANS]
    segments.packet[row] = walk[PACKET]
    segments.ts_ns[row] = walk[TS_NS]
    walk[FOUND] = row + 1
    return USED


@kernel
def read_packets(
    data: ByteArray, packets: PacketColumns, link_types: Int64Array, state: PacketState
) -> int:
    """Decode packets from row walk[ROW] on, each to a segment or to a reason (see PacketState).

    Args:
        link_types: by interface.

    Returns:
        DONE, or AT_FRAGMENT: the packet of row walk[ROW] is the caller's, see FOUND_FRAGMENT.
    """
    walk = state.walk
    reasons = state.reasons
    segments = state.segments
    first_packet = walk[FIRST_PACKET]
    verify = walk[VERIFY]
    found = walk[FOUND]
    rows = walk[ROWS]
    for row in range(walk[ROW], rows):
        offset = packets.offset[row]
        end = offset + packets.captured_bytes[row]
        interface = packets.interface[row]
        if interface < 0:
            reasons[row] = INTERFACE_LIMIT if interface == BEYOND_LIMIT else NO_INTERFACE
            continue
        reason = LOOK_CLOSER
        link = link_layer(data, offset, end, link_types[interface])
        if link.reason == USED:
            wire_end = offset + packets.wire_bytes[row]
            network = ip_layer(data, link.offset, end, wire_end, link.ethertype)
            reason = network.reason
            if reason == USED:
                transport = tcp_layer(data, network.offset, end, network.wire_end)
                reason = transport.reason
                if reason == USED:
                    if verify or transport.flags & SYN:
                        walk[PACKET] = first_packet + row
                        if _is_refused(data, end, network, walk):
                            reasons[row] = BAD_TCP_CHECKSUM
                            continue
                    _write(data, end, network, transport, segments, found)
                    segments.source[found] = 0
                    segments.tunnel[found] = 0
                    segments.vlans[found] = link.vlans
                    segments.packet[found] = first_packet + row
                    segments.ts_ns[found] = packets.ts_ns[row]
                    found += 1
        elif link.reason != LOOK_CLOSER:
            reason = link.reason
        if reason in (LOOK_CLOSER, FRAGMENT):
            begin(walk, packets, row, link_types[interface])
            walk[PACKET] = first_packet + row
            walk[FOUND] = found
            reason = read_walk(data, state)
            found = walk[FOUND]
            if reason == FOUND_FRAGMENT:
                walk[ROW] = row
                return AT_FRAGMENT
        reasons[row] = reason
    walk[ROW] = rows
    walk[FOUND] = found
    return DONE
