"""Names of tunnels, and how many there may be."""

import numpy as np

from dissector import limits
from dissector.packet import reader as reader_module
from dissector.packet.tunnel_names import tunnel_names
from dissector.packet.walk import NO_KIND
from tests.dissector.packet.test_unwrap import FRAME
from tests.wire.captures import RAW, Record, pcap
from tests.wire.tunnels import over_udp, vxlan

NO_MORE = [NO_KIND] * 6


def test_a_name_of_each_kind_outermost_first():
    address = [0, 0xC0000201, 0, 0xC0000202]
    six = [0x20010DB8 << 32, 1, 0x20010DB8 << 32, -1]
    stacks = (
        [[0, 5, *[0] * 4], [1, 7, *[0] * 4]],
        [[2, -1, *address]],
        [],
        [[4, -1, *six]],
        [[5, 99, *[0] * 4]],
    )
    rows = [[*stack, *[NO_MORE] * (limits.MAX_TUNNEL_DEPTH - len(stack))] for stack in stacks]
    assert tunnel_names(np.array(rows).reshape(-1, len(NO_MORE))) == [
        "vxlan:5/geneve:7",
        "gre:192.0.2.1-192.0.2.2",
        "",
        "ip:2001:db8::1-2001:db8::ffff:ffff:ffff:ffff",
        "mpls",
    ]


def test_many_tunnels_have_their_names_and_too_many_none(monkeypatch):
    from tests.dissector.capture.reading import read_capture

    assert limits.MAX_TUNNELS > 1000
    records = [Record(n, over_udp(vxlan(FRAME, n % 500), 4789)) for n in range(1000)]
    reading = read_capture([pcap(records, link_type=RAW)])
    assert [each.tunnel for each in reading.segments] == [f"vxlan:{n % 500}" for n in range(1000)]
    assert reading.notices == []


def test_beyond_the_limit_tunnels_share_a_number():
    from tests.dissector.packet.test_decode import place

    count = limits.MAX_TUNNELS
    reader = reader_module.PacketReader(block_rows=4096)
    packet = bytearray(over_udp(vxlan(FRAME, 0), 4789))
    numbers = []
    for start in range(0, count + 4096, 4096):
        packets = []
        for number in range(start, start + 4096):
            packet[32:35] = number.to_bytes(3, "big")
            packets.append(bytes(packet))
        data, columns = place(packets, 0)
        segments, found = reader.read(data, columns, 4096, 1, np.array([RAW]))
        assert found == 4096
        numbers += segments.tunnel[:found].tolist()
    assert numbers[: count - 1] == list(range(1, count))
    assert set(numbers[count - 1 :]) == {count}
    assert reader.tunnel_names(count - 2, count + 1) == [f"vxlan:{count - 3}", f"vxlan:{count - 2}"]
    assert [notice.code for notice in reader.finish()] == ["tunnels_limit"]
