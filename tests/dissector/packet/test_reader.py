"""Counts by file, and link types that are not read."""

from tests.dissector.capture.reading import read_capture
from tests.wire.captures import Record, enhanced_packet, interface, pcap, section
from tests.wire.packets import ethernet, segment

GOOD = segment(b"x")


def test_counts_belong_to_their_file():
    reading = read_capture(
        [
            pcap([Record(1, GOOD), Record(2, ethernet(b"", 0x0806))]),
            pcap([Record(3, GOOD), Record(4, b"")]),
        ]
    )
    assert reading.counts == [(1, {"not_ip": 1}), (1, {"link_header_cut": 1})]
    assert [found.packet for found in reading.segments] == [1, 3]


def test_unknown_link_types_are_told_by_number():
    file = section() + interface(link_type=147) + interface() + interface(link_type=105)
    for number in (1, 0, 2, 0, 0):
        file += enhanced_packet(number, GOOD, interface_id=number)
    reading = read_capture([file, pcap([Record(9, GOOD)], link_type=147)], block_rows=2)
    assert reading.counts == [(1, {"unknown_link_type": 4}), (0, {"unknown_link_type": 1})]
    told = [(n.packet, n.value, n.value2) for n in reading.notices if n.code != "clock_step"]
    assert sorted(told) == [(2, 147, 4), (3, 105, 1)]
