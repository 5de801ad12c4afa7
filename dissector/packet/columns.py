"""The columns of packets and of the TCP segments inside them."""

from typing import NamedTuple

from dissector.blocks import ByteArray, Int64Array
from dissector.bundles import Bundle


class PacketColumns(Bundle):
    """Captured packets of one buffer, int64[rows] each, in the order of the capture.

    offset: first byte of the packet in the buffer.
    captured_bytes, wire_bytes: its length there and on the wire.
    ts_ns: capture time, ns since 1970.
    interface: index into the capture's interfaces (each has a link type). The packet's number is
        the number of the first row plus the row.
    """

    offset: Int64Array
    captured_bytes: Int64Array
    wire_bytes: Int64Array
    ts_ns: Int64Array
    interface: Int64Array


class SegmentColumns(Bundle):
    """TCP packets that could be read, int64[rows] each unless said otherwise.

    packet: packet number in the capture, from 1.
    ts_ns: capture time.
    source: which byte array holds the payload: 0 the input buffer, 1 the side buffer of the packet
        room (rebuilt fragments).
    offset: first payload byte there.
    captured_bytes: payload bytes that are there.
    wire_bytes: payload bytes on the wire (more than captured_bytes: cut by snaplen).
    ip_version: 4 or 6; source_high/source_low, destination_high/destination_low: addresses as two
        signed 64-bit halves, big-endian (IPv4: high 0, low the 32 bits); source_port,
        destination_port.
    tunnel: 0, or the number of the tunnels that carried it (PacketReader.tunnel_names).
    vlans: up to four VLAN ids, 12 bits each, outermost lowest, bits 48-50 the count.
    sequence, acknowledgement: 0 to 2^32-1.
    flags: the 16 bits that hold the nine TCP flags, lowest, and the header's length in words,
        highest (0: not all of it is there).
    window: raw.
    ip_id: identification of IPv4 or -1; hop_limit.
    tsval, tsecr: TCP time stamps or -1. is_padded etc. are not kept: packet lengths were already
        trusted to the IP header.
    stream, stream_offset, origin: where the streams put it, once they have it and if they note that
        (StreamOptions.notes_places): connection_id * 2 + endpoint_index (-1: nowhere), offset of
        the payload, sequence number that was offset 0 then.
    """

    packet: Int64Array
    ts_ns: Int64Array
    source: Int64Array
    offset: Int64Array
    captured_bytes: Int64Array
    wire_bytes: Int64Array
    ip_version: Int64Array
    source_high: Int64Array
    source_low: Int64Array
    destination_high: Int64Array
    destination_low: Int64Array
    source_port: Int64Array
    destination_port: Int64Array
    tunnel: Int64Array
    vlans: Int64Array
    sequence: Int64Array
    acknowledgement: Int64Array
    flags: Int64Array
    window: Int64Array
    ip_id: Int64Array
    hop_limit: Int64Array
    tsval: Int64Array
    tsecr: Int64Array
    stream: Int64Array
    stream_offset: Int64Array
    origin: Int64Array


class PacketBuffers(NamedTuple):
    """The byte arrays that a segment's source selects.

    block: the input.
    assembled: rebuilt bytes.
    """

    block: ByteArray
    assembled: ByteArray
