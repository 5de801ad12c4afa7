"""Kernel filters: what they let pass is what libpcap's own compiler lets pass, and more."""

import struct

import pytest

from dissector.errors import DependencyError, UsageError
from dissector.packet.link import ETHERNET
from dissector.tap import filters
from dissector.tap.filters import (
    ALL,
    MAX_BYTES,
    NOTHING,
    compiled,
    of_ports,
    of_tagged,
    without_own,
)

_AND, _LEFT = 0x54, 0x64
TO_HOST, TO_OTHER, OUTGOING = 0, 3, 4


def run(program: tuple, packet: bytes, kind: int = TO_OTHER, is_tagged: bool = False) -> int:
    """What the kernel would do: a plain interpreter of the instructions that are used here."""
    protocol = int.from_bytes(packet[12:14], "big")
    beside = {0xFFFFF000: protocol, 0xFFFFF004: kind, 0xFFFFF030: int(is_tagged)}
    value = index = place = 0

    def load(offset: int, size: int) -> int | None:
        if offset in beside:
            return beside[offset]
        start = offset - 0xFFF00000 + 14 if offset >= 0xFFF00000 else offset
        found = packet[start : start + size]
        return int.from_bytes(found, "big") if len(found) == size else None

    while True:
        code, yes, no, constant = program[place]
        place += 1
        sizes = {0x20: 4, 0x28: 2, 0x30: 1, 0x48: 2}
        if code in sizes:
            loaded = load(constant + (index if code == 0x48 else 0), sizes[code])
            if loaded is None:
                return 0
            value = loaded
        elif code == 0x07:
            index = value
        elif code == _AND:
            value &= constant
        elif code == _LEFT:
            value <<= constant
        elif code == 0x15:
            place += yes if value == constant else no
        elif code == 0x45:
            place += yes if value & constant else no
        else:
            assert code == 0x06
            return constant


def ipv4(source: int, destination: int, protocol: int = 6, fragment: int = 0, words: int = 5):
    head = struct.pack(">BBHHHBBH", 0x40 | words, 0, 60, 1, fragment, 64, protocol, 0) + bytes(8)
    head = head.ljust(4 * words, b"\1")
    return bytes(12) + b"\x08\x00" + head + struct.pack(">HH", source, destination) + bytes(16)


def ipv6(source: int, destination: int, protocol: int = 6):
    head = struct.pack(">IHBB", 6 << 28, 20, protocol, 64) + bytes(32)
    return bytes(12) + b"\x86\xdd" + head + struct.pack(">HH", source, destination) + bytes(16)


MATCHING = [ipv4(6650, 9), ipv4(9, 6650), ipv4(9, 6651, words=8), ipv6(6650, 9), ipv6(9, 6651)]
OTHER = [
    ipv4(9, 9),
    ipv4(6650, 9, protocol=17),
    ipv4(6650, 9, fragment=5),
    ipv6(9, 9),
    ipv6(6650, 9, protocol=17),
    bytes(12) + b"\x08\x06" + bytes(40),
    bytes(10),
]


@pytest.mark.parametrize("text", ["tcp port 6650 or 6651", "tcp port 6650  or tcp port 6651"])
def test_plain_port_filters_need_no_library(text, monkeypatch):
    monkeypatch.setattr(filters, "_candidates", lambda: iter(()))
    program = compiled(text, None, ETHERNET)
    assert [run(program, packet) for packet in MATCHING] == [MAX_BYTES] * 5
    assert [run(program, packet) for packet in OTHER] == [0] * 7
    with pytest.raises(DependencyError, match="libpcap"):
        compiled("tcp port 6650 and host 10.0.0.1", None, ETHERNET)
    with pytest.raises(UsageError, match="there is no port 66500"):
        compiled("tcp port 6650 or 66500", None, ETHERNET)


def test_the_library_agrees_where_it_is_there():
    try:
        program = compiled("tcp and (port 6650 or port 6651)", None, ETHERNET)
    except DependencyError as error:
        pytest.skip(str(error))
    assert len(program) > 5
    with pytest.raises(UsageError, match="syntax error"):
        compiled("tcp prt 5", None, ETHERNET)
    assert compiled(" ", None, ETHERNET) == ALL


def test_own_packets_of_a_port_are_left_out_and_those_of_others_are_not():
    program = without_own(9100, NOTHING)
    mine, other = ipv4(9100, 40000), ipv4(9101, 40000)
    program = without_own(9100)
    for kind in (TO_HOST, OUTGOING):
        assert run(program, mine, kind) == 0 and run(program, ipv6(5, 9100), kind) == 0
        assert run(program, other, kind) == MAX_BYTES
    assert run(program, mine, TO_OTHER) == MAX_BYTES
    both = without_own(9100, of_ports([6650]))
    assert run(both, ipv4(6650, 1), TO_HOST) == MAX_BYTES
    assert run(both, ipv4(9100, 1), TO_HOST) == run(both, ipv4(7, 1), TO_OTHER) == 0


def test_tags_are_seen_beside_a_packet_and_in_it():
    inside = bytes(12) + b"\x81\x00" + bytes(40)
    assert run(of_tagged(), ipv4(1, 2)) == 0
    assert run(of_tagged(), ipv4(1, 2), is_tagged=True) == MAX_BYTES
    assert run(of_tagged(), inside) == run(of_ports([6650]), inside) == MAX_BYTES
