"""Packets of kinds that are not read: each has a name, and its sentence says how many there are."""

import re
import struct

import pytest

from dissector.notices import NOTICE_NUMBER, NOTICES
from dissector.packet.unread import (
    ENCAPSULATION,
    ETHERTYPE,
    IN_IP,
    IN_PPP,
    IP_PROTOCOLS,
    LINK_TYPE,
    PPP_PROTOCOLS,
    UDP_PORTS,
    UNREAD_CODES,
    unread_name,
    unread_of,
    unread_text,
)
from tests.dissector.capture.reading import read_capture
from tests.wire.captures import ETHERNET, Record, pcap
from tests.wire.packets import ethernet, ipv4, udp
from tests.wire.tunnels import OUTER, gre, over_ip, pppoe

FILL = bytes(40)


def unread(*packets: bytes, link_type: int = ETHERNET) -> dict[str, int]:
    """What is told of packets that are not read, and how many of them there are."""
    records = [Record(number, packet) for number, packet in enumerate(packets)]
    reading = read_capture([pcap(records, link_type=link_type)])
    assert not reading.segments
    return {
        unread_name(each.code, each.value): each.value2
        for each in reading.notices
        if each.code in UNREAD_CODES
    }


def over(port: int, head: bytes, is_answer: bool = False) -> bytes:
    ports = (port, 40_000) if is_answer else (40_000, port)
    datagram = udp(head + FILL, *ports)
    return ethernet(ipv4(datagram, source=OUTER[0], destination=OUTER[1], protocol=17))


KINDS = {
    "L2TP (UDP port 1701)": over(1701, b"\x40\x02"),
    "CAPWAP (UDP port 5247)": over(5247, b"\0\x10"),
    "CAPWAP, control (UDP port 5246)": over(5246, b"\x01\0", is_answer=True),
    "TZSP (UDP port 37008)": over(37008, b"\x01\0\0\x01"),
    "WireGuard (UDP port 51820)": over(51820, b"\x04\0\0\0"),
    "IPsec in UDP (UDP port 4500)": over(4500, b"\0\0\0\0"),
    "L2TP version 3 (IP protocol 115)": ethernet(over_ip(FILL, 115)),
    "IPComp (IP protocol 108)": ethernet(over_ip(FILL, 108)),
    "ethertype 0x8200 (802.11 in GRE)": ethernet(over_ip(gre(FILL, 0x8200), 47)),
    "ethertype 0x22f3 (TRILL)": ethernet(FILL, 0x22F3),
    "ethertype 0x1234": ethernet(FILL, 0x1234),
    "compressed or encrypted PPP (PPP protocol 0x00fd)": ethernet(
        pppoe(bytes(20))[:6] + b"\0\xfd" + FILL, 0x8864
    ),
}


@pytest.mark.parametrize(("name", "packet"), KINDS.items(), ids=KINDS)
def test_kinds_that_are_not_read_are_named_and_counted(name: str, packet: bytes) -> None:
    assert unread(*[packet] * 3) == {name: 3}


def test_link_types_are_named_with_what_their_number_means() -> None:
    assert unread(FILL, FILL, link_type=127) == {"link type 127 (IEEE802_11_RADIOTAP)": 2}
    assert unread(FILL, link_type=300) == {"link type 300": 1}
    assert unread(b"\0\xfd" + FILL, link_type=9) == {
        "compressed or encrypted PPP (PPP protocol 0x00fd)": 1
    }


def test_all_kinds_of_a_capture_are_told() -> None:
    assert unread(*KINDS.values()) == dict.fromkeys(KINDS, 1)


def test_a_port_alone_makes_no_encapsulation_of_an_answer() -> None:
    """A client's own port may be any."""
    answer = struct.pack(">HHHH", 0xBEEF, 0x8180, 1, 1)
    for port in (1701, 5247, 37008, 51820):
        assert unread(over(port, answer)) == {}
    assert unread(over(53, b"\x01\0"), ethernet(over_ip(FILL, 89))) == {}


def test_a_sentence_says_what_the_notice_says_and_is_read_back() -> None:
    for code, number in ((LINK_TYPE, 127), (ETHERTYPE, 0x22F3), (ENCAPSULATION, 1701)):
        text, name = unread_text(code, number, 5), unread_name(code, number)
        sentence = NOTICES[NOTICE_NUMBER[code]].sentence.removeprefix("the encapsulation ")
        pattern = re.sub(r"\{value2?\}", ".+", sentence)
        assert re.fullmatch(pattern, text)
        assert unread_of(text) == (name, 5)
        assert unread_of(unread_text(code, number, 1)) == (name, 1)
    assert unread_text(LINK_TYPE, 127, 1).endswith(": 1 packet")
    assert unread_of("the interface dropped 3 packets") is None


def test_every_encapsulation_has_a_name() -> None:
    for port in UDP_PORTS:
        assert unread_name(ENCAPSULATION, port).endswith(f"(UDP port {port})")
    for protocol in IP_PROTOCOLS:
        assert unread_name(ENCAPSULATION, IN_IP | protocol).endswith(f"(IP protocol {protocol})")
    for protocol in PPP_PROTOCOLS:
        name = unread_name(ENCAPSULATION, IN_PPP | protocol)
        assert name.endswith(f"(PPP protocol 0x{protocol:04x})")
