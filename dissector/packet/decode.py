"""The compiled pass over a block of packets: each becomes a segment or gets a reason.

This module decodes TCP in IP after a link header; `unwrap` walks through everything else. Fragments
are collected until a segment follows, before which the pass stops: the caller reassembles packets,
decodes them with `read_walk` and continues. So segments stay in the order of their packets.
"""

from typing import Final

from dissector.blocks import ByteArray, Int64Array
from dissector.capture.columns import INTERFACE_LIMIT as BEYOND_LIMIT
from dissector.codecs.integers import be16, be32, byte
from dissector.codecs.ones_sum import folded, ones_sum
from dissector.jit import inlined, kernel
from dissector.limits import MAX_TUNNEL_DEPTH, MAX_TUNNELS
from dissector.packet import reasons, walk
from dissector.packet import tcp as packet_tcp
from dissector.packet.columns import PacketColumns, SegmentColumns
from dissector.packet.ip import Network, ending_at, ip_layer
from dissector.packet.link import link_layer
from dissector.packet.tcp import ChecksumVerdict, Transport
from dissector.packet.unwrap import begin, network_of, unwrap
from dissector.packet.walk import BlockPass, Layer, PacketState
from dissector.tables import ABSENT, TAKEN, fill_slot, find_slot

# What stops the pass.
DONE: Final = 0
FRAGMENTS: Final = 1
# Beside those of a walk: see `_read_slowly`.
_LAST_FRAGMENT: Final = walk.REACHED_FRAGMENT - 1
_AFTER_FRAGMENTS: Final = walk.REACHED_FRAGMENT - 2

# Words of four bytes that an IPv4 header has.
_SHORTEST_HEADER: Final = 5
_LONGEST_HEADER: Final = 15
_FLAG_BITS: Final = 0xFFF  # without the header's length, which says where a whole header begins


@inlined
def _write(
    data: ByteArray,
    end: int,
    network: Network,
    transport: Transport,
    segments: SegmentColumns,
    row: int,
) -> None:
    """Write one row of segments, except number, time, source, VLAN ids and tunnel."""
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
    is_whole = transport.payload <= stop
    segments.flags[row] = transport.flags if is_whole else transport.flags & _FLAG_BITS
    segments.window[row] = be16(data, tcp + 14)
    segments.ip_id[row] = network.ip_id
    segments.hop_limit[row] = network.hop_limit
    stamps = packet_tcp.time_stamps(
        data, tcp + packet_tcp.HEADER_BYTES, min(transport.payload, stop)
    )
    segments.tsval[row] = stamps.value
    segments.tsecr[row] = stamps.echo


@kernel
def _is_refused(
    data: ByteArray, end: int, network: Network, packet: int, block_pass: BlockPass
) -> bool:
    """Whether a completely captured segment is refused for its checksum.

    A packet captured before its network card computed the checksum is not damaged; it is counted.
    """
    if network.wire_end > end:
        return False
    checksum = packet_tcp.check_sum(data, network)
    if checksum == ChecksumVerdict.UNFINISHED:
        if block_pass.offloaded[0] == 0:
            block_pass.first_offloaded[0] = packet
        block_pass.offloaded[0] += 1
    return checksum == ChecksumVerdict.WRONG and block_pass.verify[0] != 0


@kernel
def _has_right_header(data: ByteArray, network: Network) -> bool:
    """Whether an IPv4 header with a correct checksum precedes the transport header."""
    for words in range(_SHORTEST_HEADER, _LONGEST_HEADER + 1):
        start = network.offset - 4 * words
        if start < 0:
            break
        is_header = byte(data, start) == 0x40 | words
        if is_header and folded(ones_sum(data, start, network.offset)) == 0xFFFF:
            return True
    return False


@kernel
def _with_true_end(
    data: ByteArray, end: int, packet_end: int, network: Network, packet: int, block_pass: BlockPass
) -> Network:
    """Handle a TCP packet whose IP header states more bytes than were on the wire.

    The length is damaged if the TCP checksum is correct without the missing bytes and the IP
    header's checksum, if any, is wrong. Otherwise the packet was cut before it was captured, as
    mirrors do; this is counted, undecidable damage included. Both checksums are correct if a
    program such as tcprewrite cut packets and rewrote them: the bytes did exist.
    """
    is_whole = end == packet_end and packet_end - network.offset >= packet_tcp.HEADER_BYTES
    if is_whole and not (network.version == 4 and _has_right_header(data, network)):
        shorter = ending_at(network, packet_end)
        if packet_tcp.check_sum(data, shorter) == ChecksumVerdict.RIGHT:
            return shorter
    if block_pass.shortened[0] == 0:
        block_pass.first_shortened[0] = packet
    block_pass.shortened[0] += 1
    block_pass.shortened_bytes[0] += network.wire_end - packet_end
    return network


@kernel
def _tunnel(state: PacketState) -> int:
    """Return the number of the tunnels around the current packet, 0 for none; the caller of the
    pass has reserved one per packet."""
    position = state.walk.position
    table = state.tunnels
    if position.depth[0] == 0:
        return 0
    slot = find_slot(table, position.tunnel_hash[0], 0, 0, 0)
    if table.values[slot] != ABSENT:
        return int(table.values[slot]) + 1
    number = table.counts[TAKEN]
    if number >= MAX_TUNNELS - 1:
        return MAX_TUNNELS
    fill_slot(table, slot, position.tunnel_hash[0], 0, 0, 0, number)
    kept = state.stacks
    around = state.walk.tunnels
    for level in range(MAX_TUNNEL_DEPTH):
        row = number * MAX_TUNNEL_DEPTH + level
        for field in range(kept.matrix.shape[1]):
            kept.matrix[row, field] = around.matrix[level, field]
        if level >= position.depth[0]:
            kept.kind[row] = walk.NO_KIND
    return int(number) + 1


@kernel
def _read_segment(
    data: ByteArray, end: int, packet_end: int, network: Network, packet: int, state: PacketState
) -> int:
    """Decode TCP in IP to the next segment, except its VLAN ids, tunnel and time.

    Args:
        end, packet_end: after the last byte captured and the last byte on the wire.

    Returns:
        USED, or the reason why there is no segment.
    """
    block_pass = state.block_pass
    if network.wire_end > packet_end:
        network = _with_true_end(data, end, packet_end, network, packet, block_pass)
    transport = packet_tcp.tcp_layer(data, network.offset, end, network.wire_end)
    if transport.reason != reasons.USED:
        return transport.reason
    is_checked = block_pass.verify[0] or transport.flags & packet_tcp.SYN
    if is_checked and _is_refused(data, end, network, packet, block_pass):
        return reasons.BAD_TCP_CHECKSUM
    row = block_pass.segments[0]
    _write(data, end, network, transport, state.segments, row)
    state.segments.packet[row] = packet
    block_pass.segments[0] = row + 1
    return reasons.USED


@kernel
def read_walk(data: ByteArray, state: PacketState) -> int:
    """Walk on through the packet; if it ends at TCP, that becomes the next segment.

    Returns:
        A reason with its detail, or REACHED_FRAGMENT: the IP header of a fragment begins at the
        walk's position.
    """
    return int(_read_step(data, state, unwrap(data, state.walk)))


@kernel
def _read_step(data: ByteArray, state: PacketState, step: int) -> int:
    """What `read_walk` does with the step that the walk ended with."""
    position = state.walk.position
    if step == walk.REACHED_FRAGMENT:
        return step
    if step != walk.REACHED_TCP:
        return int(step | (position.detail[0] << reasons.DETAIL_SHIFT))
    segments = state.segments
    row = state.block_pass.segments[0]
    reason = _read_segment(
        data, position.end[0], position.packet_end[0], network_of(state.walk),
        position.packet[0], state,
    )  # fmt: skip
    if reason == reasons.USED:
        segments.source[row] = position.source[0]
        segments.tunnel[row] = _tunnel(state)
        segments.vlans[row] = position.vlans[0]
        segments.ts_ns[row] = position.ts_ns[0]
    return int(reason)


@kernel
def read_completed(
    block: tuple[ByteArray, PacketColumns, Int64Array],
    completed: Int64Array,
    first: int,
    assembled: ByteArray,
    state: PacketState,
) -> int:
    """Read packets that fragments in packets of a block completed, see `read_rebuilt`, from
    completed[first] on, and give them their reasons.

    Args:
        block: bytes, packets, and link types by interface.
        completed: int64[packets, 4], row of the fragment's packet in the block; where the whole one
            lies in `assembled`, its end there, and its end on the wire.

    Returns:
        Which one is a fragment itself, that the walk stands at; or how many there are.
    """
    data, packets, link_types = block
    for number in range(first, len(completed)):
        row = completed[number, 0]
        begin(state.walk, packets, row, link_types[packets.interface[row]])
        state.walk.position.packet[0] = state.block_pass.first_packet[0] + row
        unwrap(data, state.walk)
        reason = read_rebuilt(
            assembled, completed[number, 1], completed[number, 2], completed[number, 3], state
        )
        if reason == walk.REACHED_FRAGMENT:
            return number
        state.reasons[row] = reason
    return len(completed)


@kernel
def read_rebuilt(
    assembled: ByteArray, start: int, end: int, wire_end: int, state: PacketState
) -> int:
    """Go on from the fragment that the walk stands at with the packet that it completed, in
    side[start:end]; wire_end: its end on the wire. Returns as `read_walk`."""
    position = state.walk.position
    position.layer[0] = Layer.IP
    position.source[0] = 1
    position.offset[0] = start
    position.end[0] = end
    position.wire_end[0] = wire_end
    position.packet_end[0] = wire_end
    position.stated_end[0] = wire_end
    return int(read_walk(assembled, state))


@kernel
def _hold_fragment(state: PacketState, row: int) -> bool:
    """Note the fragment that the walk stands at; gives whether there is room for another."""
    position = state.walk.position
    fragments = state.fragments
    count = state.block_pass.fragments[0]
    fragments.row[count] = row
    fragments.offset[count] = position.offset[0]
    fragments.end[count] = min(position.end[0], position.wire_end[0])
    fragments.wire_end[count] = position.stated_end[0]
    fragments.tunnels[count] = position.tunnel_hash[0]
    fragments.ts_ns[count] = position.ts_ns[0]
    fragments.packet[count] = position.packet[0]
    fragments.source[count] = position.source[0]
    state.block_pass.fragments[0] = count + 1
    return bool(count + 1 < fragments.matrix.shape[0])


@kernel
def _read_slowly(
    data: ByteArray, packets: PacketColumns, row: int, link_type: int, state: PacketState
) -> int:
    """Walk through a packet that the short way does not know.

    Returns:
        As `read_walk`, REACHED_FRAGMENT: it is gathered; or _LAST_FRAGMENT: likewise, and there is
        no room for another; or _AFTER_FRAGMENTS: it is a segment, which comes behind those.
    """
    begin(state.walk, packets, row, link_type)
    state.walk.position.packet[0] = state.block_pass.first_packet[0] + row
    step = unwrap(data, state.walk)
    if step == walk.REACHED_FRAGMENT:
        return walk.REACHED_FRAGMENT if _hold_fragment(state, row) else _LAST_FRAGMENT
    if step == walk.REACHED_TCP and state.block_pass.fragments[0] > 0:
        return _AFTER_FRAGMENTS
    return int(_read_step(data, state, step))


@kernel
def read_packets(
    data: ByteArray, packets: PacketColumns, link_types: Int64Array, state: PacketState
) -> int:
    """Decode packets from row block_pass.row on, each to a segment or to a reason.

    Args:
        link_types: by interface.

    Returns:
        DONE, or FRAGMENTS: go on when those that were gathered are added. With DONE there may be
        some, too.
    """
    block_pass = state.block_pass
    segments = state.segments
    block_pass.fragments[0] = 0
    for row in range(block_pass.row[0], block_pass.rows[0]):
        offset = packets.offset[row]
        end = offset + packets.captured_bytes[row]
        interface = packets.interface[row]
        if interface < 0:
            state.reasons[row] = (
                reasons.INTERFACE_LIMIT if interface == BEYOND_LIMIT else reasons.NO_INTERFACE
            )
            continue
        link = link_layer(data, offset, end, link_types[interface])
        reason = link.reason
        if reason == reasons.USED:
            wire_end = offset + packets.wire_bytes[row]
            network = ip_layer(data, link.offset, end, wire_end, link.ethertype)
            reason = network.reason
            if reason == reasons.USED and block_pass.fragments[0] > 0:
                reason = _AFTER_FRAGMENTS
            elif reason == reasons.USED:
                segment_row = block_pass.segments[0]
                number = block_pass.first_packet[0] + row
                reason = _read_segment(data, end, wire_end, network, number, state)
                if reason == reasons.USED:
                    segments.source[segment_row] = 0
                    segments.tunnel[segment_row] = 0
                    segments.vlans[segment_row] = link.vlans
                    segments.ts_ns[segment_row] = packets.ts_ns[row]
        if reason in (reasons.LOOK_CLOSER, reasons.FRAGMENT):
            reason = _read_slowly(data, packets, row, link_types[interface], state)
        if reason in (_LAST_FRAGMENT, _AFTER_FRAGMENTS):
            block_pass.row[0] = row + 1 if reason == _LAST_FRAGMENT else row
            return FRAGMENTS
        if reason != walk.REACHED_FRAGMENT:
            state.reasons[row] = reason
    block_pass.row[0] = block_pass.rows[0]
    return DONE
