"""Packets in the ring that the kernel shares with a packet socket: blocks of TPACKET_V3.

A block that the kernel gave out is walked where it lies. The kernel takes the outermost VLAN tag
out of a packet and puts it beside it; the walk puts it back, into the room that was reserved in
front of each packet, so that all later readers see the packet as it was on the wire.

All numbers are in the byte order of this machine, which must be little-endian.
"""

from typing import Final, NamedTuple

from dissector.blocks import ByteArray
from dissector.codecs.integers import le16, le32
from dissector.jit import inlined, kernel
from dissector.packet.columns import PacketColumns

# Fields of a block (struct tpacket_block_desc).
BLOCK_STATUS: Final = 8
BLOCK_PACKETS: Final = 12
BLOCK_FIRST: Final = 16  # offset of the first packet in the block
BLOCK_HEADER_BYTES: Final = 48
STATUS_USER: Final = 1  # the block is ours
STATUS_LOSING: Final = 1 << 2  # the kernel had no room since its counts were last read

# Fields of a packet (struct tpacket3_hdr).
_NEXT: Final = 0
_SECONDS: Final = 4
_NANOSECONDS: Final = 8
_CAPTURED: Final = 12
_WIRE: Final = 16
_STATUS: Final = 20
_MAC: Final = 24  # offset of the packet's first byte
_VLAN_TCI: Final = 32
_VLAN_TPID: Final = 36
PACKET_HEADER_BYTES: Final = 48

_VLAN_VALID: Final = 1 << 4
_VLAN_TPID_VALID: Final = 1 << 6
_DEFAULT_TPID: Final = 0x8100
VLAN_TAG_BYTES: Final = 4
_ADDRESSES_BYTES: Final = 12  # of Ethernet, in front of the tag


class RingWalk(NamedTuple):
    """How far a walk came.

    rows: packets in the columns.
    offset: of the next packet's header in the block, 0 = the block is through.
    left: packets from there on.
    """

    rows: int
    offset: int
    left: int


@inlined
def _put16(data: ByteArray, at: int, value: int) -> None:
    data[at] = value & 0xFF
    data[at + 1] = (value >> 8) & 0xFF


@inlined
def _put32(data: ByteArray, at: int, value: int) -> None:
    _put16(data, at, value)
    _put16(data, at + 2, value >> 16)


@inlined
def _restore_tag(data: ByteArray, header: int, status: int) -> None:
    """Put the VLAN tag back in front of the ethertype, and say so in the packet's header."""
    mac = le16(data, header + _MAC)
    start = header + mac - VLAN_TAG_BYTES
    for index in range(_ADDRESSES_BYTES):
        data[start + index] = data[start + index + VLAN_TAG_BYTES]
    tpid = _DEFAULT_TPID
    if status & _VLAN_TPID_VALID:
        tpid = le16(data, header + _VLAN_TPID)
    tag = le32(data, header + _VLAN_TCI)
    at = start + _ADDRESSES_BYTES
    data[at] = (tpid >> 8) & 0xFF
    data[at + 1] = tpid & 0xFF
    data[at + 2] = (tag >> 8) & 0xFF
    data[at + 3] = tag & 0xFF
    _put16(data, header + _MAC, mac - VLAN_TAG_BYTES)
    _put32(data, header + _CAPTURED, le32(data, header + _CAPTURED) + VLAN_TAG_BYTES)
    _put32(data, header + _WIRE, le32(data, header + _WIRE) + VLAN_TAG_BYTES)
    _put32(data, header + _STATUS, status & ~_VLAN_VALID)


@kernel
def walk_block(
    data: ByteArray,
    bounds: tuple[int, int],
    left: int,
    interface: int,
    is_ethernet: int,
    packets: PacketColumns,
) -> RingWalk:
    """Find the packets of a block, starting at one of them.

    Args:
        data: the rings. bounds: where the header of the first packet lies, and where the block
            ends. left: packets from there on. interface: of all of them. is_ethernet: 1 where VLAN
            tags are to be put back. packets: written from row 0.
    """
    position, end = bounds
    row = 0
    while left > 0 and row < len(packets.offset):
        if position + PACKET_HEADER_BYTES > end:
            return RingWalk(row, 0, 0)
        status = le32(data, position + _STATUS)
        if is_ethernet and status & _VLAN_VALID:
            _restore_tag(data, position, status)
        mac = le16(data, position + _MAC)
        captured = min(le32(data, position + _CAPTURED), end - position - mac)
        packets.offset[row] = position + mac
        packets.captured_bytes[row] = max(captured, 0)
        packets.wire_bytes[row] = max(le32(data, position + _WIRE), captured)
        seconds = le32(data, position + _SECONDS)
        packets.ts_ns[row] = seconds * 1_000_000_000 + le32(data, position + _NANOSECONDS)
        packets.interface[row] = interface
        row += 1
        left -= 1
        step = le32(data, position + _NEXT)
        if left > 0 and step < PACKET_HEADER_BYTES:
            return RingWalk(row, 0, 0)
        position += step
    return RingWalk(row, position if left > 0 else 0, left)
