"""Blocks of a packet ring, built as the kernel builds them."""

import struct

import numpy as np
import pytest

from dissector.capture.tpacket import BLOCK_HEADER_BYTES, PACKET_HEADER_BYTES, walk_block
from dissector.packet.columns import PacketColumns

ROOM = 32  # in front of each packet: address of the sender, and the reserve
VLAN_VALID, TPID_VALID = 1 << 4, 1 << 6


class Sent:
    """A packet that the kernel would put into a block."""

    def __init__(self, data: bytes, ts_ns: int, tag: int | None = None, tpid: int | None = None):
        self.data, self.ts_ns, self.tag, self.tpid = data, ts_ns, tag, tpid
        self.wire = len(data)

    def bytes(self, is_last: bool) -> bytes:
        mac = PACKET_HEADER_BYTES + ROOM
        size = -(-(mac + len(self.data)) // 16) * 16
        status = 1
        if self.tag is not None:
            status |= VLAN_VALID | (TPID_VALID if self.tpid else 0)
        head = struct.pack(
            "<IIIIIIHHIIHH", 0 if is_last else size, self.ts_ns // 10**9, self.ts_ns % 10**9,
            len(self.data), self.wire, status, mac, mac + 14, 0, self.tag or 0, self.tpid or 0, 0,
        )  # fmt: skip
        return (head.ljust(mac, b"\0") + self.data).ljust(size, b"\0")


def block_of(packets: list[Sent], size: int = 1 << 16) -> np.ndarray:
    body = b"".join(each.bytes(place == len(packets) - 1) for place, each in enumerate(packets))
    return np.frombuffer(bytearray((bytes(BLOCK_HEADER_BYTES) + body).ljust(size, b"\0")), np.uint8)


def walked(data: np.ndarray, count: int, room: int = 64, is_ethernet: int = 1) -> list[tuple]:
    packets = PacketColumns.new(room)
    packets = type(packets)(packets.matrix[:, :room].copy())
    position, left, found = BLOCK_HEADER_BYTES, count, []
    while left > 0:
        walk = walk_block(data, (position, len(data)), left, 7, is_ethernet, packets)
        for row in range(walk.rows):
            start = int(packets.offset[row])
            captured = int(packets.captured_bytes[row])
            assert packets.interface[row] == 7
            found.append(
                (
                    data[start : start + captured].tobytes(),
                    int(packets.wire_bytes[row]),
                    int(packets.ts_ns[row]),
                )
            )
        position, left = walk.offset, walk.left
    return found


def some(count: int) -> list[Sent]:
    return [Sent(bytes([place]) * (14 + place), 10**18 + 7 * place) for place in range(count)]


@pytest.mark.parametrize("room", [1, 3, 64])
def test_packets_are_found_where_they_lie_however_many_fit_at_once(room):
    packets = some(20)
    assert walked(block_of(packets), 20, room) == [
        (each.data, each.wire, each.ts_ns) for each in packets
    ]


def test_a_packet_that_was_cut_keeps_its_length_on_the_wire():
    (packet,) = some(1)
    packet.wire = 9000
    assert walked(block_of([packet]), 1)[0][1] == 9000


@pytest.mark.parametrize("tpid", [None, 0x88A8])
def test_a_tag_beside_the_packet_goes_back_in_front_of_its_type_once(tpid):
    data = bytes(range(12)) + b"\x08\x00" + b"payload"
    packets = [Sent(data, 5, tag=0x2064, tpid=tpid), Sent(data, 6)]
    block = block_of(packets)
    tagged = data[:12] + struct.pack(">HH", tpid or 0x8100, 0x2064) + data[12:]
    for _ in range(2):
        assert walked(block, 2) == [(tagged, len(tagged), 5), (data, len(data), 6)]


def test_tags_are_left_alone_where_there_are_no_ethernet_headers():
    packet = Sent(b"E" * 40, 5, tag=100)
    assert walked(block_of([packet]), 1, is_ethernet=0) == [(packet.data, 40, 5)]


def test_damage_ends_the_walk_inside_the_block():
    data = block_of(some(3))
    data[BLOCK_HEADER_BYTES : BLOCK_HEADER_BYTES + 4] = 0  # no step to the next packet
    assert len(walked(data, 3)) == 1
    data = block_of(some(3))
    data[BLOCK_HEADER_BYTES + 12 : BLOCK_HEADER_BYTES + 16] = 255  # captured: 4 GiB
    assert len(walked(data, 3)[0][0]) <= len(data)
    data = block_of(some(3))
    data[BLOCK_HEADER_BYTES + 2] = 255  # the next one lies far outside
    assert len(walked(data, 3)) == 1
