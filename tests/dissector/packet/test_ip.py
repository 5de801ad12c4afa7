"""IPv4 and IPv6: lengths, options, extension headers, what is not read."""

import struct

import pytest

from dissector.limits import MAX_EXTENSION_HEADERS
from tests.dissector.capture.reading import read_capture
from tests.dissector.packet.decoding import decode
from tests.wire.captures import RAW, Record, pcap
from tests.wire.packets import ethernet, extension, fragment_header, ipv4, ipv6, tcp, udp
from tests.wire.tunnels import over_udp, vxlan

TCP4 = tcp(b"payload")
TCP6 = tcp(b"payload", addresses=("fd00::1", "fd00::2"))
V4, V6 = ipv4(TCP4), ipv6(TCP6)


def test_fields_of_ipv4():
    segment = decode(
        ipv4(TCP4, source="255.0.0.1", destination="1.2.3.4", identification=0xFFFE, hop_limit=200),
        RAW,
    )
    assert (segment.source, segment.destination) == ("255.0.0.1", "1.2.3.4")
    assert (segment.ip_id, segment.hop_limit) == (0xFFFE, 200)


def test_fields_of_ipv6():
    high = "ffff:ffff:ffff:ffff:8000::1"
    segment = decode(ipv6(TCP6, source=high, destination="2001:db8::9", hop_limit=3), RAW)
    assert (segment.source, segment.destination) == (high, "2001:db8::9")
    assert (segment.ip_id, segment.hop_limit) == (-1, 3)


def test_padding_and_trailers_of_the_link_are_no_payload():
    assert decode(ipv4(TCP4) + b"\0" * 10, RAW).payload == b"payload"
    assert decode(ipv6(TCP6) + b"\0" * 10, RAW).payload == b"payload"


@pytest.mark.parametrize("size", [4, 40], ids=["one word", "all words"])
def test_ipv4_options_are_skipped(size):
    assert decode(ipv4(TCP4, options=b"\x01" * size), RAW).payload == b"payload"


def test_length_zero_of_a_packet_not_yet_cut_by_the_card_means_the_wire_length():
    big = tcp(b"x" * 70_000)
    segment = decode(ipv4(big, total_bytes=0), RAW, captured=100)
    assert (segment.wire_bytes, len(segment.payload)) == (70_000, 60)
    jumbo = tcp(b"x" * 70_000, addresses=("fd00::1", "fd00::2"))
    assert decode(ipv6(jumbo, payload_bytes=0), RAW).wire_bytes == 70_000
    hop_by_hop = extension(6, jumbo)
    assert decode(ipv6(hop_by_hop, next_header=0, payload_bytes=0), RAW).wire_bytes == 70_000


def test_a_packet_shorter_than_its_ip_length_is_cut():
    segment = decode(ipv4(TCP4)[:-3], RAW)
    assert (segment.payload, segment.wire_bytes) == (b"payl", 7)


EXTENSIONS = {
    "hop by hop": (0, extension(6, TCP6)),
    "routing, long": (43, extension(6, TCP6, words=3)),
    "destination, mobility": (60, extension(135, extension(6, TCP6))),
    "authentication": (51, b"\x06\x04" + bytes(22) + TCP6),
    "authentication of length 0": (51, b"\x06\0" + bytes(6) + TCP6),
    "atomic fragment": (44, fragment_header(6, TCP6)),
}


@pytest.mark.parametrize(("first", "payload"), EXTENSIONS.values(), ids=EXTENSIONS.keys())
def test_extension_headers_are_walked(first, payload):
    whole = ipv6(payload, next_header=first)
    segment = decode(whole, RAW)
    assert (segment.payload, segment.wire_bytes) == (b"payload", 7)
    for captured in range(40, len(whole) - len(TCP6) + 16):
        assert decode(whole, RAW, captured=captured) in ("ip_header_cut", "tcp_header_cut")


def test_authentication_headers_of_ipv4_are_skipped():
    whole = ipv4(b"\x06\x04" + bytes(22) + TCP4, protocol=51)
    assert decode(whole, RAW).payload == b"payload"
    assert decode(whole, RAW, captured=21) == "ip_header_cut"


def test_the_walk_over_extension_headers_is_bounded():
    payload, first = TCP6, 6
    for _ in range(MAX_EXTENSION_HEADERS):
        payload, first = extension(first, payload), 60
    assert decode(ipv6(payload, next_header=60), RAW).payload == b"payload"
    deeper = ipv6(extension(60, payload), next_header=60)
    assert decode(deeper, RAW) == "extension_depth"


def test_fragments_are_counted():
    for fragment in (0x2000, 0x2010, 0x0010):
        assert decode(ipv4(TCP4[:24], fragment=fragment), RAW) == "ip_fragment"
    assert decode(ipv4(TCP4, fragment=0x8000), RAW).payload == b"payload"
    for offset, more in ((0, 1), (9, 1), (9, 0)):
        payload = fragment_header(6, TCP6[:24], offset, more)
        assert decode(ipv6(payload, next_header=44), RAW) == "ip_fragment"
    for payload in (TCP4, b""):
        assert decode(ipv4(payload, fragment=0x2000), RAW) == "fragment_malformed"
        assert decode(ipv6(fragment_header(6, payload, 0, 1), next_header=44), RAW) == (
            "fragment_malformed"
        )


def test_a_jumbo_option_says_the_length():
    jumbo = tcp(b"x" * 70_000, addresses=("fd00::1", "fd00::2"))
    head = b"\x06\0\xc2\x04" + struct.pack(">I", 8 + len(jumbo))
    whole = ipv6(head + jumbo + b"trailer", next_header=0, payload_bytes=0)
    assert decode(whole, RAW).payload == b"x" * 70_000
    for odd in (8 + 100, 1 << 31):
        other = whole[:44] + struct.pack(">I", odd) + whole[48:]
        assert decode(other, RAW).payload == b"x" * 70_000 + b"trailer"


PROTOCOLS = {
    "icmp": (1, bytes(20), "icmp"),
    "esp": (50, bytes(20), "esp"),
    "icmpv6": (58, bytes(20), "icmp"),
    "sctp": (132, bytes(20), "other_transport"),
    "udp": (17, udp(b"", 1, 53), "udp"),
    "udp cut": (17, b"\0\1", "udp"),
}


@pytest.mark.parametrize(("protocol", "payload", "reason"), PROTOCOLS.values(), ids=PROTOCOLS)
def test_other_protocols_have_their_reason(protocol, payload, reason):
    assert decode(ipv4(payload, protocol=protocol), RAW) == reason
    assert decode(ipv6(payload, next_header=protocol), RAW) == reason


def test_malformed_headers_are_counted():
    good = ipv4(TCP4)
    assert decode(b"\x44" + good[1:], RAW) == "ip_malformed"
    assert decode(ipv4(TCP4, total_bytes=19), RAW) == "ip_malformed"
    assert decode(struct.pack(">IH", 2, 0) + bytes(60), 0) == "not_ip"
    assert decode(bytes(12) + b"\x08\0" + ipv6(TCP6)) == "ip_malformed"
    assert decode(bytes(12) + b"\x86\xdd" + good + bytes(20)) == "ip_malformed"


def test_headers_cut_by_the_snap_length_are_counted():
    for captured in range(1, 20):
        assert decode(ipv4(TCP4), RAW, captured=captured) == "ip_header_cut"
    assert decode(ipv4(TCP4, options=bytes(8)), RAW, captured=24) == "ip_header_cut"
    assert decode(ipv6(TCP6), RAW, captured=39) == "ip_header_cut"


def damaged_length(packet: bytes, more: int) -> bytes:
    """A packet whose IP header says more bytes than there are; its checksum is wrong by that."""
    at, size = (2, len(packet)) if packet[0] >> 4 == 4 else (4, len(packet) - 40)
    return packet[:at] + (size + more).to_bytes(2, "big") + packet[at + 2 :]


@pytest.mark.parametrize("more", [1, 300, 30_000])
@pytest.mark.parametrize("packet", [V4, V6], ids=["v4", "v6"])
def test_a_length_that_the_checksum_of_tcp_disproves_cuts_nothing(packet, more):
    damaged = damaged_length(packet, more)
    kind = 0x0800 if packet is V4 else 0x86DD
    for whole in (damaged, over_udp(vxlan(ethernet(damaged, kind)), 4789)):
        reading = read_capture([pcap([Record(1, whole)], link_type=RAW)])
        (found,) = reading.segments
        assert (found.payload, found.wire_bytes) == (b"payload", 7)
        assert reading.notices == []


def test_a_packet_that_was_cut_and_given_new_checksums_lost_its_bytes():
    """tcprewrite --fixcsum sums what is left: the length of a right IP header was on the wire."""
    whole = ipv4(tcp(b""))
    total = (len(whole) + 600).to_bytes(2, "big")
    header = whole[:2] + total + whole[4:10] + bytes(2) + whole[12:20]
    words = sum(int.from_bytes(header[at : at + 2], "big") for at in range(0, 20, 2))
    checksum = 0xFFFF - (words % 0xFFFF or 0xFFFF)
    cut = header[:10] + checksum.to_bytes(2, "big") + header[12:] + whole[20:]
    (found,) = (reading := read_capture([pcap([Record(1, cut)], link_type=RAW)])).segments
    assert (found.payload, found.wire_bytes) == (b"", 600)
    assert [each.code for each in reading.notices] == ["packets_shortened"]


@pytest.mark.parametrize("packet", [V4, V6], ids=["v4", "v6"])
def test_packets_that_were_shortened_before_they_were_captured_are_counted(packet):
    cut, sliced = Record(1, packet[:-3], len(packet)), Record(2, packet[:-3])
    reading = read_capture([pcap([cut, sliced, sliced], link_type=RAW)])
    assert {(each.payload, each.wire_bytes) for each in reading.segments} == {(b"payl", 7)}
    (told,) = reading.notices
    assert (told.code, told.packet, told.value, told.value2, told.bytes) == (
        "packets_shortened", 2, 2, 6, 6,
    )  # fmt: skip
